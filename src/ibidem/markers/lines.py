"""Lines of a text. Only \\n parts lines; nothing else that looks like a line break does."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from functools import lru_cache
from itertools import accumulate

INDEX_CHARACTERS = 1024
"""Characters between two places of a text whose line is known."""


@lru_cache(maxsize=1)
def lines_of(text: str) -> tuple[str, ...]:
    """Shapes and spans take the same text apart one after the other: it is split once."""
    return tuple(text.split("\n"))


def joined(lines: Iterable[str], limit: int) -> str:
    """The text of these lines; ValueError as soon as it has more than `limit` characters."""
    kept: list[str] = []
    room = limit + 1
    for line in lines:
        room -= len(line) + 1
        if room < 0:
            raise ValueError(f"more than {limit:,} characters")
        kept.append(line)
    return "\n".join(kept)


class Lines:
    """Where the lines of a text stand, without taking it apart: looking one up costs the same in a text of any size."""

    __slots__ = ("_before", "_text")

    def __init__(self, text: str) -> None:
        counts = (text.count("\n", at, at + INDEX_CHARACTERS) for at in range(0, len(text), INDEX_CHARACTERS))
        self._text = text
        self._before = [*accumulate(counts, initial=0)]
        """Line breaks before each chunk, and in all of it."""

    def at(self, offset: int) -> int:
        """The line, counted from 0, of the character there."""
        chunk = offset // INDEX_CHARACTERS
        return self._before[chunk] + self._text.count("\n", chunk * INDEX_CHARACTERS, offset)

    def text(self, first: int, last: int) -> str:
        """Lines from the first up to, not including, the last, as they stand; the text has them."""
        end = len(self._text) if last > self._before[-1] else self._start(last) - 1
        return self._text[self._start(first) : end]

    def _start(self, line: int) -> int:
        """Where a line begins."""
        if not line:
            return 0
        chunk = bisect_left(self._before, line) - 1  # its break before it is the last of these
        start = chunk * INDEX_CHARACTERS
        rest = self._text[start : start + INDEX_CHARACTERS].split("\n", line - self._before[chunk])[-1]
        return min(start + INDEX_CHARACTERS, len(self._text)) - len(rest)
