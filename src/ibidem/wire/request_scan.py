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
from .json_offsets import CLOSE_LIST, COMMA, fields_decoder, items_decoder, skip_whitespace
from .json_text import parse
from .json_tree import JsonChange, apply_changes
from .request_params import RequestParams, field_start
from .sdk_objects import HISTORY_KEYS, dump_history
from .splice import splice

WrittenMessages = dict[int, tuple[int, bytes]]
"""Cache of rewritten messages: by index, the fingerprint of the client's message and its rewritten bytes."""


AROUND_MESSAGES = -1
"""Key in `WrittenMessages` for the text around the messages, which has no message index."""


class ScanState(NamedTuple):
    """Offsets and hashes of a request's messages. A later request that starts with them is recognized by this."""

    spans: list[tuple[int, int]]
    hashes: list[int]
    """For each message, the hash of its text and of the separator before it."""


class LastRequest(NamedTuple):
    """The previous request with its body. Comparing bodies is thirty times faster than hashing messages."""

    scan_state: ScanState
    body: bytes
    key: str
    params: Mapping[str, Any]
    size_bytes: int
    """Memory held by this object, in bytes."""


class ScannedRequest:
    """A request whose messages are parsed one by one, on demand."""

    original: Any
    key: str
    """The field that holds the history; empty for a bare list."""
    unchanged_count: int = 0
    """Number of messages at the start that are byte-identical to those of the previous request."""
    matched_state: ScanState | None = None
    """State of the previous request, which identified the unchanged messages."""
    has_same_params: bool = False
    """True if the request parameters are also unchanged."""
    scan_state: ScanState | None = None
    """State of this request, to recognize the next one without parsing its old messages."""
    unchanged_end: int = 0
    """Offset in the body where the unchanged messages end."""

    @property
    def params(self) -> Mapping[str, Any]:
        """Fields of the request without its history."""
        raise NotImplementedError

    @property
    def format_sample(self) -> Any:
        """The request with only its first messages: enough to detect its format."""
        raise NotImplementedError

    def __len__(self) -> int:
        raise NotImplementedError

    def make_last_request(self) -> LastRequest | None:
        """Return the data that recognizes the next request; None if this request is not JSON bytes."""
        return None

    def fingerprint(self, index: int) -> int | None:
        """Return a number that is equal for equal messages; None if that requires parsing the message."""
        return None

    def message_at(self, index: int) -> Any:
        """Return the parsed message at `index`."""
        raise NotImplementedError

    def message_size(self, index: int) -> int:
        """Return the approximate JSON length of a message, in bytes."""
        return len(to_json(self.message_at(index)))

    @property
    def params_size(self) -> int:
        """Approximate JSON length of the request parameters, in bytes; 0 if they are not valid JSON."""
        try:
            return len(to_json(dict(self.params)))
        except (TypeError, ValueError, RecursionError):
            return 0

    def rewritten_message(self, index: int, changes: Mapping[int, list[JsonChange]], cache: WrittenMessages) -> Any:
        """Return the message at `index` with its changes applied."""
        value = self.message_at(index)
        return apply_changes(value, changes[index]) if index in changes else value

    def write(
        self, changes: Mapping[int, list[JsonChange]], cache: WrittenMessages, late: Sequence[JsonChange] = ()
    ) -> Any:
        """Return the request with `changes` applied to its messages, by index.

        Then `late` changes are applied anywhere in the result. Their paths start at the request. Pass the same
        `cache` for all requests of a conversation: it has the rewritten messages.
        """
        raise NotImplementedError


_SAMPLE_MESSAGES = 64  # messages that format detection may read


def scan(request: Any, state: ScanState | None = None) -> ScannedRequest | None:
    """Scan a request; None if it must be parsed as a whole. Messages recognized by `state` are not parsed again."""
    if isinstance(request, bytes):
        return (scan_continuation(request, state) if state is not None else None) or _scan_bytes(request)
    key = _history_key(request)
    return None if key is None else _ScannedObject(request, key, request)


