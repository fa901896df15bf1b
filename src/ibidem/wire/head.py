"""What stands beside the messages of a request: its other fields."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from functools import cached_property
from typing import Any

from .offsets import CLOSE_OBJECT, COMMA, key_at, past_space, string_end
from .text import parse

SHORT_BYTES = 1024
"""Bytes of a field whose value is held as long as the field is: as a value, one takes many times its bytes."""


class Head(Mapping[str, Any]):
    """Fields that are parsed when they are asked for: once, but for long ones of a head that is held."""

    def __init__(self, raws: Mapping[str, Any]) -> None:
        self._raws = raws
        self._parsed: dict[str, Any] = {}
        self._held = False
        self.notes: dict[Hashable, Any] = {}
        """What others found out about it. It is the same object in all requests that say the same there, if it is held.
        """

    def __getitem__(self, name: str) -> Any:
        if name in self._parsed:
            return self._parsed[name]
        raw = self._raws[name]
        value = parse(bytes(raw))
        if not self._held or memoryview(raw).nbytes <= SHORT_BYTES:
            self._parsed[name] = value
        return value

    def __iter__(self) -> Iterator[str]:
        return iter(self._raws)

    def __len__(self) -> int:
        return len(self._raws)

    def __contains__(self, name: object) -> bool:
        return name in self._raws  # that of a Mapping would parse it

    def get(self, name: str, default: Any = None) -> Any:
        return self[name] if name in self._raws else default  # that of a Mapping raises an error, and catches it

    def raw(self, name: str) -> bytes:
        """As it is written; empty where it is not there."""
        return bytes(self._raws[name]) if name in self._raws else b""

    def held(self) -> Head:
        """To be held for longer than its request: with bytes of its own, and no long value."""
        if self._held:
            return self
        found = Head({name: raw.copy() for name, raw in self._raws.items()})
        found._held, found.notes = True, self.notes
        return found

    @cached_property
    def size(self) -> int:
        """Bytes of all fields."""
        return sum(memoryview(raw).nbytes for raw in self._raws.values())


def field_start(data: bytes, fields: Mapping[str, Any], wanted: str) -> int:
    """Where the value of a field stands; -1 if the lengths do not add up, as with a key that stands twice."""
    try:
        return _walk_fields(data, fields, wanted)
    except (LookupError, ValueError):  # lost behind the first of two values, whose length is that of the last
        return -1


def _walk_fields(data: bytes, fields: Mapping[str, Any], wanted: str) -> int:
    at, found, left = past_space(data, 1), -1, len(fields)
    while data[at] != CLOSE_OBJECT:
        stop = string_end(data, at)
        key = key_at(data, at, stop)
        at = past_space(data, past_space(data, stop) + 1)
        found = at if key == wanted else found
        raw = fields[key]
        length = memoryview(raw).nbytes
        if key != wanted and data[at : at + length] != bytes(raw):
            return -1
        at = past_space(data, at + length)
        left -= 1
        if data[at] == COMMA:
            at = past_space(data, at + 1)
        elif data[at] != CLOSE_OBJECT:
            return -1
    return found if not left else -1
