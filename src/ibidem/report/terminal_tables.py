"""Tables of a report in a terminal: by day, model and other keys, by window of a plan, and of sessions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import tzinfo
from pathlib import PurePath
from typing import get_args

from rich.console import Console
from rich.text import Text

from ..render.number_format import NO_NUMBER, dollars, percent, tokens
from ..render.terminal_layout import TableCell, TableRow, TitledCell, colour, say, short, table
from .aggregate import TIMES, By, Key, KnownSession, Report, ReportRow, local_time
from .plan_windows import PlanWindow, plan_windows
from .session_result import NOTHING_DONE, SessionFigures

MAX_ROWS = 8
"""Maximum number of rows without `--top`. `--html` and `--json` have all rows."""
WIDE = 100
"""Width of a terminal in columns from which a table has a column with the number of sessions."""
SHOWN_TITLE = 40
"""Characters of a title in a sentence."""
SHOWN_ID = 8
"""Characters of an id that are shown. They are enough to select the session."""

BYS: tuple[str, ...] = get_args(By)


def draw_table(console: Console, report: Report, by: By) -> None:
    """Print rows with the recorded cost, and the share that each profile would have saved."""
    rows = report.table(by)
    known = report.known_sessions
    replayed = any(row.costs for row in rows)
    wide = console.width >= WIDE and by != "session"
    some = rows if report.asked.top is None and by in TIMES else rows[: top(report)]
    drawn: list[TableRow] = [
        [_name(by, row.key, known, report.asked.zone), *_cells(report, row, by, wide, replayed)] for row in some
    ]
    if len(rows) > 1:
        drawn.append([f"in all {len(rows):,}", *_cells(report, report.total, by, wide, replayed)])
    sessions = ("sessions",) if wide else ()
    figures = report.profiles if replayed else ("read", "tokens", "output")
    split = () if by == "session" else ("input $", "output $")
    table(console, (by, *sessions, "requests", *split, "paid $", *figures), drawn)
    rest(console, len(rows), len(some))


def _cells(report: Report, row: ReportRow, by: By, wide: bool, replayed: bool) -> list[TableCell]:
    split = () if by == "session" else (row.input, row.output)
    paid = [dollars(each) if row.counted else NO_NUMBER for each in (*split, row.total)]
    counts = [f"{len(row.sessions):,}"] if wide else []
    if replayed:
        return [*counts, f"{row.requests:,}", *paid, *(_saved(row, name) for name in report.profiles)]
    used = row.tokens
    read = percent(used.read / used.input) if used.input else NO_NUMBER
    return [*counts, f"{row.requests:,}", *paid, read, tokens(used.input), tokens(used.output)]


def _saved(row: ReportRow, profile: str) -> Text:
    return _share(row.saved_share(profile))


def _share(found: float | None) -> Text:
    return Text(percent(found), colour(found or 0.0))


def top(report: Report) -> int:
    return MAX_ROWS if report.asked.top is None else report.asked.top


def rest(console: Console, number: int, shown: int) -> None:
    if number > shown:
        say(console, f"{number - shown:,} more: --top {number}, --html and --json have them all.", "dim")


def _name(by: By, key: Key, known: dict[Key, KnownSession], zone: tzinfo) -> TableCell:
    return session_cell(known[key], zone) if by == "session" else short(key[0])


def session_cell(session: KnownSession, zone: tzinfo) -> TitledCell:
    """Make a cell that a user recognizes: first prompt, start, start of the id, model and project."""
    when = local_time(session.started, zone)
    model = session.models[0] if session.models else ""
    # Both kinds of separator, because the log may come from another machine.
    project = PurePath(session.project.replace("\\", "/")).name
    facts = [f"{when:%Y-%m-%d %H:%M}" if when else "", session.id[:SHOWN_ID], model, project]
    words = session.title or PurePath(session.path).name
    return TitledCell(
        short(f"{words} ({session.name})" if session.name else words), short(" ".join(filter(None, facts)))
    )


def session_name(session: KnownSession) -> str:
    """Name a session in a sentence: start of its id and title, or the path of its log."""
    if not session.title and not session.id:
        return short(f"{session.path} ({session.name})" if session.name else session.path)
    name = f" ({session.name})" if session.name else ""
    return short(f"{session.id[:SHOWN_ID]} “{session.title[:SHOWN_TITLE]}”{name}".strip())


def draw_sessions(console: Console, report: Report) -> None:
    """Print the sessions in which the first profile saves the most and the least."""
    first = report.profiles[0]
    if len(report.sessions) < 2:
        return
    by_session = report.session_rows()
    for head, some in zip(("saved most by", "saved least by"), report.extremes(first), strict=True):
        _draw_some(console, f"{head} {first}", some, report, by_session)


def _draw_some(
    console: Console, head: str, sessions: Iterable[SessionFigures], report: Report, by_session: dict[Key, ReportRow]
) -> None:
    rows: list[TableRow] = []
    for session in sessions:
        row = by_session.get(session.key, ReportRow())
        paid = dollars(row.total) if row.counted else NO_NUMBER
        saved = [_share(session.saved_share(name)) for name in report.profiles]
        rows.append([session_cell(session, report.asked.zone), f"{session.requests:,}", paid, *saved])
    table(console, (head, "requests", "paid $", *report.profiles), rows)


# --- windows of a plan --------------------------------------------------------------------------

WINDOWS = "A plan's window starts with its first request and lasts five hours."
SHARES = (
    " Percentages: the share of the input cost that a profile would have saved. room for more: how many more requests"
    " of the largest conversation fit into the model's context, as sent/with each profile."
)


def draw_windows(console: Console, report: Report) -> None:
    """Print the five-hour windows of plans."""
    found = plan_windows(report.paid, report.sessions)
    shown = found if report.asked.top is None else found[-report.asked.top :]
    agents = {window.agent for window in found}
    replayed = any(window.row.costs for window in found)
    rows: list[TableRow] = [
        [*_window(window, report, len(agents) > 1), *(_room(window, report) if replayed else ())] for window in shown
    ]
    if rows:
        more = (*report.profiles, "room for more") if replayed else ()
        table(console, ("window from", "requests", "paid $", *more), rows)
        say(console, WINDOWS + SHARES * replayed, "dim")
    rest(console, len(found), len(shown))


def _window(window: PlanWindow, report: Report, named: bool) -> Sequence[TableCell]:
    start = local_time(window.start, report.asked.zone)
    when = f"{start:%Y-%m-%d %H:%M}" if start else NO_NUMBER
    row = window.row
    paid = dollars(row.total) if row.counted else NO_NUMBER
    return [f"{when} {window.agent}" if named else when, f"{row.requests:,}", paid]


def _room(window: PlanWindow, report: Report) -> Sequence[TableCell]:
    left = [window.left.get(name) for name in (NOTHING_DONE, *report.profiles)]
    room = "/".join(NO_NUMBER if each is None else f"{each:,.0f}" for each in left)
    return [*(_saved(window.row, name) for name in report.profiles), room]