def scan_tolerantly(data: bytes) -> ScannedRequest | None:
    """Scan a body that only the standard library can parse, for example one with NaN; None if it is not a request."""
    try:
        value = parse(data)
    except IbidemError:
        return None
    key = _history_key(value)
    return None if key is None else _ScannedText(data, key, value)


def _history_key(value: Any) -> str | None:
    """Return the name of the field with the history; empty for a bare list, None if it is missing or ambiguous."""
    if isinstance(value, list):
        return "" if value else None
    names = [name for name in HISTORY_KEYS if isinstance(value.get(name), list)] if isinstance(value, dict) else []
    return names[0] if len(names) == 1 and value[names[0]] else None


class _ScannedObject(ScannedRequest):
    def __init__(self, original: Any, key: str, value: Any) -> None:
        self.original = original
        self.key = key
        given_history = value[key] if key else value
        self._history = dump_history(given_history)
        same = self._history is given_history
        self._value: Any = value if same else {**value, key: self._history} if key else self._history

    @property
    def params(self) -> Mapping[str, Any]:
        return {name: value for name, value in self._value.items() if name != self.key} if self.key else {}

    @property
    def format_sample(self) -> Any:
        return self._value

    def __len__(self) -> int:
        return len(self._history)

    def message_at(self, index: int) -> Any:
        return self._history[index]

    def write(
        self, changes: Mapping[int, list[JsonChange]], cache: WrittenMessages, late: Sequence[JsonChange] = ()
    ) -> Any:
        prefix: Path = (self.key,) if self.key else ()
        every = [
            JsonChange((*prefix, index, *one.path), one.op, one.value)
            for index, some in changes.items()
            for one in some
        ]
        new = self._apply_late_changes(self.original, self._value, every) if every else self.original
        return self._apply_late_changes(new, None, late) if late else new

    def _apply_late_changes(self, request: Any, value: Any, changes: Sequence[JsonChange]) -> Any:
        return apply_changes(request, changes)


class _ScannedText(_ScannedObject):
    """JSON text that only the tolerant parser accepts."""

    def _apply_late_changes(self, request: Any, value: Any, changes: Sequence[JsonChange]) -> Any:
        return splice(request, parse(request) if value is None else value, changes)


