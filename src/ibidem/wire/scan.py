"""Scan a request body: locate its messages, and parse only the necessary ones.

A client sends the whole history with each request. `scan_continuation` recognizes the messages of the last request by
their bytes or hashes, so that only new messages are parsed.
"""

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
"""Cache of rewritten messages: by index, the fingerprint of the client's message and its rewritten bytes."""


BESIDE = -1
"""Key in `WrittenMessages` for the text around the messages, which has no message index."""


class Known(NamedTuple):
    """Offsets and hashes of a request's messages. A later request that starts with them is recognized by this."""

    spans: list[tuple[int, int]]
    hashes: list[int]
    """For each message, the hash of its text and of the separator before it."""


class LastRequest(NamedTuple):
    """The previous request with its body. Comparing bodies is thirty times faster than hashing messages."""

    known: Known
    body: bytes
    key: str
    head: Mapping[str, Any]
    size: int
    """Memory held by this object, in bytes."""


class Scanned:
    """A request whose messages are parsed one by one, on demand."""

    given: Any
    key: str
    """The field that holds the history; empty for a bare list."""
    unchanged: int = 0
    """Number of messages at the start that are byte-identical to those of the previous request."""
    origin: Known | None = None
    """State of the previous request, which identified the unchanged messages."""
    same_head: bool = False
    """True if the request parameters are also unchanged."""
    known: Known | None = None
    """State of this request, to recognize the next one without parsing its old messages."""
    start: int = 0
    """Offset in the body where the unchanged messages end."""

    @property
    def head(self) -> Mapping[str, Any]:
        """Fields of the request without its history."""
        raise NotImplementedError

    @property
    def sketch(self) -> Any:
        """The request with only its first messages: enough to detect its format."""
        raise NotImplementedError

    def __len__(self) -> int:
        raise NotImplementedError

    def last(self) -> LastRequest | None:
        """Return the data that recognizes the next request; None if this request is not JSON bytes."""
        return None

    def fingerprint(self, index: int) -> int | None:
        """Return a number that is equal for equal messages; None if that requires parsing the message."""
        return None

    def value(self, index: int) -> Any:
        """Return the parsed message at `index`."""
        raise NotImplementedError

    def size(self, index: int) -> int:
        """Return the approximate JSON length of a message, in bytes."""
        return len(to_json(self.value(index)))

    @property
    def beside(self) -> int:
        """Approximate JSON length of the request parameters, in bytes; 0 if they are not valid JSON."""
        try:
            return len(to_json(dict(self.head)))
        except (TypeError, ValueError, RecursionError):
            return 0

    def written_value(self, index: int, changes: Mapping[int, list[Change]], written: Written) -> Any:
        """Return the message at `index` with its changes applied."""
        value = self.value(index)
        return rebuild(value, changes[index]) if index in changes else value

    def write(self, changes: Mapping[int, list[Change]], written: Written, late: Sequence[Change] = ()) -> Any:
        """Return the request with `changes` applied to its messages, by index.

        Then `late` changes are applied anywhere in the result. Their paths start at the request. Pass the same
        `cache` for all requests of a conversation: it has the rewritten messages.
        """
        raise NotImplementedError


_SKETCH = 64  # messages that format detection may read


def scan(request: Any, known: Known | None = None) -> Scanned | None:
    """Scan a request; None if it must be parsed as a whole. Messages recognized by `state` are not parsed again."""
    if isinstance(request, bytes):
        return (rescan(request, known) if known is not None else None) or _scan_bytes(request)
    key = _history_of(request)
    return None if key is None else _ScannedValue(request, key, request)


def scan_tolerantly(data: bytes) -> Scanned | None:
    """Scan a body that only the standard library can parse, for example one with NaN; None if it is not a request."""
    try:
        value = parse(data)
    except IbidemError:
        return None
    key = _history_of(value)
    return None if key is None else _ScannedText(data, key, value)


def _history_of(value: Any) -> str | None:
    """Return the name of the field with the history; empty for a bare list, None if it is missing or ambiguous."""
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
    """JSON text that only the tolerant parser accepts."""

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
        """Hashes of the unchanged messages."""
        self._values: dict[int, Any] = {}
        """Parsed new messages of a continued conversation, because several steps read them."""
        self.unchanged = len(hashes)
        self.start = spans[self.unchanged - 1][1] if hashes else 0

    @property
    def head(self) -> Mapping[str, Any]:
        return self._head

    @cached_property
    def known(self) -> Known:  # type: ignore[override]  # a lazy property here, a plain field in the base class
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
        """Return the changed text before the first and after the last message.

        The body without its messages is itself a short request, so `splice` can edit it.
        """
        first, last = self._spans[0][0], self._spans[-1][1]
        bare = self.given[:first] + self.given[last:]
        fingerprint = hash((bare, repr(changes)))
        known = written.get(BESIDE)
        new = known[1] if known is not None and known[0] == fingerprint else splice(bare, parse(bare), changes)
        written[BESIDE] = (fingerprint, new)
        start = field_start(new, raw_fields().decode(new), self.key)
        if start < 0:
            raise IbidemError("the request has a duplicate key: its messages and parameters cannot be separated")
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
    """Return a message with its changes.

    `lead` and `tail` nest it as deep as in the request, so that inserted values get the right indentation.
    """
    lead, tail, prefix = (b'{"":[', b"]}", ("", 0)) if key else (b"[", b"]", (0,))
    wanted = [Change((*prefix, *one.path), one.op, one.value) for one in changes]
    value = [parse(data)]
    return splice(lead + data + tail, {"": value} if key else value, wanted)[len(lead) : -len(tail)]


def _hashes(data: bytes, spans: list[tuple[int, int]], first: int) -> Iterator[int]:
    """Hash each message with the separator before it. The random seed of the process prevents forged collisions."""
    at = spans[first - 1][1] if first else 0
    for _, end in spans[first:]:
        yield hash(data[at:end])
        at = end


def rescan(data: bytes, known: Known, last: LastRequest | None = None) -> Scanned | None:
    """Scan a request that starts like an earlier one, and parse only the part after that. None if it does not.

    Without the known messages, the rest is again a request. If the rest is valid, so is the whole body.
    Pass `last` if the earlier request's body is available, because comparing bodies is faster.
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
    if data[end : end + 1] != b",":  # no new message
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
    """Scan a request that only appends messages to the last one, with the same parameters; None if it does not.

    The new messages alone form a JSON list. If that list is valid, the whole request is valid.
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
    """Count the known messages that the request starts with."""
    found = 0
    for before, now in zip(known.hashes, _hashes(data, known.spans, 0), strict=True):
        if before != now:
            break
        found += 1
    return found


def _scan_bytes(data: bytes) -> Scanned | None:
    """Locate the messages by the lengths that the fast parser reports. None if anything is unusual."""
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
        raise IbidemError("the JSON text does not match its parsed value")
    return spans
