"""Print the totals of a `compact` run in the terminal: two aligned tables, notes about skipped requests, a footnote."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import IO

from rich.console import Console
from rich.table import Table

from ...errors import one_line
from ...render.number_format import percent
from .compact_summary import MAX_COUNTED_BYTES, BeforeAfter, CompactSummary

MAX_REASONS = 10
"""Largest number of printed reasons. `--json` has all."""

NO_VALUE = "-"

Row = Sequence[str]


def draw_summary(summary: CompactSummary, stream: IO[str]) -> None:
    """Print the totals of a `compact` run."""
    # Names and reasons are foreign text, so rich must not interpret markup. It handles NO_COLOR, COLUMNS and pipes.
    console = Console(file=stream, markup=False, emoji=False, highlight=False)
    totals, strategies = _total_rows(summary), _strategy_rows(summary)
    widths = [max(map(len, column)) for column in zip(*totals, *strategies, strict=True)]
    with console.capture() as page:  # we write it ourselves: rich would exit the process if the pipe is closed
        _print_sentence(console, _title_line(summary), "bold")
        for rows in (totals, strategies):
            console.print()
            console.print(_make_table(rows, widths), crop=False)  # a cropped number would be wrong
        console.print()
        for line in _skipped_lines(summary):
            _print_sentence(console, line, "yellow")
        for line in _full_text_lines(summary):
            _print_sentence(console, line, "")
        _print_sentence(console, _footnote_line(summary), "dim")
    stream.write(page.get())


def _print_sentence(console: Console, text: str, style: str) -> None:
    """Print a wrapped sentence. Rich's own wrapping leaves trailing spaces and breaks paths at hyphens."""
    wrapped = textwrap.fill(one_line(text), console.width, break_long_words=False, break_on_hyphens=False)
    console.print(wrapped, style=style, soft_wrap=True)


def make_table(rows: Sequence[Row]) -> Table:
    """Make a table with minimal column widths. The first row is its header."""
    return _make_table(list(rows), [max(map(len, column)) for column in zip(*rows, strict=True)])


def _make_table(rows: list[Row], widths: list[int]) -> Table:
    table = Table(box=None, padding=(0, 0, 0, 3), pad_edge=False, header_style="bold")
    head, *body = rows
    for place, (name, width) in enumerate(zip(head, widths, strict=True)):
        table.add_column(name, min_width=width, no_wrap=True, justify="right" if place else "left")
    for row in body:
        table.add_row(*row)
    return table


def _total_rows(summary: CompactSummary) -> list[Row]:
    rows = [
        ("", "before", "after", "saved"),
        _total_row("messages", summary.messages),
        _total_row("bytes", summary.size),
    ]
    uncounted = ("tokens", "not counted", "not counted", NO_VALUE)
    return [*rows, _total_row("tokens", summary.tokens) if summary.tokens else uncounted]


def _total_row(name: str, change: BeforeAfter) -> Row:
    saved_share = percent(change.saved) if change.before != change.after else NO_VALUE
    return (name, f"{change.before:,}", f"{change.after:,}", saved_share)


def _strategy_rows(summary: CompactSummary) -> list[Row]:
    keys = ("hits", "bytes", "tokens")
    rows = [
        (name, *(f"{strategy_savings[key]:,}" if strategy_savings["hits"] else NO_VALUE for key in keys))
        for name, strategy_savings in summary.strategies.items()
    ]
    return [("strategy", *keys), *rows]


def _title_line(summary: CompactSummary) -> str:
    count = "" if summary.requests == 1 else f"{summary.requests:,} requests, "
    return f"{summary.file}: {count}{', '.join(summary.formats) or 'no messages'}, profile {summary.profile}"


def _skipped_lines(summary: CompactSummary) -> list[str]:
    readable = [skipped_request for skipped_request in summary.left if skipped_request.read]
    lines = [f"{left.position.capitalize()} not rewritten: {left.reason}" for left in readable[:MAX_REASONS]]
    if len(readable) > MAX_REASONS:
        lines.append(f"{len(readable) - MAX_REASONS:,} more not rewritten: --json lists them.")
    if summary.unreadable_count:  # each error was printed when the line was read
        lines.append(f"Unreadable, not rewritten: {summary.unreadable_count:,}.")
    return lines


def _full_text_lines(summary: CompactSummary) -> list[str]:
    lines = list(summary.full_texts)
    if len(lines) > MAX_REASONS:
        lines[MAX_REASONS:] = [f"{len(lines) - MAX_REASONS:,} more requests with results sent in full: see --json."]
    return lines


def _footnote_line(summary: CompactSummary) -> str:
    notes = ["Totals count the JSON of requests; strategies count the text in it."]
    if summary.encodings:
        notes.append(f"Tokens: {', '.join(summary.encodings)}.")
    if summary.tokens is None:
        notes.append(f"Tokens are not counted in inputs above {MAX_COUNTED_BYTES >> 20} MiB.")
    return " ".join(notes)
