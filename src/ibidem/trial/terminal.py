"""Print the verdict in a terminal: three lines, the table, and the conditions of the trial. Texts are never markup."""

from __future__ import annotations

from typing import IO

from rich.console import Console
from rich.text import Text

from ..errors import one_line
from ..render.terminal_layout import TableRow, print_table, print_text
from .probe_results import PROBE_HEAD, ProbeTally, probe_cells, probe_lines
from .trial_statistics import TrialStatistics
from .verdict import (
    LIMITS,
    SIMULATED,
    TrialConditions,
    TrialRow,
    VerdictKind,
    decide_verdict,
    estimate_cells,
    list_conditions,
    table_rows,
    verdict_lines,
)

STYLES = {
    VerdictKind.NOTHING: "bold yellow",
    VerdictKind.LOST: "bold red",
    VerdictKind.HARM: "bold red",
    VerdictKind.WITHIN: "bold green",
    VerdictKind.UNSETTLED: "bold yellow",
}
HEAD = ("", "A", "B", "difference", "95 % interval", "p", "points")


def draw_verdict(
    statistics: TrialStatistics,
    conditions: TrialConditions,
    stream: IO[str],
    *,
    plain: bool = False,
    probes: ProbeTally | None = None,
) -> None:
    """Write the verdict to `stream`, with the probes below it if there are any."""
    console = Console(file=stream, markup=False, emoji=False, highlight=False, no_color=plain or None)
    with console.capture() as capture:
        if conditions.simulated:
            print_text(console, SIMULATED, "yellow")
        first, *rest = verdict_lines(statistics, conditions)
        print_text(console, first, STYLES[decide_verdict(statistics, conditions)])
        for line in rest:
            print_text(console, line)
        print_table(console, HEAD, [_table_row(row) for row in table_rows(statistics)])
        console.print()
        for name, text in list_conditions(statistics, conditions):
            print_text(console, f"{name}: {one_line(text)}")
        for line in LIMITS:
            print_text(console, line, "dim")
        if probes is not None:
            draw_probes(console, probes)
    stream.write("\n".join(line.rstrip() for line in capture.get().split("\n")))  # rich fills lines with spaces


def draw_probes(console: Console, probes: ProbeTally) -> None:
    """Write the results of the probes: their lines and their table."""
    console.print()
    for line in probe_lines(probes):
        print_text(console, line)
    rows = [(f"  {row.words}" if row.part else Text(row.words, "bold"), *probe_cells(row)) for row in probes.rows]
    print_table(console, PROBE_HEAD, rows)


def _table_row(row: TrialRow) -> TableRow:
    estimate = row.estimate
    if estimate is None:
        return (Text(row.words, "bold"), *[""] * (len(HEAD) - 3), row.p, "")
    return (f"  {row.words}", *estimate_cells(estimate, row.unit), "", f"{estimate.points:,}")
