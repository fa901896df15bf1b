"""Changes to JSON text: the named tokens are replaced, by offset, and every other byte is passed on as it came."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from ..model import IbidemError
from .spelling import DEFAULT_LOOK, Escapes, Look, respell
from .tree import Change, Op, by_key, rebuild

_SPACE = re.compile(rb"[ \t\n\r]*")
_SCALAR = re.compile(rb"[^\s,\]}]+")
_SURROGATE = re.compile("[\ud800-\udfff]")
_STRUCTURE = re.compile(rb'["\[\]{}]')
_QUOTE, _BACKSLASH, COMMA = b'"\\,'
CLOSE_LIST, CLOSE_OBJECT = b"]}"
_LONG = 512  # characters from which a string is worth the quick way to its end

Piece = bytes | memoryview
Pieces = list[Piece]
Changes = dict[Any, list[Change]]


def splice_text(text: str, value: Any, changes: Iterable[Change], depth: int = 0) -> str:
    """A short JSON text, such as the arguments of a call, with the named tokens replaced."""
    data = text.encode("utf-8", "surrogatepass")
    start = past_space(data, 0)
    splicer = _Splicer(data, memoryview(data), None, None, False)
    pieces, end = splicer.container(start, value, list(changes), depth)
    return b"".join([splicer.view[:start], *pieces, splicer.view[end:]]).decode("utf-8", "surrogatepass")


def splice(data: bytes, value: Any, changes: Iterable[Change]) -> bytes:
    """The JSON text with the changes made and every other byte as it was. `value` is what the text was parsed to."""
    changes = list(changes)
    start = past_space(data, 3 if data.startswith(b"\xef\xbb\xbf") else 0)
    history = value if isinstance(value, list) else value[changes[0].path[0]]
    lengths = _lengths(data, value, changes)
    plain = lengths is not None and all(map(_plain, changes))
    splicer = _Splicer(data, memoryview(data), history, lengths, plain)
    pieces, end = splicer.container(start, value, changes, 0)
    return b"".join([splicer.view[:start], *pieces, splicer.view[end:]])


class _Row:
    """The items of an array of which some come or go."""

    def __init__(self) -> None:
        self._items: list[tuple[bytes, Pieces | Change]] = []
        """Each behind what stood before it; a change if it is new."""
        self._gaps: list[bytes] = []

    def add(self, gap: bytes, item: Pieces, beside: Sequence[Change]) -> None:
        self._gaps.append(gap)
        self.put(beside, "before")
        if not any(change.op == "drop" for change in beside):
            self._items.append((gap, item))
        self.put(beside, "after")

    def put(self, beside: Sequence[Change], op: Op) -> None:
        self._items.extend((b"", change) for change in beside if change.op == op)

    def written(self, escapes: Escapes, look: Look, tail: bytes, depth: int) -> Pieces:
        """New items are spelled, and parted from the others, as these are."""
        lead, comma = [*self._gaps, b"", b""][:2]
        own = comma.lstrip()
        if not own and b"\n" in lead + look.comma:  # the only item: on a line of its own, or in a line
            own = b"," + (lead if b"\n" in lead else b"")
        look = look._replace(comma=own or look.comma)
        pieces: Pieces = [b"[", lead]
        for number, (gap, item) in enumerate(self._items):
            if number:
                pieces.append(gap if b"," in gap else look.comma)
            pieces.extend(item if isinstance(item, list) else [look.spelled(item.value, escapes, depth)])
        return [*pieces, tail if self._items else b"", b"]"]


@dataclass(slots=True)
class _Splicer:
    """One walk over the text, along the parsed value, from the first change to the last."""

    data: bytes
    view: memoryview
    history: Any
    """The one list that is long."""
    lengths: list[int] | None
    """Of its items in the text; None if that holds what only the tolerant parser takes."""
    compact: bool
    """So far the text is written as we would write it: then a value's end follows from its length."""
    look: Look = DEFAULT_LOOK
    """How the text was spelled where it was looked at last."""
    _escapes: Escapes | None = None
    """Once it was looked for."""

    def container(self, start: int, value: Any, changes: list[Change], depth: int) -> tuple[Pieces, int]:
        """The pieces of the container at `start`, changed, and where it ends; `depth` steps of the paths lead to it."""
        here, below = by_key(changes, depth)
        if isinstance(value, list):
            return self.array(start, value, here, below, depth)
        return self.object(start, value, here, below, depth)

    def object(
        self, start: int, value: dict[str, Any], here: Changes, below: Changes, depth: int
    ) -> tuple[Pieces, int]:
        data, cursor, pieces = self.data, start, Pieces()
        changed: set[str] = set()
        at = past_space(data, start + 1)
        while data[at] != CLOSE_OBJECT:
            stop = string_end(data, at)
            key = key_at(data, at, stop)
            first = past_space(data, past_space(data, stop) + 1)
            if (colon := data[stop:first]) != self.look.colon:
                self.look = self.look._replace(colon=colon)
            if key in here or key in below:
                if key in changed:
                    raise IbidemError(f"the key {key!r} stands twice in one object: which of them counts is unsure")
                changed.add(key)
                pieces.append(self.view[cursor:first])
                new, cursor = self.item(first, value[key], here.get(key, ()), below.get(key), depth + 1)
                pieces.extend(new)
                at = cursor
            else:
                at = self.end_of(first, value[key])
            at = self.comma(at)
        pieces.append(self.view[cursor : at + 1])
        return pieces, at + 1

    def array(self, start: int, value: list[Any], here: Changes, below: Changes, depth: int) -> tuple[Pieces, int]:
        """Untouched items in one piece with what stands between them, unless items come or go."""
        data = self.data
        # The history may be most of a body: where its messages were measured before, none is parsed to find its end.
        known = self.lengths if value is self.history else None
        # As long as no item comes or goes, every comma stays where it is, and all between two changed items is passed
        # on as one slice. Otherwise the commas must be laid anew, so items are collected one by one with their space.
        fixed = all(change.op == "set" for ops in here.values() for change in ops)
        row = _Row()
        pieces, cursor = Pieces(), start
        end, at = start + 1, past_space(data, start + 1)
        for index, item in enumerate(value):
            beside, inside = here.get(index, ()), below.get(index)
            first = at
            if beside or inside:
                new, at = self.item(first, item, beside, inside, depth + 1)
            else:
                at = first + known[index] if known else self.end_of(first, item)
                new = [self.view[first:at]]
            if not fixed:
                row.add(data[end:first], new, beside)
            elif beside or inside:
                pieces.extend([self.view[cursor:first], *new])
                cursor = at
            end, at = at, self.comma(at)
        # The value was parsed from this text by somebody else: ending anywhere but at the bracket, they do not agree.
        if data[at] != CLOSE_LIST:
            raise IbidemError("the text does not agree with what it was parsed to")
        if fixed:
            pieces.append(self.view[cursor : at + 1])
            return pieces, at + 1
        row.put(here.get(len(value), ()), "before")  # behind the last: named as before one that is not there
        if self._escapes is None:
            self._escapes = Escapes.of(data)
        return row.written(self._escapes, self.look, data[end:at], depth + 1), at + 1

    def item(
        self, at: int, value: Any, beside: Sequence[Change], below: list[Change] | None, depth: int
    ) -> tuple[Pieces, int]:
        """One value, changed; and where the original ends."""
        for change in beside:
            if change.op == "set":
                end = self.end_of(at, value)
                if isinstance(value, str) and isinstance(change.value, str):
                    return [respell(self.data[at:end], value, change.value)], end
                return [self.encode(change.value)], end
        if not below:
            end = self.end_of(at, value)
            return [self.view[at:end]], end
        if isinstance(value, str):  # JSON text in a string
            end = self.end_of(at, value)
            return [respell(self.data[at:end], value, rebuild(value, below, depth))], end
        if self.compact and value is not self.history:
            length = self.written(at, value)
            if length:  # then what we write differs from it in the changes alone
                return [self.encode(rebuild(value, below, depth))], at + length
        return self.container(at, value, below, depth)

    def written(self, at: int, value: Any) -> int:
        """Length of the value at `at`, if the text there is what we would write for it; else 0."""
        try:
            written = self.encode(value)
        except RecursionError:
            return 0
        return len(written) if self.data.startswith(written, at) else 0

    def encode(self, value: Any) -> Piece:
        return _encode(value) if self.compact else _encode_odd(value)

    def comma(self, at: int) -> int:
        at = past_space(self.data, at)
        if self.data[at] != COMMA:
            return at
        after = past_space(self.data, at + 1)
        if (comma := self.data[at:after]) != self.look.comma:
            self.look = self.look._replace(comma=comma)
        return after

    def end_of(self, at: int, value: Any) -> int:
        """Past the value that starts at `at`. It is prefix-free, so equal text is the value itself."""
        if self.compact if isinstance(value, dict | list) else isinstance(value, str) and len(value) > _LONG:
            length = self.written(at, value)
            if length:
                return at + length
            self.compact = self.compact and isinstance(value, str)
        return _value_end(self.data, at)


