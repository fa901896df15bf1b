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

from .eviction_windows import EvictionWindow
from .replay_bill import AfterBreak, Replay, ReplayStep
from .sent_views import SentView

NEVER = -1
"""The first state of a window: no text is evicted."""


class OptimalSchedule(NamedTuple):
    """The cheapest schedule of evictions."""

    cost: float
    """Dollars for input."""
    points: tuple[int, ...]
    """Numbers of the requests at which all eligible texts are evicted, counted through the session."""


class CheapestPath(NamedTuple):
    """The cheapest path to a state so far."""

    cost: float
    last: CheapestPath | None
    """The path before the last eviction."""
    point: int
    view: SentView


class SendStates:
    """The possible forms of the requests in a window. A state is named by the first request that can have it."""

    def __init__(self, phase: EvictionWindow) -> None:
        stages = [(stage.first, staged.entry.message) for staged in phase.staged_texts for stage in staged.stages]
        changes = sorted((max(first, phase.first), message) for first, message in stages if first < phase.last)
        self.names = [NEVER, *sorted({first for first, _ in changes})]
        self._phase = phase
        self._views: dict[int, SentView] = {}
        self._touched: dict[int, int] = {}
        """State → first message that differs from the previous state."""
        for first, message in changes:
            self._touched[first] = min(message, self._touched.get(first, message))

    def newest_state(self, number: int) -> int:
        """Find the state in which every text is evicted that may be at this request."""
        return self.names[bisect_right(self.names, number) - 1]

    def state_view(self, name: int) -> SentView:
        if name not in self._views:
            self._views[name] = self._phase.view(name)
        return self._views[name]

    def first_differences(self, newest: int) -> dict[int, int]:
        """Map each earlier state to the first message that differs from state `newest`."""
        differences: dict[int, int] = {}
        place = self.names.index(newest)
        least = float("inf")
        for before, name in zip(self.names[place - 1 :: -1] if place else (), self.names[place::-1], strict=False):
            least = min(least, self._touched[name])
            differences[before] = int(least)
        return differences


def find_optimum(
    replay: Replay, phases: Sequence[EvictionWindow], *, after_break: AfterBreak = "hit", by_rule: bool = False
) -> OptimalSchedule:
    """Find the cheapest schedule of evictions, with the costs of `Replay.bill`."""
    paths: dict[int, CheapestPath] = {}
    for phase in phases:
        states = SendStates(phase)
        step = replay.steps[phase.first]
        paths = _start_paths(step, states, phase.first, list(paths.values()), after_break, by_rule)
        differences: dict[int, dict[int, int]] = {}
        for number in range(phase.first + 1, phase.last):
            step, newest = replay.steps[number], states.newest_state(number)
            if newest not in differences:
                differences = {newest: states.first_differences(newest)}
            entry_path = _enter_newest(step, states, number, paths, differences[newest], after_break, by_rule)
            for name, way in paths.items():
                paths[name] = way._replace(
                    cost=way.cost + step.price_request(way.view, step.shared, after_break, by_rule).cost
                )
            if entry_path is not None and (newest not in paths or entry_path.cost < paths[newest].cost):
                paths[newest] = entry_path
    return _trace_schedule(min(paths.values(), key=lambda way: way.cost)) if paths else OptimalSchedule(0.0, ())


def _start_paths(
    step: ReplayStep,
    states: SendStates,
    number: int,
    ways: Sequence[CheapestPath],
    after_break: AfterBreak,
    by_rule: bool,
) -> dict[int, CheapestPath]:
    """Start the paths of a window: without evictions, or with every possible one."""
    paths: dict[int, CheapestPath] = {}
    for name in dict.fromkeys((NEVER, states.newest_state(number))):
        view = states.state_view(name)
        for way in ways or [CheapestPath(0.0, None, NEVER, view)]:
            unchanged = step.unchanged_entries(view, way.view if ways else None)
            cost = way.cost + step.price_request(view, unchanged, after_break, by_rule).cost
            if name not in paths or cost < paths[name].cost:
                paths[name] = CheapestPath(cost, way if ways else None, NEVER if name == NEVER else number, view)
    return paths


def _enter_newest(
    step: ReplayStep,
    states: SendStates,
    number: int,
    ways: dict[int, CheapestPath],
    differences: dict[int, int],
    after_break: AfterBreak,
    by_rule: bool,
) -> CheapestPath | None:
    """Find the cheapest path to the newest state at this request, from any other state."""
    newest = states.newest_state(number)
    cheapest: CheapestPath | None = None
    for name, way in ways.items():
        if name != newest:
            unchanged = min(step.shared, differences[name])
            cost = way.cost + step.price_request(states.state_view(newest), unchanged, after_break, by_rule).cost
            if cheapest is None or cost < cheapest.cost:
                cheapest = CheapestPath(cost, way, number, states.state_view(newest))
    return cheapest


def _trace_schedule(way: CheapestPath) -> OptimalSchedule:
    points: list[int] = []
    step: CheapestPath | None = way
    while step is not None:
        if step.point != NEVER:
            points.append(step.point)
        step = step.last
    return OptimalSchedule(way.cost, tuple(reversed(points)))


def views_for(phases: Sequence[EvictionWindow], points: Sequence[int]) -> list[SentView]:
    """List the view of every request if all eligible texts are evicted at these requests."""
    views: list[SentView] = []
    for phase in phases:
        states = SendStates(phase)
        name = NEVER
        for number in range(phase.first, phase.last):
            name = states.newest_state(number) if number in points else name
            views.append(states.state_view(name))
    return views
