"""What the report in a terminal is made of: lines, tables and bars. Nothing in them is markup."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

BAR_LENGTH = 30
"""Characters of the longest bar."""


class Bar(NamedTuple):
    part: float
    style: str

    def drawn(self, width: int) -> Text:
        eighths = round(max(0.0, min(1.0, self.part)) * width * 8)
        return Text(("█" * (eighths // 8) + " ▏▎▍▌▋▊▉"[eighths % 8]).rstrip()[:width], self.style)


TableCell = str | Text | Bar
TableRow = Sequence[TableCell]


def say(console: Console, text: str, style: str = "") -> None:
    console.print(Text(text, style=style))


def table(console: Console, head: Sequence[str], rows: Sequence[TableRow]) -> None:
    """Numbers are never cut short: where it is narrow, bars become shorter, then names."""
    if not rows:
        return
    widths = [max(_width(cell) for cell in column) for column in zip(head, *rows, strict=True)]
    spare = console.width - sum(widths) - 2 * (len(widths) - 1)
    for place in (len(head) - 1, 0):
        if place == 0 or not head[place]:
            least = 12 if place == 0 else 0
            cut = min(max(0, -spare), max(0, widths[place] - least))
            widths[place] -= cut
            spare += cut
    drawn = Table(box=None, padding=(0, 0, 0, 2), pad_edge=False, header_style="bold")
    for place, name in enumerate(head):
        text = place == 0 or not name  # a column without a name holds bars
        drawn.add_column(
            _cell(name, widths[place]), justify="left" if text else "right", no_wrap=True, min_width=widths[place]
        )
    for row in rows:
        drawn.add_row(*(_cell(cell, width) for cell, width in zip(row, widths, strict=True)))
    console.print()
    console.print(drawn, crop=False)


def _width(cell: TableCell) -> int:
    return BAR_LENGTH if isinstance(cell, Bar) else cell_len(str(cell))


def _cell(cell: TableCell, width: int) -> Text:
    if isinstance(cell, Bar):
        return cell.drawn(width)
    text = cell if isinstance(cell, Text) else Text(cell)
    if cell_len(text.plain) <= width:
        return text
    rest = text.plain[1 - width :]
    while cell_len(rest) >= width:
        rest = rest[1:]
    return Text("…" + rest, text.style)


def ending(name: str, width: int) -> str:
    """On one line: the end of a long path says most."""
    return _cell(short(name), max(width, 12)).plain


def colour(saved: float) -> str:
    return "green" if saved > 0.0005 else "red" if saved < -0.0005 else ""


def short(name: str) -> str:
    """One line, whatever is in it."""
    return "".join(char if char.isprintable() else "�" for char in name)