def _lengths(data: bytes, value: Any, changes: list[Change]) -> list[int] | None:
    """Lengths of the history's items, from the fast parser, so that they need not be walked through."""
    import msgspec

    try:
        if isinstance(value, list):
            items = raw_items().decode(data)
        else:
            items = raw_items(str(changes[0].path[0])).decode(data).items
    except (msgspec.DecodeError, RecursionError):
        return None
    return [memoryview(item).nbytes for item in items]


@cache
def raw_fields() -> Any:
    import msgspec

    return msgspec.json.Decoder(dict[str, msgspec.Raw])


@cache
def raw_items(key: str | None = None) -> Any:
    import msgspec

    if key is None:
        return msgspec.json.Decoder(list[msgspec.Raw])
    body = msgspec.defstruct("Body", [("items", list[msgspec.Raw])], rename={"items": key})
    return msgspec.json.Decoder(body)


def _plain(change: Change) -> bool:
    """Nothing or text is put in: what both writers write alike. Parts of a message may hold NaN, or any number."""
    value = change.value
    return value is None or (isinstance(value, str) and (value.isascii() or not _SURROGATE.search(value)))


def _encode(value: Any) -> bytes:
    import msgspec

    return msgspec.json.encode(value)


def _encode_odd(value: Any) -> bytes:
    """With lone surrogates escaped, and NaN and numbers of any size as the standard library writes them."""
    try:
        return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return json.dumps(value, separators=(",", ":")).encode()


