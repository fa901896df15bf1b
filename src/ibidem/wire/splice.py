"""Edit JSON text: replace the changed tokens by offset, and copy every other byte unchanged."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import IbidemError
from .offsets import (
    CLOSE_LIST,
    CLOSE_OBJECT,
    COMMA,
    key_at,
    lengths_of,
    packed_starts,
    past_space,
    string_end,
    value_end,
)
from .spelling import DEFAULT_LOOK, NO_ESCAPES, Escapes, Look, may_be_escaped, respell
from .tree import Change, Keyed, Op, by_key, filled, hole_of, moved, rebuild

_LONG = 512  # characters. For a longer string, comparing its encoded form is faster than searching its end

Piece = bytes | memoryview
Pieces = list[Piece]
Changes = dict[Any, list[Change]]
Spelled = Callable[[Any, Look, int], bytes]


def splice_text(text: str, value: Any, changes: Iterable[Change], depth: int = 0) -> str:
    """Return a short JSON text, such as the arguments of a call, with the changes made."""
    data = text.encode("utf-8", "surrogatepass")
    start = past_space(data, 0)
    splicer = _Splicer(data, memoryview(data), None, None, False, True)
    pieces, end = _walk(splicer, start, value, list(changes), depth)
    return b"".join([splicer.view[:start], *pieces, splicer.view[end:]]).decode("utf-8", "surrogatepass")


def splice(data: bytes, value: Any, changes: Iterable[Change], *, raw_surrogates: bool = False) -> bytes:
    """Return JSON text with the changes made and every other byte unchanged. `value` is the parsed text.

    With `raw_surrogates`, lone surrogates are not escaped, and the caller decodes them with "surrogatepass".
    """
    changes = list(changes)
    start = past_space(data, 3 if data.startswith(b"\xef\xbb\xbf") else 0)
    key = _longest(value, changes)
    history = value if key is None else value.get(key)
    lengths = lengths_of(data, key)
    plain = lengths is not None and all(map(_plain, changes))
    splicer = _Splicer(data, memoryview(data), history, lengths, plain, raw_surrogates)
    pieces, end = _walk(splicer, start, value, changes, 0)
    return b"".join([splicer.view[:start], *pieces, splicer.view[end:]])


def _walk(splicer: _Splicer, start: int, value: Any, changes: list[Change], depth: int) -> tuple[Pieces, int]:
    """Return the pieces of the changed text, and the offset where the value ends.

    Raises IbidemError if an object has a duplicate key. The parser uses the last of equal keys, but the walk over the
    text finds the first one, which may have another type.
    """
    try:
        return splicer.container(start, value, changes, depth)
    except (LookupError, ValueError, TypeError, AttributeError):
        json.loads(splicer.data.decode("utf-8-sig", "surrogatepass"), object_pairs_hook=_refuse_equal_keys)
        raise


def _refuse_equal_keys(pairs: list[tuple[str, Any]]) -> None:
    seen: set[str] = set()
    for key, _ in pairs:
        if key in seen:
            raise IbidemError(f"the key {key!r} appears twice in one object: remove one of the two")
        seen.add(key)


class _Row:
    """Items of an array or object in which items are added, removed or moved."""

    def __init__(self) -> None:
        self._items: list[tuple[bytes, Pieces | Change]] = []
        """Pairs of the text before an item and the item's pieces, or the change that adds it."""
        self._gaps: list[bytes] = []

    def add(self, gap: bytes, item: Pieces, beside: Sequence[Change]) -> None:
        self._gaps.append(gap)
        self.put(beside, "before")
        if not any(change.op == "drop" for change in beside):
            self._items.append((gap, item))
        self.put(beside, "after")

    def move(self, old: int, new: int) -> None:
        """Move an item to another index. The text between items stays in place."""
        items = moved([item for _, item in self._items], old, new)
        self._items = [(gap, item) for (gap, _), item in zip(self._items, items, strict=True)]

    def insert(self, item: Change, place: int = sys.maxsize) -> None:
        self._items.insert(place, (b"", item))

    def __len__(self) -> int:
        return len(self._items)

    def put(self, beside: Sequence[Change], op: Op) -> None:
        self._items.extend((b"", change) for change in beside if change.op == op)

    def written(self, spelled: Spelled, look: Look, tail: bytes, depth: int, brackets: bytes = b"[]") -> Pieces:
        """Return the pieces of the container. New items get the style and separators of the existing ones."""
        lead, comma = [*self._gaps, b"", b""][:2]
        own = comma.lstrip()
        if not own and b"\n" in lead + look.comma:  # a single item shows no separator: use its line break, if any
            own = b"," + (lead if b"\n" in lead else b"")
        look = look._replace(comma=own or look.comma)
        pieces: Pieces = [brackets[:1], lead]
        for number, (gap, item) in enumerate(self._items):
            if number:
                pieces.append(gap if b"," in gap else look.comma)
            pieces.extend(item if isinstance(item, list) else self._new(item.value, look, spelled, depth, brackets))
        return [*pieces, tail if self._items or brackets == b"{}" else b"", brackets[1:]]

    def _new(self, value: Any, look: Look, spelled: Spelled, depth: int, brackets: bytes) -> Pieces:
        if brackets == b"[]":
            return [spelled(value, look, depth)]
        ((key, inner),) = value.items()
        return [spelled(key, look, depth), look.colon, spelled(inner, look, depth)]


