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

from .cache_rules import CacheRules
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


class PrefixOverlap(NamedTuple):
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


class CacheMiss(NamedTuple):
    """A cache miss: tokens that had been sent before and were not read from the cache."""

    cause: MissCause
    where: str
    """Details for people; empty if the cause needs none."""
    tokens: float
    dollars: float
    """Cost of these tokens, above the price of reading them."""


class CacheShares(NamedTuple):
    """Shares of input tokens by cache use, as fractions of one."""

    read: float = 0.0
    written: float = 0.0
    """Written for five minutes, or for the default TTL of a provider that caches automatically."""
    written_1h: float = 0.0
    fresh: float = 0.0
    """Not cached."""


def cache_shares(usages: Iterable[Usage]) -> CacheShares | None:
    """Compute cache shares of requests; None without input tokens."""
    usage_list = list(usages)
    total = sum(usage.input for usage in usage_list)
    if not total:
        return None
    return CacheShares(
        sum(usage.read for usage in usage_list) / total,
        sum(usage.written for usage in usage_list) / total,
        sum(usage.written_1h for usage in usage_list) / total,
        sum(usage.fresh for usage in usage_list) / total,
    )


def explain_miss(
    before: CachedRequest | None, request: CachedRequest, overlap: PrefixOverlap, caching: CacheRules, rates: Rates
) -> CacheMiss | None:
    """Find the cause of a cache miss; None if there was no miss, or no previous request."""
    if before is None:
        return None
    readable = _readable_tokens(before, request, overlap)
    missing = readable - request.usage.read
    if missing <= max((1 - FULL_READ_SHARE) * readable, caching.step):
        return None
    cause, where = _find_cause(before, request, overlap, caching)
    return CacheMiss(cause, where, missing, missing * max(0.0, paid_per_token(request.usage, rates) - rates.read))


def lacks_breakpoints(usages: Iterable[Usage], caching: CacheRules) -> bool:
    """Whether a conversation had no cache breakpoints at all, although its provider needs them and it was long enough.

    A log without counts of cache reads and writes looks the same.
    """
    usage_list = list(usages)
    uses_cache = any(usage.read or usage.written or usage.written_1h for usage in usage_list)
    return caching.marks and not uses_cache and sum(usage.input >= caching.minimum for usage in usage_list) > 1


def breakpoint_savings(
    before: CachedRequest | None, request: CachedRequest, overlap: PrefixOverlap, caching: CacheRules, rates: Rates
) -> float:
    """Compute the dollars that five-minute breakpoints would have saved in a request; negative if they cost more."""
    size = request.usage.input
    if size < caching.minimum:
        return 0.0
    shared_tokens = 0.0
    if before and before.usage.input >= caching.minimum and before.model == request.model:
        warm = (_idle_seconds(before, request) or 0.0) <= caching.lifetime
        same = _changed_head(before, request) is None
        shared_tokens = overlap.tokens if overlap.tokens is not None else _readable_tokens(before, request, overlap)
        shared_tokens = min(shared_tokens, before.usage.input, size) if warm and same else 0.0
    return size * rates.fresh - shared_tokens * rates.read - (size - shared_tokens) * rates.write


def paid_per_token(usage: Usage, rates: Rates) -> float:
    """Compute the average dollars per token that was not read from the cache."""
    unread_tokens = usage.input - usage.read
    if not unread_tokens:
        return rates.write
    return (usage.fresh * rates.fresh + usage.written * rates.write + usage.written_1h * rates.write_1h) / unread_tokens


def _readable_tokens(before: CachedRequest, request: CachedRequest, overlap: PrefixOverlap) -> float:
    """Compute the tokens that could have been read, with a warm cache and an unchanged prefix."""
    whole = min(before.usage.input, request.usage.input)
    if overlap.shared < before.messages and request.messages <= before.messages:  # a rewind or a compaction
        return min(whole, overlap.tokens or 0.0)
    return whole


def _find_cause(
    before: CachedRequest, request: CachedRequest, overlap: PrefixOverlap, caching: CacheRules
) -> tuple[MissCause, str]:
    if before.model != request.model:
        return "model", f"{before.model or '(not named)'} → {request.model or '(not named)'}"
    if before.usage.input < caching.minimum:
        return "minimum", f"{before.usage.input:,} of {caching.minimum:,} tokens"
    if caching.marks and _lacked_breakpoint(before.usage, request.usage):
        return "unmarked", ""
    idle = _idle_seconds(before, request)
    if idle is not None and idle > (caching.lifetime_1h if overlap.long else caching.lifetime):
        return "pause", _format_duration(idle)
    if (part := _changed_head(before, request)) is not None:
        return part, part
    if overlap.shared < before.messages:
        return "history", f"message {overlap.shared + 1:,} of {request.messages:,}"
    if caching.look_back is not None and overlap.blocks is not None and overlap.blocks > caching.look_back:
        return "look-back", f"{overlap.blocks:,} blocks"
    return "unexplained", _read_end(request, overlap)


def _read_end(request: CachedRequest, overlap: PrefixOverlap) -> str:
    """Name the message at which the cache read stopped: an unknown difference may be there."""
    if not request.usage.read:
        return "from the start"
    if overlap.stopped is None or overlap.stopped >= request.messages:
        return ""
    return f"from message {overlap.stopped + 1:,} of {request.messages:,} on"


def _lacked_breakpoint(before: Usage, usage: Usage) -> bool:
    """Whether everything that the previous request had cached was read, so the missing part had no breakpoint."""
    cached_tokens = before.input - before.fresh
    return usage.read >= FULL_READ_SHARE * cached_tokens


def _changed_head(before: CachedRequest, request: CachedRequest) -> Literal["tools", "system"] | None:
    if None not in (before.tools, request.tools) and before.tools != request.tools:
        return "tools"
    if None not in (before.system, request.system) and before.system != request.system:
        return "system"
    return None


def _idle_seconds(before: CachedRequest, request: CachedRequest) -> float | None:
    since = before.answered if before.answered is not None else before.at
    return None if since is None or request.at is None else request.at - since


def _format_duration(seconds: float) -> str:
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 120 else f"{round(minutes / 60):,} h"
