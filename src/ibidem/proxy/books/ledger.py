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

from ...billing.cache_directives import CacheAsked
from ...billing.caching import Caching
from ...billing.collapse import FOUND_SHARE
from ...billing.misses import CachedRequest
from ...billing.usage import Usage

MAX_HEADS = 1000
"""Maximum shared prefixes that are stored."""


class KeptPrefix(NamedTuple):
    """Prefix of a request in the cache."""

    end: float
    """Length in tokens."""
    long: bool
    """True if its TTL is one hour."""
    used: float
    """Time of the last use, in seconds since 1970."""

    def alive(self, caching: Caching, at: float) -> bool:
        """Return whether the prefix is still in the cache at this time."""
        return at - self.used <= (caching.lifetime_1h if self.long else caching.lifetime)


@dataclass(slots=True)
class CacheView:
    """Cache state of a conversation, real and simulated."""

    kept: tuple[KeptPrefix, ...] = ()
    """Prefixes that would be in the cache with the client's own directives."""
    ours: KeptPrefix | None = None
    """Longest prefix that is really in the cache."""
    differs: bool = False
    """True if anything was cached in another way than the client requested."""
    before: CachedRequest | None = None
    """Previous request."""
    asked: CacheAsked | None = None
    """Cache directives of the client's previous request."""


@dataclass(slots=True)
class SharedHeads:
    """Prefixes that several conversations share, such as tools and system prompt. Each use keeps them warm for all."""

    _found: OrderedDict[tuple[str, ...], KeptPrefix] = field(default_factory=OrderedDict)

    def warm(self, name: tuple[str, ...], caching: Caching, at: float) -> float:
        """Return the tokens of a shared prefix that are in the cache; 0 if it is cold."""
        found = self._found.get(name)
        return found.end if found is not None and found.alive(caching, at) else 0.0

    def use(self, name: tuple[str, ...], end: float | None, long: bool, at: float) -> None:
        """Record a use of a shared prefix. `end`: its length in tokens, None if unknown."""
        known = self._found.pop(name, None)
        size = end if end is not None else known.end if known is not None else 0.0
        self._found[name] = KeptPrefix(size, long, at)
        if len(self._found) > MAX_HEADS:
            self._found.popitem(last=False)


def as_asked(
    view: CacheView, heads: SharedHeads, usage: Usage, asked: CacheAsked, caching: Caching, model: str, at: float
) -> Usage:
    """Return the usage of a request with the client's own directives, and update `view` and `heads` for the next one.

    `usage` is the usage with our directives, but without our edits.
    """
    if not caching.marks:  # the provider caches without breakpoints, so there is nothing to simulate
        return usage
    known = view.before is not None and view.before.model == model and view.asked is not None
    same = known and view.asked is not None and view.asked.head == asked.head
    view.differs = view.differs or _differs(usage, asked)
    if not asked.marks:
        view.kept, view.asked = (), asked
        return replace(usage, fresh=usage.input, read=0, written=0, written_1h=0) if view.differs else usage
    ends = _ends(usage, asked)
    kept, ours = (view.kept, view.ours) if same else ((), None)
    name, first = (model, *asked.head), not kept
    warm = max((each.end for each in kept if each.alive(caching, at)), default=0.0)
    warm = max(warm, heads.warm(name, caching, at))
    if first or (ours is not None and ours.alive(caching, at) and _lost(usage, ours)):
        warm = usage.read if first else min(warm, usage.read)
    found = _split(usage, ends, min(warm, ends[-1][0]) if warm >= caching.minimum else 0.0)
    if not view.differs:
        found = usage
    heads.use(name, usage.read if first and usage.read else None, ends[0][1], at)
    view.kept, view.asked = _after(kept, ends, float(found.read), at), asked
    return found


def sent(view: CacheView, usage: Usage, at: float) -> None:
    """Update the real cache state after a request, from the provider's counts."""
    known = view.ours
    long = known.long if known is not None else False
    if usage.written or usage.written_1h:
        long = not usage.written  # one-hour breakpoints precede others, so the last write decides about the end
    view.ours = KeptPrefix(usage.input - usage.fresh, long, at)


def _lost(usage: Usage, ours: KeptPrefix) -> bool:
    """Return whether the provider read less from its cache than expected."""
    return usage.read < FOUND_SHARE * min(ours.end, usage.input)


def _differs(usage: Usage, asked: CacheAsked) -> bool:
    """Return whether the provider cached anything with another TTL than the client requests, or without a request."""
    if not asked.marks:
        return bool(usage.read or usage.written or usage.written_1h)
    longs = [long for _, long in asked.marks]
    return bool((usage.written_1h and not any(longs)) or (usage.written and all(longs)))


def _ends(usage: Usage, asked: CacheAsked) -> list[tuple[float, bool]]:
    """Return tokens up to each breakpoint, and whether its TTL is one hour. The last follows from the uncached rest."""
    covered = float(usage.input - usage.fresh)
    *early, (_, last) = asked.marks
    return [*((min(share * usage.input, covered), long) for share, long in early), (covered, last)]


def _split(usage: Usage, ends: Sequence[tuple[float, bool]], read: float) -> Usage:
    written, done = {True: 0.0, False: 0.0}, read
    for end, long in ends:
        if end > done:
            written[long] += end - done
            done = end
    read, short, hour = round(read), round(written[False]), round(written[True])
    return replace(usage, fresh=usage.input - read - short - hour, read=read, written=short, written_1h=hour)


def _after(
    kept: Sequence[KeptPrefix], ends: Sequence[tuple[float, bool]], read: float, at: float
) -> tuple[KeptPrefix, ...]:
    """Return the cached prefixes after a request: those that are read or written, up to each breakpoint."""

    def found(end: float, long: bool) -> KeptPrefix:
        if end <= read:
            long = next((each.long for each in sorted(kept) if each.end >= end), long)
        return KeptPrefix(end, long, at)

    marks = [found(end, long) for end, long in ends]
    return tuple(sorted({*marks, *([found(read, ends[-1][1])] if read else ())}))
