"""Lines, tables and bars for a terminal. Texts in them are never parsed as markup."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

BAR_LENGTH = 30
"""Maximum length of a bar in characters."""
LEAST_NAME = 12
"""Minimum width of a shortened name in characters."""


class Bar(NamedTuple):
    """A horizontal bar in a cell."""

    part: float
    """Share of the column's width."""
    style: str

    def draw_text(self, width: int) -> Text:
        eighths = round(max(0.0, min(1.0, self.part)) * width * 8)
        return Text(("█" * (eighths // 8) + " ▏▎▍▌▋▊▉"[eighths % 8]).rstrip()[:width], self.style)


class TitledCell(NamedTuple):
    """A title, and a line below it with more facts. Both are cut at their end."""

    words: str
    below: str

    def draw_text(self, width: int, cut: str) -> Text:
        return Text("\n").join(
            [Text(_cut_end(self.words, width, cut)), Text(_cut_end(f"  {self.below}", width, cut), "dim")]
        )


TableCell = str | Text | Bar | TitledCell
TableRow = Sequence[TableCell]


def print_text(console: Console, text: str, style: str = "") -> None:
    """Print a text without parsing it as markup."""
    console.print(Text(text, style=style))


def print_table(console: Console, head: Sequence[str], rows: Sequence[TableRow]) -> None:
    """Print a table. In a narrow terminal, bars become shorter, then names; numbers are never cut."""
    if not rows:
        return
    widths = [max(_cell_width(cell) for cell in column) for column in zip(head, *rows, strict=True)]
    spare = console.width - sum(widths) - 2 * (len(widths) - 1)
    for place in (len(head) - 1, 0):
        if place == 0 or not head[place]:
            least = LEAST_NAME if place == 0 else 0
            cut = min(max(0, -spare), max(0, widths[place] - least))
            widths[place] -= cut
            spare += cut
    grid = Table(box=None, padding=(0, 0, 0, 2), pad_edge=False, header_style="bold")
    mark = cut_mark(console)
    for place, name in enumerate(head):
        text = place == 0 or not name  # a column without a name holds bars
        grid.add_column(
            _draw_cell(name, widths[place], mark),
            justify="left" if text else "right",
            no_wrap=True,
            min_width=widths[place],
        )
    for row in rows:
        grid.add_row(*(_draw_cell(cell, width, mark) for cell, width in zip(row, widths, strict=True)))
    console.print()
    console.print(grid, crop=False)


def cut_mark(console: Console) -> str:
    """Choose the character that replaces a cut part: an ellipsis, or `~` if the terminal cannot show it."""
    try:
        "…".encode(console.encoding)
    except (UnicodeEncodeError, LookupError):
        return "~"
    return "…"


def _cell_width(cell: TableCell) -> int:
    if isinstance(cell, TitledCell):
        return max(cell_len(cell.words), cell_len(cell.below) + 2)
    return BAR_LENGTH if isinstance(cell, Bar) else cell_len(str(cell))


def _draw_cell(cell: TableCell, width: int, cut: str) -> Text:
    if isinstance(cell, Bar):
        return cell.draw_text(width)
    if isinstance(cell, TitledCell):
        return cell.draw_text(width, cut)
    text = cell if isinstance(cell, Text) else Text(cell)
    if cell_len(text.plain) <= width:
        return text
    tail = text.plain[1 - width :]
    while cell_len(tail) >= width:
        tail = tail[1:]
    return Text(cut + tail, text.style)


def _cut_end(text: str, width: int, cut: str) -> str:
    """Cut a text at its end to this width."""
    if cell_len(text) <= width:
        return text
    start = text[: max(0, width - 1)]
    while cell_len(start) >= width:
        start = start[:-1]
    return start.rstrip() + cut


def cut_start(console: Console, name: str, width: int) -> str:
    """Cut a path at its start to this width, because its end is the informative part."""
    return _draw_cell(single_line(name), max(width, LEAST_NAME), cut_mark(console)).plain


def saving_color(saved: float) -> str:
    return "green" if saved > 0.0005 else "red" if saved < -0.0005 else ""


def single_line(name: str) -> str:
    """Replace line breaks and other unprintable characters, so that a name takes one line."""
    return "".join(char if char.isprintable() else "�" for char in name)
