"""Lines of a text. Only line feeds separate lines, no other line break character."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from functools import lru_cache
from itertools import accumulate

INDEX_CHARACTERS = 1024
"""Characters between two text offsets whose line number is stored."""


@lru_cache(maxsize=1)
def split_lines(text: str) -> tuple[str, ...]:
    """Split a text into lines. Cached, because layout codecs and back-references split the same text one after the
    other."""
    return tuple(text.split("\n"))


def join_lines(lines: Iterable[str], limit: int) -> str:
    """Join lines. Raises ValueError as soon as the text exceeds `limit` characters."""
    accepted_lines: list[str] = []
    characters_left = limit + 1
    for line in lines:
        characters_left -= len(line) + 1
        if characters_left < 0:
            raise ValueError(f"more than {limit:,} characters")
        accepted_lines.append(line)
    return "\n".join(accepted_lines)


class LineOffsets:
    """Line positions of a text without splitting it. A lookup takes the same time in a text of any size."""

    __slots__ = ("_before", "_text")

    def __init__(self, text: str) -> None:
        counts = (text.count("\n", at, at + INDEX_CHARACTERS) for at in range(0, len(text), INDEX_CHARACTERS))
        self._text = text
        self._before = [*accumulate(counts, initial=0)]
        """Number of line breaks before each chunk, and in the whole text."""

    def line_at(self, offset: int) -> int:
        """Return the line number, from 0, at a character offset."""
        chunk = offset // INDEX_CHARACTERS
        return self._before[chunk] + self._text.count("\n", chunk * INDEX_CHARACTERS, offset)

    def text_between(self, first: int, last: int) -> str:
        """Return the lines from `first` up to, not including, `last`, unchanged. The text must have them."""
        end = len(self._text) if last > self._before[-1] else self._start_of(last) - 1
        return self._text[self._start_of(first) : end]

    def _start_of(self, line: int) -> int:
        """Return the offset where a line starts."""
        if not line:
            return 0
        chunk = bisect_left(self._before, line) - 1  # the line break before the line is the last in this chunk
        start = chunk * INDEX_CHARACTERS
        rest_of_chunk = self._text[start : start + INDEX_CHARACTERS].split("\n", line - self._before[chunk])[-1]
        return min(start + INDEX_CHARACTERS, len(self._text)) - len(rest_of_chunk)
