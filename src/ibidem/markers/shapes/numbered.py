"""Lines with numbers before them, as `cat -n`, `nl` and the file readers of clients print them."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from ..line_numbers import TABBED, NumberStyle, numbered, style_of
from ..lines import joined, lines_of

PROBED_CHARACTERS = 8000
"""Characters looked at to see whether the shape is worth trying."""
MAX_WIDTH = 99
"""A marker has two digits for it."""


class Numbered:
    """What pads the numbers goes, and a tab parts number and text: `     12→text` becomes `12<tab>text`.

    A tab joins with the indentation behind it to one token; an arrow, a bar or a colon never does.
    """

    def __init__(self, style: NumberStyle) -> None:
        self.letter = style.letter
        self._style = style

    def fold(self, text: str) -> tuple[str, str] | None:
        found = _tabbed(text)
        return (found.text, found.digits) if found is not None and found.style is self._style else None

    def unfold(self, text: str, digits: str, limit: int) -> str:
        before, after = self._style.before, self._style.after
        padding = digits or self._style.padding
        width, fill = int(padding), "0" if padding[0] == "0" else " "
        unfolded = (
            before + number.rjust(width, fill) + after + rest if tab and number.isdecimal() else line
            for line in text.split("\n")
            for number, tab, rest in (line.partition("\t"),)
        )
        most = len(text) + (width + len(before) + len(after)) * (text.count("\n") + 1)
        return joined(unfolded, limit) if most > limit else "\n".join(unfolded)


class _Tabbed(NamedTuple):
    text: str
    digits: str
    style: NumberStyle


@lru_cache(maxsize=1)
def _tabbed(text: str) -> _Tabbed | None:
    """The text with its numbers folded; all styles ask for it, one after the other."""
    style = style_of(text[:PROBED_CHARACTERS].split("\n"))
    if style is None:
        return None
    lines = lines_of(text)
    first = next((line for line in lines if style.pattern.match(line)), "")
    if style is TABBED and first[:1] != " ":
        return None
    found = numbered(lines, style, apart=len(lines) if style.sure else 0)
    padding = _padding(first[len(style.before) :])
    if found is None or int(padding) > MAX_WIDTH:
        return None
    folded = "\n".join(
        line if number is None else f"{number}\t{body}"
        for line, number, body in zip(lines, found.numbers, found.bodies, strict=True)
    )
    return _Tabbed(folded, "" if padding == found.style.padding else padding, found.style)


def _padding(line: str) -> str:
    """What the number that a line begins with is padded to, see `NumberStyle.padding`."""
    number = line[: len(line) - len(line.lstrip(" ").lstrip("0123456789"))]
    if number[:1] == " ":
        return str(len(number))
    return f"0{len(number)}" if number[:1] == "0" and len(number) > 1 else "0"
