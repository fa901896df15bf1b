"""Figures of many sessions, added up: in all, by agent, by project, by tool and by file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, tzinfo

from ..billing.lifetimes import Pauses
from ..recordings import READERS, UNKNOWN
from .facts import PaidRequest, SessionFacts
from .figures import FileFigures, Results, Saved, SessionFigures, Unread
from .groups import Group, share
from .numbers import plural
from .tally import TIMES, By, Key, Order, Tally, grouped, in_all, ordered

NAMED_SESSIONS = 5
"""Best and worst sessions that are named."""
NAMED_FILES = 8
"""Files without a session that are named."""


PAUSE_DAYS = 120
"""Days for which the pauses of a session tell something about its user."""


@dataclass(slots=True)
class Repeated:
    """Results of one tool, or about one file: how much there was, and what a profile took out."""

    results: Results = field(default_factory=Results)
    profiles: dict[str, Saved] = field(default_factory=dict)


@dataclass(slots=True)
class Telling:
    """What a report was asked to be about, and how it is to be told."""

    period: str = ""
    """In words: of when, and how to get more; empty for all there is."""
    since: float | None = None
    until: float | None = None
    """Unix seconds."""
    zone: tzinfo = UTC
    by: tuple[str, ...] = ()
    """Tables that come first."""
    order: Order | None = None
    top: int | None = None
    """Rows of each table."""


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
    paid: list[PaidRequest] = field(default_factory=list)
    """All requests that count, replayed or not."""
    asked: Telling = field(default_factory=Telling)
    tally: Tally = field(default_factory=Tally)
    waiting: int = 0
    """Sessions that were to be replayed, and were not: it was interrupted."""
    unfinished: int = 0
    """Logs that were to be read, and were not: it was interrupted."""
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

    def most_saved(self, found: Mapping[str, Repeated]) -> list[tuple[str, Repeated]]:
        """Tools or files, from the one of which the first profile saves most."""
        first = self.profiles[0] if self.profiles else ""

        def rank(item: tuple[str, Repeated]) -> tuple[float, float]:
            return -item[1].profiles.get(first, Saved()).cost, -item[1].results.tokens

        return sorted(found.items(), key=rank)

    @property
    def partial(self) -> str:
        """What is missing; empty where nothing is."""
        if self.unfinished:
            return f"Partial: interrupted with {plural(self.unfinished, 'log')} still to be read, the oldest ones."
        if self.waiting:
            told = f"{plural(len(self.sessions), 'session')} of {len(self.sessions) + self.waiting:,}"
            return f"Partial: interrupted. What would have been is told for {told}, the newest ones."
        return ""

    def table(self, by: By) -> list[tuple[Key, Tally]]:
        """Rows, in the order that was asked for."""
        rows = grouped(by, self.paid, self.sessions, self.asked.zone)
        usual: Order = "time" if by in TIMES else "paid"
        return ordered(rows, self.asked.order or usual, self.profiles[0] if self.profiles else "")


def saved_in(session: SessionFigures, profile: str) -> float:
    return share(session.baseline.cost, session.profiles[profile].spent.cost)


def add_up(
    profiles: Sequence[str],
    files: Iterable[FileFigures],
    progress: Callable[[FileFigures], None],
    paid: Iterable[PaidRequest] = (),
) -> Report:
    """The report over the files, in whatever order they come; sessions are sorted by path."""
    report = Report(profiles, paid=list(paid))
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
    report.tally = in_all(report.paid, report.sessions)
    return report


def pauses_in(sessions: Iterable[SessionFacts], now: float) -> Pauses:
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


def restored_notes(report: Report) -> Iterator[str]:
    """How much of what is sent was held against what was said."""
    for name, profile in report.total.profiles.items():
        if profile.restored and profile.strategies and not profile.law_failures:
            every = profile.restored == report.total.requests
            which = "every request" if every else f"{profile.restored:,} of {report.total.requests:,} requests"
            more = "" if every else " --verify checks all of them."
            yield f"{name}: what was left out of {which} was put back, and is what was said.{more}"