@dataclass(slots=True)
class _Splicer:
    """One walk over the text, along the parsed value, from the first change to the last."""

    data: bytes
    view: memoryview
    history: Any
    """The longest list, usually most of the text."""
    lengths: list[int] | None
    """JSON length of each item of `history`; None if only the tolerant parser can read the text."""
    compact: bool
    """True while the text equals our own encoding. Then the end of a value follows from its encoded length."""
    raw_surrogates: bool
    """Do not escape lone surrogates: the text is a Python string, and the result is decoded again."""
    look: Look = DEFAULT_LOOK
    """Separators at the last position that was read."""
    _escapes: Escapes | None = None
    """Escapes of the text; None until a new value needs them."""

    def container(self, start: int, value: Any, changes: list[Change], depth: int) -> tuple[Pieces, int]:
        """Return the pieces of the changed container at `start`, and its end. `depth` is the path length to it."""
        here, below = by_key(changes, depth)
        if isinstance(value, list):
            return self.array(start, value, here, below, depth)
        return self.object(start, value, here, below, depth)

    def object(
        self, start: int, value: dict[str, Any], here: Changes, below: Changes, depth: int
    ) -> tuple[Pieces, int]:
        data, pieces, cursor = self.data, Pieces(), start
        changed: set[str] = set()
        # As with arrays, separators are written again only if keys are added, removed or moved.
        row = None if all(each in value and not any(map(_moves, here[each])) for each in here) else _Row()
        moves: list[tuple[int, int]] = []
        end, at = start + 1, past_space(data, start + 1)
        while data[at] != CLOSE_OBJECT:
            opened = at
            stop = string_end(data, at)
            key = key_at(data, at, stop)
            first = past_space(data, past_space(data, stop) + 1)
            if (colon := data[stop:first]) != self.look.colon:
                self.look = self.look._replace(colon=colon)
            if key in here or key in below:
                if key in changed:
                    raise IbidemError(f"the key {key!r} appears twice in one object: remove one of the two")
                changed.add(key)
                new, stop = self.item(first, value[key], here.get(key, ()), below.get(key), depth + 1)
                pieces += [self.view[cursor:first], *new]
                cursor = stop
            else:
                stop = self.end_of(first, value[key])
                new = [self.view[first:stop]]
            if row is not None:
                moves += [(len(row), place) for place in _places(here.get(key, ()))]
                row.add(data[end:opened], [self.view[opened:first], *new], here.get(key, ()))
            end, at = stop, self.comma(stop)
        if row is None:
            pieces.append(self.view[cursor : at + 1])
            return pieces, at + 1
        added = rebuild({}, [change for key in here if key not in value for change in here[key]], depth)
        for old, place in moves:
            row.move(old, place)
        for key, each in added.items():
            row.insert(Change((), "before", {key: each}), *_places(here[key]))
        return row.written(self.spelled, self.look, data[end:at], depth + 1, b"{}"), at + 1

    def spelled(self, value: Any, look: Look, depth: int) -> bytes:
        """Encode a new value in the style of the text. The escapes of the text are detected only if they matter."""
        if self._escapes is None and may_be_escaped(value):
            self._escapes = Escapes.of(self.data)
        return look.spelled(value, self._escapes or NO_ESCAPES, depth)

    def array(self, start: int, value: list[Any], here: Changes, below: Changes, depth: int) -> tuple[Pieces, int]:
        """Return the pieces of a changed array, and its end."""
        data = self.data
        # The history may be most of a body. Its item lengths are known, so no item is parsed to find its end.
        known = self.lengths if value is self.history else None
        # If no item is added or removed, all commas stay, and the text between two changed items is copied as one
        # slice. Otherwise the commas change, so items are collected one by one with their whitespace.
        fixed = all(change.op in ("set", "lift") for ops in here.values() for change in ops)
        if known and fixed and (starts := packed_starts(data, start, known)):
            return self.packed(start, value, here, below, depth, starts)
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
        # The caller parsed the value. If the walk does not end at the bracket, the value is not from this text.
        if data[at] != CLOSE_LIST:
            raise IbidemError("the JSON text does not match its parsed value")
        if fixed:
            pieces.append(self.view[cursor : at + 1])
            return pieces, at + 1
        row.put(here.get(len(value), ()), "before")  # appended items: "before" the index after the last
        return row.written(self.spelled, self.look, data[end:at], depth + 1), at + 1

    def packed(
        self, start: int, value: list[Any], here: Changes, below: Changes, depth: int, starts: list[int]
    ) -> tuple[Pieces, int]:
        """Return the pieces of an array with known item offsets, and its end. Unchanged items are skipped."""
        pieces, cursor = Pieces(), start
        for index in sorted({*here, *below}):
            first = starts[index]
            if index:
                self.parted(b",")
            new, end = self.item(first, value[index], here.get(index, ()), below.get(index), depth + 1)
            pieces.extend([self.view[cursor:first], *new])
            cursor = end
        pieces.append(self.view[cursor : starts[-1]])
        if cursor + 1 < starts[-1]:
            self.parted(b",")
        return pieces, starts[-1]

    def item(
        self, at: int, value: Any, beside: Sequence[Change], below: list[Change] | None, depth: int
    ) -> tuple[Pieces, int]:
        """Return the pieces of one changed value, and where the original ends."""
        for change in beside:
            if change.op == "set":
                end, new = self.end_of(at, value), _unplaced(change.value)
                if isinstance(value, str) and isinstance(new, str):
                    return [self.respelled(at, end, value, new)], end
                if hole_of(new) is not None:
                    return self.around(self.data[at:end], new, depth), end
                return [self.encode(new)], end
            if change.op == "lift":
                return [self.inside(at, value, change.value)], self.end_of(at, value)
        if not below:
            end = self.end_of(at, value)
            return [self.view[at:end]], end
        if isinstance(value, str):  # JSON text in a string
            end = self.end_of(at, value)
            return [self.respelled(at, end, value, rebuild(value, below, depth))], end
        if self.compact and value is not self.history:
            length = self.written(at, value)
            if length:  # our encoding of the old value equals the text, so encoding the new one is safe
                return [self.encode(rebuild(value, below, depth))], at + length
        return self.container(at, value, below, depth)

    def respelled(self, at: int, end: int, old: str, new: str) -> bytes:
        return respell(self.data[at:end], old, new, raw_surrogates=self.raw_surrogates)

    def around(self, token: bytes, template: Any, depth: int) -> Pieces:
        """Encode a template in the style of the text, with the original token in place of `...`."""
        sign = "0"  # placeholder, made longer until it is unique in the template
        while (spelled := self.spelled(filled(template, sign), self.look, depth)).count(sign.encode()) != 1:
            sign += "0"
        before, after = spelled.split(b'"%b"' % sign.encode())
        return [before, token, after]

    def inside(self, at: int, value: Any, path: Iterable[Any]) -> Piece:
        """Return the text of the value at `path` inside the value at `at`."""
        for step in path:
            number, at = 0, past_space(self.data, at + 1)
            while True:
                first, key = self.named(at) if isinstance(value, dict) else (at, number)
                if key == step:
                    break
                number, at = number + 1, self.comma(self.end_of(first, value[key]))
            at, value = first, value[step]
        return self.view[at : self.end_of(at, value)]

    def named(self, at: int) -> tuple[int, Any]:
        """Return the offset of the value whose key is at `at`, and the key."""
        stop = string_end(self.data, at)
        return past_space(self.data, past_space(self.data, stop) + 1), key_at(self.data, at, stop)

    def written(self, at: int, value: Any) -> int:
        """Return the length of the value at `at` if the text equals our encoding of it; else 0."""
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
        self.parted(self.data[at:after])
        return after

    def parted(self, comma: bytes) -> None:
        """Note the separator between items at this position."""
        if comma != self.look.comma:
            self.look = self.look._replace(comma=comma)

    def end_of(self, at: int, value: Any) -> int:
        """Return the offset after the value that starts at `at`.

        Comparing with the encoded value is enough: no container or string is a prefix of another one.
        """
        if self.compact if isinstance(value, dict | list) else isinstance(value, str) and len(value) > _LONG:
            length = self.written(at, value)
            if length:
                return at + length
            self.compact = self.compact and isinstance(value, str)
        return value_end(self.data, at)


