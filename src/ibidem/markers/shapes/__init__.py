"""Layouts of tool output that cost tokens and say nothing, each with an inverse.

A shape folds a text into one that says the same in fewer tokens, and unfolds it again. It is used only where that gives
back this very text, so a shape may be as simple as its common case. Adding one: a small file, a line in `SHAPES`.

A few characters of a folded text can stand for very many (a path that is put before every line below it), and the text
may be anybody's. So whoever unfolds says how large the outcome may be.
"""

from __future__ import annotations

import re
from typing import Protocol

from ..line_numbers import STYLES
from .codex import CodexHeader
from .grep import Grep
from .numbered import Numbered
from .prefixed import Prefixed
from .pretty import PrettyJson
from .rows import Rows

_FLAG = re.compile(r"([a-z])([0-9]*)")


class Shape(Protocol):
    @property
    def letter(self) -> str:
        """How a marker says that this shape was used; digits may follow it."""

    def fold(self, text: str) -> tuple[str, str] | None:
        """The text in its shorter form, and the digits that unfolding needs; None where the shape does not fit."""

    def unfold(self, text: str, digits: str, limit: int) -> str:
        """The text as it was; ValueError if that is no such text, or would have more than `limit` characters."""


SHAPES: tuple[Shape, ...] = (
    CodexHeader(),
    PrettyJson(),
    Rows(),
    Grep(),
    Prefixed(),
    *map(Numbered, STYLES),
)
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


def described(flags: str) -> str:
    """What was folded, in words."""
    return ", ".join(dict.fromkeys(SHAPE_WORDS[letter] for letter, _ in _FLAG.findall(flags) if letter in SHAPE_WORDS))


def fold(text: str) -> tuple[str, str]:
    """The text with every shape that fits folded, and the flags that say which. The same text if none does."""
    flags = ""
    for shape in SHAPES:
        folded = shape.fold(text)
        if folded is not None and _is_less(shape, folded[0], text) and _gives_back(shape, folded, text):
            text, digits = folded
            flags += shape.letter + digits
    return text, flags


def _is_less(shape: Shape, folded: str, text: str) -> bool:
    """Numbers before a tab are fewer tokens even where they are as many characters."""
    return len(folded) < len(text) or (isinstance(shape, Numbered) and folded != text and len(folded) == len(text))


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
