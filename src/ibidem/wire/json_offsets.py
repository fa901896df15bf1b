"""Find where values in JSON text start and end, without parsing them."""

from __future__ import annotations

import json
import re
from functools import cache
from itertools import accumulate
from typing import Any

_SPACE = re.compile(rb"[ \t\n\r]*")
_SCALAR = re.compile(rb"[^\s,\]}]+")
_STRUCTURE = re.compile(rb'["\[\]{}]')
_QUOTE, _BACKSLASH, COMMA = b'"\\,'
CLOSE_LIST, CLOSE_OBJECT = b"]}"
BLANK = 0x20
"""Largest byte that can be JSON whitespace."""


def read_key(data: bytes, at: int, stop: int) -> str:
    content = data[at + 1 : stop - 1]
    return str(json.loads(data[at:stop])) if b"\\" in content else content.decode()


def skip_whitespace(data: bytes, at: int) -> int:
    """Return the offset after any whitespace at `at`. Usually there is no whitespace."""
    if at < len(data) and data[at] > BLANK:
        return at
    return _SPACE.match(data, at).end()  # type: ignore[union-attr]  # the pattern also matches the empty string


def string_end(data: bytes, at: int) -> int:
    """Return the offset after the string that starts at `at`."""
    while True:
        at = data.index(_QUOTE, at + 1)
        slashes = at
        while data[slashes - 1] == _BACKSLASH:
            slashes -= 1
        if (at - slashes) % 2 == 0:
            return at + 1


def value_end(data: bytes, at: int) -> int:
    """Return the offset after the value that starts at `at`. Iterative, so deep nesting cannot overflow the stack."""
    if data[at] == _QUOTE:
        return string_end(data, at)
    if data[at] not in b"[{":
        return _SCALAR.match(data, at).end()  # type: ignore[union-attr]  # the text is known to be valid JSON
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


def item_lengths(data: bytes, key: str | None) -> list[int] | None:
    """Return the JSON length of each item in the list at `key`, or in the body itself if `key` is None.

    The fast parser measures them, which is quicker than scanning the text. None if it cannot read the body.
    """
    import msgspec

    try:
        items = items_decoder().decode(data) if key is None else items_decoder(key).decode(data).items
    except (msgspec.DecodeError, ValueError, RecursionError):  # ValueError: a key that msgspec has no field name for
        return None
    return [memoryview(item).nbytes for item in items]


def compact_item_offsets(data: bytes, start: int, lengths: list[int]) -> list[int] | None:
    """Return the offset of each item of the array at `start`, then the array's end.

    None if the array is not compact, that is, if anything except a comma separates two items.
    """
    starts = [*accumulate(lengths, lambda at, length: at + length + 1, initial=start + 1)]
    if starts[-1] > len(data):
        return None
    separators = bytes([data[at - 1] for at in starts])
    blank = min([data[at] for at in starts[:-1]]) <= BLANK
    return starts if not blank and separators == b"[" + b"," * (len(lengths) - 1) + b"]" else None


@cache
def fields_decoder() -> Any:
    import msgspec

    return msgspec.json.Decoder(dict[str, msgspec.Raw])


@cache
def items_decoder(key: str | None = None) -> Any:
    import msgspec

    if key is None:
        return msgspec.json.Decoder(list[msgspec.Raw])
    body = msgspec.defstruct("Body", [("items", list[msgspec.Raw])], rename={"items": key})
    return msgspec.json.Decoder(body)
