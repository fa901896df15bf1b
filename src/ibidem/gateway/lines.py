"""Messages that stand on a line each, found in bytes that come in pieces; a line too long to hold streams through."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

MAX_MESSAGE_BYTES = 8 * 2**20
"""Longer messages pass unlooked at."""


class Framed(NamedTuple):
    """Bytes to pass on: one whole message, or a piece of what is none."""

    data: bytes
    whole: bool


class LineFraming:
    """Splitting the bytes anywhere gives the same whole lines. At most one line of `most` bytes is held."""

    def __init__(self, most: int = MAX_MESSAGE_BYTES) -> None:
        self._most = most
        self._held: list[bytes] = []
        self._size = 0
        self._streams = False
        """In the middle of a line that is too long."""

    def feed(self, data: bytes) -> Iterator[Framed]:
        start = 0
        while (end := data.find(b"\n", start) + 1) > 0:
            yield self._line(data[start:end])
            start = end
        if start < len(data):
            yield from self._begun(data[start:])

    def flush(self) -> Iterator[Framed]:
        """What the last newline had behind it, at the end of all: half a message, and passed on as such."""
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
