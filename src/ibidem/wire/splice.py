"""Edit JSON text: replace the changed tokens by offset, and copy every other byte unchanged."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import IbidemError
from .json_offsets import (
    CLOSE_LIST,
    CLOSE_OBJECT,
    COMMA,
    compact_item_offsets,
    item_lengths,
    read_key,
    skip_whitespace,
    string_end,
    value_end,
)
from .json_style import DEFAULT_STYLE, NO_ESCAPES, EscapeStyle, JsonStyle, encode_like, may_be_escaped
from .json_tree import (
    JsonChange,
    KeyedValue,
    Op,
    apply_changes,
    fill_placeholder,
    group_by_key,
    move_item,
    placeholder_path,
)

_LONG = 512  # characters. For a longer string, comparing its encoded form is faster than searching its end

Piece = bytes | memoryview
Pieces = list[Piece]
Changes = dict[Any, list[JsonChange]]
ValueEncoder = Callable[[Any, JsonStyle, int], bytes]


def splice_text(text: str, value: Any, changes: Iterable[JsonChange], depth: int = 0) -> str:
    """Return a short JSON text, such as the arguments of a call, with the changes made."""
    data = text.encode("utf-8", "surrogatepass")
    start = skip_whitespace(data, 0)
    splicer = _TextSplicer(data, memoryview(data), None, None, False, True)
    pieces, end = _walk_changes(splicer, start, value, list(changes), depth)
    return b"".join([splicer.view[:start], *pieces, splicer.view[end:]]).decode("utf-8", "surrogatepass")


def splice(data: bytes, value: Any, changes: Iterable[JsonChange], *, raw_surrogates: bool = False) -> bytes:
    """Return JSON text with the changes made and every other byte unchanged. `value` is the parsed text.

    With `raw_surrogates`, lone surrogates are not escaped, and the caller decodes them with "surrogatepass".
    """
    changes = list(changes)
    start = skip_whitespace(data, 3 if data.startswith(b"\xef\xbb\xbf") else 0)
    key = _longest_list_key(value, changes)
    history = value if key is None else value.get(key)
    lengths = item_lengths(data, key)
    plain = lengths is not None and all(map(_is_null_or_text, changes))
    splicer = _TextSplicer(data, memoryview(data), history, lengths, plain, raw_surrogates)
    pieces, end = _walk_changes(splicer, start, value, changes, 0)
    return b"".join([splicer.view[:start], *pieces, splicer.view[end:]])


def _walk_changes(
    splicer: _TextSplicer, start: int, value: Any, changes: list[JsonChange], depth: int
) -> tuple[Pieces, int]:
    """Return the pieces of the changed text, and the offset where the value ends.

    Raises IbidemError if an object has a duplicate key. The parser uses the last of equal keys, but the walk over the
    text finds the first one, which may have another type.
    """
    try:
        return splicer.splice_container(start, value, changes, depth)
    except (LookupError, ValueError, TypeError, AttributeError):
        json.loads(splicer.data.decode("utf-8-sig", "surrogatepass"), object_pairs_hook=_reject_equal_keys)
        raise


def _reject_equal_keys(pairs: list[tuple[str, Any]]) -> None:
    earlier_keys: set[str] = set()
    for key, _ in pairs:
        if key in earlier_keys:
            raise IbidemError(f"the key {key!r} appears twice in one object: remove one of the two")
        earlier_keys.add(key)


class _ContainerEdit:
    """Items of an array or object in which items are added, removed or moved."""

    def __init__(self) -> None:
        self._items: list[tuple[bytes, Pieces | JsonChange]] = []
        """Pairs of the text before an item and the item's pieces, or the change that adds it."""
        self._gaps: list[bytes] = []

    def add_item(self, gap: bytes, item: Pieces, item_changes: Sequence[JsonChange]) -> None:
        self._gaps.append(gap)
        self.insert_changes(item_changes, "before")
        if not any(change.op == "drop" for change in item_changes):
            self._items.append((gap, item))
        self.insert_changes(item_changes, "after")

    def move_item(self, old: int, new: int) -> None:
        """Move an item to another index. The text between items stays in place."""
        items = move_item([item for _, item in self._items], old, new)
        self._items = [(gap, item) for (gap, _), item in zip(self._items, items, strict=True)]

    def insert_item(self, item: JsonChange, place: int = sys.maxsize) -> None:
        self._items.insert(place, (b"", item))

    def __len__(self) -> int:
        return len(self._items)

    def insert_changes(self, item_changes: Sequence[JsonChange], op: Op) -> None:
        self._items.extend((b"", change) for change in item_changes if change.op == op)

    def write_items(
        self, encode: ValueEncoder, style: JsonStyle, tail: bytes, depth: int, brackets: bytes = b"[]"
    ) -> Pieces:
        """Return the pieces of the container. New items get the style and separators of the existing ones."""
        lead, comma = [*self._gaps, b"", b""][:2]
        separator = comma.lstrip()
        if (
            not separator and b"\n" in lead + style.comma
        ):  # a single item shows no separator: use its line break, if any
            separator = b"," + (lead if b"\n" in lead else b"")
        style = style._replace(comma=separator or style.comma)
        pieces: Pieces = [brackets[:1], lead]
        for number, (gap, item) in enumerate(self._items):
            if number:
                pieces.append(gap if b"," in gap else style.comma)
            pieces.extend(
                item if isinstance(item, list) else self._write_new_item(item.value, style, encode, depth, brackets)
            )
        return [*pieces, tail if self._items or brackets == b"{}" else b"", brackets[1:]]

    def _write_new_item(
        self, value: Any, style: JsonStyle, encode: ValueEncoder, depth: int, brackets: bytes
    ) -> Pieces:
        if brackets == b"[]":
            return [encode(value, style, depth)]
        ((key, inner),) = value.items()
        return [encode(key, style, depth), style.colon, encode(inner, style, depth)]


