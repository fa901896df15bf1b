"""Lines of a text. Only \\n parts lines; nothing else that looks like a line break does."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache


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
