"""Causes of cache misses: why a provider read less from its cache than it could.

`explain_miss` compares a request with the previous one of its conversation. Their common prefix could have been read.
If it was not, the first matching cause of this table applies. Requests without usage have no misses.

| cause | meaning |
|---|---|
| model | the request is for another model, which has its own cache |
| minimum | the previous request is shorter than the minimum that is cached for this model |
| unmarked | the provider needs cache breakpoints, and no breakpoint covered this part |
| pause | the idle time since the previous response is longer than the TTL |
| tools, system | tools or system text differ from the previous request |
| history | a message differs from the previous request; `where` names the first one |
| look-back | lookback window exceeded: too many new blocks since the last breakpoint |
| unexplained | no cause found: evicted by the provider, routed to another server, or an unknown difference |
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
    """The facts about a request that matter for its cache."""

    model: str
    usage: Usage
    messages: int
    """Number of messages."""
    at: float | None = None
    """Time of the request in seconds; None if unknown, which counts as no idle time."""
    answered: float | None = None
    """Time at which the response was complete, in seconds; None if unknown."""
    tools: str | None = None
    system: str | None = None
    """Digests of tools and system text; None if unknown, which counts as unchanged."""


class SinceThen(NamedTuple):
    """The common prefix of two requests of a conversation."""

    shared: int
    """Number of equal messages at the start of both."""
    blocks: int | None = None
    """Number of content blocks after the common prefix; None if unknown."""
    long: bool = False
    """The previous request was written to the cache with a TTL of an hour."""
    tokens: float | None = None
    """Tokens before the first difference; None if unknown. Needed if the history became shorter, because the previous
    request is then not a prefix of this one."""
    stopped: int | None = None
    """Number of messages that were read from the cache; None if unknown."""


class Miss(NamedTuple):
    """A cache miss: tokens that had been sent before and were not read from the cache."""

    cause: MissCause
    where: str
    """Details for people; empty if the cause needs none."""
    tokens: float
    dollars: float
    """Cost of these tokens, above the price of reading them."""


class Shares(NamedTuple):
    """Shares of input tokens by cache use, as fractions of one."""

    read: float = 0.0
    written: float = 0.0
    """Written for five minutes, or for the default TTL of a provider that caches automatically."""
    written_1h: float = 0.0
    fresh: float = 0.0
    """Not cached."""


def shares(usages: Iterable[Usage]) -> Shares | None:
    """Compute cache shares of requests; None without input tokens."""
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
    """Find the cause of a cache miss; None if there was no miss, or no previous request."""
    if before is None:
        return None
    could = _could(before, sent, since)
    lost = could - sent.usage.read
    if lost <= max((1 - FULL_READ_SHARE) * could, caching.step):
        return None
    cause, where = _cause(before, sent, since, caching)
    return Miss(cause, where, lost, lost * max(0.0, paid_per_token(sent.usage, rates) - rates.read))


def is_unmarked(usages: Iterable[Usage], caching: Caching) -> bool:
    """Whether a conversation had no cache breakpoints at all, although its provider needs them and it was long enough.

    A log without counts of cache reads and writes looks the same.
    """
    counted = list(usages)
    touched = any(usage.read or usage.written or usage.written_1h for usage in counted)
    return caching.marks and not touched and sum(usage.input >= caching.minimum for usage in counted) > 1


def marks_would_save(
    before: CachedRequest | None, sent: CachedRequest, since: SinceThen, caching: Caching, rates: Rates
) -> float:
    """Compute the dollars that five-minute breakpoints would have saved in a request; negative if they cost more."""
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
    """Compute the average dollars per token that was not read from the cache."""
    rest = usage.input - usage.read
    if not rest:
        return rates.write
    return (usage.fresh * rates.fresh + usage.written * rates.write + usage.written_1h * rates.write_1h) / rest


def _could(before: CachedRequest, sent: CachedRequest, since: SinceThen) -> float:
    """Compute the tokens that could have been read, with a warm cache and an unchanged prefix."""
    whole = min(before.usage.input, sent.usage.input)
    if since.shared < before.messages and sent.messages <= before.messages:  # a rewind or a compaction
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
    """Name the message at which the cache read stopped: an unknown difference may be there."""
    if not sent.usage.read:
        return "from the start"
    if since.stopped is None or since.stopped >= sent.messages:
        return ""
    return f"from message {since.stopped + 1:,} of {sent.messages:,} on"


def _left_unmarked(before: Usage, usage: Usage) -> bool:
    """Whether everything that the previous request had cached was read, so the missing part had no breakpoint."""
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
