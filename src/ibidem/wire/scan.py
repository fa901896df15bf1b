"""Requests whose messages are looked at one by one, and only where that is needed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

from ..errors import IbidemError
from ..model import Path, to_json
from .head import Head, field_start
from .offsets import CLOSE_LIST, COMMA, past_space, raw_fields, raw_items
from .sdk_objects import HISTORY_KEYS, dump_history
from .splice import splice
from .text import parse
from .tree import Change, rebuild

Written = dict[int, tuple[int, bytes]]
"""What was written for a message, and the fingerprint of what came: a message that comes again is not written anew."""


BESIDE = -1
"""In place of a message: what stands beside them all."""


class Known(NamedTuple):
    """Where the messages of a request stood, and what was there: by this its beginning is known again."""

    spans: list[tuple[int, int]]
    hashes: list[int]
    """Of each message, and of what stands between it and the one before."""


class LastRequest(NamedTuple):
    """A request by which the next one is known: to compare takes a thirtieth of the time that hashing does."""

    known: Known
    body: bytes
    key: str
    head: Mapping[str, Any]
    size: int
    """Bytes that it holds."""


class Scanned:
    """A request whose messages are looked at one by one, and only where that is needed."""

    given: Any
    key: str
    """The field that holds the history; empty for a bare list."""
    unchanged: int = 0
    """Messages, from the first on, that are known to be the same to the byte as in the request before."""
    origin: Known | None = None
    """By which they were known."""
    same_head: bool = False
    """What stands beside the messages is the same too."""
    known: Known | None = None
    """By which the beginning of the next request is known again, without looking into it."""
    start: int = 0
    """Where what comes after them begins, in a text."""

    @property
    def head(self) -> Mapping[str, Any]:
        """The request without its history."""
        raise NotImplementedError

    @property
    def sketch(self) -> Any:
        """The request with enough of its history to tell its format by."""
        raise NotImplementedError

    def __len__(self) -> int:
        raise NotImplementedError

    def last(self) -> LastRequest | None:
        """What is held of it to know the next one by; None where that takes reading it."""
        return None

    def fingerprint(self, index: int) -> int | None:
        """Equal for equal messages; None if there is no telling without looking at the value."""
        return None

    def value(self, index: int) -> Any:
        raise NotImplementedError

    def size(self, index: int) -> int:
        """Bytes of a message, about."""
        return len(to_json(self.value(index)))

    @property
    def beside(self) -> int:
        """Bytes of what stands beside the messages, about; 0 where that is no JSON."""
        try:
            return len(to_json(dict(self.head)))
        except (TypeError, ValueError, RecursionError):
            return 0

    def written_value(self, index: int, changes: Mapping[int, list[Change]], written: Written) -> Any:
        """A message as it is written."""
        value = self.value(index)
        return rebuild(value, changes[index]) if index in changes else value

    def write(self, changes: Mapping[int, list[Change]], written: Written, late: Sequence[Change] = ()) -> Any:
        """The request with changes inside its messages, by index; `written` is kept from one request to the next.

        `late` changes are made after these, anywhere in it: their paths lead from the request to what is written.
        """
        raise NotImplementedError


_SKETCH = 64


def scan(request: Any, known: Known | None = None) -> Scanned | None:
    """None for a request that has to be read as a whole. What is `known` of its beginning is not looked at again."""
    if isinstance(request, bytes):
        return (rescan(request, known) if known is not None else None) or _scan_bytes(request)
    key = _history_of(request)
    return None if key is None else _ScannedValue(request, key, request)


def scan_tolerantly(data: bytes) -> Scanned | None:
    """A request that has in it what only the standard library takes, such as NaN; None if it is none even so."""
    try:
        value = parse(data)
    except IbidemError:
        return None
    key = _history_of(value)
    return None if key is None else _ScannedText(data, key, value)


def _history_of(value: Any) -> str | None:
    """The field that holds the history; empty for a bare list, None if there is no telling."""
    if isinstance(value, list):
        return "" if value else None
    found = [name for name in HISTORY_KEYS if isinstance(value.get(name), list)] if isinstance(value, dict) else []
    return found[0] if len(found) == 1 and value[found[0]] else None


class _ScannedValue(Scanned):
    def __init__(self, given: Any, key: str, value: Any) -> None:
        self.given = given
        self.key = key
        given_history = value[key] if key else value
        self._history = dump_history(given_history)
        same = self._history is given_history
        self._value: Any = value if same else {**value, key: self._history} if key else self._history

    @property
    def head(self) -> Mapping[str, Any]:
        return {name: value for name, value in self._value.items() if name != self.key} if self.key else {}

    @property
    def sketch(self) -> Any:
        return self._value

    def __len__(self) -> int:
        return len(self._history)

    def value(self, index: int) -> Any:
        return self._history[index]

    def write(self, changes: Mapping[int, list[Change]], written: Written, late: Sequence[Change] = ()) -> Any:
        prefix: Path = (self.key,) if self.key else ()
        every = [
            Change((*prefix, index, *one.path), one.op, one.value) for index, some in changes.items() for one in some
        ]
        new = self._with(self.given, self._value, every) if every else self.given
        return self._with(new, None, late) if late else new

    def _with(self, given: Any, value: Any, changes: Sequence[Change]) -> Any:
        return rebuild(given, changes)


class _ScannedText(_ScannedValue):
    """JSON text that only the tolerant parser takes."""

    def _with(self, given: Any, value: Any, changes: Sequence[Change]) -> Any:
        return splice(given, parse(given) if value is None else value, changes)


class _ScannedBytes(Scanned):
    def __init__(
        self, given: bytes, key: str, head: Mapping[str, Any], spans: list[tuple[int, int]], hashes: Sequence[int] = ()
    ) -> None:
        self.given = given
        self.key = key
        self._head = head
        self._spans = spans
        self._hashes = hashes
        """Of the messages that are unchanged."""
        self._values: dict[int, Any] = {}
        """Of messages that are new in a request whose beginning is known: they are asked for more than once."""
        self.unchanged = len(hashes)
        self.start = spans[self.unchanged - 1][1] if hashes else 0

    @property
    def head(self) -> Mapping[str, Any]:
        return self._head

    @cached_property
    def known(self) -> Known:  # type: ignore[override]  # made when it is asked for
        return Known(self._spans, [*self._hashes, *_hashes(self.given, self._spans, len(self._hashes))])

    @property
    def sketch(self) -> Any:
        some = [self.value(index) for index in range(min(_SKETCH, len(self)))]
        return {**self.head, self.key: some} if self.key else some

    def __len__(self) -> int:
        return len(self._spans)

    def fingerprint(self, index: int) -> int:
        start, end = self._spans[index]
        return hash(self.given[start:end])

    def last(self) -> LastRequest | None:
        head = self._head.held() if isinstance(self._head, Head) else self._head
        size = len(self.given) + (head.size if isinstance(head, Head) else 0)
        return LastRequest(self.known, self.given, self.key, head, size)

    def value(self, index: int) -> Any:
        if index in self._values:
            return self._values[index]
        start, end = self._spans[index]
        value = parse(self.given[start:end])
        if 0 < self.unchanged <= index:
            self._values[index] = value
        return value

    def size(self, index: int) -> int:
        start, end = self._spans[index]
        return end - start

    @property
    def beside(self) -> int:
        return len(self.given) - self._spans[-1][1] + self._spans[0][0]

    def written_value(self, index: int, changes: Mapping[int, list[Change]], written: Written) -> Any:
        return parse(self._written(index, changes[index], written)) if index in changes else self.value(index)

    def write(self, changes: Mapping[int, list[Change]], written: Written, late: Sequence[Change] = ()) -> Any:
        if not changes and not late:
            return self.given
        beside = [change for change in late if change.path[0] != self.key]
        inside: dict[int, list[Change]] = {}
        for path, op, value in late:
            if path[0] == self.key:
                inside.setdefault(int(path[1]), []).append(Change(path[2:], op, value))
        view = memoryview(self.given)
        first, last = self._spans[0][0], self._spans[-1][1]
        before, after = self._around(beside, written) if beside else (view[:first], view[last:])
        pieces: list[bytes | memoryview] = [before]
        cursor = first
        for index in sorted(changes.keys() | inside.keys() if inside else changes):
            start, end = self._spans[index]
            pieces.append(view[cursor:start])
            new = self._written(index, changes[index], written) if index in changes else self.given[start:end]
            pieces.append(_spliced(new, inside[index], self.key) if index in inside else new)
            cursor = end
        return b"".join([*pieces, view[cursor:last], after])

    def _around(self, changes: list[Change], written: Written) -> tuple[bytes, bytes]:
        """What stands before and behind all messages, changed. Without them it is a request too, and a short one."""
        first, last = self._spans[0][0], self._spans[-1][1]
        bare = self.given[:first] + self.given[last:]
        fingerprint = hash((bare, repr(changes)))
        known = written.get(BESIDE)
        new = known[1] if known is not None and known[0] == fingerprint else splice(bare, parse(bare), changes)
        written[BESIDE] = (fingerprint, new)
        start = field_start(new, raw_fields().decode(new), self.key)
        if start < 0:
            raise IbidemError("what stands beside the messages cannot be told from them")
        cut = start + first - bare.rindex(b"[", 0, first)
        return new[:cut], new[cut:]

    def _written(self, index: int, changes: list[Change], written: Written) -> bytes:
        known = written.get(index)
        if known is not None and index < self.unchanged:
            return known[1]
        fingerprint = self.fingerprint(index)
        if known is not None and known[0] == fingerprint:
            return known[1]
        start, end = self._spans[index]
        new = _spliced(self.given[start:end], changes, self.key)
        written[index] = (fingerprint, new)
        return new


def _spliced(data: bytes, changes: Sequence[Change], key: str) -> bytes:
    """A message, changed, as deep in a text as in the request: what is put in is indented by that."""
    lead, tail, prefix = (b'{"":[', b"]}", ("", 0)) if key else (b"[", b"]", (0,))
    wanted = [Change((*prefix, *one.path), one.op, one.value) for one in changes]
    value = [parse(data)]
    return splice(lead + data + tail, {"": value} if key else value, wanted)[len(lead) : -len(tail)]


def _hashes(data: bytes, spans: list[tuple[int, int]], first: int) -> Iterator[int]:
    """Python's own, which nobody outside this process can aim at."""
    at = spans[first - 1][1] if first else 0
    for _, end in spans[first:]:
        yield hash(data[at:end])
        at = end


