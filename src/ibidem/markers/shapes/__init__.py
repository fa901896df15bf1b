"""Layouts of tool output that cost tokens and say nothing, each with an inverse.

A shape folds a text into one that says the same in fewer tokens, and unfolds it again. It is used only where that gives
back this very text, so a shape may be as simple as its common case. Adding one: a small file, a line in `SHAPES`.

A few characters of a folded text can stand for very many (a path that is put before every line below it), and the text
may be anybody's. So whoever unfolds says how large the outcome may be.
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
    @property
    def letter(self) -> str:
        """How a marker says that this shape was used; digits may follow it."""

    def fold(self, text: str) -> tuple[str, str] | None:
        """The text in its shorter form, and the digits that unfolding needs; None where the shape does not fit."""

    def unfold(self, text: str, digits: str, limit: int) -> str:
        """The text as it was; ValueError if that is no such text, or would have more than `limit` characters."""


_HEADER = CodexHeader()
_BEFORE_NUMBERS: tuple[Shape, ...] = (PrettyJson(), Rows(), Grep(), Prefixed())
SHAPES: tuple[Shape, ...] = (_HEADER, *_BEFORE_NUMBERS, *map(Numbered, STYLES))
HEADER_FLAG = CodexHeader.letter
"""Says that the first line is never the same twice."""
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
    """What was folded, in words."""
    return ", ".join(dict.fromkeys(SHAPE_WORDS[letter] for letter, _ in _FLAG.findall(flags) if letter in SHAPE_WORDS))


class Folded(NamedTuple):
    """A text in its shorter form, and the flags that say which shapes it had."""

    text: str
    flags: str = ""
    apart: NumberedLines | None = None
    """Its lines, if most have a number before a tab, and that is known."""
    spared: int = 0
    """Tokens that it has fewer, at the least, as far as that is known."""
    tail: int = 0
    """Characters at its end that it has in common with the text, as far as that is known."""
    numberless: bool = False
    """It is known that its lines have no numbers."""


def fold(text: str) -> Folded:
    """The text with every shape that fits folded. The same text if none does."""
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
    """The text in its shorter form with the flag that says so; the text itself where the shape does not fit."""
    folded = shape.fold(text)
    if folded is None or len(folded[0]) >= len(text) or not _gives_back(shape, folded, text):
        return text, ""
    return folded[0], shape.letter + folded[1]


def _all_differ(counts: CountingLines, text: str) -> bool:
    """Whether no two lines begin alike: each has a number of its own there."""
    longest = len(counts.style.before) + len(str(counts.first + len(counts.bodies))) + len(counts.style.after)
    padded = len(counts.style.before) + int(counts.padding) + len(counts.style.after)
    return len(counts.bodies) == text.count("\n") + 1 and max(longest, padded) <= MIN_PREFIX


def _folded_numbers(text: str, flags: str, counts: CountingLines | None) -> Folded:
    """Each style in its turn, those that fit."""
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
    """The text with everything unfolded that the flags name; ValueError where it has more than `limit` characters."""
    for letter, digits in reversed(_FLAG.findall(flags)):
        if letter in BY_LETTER:  # other flags say how units are parted
            text = BY_LETTER[letter].unfold(text, digits, limit)
    return text
