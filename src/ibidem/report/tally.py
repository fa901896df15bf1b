"""What was paid, and would have been, by day, week, month, model, project, agent or session.

What was paid is what the provider counted, at list prices; what would have been is the replay's. Output is no
profile's concern: it has a column of its own, and is in no saving.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, tzinfo
from functools import lru_cache
from math import inf, isfinite
from typing import Literal

from ..billing.usage import Usage
from .facts import PaidRequest, SessionFacts
from .figures import NOTHING_DONE, SessionFigures

By = Literal["day", "week", "month", "model", "project", "agent", "session"]
TIMES: tuple[By, ...] = ("day", "week", "month")

NOT_TOLD = "(not told)"
"""Where a log does not say what a row is named after."""

Key = tuple[str, ...]


@dataclass(slots=True)
class Tally:
    """Requests that have something in common."""

    sessions: set[tuple[str, str]] = field(default_factory=set)
    requests: int = 0
    counted: int = 0
    """Of these, requests of which the log says what the provider counted."""
    fresh: int = 0
    read: int = 0
    written: int = 0
    written_1h: int = 0
    sent_back: int = 0
    """Tokens of output."""
    input: float = 0.0
    """Dollars that were paid."""
    output: float = 0.0
    measured: int = 0
    """Requests that were replayed."""
    costs: dict[str, float] = field(default_factory=dict)
    """Dollars for their input: `NOTHING_DONE`, and every profile."""
    logged: float = 0.0
    """Dollars that were paid through our own proxy, as it logged them."""
    otherwise: float = 0.0
    """What these would have been without it."""
    first: float = inf
    """When the first of them was, in Unix seconds."""

    @property
    def total(self) -> float:
        return self.input + self.output

    @property
    def tokens(self) -> Usage:
        return Usage(self.fresh, self.read, self.written, self.written_1h, self.sent_back)

    def pay(self, request: PaidRequest) -> None:
        self.sessions.add(request.session.key)
        if request.at is not None and request.at < self.first:
            self.first = request.at
        self.requests += 1
        self.counted += request.input is not None
        if usage := request.usage:
            self.fresh += usage.fresh
            self.read += usage.read
            self.written += usage.written
            self.written_1h += usage.written_1h
            self.sent_back += usage.output
        self.input += request.input or 0.0
        self.output += request.output or 0.0
        if request.input is not None and request.otherwise is not None:
            self.logged += request.input
            self.otherwise += request.otherwise

    def replay(self, costs: Mapping[str, float]) -> None:
        self.measured += 1
        for name, cost in costs.items():
            self.costs[name] = self.costs.get(name, 0.0) + cost

    def saved(self, profile: str) -> float:
        """Dollars that a profile would have saved."""
        return self.costs.get(NOTHING_DONE, 0.0) - self.costs.get(profile, 0.0) if self.costs else 0.0

    def saved_share(self, profile: str) -> float | None:
        """Of what its requests cost with nothing done; None if nothing was replayed."""
        base = self.costs.get(NOTHING_DONE, 0.0)
        return self.saved(profile) / base if base else None


def in_all(paid: Iterable[PaidRequest], sessions: Iterable[SessionFigures]) -> Tally:
    return dict(_grouped(paid, sessions, lambda *_: ())).get((), Tally())


def grouped(
    by: By, paid: Iterable[PaidRequest], sessions: Iterable[SessionFigures], zone: tzinfo = UTC
) -> list[tuple[Key, Tally]]:
    """Rows, those of times in their order. A row's key is its name; a session's is its path and name."""
    rows = _grouped(paid, sessions, lambda session, at, model: _key(by, session, at, model, zone))
    return sorted(rows, key=lambda row: row[0]) if by in TIMES else rows


Grouping = Callable[[SessionFacts | SessionFigures, float | None, str], Key]


def _grouped(paid: Iterable[PaidRequest], sessions: Iterable[SessionFigures], key: Grouping) -> list[tuple[Key, Tally]]:
    rows: dict[Key, Tally] = {}
    for request in paid:
        rows.setdefault(key(request.session, request.at, request.model), Tally()).pay(request)
    for session in sessions:
        for number, at in enumerate(session.times):
            model = session.models[session.asked[number]] if session.asked[number] >= 0 else ""
            costs = {name: each[number] for name, each in session.costs.items()}
            rows.setdefault(key(session, at, model), Tally()).replay(costs)
    return list(rows.items())


def _key(by: By, session: SessionFacts | SessionFigures, at: float | None, model: str, zone: tzinfo) -> Key:
    match by:
        case "session":
            return session.key
        case "model":
            return (model or NOT_TOLD,)
        case "project":
            return (session.project or NOT_TOLD,)
        case "agent":
            return (session.agent,)
    return (period_of(by, at, zone),)


def period_of(by: By, at: float | None, zone: tzinfo) -> str:
    """The day, the Monday of the week, or the month of a moment."""
    return NOT_TOLD if at is None or not isfinite(at) else _period(by, at // QUARTER * QUARTER, zone)


QUARTER = 900.0
"""Seconds in which no day begins anywhere but at their start: zones differ by quarters of an hour."""


@lru_cache(4096)
def _period(by: By, at: float, zone: tzinfo) -> str:
    when = local(at, zone)
    if when is None:
        return NOT_TOLD
    if by == "week":
        when -= timedelta(days=when.weekday())
    return f"{when:%Y-%m}" if by == "month" else f"{when:%Y-%m-%d}"


def local(at: float | None, zone: tzinfo) -> datetime | None:
    """A moment as clocks there show it; None for one that no calendar has."""
    try:
        return None if at is None else datetime.fromtimestamp(at, zone)
    except (OverflowError, OSError, ValueError):
        return None


Order = Literal["paid", "saved", "requests", "tokens", "name", "time"]
ORDERS: tuple[Order, ...] = ("paid", "saved", "requests", "tokens", "name", "time")


def ordered(rows: Sequence[tuple[Key, Tally]], order: Order, profile: str) -> list[tuple[Key, Tally]]:
    """Names and times from the first on, everything else from the largest on."""
    ways: dict[Order, Callable[[tuple[Key, Tally]], float]] = {
        "paid": lambda row: -row[1].total or -row[1].costs.get(NOTHING_DONE, 0.0),
        "saved": lambda row: -row[1].saved(profile),
        "requests": lambda row: -row[1].requests,
        "tokens": lambda row: -row[1].tokens.input,
        "time": lambda row: row[1].first,
    }
    return sorted(rows, key=ways[order]) if order in ways else sorted(rows, key=lambda row: row[0])
