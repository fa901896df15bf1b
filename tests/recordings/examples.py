"""What the contract suite knows of a log: its text, and what a reader has to find in it."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Example:
    """A log that was made up, and what is in it. One entry per session that is to be found, in order."""

    name: str
    """A sentence: what is special about it."""
    data: bytes
    agent: str
    format: str
    lengths: list[list[list[int]]]
    """Per session, per segment: how many entries of the history each request carried."""
    causes: list[list[str]] | None = None
    """Per session: what each segment begins with; None when all begin with nothing."""
    models: list[list[str]] | None = None
    projects: list[str] | None = None
    ids: list[str] | None = None
    titles: list[str] | None = None
    skipped: list[int] = field(default_factory=list)
    """Lines that cannot be used."""
    inputs: list[list[int | None]] | None = None
    """Per session: recorded input tokens of every request; None where the log has none."""
    times: list[list[float | None]] | None = None
    """Per session: Unix seconds at which every request was sent."""
    invalid: bool = False
    """The log itself holds something that a provider would refuse (an unanswered call, say)."""


def lines(*rows: Any) -> bytes:
    """One JSON value per line; bytes stand for themselves."""
    return b"".join((row if isinstance(row, bytes) else json.dumps(row).encode()) + b"\n" for row in rows)
