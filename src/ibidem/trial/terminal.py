"""Print the verdict in a terminal: three lines, the table, and the conditions of the trial. Texts are never markup."""

from __future__ import annotations

from typing import IO

from rich.console import Console
from rich.text import Text

from ..errors import one_line
from ..render.terminal_layout import TableRow, say, table
from .probed import PROBE_HEAD, ProbeTally, probe_cells, probe_lines
from .stats import Judgement
from .verdict import LIMITS, SIMULATED, Setting, TrialCall, TrialRow, call, cells, facts, lines, table_rows

STYLES = {
    TrialCall.NOTHING: "bold yellow",
    TrialCall.LOST: "bold red",
    TrialCall.HARM: "bold red",
    TrialCall.WITHIN: "bold green",
    TrialCall.UNSETTLED: "bold yellow",
}
HEAD = ("", "A", "B", "difference", "95 % interval", "p", "points")


def draw_verdict(
    judgement: Judgement, setting: Setting, stream: IO[str], *, plain: bool = False, probes: ProbeTally | None = None
) -> None:
    """Write the verdict to `stream`, with the probes below it if there are any."""
    console = Console(file=stream, markup=False, emoji=False, highlight=False, no_color=plain or None)
    with console.capture() as shown:
        if setting.simulated:
            say(console, SIMULATED, "yellow")
        first, *rest = lines(judgement, setting)
        say(console, first, STYLES[call(judgement, setting)])
        for line in rest:
            say(console, line)
        table(console, HEAD, [_row(each) for each in table_rows(judgement)])
        console.print()
        for name, told in facts(judgement, setting):
            say(console, f"{name}: {one_line(told)}")
        for line in LIMITS:
            say(console, line, "dim")
        if probes is not None:
            draw_probes(console, probes)
    stream.write("\n".join(line.rstrip() for line in shown.get().split("\n")))  # rich fills lines with spaces


def draw_probes(console: Console, probes: ProbeTally) -> None:
    """Write the results of the probes: their lines and their table."""
    console.print()
    for line in probe_lines(probes):
        say(console, line)
    rows = [(f"  {row.words}" if row.part else Text(row.words, "bold"), *probe_cells(row)) for row in probes.rows]
    table(console, PROBE_HEAD, rows)


def _row(row: TrialRow) -> TableRow:
    told = row.estimate
    if told is None:
        return (Text(row.words, "bold"), *[""] * (len(HEAD) - 3), row.p, "")
    return (f"  {row.words}", *cells(told, row.unit), "", f"{told.points:,}")
