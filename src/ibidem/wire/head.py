"""Request parameters: all fields of a request except its messages."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from functools import cached_property
from typing import Any

from .offsets import CLOSE_OBJECT, COMMA, key_at, past_space, string_end
from .text import parse

SHORT_BYTES = 1024
"""Maximum JSON length of a field whose parsed value stays in memory. A value takes many times its JSON length."""


class Head(Mapping[str, Any]):
    """Fields of a request, parsed on first access.

    A parsed value stays in memory, except a long one in a copy made with `copy_for_reuse`.
    """

    def __init__(self, raws: Mapping[str, Any]) -> None:
        self._raws = raws
        self._parsed: dict[str, Any] = {}
        self._held = False
        self.notes: dict[Hashable, Any] = {}
        """Facts that other modules derived from the fields. Requests with identical fields share this object."""

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
        return name in self._raws  # the method of Mapping would parse the field

    def get(self, name: str, default: Any = None) -> Any:
        return self[name] if name in self._raws else default  # faster: the method of Mapping catches a KeyError

    def raw(self, name: str) -> bytes:
        """Return the field's JSON text; empty if the field is missing."""
        return bytes(self._raws[name]) if name in self._raws else b""

    def held(self) -> Head:
        """Copy the fields, so that they can outlive their request without its body. Drops long parsed values."""
        if self._held:
            return self
        found = Head({name: raw.copy() for name, raw in self._raws.items()})
        found._held, found.notes = True, self.notes
        return found

    @cached_property
    def size(self) -> int:
        """Length of all fields' JSON values, in bytes."""
        return sum(memoryview(raw).nbytes for raw in self._raws.values())


def field_start(data: bytes, fields: Mapping[str, Any], wanted: str) -> int:
    """Return the offset of a field's value; -1 if the lengths do not add up, for example with a duplicate key."""
    try:
        return _walk_fields(data, fields, wanted)
    except (LookupError, ValueError):  # duplicate key: the known length is that of the last value, not of this one
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