def rescan(data: bytes, known: Known, last: LastRequest | None = None) -> Scanned | None:
    """A request that begins as one did before, of which only what comes after that is parsed. None if it does not.

    With the messages that are known taken out, what is left is a request too. If that is in order so is the whole.
    `last` is what is `known`, where that is at hand.
    """
    spans = known.spans
    if last is not None and last.known is known and data.startswith(memoryview(last.body)[: spans[-1][1]]):
        if (grown := _grown(data, last)) is not None:
            return grown
        same = len(spans)
    else:
        same = _same(data, known)
    if not same:
        return None
    end = past_space(data, spans[same - 1][1])
    if data[end : end + 1] != b",":  # nothing came after it
        return None
    start, rest = spans[0][0], past_space(data, end + 1)
    found = _scan_bytes(data[:start] + data[rest:])
    if not isinstance(found, _ScannedBytes):
        return None
    shift = rest - start
    new = ((first + shift, last + shift) for first, last in found._spans)
    again = _ScannedBytes(data, found.key, found.head, [*spans[:same], *new], known.hashes[:same])
    again.origin = known
    return again


def _grown(data: bytes, last: LastRequest) -> Scanned | None:
    """A request that has more messages than one before and says the same beside them: only these are looked at.

    They are a list by themselves. Put behind the last message of a request that was in order, they leave it so.
    """
    import msgspec

    known, end = last.known, last.known.spans[-1][1]
    tail = memoryview(last.body)[end:]
    at, stop = past_space(data, end), len(data) - len(tail)
    if at >= stop or data[at] != COMMA or not data.endswith(tail):
        return None
    items = b"[%b]" % data[at + 1 : stop]
    try:
        new = _spans(items, 0, raw_items().decode(items))
    except (msgspec.DecodeError, UnicodeError, RecursionError, IbidemError):
        return None
    if not new:
        return None
    spans = [*known.spans, *[(start + at, end + at) for start, end in new]]
    found = _ScannedBytes(data, last.key, last.head, spans, known.hashes)
    found.origin, found.same_head = known, True
    return found


def _same(data: bytes, known: Known) -> int:
    """With how many of the messages that are known a request begins."""
    found = 0
    for before, now in zip(known.hashes, _hashes(data, known.spans, 0), strict=True):
        if before != now:
            break
        found += 1
    return found


def _scan_bytes(data: bytes) -> Scanned | None:
    """Where the messages stand, from the lengths that the fast parser tells. None where anything is unusual."""
    import msgspec

    try:
        if data[:1] == b"[":
            raws = raw_items().decode(data)
            return _ScannedBytes(data, "", {}, _spans(data, 0, raws)) if raws else None
        fields = raw_fields().decode(data)
        keys = [name for name in HISTORY_KEYS if name in fields]
        if len(keys) != 1 or data[:1] != b"{":
            return None
        raws = raw_items().decode(fields[keys[0]])
        start = field_start(data, fields, keys[0])
        if not raws or start < 0:
            return None
        head = Head({name: raw for name, raw in fields.items() if name != keys[0]})
        return _ScannedBytes(data, keys[0], head, _spans(data, start, raws))
    except (msgspec.DecodeError, UnicodeError, RecursionError, IbidemError):
        return None


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
