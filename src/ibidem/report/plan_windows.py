"""Five-hour windows of a subscription.

A plan counts tokens in a window that starts with the first request and lasts five hours. A conversation ends when the
model's context is full, so each window also has an estimate of the requests left.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from .aggregate import Key, KnownSession, ReportRow, collect_rows
from .log_summary import PaidRequest
from .session_result import NOTHING_DONE, SessionResult

PLAN_WINDOW = 5 * 3600.0
"""Length of a window in seconds."""
HOUR = 3600.0
GROWTH_REQUESTS = 20
"""Number of last requests for the estimate of a conversation's growth."""


@dataclass(slots=True)
class PlanWindow:
    """Requests in one window of one agent's plan."""

    agent: str
    start: float
    """Unix seconds, on the hour."""
    row: ReportRow = field(default_factory=ReportRow)
    left: dict[str, float | None] = field(default_factory=dict)
    """`NOTHING_DONE` and every profile → how many more requests of the largest conversation at the end of the window
    fit into the model's context; None if unknown."""

    @property
    def end(self) -> float:
        return self.start + PLAN_WINDOW


def plan_windows(all_requests: Iterable[PaidRequest], sessions: Sequence[SessionResult]) -> list[PlanWindow]:
    """Make the windows of all agents, in order of time. Requests without a time are left out."""
    requests = sorted(
        (request for request in all_requests if request.at is not None), key=lambda request: request.at or 0.0
    )
    windows: dict[str, list[PlanWindow]] = {}
    for request in requests:
        some = windows.setdefault(request.session.agent, [])
        if request.at is not None and (not some or request.at >= some[-1].end):
            some.append(PlanWindow(request.session.agent, request.at - request.at % HOUR))

    def window_index(agent: str, at: float | None) -> int:
        agent_windows = windows.get(agent, [])
        number = bisect_right(agent_windows, at, key=lambda window: window.start) - 1 if at is not None else -1
        return number if number >= 0 and at is not None and at < agent_windows[number].end else -1

    def key_of(session: KnownSession, at: float | None, model: str) -> Key | None:
        number = window_index(session.agent, at)
        return (session.agent, str(number)) if number >= 0 else None

    # The largest session is last, so that its estimate replaces those of the others.
    by_size = sorted(sessions, key=lambda session: max(session.sizes.get(NOTHING_DONE, ()), default=0.0))
    for row in collect_rows(requests, by_size, key_of):
        windows[row.key[0]][int(row.key[1])].row = row
    for session in by_size:
        last = {window_index(session.agent, at): number for number, at in enumerate(session.times)}
        for window, number in last.items():
            if window >= 0 and (room := session.windows.get(session.model_of(number))):
                recent = slice(max(0, number + 1 - GROWTH_REQUESTS), number + 1)
                left_by_name = {name: requests_left(sizes[recent], room) for name, sizes in session.sizes.items()}
                windows[session.agent][window].left = left_by_name
    return sorted((window for some in windows.values() for window in some), key=lambda window: window.start)


def requests_left(sizes: Sequence[float], room: int) -> float | None:
    """Estimate how many more requests fit, from the growth so far; None if the conversation does not grow."""
    recent = sizes[-GROWTH_REQUESTS:]
    steps = [after - before for before, after in pairwise(recent) if after > before]
    if not steps:
        return None
    return max(0.0, (room - sizes[-1]) // (sum(steps) / len(steps)))
