"""Rows of a report: requests and sessions with a common key, added up.

`ReportRow` is the row of every table and of the total. `group_rows` makes rows by any key. There are two kinds
of cost: the recorded cost is what the provider counted at list prices, input and output; the replayed cost is computed
for the input of each request, without Ibidem (`NOTHING_DONE`) and with each profile.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, tzinfo
from functools import cached_property, lru_cache
from math import inf, isfinite
from statistics import median
from typing import Literal

from ..billing.cache_ttl import IdleTimes
from ..billing.usage import Usage
from ..render.number_format import ROUNDING, plural, saved_share
from .log_summary import PaidRequest, SessionFacts
from .session_result import (
    NOTHING_DONE,
    BilledCheck,
    CacheUse,
    FileResult,
    MissCount,
    ProfileOutcome,
    Removal,
    Scenario,
    SendCost,
    SessionResult,
    ToolResultTotals,
    UnreadFile,
    merge_totals,
)

NAMED_SESSIONS = 5
"""Number of best and of worst sessions that a report names."""
PAUSE_DAYS = 120
"""Days for which the idle times of a session are representative of its user."""

Key = tuple[str, ...]
KnownSession = SessionFacts | SessionResult
Scenarios = Mapping[str, Mapping[str, Scenario]]


@dataclass(slots=True)
class ScenarioTotals:
    """Costs of several sessions in one scenario, with the sessions for which it is worst."""

    cost: float = 0.0
    rewrites: float = 0.0
    best: float | None = None
    """Cost of the same edits at the best times; None if not computed."""
    more_expensive: int = 0
    """Sessions that cost more than without Ibidem."""
    ratio: float = 0.0
    """Highest cost of a session as a share of its cost without Ibidem."""
    highest: SessionResult | None = None
    """Session with that ratio."""
    worst: float = 0.0
    """Largest share by which a session was more expensive at any time, at its end or before."""
    worst_in: SessionResult | None = None
    """Session with that share; None if no session ever was more expensive."""

    def add(self, session: SessionResult, scenario: Scenario) -> None:
        self.cost += scenario.cost
        self.rewrites += scenario.rewrites
        if scenario.best is not None:
            self.best = (self.best or 0.0) + scenario.best
        base = session.baseline.cost
        self.more_expensive += scenario.cost > base * (1 + ROUNDING)
        if base and scenario.cost / base > self.ratio:
            self.ratio, self.highest = scenario.cost / base, session
        if scenario.worst > max(self.worst, ROUNDING):
            self.worst, self.worst_in = scenario.worst, session

    def reached(self, base: float) -> float | None:
        """Compute the reached share of the best possible saving; None if no saving is possible."""
        return None if self.best is None or base <= self.best else (base - self.cost) / (base - self.best)


def _add_scenarios(
    sessions: Iterable[SessionResult], scenarios_of: Callable[[SessionResult], Scenarios]
) -> dict[str, dict[str, ScenarioTotals]]:
    totals: dict[str, dict[str, ScenarioTotals]] = {}
    for session in sessions:
        for first, by_name in scenarios_of(session).items():
            for second, scenario in by_name.items():
                totals.setdefault(first, {}).setdefault(second, ScenarioTotals()).add(session, scenario)
    return totals


@dataclass
class ReportRow:
    """Requests, and whole sessions, with a common key.

    Sums over requests are in every row. Sums over whole sessions are in rows of the total, of agents, projects and
    sessions; other rows have no `replayed` sessions. They are computed on first use.
    """

    key: Key = ()
    sessions: set[Key] = field(default_factory=set)
    """Keys of the sessions with recorded requests."""
    requests: int = 0
    counted: int = 0
    """Requests with recorded usage."""
    fresh: int = 0
    read: int = 0
    written: int = 0
    written_1h: int = 0
    output_tokens: int = 0
    input: float = 0.0
    """Recorded cost of input, in dollars."""
    output: float = 0.0
    logged: float = 0.0
    """Dollars of input that Ibidem's proxy logged."""
    otherwise: float = 0.0
    """Cost of the same requests without the proxy."""
    first: float = inf
    """Unix time of the earliest request."""
    measured: int = 0
    """Replayed requests."""
    costs: dict[str, float] = field(default_factory=dict)
    """Replayed dollars for input: `NOTHING_DONE` and every profile."""
    replayed: list[SessionResult] = field(default_factory=list)

    def add_request(self, request: PaidRequest) -> None:
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
            self.output_tokens += usage.output
        self.input += request.input or 0.0
        self.output += request.output or 0.0
        if request.input is not None and request.otherwise is not None:
            self.logged += request.input
            self.otherwise += request.otherwise

    def add_replay(self, session: SessionResult, number: int) -> None:
        """Add the replayed cost of one request."""
        self.measured += 1
        for name, costs in session.costs.items():
            self.costs[name] = self.costs.get(name, 0.0) + costs[number]

    def add_session(self, session: SessionResult) -> None:
        self.replayed.append(session)
        self.measured += len(session.times)
        for name, costs in session.costs.items():
            self.costs[name] = sum(costs, self.costs.get(name, 0.0))

    # --- requests -------------------------------------------------------------------------------

    @property
    def total(self) -> float:
        return self.input + self.output

    @property
    def tokens(self) -> Usage:
        return Usage(self.fresh, self.read, self.written, self.written_1h, self.output_tokens)

    def amount(self, use_recorded: bool) -> float:
        """The recorded cost; or, if no log has usage, the replayed cost without Ibidem."""
        return self.total if use_recorded else self.costs.get(NOTHING_DONE, 0.0)

    def saved(self, profile: str) -> float:
        """Dollars that a profile would have saved."""
        return self.costs.get(NOTHING_DONE, 0.0) - self.costs.get(profile, 0.0) if self.costs else 0.0

    def saved_share(self, profile: str) -> float | None:
        """The saving as a share of the replayed cost without Ibidem; None without a replay."""
        base = self.costs.get(NOTHING_DONE, 0.0)
        return self.saved(profile) / base if base else None

    def share_of_total(self, input_share: float | None) -> float | None:
        """Convert a share of the input cost to a share of the cost of input and output, by their recorded split.

        None if no output was recorded. Replayed requests may lack recorded usage, so output cost cannot be added.
        """
        return None if input_share is None or not self.output else input_share * self.input / self.total

    # --- whole sessions -------------------------------------------------------------------------

    def net_saved(self, profile: str) -> float:
        """Dollars that a profile would have saved, net of one more request for each that needs evicted text."""
        outcome = self.profiles.get(profile)
        return self.saved(profile) - (outcome.need_cost if outcome else 0.0)

    def net_saved_share(self, profile: str) -> float:
        """That saving as a share of the replayed cost without Ibidem."""
        base = self.costs.get(NOTHING_DONE, 0.0)
        return self.net_saved(profile) / base if base else 0.0

    @property
    def session_requests(self) -> int:
        return sum(session.requests for session in self.replayed)

    @cached_property
    def baseline(self) -> SendCost:
        total = SendCost()
        for session in self.replayed:
            total.add(session.baseline)
        return total

    @cached_property
    def profiles(self) -> dict[str, ProfileOutcome]:
        """Outcomes by profile, added up. `scenarios` has their scenarios."""
        totals: dict[str, ProfileOutcome] = {}
        for session in self.replayed:
            merge_totals(totals, session.profiles, ProfileOutcome)
        return totals

    def more_expensive(self, profile: str) -> int:
        """The number of sessions that cost more with this profile than without Ibidem."""
        sessions = (session for session in self.replayed if profile in session.profiles)
        return sum(each.profiles[profile].spent.cost > each.baseline.cost * (1 + ROUNDING) for each in sessions)

    @cached_property
    def scenarios(self) -> dict[str, dict[str, ScenarioTotals]]:
        """Profile → what the provider finds after a revision → costs. Profiles that never revise are missing."""
        return _add_scenarios(
            self.replayed, lambda session: {name: outcome.worlds for name, outcome in session.profiles.items()}
        )

    def revision_scenarios(self, profile: str) -> dict[str, ScenarioTotals]:
        """The scenarios of a profile that revised something, or whose best times were computed."""
        scenarios = self.scenarios.get(profile, {})
        is_shown = self.profiles[profile].spent.breaks or any(each.best is not None for each in scenarios.values())
        return scenarios if is_shown else {}

    @cached_property
    def caching_totals(self) -> dict[str, dict[str, ScenarioTotals]]:
        """Caching mode → profile, or `NOTHING_DONE` → costs."""
        return _add_scenarios(self.replayed, lambda session: session.caching)

    @property
    def automatic_sessions(self) -> int:
        """Number of sessions whose provider caches automatically."""
        return sum(session.unasked for session in self.replayed)

    @property
    def thinking(self) -> float:
        return sum((session.thinking for session in self.replayed), 0.0)

    @property
    def thinking_share(self) -> float:
        return self.thinking / self.baseline.cost if self.baseline.cost else 0.0

    def profile_share(self, profile: str) -> float:
        """The share of the input cost that a profile saves; negative if it costs more."""
        return saved_share(self.baseline.cost, self.profiles[profile].spent.cost)

    @cached_property
    def recorded(self) -> BilledCheck | None:
        checks = [session.recorded for session in self.replayed if session.recorded]
        total = BilledCheck()
        for check in checks:
            total.add(check)
        return total if checks else None

    @property
    def errors(self) -> list[float]:
        """By session: the error of the replayed cost against the recorded cost, as a share."""
        checks = [session.recorded for session in self.replayed if session.recorded and session.recorded.cost]
        return [check.baseline / check.cost - 1 for check in checks]

    @property
    def error(self) -> float | None:
        """Error of the replayed cost of all sessions against the recorded cost, as a share."""
        return self.recorded.baseline / self.recorded.cost - 1 if self.recorded and self.recorded.cost else None

    @property
    def error_by_rule(self) -> float | None:
        """Error of the cost computed from the cache rules, without recorded cache reads, as a share."""
        return self.recorded.by_rule / self.recorded.cost - 1 if self.recorded and self.recorded.cost else None

    def error_at(self, quantile: float) -> float | None:
        """The error that this share of the sessions does not exceed."""
        errors = sorted(map(abs, self.errors))
        if not errors:
            return None
        return median(errors) if quantile == 0.5 else errors[min(len(errors) - 1, int(quantile * len(errors)))]

    # --- caching --------------------------------------------------------------------------------

    @cached_property
    def cached_sessions(self) -> list[SessionResult]:
        """Sessions with recorded usage."""
        return [session for session in self.replayed if session.cached]

    @cached_property
    def cached(self) -> CacheUse | None:
        """Cache use of the sessions with recorded usage; None if no session has it."""
        total = CacheUse()
        for session in self.cached_sessions:
            if session.cached:
                total.add(session.cached)
        return total if self.cached_sessions else None

    @property
    def cached_cost(self) -> float:
        """Recorded cost of the sessions with recorded usage."""
        return sum(map(_recorded_cost, self.cached_sessions), 0.0)

    @property
    def missing_breakpoints(self) -> MissingBreakpointTotals:
        sessions = [session for session in self.cached_sessions if session.cached and session.cached.unmarked]
        costs = (session.cached.misses["unmarked"].cost for session in sessions if session.cached)
        return MissingBreakpointTotals(len(sessions), sum(map(_recorded_cost, sessions), 0.0), sum(costs, 0.0))

    def most_expensive_miss(self, cause: str) -> tuple[SessionResult, MissCount] | None:
        """The session with the most expensive cache miss of this cause, and its misses."""
        pairs = [(each, each.cached.misses.get(cause)) for each in self.cached_sessions if each.cached]
        candidates = [(session, misses) for session, misses in pairs if misses]
        return max(candidates, key=lambda pair: pair[1].dearest, default=None)


