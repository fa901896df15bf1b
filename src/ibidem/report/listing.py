"""Tables of a report in a terminal: by day, model and so on, by window of a plan, and sessions by their titles."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import tzinfo
from pathlib import PurePath
from typing import get_args

from rich.console import Console
from rich.text import Text

from .facts import SessionFacts
from .figures import NOTHING_DONE, SessionFigures
from .numbers import NO_NUMBER, dollars, percent, tokens
from .rows import known_sessions
from .tables import TableCell, TableRow, Titled, colour, say, short, table
from .tally import TIMES, By, Key, Tally, local
from .totals import Report, saved_in
from .windows import PlanWindow, plan_windows

MAX_ROWS = 8
"""Rows of a table that could be long; the rest is in `--html` and `--json`, or here with `--top`."""
WIDE = 100
"""Columns of a terminal from which on a table also tells how many sessions there are."""
SHOWN_TITLE = 40
"""Characters of a title in a sentence."""
SHOWN_ID = 8
"""Characters of an id that are enough to ask for it."""

BYS: tuple[str, ...] = get_args(By)


def draw_table(console: Console, report: Report, by: By) -> None:
    """What was paid, and what share each profile would have saved."""
    rows = report.table(by)
    known = known_sessions(report)
    replayed = any(tally.costs for _, tally in rows)
    wide = console.width >= WIDE and by != "session"
    some = rows if report.asked.top is None and by in TIMES else rows[: top(report)]
    drawn: list[TableRow] = [
        [_name(by, key, known, report.asked.zone), *_cells(report, tally, by, wide, replayed)] for key, tally in some
    ]
    if len(rows) > 1:
        drawn.append([f"in all {len(rows):,}", *_cells(report, report.tally, by, wide, replayed)])
    sessions = ("sessions",) if wide else ()
    figures = report.profiles if replayed else ("read", "tokens", "output")
    split = () if by == "session" else ("input $", "output $")
    table(console, (by, *sessions, "requests", *split, "paid $", *figures), drawn)
    rest(console, len(rows), len(some))


def _cells(report: Report, tally: Tally, by: By, wide: bool, replayed: bool) -> list[TableCell]:
    split = () if by == "session" else (tally.input, tally.output)
    paid = [dollars(each) if tally.counted else NO_NUMBER for each in (*split, tally.total)]
    counts = [f"{len(tally.sessions):,}"] if wide else []
    if replayed:
        return [*counts, f"{tally.requests:,}", *paid, *(_saved(tally, name) for name in report.profiles)]
    used = tally.tokens
    read = percent(used.read / used.input) if used.input else NO_NUMBER
    return [*counts, f"{tally.requests:,}", *paid, read, tokens(used.input), tokens(used.output)]


def _saved(tally: Tally, profile: str) -> Text:
    return _share(tally.saved_share(profile))


def _share(found: float | None) -> Text:
    return Text(percent(found), colour(found or 0.0))


def top(report: Report) -> int:
    return MAX_ROWS if report.asked.top is None else report.asked.top


def rest(console: Console, number: int, shown: int) -> None:
    if number > shown:
        say(console, f"{number - shown:,} more: --top {number}, --html and --json have them all.", "dim")


def _name(by: By, key: Key, known: dict[tuple[str, str], SessionFacts | SessionFigures], zone: tzinfo) -> TableCell:
    if by == "session":
        path, name = key
        return titled(known[path, name], zone)
    return short(key[0])


def titled(session: SessionFacts | SessionFigures, zone: tzinfo) -> Titled:
    """What a person knows it by: its first prompt, when it was, the front of its id, model and project."""
    when = local(session.started, zone)
    model = session.models[0] if session.models else ""
    # Both kinds of separator: the log may be of another machine.
    project = PurePath(session.project.replace("\\", "/")).name
    facts = [f"{when:%Y-%m-%d %H:%M}" if when else "", session.id[:SHOWN_ID], model, project]
    words = session.title or PurePath(session.path).name
    return Titled(short(f"{words} ({session.name})" if session.name else words), short(" ".join(filter(None, facts))))


def called(session: SessionFacts | SessionFigures) -> str:
    """In a sentence: the front of its id and its title, or where it lies."""
    if not session.title and not session.id:
        return short(f"{session.path} ({session.name})" if session.name else session.path)
    name = f" ({session.name})" if session.name else ""
    return short(f"{session.id[:SHOWN_ID]} “{session.title[:SHOWN_TITLE]}”{name}".strip())


def draw_sessions(console: Console, report: Report) -> None:
    """Where the first profile saves most, and where least."""
    first = report.profiles[0]
    if len(report.sessions) < 2:
        return
    tallies = dict(report.table("session"))
    for head, some in zip(("saved most by", "saved least by"), report.extremes(first), strict=True):
        _draw_some(console, f"{head} {first}", some, report, tallies)


def _draw_some(
    console: Console, head: str, sessions: Iterable[SessionFigures], report: Report, tallies: dict[Key, Tally]
) -> None:
    rows: list[TableRow] = []
    for session in sessions:
        tally = tallies.get(session.key, Tally())
        paid = dollars(tally.total) if tally.counted else NO_NUMBER
        saved = [_share(saved_in(session, name)) for name in report.profiles]
        rows.append([titled(session, report.asked.zone), f"{session.requests:,}", paid, *saved])
    table(console, (head, "requests", "paid $", *report.profiles), rows)


# --- windows of a plan --------------------------------------------------------------------------

WINDOWS = "A plan's window begins with its first request and lasts five hours."
SHARES = (
    " Shares: what of it was said before and a profile would not have sent again. room for more: how many more requests"
    " of the largest conversation fit into the model's window, as it was sent/with each profile."
)


def draw_windows(console: Console, report: Report) -> None:
    found = plan_windows(report.paid, report.sessions)
    shown = found if report.asked.top is None else found[-report.asked.top :]
    agents = {window.agent for window in found}
    replayed = any(window.tally.costs for window in found)
    rows: list[TableRow] = [
        [*_window(window, report, len(agents) > 1), *(_room(window, report) if replayed else ())] for window in shown
    ]
    if rows:
        more = (*report.profiles, "room for more") if replayed else ()
        table(console, ("window from", "requests", "paid $", *more), rows)
        say(console, WINDOWS + SHARES * replayed, "dim")
    rest(console, len(found), len(shown))


def _window(window: PlanWindow, report: Report, named: bool) -> Sequence[TableCell]:
    start = local(window.start, report.asked.zone)
    when = f"{start:%Y-%m-%d %H:%M}" if start else NO_NUMBER
    tally = window.tally
    paid = dollars(tally.total) if tally.counted else NO_NUMBER
    return [f"{when} {window.agent}" if named else when, f"{tally.requests:,}", paid]


def _room(window: PlanWindow, report: Report) -> Sequence[TableCell]:
    left = [window.left.get(name) for name in (NOTHING_DONE, *report.profiles)]
    room = "/".join(NO_NUMBER if each is None else f"{each:,.0f}" for each in left)
    return [*(_saved(window.tally, name) for name in report.profiles), room]
