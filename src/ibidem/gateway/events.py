"""Split a byte stream into server-sent events, and replace the data of an event."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from .lines import MAX_MESSAGE_BYTES, Framed

_EVENT_END = re.compile(rb"(?:\r\n|\n|\r(?!\n)){2}")
_LINE = re.compile(rb"[^\r\n]*(?:\r\n|\n|\r|$)")


class EventFraming:
    """Splitter for events, each with the empty line that ends it. It holds at most one event of `most` bytes."""

    def __init__(self, most: int = MAX_MESSAGE_BYTES) -> None:
        self._most = most
        self._held = bytearray()
        self._looked = 0
        self._streams = False

    def feed(self, data: bytes) -> Iterator[Framed]:
        """Add a chunk. Yield the complete events, and parts of events that are too long."""
        self._held += data
        start = 0
        while found := _EVENT_END.search(self._held, max(start, self._looked - 3)):
            event = bytes(self._held[start : found.end()])
            start = self._looked = found.end()
            yield Framed(event, not self._streams and len(event) <= self._most)
            self._streams = False
        if start:
            del self._held[:start]
        self._looked = len(self._held)
        if self._streams or len(self._held) > self._most:
            self._streams = True
            # The end of an event has up to four bytes and may be split between chunks: hold back a possible start.
            keep = len(self._held) - len(self._held.rstrip(b"\r\n"))
            cut = len(self._held) - min(keep, 3)
            if cut:
                yield Framed(bytes(self._held[:cut]), False)
            del self._held[:cut]
            self._looked = 0

    def flush(self) -> Iterator[Framed]:
        """Yield the incomplete event at the end of the stream, as a part."""
        if self._held:
            yield Framed(bytes(self._held), False)
            self._held.clear()


def event_field(event: bytes, name: bytes) -> bytes | None:
    """Return the value of a field with its lines joined, or None if the event does not have it."""
    values = [value for key, value, _ in _fields(event) if key == name]
    return b"\n".join(values) if values else None


def with_data(event: bytes, change: Callable[[bytes], bytes]) -> bytes:
    """Return the event with its data replaced by `change(data)`; the same object if nothing changes."""
    data = event_field(event, b"data")
    if not data:
        return event
    new = change(data)
    if new == data:
        return event
    end = b"\r\n" if b"\r\n" in event else b"\n" if b"\n" in event else b"\r"
    lines, placed = [], False
    for key, _, line in _fields(event):
        if key != b"data":
            lines.append(line)
        elif not placed:
            placed = True
            lines += [b"data: " + part + end for part in new.split(b"\n")]
    return b"".join(lines)


def _fields(event: bytes) -> Iterator[tuple[bytes, bytes, bytes]]:
    """Yield the name, the value and the bytes of each line."""
    for found in _LINE.finditer(event):
        line = found.group()
        if line:
            key, _, value = line.rstrip(b"\r\n").partition(b":")
            yield key, value.removeprefix(b" "), line
