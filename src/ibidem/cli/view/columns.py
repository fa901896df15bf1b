"""Show edits in the terminal: original and sent text side by side, or stacked in a narrow terminal."""

from __future__ import annotations

import io
import re
import textwrap
from collections.abc import Iterator
from itertools import zip_longest
from typing import IO, TYPE_CHECKING, NamedTuple

from rich.cells import cell_len, chop_cells, set_cell_size
from rich.console import Console
from rich.text import Text

from ...errors import one_line
from . import summary_table
from .edits import (
    Block,
    EditView,
    RequestView,
    ViewLine,
    collapse_runs,
    collapsed_label,
    escape_controls,
    format_token_change,
)

if TYPE_CHECKING:
    from .session_request import LoggedRequest

MIN_SIDE_BY_SIDE_COLUMNS = 100
"""Smallest terminal width for two texts side by side."""

GUTTER = {"kept": "  ", "gone": "- ", "new": "+ ", "marker": "» "}
STYLE = {"kept": "dim", "gone": "red", "new": "", "marker": "bold cyan"}
"""Style by kind of line. The signs of `GUTTER` show the same without colors."""
LEGEND = "- removed   » marker   + new text   (unchanged text has no sign)"

_STYLING = re.compile(r"\x1b\[[0-9;]*m")


class Cell(NamedTuple):
    """A text with its style."""

    text: str
    style: str = ""


EMPTY_CELL = Cell("")
COLUMN_RULE = " │ "


def draw_view(
    view: RequestView, stream: IO[str], *, everything: bool = False, plain: bool = False, texts: bool = True
) -> None:
    """Print the totals and every edit; without `texts`, only the totals."""
    console = _make_console(stream)
    totals = io.StringIO() if plain or console.no_color else stream
    summary_table.draw_summary(view.figures, totals)
    with console.capture() as page:
        if texts or not view.parts:
            _print_sentence(console, LEGEND if view.parts else "No edits.", "dim")
        for part in view.parts if texts else ():
            _print_edit(console, part, everything)
    if isinstance(totals, io.StringIO):  # without colors, rich still writes bold
        stream.write(_STYLING.sub("", totals.getvalue() + page.get()))
    else:
        stream.write(page.get())


def draw_logged(
    request: LoggedRequest, stream: IO[str], *, everything: bool = False, plain: bool = False, texts: bool = True
) -> None:
    """Print a request of a session: name, cost, edits (only with `texts`), and commands for its neighbors."""
    console = _make_console(stream)
    with console.capture() as page:
        _print_sentence(console, request.names.title, "bold")
        _print_sentence(console, request.names.facts, "")
        _print_sentence(console, ", ".join(filter(None, (request.title, request.when))), "bold")
        console.print()
        console.print(summary_table.make_table(request.rows), crop=False)
        console.print()
        for note in request.notes:
            _print_sentence(console, note, "yellow" if note.startswith("Evicted") else "")
        if texts and request.texts.parts:
            _print_sentence(console, LEGEND, "dim")
        for part in request.texts.parts if texts else ():
            _print_edit(console, part, everything)
        if request.neighbours:
            console.print()
        width = max((len(words) for words, _ in request.neighbours), default=0)
        for words, number in request.neighbours:  # not wrapped, so that users can copy the command
            console.print(
                f"{words + ':':{width + 1}} {request.command} --request {number}", style="dim", soft_wrap=True
            )
    stream.write(_STYLING.sub("", page.get()) if plain or console.no_color else page.get())


def _make_console(stream: IO[str]) -> Console:
    # The texts are foreign, so rich must not interpret them as markup. It handles COLUMNS and pipes itself.
    return Console(file=stream, markup=False, emoji=False, highlight=False)


def _print_edit(console: Console, part: EditView, everything: bool) -> None:
    console.print()
    _print_sentence(console, "  ".join(filter(None, (part.position, part.name))), "bold")
    why = f"{part.edit.strategy}: {part.edit.reason}" if part.edit.reason else part.edit.strategy
    _print_sentence(console, f"{why} ({format_token_change(part.tokens)})", "")
    if part.facts:
        _print_sentence(console, part.facts, "dim")
    rows = _side_by_side if console.width >= MIN_SIDE_BY_SIDE_COLUMNS else _stacked_lines
    lines = [line for block in part.blocks for line in rows(block, console.width, everything)]
    heads = [_two_columns(Cell("  original", "dim italic"), Cell("  sent", "dim italic"), console.width)]
    # One call for all lines: each call of rich is slow.
    console.print(Text("\n").join(heads + lines if rows is _side_by_side else lines), soft_wrap=True)


def _side_by_side(block: Block, width: int, everything: bool) -> Iterator[Text]:
    half = (width - len(COLUMN_RULE)) // 2
    old, new = (_line_cells(lines, half, everything) for lines in block)
    for left, right in zip_longest(old, new, fillvalue=EMPTY_CELL):
        yield _two_columns(left, right, width)


def _two_columns(left: Cell, right: Cell, width: int) -> Text:
    padded = set_cell_size(left.text, (width - len(COLUMN_RULE)) // 2)
    return _join_cells(Cell(padded, left.style), Cell(COLUMN_RULE, "dim"), right)


def _stacked_lines(block: Block, width: int, everything: bool) -> Iterator[Text]:
    """Yield the removed lines, then the new ones. Unchanged lines appear once."""
    for lines in block[block.kept :]:
        yield from map(_join_cells, _line_cells(lines, width, everything))


def _join_cells(*cells: Cell) -> Text:
    line = Text.assemble(*cells)
    line.rstrip()
    return line


def _line_cells(lines: list[ViewLine], width: int, everything: bool) -> Iterator[Cell]:
    for middle, run in collapse_runs(lines):
        if middle and not everything:
            yield Cell(f"  {collapsed_label(run)}", "dim italic")
            continue
        for line in run:
            gutter = GUTTER[line.look]
            text_width = max(width - len(gutter), 2)
            for piece in _wrap_line(line, text_width, everything):
                yield Cell(gutter + piece, STYLE[line.look])
                gutter = "  "


def _wrap_line(line: ViewLine, width: int, everything: bool) -> list[str]:
    if line.look == "marker":  # wrap markers instead of cutting them: half a marker is useless
        words = textwrap.wrap(escape_controls(line.text), width, break_on_hyphens=False)
        return [piece for each in words for piece in chop_cells(each, width)]
    if everything:
        return chop_cells(escape_controls(line.text), width) or [""]
    return [_truncate(line.text, width)]


def _truncate(text: str, width: int) -> str:
    start = text[: 4 * width]  # a line may have a megabyte
    escaped = escape_controls(start)
    if cell_len(escaped) <= width and len(start) == len(text):
        return escaped
    return chop_cells(escaped, width - 1)[0] + "…"


def _print_sentence(console: Console, text: str, style: str) -> None:
    wrapped = textwrap.fill(one_line(text), console.width, break_long_words=False, break_on_hyphens=False)
    console.print(wrapped, style=style, soft_wrap=True)