class _ScannedBytes(ScannedRequest):
    def __init__(
        self,
        original: bytes,
        key: str,
        head: Mapping[str, Any],
        spans: list[tuple[int, int]],
        hashes: Sequence[int] = (),
    ) -> None:
        self.original = original
        self.key = key
        self._params = head
        self._spans = spans
        self._hashes = hashes
        """Hashes of the unchanged messages."""
        self._values: dict[int, Any] = {}
        """Parsed new messages of a continued conversation, because several steps read them."""
        self.unchanged_count = len(hashes)
        self.unchanged_end = spans[self.unchanged_count - 1][1] if hashes else 0

    @property
    def params(self) -> Mapping[str, Any]:
        return self._params

    @cached_property
    def scan_state(self) -> ScanState:  # type: ignore[override]  # a lazy property here, a plain field in the base class
        return ScanState(self._spans, [*self._hashes, *_hash_messages(self.original, self._spans, len(self._hashes))])

    @property
    def format_sample(self) -> Any:
        some = [self.message_at(index) for index in range(min(_SAMPLE_MESSAGES, len(self)))]
        return {**self.params, self.key: some} if self.key else some

    def __len__(self) -> int:
        return len(self._spans)

    def fingerprint(self, index: int) -> int:
        start, end = self._spans[index]
        return hash(self.original[start:end])

    def make_last_request(self) -> LastRequest | None:
        head = self._params.copy_for_reuse() if isinstance(self._params, RequestParams) else self._params
        size = len(self.original) + (head.size_bytes if isinstance(head, RequestParams) else 0)
        return LastRequest(self.scan_state, self.original, self.key, head, size)

    def message_at(self, index: int) -> Any:
        if index in self._values:
            return self._values[index]
        start, end = self._spans[index]
        value = parse(self.original[start:end])
        if 0 < self.unchanged_count <= index:
            self._values[index] = value
        return value

    def message_size(self, index: int) -> int:
        start, end = self._spans[index]
        return end - start

    @property
    def params_size(self) -> int:
        return len(self.original) - self._spans[-1][1] + self._spans[0][0]

    def rewritten_message(self, index: int, changes: Mapping[int, list[JsonChange]], cache: WrittenMessages) -> Any:
        return parse(self._write_message(index, changes[index], cache)) if index in changes else self.message_at(index)

    def write(
        self, changes: Mapping[int, list[JsonChange]], cache: WrittenMessages, late: Sequence[JsonChange] = ()
    ) -> Any:
        if not changes and not late:
            return self.original
        beside = [change for change in late if change.path[0] != self.key]
        inside: dict[int, list[JsonChange]] = {}
        for path, op, value in late:
            if path[0] == self.key:
                inside.setdefault(int(path[1]), []).append(JsonChange(path[2:], op, value))
        view = memoryview(self.original)
        first, last = self._spans[0][0], self._spans[-1][1]
        before, after = self._write_surroundings(beside, cache) if beside else (view[:first], view[last:])
        pieces: list[bytes | memoryview] = [before]
        cursor = first
        for index in sorted(changes.keys() | inside.keys() if inside else changes):
            start, end = self._spans[index]
            pieces.append(view[cursor:start])
            new = self._write_message(index, changes[index], cache) if index in changes else self.original[start:end]
            pieces.append(_splice_message(new, inside[index], self.key) if index in inside else new)
            cursor = end
        return b"".join([*pieces, view[cursor:last], after])

    def _write_surroundings(self, changes: list[JsonChange], cache: WrittenMessages) -> tuple[bytes, bytes]:
        """Return the changed text before the first and after the last message.

        The body without its messages is itself a short request, so `splice` can edit it.
        """
        first, last = self._spans[0][0], self._spans[-1][1]
        bare = self.original[:first] + self.original[last:]
        fingerprint = hash((bare, repr(changes)))
        entry = cache.get(AROUND_MESSAGES)
        new = entry[1] if entry is not None and entry[0] == fingerprint else splice(bare, parse(bare), changes)
        cache[AROUND_MESSAGES] = (fingerprint, new)
        start = field_start(new, fields_decoder().decode(new), self.key)
        if start < 0:
            raise IbidemError("the request has a duplicate key: its messages and parameters cannot be separated")
        cut = start + first - bare.rindex(b"[", 0, first)
        return new[:cut], new[cut:]

    def _write_message(self, index: int, changes: list[JsonChange], cache: WrittenMessages) -> bytes:
        entry = cache.get(index)
        if entry is not None and index < self.unchanged_count:
            return entry[1]
        fingerprint = self.fingerprint(index)
        if entry is not None and entry[0] == fingerprint:
            return entry[1]
        start, end = self._spans[index]
        new = _splice_message(self.original[start:end], changes, self.key)
        cache[index] = (fingerprint, new)
        return new


def _splice_message(data: bytes, changes: Sequence[JsonChange], key: str) -> bytes:
    """Return a message with its changes.

    `lead` and `tail` nest it as deep as in the request, so that inserted values get the right indentation.
    """
    lead, tail, prefix = (b'{"":[', b"]}", ("", 0)) if key else (b"[", b"]", (0,))
    nested_changes = [JsonChange((*prefix, *one.path), one.op, one.value) for one in changes]
    value = [parse(data)]
    return splice(lead + data + tail, {"": value} if key else value, nested_changes)[len(lead) : -len(tail)]


def _hash_messages(data: bytes, spans: list[tuple[int, int]], first: int) -> Iterator[int]:
    """Hash each message with the separator before it. The random seed of the process prevents forged collisions."""
    at = spans[first - 1][1] if first else 0
    for _, end in spans[first:]:
        yield hash(data[at:end])
        at = end


