"""Offline optimum: the best times for a profile's own evictions, if the future were known.

The evicted texts and their stubs stay as the profile chose them; only the times change. At a chosen request, every
eligible text is evicted, as the profile does it. So the form of a request depends only on the last chosen request (its
*state*), and the cheapest choice is a shortest path:

    least[state] after a request = least[state] before + cost of the request as the state sends it
    least[newest]                = min over states before + cost of the request with a change from that state

In the state `newest`, every text is evicted that may be by now. One pass takes states x requests steps; costs are those
of `replay_bill`. The profile's own times are one of the choices, so its cost is never below the optimum.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import NamedTuple

from .billing import AfterBreak, Replay, Step
from .phases import Phase
from .views import SentView

NEVER = -1
"""The first state of a window: no text is evicted."""


class BestMoments(NamedTuple):
    """The cheapest schedule of evictions."""

    cost: float
    """Dollars for input."""
    points: tuple[int, ...]
    """Numbers of the requests at which all eligible texts are evicted, counted through the session."""


class CheapestWay(NamedTuple):
    """The cheapest path to a state so far."""

    cost: float
    last: CheapestWay | None
    """The path before the last eviction."""
    point: int
    view: SentView


class States:
    """The possible forms of the requests in a window. A state is named by the first request that can have it."""

    def __init__(self, phase: Phase) -> None:
        stages = [(stage.first, staged.entry.message) for staged in phase.staged_texts for stage in staged.stages]
        changes = sorted((max(first, phase.first), message) for first, message in stages if first < phase.last)
        self.names = [NEVER, *sorted({first for first, _ in changes})]
        self._phase = phase
        self._views: dict[int, SentView] = {}
        self._touched: dict[int, int] = {}
        """State → first message that differs from the previous state."""
        for first, message in changes:
            self._touched[first] = min(message, self._touched.get(first, message))

    def newest(self, number: int) -> int:
        """Find the state in which every text is evicted that may be at this request."""
        return self.names[bisect_right(self.names, number) - 1]

    def view(self, name: int) -> SentView:
        if name not in self._views:
            self._views[name] = self._phase.view(name)
        return self._views[name]

    def parted(self, newest: int) -> dict[int, int]:
        """Map each earlier state to the first message that differs from state `newest`."""
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
    """Find the cheapest schedule of evictions, with the costs of `Replay.bill`."""
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
    """Start the paths of a window: without evictions, or with every possible one."""
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
    """Find the cheapest path to the newest state at this request, from any other state."""
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
    """List the view of every request if all eligible texts are evicted at these requests."""
    found: list[SentView] = []
    for phase in phases:
        states = States(phase)
        name = NEVER
        for number in range(phase.first, phase.last):
            name = states.newest(number) if number in points else name
            found.append(states.view(name))
    return found
