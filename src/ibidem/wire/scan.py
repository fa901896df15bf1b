"""Requests whose messages are looked at one by one, and only where that is needed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from ..model import IbidemError, Path
from .splice import CLOSE_LIST, CLOSE_OBJECT, COMMA, key_at, past_space, raw_fields, raw_items, splice, string_end
from .text import parse
from .tree import Change, rebuild

Written = dict[int, tuple[int, bytes]]
"""What was written for a message, and the fingerprint of what came: a message that comes again is not written anew."""


class Scanned(Protocol):
    """A request whose messages are looked at one by one, and only where that is needed."""

    @property
    def given(self) -> Any: ...
    @property
    def key(self) -> str:
        """The field that holds the history; empty for a bare list."""

    @property
    def sketch(self) -> Any:
        """The request with enough of its history to tell its format by."""

    def __len__(self) -> int: ...
    def fingerprint(self, index: int) -> int | None:
        """Equal for equal messages; None if there is no telling without looking at the value."""

    def value(self, index: int) -> Any: ...
    def write(self, changes: Mapping[int, list[Change]], written: Written) -> Any:
        """The request with changes inside its messages, by index; `written` is kept from one request to the next."""


_HISTORIES = ("messages", "input", "contents")
_SKETCH = 64
_SHORT = 4096
"""Bytes up to which it is cheaper to keep what was written than to write it at every turn."""


def scan(request: Any) -> Scanned | None:
    """None for a request that has to be read as a whole."""
    if isinstance(request, bytes):
        return _scan_bytes(request)
    value = request
    key = ""
    if isinstance(request, dict):
        found = [name for name in _HISTORIES if isinstance(request.get(name), list)]
        if len(found) != 1:
            return None
        key = found[0]
        value = request[key]
    return _ScannedValue(request, key, value) if isinstance(value, list) and value else None


class _ScannedValue:
    def __init__(self, given: Any, key: str, history: list[Any]) -> None:
        self.given = given
        self.key = key
        self._history = history

    @property
    def sketch(self) -> Any:
        return self.given

    def __len__(self) -> int:
        return len(self._history)

    def fingerprint(self, index: int) -> int | None:
        return None

    def value(self, index: int) -> Any:
        return self._history[index]

    def write(self, changes: Mapping[int, list[Change]], written: Written) -> Any:
        prefix: Path = (self.key,) if self.key else ()
        every: list[Change] = []
        for index, some in changes.items():
            every.extend(Change((*prefix, index, *one.path), one.op, one.value) for one in some)
        return rebuild(self.given, every) if every else self.given


class _ScannedBytes:
    def __init__(self, given: bytes, key: str, head: dict[str, Any], spans: list[tuple[int, int]]) -> None:
        self.given = given
        self.key = key
        self._head = head
        self._spans = spans

    @property
    def sketch(self) -> Any:
        some = [self.value(index) for index in range(min(_SKETCH, len(self)))]
        return {**self._head, self.key: some} if self.key else some

    def __len__(self) -> int:
        return len(self._spans)

    def fingerprint(self, index: int) -> int:
        start, end = self._spans[index]
        return hash(self.given[start:end])

    def value(self, index: int) -> Any:
        start, end = self._spans[index]
        return parse(self.given[start:end])

    def write(self, changes: Mapping[int, list[Change]], written: Written) -> Any:
        if not changes:
            return self.given
        view = memoryview(self.given)
        pieces: list[bytes | memoryview] = []
        cursor = 0
        for index, some in sorted(changes.items()):
            start, end = self._spans[index]
            pieces.append(view[cursor:start])
            pieces.append(self._written(index, some, written))
            cursor = end
        return b"".join([*pieces, view[cursor:]])

    def _written(self, index: int, changes: list[Change], written: Written) -> bytes:
        fingerprint = self.fingerprint(index)
        known = written.get(index)
        if known is not None and known[0] == fingerprint:
            return known[1]
        start, end = self._spans[index]
        data = b"[" + self.given[start:end] + b"]"
        wanted = [Change((0, *one.path), one.op, one.value) for one in changes]
        new = splice(data, [self.value(index)], wanted)[1:-1]
        if len(new) <= _SHORT:
            written[index] = (fingerprint, new)
        return new


def _scan_bytes(data: bytes) -> Scanned | None:
    """Where the messages stand, from the lengths that the fast parser tells. None where anything is unusual."""
    import msgspec

    try:
        if data[:1] == b"[":
            raws = raw_items().decode(data)
            return _ScannedBytes(data, "", {}, _spans(data, 0, raws)) if raws else None
        fields = raw_fields().decode(data)
        keys = [name for name in _HISTORIES if name in fields]
        if len(keys) != 1 or data[:1] != b"{":
            return None
        raws = raw_items().decode(fields[keys[0]])
        start = _field_start(data, fields, keys[0])
        if not raws or start < 0:
            return None
        head = {name: msgspec.json.decode(raw) for name, raw in fields.items() if name != keys[0]}
        return _ScannedBytes(data, keys[0], head, _spans(data, start, raws))
    except (msgspec.DecodeError, UnicodeError, RecursionError, IbidemError):
        return None


def _field_start(data: bytes, fields: Mapping[str, Any], wanted: str) -> int:
    """Where the value of a field stands; -1 if the lengths do not add up, as with a key that stands twice."""
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


def _spans(data: bytes, start: int, raws: list[Any]) -> list[tuple[int, int]]:
    spans = []
    at = past_space(data, start + 1)
    for raw in raws:
        end = at + memoryview(raw).nbytes
        spans.append((at, end))
        at = past_space(data, end)
        if data[at] == COMMA:
            at = past_space(data, at + 1)
    if data[at] != CLOSE_LIST:
        raise IbidemError("the text does not agree with what it was parsed to")
    return spans
