"""The moments in hindsight: what a profile's own edits would have saved, had they been made when it was best.

What a profile lets go of and what it says instead stay as they are; only when they go is chosen anew. At a chosen
request everything goes that waits by then, as the profile does it. So how a request is sent depends on the last chosen
one alone (a *state*), and the cheapest choice is a shortest path:

    least[state] after a request = least[state] before + cost of the request as the state sends it
    least[newest]                = min over states before + cost of the request if it breaks with that state

where `newest` is the state in which everything has gone that may by now. One pass, states x requests; costs are those
of `replay`. The profile's own moments are one of the choices, so its bill is never below this one.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import NamedTuple

from .billing import AfterBreak, Replay, Step
from .phases import Phase
from .views import SentView

NEVER = -1
"""Nothing has gone: the state that a phase begins with, unless something goes at once."""


class BestMoments(NamedTuple):
    """The cheapest choice."""

    cost: float
    """Dollars for input."""
    points: tuple[int, ...]
    """Requests at which everything that waited went, counted through the session."""


class CheapestWay(NamedTuple):
    """The cheapest way into a state so far."""

    cost: float
    last: CheapestWay | None
    """The way before the last point."""
    point: int
    view: SentView


class States:
    """How a phase can be sent. A state is named by the request from which on it can be reached."""

    def __init__(self, phase: Phase) -> None:
        stages = [(stage.first, staged.entry.message) for staged in phase.staged_texts for stage in staged.stages]
        changes = sorted((max(first, phase.first), message) for first, message in stages if first < phase.last)
        self.names = [NEVER, *sorted({first for first, _ in changes})]
        self._phase = phase
        self._views: dict[int, SentView] = {}
        self._touched: dict[int, int] = {}
        """The first message that changes on the way into a state from the one before."""
        for first, message in changes:
            self._touched[first] = min(message, self._touched.get(first, message))

    def newest(self, number: int) -> int:
        """The state in which everything has gone that may at this request."""
        return self.names[bisect_right(self.names, number) - 1]

    def view(self, name: int) -> SentView:
        if name not in self._views:
            self._views[name] = self._phase.view(name)
        return self._views[name]

    def parted(self, newest: int) -> dict[int, int]:
        """The first message that each earlier state sends differently from this one."""
        found: dict[int, int] = {}
        place = self.names.index(newest)
        least = float("inf")
        for before, name in zip(self.names[place - 1 :: -1] if place else (), self.names[place::-1], strict=False):
            least = min(least, self._touched[name])
            found[before] = int(least)
        return found


def best(
    replay: Replay, phases: Sequence[Phase], *, after_break: AfterBreak = "hit", by_rule: bool = False
) -> BestMoments:
    """The cheapest choice of requests at which everything that waits goes, billed as `Replay.bill` does."""
    ways: dict[int, CheapestWay] = {}
    for phase in phases:
        states = States(phase)
        step = replay.steps[phase.first]
        ways = _opened(step, states, phase.first, list(ways.values()), after_break, by_rule)
        parted: dict[int, dict[int, int]] = {}
        for number in range(phase.first + 1, phase.last):
            step, newest = replay.steps[number], states.newest(number)
            if newest not in parted:
                parted = {newest: states.parted(newest)}
            entered = _entered(step, states, number, ways, parted[newest], after_break, by_rule)
            for name, way in ways.items():
                ways[name] = way._replace(cost=way.cost + step.charge(way.view, step.shared, after_break, by_rule).cost)
            if entered is not None and (newest not in ways or entered.cost < ways[newest].cost):
                ways[newest] = entered
    return _told(min(ways.values(), key=lambda way: way.cost)) if ways else BestMoments(0.0, ())


def _opened(
    step: Step, states: States, number: int, ways: Sequence[CheapestWay], after_break: AfterBreak, by_rule: bool
) -> dict[int, CheapestWay]:
    """The first request of a phase: as it comes, or with everything gone that may."""
    found: dict[int, CheapestWay] = {}
    for name in dict.fromkeys((NEVER, states.newest(number))):
        view = states.view(name)
        for way in ways or [CheapestWay(0.0, None, NEVER, view)]:
            kept = step.kept(view, way.view if ways else None)
            cost = way.cost + step.charge(view, kept, after_break, by_rule).cost
            if name not in found or cost < found[name].cost:
                found[name] = CheapestWay(cost, way if ways else None, NEVER if name == NEVER else number, view)
    return found


def _entered(
    step: Step,
    states: States,
    number: int,
    ways: dict[int, CheapestWay],
    parted: dict[int, int],
    after_break: AfterBreak,
    by_rule: bool,
) -> CheapestWay | None:
    """The cheapest way into the newest state with this request, from any other one."""
    newest = states.newest(number)
    found: CheapestWay | None = None
    for name, way in ways.items():
        if name != newest:
            kept = min(step.shared, parted[name])
            cost = way.cost + step.charge(states.view(newest), kept, after_break, by_rule).cost
            if found is None or cost < found.cost:
                found = CheapestWay(cost, way, number, states.view(newest))
    return found


def _told(way: CheapestWay) -> BestMoments:
    points: list[int] = []
    step: CheapestWay | None = way
    while step is not None:
        if step.point != NEVER:
            points.append(step.point)
        step = step.last
    return BestMoments(way.cost, tuple(reversed(points)))


def chosen(phases: Sequence[Phase], points: Sequence[int]) -> list[SentView]:
    """How every request is sent if everything that waits goes at these."""
    found: list[SentView] = []
    for phase in phases:
        states = States(phase)
        name = NEVER
        for number in range(phase.first, phase.last):
            name = states.newest(number) if number in points else name
            found.append(states.view(name))
    return found