def _longest(value: Any, changes: list[Change]) -> str | None:
    """Return the changed field with the longest list, usually the history. None for a bare list."""
    if isinstance(value, list):
        return None
    names = [str(change.path[0]) for change in changes]
    return max(names, key=lambda name: len(found) if isinstance(found := value.get(name), list) else -1)


def _moves(change: Change) -> bool:
    """Return True if the change removes its key or gives it a position."""
    return change.op == "drop" or isinstance(change.value, Keyed)


def _places(beside: Sequence[Change]) -> list[int]:
    return [change.value.at for change in beside if isinstance(change.value, Keyed)]


def _unplaced(value: Any) -> Any:
    return value.value if isinstance(value, Keyed) else value


def _plain(change: Change) -> bool:
    """Return True if the change sets null or text, which both of our encoders write the same way.

    Other values may contain NaN or long numbers, which the fast encoder does not write.
    """
    value = _unplaced(change.value)
    return value is None or (isinstance(value, str) and _is_unicode(value))


def _is_unicode(text: str) -> bool:
    """Return True if the text has no lone surrogates."""
    try:
        return text.isascii() or bool(text.encode())
    except UnicodeEncodeError:
        return False


def _encode(value: Any) -> bytes:
    import msgspec

    return msgspec.json.encode(value)


def _encode_odd(value: Any) -> bytes:
    """Encode with the standard library, which supports NaN and numbers of any size, and escape lone surrogates."""
    try:
        return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return json.dumps(value, separators=(",", ":")).encode()
