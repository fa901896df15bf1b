"""Split a byte stream into server-sent events, and replace the data of an event."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from .line_framing import MAX_MESSAGE_BYTES, Frame

_EVENT_END = re.compile(rb"(?:\r\n|\n|\r(?!\n)){2}")
_LINE = re.compile(rb"[^\r\n]*(?:\r\n|\n|\r|$)")


class EventFraming:
    """Splitter for events, each with the empty line that ends it. It holds at most one event of `most` bytes."""

    def __init__(self, most: int = MAX_MESSAGE_BYTES) -> None:
        self._most = most
        self._pending = bytearray()
        self._searched = 0
        self._is_oversized = False

    def feed(self, data: bytes) -> Iterator[Frame]:
        """Add a chunk. Yield the complete events, and parts of events that are too long."""
        self._pending += data
        start = 0
        while match := _EVENT_END.search(self._pending, max(start, self._searched - 3)):
            event = bytes(self._pending[start : match.end()])
            start = self._searched = match.end()
            yield Frame(event, not self._is_oversized and len(event) <= self._most)
            self._is_oversized = False
        if start:
            del self._pending[:start]
        self._searched = len(self._pending)
        if self._is_oversized or len(self._pending) > self._most:
            self._is_oversized = True
            # The end of an event has up to four bytes and may be split between chunks: hold back a possible start.
            keep = len(self._pending) - len(self._pending.rstrip(b"\r\n"))
            cut = len(self._pending) - min(keep, 3)
            if cut:
                yield Frame(bytes(self._pending[:cut]), False)
            del self._pending[:cut]
            self._searched = 0

    def flush(self) -> Iterator[Frame]:
        """Yield the incomplete event at the end of the stream, as a part."""
        if self._pending:
            yield Frame(bytes(self._pending), False)
            self._pending.clear()


def event_field(event: bytes, name: bytes) -> bytes | None:
    """Return the value of a field with its lines joined, or None if the event does not have it."""
    values = [value for key, value, _ in _iter_fields(event) if key == name]
    return b"\n".join(values) if values else None


def replace_data(event: bytes, change: Callable[[bytes], bytes]) -> bytes:
    """Return the event with its data replaced by `change(data)`; the same object if nothing changes."""
    data = event_field(event, b"data")
    if not data:
        return event
    new = change(data)
    if new == data:
        return event
    end = b"\r\n" if b"\r\n" in event else b"\n" if b"\n" in event else b"\r"
    lines, is_data_written = [], False
    for key, _, line in _iter_fields(event):
        if key != b"data":
            lines.append(line)
        elif not is_data_written:
            is_data_written = True
            lines += [b"data: " + part + end for part in new.split(b"\n")]
    return b"".join(lines)


def _iter_fields(event: bytes) -> Iterator[tuple[bytes, bytes, bytes]]:
    """Yield the name, the value and the bytes of each line."""
    for match in _LINE.finditer(event):
        line = match.group()
        if line:
            key, _, value = line.rstrip(b"\r\n").partition(b":")
            yield key, value.removeprefix(b" "), line
