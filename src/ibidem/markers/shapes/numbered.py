"""Lines with numbers, as `cat -n`, `nl` and the file readers of clients print them."""

from __future__ import annotations

import re
from typing import NamedTuple

from ..counting import CountingLines, counted_up, padding_of
from ..line_numbers import STYLES, TABBED, NumberedLines, NumberStyle, count_up, style_of
from ..lines import lines_of

MAX_DIGITS = 2
"""Digits of a marker for the width of a number."""
_TABBED = re.compile(r"\n([0-9]++)\t")
_DIGITS = re.compile(r"\d++\t")
_ANY_TABBED = re.compile(r"\n(\d++)\t")


class Numbered:
    """Removes the padding of numbers and separates number and text by a tab: `     12→text` becomes `12<tab>text`.

    A tab and the indentation after it form one token; an arrow, a bar or a colon never does.
    """

    def __init__(self, style: NumberStyle) -> None:
        self.letter = style.letter
        self._style = style

    def fold(self, text: str) -> tuple[str, str] | None:
        found = tabbed(text)
        return (found.text, found.digits) if found is not None and found.style is self._style else None

    def unfold(self, text: str, digits: str, limit: int) -> str:
        before, after = self._style.before, self._style.after
        padding = digits or self._style.padding
        width, fill = int(padding), "0" if padding[0] == "0" else " "
        pieces = (_ANY_TABBED if width else _TABBED).split("\n" + text)
        numerals = [numeral.rjust(width, fill) for numeral in pieces[1::2]] if width else pieces[1::2]
        more = sum(map(len, numerals)) - sum(map(len, pieces[1::2])) if width else 0
        if len(text) + more + (len(before) + len(after) - 1) * len(numerals) > limit:
            raise ValueError(f"more than {limit:,} characters")
        return _joined(pieces[0], "\n" + before, numerals, after, pieces[2::2])


def _joined(start: str, before: str, numerals: list[str], after: str, rests: list[str]) -> str:
    """Join the text before the first number, and each number with the text around it."""
    whole = [before, "", after, ""] * len(numerals)
    whole[1::4], whole[3::4] = numerals, rests
    return (start + "".join(whole))[1:]


class Tabbed(NamedTuple):
    """A text with encoded line numbers."""

    text: str
    digits: str
    style: NumberStyle
    """The style of the original numbers."""
    known: bool = False
    """True if decoding is known to give the original."""
    apart: NumberedLines | None = None
    """The split lines, if most have a number before a tab."""
    spared: int = 0
    """Lower bound of the tokens saved. Padding before a number with a tab is a separate token."""

    @property
    def order(self) -> int:
        """Position of the style in `STYLES`. Styles are encoded in this order."""
        return _ORDER[self.style]


_ORDER = {style: place for place, style in enumerate(STYLES)}


def tabbed(text: str, counts: CountingLines | None = None) -> Tabbed | None:
    """Return the text with encoded line numbers; None without any. `counts`: its sequential lines, if already known."""
    if counts is not None:
        return _counting(text, counts)
    style = style_of(lines_of(text))
    return _one_by_one(text, style) if style is not None else None


def _counting(text: str, found: CountingLines) -> Tabbed | None:
    lines, style, count, end = lines_of(text), found.style, len(found.bodies), found.head + len(found.bodies)
    if (style is TABBED and found.padding[0] == "0") or (not style.sure and 2 * count < len(lines)):
        return None
    around = [*lines[: found.head], *lines[end:]]
    if any(map(_DIGITS.match, around)):  # decoding would change it
        return _one_by_one(text, style)
    folded = counted_up(found.first, found.bodies)
    if count < len(lines):
        folded = "\n".join([*lines[: found.head], folded, *lines[end:]])
    digits = "" if found.padding == style.padding else found.padding
    most = 2 * count >= len(lines) and not any(map(TABBED.number.match, around))
    apart = found._replace(style=TABBED).apart(lines) if most else None
    return Tabbed(folded, digits, style, True, apart, found.padded if style is TABBED else 0)


def _one_by_one(text: str, style: NumberStyle) -> Tabbed | None:
    first = style.in_text.search("\n" + text)
    if first is None or (style is TABBED and first[0][1] != " "):
        return None
    pieces = style.in_text.split("\n" + text)
    if not style.sure:
        numbers = [*map(int, pieces[1::2])]
        if 2 * len(numbers) <= text.count("\n") or not count_up(numbers):
            return None
        meant = style.meant(text, len(numbers))
        style, pieces = meant, pieces if meant is style else meant.in_text.split("\n" + text)
    padding = padding_of(first[0][1 + len(style.before) :])
    if len(padding) > MAX_DIGITS:
        return None
    folded = _joined(pieces[0], "\n", pieces[1::2], "\t", pieces[2::2])
    return Tabbed(folded, "" if padding == style.padding else padding, style)