@dataclass(frozen=True, slots=True)
class MissingBreakpointTotals:
    """Sessions without cache breakpoints at a provider that needs them."""

    sessions: int
    cost: float
    """As recorded."""
    saved: float
    """Dollars that five-minute breakpoints would have saved."""


def _recorded_cost(session: SessionResult) -> float:
    return session.recorded.cost if session.recorded else 0.0


# --- one group-by -------------------------------------------------------------------------------

By = Literal["day", "week", "month", "model", "project", "agent", "session"]
TIMES: tuple[By, ...] = ("day", "week", "month")
SESSION_KEYS = ("project", "agent", "session")
"""Keys that all requests of a session share."""

NOT_TOLD = "(not told)"
"""Key of requests whose log does not have the value."""

KeyOf = Callable[[KnownSession, float | None, str], Key | None]
"""Session, time and model of a request → the key of its row, or None for no row."""


def collect_rows(
    requests: Iterable[PaidRequest], sessions: Iterable[SessionResult], key_of: KeyOf, whole: bool = False
) -> list[ReportRow]:
    """Group requests by key, in the order of their first request. `whole`: all requests of a session share a key."""
    rows: dict[Key, ReportRow] = {}

    def row_for(key: Key) -> ReportRow:
        if key not in rows:
            rows[key] = ReportRow(key)
        return rows[key]

    for request in requests:
        if (key := key_of(request.session, request.at, request.model)) is not None:
            row_for(key).add_request(request)
    for session in sessions:
        if whole:
            if (key := key_of(session, None, "")) is not None:
                row_for(key).add_session(session)
            continue
        for number, at in enumerate(session.times):
            if (key := key_of(session, at, session.model_of(number))) is not None:
                row_for(key).add_replay(session, number)
    return list(rows.values())


