"""Cache rules of providers and models, as a table. Prices come from `genai-prices` (`prices`).

Each row has its source: *documented* by the provider (as of November 2026), *measured* with requests to the provider,
or *assumed*. If sources differ, the table has the more cautious value: a longer minimum, a later `forgotten`, no field
that a provider might reject.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from math import inf


@dataclass(frozen=True, slots=True)
class CacheRules:
    """Cache rules of a model: when its provider reads a prefix from the cache, and which directives it accepts."""

    minimum: int
    """Tokens of the shortest prefix that is cached."""
    step: int = 1
    """Cached prefixes have a multiple of this number of tokens."""
    lifetime: float = 300
    """TTL in seconds from the last use."""
    lifetime_1h: float = 3600
    """TTL in seconds if a request selects the longer one."""
    forgotten: float | None = None
    """Seconds after which the cache has certainly expired, if that is later. Infinite if no limit is documented."""
    marks: bool = False
    """The provider caches only up to cache breakpoints; False if it caches automatically."""
    look_back: int | None = None
    """Number of blocks before a breakpoint in which the provider looks for an earlier one; None if unlimited."""
    hour: bool = False
    """A breakpoint can select `lifetime_1h`."""
    key: bool = False
    """A request can name its conversation, so that it is routed to the server with its cache."""


CACHING: dict[str, CacheRules] = {
    # Documented: tools, system, messages; four breakpoints; 20 blocks; each use restarts the TTL, free of charge;
    # `ttl: "1h"` needs no beta header any more (sending one does no harm).
    "anthropic": CacheRules(minimum=1024, marks=True, look_back=20, hour=True),
    # Documented: automatic from 1,024 tokens on, usually 5 to 10 minutes, never more than an hour; `prompt_cache_key`
    # in both APIs. For gpt-5.5 up to 24 hours are documented, and from gpt-5.6 on at least 30 minutes. Measured on
    # recorded Codex sessions with these models: the cache survived 0 of 7 idle times of one to 24 hours, and 5 of 16 of
    # ten minutes to an hour, so they have the usual TTLs here.
    "openai": CacheRules(minimum=1024, step=128, lifetime=600, forgotten=3600, key=True),
    # Documented: automatic from 2.5 on, 4,096 tokens for all but the 2.5 models. The TTL is not documented: assumed.
    "google": CacheRules(minimum=4096, lifetime=600, forgotten=inf),
    # Documented: in units of 64 tokens on disk, cleared after hours to days without use.
    "deepseek": CacheRules(minimum=64, step=64, lifetime=3600, forgotten=inf),
}
"""Provider → its cache rules. `USUAL_CACHING` applies to providers that are not listed."""

USUAL_CACHING = replace(CACHING["openai"], key=False, forgotten=inf)
"""Cache rules of unknown providers: automatic caching, without fields that some servers reject. The TTL is unknown:
in a recorded session, such a provider read 81,280 of 81,336 tokens from its cache after 9,008 s."""

PAID_CACHING = CACHING["anthropic"]
"""Cache rules of unknown models that charge extra for cache writes."""

_POINTS = CacheRules(minimum=1024, marks=True, look_back=20)

MODELS: tuple[tuple[str, CacheRules], ...] = (
    # Documented: an hour for the 4.5 models. Others both rejected and accepted it, so it is not requested.
    ("aws/claude-opus-4-5", replace(_POINTS, hour=True)),
    ("aws/claude-sonnet-4-5", replace(_POINTS, hour=True)),
    ("aws/claude-haiku-4-5", replace(_POINTS, hour=True)),
    ("aws/claude", _POINTS),  # documented: four cache points, with the same lookback as at Anthropic
    ("openai/gpt-oss", USUAL_CACHING),  # served by others
)
"""Provider and prefix of a model's name → cache rules that differ from those of its provider. The first match wins."""

MINIMUMS: tuple[tuple[str, int], ...] = (
    ("claude-opus-4-5", 4096),  # documented
    ("claude-opus-4-6", 4096),  # documented
    ("claude-opus-4-7", 2048),  # documented and measured (July 2026)
    ("claude-haiku-4-5", 4096),  # documented
    ("claude-haiku-5-5", 4096),  # assumed: as for the previous Haiku
    ("claude-mythos-preview", 2048),  # measured
    ("claude-3-haiku", 2048),  # documented, as is the next
    ("claude-3-5-haiku", 2048),
    ("claude-opus-5-5", 1024),  # assumed, as are the next three: earlier models cache from 512 tokens on
    ("claude-fable-5-1", 1024),
    ("claude-fable-5-2", 1024),
    ("claude-mythos-5-", 1024),
    ("claude-opus-5", 512),  # documented and measured, as are the next two
    ("claude-fable-5", 512),
    ("claude-mythos-5", 512),
    ("gemini-2.5", 2048),  # documented
)
"""Prefix of a model's name → shortest cached prefix in tokens, if it differs from that of its provider. The first match
wins. Sonnet 4.5, 4.6 and 5 and Opus 4.8: 1,024, documented and measured."""


HOUSE_NAMES = ("claude-", "gpt-")
"""Prefixes of model names whose provider, and so its TTL, is known although the price list lacks the model."""


def cache_rules_for(provider: str, model: str) -> CacheRules:
    """Look up the cache rules of a model, by provider and name in the price list."""
    name = bare_name(model)
    place = f"{provider}/{name}"
    usual = CACHING.get(provider, USUAL_CACHING)
    rules = next((row for start, row in MODELS if place.startswith(start)), usual)
    minimum = next((tokens for start, tokens in MINIMUMS if name.startswith(start)), rules.minimum)
    return rules if minimum == rules.minimum else replace(rules, minimum=minimum)


def conservative_rules(caching: CacheRules, model: str) -> CacheRules:
    """Return the cache rules of a model that is not in the price list: without directives that some servers reject,
    and without a known TTL unless its name tells the provider."""
    known = bare_name(model).startswith(HOUSE_NAMES)
    return replace(caching, key=False, forgotten=caching.forgotten if known else inf)


_SERVED = re.compile(r"(?:[a-z-]+\.)?(?:anthropic|openai|amazon)\.(?=[a-z])")
"""Region and vendor, as in Bedrock's names of models."""


def bare_name(model: str) -> str:
    """Strip host, region and vendor from a model's name: `bedrock/us.anthropic.claude-opus-5` is `claude-opus-5`."""
    last = model.rpartition("/")[2]
    match = _SERVED.match(last)
    return last[match.end() :] if match else last
