"""What a provider counted for one request: the unit in which everything is paid."""

from __future__ import annotations

from dataclasses import dataclass

FULL_READ_SHARE = 0.97
"""A provider that read this share of what could have been read missed nothing: it counts in blocks."""


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one request as its provider counted them. The first four add up to its input."""

    fresh: int = 0
    """Neither read from the cache nor written to it."""
    read: int = 0
    written: int = 0
    """Written to the cache for its usual lifetime."""
    written_1h: int = 0
    output: int = 0
    reasoning: int = 0
    """Of the output."""

    @property
    def input(self) -> int:
        return self.fresh + self.read + self.written + self.written_1h

    @property
    def counts(self) -> tuple[int, ...]:
        return self.fresh, self.read, self.written, self.written_1h, self.output, self.reasoning
