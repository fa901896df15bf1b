"""Lines with numbers before them, as `cat -n`, `nl` and the file readers of clients print them."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

from ..line_numbers import TABBED, NumberStyle, count_up, style_of
from ..lines import joined, lines_of

MAX_DIGITS = 2
"""A marker has so many for the width."""
_TABBED = re.compile(r"^([0-9]++)\t", re.MULTILINE)


class Numbered:
    """What pads the numbers goes, and a tab parts number and text: `     12→text` becomes `12<tab>text`.

    A tab joins with the indentation behind it to one token; an arrow, a bar or a colon never does.
    """

    def __init__(self, style: NumberStyle) -> None:
        self.letter = style.letter
        self._style = style

    def fold(self, text: str) -> tuple[str, str] | None:
        found = _folded(text)
        return (found.text, found.digits) if found is not None and found.style is self._style else None

    def unfold(self, text: str, digits: str, limit: int) -> str:
        before, after = self._style.before, self._style.after
        padding = digits or self._style.padding
        width, fill = int(padding), "0" if padding[0] == "0" else " "
        most = len(text) + (max(0, width - 1) + len(before) + len(after) - 1) * (text.count("\n") + 1)
        if most <= limit and not width:
            return _TABBED.sub(lambda found: before + found[1] + after, text)
        unfolded = (
            before + number.rjust(width, fill) + after + rest if tab and number.isdecimal() else line
            for line in text.split("\n")
            for number, tab, rest in (line.partition("\t"),)
        )
        return joined(unfolded, limit) if most > limit else "\n".join(unfolded)


class _Folded(NamedTuple):
    text: str
    digits: str
    style: NumberStyle


@lru_cache(maxsize=1)
def _folded(text: str) -> _Folded | None:
    """The text with its numbers folded; all styles ask for it, one after the other."""
    style = style_of(lines_of(text))
    first = style.in_text.search(text) if style is not None else None
    if style is None or first is None or (style is TABBED and first[0][0] != " "):
        return None
    if not style.sure:
        numbers = [*map(int, style.in_text.findall(text))]
        if 2 * len(numbers) <= text.count("\n") or not count_up(numbers):
            return None
        style = style.meant(text, len(numbers))
    padding = _padding(first[0][len(style.before) :])
    if len(padding) > MAX_DIGITS:
        return None
    match, after = style.padded.match, style.after
    lines = [line[found.end() :].replace(after, "\t", 1) if (found := match(line)) else line for line in lines_of(text)]
    return _Folded("\n".join(lines), "" if padding == style.padding else padding, style)


def _padding(number: str) -> str:
    """What a number with something behind it is padded to, see `NumberStyle.padding`."""
    width = len(number) - len(number.lstrip(" ").lstrip("0123456789"))
    if number[0] == " ":
        return str(width)
    return f"0{width}" if number[0] == "0" and width > 1 else "0"
