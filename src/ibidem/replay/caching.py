"""Replay a recorded session in another caching mode: no caching, five minutes, an hour, or the choices of `choose_ttl`.

The idle time before a request decides what is read: the whole common prefix, the part with a TTL of an hour, or
nothing. Recorded cache reads are used unless the caching mode changes them:

- A recorded miss after an idle time above the recorded TTL is decided by the TTL of the caching mode.
- Other recorded misses happen with every TTL, also those after a compaction or a change of model.
- A recorded hit after such an idle time counts as if the idle time had been just within the TTL.
- A log without any caching has no such information, so only the cache rules apply.

Tokens after the last breakpoint of a recorded request stay uncached. A request below the minimum of its model is not
cached at all. Providers that cache automatically get no directives, so every mode is as recorded.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Literal, NamedTuple, get_args

from .. import formats
from ..billing.lifetimes import CREDIT, NO_PAUSES, NOTHING_LONG, PHI, Asked, Kept, Pauses, choose, counted
from ..billing.usage import Usage
from ..markers.thinking import speaks
from ..model import Message
from ..recordings import Recording
from .billing import AfterBreak, Bill, Charge, Replay, Step, Told, idle_between, position_of, readable
from .views import AS_RECORDED, SentView

CachingName = Literal["recorded", "none", "5m", "1h", "auto"]
CACHING_NAMES: tuple[CachingName, ...] = get_args(CachingName)


def cached_bill(
    replay: Replay,
    views: Sequence[SentView] | None,
    caching: CachingName,
    prior: Pauses = NO_PAUSES,
    *,
    start: CachingName = "recorded",
    after_break: AfterBreak = "hit",
    by_rule: bool = False,
    phi: float = PHI,
    credit: float = CREDIT,
) -> Bill:
    """Bill the session in a caching mode. `start`: the client's own caching, which `auto` starts from."""
    if caching == "recorded":
        return replay.bill(views, after_break=after_break, by_rule=by_rule)
    keeping = Keeping(replay, caching, prior, start=start, after_break=after_break, by_rule=by_rule)
    keeping.phi, keeping.credit = phi, credit
    return keeping.finish(views or ())


def pauses_of(session: Recording, messages: Sequence[Sequence[Message]] | None = None) -> Pauses:
    """Count the idle times of a recorded session, of requests with times. `messages`: the parsed histories of its
    segments, if the caller has them."""
    found, dialect = Pauses(conversations=1), formats.named(session.format)
    sent = [(number, each) for number, segment in enumerate(session.segments) for each in segment.requests]
    for (_, last), (number, each) in pairwise(sent):
        idle = idle_between(last, each)
        if idle is not None and each.length:
            place = each.length - 1
            wire = session.segments[number].history[place]
            ended = dialect.read(place, wire) if messages is None else messages[number][place]
            found = counted(found, speaks(ended), idle)
    return found


def recorded_as(replay: Replay) -> Literal["none", "5m", "1h"]:
    """Determine the client's caching from the recorded usage; five minutes without usage."""
    used = [step.sent.usage for step in replay.steps if step.sent.usage is not None]
    if any(usage.written_1h for usage in used):
        return "1h"
    return "none" if used and not any(map(_caches, used)) else "5m"


def _hours(replay: Replay, hour: bool) -> list[bool]:
    """List for each request whether the last cache write had a TTL of an hour. `hour`: the value before the first
    write."""
    found = []
    for step in replay.steps:
        usage = step.sent.usage
        if usage is not None and (usage.written or usage.written_1h):
            hour = usage.written_1h > 0
        found.append(hour)
    return found


def _caches(usage: Usage) -> bool:
    return bool(usage.read or usage.written or usage.written_1h)


class _Noted(NamedTuple):
    """Journal entry of a simulated request: its TTL decision."""

    kept: Kept
    number: int
    """Number of the request."""


