"""Interface of a log reader."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from .log_file import Log
from .recording import Json, Recording


class Reader(NamedTuple):
    """Reader for the logs of one agent."""

    agent: str
    """Agent name in reports."""
    knows: Callable[[Json], bool]
    """Return True if a row is from a log of this agent. Must not raise."""
    read: Callable[[Log], Iterable[Recording]]
    """Return the sessions of a file. The caller sets `path` and `skipped`."""
