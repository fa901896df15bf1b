"""Request parameters: all fields of a request except its messages."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from functools import cached_property
from typing import Any

from .json_offsets import CLOSE_OBJECT, COMMA, read_key, skip_whitespace, string_end
from .json_text import parse

SHORT_BYTES = 1024
"""Maximum JSON length of a field whose parsed value stays in memory. A value takes many times its JSON length."""


class RequestParams(Mapping[str, Any]):
    """Fields of a request, parsed on first access.

    A parsed value stays in memory, except a long one in a copy made with `copy_for_reuse`.
    """

    def __init__(self, raws: Mapping[str, Any]) -> None:
        self._raws = raws
        self._values: dict[str, Any] = {}
        self._is_copy = False
        self.notes: dict[Hashable, Any] = {}
        """Facts that other modules derived from the fields. Requests with identical fields share this object."""

    def __getitem__(self, name: str) -> Any:
        if name in self._values:
            return self._values[name]
        raw = self._raws[name]
        value = parse(bytes(raw))
        if not self._is_copy or memoryview(raw).nbytes <= SHORT_BYTES:
            self._values[name] = value
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

    def copy_for_reuse(self) -> RequestParams:
        """Copy the fields, so that they can outlive their request without its body. Drops long parsed values."""
        if self._is_copy:
            return self
        copied_params = RequestParams({name: raw.copy() for name, raw in self._raws.items()})
        copied_params._is_copy, copied_params.notes = True, self.notes
        return copied_params

    @cached_property
    def size_bytes(self) -> int:
        """Length of all fields' JSON values, in bytes."""
        return sum(memoryview(raw).nbytes for raw in self._raws.values())


def field_start(data: bytes, fields: Mapping[str, Any], name: str) -> int:
    """Return the offset of a field's value; -1 if the lengths do not add up, for example with a duplicate key."""
    try:
        return _walk_fields(data, fields, name)
    except (LookupError, ValueError):  # duplicate key: the known length is that of the last value, not of this one
        return -1


def _walk_fields(data: bytes, fields: Mapping[str, Any], name: str) -> int:
    at, start, remaining = skip_whitespace(data, 1), -1, len(fields)
    while data[at] != CLOSE_OBJECT:
        stop = string_end(data, at)
        key = read_key(data, at, stop)
        at = skip_whitespace(data, skip_whitespace(data, stop) + 1)
        start = at if key == name else start
        raw = fields[key]
        length = memoryview(raw).nbytes
        if key != name and data[at : at + length] != bytes(raw):
            return -1
        at = skip_whitespace(data, at + length)
        remaining -= 1
        if data[at] == COMMA:
            at = skip_whitespace(data, at + 1)
        elif data[at] != CLOSE_OBJECT:
            return -1
    return start if not remaining else -1
