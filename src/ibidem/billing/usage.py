"""Token counts of one request, as its provider reports them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

FULL_READ_SHARE = 0.97
"""A read of this share of the cacheable tokens is a full hit, because providers count in blocks."""


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one request, as its provider counted them. The first four fields add up to its input."""

    fresh: int = 0
    """Neither read from the cache nor written to it."""
    read: int = 0
    written: int = 0
    """Written to the cache with the usual TTL."""
    written_1h: int = 0
    output: int = 0
    reasoning: int = 0
    """Output tokens for reasoning, included in `output`."""

    @property
    def input(self) -> int:
        return self.fresh + self.read + self.written + self.written_1h

    @property
    def counts(self) -> tuple[int, ...]:
        return self.fresh, self.read, self.written, self.written_1h, self.output, self.reasoning

    def __add__(self, other: Usage) -> Usage:
        return Usage(*map(sum, zip(self.counts, other.counts, strict=True)))


def count_in(value: Any, *path: str) -> int:
    """Read the number of tokens at a path of a usage object; 0 if there is no positive integer."""
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0


def anthropic_usage(fields: Mapping[str, Any]) -> Usage:
    """Read Anthropic's `usage`, with the compactions that its top-level counts leave out."""
    return _anthropic_counts(fields) + compaction_usage(fields)


def compaction_usage(fields: Mapping[str, Any]) -> Usage:
    """Tokens of the compactions in Anthropic's `usage.iterations`. They are billed, but are not part of the context."""
    total, iterations = Usage(), fields.get("iterations")
    for step in iterations if isinstance(iterations, list) else ():
        if isinstance(step, dict) and step.get("type") == "compaction":
            total += _anthropic_counts(step)
    return total


def _anthropic_counts(fields: Mapping[str, Any]) -> Usage:
    short = count_in(fields, "cache_creation", "ephemeral_5m_input_tokens")
    long = count_in(fields, "cache_creation", "ephemeral_1h_input_tokens")
    return Usage(
        fresh=count_in(fields, "input_tokens"),
        read=count_in(fields, "cache_read_input_tokens"),
        written=max(short, count_in(fields, "cache_creation_input_tokens") - long),
        written_1h=long,
        output=count_in(fields, "output_tokens"),
    )