def total_row(requests: Iterable[PaidRequest], sessions: Iterable[SessionResult]) -> ReportRow:
    rows = collect_rows(requests, sessions, lambda *_: (), whole=True)
    return rows[0] if rows else ReportRow()


def group_rows(
    by: By, requests: Iterable[PaidRequest], sessions: Iterable[SessionResult], zone: tzinfo = UTC
) -> list[ReportRow]:
    """Rows by period, in order of time, or by another key. The key of a session is its path and name."""
    key_of = {
        "session": lambda session, at, model: session.key,
        "model": lambda session, at, model: (model or NOT_TOLD,),
        "project": lambda session, at, model: (session.project or NOT_TOLD,),
        "agent": lambda session, at, model: (session.agent,),
    }.get(by, lambda session, at, model: (period_of(by, at, zone),))
    rows = collect_rows(requests, sessions, key_of, whole=by in SESSION_KEYS)
    return sorted(rows, key=lambda row: row.key) if by in TIMES else rows


def period_of(by: By, at: float | None, zone: tzinfo) -> str:
    """Name the day, the Monday of the week, or the month of a Unix time."""
    return NOT_TOLD if at is None or not isfinite(at) else _format_period(by, at // QUARTER * QUARTER, zone)


QUARTER = 900.0
"""Seconds. Time zones differ by quarters of an hour, so a day starts at a multiple of this in every zone."""


@lru_cache(4096)
def _format_period(by: By, at: float, zone: tzinfo) -> str:
    when = local_time(at, zone)
    if when is None:
        return NOT_TOLD
    if by == "week":
        when -= timedelta(days=when.weekday())
    return f"{when:%Y-%m}" if by == "month" else f"{when:%Y-%m-%d}"


def local_time(at: float | None, zone: tzinfo) -> datetime | None:
    """A Unix time in a time zone; None if it is outside the calendar."""
    try:
        return None if at is None else datetime.fromtimestamp(at, zone)
    except (OverflowError, OSError, ValueError):
        return None


Order = Literal["paid", "saved", "requests", "tokens", "name", "time"]
ORDERS: tuple[Order, ...] = ("paid", "saved", "requests", "tokens", "name", "time")


def sort_rows(rows: Sequence[ReportRow], order: Order, profile: str) -> list[ReportRow]:
    """Sort names and times in ascending order, everything else in descending order."""
    values: dict[Order, Callable[[ReportRow], float]] = {
        "paid": lambda row: -row.total or -row.costs.get(NOTHING_DONE, 0.0),
        "saved": lambda row: -row.saved(profile),
        "requests": lambda row: -row.requests,
        "tokens": lambda row: -row.tokens.input,
        "time": lambda row: row.first,
    }
    return sorted(rows, key=values[order]) if order in values else sorted(rows, key=lambda row: row.key)


# --- the report ---------------------------------------------------------------------------------


@dataclass(slots=True)
class RepeatTotals:
    """Results of one tool, or about one file, and the removals by profile."""

    results: ToolResultTotals = field(default_factory=ToolResultTotals)
    profiles: dict[str, Removal] = field(default_factory=dict)


def _collect_repeats(
    sessions: Iterable[SessionResult],
    results_of: Callable[[SessionResult], Mapping[str, ToolResultTotals]],
    removals_of: Callable[[ProfileOutcome], Mapping[str, Removal]],
) -> dict[str, RepeatTotals]:
    totals: dict[str, RepeatTotals] = {}
    for session in sessions:
        for name, results in results_of(session).items():
            totals.setdefault(name, RepeatTotals()).results.add(results)
        for profile, outcome in session.profiles.items():
            for name, removal in removals_of(outcome).items():
                merge_totals(totals.setdefault(name, RepeatTotals()).profiles, {profile: removal}, Removal)
    return totals


@dataclass(slots=True)
class ReportRequest:
    """Period, tables and order of a report."""

    period: str = ""
    """The period in words, with the option for more; empty for all requests."""
    since: float | None = None
    until: float | None = None
    """Unix seconds."""
    zone: tzinfo = UTC
    by: tuple[str, ...] = ()
    """Tables to show first."""
    order: Order | None = None
    top: int | None = None
    """Rows of each table."""


UNKNOWN_PROJECT = "(unknown)"
"""Name of sessions without a project in `Report.groups`; `projects` of the JSON promises it."""


@dataclass(slots=True)
class Report:
    """Everything that a report shows, in any output format."""

    profiles: Sequence[str]
    sessions: list[SessionResult] = field(default_factory=list)
    unread: list[UnreadFile] = field(default_factory=list)
    files_read: int = 0
    bytes_read: int = 0
    sample: bool = False
    """The report is about the bundled sample, because no logs were found."""
    paid: list[PaidRequest] = field(default_factory=list)
    """Selected requests, replayed or not."""
    asked: ReportRequest = field(default_factory=ReportRequest)
    waiting: int = 0
    """Sessions not replayed because of an interrupt."""
    unfinished: int = 0
    """Logs not read because of an interrupt."""
    total: ReportRow = field(default_factory=ReportRow)
    tools: dict[str, RepeatTotals] = field(default_factory=dict)
    files: dict[str, RepeatTotals] = field(default_factory=dict)

    @property
    def skipped(self) -> int:
        """Number of log lines that could not be parsed."""
        return sum(len(session.skipped) for session in self.sessions)

    @property
    def priced_as(self) -> dict[str, str]:
        return {model: other for session in self.sessions for model, other in session.priced_as.items()}

    @property
    def invalid(self) -> int:
        return sum(session.invalid for session in self.sessions)

    @property
    def accepted(self) -> int:
        """Number of invalid requests that the provider accepted."""
        return sum(session.accepted for session in self.sessions)

    @property
    def violations(self) -> Counter[str]:
        counts: Counter[str] = Counter()
        for session in self.sessions:
            counts.update(session.violations)
        return counts

    @property
    def known_sessions(self) -> dict[Key, KnownSession]:
        """Sessions by key, replayed or not."""
        by_key: dict[Key, KnownSession] = {session.key: session for session in self.sessions}
        by_key.update((request.session.key, request.session) for request in self.paid)
        return by_key

    def rank_sessions(self, profile: str) -> list[SessionResult]:
        """Sessions by the share that a profile saves, the largest first."""
        return sorted(self.sessions, key=lambda session: -session.saved_share(profile))

    def extremes(self, profile: str) -> tuple[list[SessionResult], list[SessionResult]]:
        """The best sessions, and the worst of the remaining ones, worst first."""
        sessions = self.rank_sessions(profile)
        half = min(NAMED_SESSIONS, (len(sessions) + 1) // 2)
        return sessions[:half], sessions[half:][::-1][:NAMED_SESSIONS]

    def most_saved(self, totals: Mapping[str, RepeatTotals]) -> list[tuple[str, RepeatTotals]]:
        """Tools or files by the saving of the first profile, the largest first."""
        first = self.profiles[0] if self.profiles else ""

        def sort_key(item: tuple[str, RepeatTotals]) -> tuple[float, float]:
            return -item[1].profiles.get(first, Removal()).cost, -item[1].results.tokens

        return sorted(totals.items(), key=sort_key)

    @property
    def partial(self) -> str:
        """A sentence about the missing part after an interrupt; empty if the report is complete."""
        if self.unfinished:
            return f"Partial: interrupted with {plural(self.unfinished, 'log')} not read, the oldest ones."
        if self.waiting:
            counts = f"{plural(len(self.sessions), 'session')} of {len(self.sessions) + self.waiting:,}"
            return f"Partial: interrupted. Savings are computed for {counts}, the newest ones."
        return ""

    def table(self, by: By) -> list[ReportRow]:
        """Rows by a key, in the requested order."""
        rows = group_rows(by, self.paid, self.sessions, self.asked.zone)
        usual: Order = "time" if by in TIMES else "paid"
        return sort_rows(rows, self.asked.order or usual, self.profiles[0] if self.profiles else "")

    def session_rows(self) -> dict[Key, ReportRow]:
        return {row.key: row for row in group_rows("session", self.paid, self.sessions)}

    def groups(self, by: Literal["agent", "project"]) -> dict[str, ReportRow]:
        """Replayed sessions by agent or project, with the recorded requests."""
        rows = (row for row in group_rows(by, self.paid, self.sessions) if row.replayed)
        return {UNKNOWN_PROJECT if row.key[0] == NOT_TOLD else row.key[0]: row for row in rows}


def add_up(
    profiles: Sequence[str],
    files: Iterable[FileResult],
    progress: Callable[[FileResult], None],
    requests: Iterable[PaidRequest] = (),
) -> Report:
    """Build the report from the results of files, in any order. Its sessions are sorted by path."""
    report = Report(profiles, paid=list(requests))
    for file in files:
        report.files_read += 1
        report.bytes_read += file.size
        report.sessions.extend(file.sessions)
        report.unread.extend(file.unread)
        progress(file)
    report.sessions.sort(key=lambda session: (session.path, session.name))
    report.unread.sort(key=lambda unread: unread.path)
    report.total = total_row(report.paid, report.sessions)
    report.tools = _collect_repeats(report.sessions, lambda session: session.tools, lambda outcome: outcome.tools)
    report.files = _collect_repeats(report.sessions, lambda session: session.files, lambda outcome: outcome.files)
    return report


def collect_idle_times(sessions: Iterable[SessionFacts], now: float) -> IdleTimes:
    """Add up idle times of sessions that started in the last `PAUSE_DAYS`: habits change. `now` is in Unix seconds."""
    since = now - PAUSE_DAYS * 86400
    recent = (each for each in sessions if each.started is not None and each.started >= since)
    return sum((IdleTimes(each.spoken, each.looped, 1) for each in recent), IdleTimes())
