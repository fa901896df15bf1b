"""How providers keep what they are sent: facts, as rows. Prices are in `prices`, which `genai-prices` ships.

Each row says how it is known: *documented* by the provider (as of November 2026), *measured* (somebody asked the
provider and told what it counted), or *assumed*. Where sources differ the more cautious one stands: a longer minimum,
a later `forgotten`, no field that might be refused.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from math import inf


@dataclass(frozen=True, slots=True)
class Caching:
    """When a provider finds the beginning of a request in its cache, and what it can be asked for."""

    minimum: int
    """Tokens of the shortest prefix that is kept."""
    step: int = 1
    """Prefixes are found in multiples of so many tokens."""
    lifetime: float = 300
    """Seconds from the last use."""
    lifetime_1h: float = 3600
    """Where the longer one was paid for."""
    forgotten: float | None = None
    """Seconds after which nothing is left for sure, if that is later. Infinite if the provider documents no limit."""
    marks: bool = False
    """Nothing is kept but what a request marks."""
    look_back: int | None = None
    """Blocks before a mark at which an earlier one is found; None where that does not matter."""
    hour: bool = False
    """A mark can ask for `lifetime_1h`."""
    key: bool = False
    """A request can name its conversation, so that it comes to where that is kept."""


CACHING: dict[str, Caching] = {
    # Documented: tools, system, messages; four marks; 20 blocks; each use counts anew, for free; `ttl: "1h"` needs no
    # beta header any more (one that is sent does no harm).
    "anthropic": Caching(minimum=1024, marks=True, look_back=20, hour=True),
    # Documented: from 1,024 tokens on by itself, usually 5 to 10 minutes, never more than an hour; `prompt_cache_key`
    # in both of its APIs. For gpt-5.5 up to 24 hours are documented and from gpt-5.6 on 30 minutes at least. Measured
    # on recorded sessions of Codex with these: of seven pauses of one to 24 hours none was survived, of sixteen of ten
    # minutes to an hour five, so the usual lifetimes stand for them too.
    "openai": Caching(minimum=1024, step=128, lifetime=600, forgotten=3600, key=True),
    # Documented: automatic from 2.5 on, 4,096 tokens for all but the 2.5 models. The TTL is not documented: assumed.
    "google": Caching(minimum=4096, lifetime=600, forgotten=inf),
    # Documented: in units of 64 tokens on disk, cleared after hours to days without use.
    "deepseek": Caching(minimum=64, step=64, lifetime=3600, forgotten=inf),
}
"""By provider. Others have the usual one."""

USUAL_CACHING = replace(CACHING["openai"], key=False, forgotten=inf)
"""For providers about which nothing more is known: they cache automatically. Others reject fields that only some know.
The TTL is unknown: a recorded session read 81,280 of 81,336 tokens from the cache of such a provider after 9,008 s."""

PAID_CACHING = CACHING["anthropic"]
"""Where nothing more is known than that writing costs extra."""

_POINTS = Caching(minimum=1024, marks=True, look_back=20)

MODELS: tuple[tuple[str, Caching], ...] = (
    # Documented: an hour for the 4.5 ones. Others were seen to refuse it, and to take it: not asked for.
    ("aws/claude-opus-4-5", replace(_POINTS, hour=True)),
    ("aws/claude-sonnet-4-5", replace(_POINTS, hour=True)),
    ("aws/claude-haiku-4-5", replace(_POINTS, hour=True)),
    ("aws/claude", _POINTS),  # documented: four cache points, looked back from as on Anthropic's side
    ("openai/gpt-oss", USUAL_CACHING),  # served by others
)
"""Provider and beginning of a model's name, where it is not as with others of its provider. The first that fits
counts."""

MINIMUMS: tuple[tuple[str, int], ...] = (
    ("claude-opus-4-5", 4096),  # documented
    ("claude-opus-4-6", 4096),  # documented
    ("claude-opus-4-7", 2048),  # documented and measured (July 2026)
    ("claude-haiku-4-5", 4096),  # documented
    ("claude-haiku-5-5", 4096),  # assumed: that of the Haiku before
    ("claude-mythos-preview", 2048),  # measured
    ("claude-3-haiku", 2048),  # documented, as is the next
    ("claude-3-5-haiku", 2048),
    ("claude-opus-5-5", 1024),  # assumed, as are the next three: the models before them keep from 512 on
    ("claude-fable-5-1", 1024),
    ("claude-fable-5-2", 1024),
    ("claude-mythos-5-", 1024),
    ("claude-opus-5", 512),  # documented and measured, as are the next two
    ("claude-fable-5", 512),
    ("claude-mythos-5", 512),
    ("gemini-2.5", 2048),  # documented
)
"""Beginning of a model's name → tokens of the shortest prefix that is kept, where it is not that of its provider. The
first that fits counts. Sonnet 4.5, 4.6 and 5 and Opus 4.8: 1,024, documented and measured."""


HOUSE_NAMES = ("claude-", "gpt-")
"""Names of models whose TTL is known although the price list does not have them yet."""


def caching_of(provider: str, model: str) -> Caching:
    """How a provider keeps what is sent to a model, by its name in the price list."""
    name = bare_name(model)
    place = f"{provider}/{name}"
    usual = CACHING.get(provider, USUAL_CACHING)
    known = next((row for start, row in MODELS if place.startswith(start)), usual)
    minimum = next((tokens for start, tokens in MINIMUMS if name.startswith(start)), known.minimum)
    return known if minimum == known.minimum else replace(known, minimum=minimum)


def unsure(caching: Caching, model: str) -> Caching:
    """Return the caching of a model that is not in the price list: no field that another server might reject, and no
    known TTL unless its name says whose model it is."""
    known = bare_name(model).startswith(HOUSE_NAMES)
    return replace(caching, key=False, forgotten=caching.forgotten if known else inf)


_SERVED = re.compile(r"(?:[a-z-]+\.)?(?:anthropic|openai|amazon)\.(?=[a-z])")
"""Region and house, as Bedrock names models."""


def bare_name(model: str) -> str:
    """A model's name without who serves it and where: `bedrock/us.anthropic.claude-opus-5` is `claude-opus-5`."""
    last = model.rpartition("/")[2]
    found = _SERVED.match(last)
    return last[found.end() :] if found else last
