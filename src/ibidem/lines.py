"""Lines of a text. Only \\n parts lines; nothing else that looks like a line break does."""

from __future__ import annotations

from functools import lru_cache


@lru_cache(maxsize=1)
def lines_of(text: str) -> tuple[str, ...]:
    """Shapes and spans take the same text apart one after the other: it is split once."""
    return tuple(text.split("\n"))
