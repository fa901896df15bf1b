"""Split a byte stream into messages of one line each. A line that is too long to hold is forwarded in chunks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

MAX_MESSAGE_BYTES = 8 * 2**20
"""Longer messages are forwarded unread."""


class Frame(NamedTuple):
    """Bytes to forward: one whole message, or a part of something else."""

    data: bytes
    whole: bool


class LineFraming:
    """Splitter for lines. How the input is chunked does not matter. It holds at most one line of `most` bytes."""

    def __init__(self, most: int = MAX_MESSAGE_BYTES) -> None:
        self._most = most
        self._pending: list[bytes] = []
        self._size = 0
        self._is_oversized = False
        """True if the current line is too long and is forwarded in chunks."""

    def feed(self, data: bytes) -> Iterator[Frame]:
        """Add a chunk. Yield the complete lines, and parts of lines that are too long."""
        start = 0
        while (end := data.find(b"\n", start) + 1) > 0:
            yield self._end_line(data[start:end])
            start = end
        if start < len(data):
            yield from self._add_partial(data[start:])

    def flush(self) -> Iterator[Frame]:
        """Yield the incomplete line at the end of the stream, as a part."""
        if self._pending:
            yield Frame(self._take_pending(), False)

    def _end_line(self, end: bytes) -> Frame:
        whole = not self._is_oversized and self._size + len(end) <= self._most
        self._is_oversized = False
        self._pending.append(end)
        return Frame(self._take_pending(), whole)

    def _add_partial(self, data: bytes) -> Iterator[Frame]:
        self._pending.append(data)
        self._size += len(data)
        if self._is_oversized or self._size > self._most:
            self._is_oversized = True
            yield Frame(self._take_pending(), False)

    def _take_pending(self) -> bytes:
        pending = b"".join(self._pending)
        self._pending.clear()
        self._size = 0
        return pending
