"""Server-sent events, found in bytes that come in pieces: an event in, the same bytes out, or with other data."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from .lines import MAX_MESSAGE_BYTES, Framed

_EVENT_END = re.compile(rb"(?:\r\n|\n|\r(?!\n)){2}")
_LINE = re.compile(rb"[^\r\n]*(?:\r\n|\n|\r|$)")


class EventFraming:
    """Whole events with the empty line that ends them. At most one of `most` bytes is held."""

    def __init__(self, most: int = MAX_MESSAGE_BYTES) -> None:
        self._most = most
        self._held = bytearray()
        self._looked = 0
        self._streams = False

    def feed(self, data: bytes) -> Iterator[Framed]:
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
            # An end of four bytes may come in two pieces: what could be its first part is kept back.
            keep = len(self._held) - len(self._held.rstrip(b"\r\n"))
            cut = len(self._held) - min(keep, 3)
            if cut:
                yield Framed(bytes(self._held[:cut]), False)
            del self._held[:cut]
            self._looked = 0

    def flush(self) -> Iterator[Framed]:
        if self._held:
            yield Framed(bytes(self._held), False)
            self._held.clear()


def event_field(event: bytes, name: bytes) -> bytes | None:
    """The value of a field, its lines joined; None if the event has none."""
    values = [value for key, value, _ in _fields(event) if key == name]
    return b"\n".join(values) if values else None


def with_data(event: bytes, change: Callable[[bytes], bytes]) -> bytes:
    """The event with its data changed; the very same bytes if that changes nothing."""
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
    """Each line: its name, its value, and the line itself."""
    for found in _LINE.finditer(event):
        line = found.group()
        if line:
            key, _, value = line.rstrip(b"\r\n").partition(b":")
            yield key, value.removeprefix(b" "), line