def scan_continuation(data: bytes, state: ScanState, last: LastRequest | None = None) -> ScannedRequest | None:
    """Scan a request that starts like an earlier one, and parse only the part after that. None if it does not.

    Without the known messages, the rest is again a request. If the rest is valid, so is the whole body.
    Pass `last` if the earlier request's body is available, because comparing bodies is faster.
    """
    spans = state.spans
    if last is not None and last.scan_state is state and data.startswith(memoryview(last.body)[: spans[-1][1]]):
        if (appended_request := _scan_appended(data, last)) is not None:
            return appended_request
        same = len(spans)
    else:
        same = _count_matching(data, state)
    if not same:
        return None
    end = skip_whitespace(data, spans[same - 1][1])
    if data[end : end + 1] != b",":  # no new message
        return None
    start, rest = spans[0][0], skip_whitespace(data, end + 1)
    remainder = _scan_bytes(data[:start] + data[rest:])
    if not isinstance(remainder, _ScannedBytes):
        return None
    shift = rest - start
    new = ((first + shift, last + shift) for first, last in remainder._spans)
    request = _ScannedBytes(data, remainder.key, remainder.params, [*spans[:same], *new], state.hashes[:same])
    request.matched_state = state
    return request


def _scan_appended(data: bytes, last: LastRequest) -> ScannedRequest | None:
    """Scan a request that only appends messages to the last one, with the same parameters; None if it does not.

    The new messages alone form a JSON list. If that list is valid, the whole request is valid.
    """
    import msgspec

    state, end = last.scan_state, last.scan_state.spans[-1][1]
    tail = memoryview(last.body)[end:]
    at, stop = skip_whitespace(data, end), len(data) - len(tail)
    if at >= stop or data[at] != COMMA or not data.endswith(tail):
        return None
    items = b"[%b]" % data[at + 1 : stop]
    try:
        new = _message_spans(items, 0, items_decoder().decode(items))
    except (msgspec.DecodeError, UnicodeError, RecursionError, IbidemError):
        return None
    if not new:
        return None
    spans = [*state.spans, *[(start + at, end + at) for start, end in new]]
    request = _ScannedBytes(data, last.key, last.params, spans, state.hashes)
    request.matched_state, request.has_same_params = state, True
    return request


def _count_matching(data: bytes, state: ScanState) -> int:
    """Count the known messages that the request starts with."""
    count = 0
    for before, now in zip(state.hashes, _hash_messages(data, state.spans, 0), strict=True):
        if before != now:
            break
        count += 1
    return count


def _scan_bytes(data: bytes) -> ScannedRequest | None:
    """Locate the messages by the lengths that the fast parser reports. None if anything is unusual."""
    import msgspec

    try:
        if data[:1] == b"[":
            raws = items_decoder().decode(data)
            return _ScannedBytes(data, "", {}, _message_spans(data, 0, raws)) if raws else None
        fields = fields_decoder().decode(data)
        keys = [name for name in HISTORY_KEYS if name in fields]
        if len(keys) != 1 or data[:1] != b"{":
            return None
        raws = items_decoder().decode(fields[keys[0]])
        start = field_start(data, fields, keys[0])
        if not raws or start < 0:
            return None
        head = RequestParams({name: raw for name, raw in fields.items() if name != keys[0]})
        return _ScannedBytes(data, keys[0], head, _message_spans(data, start, raws))
    except (msgspec.DecodeError, UnicodeError, RecursionError, IbidemError):
        return None


def _message_spans(data: bytes, start: int, raws: list[Any]) -> list[tuple[int, int]]:
    spans = []
    at = skip_whitespace(data, start + 1)
    for raw in raws:
        end = at + memoryview(raw).nbytes
        spans.append((at, end))
        at = skip_whitespace(data, end)
        if data[at] == COMMA:
            at = skip_whitespace(data, at + 1)
    if data[at] != CLOSE_LIST:
        raise IbidemError("the JSON text does not match its parsed value")
    return spans
