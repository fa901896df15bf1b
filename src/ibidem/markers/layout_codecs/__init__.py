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

from ..line_numbers import STYLES, NumberedLines, detect_style
from ..line_offsets import split_lines
from ..sequential_lines import SequentialLines, find_sequential_lines
from .codex_headers import CodexHeaderCodec
from .common_prefixes import MIN_PREFIX, PrefixCodec
from .grep_paths import GrepCodec
from .json_rows import JsonIndentCodec, JsonRowsCodec
from .line_numbers_codec import LineNumberCodec, tab_line_numbers

_FLAG = re.compile(r"([a-z])([0-9]*)")


class LayoutCodec(Protocol):
    """One layout: how it is detected, encoded and decoded."""

    @property
    def letter(self) -> str:
        """Letter of this codec in a marker. Digits may follow it."""

    def encode_text(self, text: str) -> tuple[str, str] | None:
        """Return the text in the shorter layout, and the digits that decoding needs; None if the layout does not
        fit."""

    def decode_text(self, text: str, digits: str, limit: int) -> str:
        """Return the original text. Raises ValueError for an invalid text, or above `limit` characters."""


_HEADER = CodexHeaderCodec()
_BEFORE_NUMBERS: tuple[LayoutCodec, ...] = (JsonIndentCodec(), JsonRowsCodec(), GrepCodec(), PrefixCodec())
SHAPES: tuple[LayoutCodec, ...] = (_HEADER, *_BEFORE_NUMBERS, *map(LineNumberCodec, STYLES))
HEADER_FLAG = CodexHeaderCodec.letter
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
def describe_codecs(flags: str) -> str:
    """Describe the codecs in a marker's flags."""
    return ", ".join(dict.fromkeys(SHAPE_WORDS[letter] for letter, _ in _FLAG.findall(flags) if letter in SHAPE_WORDS))


class EncodedText(NamedTuple):
    """A text in its shorter layout, with the flags of the codecs that were used."""

    text: str
    flags: str = ""
    numbered_lines: NumberedLines | None = None
    """The split lines, if most have a number before a tab and were split already."""
    saved_tokens: int = 0
    """Lower bound of the tokens saved; 0 if unknown."""
    shared_tail: int = 0
    """Characters at the end that are known to be equal to the original's; 0 if unknown."""
    has_no_numbers: bool = False
    """True if the lines are known to have no numbers."""


def encode_layout(text: str) -> EncodedText:
    """Encode a text with every codec that fits. Return it unchanged if none does."""
    original = text
    text, flags = _encode_with(_HEADER, text)
    sequence = None if flags else find_sequential_lines(split_lines(text))
    for shape in _BEFORE_NUMBERS:
        if sequence is not None and shape.letter == PrefixCodec.letter and _has_unique_starts(sequence, text):
            continue
        text, flag = _encode_with(shape, text)
        if flag:
            flags, sequence = flags + flag, None
    encoded = _encode_numbers(text, flags, sequence)
    if encoded.flags == HEADER_FLAG:
        return encoded._replace(
            saved_tokens=_HEADER.saved_tokens(original), shared_tail=len(text) - text.index("\n") - 1
        )
    return encoded


def _encode_with(shape: LayoutCodec, text: str) -> tuple[str, str]:
    """Return the encoded text and the codec's flag, or the text unchanged if the codec does not fit."""
    encoded = shape.encode_text(text)
    if encoded is None or len(encoded[0]) >= len(text) or not _is_reversible(shape, encoded, text):
        return text, ""
    return encoded[0], shape.letter + encoded[1]


def _has_unique_starts(sequence: SequentialLines, text: str) -> bool:
    """Return True if no two lines share a prefix, because each starts with its number."""
    longest = len(sequence.style.before) + len(str(sequence.first + len(sequence.bodies))) + len(sequence.style.after)
    padded_width = len(sequence.style.before) + int(sequence.padding) + len(sequence.style.after)
    return len(sequence.bodies) == text.count("\n") + 1 and max(longest, padded_width) <= MIN_PREFIX


def _encode_numbers(text: str, flags: str, sequence: SequentialLines | None) -> EncodedText:
    """Encode line numbers with each style that fits, in the order of `STYLES`."""
    if sequence is None and detect_style(split_lines(text)) is None:
        return EncodedText(text, flags, has_no_numbers=True)
    numbers, order = tab_line_numbers(text, sequence), -1
    while numbers is not None and numbers.style_order > order:
        shape, order = BY_LETTER[numbers.style.letter], numbers.style_order
        # Numbers before a tab are fewer tokens even where they are as many characters.
        is_shorter = len(numbers.text) <= len(text) and numbers.text != text
        if not is_shorter or (
            not numbers.is_verified and not _is_reversible(shape, (numbers.text, numbers.digits), text)
        ):
            break
        saved_tokens = 0 if flags else numbers.saved_tokens
        text = numbers.text
        flags += shape.letter + numbers.digits
        if numbers.numbered_lines is not None:
            return EncodedText(text, flags, numbers.numbered_lines, saved_tokens)
        numbers = tab_line_numbers(text)
    return EncodedText(text, flags)


def _is_reversible(shape: LayoutCodec, encoded: tuple[str, str], text: str) -> bool:
    try:
        return shape.decode_text(*encoded, len(text)) == text
    except (ValueError, LookupError, RecursionError):
        return False


def decode_layout(text: str, flags: str, limit: int) -> str:
    """Decode all codecs in the flags. Raises ValueError above `limit` characters."""
    for letter, digits in reversed(_FLAG.findall(flags)):
        if letter in BY_LETTER:  # other flags are item separators
            text = BY_LETTER[letter].decode_text(text, digits, limit)
    return text