@dataclass(slots=True)
class _TextSplicer:
    """One walk over the text, along the parsed value, from the first change to the last."""

    data: bytes
    view: memoryview
    history: Any
    """The longest list, usually most of the text."""
    lengths: list[int] | None
    """JSON length of each item of `history`; None if only the tolerant parser can read the text."""
    is_compact: bool
    """True while the text equals our own encoding. Then the end of a value follows from its encoded length."""
    raw_surrogates: bool
    """Do not escape lone surrogates: the text is a Python string, and the result is decoded again."""
    style: JsonStyle = DEFAULT_STYLE
    """Separators at the last position that was read."""
    _escapes: EscapeStyle | None = None
    """Escapes of the text; None until a new value needs them."""

    def splice_container(self, start: int, value: Any, changes: list[JsonChange], depth: int) -> tuple[Pieces, int]:
        """Return the pieces of the changed container at `start`, and its end. `depth` is the path length to it."""
        here, below = group_by_key(changes, depth)
        if isinstance(value, list):
            return self.splice_array(start, value, here, below, depth)
        return self.splice_object(start, value, here, below, depth)

    def splice_object(
        self, start: int, value: dict[str, Any], here: Changes, below: Changes, depth: int
    ) -> tuple[Pieces, int]:
        data, pieces, cursor = self.data, Pieces(), start
        changed_keys: set[str] = set()
        # As with arrays, separators are written again only if keys are added, removed or moved.
        row = None if all(each in value and not any(map(_moves_key, here[each])) for each in here) else _ContainerEdit()
        moves: list[tuple[int, int]] = []
        end, at = start + 1, skip_whitespace(data, start + 1)
        while data[at] != CLOSE_OBJECT:
            key_start = at
            stop = string_end(data, at)
            key = read_key(data, at, stop)
            first = skip_whitespace(data, skip_whitespace(data, stop) + 1)
            if (colon := data[stop:first]) != self.style.colon:
                self.style = self.style._replace(colon=colon)
            if key in here or key in below:
                if key in changed_keys:
                    raise IbidemError(f"the key {key!r} appears twice in one object: remove one of the two")
                changed_keys.add(key)
                new, stop = self.splice_item(first, value[key], here.get(key, ()), below.get(key), depth + 1)
                pieces += [self.view[cursor:first], *new]
                cursor = stop
            else:
                stop = self.find_end(first, value[key])
                new = [self.view[first:stop]]
            if row is not None:
                moves += [(len(row), place) for place in _key_positions(here.get(key, ()))]
                row.add_item(data[end:key_start], [self.view[key_start:first], *new], here.get(key, ()))
            end, at = stop, self.skip_comma(stop)
        if row is None:
            pieces.append(self.view[cursor : at + 1])
            return pieces, at + 1
        new_members = apply_changes({}, [change for key in here if key not in value for change in here[key]], depth)
        for old, place in moves:
            row.move_item(old, place)
        for key, each in new_members.items():
            row.insert_item(JsonChange((), "before", {key: each}), *_key_positions(here[key]))
        return row.write_items(self.encode_new, self.style, data[end:at], depth + 1, b"{}"), at + 1

    def encode_new(self, value: Any, style: JsonStyle, depth: int) -> bytes:
        """Encode a new value in the style of the text. The escapes of the text are detected only if they matter."""
        if self._escapes is None and may_be_escaped(value):
            self._escapes = EscapeStyle.from_text(self.data)
        return style.encode_value(value, self._escapes or NO_ESCAPES, depth)

    def splice_array(
        self, start: int, value: list[Any], here: Changes, below: Changes, depth: int
    ) -> tuple[Pieces, int]:
        """Return the pieces of a changed array, and its end."""
        data = self.data
        # The history may be most of a body. Its item lengths are known, so no item is parsed to find its end.
        lengths = self.lengths if value is self.history else None
        # If no item is added or removed, all commas stay, and the text between two changed items is copied as one
        # slice. Otherwise the commas change, so items are collected one by one with their whitespace.
        has_fixed_items = all(change.op in ("set", "lift") for ops in here.values() for change in ops)
        if lengths and has_fixed_items and (starts := compact_item_offsets(data, start, lengths)):
            return self.splice_compact_array(start, value, here, below, depth, starts)
        row = _ContainerEdit()
        pieces, cursor = Pieces(), start
        end, at = start + 1, skip_whitespace(data, start + 1)
        for index, item in enumerate(value):
            item_changes, inside = here.get(index, ()), below.get(index)
            first = at
            if item_changes or inside:
                new, at = self.splice_item(first, item, item_changes, inside, depth + 1)
            else:
                at = first + lengths[index] if lengths else self.find_end(first, item)
                new = [self.view[first:at]]
            if not has_fixed_items:
                row.add_item(data[end:first], new, item_changes)
            elif item_changes or inside:
                pieces.extend([self.view[cursor:first], *new])
                cursor = at
            end, at = at, self.skip_comma(at)
        # The caller parsed the value. If the walk does not end at the bracket, the value is not from this text.
        if data[at] != CLOSE_LIST:
            raise IbidemError("the JSON text does not match its parsed value")
        if has_fixed_items:
            pieces.append(self.view[cursor : at + 1])
            return pieces, at + 1
        row.insert_changes(here.get(len(value), ()), "before")  # appended items: "before" the index after the last
        return row.write_items(self.encode_new, self.style, data[end:at], depth + 1), at + 1

    def splice_compact_array(
        self, start: int, value: list[Any], here: Changes, below: Changes, depth: int, starts: list[int]
    ) -> tuple[Pieces, int]:
        """Return the pieces of an array with known item offsets, and its end. Unchanged items are skipped."""
        pieces, cursor = Pieces(), start
        for index in sorted({*here, *below}):
            first = starts[index]
            if index:
                self.note_comma(b",")
            new, end = self.splice_item(first, value[index], here.get(index, ()), below.get(index), depth + 1)
            pieces.extend([self.view[cursor:first], *new])
            cursor = end
        pieces.append(self.view[cursor : starts[-1]])
        if cursor + 1 < starts[-1]:
            self.note_comma(b",")
        return pieces, starts[-1]

    def splice_item(
        self, at: int, value: Any, item_changes: Sequence[JsonChange], below: list[JsonChange] | None, depth: int
    ) -> tuple[Pieces, int]:
        """Return the pieces of one changed value, and where the original ends."""
        for change in item_changes:
            if change.op == "set":
                end, new = self.find_end(at, value), _bare_value(change.value)
                if isinstance(value, str) and isinstance(new, str):
                    return [self.encode_string_like(at, end, value, new)], end
                if placeholder_path(new) is not None:
                    return self.wrap_token(self.data[at:end], new, depth), end
                return [self.encode_value(new)], end
            if change.op == "lift":
                return [self.text_at(at, value, change.value)], self.find_end(at, value)
        if not below:
            end = self.find_end(at, value)
            return [self.view[at:end]], end
        if isinstance(value, str):  # JSON text in a string
            end = self.find_end(at, value)
            return [self.encode_string_like(at, end, value, apply_changes(value, below, depth))], end
        if self.is_compact and value is not self.history:
            length = self.compact_length(at, value)
            if length:  # our encoding of the old value equals the text, so encoding the new one is safe
                return [self.encode_value(apply_changes(value, below, depth))], at + length
        return self.splice_container(at, value, below, depth)

    def encode_string_like(self, at: int, end: int, old: str, new: str) -> bytes:
        return encode_like(self.data[at:end], old, new, raw_surrogates=self.raw_surrogates)

    def wrap_token(self, token: bytes, template: Any, depth: int) -> Pieces:
        """Encode a template in the style of the text, with the original token in place of `...`."""
        sign = "0"  # placeholder, made longer until it is unique in the template
        while (encoded_text := self.encode_new(fill_placeholder(template, sign), self.style, depth)).count(
            sign.encode()
        ) != 1:
            sign += "0"
        before, after = encoded_text.split(b'"%b"' % sign.encode())
        return [before, token, after]

    def text_at(self, at: int, value: Any, path: Iterable[Any]) -> Piece:
        """Return the text of the value at `path` inside the value at `at`."""
        for step in path:
            number, at = 0, skip_whitespace(self.data, at + 1)
            while True:
                first, key = self.read_member(at) if isinstance(value, dict) else (at, number)
                if key == step:
                    break
                number, at = number + 1, self.skip_comma(self.find_end(first, value[key]))
            at, value = first, value[step]
        return self.view[at : self.find_end(at, value)]

    def read_member(self, at: int) -> tuple[int, Any]:
        """Return the offset of the value whose key is at `at`, and the key."""
        stop = string_end(self.data, at)
        return skip_whitespace(self.data, skip_whitespace(self.data, stop) + 1), read_key(self.data, at, stop)

    def compact_length(self, at: int, value: Any) -> int:
        """Return the length of the value at `at` if the text equals our encoding of it; else 0."""
        try:
            encoded_value = self.encode_value(value)
        except RecursionError:
            return 0
        return len(encoded_value) if self.data.startswith(encoded_value, at) else 0

    def encode_value(self, value: Any) -> Piece:
        return _encode_compact(value) if self.is_compact else _encode_odd(value)

    def skip_comma(self, at: int) -> int:
        at = skip_whitespace(self.data, at)
        if self.data[at] != COMMA:
            return at
        after = skip_whitespace(self.data, at + 1)
        self.note_comma(self.data[at:after])
        return after

    def note_comma(self, comma: bytes) -> None:
        """Note the separator between items at this position."""
        if comma != self.style.comma:
            self.style = self.style._replace(comma=comma)

    def find_end(self, at: int, value: Any) -> int:
        """Return the offset after the value that starts at `at`.

        Comparing with the encoded value is enough: no container or string is a prefix of another one.
        """
        if self.is_compact if isinstance(value, dict | list) else isinstance(value, str) and len(value) > _LONG:
            length = self.compact_length(at, value)
            if length:
                return at + length
            self.is_compact = self.is_compact and isinstance(value, str)
        return value_end(self.data, at)