class Keeping:
    """Simulation of a session in another caching mode. For each request, call `decide_ttl`, then `serve_request`."""

    def __init__(
        self,
        replay: Replay,
        caching: CachingName,
        prior: Pauses = NO_PAUSES,
        *,
        start: CachingName = "recorded",
        after_break: AfterBreak = "hit",
        by_rule: bool = False,
    ) -> None:
        self.phi, self.credit = PHI, CREDIT
        self.bill = Bill()
        self.charges: list[Charge] = []
        self.decisions: list[Kept] = []
        self._replay, self._caching, self._prior = replay, caching, prior
        self._after_break = after_break
        self._recorded = recorded_as(replay)
        self._ruled = by_rule or self._recorded == "none"
        self._hours = _hours(replay, self._recorded == "1h")
        self.start = start if start in ("none", "5m", "1h") else self._recorded
        self._fixed = start in ("none", "5m", "1h") or self._recorded == "none"
        self._last_view: SentView | None = None
        self._removed: list[float] = []
        """Removed tokens of each request, in our count."""
        self._notes: dict[int, _Noted] = {}
        """Length of a request's history → its entry."""

    def finish(self, views: Sequence[SentView]) -> Bill:
        """Serve the remaining requests as these views, or as recorded if there are none."""
        for number in range(len(self.charges), len(self._replay.steps)):
            if number == len(self.decisions):
                self.decide(number)
            self.serve(number, views[number] if views else AS_RECORDED)
        return self.bill

    def told(self) -> Told:
        """Simulate the provider's usage reports and the TTL decisions."""

        def keep(number: int, view: SentView | None, spent: float) -> Kept:
            if view is not None and len(self.charges) < number:
                self.serve(number - 1, view)
            return self.decide(number, spent)

        def read(number: int, view: SentView, last: SentView | None) -> int:
            return round(self.charges[number].read)

        return Told([step.scale for step in self._replay.steps], self._replay.thought, read, keep)

    def decide(self, number: int, spent: float = 0.0) -> Kept:
        """Choose the TTL of a request. `spent`: cost of revisions so far."""
        step = self._replay.steps[number]
        if self._caching != "auto":
            hour = self._caching == "1h" and step.price.caching.hour
            kept = Kept(step.sent.length if hour else NOTHING_LONG)
        else:
            noted = self._before(number)
            kept = choose(
                step.price,
                noted.kept if noted else None,
                self._asked(number, noted, spent),
                self._prior,
                self.phi,
                self.credit,
            )
            self._notes[step.sent.length] = _Noted(kept, number)
        self.decisions.append(kept)
        return kept

    def _before(self, number: int) -> _Noted | None:
        """Find the entry of the last request whose history this one continues; None if there is none."""
        step = self._replay.steps[number]
        if number and self._replay.steps[number - 1].segment != step.segment:
            self._notes = {length: note for length, note in self._notes.items() if length <= step.shared}
        shorter = [length for length in self._notes if length < step.sent.length]
        return self._notes[max(shorter)] if shorter else None

    def _client(self, number: int) -> bool | None:
        """The client's TTL, as `CacheRequest.long`."""
        if self.start == "none":
            return None
        return self.start == "1h" if self._fixed else self._hours[number]

    def _asked(self, number: int, noted: _Noted | None, spent: float) -> Asked:
        step = self._replay.steps[number]
        last = self._replay.steps[noted.number] if noted else None
        scale = step.scale or 1.0
        before = step.prefix.before(last.sent.length) if last else 0.0
        history = self._replay.messages[step.segment]
        asked = Asked(
            step.sent.length,
            self._client(number),
            bool(step.sent.length) and speaks(history[step.sent.length - 1]),
            idle_between(last.sent, step.sent) if last else None,
            new=step.held * (step.prefix.before(step.sent.length) - before) / scale,
            spent=spent,
            head=step.head / scale,
        )
        if noted is None:
            return asked
        charge = self.charges[noted.number]
        return asked._replace(
            context=round(charge.size), cached=round(charge.read), removed=self._removed[noted.number]
        )

    def serve(self, number: int, view: SentView) -> Charge:
        """Price a request with the chosen TTL."""
        step = self._replay.steps[number]
        last = self._replay.steps[number - 1] if number else None
        kept = step.kept(view, self._last_view)
        size = max(0.0, step.size - step.scale * view.before(step.sent.length))
        factor = step.tier_factor(size)
        if self._caching == "none" and step.price.caching.marks:
            charge = Charge(factor * size * step.rates.fresh, size, 0.0, 0.0)
        elif not step.price.caching.marks:
            charge = step.charge(view, kept, self._after_break, self._ruled, step.found)
        else:
            charge = self._marked(number, step, last, view, kept, size)
        charge = charge._replace(broken=kept < step.shared)
        self.bill.add(charge)
        self.charges.append(charge)
        self._removed.append(view.before(step.sent.length))
        self._last_view = view
        return charge

    def _marked(self, number: int, step: Step, last: Step | None, view: SentView, kept: int, size: float) -> Charge:
        could = min(size, self._could(number, step, last, view))
        loose = self._loose(step, size)
        factor = step.tier_factor(size)
        if loose == 1.0 and not could:
            return Charge(factor * size * step.rates.fresh, size, 0.0, 0.0)
        read = could
        if kept < step.shared and self._after_break != "free":
            read = min(could, position_of(step, view, kept if self._after_break == "hit" else 0))
        read = max(0.0, read)
        long = self.decisions[number].long
        hour = 0.0 if long < 0 else size if long >= step.sent.length else min(size, position_of(step, view, long))

        def cost(found: float) -> float:
            written_1h = max(0.0, hour - found)
            dear = written_1h * step.rates.write_1h + (size - found - written_1h) * step.rates.write
            plain = found * step.rates.read + loose * (size - found) * step.rates.fresh
            return factor * (plain + (1 - loose) * dear)

        return Charge(cost(read), size, read, cost(read) - cost(could))

    def _loose(self, step: Step, size: float) -> float:
        """Share of the unread tokens that are not written either."""
        usage = step.sent.usage
        if size < step.price.caching.minimum and (step.whole or usage is not None):
            return 1.0
        if self._ruled or usage is None or usage.input == usage.read:
            return 0.0
        return usage.fresh / (usage.input - usage.read)

    def _could(self, number: int, step: Step, last: Step | None, view: SentView) -> float:
        """Compute the tokens in the cache if no sent text was revised."""
        found = None if self._ruled else step.found
        told = found is not None and found != float("inf")
        if last is None or (step.sent.model != last.sent.model and found != float("inf")):
            return readable(step, view, found) if told else 0.0
        caching, idle = step.price.caching, idle_between(last.sent, step.sent) or 0.0
        recorded = caching.lifetime_1h if self._hours[number - 1] else caching.lifetime
        if found == float("inf"):
            idle = min(idle, recorded)
        reach = step.shared
        if idle > caching.lifetime_1h:
            reach = -1
        elif idle > caching.lifetime:
            reach = min(reach, self.decisions[number - 1].long)
        by_rule = readable(step, view, found if found == float("inf") else None, reach)
        if not told:
            return by_rule
        return (
            max(by_rule, readable(step, view, found)) if idle > recorded else min(by_rule, readable(step, view, found))
        )
