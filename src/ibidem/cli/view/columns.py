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
from . import table
from .edits import Block, RequestView, ViewLine, ViewPart, change, collapse_runs, escape_controls, left_out

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


def draw(
    view: RequestView, stream: IO[str], *, everything: bool = False, plain: bool = False, texts: bool = True
) -> None:
    """Print the totals and every edit; without `texts`, only the totals."""
    console = _console(stream)
    totals = io.StringIO() if plain or console.no_color else stream
    table.draw(view.figures, totals)
    with console.capture() as page:
        if texts or not view.parts:
            _sentence(console, LEGEND if view.parts else "No edits.", "dim")
        for part in view.parts if texts else ():
            _part(console, part, everything)
    if isinstance(totals, io.StringIO):  # without colors, rich still writes bold
        stream.write(_STYLING.sub("", totals.getvalue() + page.get()))
    else:
        stream.write(page.get())


def draw_logged(
    shown: LoggedRequest, stream: IO[str], *, everything: bool = False, plain: bool = False, texts: bool = True
) -> None:
    """Print a request of a session: name, cost, edits (only with `texts`), and commands for its neighbors."""
    console = _console(stream)
    with console.capture() as page:
        _sentence(console, shown.names.title, "bold")
        _sentence(console, shown.names.facts, "")
        _sentence(console, ", ".join(filter(None, (shown.title, shown.when))), "bold")
        console.print()
        console.print(table.columns(shown.rows), crop=False)
        console.print()
        for note in shown.notes:
            _sentence(console, note, "yellow" if note.startswith("Evicted") else "")
        if texts and shown.texts.parts:
            _sentence(console, LEGEND, "dim")
        for part in shown.texts.parts if texts else ():
            _part(console, part, everything)
        if shown.neighbours:
            console.print()
        width = max((len(words) for words, _ in shown.neighbours), default=0)
        for words, number in shown.neighbours:  # not wrapped, so that users can copy the command
            console.print(f"{words + ':':{width + 1}} {shown.command} --request {number}", style="dim", soft_wrap=True)
    stream.write(_STYLING.sub("", page.get()) if plain or console.no_color else page.get())


def _console(stream: IO[str]) -> Console:
    # The texts are foreign, so rich must not interpret them as markup. It handles COLUMNS and pipes itself.
    return Console(file=stream, markup=False, emoji=False, highlight=False)


def _part(console: Console, part: ViewPart, everything: bool) -> None:
    console.print()
    _sentence(console, "  ".join(filter(None, (part.position, part.name))), "bold")
    why = f"{part.edit.strategy}: {part.edit.reason}" if part.edit.reason else part.edit.strategy
    _sentence(console, f"{why} ({change(part.tokens)})", "")
    if part.facts:
        _sentence(console, part.facts, "dim")
    rows = _beside if console.width >= MIN_SIDE_BY_SIDE_COLUMNS else _stacked
    lines = [line for block in part.blocks for line in rows(block, console.width, everything)]
    heads = [_row(Cell("  original", "dim italic"), Cell("  sent", "dim italic"), console.width)]
    # One call for all lines: each call of rich is slow.
    console.print(Text("\n").join(heads + lines if rows is _beside else lines), soft_wrap=True)


def _beside(block: Block, width: int, everything: bool) -> Iterator[Text]:
    half = (width - len(COLUMN_RULE)) // 2
    old, new = (_cells(lines, half, everything) for lines in block)
    for left, right in zip_longest(old, new, fillvalue=EMPTY_CELL):
        yield _row(left, right, width)


def _row(left: Cell, right: Cell, width: int) -> Text:
    padded = set_cell_size(left.text, (width - len(COLUMN_RULE)) // 2)
    return _line(Cell(padded, left.style), Cell(COLUMN_RULE, "dim"), right)


def _stacked(block: Block, width: int, everything: bool) -> Iterator[Text]:
    """Yield the removed lines, then the new ones. Unchanged lines appear once."""
    for lines in block[block.kept :]:
        yield from map(_line, _cells(lines, width, everything))


def _line(*cells: Cell) -> Text:
    line = Text.assemble(*cells)
    line.rstrip()
    return line


def _cells(lines: list[ViewLine], width: int, everything: bool) -> Iterator[Cell]:
    for middle, run in collapse_runs(lines):
        if middle and not everything:
            yield Cell(f"  {left_out(run)}", "dim italic")
            continue
        for line in run:
            gutter = GUTTER[line.look]
            room = max(width - len(gutter), 2)
            for piece in _pieces(line, room, everything):
                yield Cell(gutter + piece, STYLE[line.look])
                gutter = "  "


def _pieces(line: ViewLine, room: int, everything: bool) -> list[str]:
    if line.look == "marker":  # wrap markers instead of cutting them: half a marker is useless
        words = textwrap.wrap(escape_controls(line.text), room, break_on_hyphens=False)
        return [piece for each in words for piece in chop_cells(each, room)]
    if everything:
        return chop_cells(escape_controls(line.text), room) or [""]
    return [_cut(line.text, room)]


def _cut(text: str, room: int) -> str:
    start = text[: 4 * room]  # a line may have a megabyte
    shown = escape_controls(start)
    if cell_len(shown) <= room and len(start) == len(text):
        return shown
    return chop_cells(shown, room - 1)[0] + "…"


def _sentence(console: Console, text: str, style: str) -> None:
    wrapped = textwrap.fill(one_line(text), console.width, break_long_words=False, break_on_hyphens=False)
    console.print(wrapped, style=style, soft_wrap=True)
