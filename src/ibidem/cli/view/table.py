"""Print the totals of a `compact` run in the terminal: two aligned tables, notes about skipped requests, a footnote."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import IO

from rich.console import Console
from rich.table import Table

from ...errors import one_line
from ...render.number_format import percent
from .summary import MAX_COUNTED_BYTES, BeforeAfter, CompactSummary

MAX_REASONS = 10
"""Largest number of printed reasons. `--json` has all."""

NO_VALUE = "-"

Row = Sequence[str]


def draw(figures: CompactSummary, stream: IO[str]) -> None:
    """Print the totals of a `compact` run."""
    # Names and reasons are foreign text, so rich must not interpret markup. It handles NO_COLOR, COLUMNS and pipes.
    console = Console(file=stream, markup=False, emoji=False, highlight=False)
    totals, strategies = _totals(figures), _strategies(figures)
    widths = [max(map(len, column)) for column in zip(*totals, *strategies, strict=True)]
    with console.capture() as page:  # we write it ourselves: rich would exit the process if the pipe is closed
        _sentence(console, _title(figures), "bold")
        for rows in (totals, strategies):
            console.print()
            console.print(_table(rows, widths), crop=False)  # a cropped number would be wrong
        console.print()
        for line in _left(figures):
            _sentence(console, line, "yellow")
        _sentence(console, _footnote(figures), "dim")
    stream.write(page.get())


def _sentence(console: Console, text: str, style: str) -> None:
    """Print a wrapped sentence. Rich's own wrapping leaves trailing spaces and breaks paths at hyphens."""
    wrapped = textwrap.fill(one_line(text), console.width, break_long_words=False, break_on_hyphens=False)
    console.print(wrapped, style=style, soft_wrap=True)


def columns(rows: Sequence[Row]) -> Table:
    """Make a table with minimal column widths. The first row is its header."""
    return _table(list(rows), [max(map(len, column)) for column in zip(*rows, strict=True)])


def _table(rows: list[Row], widths: list[int]) -> Table:
    table = Table(box=None, padding=(0, 0, 0, 3), pad_edge=False, header_style="bold")
    head, *body = rows
    for place, (name, width) in enumerate(zip(head, widths, strict=True)):
        table.add_column(name, min_width=width, no_wrap=True, justify="right" if place else "left")
    for row in body:
        table.add_row(*row)
    return table


def _totals(figures: CompactSummary) -> list[Row]:
    rows = [("", "before", "after", "saved"), _total("messages", figures.messages), _total("bytes", figures.size)]
    uncounted = ("tokens", "not counted", "not counted", NO_VALUE)
    return [*rows, _total("tokens", figures.tokens) if figures.tokens else uncounted]


def _total(name: str, change: BeforeAfter) -> Row:
    saved = percent(change.saved) if change.before != change.after else NO_VALUE
    return (name, f"{change.before:,}", f"{change.after:,}", saved)


def _strategies(figures: CompactSummary) -> list[Row]:
    keys = ("hits", "bytes", "tokens")
    rows = [
        (name, *(f"{saved[key]:,}" if saved["hits"] else NO_VALUE for key in keys))
        for name, saved in figures.strategies.items()
    ]
    return [("strategy", *keys), *rows]


def _title(figures: CompactSummary) -> str:
    count = "" if figures.requests == 1 else f"{figures.requests:,} requests, "
    return f"{figures.file}: {count}{', '.join(figures.formats) or 'no messages'}, profile {figures.profile}"


def _left(figures: CompactSummary) -> list[str]:
    read = [left for left in figures.left if left.read]
    lines = [f"{left.position.capitalize()} not rewritten: {left.reason}" for left in read[:MAX_REASONS]]
    if len(read) > MAX_REASONS:
        lines.append(f"{len(read) - MAX_REASONS:,} more not rewritten: --json lists them.")
    if figures.unreadable:  # each error was printed when the line was read
        lines.append(f"Unreadable, not rewritten: {figures.unreadable:,}.")
    return lines


def _footnote(figures: CompactSummary) -> str:
    notes = ["Totals count the JSON of requests; strategies count the text in it."]
    if figures.encodings:
        notes.append(f"Tokens: {', '.join(figures.encodings)}.")
    if figures.tokens is None:
        notes.append(f"Tokens are not counted in inputs above {MAX_COUNTED_BYTES >> 20} MiB.")
    return " ".join(notes)
