"""How requests were cached, and why a provider read less from its cache than it could.

`explain` compares a request with the one before it in the same conversation: what both had at their beginning could
have been read, and where it was not, the first of these reasons that holds is its cause. Only what a provider counted
is looked at, so nothing is said about requests without usage.

| cause | what happened |
|---|---|
| model | another model was asked: caches are kept by model |
| minimum | what was sent before is shorter than what a provider keeps for this model |
| unmarked | the provider keeps only what requests mark, and nothing marked this |
| pause | the answer before is longer ago than it was to be kept |
| tools, system | the first thing that differs from the request before |
| history | the same; `where` tells the first message that differs |
| look-back | more blocks were added since the last mark than a provider looks back |
| unexplained | none of these: it was evicted, or routed elsewhere, or something differs that is not known here |
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, NamedTuple, get_args

from .caching import Caching
from .prices import Rates
from .usage import FULL_READ_SHARE, Usage

MissCause = Literal["unmarked", "pause", "model", "tools", "system", "history", "look-back", "minimum", "unexplained"]

MISS_CAUSES: tuple[MissCause, ...] = get_args(MissCause)


class CachedRequest(NamedTuple):
    """A request, as far as a cache cares."""

    model: str
    usage: Usage
    messages: int
    """Entries of its history."""
    at: float | None = None
    """When it was sent, in seconds; None if unknown, which counts as no pause."""
    answered: float | None = None
    """When its answer was complete."""
    tools: str | None = None
    """A digest; None if unknown, which counts as no change."""
    system: str | None = None


class SinceThen(NamedTuple):
    """What two requests of a conversation have in common."""

    shared: int
    """Entries at the beginning of both histories that are the same."""
    blocks: int | None = None
    """Content blocks after these; None if unknown."""
    long: bool = False
    """The cache was asked to keep for an hour what the one before sent."""
    tokens: float | None = None
    """Of this request, those that stand before the first difference; None if unknown. Needed where the history became
    shorter: everything else that the request before had is no part of this one."""
    stopped: int | None = None
    """Entries of the history that were read; None if unknown."""


class Miss(NamedTuple):
    """What was not read, though it had been sent before."""

    cause: MissCause
    where: str
    """In words, for a person; empty where the cause says it all."""
    tokens: float
    dollars: float
    """What was paid for these tokens, above the price of reading them."""


class Shares(NamedTuple):
    """Of the input of requests, as fractions of one: what became of it."""

    read: float = 0.0
    written: float = 0.0
    """For five minutes, or however long a provider keeps it unasked."""
    written_1h: float = 0.0
    fresh: float = 0.0
    """Neither read nor written: not cached."""


def shares(usages: Iterable[Usage]) -> Shares | None:
    """None where nothing was counted."""
    counted = list(usages)
    total = sum(usage.input for usage in counted)
    if not total:
        return None
    return Shares(
        sum(usage.read for usage in counted) / total,
        sum(usage.written for usage in counted) / total,
        sum(usage.written_1h for usage in counted) / total,
        sum(usage.fresh for usage in counted) / total,
    )


def explain(
    before: CachedRequest | None, sent: CachedRequest, since: SinceThen, caching: Caching, rates: Rates
) -> Miss | None:
    """Why less of a request was read than could have been; None where it was not, as of a first request."""
    if before is None:
        return None
    could = _could(before, sent, since)
    lost = could - sent.usage.read
    if lost <= max((1 - FULL_READ_SHARE) * could, caching.step):
        return None
    cause, where = _cause(before, sent, since, caching)
    return Miss(cause, where, lost, lost * max(0.0, paid_per_token(sent.usage, rates) - rates.read))


def is_unmarked(usages: Iterable[Usage], caching: Caching) -> bool:
    """Whether a conversation with a provider that keeps what is marked had marks in none of its requests, though it
    was sent enough for them. A log that does not tell what was read and written looks the same."""
    counted = list(usages)
    touched = any(usage.read or usage.written or usage.written_1h for usage in counted)
    return caching.marks and not touched and sum(usage.input >= caching.minimum for usage in counted) > 1


def marks_would_save(
    before: CachedRequest | None, sent: CachedRequest, since: SinceThen, caching: Caching, rates: Rates
) -> float:
    """Dollars that five-minute marks would have spared a request that had none; below 0 where they would have cost."""
    size = sent.usage.input
    if size < caching.minimum:
        return 0.0
    found = 0.0
    if before and before.usage.input >= caching.minimum and before.model == sent.model:
        warm = (_idle(before, sent) or 0.0) <= caching.lifetime
        same = _changed_head(before, sent) is None
        found = since.tokens if since.tokens is not None else _could(before, sent, since)
        found = min(found, before.usage.input, size) if warm and same else 0.0
    return size * rates.fresh - found * rates.read - (size - found) * rates.write


def paid_per_token(usage: Usage, rates: Rates) -> float:
    """Dollars for a token that was not read, as it was written or not."""
    rest = usage.input - usage.read
    if not rest:
        return rates.write
    return (usage.fresh * rates.fresh + usage.written * rates.write + usage.written_1h * rates.write_1h) / rest


def _could(before: CachedRequest, sent: CachedRequest, since: SinceThen) -> float:
    """Tokens that could have been read, had the cache been warm and nothing changed in what was sent before."""
    whole = min(before.usage.input, sent.usage.input)
    if since.shared < before.messages and sent.messages <= before.messages:  # it went back, or began anew
        return min(whole, since.tokens or 0.0)
    return whole


def _cause(before: CachedRequest, sent: CachedRequest, since: SinceThen, caching: Caching) -> tuple[MissCause, str]:
    if before.model != sent.model:
        return "model", f"{before.model or '(not named)'} → {sent.model or '(not named)'}"
    if before.usage.input < caching.minimum:
        return "minimum", f"{before.usage.input:,} of {caching.minimum:,} tokens"
    if caching.marks and _left_unmarked(before.usage, sent.usage):
        return "unmarked", ""
    idle = _idle(before, sent)
    if idle is not None and idle > (caching.lifetime_1h if since.long else caching.lifetime):
        return "pause", _duration(idle)
    if (changed := _changed_head(before, sent)) is not None:
        return changed, changed
    if since.shared < before.messages:
        return "history", f"message {since.shared + 1:,} of {sent.messages:,}"
    if caching.look_back is not None and since.blocks is not None and since.blocks > caching.look_back:
        return "look-back", f"{since.blocks:,} blocks"
    return "unexplained", _stopped(sent, since)


def _stopped(sent: CachedRequest, since: SinceThen) -> str:
    """From where on a provider read nothing: something may differ there that is not known here."""
    if not sent.usage.read:
        return "from the start"
    if since.stopped is None or since.stopped >= sent.messages:
        return ""
    return f"from message {since.stopped + 1:,} of {sent.messages:,} on"


def _left_unmarked(before: Usage, usage: Usage) -> bool:
    """All that the request before had read or written was found, so the rest was never asked to be kept."""
    kept = before.input - before.fresh
    return usage.read >= FULL_READ_SHARE * kept


def _changed_head(before: CachedRequest, sent: CachedRequest) -> Literal["tools", "system"] | None:
    if None not in (before.tools, sent.tools) and before.tools != sent.tools:
        return "tools"
    if None not in (before.system, sent.system) and before.system != sent.system:
        return "system"
    return None


def _idle(before: CachedRequest, sent: CachedRequest) -> float | None:
    since = before.answered if before.answered is not None else before.at
    return None if since is None or sent.at is None else sent.at - since


def _duration(seconds: float) -> str:
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 120 else f"{round(minutes / 60):,} h"
