"""Shorter layouts of tool output that say the same in fewer tokens, each with an inverse.

A layout codec encodes a text in a shorter layout and decodes it again. It is used only if decoding gives exactly the
original, so a codec may be as simple as its common case. To add one, add a small file and an entry in `SHAPES`.

A few encoded characters can expand to many (a path that is repeated before every line), and the text may come from any
source. So the caller limits the size of a decoded text.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple, Protocol

from ..counting import CountingLines, counting
from ..line_numbers import STYLES, NumberedLines, style_of
from ..lines import lines_of
from .codex import CodexHeader
from .grep import Grep
from .numbered import Numbered, tabbed
from .prefixed import MIN_PREFIX, Prefixed
from .rows import PrettyJson, Rows

_FLAG = re.compile(r"([a-z])([0-9]*)")


class Shape(Protocol):
    """One layout: how it is detected, encoded and decoded."""

    @property
    def letter(self) -> str:
        """Letter of this codec in a marker. Digits may follow it."""

    def fold(self, text: str) -> tuple[str, str] | None:
        """Return the text in the shorter layout, and the digits that decoding needs; None if the layout does not
        fit."""

    def unfold(self, text: str, digits: str, limit: int) -> str:
        """Return the original text. Raises ValueError for an invalid text, or above `limit` characters."""


_HEADER = CodexHeader()
_BEFORE_NUMBERS: tuple[Shape, ...] = (PrettyJson(), Rows(), Grep(), Prefixed())
SHAPES: tuple[Shape, ...] = (_HEADER, *_BEFORE_NUMBERS, *map(Numbered, STYLES))
HEADER_FLAG = CodexHeader.letter
"""Flag of a text whose first line is different for every command."""
BY_LETTER = {shape.letter: shape for shape in SHAPES}


SHAPE_WORDS = {
    "c": "a command's header",
    "j": "indented JSON",
    "r": "keys of rows",
    "g": "paths of a search",
    "p": "common beginnings",
} | dict.fromkeys((style.letter for style in STYLES), "padding of line numbers")


@lru_cache(maxsize=64)
def described(flags: str) -> str:
    """Describe the codecs in a marker's flags."""
    return ", ".join(dict.fromkeys(SHAPE_WORDS[letter] for letter, _ in _FLAG.findall(flags) if letter in SHAPE_WORDS))


class Folded(NamedTuple):
    """A text in its shorter layout, with the flags of the codecs that were used."""

    text: str
    flags: str = ""
    apart: NumberedLines | None = None
    """The split lines, if most have a number before a tab and were split already."""
    spared: int = 0
    """Lower bound of the tokens saved; 0 if unknown."""
    tail: int = 0
    """Characters at the end that are known to be equal to the original's; 0 if unknown."""
    numberless: bool = False
    """True if the lines are known to have no numbers."""


def fold(text: str) -> Folded:
    """Encode a text with every codec that fits. Return it unchanged if none does."""
    given = text
    text, flags = _folded_by(_HEADER, text)
    counts = None if flags else counting(lines_of(text))
    for shape in _BEFORE_NUMBERS:
        if counts is not None and shape.letter == Prefixed.letter and _all_differ(counts, text):
            continue
        text, flag = _folded_by(shape, text)
        if flag:
            flags, counts = flags + flag, None
    found = _folded_numbers(text, flags, counts)
    if found.flags == HEADER_FLAG:
        return found._replace(spared=_HEADER.spares(given), tail=len(text) - text.index("\n") - 1)
    return found


def _folded_by(shape: Shape, text: str) -> tuple[str, str]:
    """Return the encoded text and the codec's flag, or the text unchanged if the codec does not fit."""
    folded = shape.fold(text)
    if folded is None or len(folded[0]) >= len(text) or not _gives_back(shape, folded, text):
        return text, ""
    return folded[0], shape.letter + folded[1]


def _all_differ(counts: CountingLines, text: str) -> bool:
    """Return True if no two lines share a prefix, because each starts with its number."""
    longest = len(counts.style.before) + len(str(counts.first + len(counts.bodies))) + len(counts.style.after)
    padded = len(counts.style.before) + int(counts.padding) + len(counts.style.after)
    return len(counts.bodies) == text.count("\n") + 1 and max(longest, padded) <= MIN_PREFIX


def _folded_numbers(text: str, flags: str, counts: CountingLines | None) -> Folded:
    """Encode line numbers with each style that fits, in the order of `STYLES`."""
    if counts is None and style_of(lines_of(text)) is None:
        return Folded(text, flags, numberless=True)
    found, order = tabbed(text, counts), -1
    while found is not None and found.order > order:
        shape, order = BY_LETTER[found.style.letter], found.order
        # Numbers before a tab are fewer tokens even where they are as many characters.
        less = len(found.text) <= len(text) and found.text != text
        if not less or (not found.known and not _gives_back(shape, (found.text, found.digits), text)):
            break
        spared = 0 if flags else found.spared
        text = found.text
        flags += shape.letter + found.digits
        if found.apart is not None:
            return Folded(text, flags, found.apart, spared)
        found = tabbed(text)
    return Folded(text, flags)


def _gives_back(shape: Shape, folded: tuple[str, str], text: str) -> bool:
    try:
        return shape.unfold(*folded, len(text)) == text
    except (ValueError, LookupError, RecursionError):
        return False


def unfold(text: str, flags: str, limit: int) -> str:
    """Decode all codecs in the flags. Raises ValueError above `limit` characters."""
    for letter, digits in reversed(_FLAG.findall(flags)):
        if letter in BY_LETTER:  # other flags are item separators
            text = BY_LETTER[letter].unfold(text, digits, limit)
    return text
