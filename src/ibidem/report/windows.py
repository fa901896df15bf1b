"""Five-hour windows, for people who pay by plan and not by token.

A plan counts what is sent in a window that begins with the first request and lasts five hours. What of it was said
before, the provider had already; and a conversation ends when the model's own window, its context, is full.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from operator import itemgetter

from .facts import PaidRequest
from .figures import NOTHING_DONE, SessionFigures
from .tally import Tally

PLAN_WINDOW = 5 * 3600.0
"""Seconds."""
HOUR = 3600.0
LOOKED_BACK = 20
"""Requests by which the growth of a conversation is judged."""


@dataclass(slots=True)
class PlanWindow:
    """What was sent in one window of one agent's plan."""

    agent: str
    start: float
    """Unix seconds, on the hour."""
    tally: Tally = field(default_factory=Tally)
    left: dict[str, float | None] = field(default_factory=dict)
    """`NOTHING_DONE` and every profile → how many more requests of the conversation that was largest at the end of the
    window would have fitted into the model; None where that cannot be told."""

    @property
    def end(self) -> float:
        return self.start + PLAN_WINDOW


def plan_windows(paid: Iterable[PaidRequest], sessions: Sequence[SessionFigures]) -> list[PlanWindow]:
    """By agent, in order of time. Requests of an unknown time are in none."""
    found: dict[str, list[PlanWindow]] = {}
    timed = [(request.at, request) for request in paid if request.at is not None]
    for at, request in sorted(timed, key=itemgetter(0)):
        windows = found.setdefault(request.session.agent, [])
        if not windows or at >= windows[-1].end:
            windows.append(PlanWindow(request.session.agent, at - at % HOUR))
        windows[-1].tally.pay(request)
    for session in sorted(sessions, key=lambda each: max(each.sizes.get(NOTHING_DONE, ()), default=0.0)):
        _replay(session, found.get(session.agent, []))
    return sorted((window for some in found.values() for window in some), key=lambda window: window.start)


def _replay(session: SessionFigures, windows: Sequence[PlanWindow]) -> None:
    """What its requests would have cost, and how much room there was at the last one in each window: of several
    sessions, the largest, which comes last, has the say."""
    last: dict[int, int] = {}
    for number, at in enumerate(session.times):
        place = bisect_right(windows, at, key=lambda window: window.start) - 1 if at is not None else -1
        if place >= 0 and at is not None and at < windows[place].end:
            windows[place].tally.replay({name: costs[number] for name, costs in session.costs.items()})
            last[place] = number
    for place, number in last.items():
        model = session.models[session.asked[number]] if session.asked[number] >= 0 else ""
        if room := session.windows.get(model):
            recent = slice(max(0, number + 1 - LOOKED_BACK), number + 1)
            windows[place].left = {name: requests_left(each[recent], room) for name, each in session.sizes.items()}


def requests_left(sizes: Sequence[float], room: int) -> float | None:
    """How many more fit into a model, if a conversation goes on growing as it did; None if it does not grow."""
    recent = sizes[-LOOKED_BACK:]
    steps = [after - before for before, after in pairwise(recent) if after > before]
    if not steps:
        return None
    return max(0.0, (room - sizes[-1]) // (sum(steps) / len(steps)))
