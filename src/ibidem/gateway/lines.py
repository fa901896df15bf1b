"""Split a byte stream into messages of one line each. A line that is too long to hold is forwarded in chunks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

MAX_MESSAGE_BYTES = 8 * 2**20
"""Longer messages are forwarded unread."""


class Framed(NamedTuple):
    """Bytes to forward: one whole message, or a part of something else."""

    data: bytes
    whole: bool


class LineFraming:
    """Splitter for lines. How the input is chunked does not matter. It holds at most one line of `most` bytes."""

    def __init__(self, most: int = MAX_MESSAGE_BYTES) -> None:
        self._most = most
        self._held: list[bytes] = []
        self._size = 0
        self._streams = False
        """True if the current line is too long and is forwarded in chunks."""

    def feed(self, data: bytes) -> Iterator[Framed]:
        """Add a chunk. Yield the complete lines, and parts of lines that are too long."""
        start = 0
        while (end := data.find(b"\n", start) + 1) > 0:
            yield self._line(data[start:end])
            start = end
        if start < len(data):
            yield from self._begun(data[start:])

    def flush(self) -> Iterator[Framed]:
        """Yield the incomplete line at the end of the stream, as a part."""
        if self._held:
            yield Framed(self._taken(), False)

    def _line(self, end: bytes) -> Framed:
        whole = not self._streams and self._size + len(end) <= self._most
        self._streams = False
        self._held.append(end)
        return Framed(self._taken(), whole)

    def _begun(self, data: bytes) -> Iterator[Framed]:
        self._held.append(data)
        self._size += len(data)
        if self._streams or self._size > self._most:
            self._streams = True
            yield Framed(self._taken(), False)

    def _taken(self) -> bytes:
        taken = b"".join(self._held)
        self._held.clear()
        self._size = 0
        return taken
