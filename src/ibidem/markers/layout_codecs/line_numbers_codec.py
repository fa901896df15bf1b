"""Lines with numbers, as `cat -n`, `nl` and the file readers of clients print them."""

from __future__ import annotations

import re
from typing import NamedTuple

from ..line_numbers import STYLES, TABBED, NumberedLines, NumberStyle, detect_style, is_counting_up
from ..line_offsets import split_lines
from ..sequential_lines import SequentialLines, number_lines, padding_of

MAX_DIGITS = 2
"""Digits of a marker for the width of a number."""
_TABBED = re.compile(r"\n([0-9]++)\t")
_DIGITS = re.compile(r"\d++\t")
_ANY_TABBED = re.compile(r"\n(\d++)\t")


class LineNumberCodec:
    """Removes the padding of numbers and separates number and text by a tab: `     12→text` becomes `12<tab>text`.

    A tab and the indentation after it form one token; an arrow, a bar or a colon never does.
    """

    def __init__(self, style: NumberStyle) -> None:
        self.letter = style.letter
        self._style = style

    def encode_text(self, text: str) -> tuple[str, str] | None:
        tabbed_text = tab_line_numbers(text)
        return (
            (tabbed_text.text, tabbed_text.digits)
            if tabbed_text is not None and tabbed_text.style is self._style
            else None
        )

    def decode_text(self, text: str, digits: str, limit: int) -> str:
        before, after = self._style.before, self._style.after
        padding = digits or self._style.padding
        width, fill = int(padding), "0" if padding[0] == "0" else " "
        pieces = (_ANY_TABBED if width else _TABBED).split("\n" + text)
        numerals = [numeral.rjust(width, fill) for numeral in pieces[1::2]] if width else pieces[1::2]
        added_length = sum(map(len, numerals)) - sum(map(len, pieces[1::2])) if width else 0
        if len(text) + added_length + (len(before) + len(after) - 1) * len(numerals) > limit:
            raise ValueError(f"more than {limit:,} characters")
        return _join_pieces(pieces[0], "\n" + before, numerals, after, pieces[2::2])


def _join_pieces(start: str, before: str, numerals: list[str], after: str, rests: list[str]) -> str:
    """Join the text before the first number, and each number with the text around it."""
    pieces = [before, "", after, ""] * len(numerals)
    pieces[1::4], pieces[3::4] = numerals, rests
    return (start + "".join(pieces))[1:]


class TabbedText(NamedTuple):
    """A text with encoded line numbers."""

    text: str
    digits: str
    style: NumberStyle
    """The style of the original numbers."""
    is_verified: bool = False
    """True if decoding is known to give the original."""
    numbered_lines: NumberedLines | None = None
    """The split lines, if most have a number before a tab."""
    saved_tokens: int = 0
    """Lower bound of the tokens saved. Padding before a number with a tab is a separate token."""

    @property
    def style_order(self) -> int:
        """Position of the style in `STYLES`. Styles are encoded in this order."""
        return _ORDER[self.style]


_ORDER = {style: place for place, style in enumerate(STYLES)}


def tab_line_numbers(text: str, sequence: SequentialLines | None = None) -> TabbedText | None:
    """Return the text with encoded line numbers; None without any. `sequence`: its sequential lines, if known."""
    if sequence is not None:
        return _tab_sequential(text, sequence)
    style = detect_style(split_lines(text))
    return _tab_each_line(text, style) if style is not None else None


def _tab_sequential(text: str, sequence: SequentialLines) -> TabbedText | None:
    lines, style, count, end = (
        split_lines(text),
        sequence.style,
        len(sequence.bodies),
        sequence.head + len(sequence.bodies),
    )
    if (style is TABBED and sequence.padding[0] == "0") or (not style.is_unambiguous and 2 * count < len(lines)):
        return None
    other_lines = [*lines[: sequence.head], *lines[end:]]
    if any(map(_DIGITS.match, other_lines)):  # decoding would change it
        return _tab_each_line(text, style)
    tabbed_text = number_lines(sequence.first, sequence.bodies)
    if count < len(lines):
        tabbed_text = "\n".join([*lines[: sequence.head], tabbed_text, *lines[end:]])
    digits = "" if sequence.padding == style.padding else sequence.padding
    is_majority = 2 * count >= len(lines) and not any(map(TABBED.line_pattern.match, other_lines))
    numbered_lines = sequence._replace(style=TABBED).to_numbered_lines(lines) if is_majority else None
    return TabbedText(tabbed_text, digits, style, True, numbered_lines, sequence.padded_count if style is TABBED else 0)


def _tab_each_line(text: str, style: NumberStyle) -> TabbedText | None:
    first = style.text_pattern.search("\n" + text)
    if first is None or (style is TABBED and first[0][1] != " "):
        return None
    pieces = style.text_pattern.split("\n" + text)
    if not style.is_unambiguous:
        numbers = [*map(int, pieces[1::2])]
        if 2 * len(numbers) <= text.count("\n") or not is_counting_up(numbers):
            return None
        resolved_style = style.resolve_style(text, len(numbers))
        style, pieces = (
            resolved_style,
            pieces if resolved_style is style else resolved_style.text_pattern.split("\n" + text),
        )
    padding = padding_of(first[0][1 + len(style.before) :])
    if len(padding) > MAX_DIGITS:
        return None
    tabbed_text = _join_pieces(pieces[0], "\n", pieces[1::2], "\t", pieces[2::2])
    return TabbedText(tabbed_text, "" if padding == style.padding else padding, style)