def _longest_list_key(value: Any, changes: list[JsonChange]) -> str | None:
    """Return the changed field with the longest list, usually the history. None for a bare list."""
    if isinstance(value, list):
        return None
    names = [str(change.path[0]) for change in changes]
    return max(names, key=lambda name: len(items) if isinstance(items := value.get(name), list) else -1)


def _moves_key(change: JsonChange) -> bool:
    """Return True if the change removes its key or gives it a position."""
    return change.op == "drop" or isinstance(change.value, KeyedValue)


def _key_positions(item_changes: Sequence[JsonChange]) -> list[int]:
    return [change.value.position for change in item_changes if isinstance(change.value, KeyedValue)]


def _bare_value(value: Any) -> Any:
    return value.value if isinstance(value, KeyedValue) else value


def _is_null_or_text(change: JsonChange) -> bool:
    """Return True if the change sets null or text, which both of our encoders write the same way.

    Other values may contain NaN or long numbers, which the fast encoder does not write.
    """
    value = _bare_value(change.value)
    return value is None or (isinstance(value, str) and _is_unicode(value))


def _is_unicode(text: str) -> bool:
    """Return True if the text has no lone surrogates."""
    try:
        return text.isascii() or bool(text.encode())
    except UnicodeEncodeError:
        return False


def _encode_compact(value: Any) -> bytes:
    import msgspec

    return msgspec.json.encode(value)


def _encode_odd(value: Any) -> bytes:
    """Encode with the standard library, which supports NaN and numbers of any size, and escape lone surrogates."""
    try:
        return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return json.dumps(value, separators=(",", ":")).encode()
