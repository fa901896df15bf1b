"""One recorded session under another caching: no marks, five minutes, an hour, or what `choose` would have decided.

Between two requests a provider keeps what it was sent for as long as it was asked to. So a pause decides what is read:
all that both have in common, what was kept for an hour, or nothing. What the log knows better is believed as far as the
other caching does not change it:

- A miss that was recorded after a pause longer than the recorded lifetime is decided by the lifetime in question.
- A miss that no pause explains happens under every lifetime, and so does what a compaction or another model broke.
- Where all was read after such a pause, it is taken for one that was just short enough.
- A log in which nothing was ever cached says nothing about caches, so the rules decide alone.

What a request sent past its last mark was neither read nor written, and stays so; a request below the minimum of its
model is not cached at all. Providers that keep by themselves are told nothing, so every caching is what was recorded.
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
    """What the session would have cost with this caching. `start` is what the client asks for, where `auto` decides."""
    if caching == "recorded":
        return replay.bill(views, after_break=after_break, by_rule=by_rule)
    keeping = Keeping(replay, caching, prior, start=start, after_break=after_break, by_rule=by_rule)
    keeping.phi, keeping.credit = phi, credit
    return keeping.finish(views or ())


def pauses_of(session: Recording, messages: Sequence[Sequence[Message]] | None = None) -> Pauses:
    """The pauses of a recorded session. Where a log tells no time, there is none. `messages` are the histories of its
    segments as values, where somebody has them."""
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
    """What a client asked for, as far as its log tells; five minutes where it has no usage."""
    used = [step.sent.usage for step in replay.steps if step.sent.usage is not None]
    if any(usage.written_1h for usage in used):
        return "1h"
    return "none" if used and not any(map(_caches, used)) else "5m"


def _hours(replay: Replay, hour: bool) -> list[bool]:
    """By request, whether a client asked for an hour with what it last wrote; what it ever did before that."""
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
    """What a proxy would have noted of a request."""

    kept: Kept
    number: int
    """Of the request."""


class Keeping:
    """A session sent with another caching, request by request: `decide`, then `serve`."""

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
        """Our count of what the requests did without."""
        self._notes: dict[int, _Noted] = {}
        """By length of the history that they are about."""

    def finish(self, views: Sequence[SentView]) -> Bill:
        """Serve all that was not served yet, as these views; as recorded if there are none."""
        for number in range(len(self.charges), len(self._replay.steps)):
            if number == len(self.decisions):
                self.decide(number)
            self.serve(number, views[number] if views else AS_RECORDED)
        return self.bill

    def told(self) -> Told:
        """What a provider tells that is asked so, and for how long it is asked to keep what."""

        def keep(number: int, view: SentView | None, spent: float) -> Kept:
            if view is not None and len(self.charges) < number:
                self.serve(number - 1, view)
            return self.decide(number, spent)

        def read(number: int, view: SentView, last: SentView | None) -> int:
            return round(self.charges[number].read)

        return Told([step.scale for step in self._replay.steps], self._replay.thought, read, keep)

    def decide(self, number: int, spent: float = 0.0) -> Kept:
        """For how long what is kept of a request. `spent`: what revisions have cost so far."""
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
        """The note of the last request with the same history: what was noted of another says nothing about it."""
        step = self._replay.steps[number]
        if number and self._replay.steps[number - 1].segment != step.segment:
            self._notes = {length: note for length, note in self._notes.items() if length <= step.shared}
        shorter = [length for length in self._notes if length < step.sent.length]
        return self._notes[max(shorter)] if shorter else None

    def _client(self, number: int) -> bool | None:
        """What the client asks for: as in `Asked`."""
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
        """The provider answers a request as it was decided."""
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
        """Of what is not read, the share that is not written either."""
        usage = step.sent.usage
        if size < step.price.caching.minimum and (step.whole or usage is not None):
            return 1.0
        if self._ruled or usage is None or usage.input == usage.read:
            return 0.0
        return usage.fresh / (usage.input - usage.read)

    def _could(self, number: int, step: Step, last: Step | None, view: SentView) -> float:
        """Tokens that are in the cache if nothing was changed that had been sent."""
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
