"""Shadow cache: simulate how a conversation would be cached with the client's own cache directives.

If Ibidem changes cache breakpoints or TTLs, the cost without them follows from the provider's rules. A prefix up to a
breakpoint of the client stays in the cache for the client's TTL after its last use. The shadow cache contains these
prefixes. If the provider read less than expected for a reason other than a TTL, the client is assumed to get no more.
For a first request, only the provider's own count is known; it shows what earlier conversations left in the cache.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from ...billing.cache_directives import CacheDirectives
from ...billing.cache_loss import FOUND_SHARE
from ...billing.cache_misses import CachedRequest
from ...billing.cache_rules import CacheRules
from ...billing.usage import Usage

MAX_SHARED_PREFIXES = 1000
"""Maximum shared prefixes that are stored."""


class ShadowPrefix(NamedTuple):
    """Prefix of a request in the cache."""

    end: float
    """Length in tokens."""
    long: bool
    """True if its TTL is one hour."""
    used: float
    """Time of the last use, in seconds since 1970."""

    def is_live(self, caching: CacheRules, at: float) -> bool:
        """Return whether the prefix is still in the cache at this time."""
        return at - self.used <= (caching.lifetime_1h if self.long else caching.lifetime)


@dataclass(slots=True)
class ShadowCache:
    """Cache state of a conversation, real and simulated."""

    client_prefixes: tuple[ShadowPrefix, ...] = ()
    """Prefixes that would be in the cache with the client's own directives."""
    cached_prefix: ShadowPrefix | None = None
    """Longest prefix that is really in the cache."""
    differs: bool = False
    """True if anything was cached in another way than the client requested."""
    previous_request: CachedRequest | None = None
    """Previous request."""
    directives: CacheDirectives | None = None
    """Cache directives of the client's previous request."""


@dataclass(slots=True)
class SharedPrefixes:
    """Prefixes that several conversations share, such as tools and system prompt. Each use keeps them warm for all."""

    _by_name: OrderedDict[tuple[str, ...], ShadowPrefix] = field(default_factory=OrderedDict)

    def warm_tokens(self, name: tuple[str, ...], caching: CacheRules, at: float) -> float:
        """Return the tokens of a shared prefix that are in the cache; 0 if it is cold."""
        prefix = self._by_name.get(name)
        return prefix.end if prefix is not None and prefix.is_live(caching, at) else 0.0

    def record_use(self, name: tuple[str, ...], end: float | None, long: bool, at: float) -> None:
        """Record a use of a shared prefix. `end`: its length in tokens, None if unknown."""
        previous = self._by_name.pop(name, None)
        size = end if end is not None else previous.end if previous is not None else 0.0
        self._by_name[name] = ShadowPrefix(size, long, at)
        if len(self._by_name) > MAX_SHARED_PREFIXES:
            self._by_name.popitem(last=False)


def simulate_client_cache(
    view: ShadowCache,
    shared: SharedPrefixes,
    usage: Usage,
    directives: CacheDirectives,
    caching: CacheRules,
    model: str,
    at: float,
) -> Usage:
    """Return the usage of a request with the client's own directives, and update `view` and `shared` for the next one.

    `usage` is the usage with our directives, but without our edits.
    """
    if not caching.marks:  # the provider caches without breakpoints, so there is nothing to simulate
        return usage
    is_continued = (
        view.previous_request is not None and view.previous_request.model == model and view.directives is not None
    )
    same = is_continued and view.directives is not None and view.directives.head == directives.head
    view.differs = view.differs or _differs_from_client(usage, directives)
    if not directives.marks:
        view.client_prefixes, view.directives = (), directives
        return replace(usage, fresh=usage.input, read=0, written=0, written_1h=0) if view.differs else usage
    ends = _breakpoint_ends(usage, directives)
    prefixes, ours = (view.client_prefixes, view.cached_prefix) if same else ((), None)
    name, first = (model, *directives.head), not prefixes
    cached = max((each.end for each in prefixes if each.is_live(caching, at)), default=0.0)
    cached = max(cached, shared.warm_tokens(name, caching, at))
    if first or (ours is not None and ours.is_live(caching, at) and _is_lost(usage, ours)):
        cached = usage.read if first else min(cached, usage.read)
    simulated = _split_by_ttl(usage, ends, min(cached, ends[-1][0]) if cached >= caching.minimum else 0.0)
    if not view.differs:
        simulated = usage
    shared.record_use(name, usage.read if first and usage.read else None, ends[0][1], at)
    view.client_prefixes, view.directives = _prefixes_after(prefixes, ends, float(simulated.read), at), directives
    return simulated


def record_request(view: ShadowCache, usage: Usage, at: float) -> None:
    """Update the real cache state after a request, from the provider's counts."""
    previous = view.cached_prefix
    long = previous.long if previous is not None else False
    if usage.written or usage.written_1h:
        long = not usage.written  # one-hour breakpoints precede others, so the last write decides about the end
    view.cached_prefix = ShadowPrefix(usage.input - usage.fresh, long, at)


def _is_lost(usage: Usage, ours: ShadowPrefix) -> bool:
    """Return whether the provider read less from its cache than expected."""
    return usage.read < FOUND_SHARE * min(ours.end, usage.input)


def _differs_from_client(usage: Usage, directives: CacheDirectives) -> bool:
    """Return whether the provider cached anything with another TTL than the client requests, or without a request."""
    if not directives.marks:
        return bool(usage.read or usage.written or usage.written_1h)
    longs = [long for _, long in directives.marks]
    return bool((usage.written_1h and not any(longs)) or (usage.written and all(longs)))


def _breakpoint_ends(usage: Usage, directives: CacheDirectives) -> list[tuple[float, bool]]:
    """Return tokens up to each breakpoint, and whether its TTL is one hour. The last follows from the uncached rest."""
    covered = float(usage.input - usage.fresh)
    *early, (_, last) = directives.marks
    return [*((min(share * usage.input, covered), long) for share, long in early), (covered, last)]


def _split_by_ttl(usage: Usage, ends: Sequence[tuple[float, bool]], read: float) -> Usage:
    written, position = {True: 0.0, False: 0.0}, read
    for end, long in ends:
        if end > position:
            written[long] += end - position
            position = end
    read, short, hour = round(read), round(written[False]), round(written[True])
    return replace(usage, fresh=usage.input - read - short - hour, read=read, written=short, written_1h=hour)


def _prefixes_after(
    prefixes: Sequence[ShadowPrefix], ends: Sequence[tuple[float, bool]], read: float, at: float
) -> tuple[ShadowPrefix, ...]:
    """Return the cached prefixes after a request: those that are read or written, up to each breakpoint."""

    def prefix_at(end: float, long: bool) -> ShadowPrefix:
        if end <= read:
            long = next((each.long for each in sorted(prefixes) if each.end >= end), long)
        return ShadowPrefix(end, long, at)

    marks = [prefix_at(end, long) for end, long in ends]
    return tuple(sorted({*marks, *([prefix_at(read, ends[-1][1])] if read else ())}))
