"""What a reader of logs is."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from .log import Log
from .recording import Json, Recording


class Reader(NamedTuple):
    agent: str
    """Its name in reports."""
    knows: Callable[[Json], bool]
    """Whether a row of a file gives it away as this agent's. Nothing but the row is looked at, and nothing raised."""
    read: Callable[[Log], Iterable[Recording]]
    """The sessions of a file. `path` and `skipped` are filled in by the caller."""
