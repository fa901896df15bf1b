"""Tables of a report in a terminal: by day, model and other keys, by window of a plan, and of sessions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import tzinfo
from pathlib import PurePath
from typing import get_args

from rich.console import Console
from rich.text import Text

from ..render.number_format import NO_NUMBER, dollars, percent, tokens
from ..render.terminal_layout import TableCell, TableRow, TitledCell, print_table, print_text, saving_color, single_line
from .aggregate import TIMES, By, Key, KnownSession, Report, ReportRow, local_time
from .plan_windows import PlanWindow, plan_windows
from .session_result import NOTHING_DONE, SessionResult

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
    by_key = report.known_sessions
    has_replay = any(row.costs for row in rows)
    wide = console.width >= WIDE and by != "session"
    top_rows = rows if report.asked.top is None and by in TIMES else rows[: row_limit(report)]
    cells: list[TableRow] = [
        [_name_cell(by, row.key, by_key, report.asked.zone), *_cost_cells(report, row, by, wide, has_replay)]
        for row in top_rows
    ]
    if len(rows) > 1:
        cells.append([f"in all {len(rows):,}", *_cost_cells(report, report.total, by, wide, has_replay)])
    sessions = ("sessions",) if wide else ()
    figures = report.profiles if has_replay else ("read", "tokens", "output")
    split = () if by == "session" else ("input $", "output $")
    print_table(console, (by, *sessions, "requests", *split, "paid $", *figures), cells)
    print_rest(console, len(rows), len(top_rows))


def _cost_cells(report: Report, row: ReportRow, by: By, wide: bool, has_replay: bool) -> list[TableCell]:
    split = () if by == "session" else (row.input, row.output)
    costs = [dollars(each) if row.counted else NO_NUMBER for each in (*split, row.total)]
    counts = [f"{len(row.sessions):,}"] if wide else []
    if has_replay:
        return [*counts, f"{row.requests:,}", *costs, *(_saving_cell(row, name) for name in report.profiles)]
    usage = row.tokens
    read = percent(usage.read / usage.input) if usage.input else NO_NUMBER
    return [*counts, f"{row.requests:,}", *costs, read, tokens(usage.input), tokens(usage.output)]


def _saving_cell(row: ReportRow, profile: str) -> Text:
    return _share_cell(row.saved_share(profile))


def _share_cell(share: float | None) -> Text:
    return Text(percent(share), saving_color(share or 0.0))


def row_limit(report: Report) -> int:
    return MAX_ROWS if report.asked.top is None else report.asked.top


def print_rest(console: Console, number: int, shown_rows: int) -> None:
    if number > shown_rows:
        print_text(console, f"{number - shown_rows:,} more: --top {number}, --html and --json have them all.", "dim")


def _name_cell(by: By, key: Key, by_key: dict[Key, KnownSession], zone: tzinfo) -> TableCell:
    return session_cell(by_key[key], zone) if by == "session" else single_line(key[0])


def session_cell(session: KnownSession, zone: tzinfo) -> TitledCell:
    """Make a cell that a user recognizes: first prompt, start, start of the id, model and project."""
    when = local_time(session.started, zone)
    model = session.models[0] if session.models else ""
    # Both kinds of separator, because the log may come from another machine.
    project = PurePath(session.project.replace("\\", "/")).name
    facts = [f"{when:%Y-%m-%d %H:%M}" if when else "", session.id[:SHOWN_ID], model, project]
    words = session.title or PurePath(session.path).name
    return TitledCell(
        single_line(f"{words} ({session.name})" if session.name else words), single_line(" ".join(filter(None, facts)))
    )


def session_name(session: KnownSession) -> str:
    """Name a session in a sentence: start of its id and title, or the path of its log."""
    if not session.title and not session.id:
        return single_line(f"{session.path} ({session.name})" if session.name else session.path)
    name = f" ({session.name})" if session.name else ""
    return single_line(f"{session.id[:SHOWN_ID]} “{session.title[:SHOWN_TITLE]}”{name}".strip())


def draw_sessions(console: Console, report: Report) -> None:
    """Print the sessions in which the first profile saves the most and the least."""
    first = report.profiles[0]
    if len(report.sessions) < 2:
        return
    by_session = report.session_rows()
    for head, sessions in zip(("saved most by", "saved least by"), report.extremes(first), strict=True):
        _draw_session_table(console, f"{head} {first}", sessions, report, by_session)


def _draw_session_table(
    console: Console, head: str, sessions: Iterable[SessionResult], report: Report, by_session: dict[Key, ReportRow]
) -> None:
    rows: list[TableRow] = []
    for session in sessions:
        row = by_session.get(session.key, ReportRow())
        cost = dollars(row.total) if row.counted else NO_NUMBER
        shares = [_share_cell(session.saved_share(name)) for name in report.profiles]
        rows.append([session_cell(session, report.asked.zone), f"{session.requests:,}", cost, *shares])
    print_table(console, (head, "requests", "paid $", *report.profiles), rows)


# --- windows of a plan --------------------------------------------------------------------------

WINDOWS = "A plan's window starts with its first request and lasts five hours."
SHARES = (
    " Percentages: the share of the input cost that a profile would have saved. room for more: how many more requests"
    " of the largest conversation fit into the model's context, as sent/with each profile."
)


def draw_windows(console: Console, report: Report) -> None:
    """Print the five-hour windows of plans."""
    windows = plan_windows(report.paid, report.sessions)
    last_windows = windows if report.asked.top is None else windows[-report.asked.top :]
    agents = {window.agent for window in windows}
    has_replay = any(window.row.costs for window in windows)
    rows: list[TableRow] = [
        [*_window_cells(window, report, len(agents) > 1), *(_room_cells(window, report) if has_replay else ())]
        for window in last_windows
    ]
    if rows:
        columns = (*report.profiles, "room for more") if has_replay else ()
        print_table(console, ("window from", "requests", "paid $", *columns), rows)
        print_text(console, WINDOWS + SHARES * has_replay, "dim")
    print_rest(console, len(windows), len(last_windows))


def _window_cells(window: PlanWindow, report: Report, with_agent: bool) -> Sequence[TableCell]:
    start = local_time(window.start, report.asked.zone)
    when = f"{start:%Y-%m-%d %H:%M}" if start else NO_NUMBER
    row = window.row
    cost = dollars(row.total) if row.counted else NO_NUMBER
    return [f"{when} {window.agent}" if with_agent else when, f"{row.requests:,}", cost]


def _room_cells(window: PlanWindow, report: Report) -> Sequence[TableCell]:
    counts = [window.left.get(name) for name in (NOTHING_DONE, *report.profiles)]
    room = "/".join(NO_NUMBER if each is None else f"{each:,.0f}" for each in counts)
    return [*(_saving_cell(window.row, name) for name in report.profiles), room]