def key_at(data: bytes, at: int, stop: int) -> str:
    written = data[at + 1 : stop - 1]
    return str(json.loads(data[at:stop])) if b"\\" in written else written.decode()


def past_space(data: bytes, at: int) -> int:
    """Past the whitespace at `at`; usually there is none."""
    if at < len(data) and data[at] > 0x20:
        return at
    return _SPACE.match(data, at).end()  # type: ignore[union-attr]  # it matches the empty string too


def string_end(data: bytes, at: int) -> int:
    """Past the closing quote of the string that opens at `at`."""
    while True:
        at = data.index(_QUOTE, at + 1)
        slashes = at
        while data[slashes - 1] == _BACKSLASH:
            slashes -= 1
        if (at - slashes) % 2 == 0:
            return at + 1


def _value_end(data: bytes, at: int) -> int:
    """Past the value that starts at `at`; iterative, so depth costs nothing."""
    if data[at] == _QUOTE:
        return string_end(data, at)
    if data[at] not in b"[{":
        return _SCALAR.match(data, at).end()  # type: ignore[union-attr]  # the text was parsed before
    depth = 0
    while True:
        at = _STRUCTURE.search(data, at).start()  # type: ignore[union-attr]
        byte = data[at]
        if byte == _QUOTE:
            at = string_end(data, at)
            continue
        depth += 1 if byte in b"[{" else -1
        at += 1
        if depth == 0:
            return at
