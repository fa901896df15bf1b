"""How a conversation was cached, and how it would have been with what its client asked for.

Where marks or lifetimes are ours, what a request would have cost without them follows from the rules of its provider: a
beginning that the client had marked is found for as long as the client asked for, counted from its last use. So a small
ledger is kept of what would be in the cache now. Where the provider found less than it should have, for a reason that
has nothing to do with lifetimes, the client would have fared no better; and of a first request it is known only what
the provider found, which others of the same client had left there.
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
"""Beginnings that conversations share which are remembered."""


class KeptPrefix(NamedTuple):
    """The beginning of a request, in a cache."""

    end: float
    """Tokens."""
    long: bool
    used: float
    """When last, in seconds since 1970."""

    def alive(self, caching: Caching, at: float) -> bool:
        return at - self.used <= (caching.lifetime_1h if self.long else caching.lifetime)


@dataclass(slots=True)
class CacheView:
    """What is known of a conversation before its next answer."""

    kept: tuple[KeptPrefix, ...] = ()
    """What would be in the cache, had the client's marks been sent."""
    ours: KeptPrefix | None = None
    """What is, as far as it goes."""
    differs: bool = False
    """Something was kept otherwise than the client asked."""
    before: CachedRequest | None = None
    asked: CacheAsked | None = None


@dataclass(slots=True)
class SharedHeads:
    """Beginnings that several conversations have, such as tools and system: each keeps them warm for the others."""

    _found: OrderedDict[tuple[str, ...], KeptPrefix] = field(default_factory=OrderedDict)

    def warm(self, name: tuple[str, ...], caching: Caching, at: float) -> float:
        """Tokens that the provider would find."""
        found = self._found.get(name)
        return found.end if found is not None and found.alive(caching, at) else 0.0

    def use(self, name: tuple[str, ...], end: float | None, long: bool, at: float) -> None:
        """`end` where it is known."""
        known = self._found.pop(name, None)
        size = end if end is not None else known.end if known is not None else 0.0
        self._found[name] = KeptPrefix(size, long, at)
        if len(self._found) > MAX_HEADS:
            self._found.popitem(last=False)


def as_asked(
    view: CacheView, heads: SharedHeads, usage: Usage, asked: CacheAsked, caching: Caching, model: str, at: float
) -> Usage:
    """The usage of a request with the client's own marks. The view and the heads are those for the next one then.

    `usage` is that with ours, of all that the client sent.
    """
    if not caching.marks:  # the provider keeps what it likes
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
    """What the provider has in its cache after a request, by what it counted."""
    known = view.ours
    long = known.long if known is not None else False
    if usage.written or usage.written_1h:
        long = not usage.written  # an hour stands before five minutes
    view.ours = KeptPrefix(usage.input - usage.fresh, long, at)


def _lost(usage: Usage, ours: KeptPrefix) -> bool:
    """Whether the provider did not find what it should have."""
    return usage.read < FOUND_SHARE * min(ours.end, usage.input)


def _differs(usage: Usage, asked: CacheAsked) -> bool:
    """Whether the provider wrote something for longer or shorter than the client asks, or at all."""
    if not asked.marks:
        return bool(usage.read or usage.written or usage.written_1h)
    longs = [long for _, long in asked.marks]
    return bool((usage.written_1h and not any(longs)) or (usage.written and all(longs)))


def _ends(usage: Usage, asked: CacheAsked) -> list[tuple[float, bool]]:
    """Tokens up to each mark. The last is known from what was neither read nor written."""
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
    """What is read is used; the rest up to each mark is written."""

    def found(end: float, long: bool) -> KeptPrefix:
        if end <= read:
            long = next((each.long for each in sorted(kept) if each.end >= end), long)
        return KeptPrefix(end, long, at)

    marks = [found(end, long) for end, long in ends]
    return tuple(sorted({*marks, *([found(read, ends[-1][1])] if read else ())}))
