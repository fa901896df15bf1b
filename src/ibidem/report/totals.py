"""Figures of many sessions, added up: in all, by agent, by project, by tool and by file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from statistics import median

from ..billing.lifetimes import Pauses
from ..billing.misses import Shares, shares
from ..billing.usage import Usage
from ..recordings import READERS, UNKNOWN
from .figures import Cached, FileFigures, Missed, Recorded, Results, Saved, SessionFigures, Spent, Unread, World

NAMED_SESSIONS = 5
"""Best and worst sessions that are named."""
NAMED_FILES = 8
"""Files without a session that are named."""


PAUSE_DAYS = 120
"""Days for which the pauses of a session tell something about its user."""

ROUNDING = 1e-9
"""Shares below this are rounding."""


@dataclass(slots=True)
class Worlds:
    """A group of sessions under a profile that changes what had been sent, by what a provider finds afterwards."""

    cost: float = 0.0
    rewrites: float = 0.0
    best: float | None = None
    """What the same edits would have cost at the best moments."""
    dearer: int = 0
    """Sessions that cost more than with nothing done."""
    ratio: float = 0.0
    """The cost of the dearest session, as a share of its cost with nothing done."""
    dearest: SessionFigures | None = None
    worst: float = 0.0
    """The largest share by which a session was ever dearer than with nothing done, at its end or before."""
    worst_in: SessionFigures | None = None
    """None if none ever was."""

    def add(self, session: SessionFigures, world: World) -> None:
        self.cost += world.cost
        self.rewrites += world.rewrites
        if world.best is not None:
            self.best = (self.best or 0.0) + world.best
        base = session.baseline.cost
        self.dearer += world.cost > base * (1 + ROUNDING)
        if base and world.cost / base > self.ratio:
            self.ratio, self.dearest = world.cost / base, session
        if world.worst > max(self.worst, ROUNDING):
            self.worst, self.worst_in = world.worst, session

    def reached(self, base: float) -> float | None:
        """Of what the best moments would have saved, the share that was; None if that would be nothing."""
        return None if self.best is None or base <= self.best else (base - self.cost) / (base - self.best)


@dataclass(slots=True)
class Profile:
    """A group of sessions under one profile."""

    spent: Spent = field(default_factory=Spent)
    dearer: int = 0
    """Sessions that cost more than with nothing done."""
    worst: float = 0.0
    """The largest share by which one was ever dearer than that, at its end or before."""
    law_failures: int = 0
    points: Counter[str] = field(default_factory=Counter)
    """Why what had been sent was changed, and how often."""
    strategies: dict[str, Saved] = field(default_factory=dict)
    worlds: dict[str, Worlds] = field(default_factory=dict)
    """Empty for a profile that never changes what had been sent."""

    @property
    def changing(self) -> dict[str, Worlds]:
        """What it costs to change what had been sent, by world; empty if nothing was, and nobody asked what can be."""
        told = self.spent.breaks or any(world.best is not None for world in self.worlds.values())
        return self.worlds if told else {}


@dataclass(slots=True)
class MissedTotal:
    """Misses of a group of sessions, for one reason."""

    count: int = 0
    tokens: float = 0.0
    cost: float = 0.0
    dearest: Missed = field(default_factory=Missed)
    """That of the session with the dearest one."""
    dearest_in: SessionFigures | None = None

    def add(self, session: SessionFigures, missed: Missed) -> None:
        self.count += missed.count
        self.tokens += missed.tokens
        self.cost += missed.cost
        if self.dearest_in is None or missed.dearest > self.dearest.dearest:
            self.dearest, self.dearest_in = missed, session


@dataclass(slots=True)
class CachedTotal:
    """How a group of sessions was cached: those that recorded usage."""

    sessions: int = 0
    cost: float = 0.0
    """As recorded."""
    tokens: Usage = field(default_factory=Usage)
    misses: dict[str, MissedTotal] = field(default_factory=dict)
    """By cause."""
    unmarked: int = 0
    """Sessions that asked for no cache where it has to be asked for."""
    unmarked_cost: float = 0.0
    """What these cost, as recorded."""
    unmarked_saved: float = 0.0
    """What five-minute marks would have saved of it."""

    def add(self, session: SessionFigures, cached: Cached) -> None:
        cost = session.recorded.cost if session.recorded else 0.0
        self.sessions += 1
        self.cost += cost
        self.tokens = Usage(
            self.tokens.fresh + cached.fresh,
            self.tokens.read + cached.read,
            self.tokens.written + cached.written,
            self.tokens.written_1h + cached.written_1h,
        )
        for cause, missed in cached.misses.items():
            self.misses.setdefault(cause, MissedTotal()).add(session, missed)
        if cached.unmarked:
            self.unmarked += 1
            self.unmarked_cost += cost
            self.unmarked_saved += cached.misses["unmarked"].cost

    @property
    def shares(self) -> Shares:
        return shares([self.tokens]) or Shares()


@dataclass(slots=True)
class Group:
    """Sessions that have something in common."""

    sessions: int = 0
    requests: int = 0
    baseline: Spent = field(default_factory=Spent)
    recorded: Recorded | None = None
    thinking: float = 0.0
    """Dollars of the baseline for thinking that was sent back with later requests."""
    errors: list[float] = field(default_factory=list)
    """Of the baseline against the recorded bill, as a share, by session."""
    profiles: dict[str, Profile] = field(default_factory=dict)
    cached: CachedTotal | None = None
    """None where nothing was recorded."""
    caching: dict[str, dict[str, Worlds]] = field(default_factory=dict)
    """How caching is asked for → profile, or `NOTHING_DONE`."""
    unasked: int = 0
    """Sessions whose provider keeps by itself."""

    def add(self, session: SessionFigures) -> None:
        self.sessions += 1
        self.requests += session.requests
        self.unasked += session.unasked
        _add(self.baseline, session.baseline)
        self.thinking += session.thinking
        if session.recorded:
            if session.recorded.cost:
                self.errors.append(session.recorded.baseline / session.recorded.cost - 1)
            self.recorded = _sum(self.recorded, session.recorded)
        if session.cached:
            self.cached = self.cached or CachedTotal()
            self.cached.add(session, session.cached)
        for caching, ways in session.caching.items():
            for way, figures in ways.items():
                self.caching.setdefault(caching, {}).setdefault(way, Worlds()).add(session, figures)
        for name, outcome in session.profiles.items():
            profile = self.profiles.setdefault(name, Profile())
            _add(profile.spent, outcome.spent)
            profile.dearer += outcome.spent.cost > session.baseline.cost * (1 + ROUNDING)
            profile.worst = max(profile.worst, outcome.worst)
            profile.law_failures += outcome.law_failures
            profile.points.update(outcome.points)
            for world, figures in outcome.worlds.items():
                profile.worlds.setdefault(world, Worlds()).add(session, figures)
            for strategy, saved in outcome.strategies.items():
                profile.strategies.setdefault(strategy, Saved()).add(saved.hits, saved.tokens, saved.cost)

    def saved(self, profile: str) -> float:
        """The share of the bill that a profile saves; negative where it costs more."""
        return share(self.baseline.cost, self.profiles[profile].spent.cost)

    @property
    def thinking_share(self) -> float:
        """Of the bill with nothing done."""
        return self.thinking / self.baseline.cost if self.baseline.cost else 0.0

    @property
    def error(self) -> float | None:
        """Of the baseline against the recorded bill, in all."""
        return self.recorded.baseline / self.recorded.cost - 1 if self.recorded and self.recorded.cost else None

    @property
    def error_by_rule(self) -> float | None:
        """Of the bill by the rules of the cache alone, against the recorded one: recorded hits are not looked at."""
        return self.recorded.by_rule / self.recorded.cost - 1 if self.recorded and self.recorded.cost else None

    def error_at(self, quantile: float) -> float | None:
        """The error that so many of the sessions do not exceed."""
        found = sorted(map(abs, self.errors))
        if not found:
            return None
        return median(found) if quantile == 0.5 else found[min(len(found) - 1, int(quantile * len(found)))]


def share(before: float, after: float) -> float:
    return 1 - after / before if before else 0.0


@dataclass(slots=True)
class Repeated:
    """Results of one tool, or about one file: how much there was, and what a profile took out."""

    results: Results = field(default_factory=Results)
    profiles: dict[str, Saved] = field(default_factory=dict)


@dataclass(slots=True)
class Report:
    """All that is shown, in whichever way."""

    profiles: Sequence[str]
    sessions: list[SessionFigures] = field(default_factory=list)
    unread: list[Unread] = field(default_factory=list)
    files_read: int = 0
    bytes_read: int = 0
    sample: bool = False
    """It is about the bundled sample: there were no logs."""
    total: Group = field(default_factory=Group)
    agents: dict[str, Group] = field(default_factory=dict)
    projects: dict[str, Group] = field(default_factory=dict)
    tools: dict[str, Repeated] = field(default_factory=dict)
    files: dict[str, Repeated] = field(default_factory=dict)

    @property
    def skipped(self) -> int:
        """Lines of logs that could not be used."""
        return sum(len(session.skipped) for session in self.sessions)

    @property
    def priced_as(self) -> dict[str, str]:
        return {model: other for session in self.sessions for model, other in session.priced_as.items()}

    @property
    def invalid(self) -> int:
        return sum(session.invalid for session in self.sessions)

    @property
    def accepted(self) -> int:
        """Of the invalid requests, those that their provider took all the same."""
        return sum(session.accepted for session in self.sessions)

    @property
    def violations(self) -> Counter[str]:
        found: Counter[str] = Counter()
        for session in self.sessions:
            found.update(session.violations)
        return found

    def ranked(self, profile: str) -> list[SessionFigures]:
        """Sessions from the one where a profile saved the largest share to the one where it saved least."""
        return sorted(self.sessions, key=lambda session: -saved_in(session, profile))

    def extremes(self, profile: str) -> tuple[list[SessionFigures], list[SessionFigures]]:
        """The best, and of the rest the worst, worst first."""
        ranked = self.ranked(profile)
        half = min(NAMED_SESSIONS, (len(ranked) + 1) // 2)
        return ranked[:half], ranked[half:][::-1][:NAMED_SESSIONS]


def saved_in(session: SessionFigures, profile: str) -> float:
    return share(session.baseline.cost, session.profiles[profile].spent.cost)


def add_up(profiles: Sequence[str], files: Iterable[FileFigures], progress: Callable[[FileFigures], None]) -> Report:
    """The report over the files, in whatever order they come; sessions are sorted by path."""
    report = Report(profiles)
    for found in files:
        report.files_read += 1
        report.bytes_read += found.size
        report.sessions.extend(found.sessions)
        report.unread.extend(found.unread)
        progress(found)
    report.sessions.sort(key=lambda session: (session.path, session.name))
    report.unread.sort(key=lambda unread: unread.path)
    for session in report.sessions:
        report.total.add(session)
        report.agents.setdefault(session.agent, Group()).add(session)
        report.projects.setdefault(session.project or "(unknown)", Group()).add(session)
        _repeated(report.tools, session.tools, {name: out.tools for name, out in session.profiles.items()})
        _repeated(report.files, session.files, {name: out.files for name, out in session.profiles.items()})
    return report


def pauses_in(sessions: Iterable[SessionFigures], now: float) -> Pauses:
    """Those of the sessions that began in the last months: habits change. Times are Unix seconds."""
    since = now - PAUSE_DAYS * 86400
    recent = (each for each in sessions if each.started is not None and each.started >= since)
    return sum((Pauses(each.spoken, each.looped, 1) for each in recent), Pauses())


def unread_notes(report: Report) -> list[str]:
    """What files gave no session, and why: a line for each of the first, and one for the rest."""
    notes = [f"Not read: {unread.path}: {unread.why}" for unread in report.unread[:NAMED_FILES]]
    if len(report.unread) > NAMED_FILES:
        notes.append(f"Not read: {len(report.unread) - NAMED_FILES:,} more: --json names them.")
    if any(unread.why == UNKNOWN for unread in report.unread):
        notes.append(f"Known are logs of {', '.join(reader.agent for reader in READERS)}.")
    return notes


def _repeated(table: dict[str, Repeated], results: dict[str, Results], saved: dict[str, dict[str, Saved]]) -> None:
    for name, found in results.items():
        entry = table.setdefault(name, Repeated())
        entry.results.count += found.count
        entry.results.tokens += found.tokens
    for profile, by_name in saved.items():
        for name, each in by_name.items():
            entry = table.setdefault(name, Repeated())
            entry.profiles.setdefault(profile, Saved()).add(each.hits, each.tokens, each.cost)


def _add(total: Spent, more: Spent) -> None:
    total.cost += more.cost
    total.tokens += more.tokens
    total.read += more.read
    total.peak = max(total.peak, more.peak)
    total.breaks += more.breaks


def _sum(total: Recorded | None, more: Recorded) -> Recorded:
    if total is None:
        return Recorded(more.cost, more.requests, more.baseline, more.by_rule)
    return Recorded(
        total.cost + more.cost,
        total.requests + more.requests,
        total.baseline + more.baseline,
        total.by_rule + more.by_rule,
    )
