"""Plain implementation of devboy's tool-output cache and pipeline layer L0, for comparison with the product.

The JSON parser is part of it, because Python's own parser accepts and produces other values than the original's:
NaN, lone surrogates, integers of any size, any depth.
"""

import hashlib
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from tests.seeds.plain_codetether import RUST_WHITESPACE

JsonValue = None | bool | int | float | str | list["JsonValue"] | dict[str, "JsonValue"]
Field = tuple[str, str, str]
"""Key, old value and new value of a changed field, as printed in a hint."""

KINDS = {
    "Read": "FileRead",
    "Grep": "FileRead",
    "Glob": "FileRead",
    "NotebookRead": "FileRead",
    "Edit": "FileMutate",
    "Write": "FileMutate",
    "MultiEdit": "FileMutate",
    "NotebookEdit": "FileMutate",
}
KIND_LABELS = {"FileRead": "file-read", "FileMutate": "file-mutate", "Other": "other"}
MAX_PARTITION = 2**64 - 1
MAX_DEPTH = 127
JSON_WHITESPACE = re.compile(r"[ \t\n\r]*")
JSON_NUMBER = re.compile(r"(-?(?:0|[1-9][0-9]*))(\.[0-9]+)?([eE][+-]?[0-9]+)?")
JSON_PLAIN_CHARACTERS = re.compile(r'[^"\\\x00-\x1f]*')
JSON_HEX_ESCAPE = re.compile(r"\\u([0-9a-fA-F]{4})")
JSON_ESCAPES = {'"': '"', "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}


def content_hash(content: bytes) -> bytes:
    """Return the first 16 bytes of SHA-256."""
    return hashlib.sha256(content).digest()[:16]


def short_hash(text: str) -> str:
    """Return the first 8 hex digits of SHA-256."""
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def tool_kind(name: str) -> str:
    """Classify a tool by its exact name."""
    return KINDS.get(name, "Other")


def render_reference_hint(id: str, verbosity: str = "standard", kind: str | None = None) -> str:
    """Return the hint for a body that was already sent under `id`."""
    if verbosity == "terse":
        return f"> [ref: {id}]"
    if verbosity == "verbose" and kind is not None:
        return f"> [ref: {id}, byte-identical, from: {KIND_LABELS[kind]}]"
    return f"> [ref: {id}, byte-identical]"


def render_near_ref_hint(id: str, fields: Sequence[Field]) -> str:
    """Return the hint for a body that differs from the body sent under `id` only in `fields`."""
    return f"> [near-ref: {id}" + "".join(render_field(field) for field in fields) + "]"


def render_field(field: Field) -> str:
    """Return a changed field as it appears in a hint, with the separator before it."""
    key, old, new = field
    return f", {key}: {old}→{new}"


@dataclass
class Entry:
    """A cached tool output."""

    hash: bytes
    id: str
    kind: str
    path_hash: str | None
    tool_name: str
    body: str | None = None


class PlainCache:
    """Cache of recent tool outputs, ordered from least to most recently used."""

    def __init__(self, capacity: int = 5) -> None:
        self.capacity = max(capacity, 1)
        self.entries: list[Entry] = []
        self.partition = 0

    def __len__(self) -> int:
        return len(self.entries)

    def check(self, hash: bytes) -> str | None:
        """Return the id of the first entry with this hash and make that entry the most recent one."""
        for index, entry in enumerate(self.entries):
            if entry.hash == hash:
                self.entries.append(self.entries.pop(index))
                return entry.id
        return None

    def insert(self, hash: bytes, id: str, kind: str, path_hash: str | None, tool_name: str) -> None:
        """Append an entry without its body."""
        self._append(Entry(hash, id, kind, path_hash, tool_name))

    def insert_with_body(
        self, hash: bytes, id: str, kind: str, path_hash: str | None, body: str, tool_name: str
    ) -> None:
        """Append an entry with its body, which near references need."""
        self._append(Entry(hash, id, kind, path_hash, tool_name, body))

    def _append(self, entry: Entry) -> None:
        if len(self.entries) >= self.capacity:
            del self.entries[0]
        self.entries.append(entry)

    def find_near_ref(
        self, body: str, max_delta_bytes: int = 50, min_body_bytes: int = 500
    ) -> tuple[str, list[Field]] | None:
        """Return the id and the changed fields of the most recent entry with an eligible difference."""
        for entry in reversed(self.entries):
            if entry.body is None:
                continue
            fields = extract_delta(entry.body, body, max_delta_bytes, min_body_bytes)
            if fields is not None:
                return entry.id, fields
        return None

    def invalidate_file(self, path_hash: str) -> int:
        """Drop file reads of this path and return their number."""
        before = len(self.entries)
        self.entries = [
            entry for entry in self.entries if not (entry.kind == "FileRead" and entry.path_hash == path_hash)
        ]
        return before - len(self.entries)

    def invalidate_by_tool(self, names: Sequence[str]) -> int:
        """Drop entries of these tools and return their number."""
        before = len(self.entries)
        self.entries = [entry for entry in self.entries if entry.tool_name not in names]
        return before - len(self.entries)

    def on_compaction_boundary(self) -> None:
        """Drop all entries and advance the partition number."""
        self.entries = []
        self.partition = min(self.partition + 1, MAX_PARTITION)


def run_operations(operations: Sequence[tuple[Any, ...]]) -> list[Any]:
    """Run cache operations and return their results.

    An operation is the name of a method and its arguments. The first one is `("with_capacity", number)`. The names
    "len" and "partition" read the number of entries and the partition.
    """
    cache = PlainCache()
    results: list[Any] = []
    for name, *arguments in operations:
        match name:
            case "with_capacity":
                cache = PlainCache(*arguments)
                results.append(None)
            case "len":
                results.append(len(cache))
            case "partition":
                results.append(cache.partition)
            case _:
                results.append(getattr(cache, name)(*arguments))
    return results


class PlainPipeline:
    """Layer L0 of the original pipeline, with the same settings for all tools."""

    def __init__(
        self,
        min_bytes: int = 200,
        near_references: bool = False,
        dedup: bool = True,
        verbosity: str = "standard",
        capacity: int = 5,
        hash_ids: bool = False,
    ) -> None:
        self.min_bytes = min_bytes
        self.near_references = near_references
        self.dedup = dedup
        self.verbosity = verbosity
        self.hash_ids = hash_ids
        self.cache = PlainCache(capacity)

    def emit(self, call_id: str, tool: str, body: str, path: str | None = None, invalidates: Sequence[str] = ()) -> str:
        """Return the text to send for a tool output: a hint or the body."""
        id = short_hash(call_id) if self.hash_ids else call_id
        kind = tool_kind(tool)
        path_hash = short_hash(path) if path is not None and kind != "Other" else None
        if kind == "FileMutate" and path_hash is not None:
            self.cache.invalidate_file(path_hash)
        data = body.encode()
        if len(data) < max(1, self.min_bytes):
            return body
        hash = content_hash(data)
        if self.dedup:
            reference = self.cache.check(hash)
            if reference is not None:
                return render_reference_hint(reference, self.verbosity, kind)
            if self.near_references:
                near = self.cache.find_near_ref(body)
                if near is not None:
                    self.cache.insert_with_body(hash, id, kind, path_hash, body, tool)
                    return render_near_ref_hint(*near)
        if self.near_references:
            self.cache.insert_with_body(hash, id, kind, path_hash, body, tool)
        else:
            self.cache.insert(hash, id, kind, path_hash, tool)
        self.cache.invalidate_by_tool(invalidates)
        return body

    def on_compaction_boundary(self) -> None:
        """Drop all entries of the cache."""
        self.cache.on_compaction_boundary()


def extract_delta(old_body: str, new_body: str, max_delta_bytes: int, min_body_bytes: int) -> list[Field] | None:
    """Return the changed top-level scalars of two JSON objects, or None if the change is not eligible."""
    if len(new_body.encode()) < min_body_bytes:
        return None
    try:
        old = parse_json(old_body.lstrip(RUST_WHITESPACE))
        new = parse_json(new_body.lstrip(RUST_WHITESPACE))
    except InvalidJson:
        return None
    if not isinstance(old, dict) or not isinstance(new, dict) or old.keys() != new.keys():
        return None
    fields = []
    for key, new_value in new.items():
        old_value = old[key]
        if are_equal(old_value, new_value):
            continue
        if isinstance(old_value, list | dict) or isinstance(new_value, list | dict):
            return None
        fields.append((key, render_scalar(old_value), render_scalar(new_value)))
    size = sum(len(render_field(field).encode()) for field in fields)
    return fields if fields and size <= max_delta_bytes else None


def are_equal(old: JsonValue, new: JsonValue) -> bool:
    """Compare by value. Values of different types differ, so 1, 1.0 and true are three values."""
    if isinstance(old, list) and isinstance(new, list):
        return len(old) == len(new) and all(are_equal(*pair) for pair in zip(old, new, strict=True))
    if isinstance(old, dict) and isinstance(new, dict):
        return old.keys() == new.keys() and all(are_equal(old[key], new[key]) for key in old)
    return type(old) is type(new) and old == new


def render_scalar(value: JsonValue) -> str:
    """Return a scalar as it appears in a hint."""
    if value is None:
        return ""
    if value is True:
        return "true"
    if value is False:
        return "false"
    if isinstance(value, float):
        return render_double(value)
    return str(value)


def render_double(value: float) -> str:
    """Return the shortest digits of a double: plain for decimal exponents from -5 to 15, else scientific."""
    sign = "-" if math.copysign(1.0, value) < 0 else ""
    if value == 0:
        return sign + "0.0"
    # repr() has the shortest digits that round-trip, but another notation.
    decimal = Decimal(repr(abs(value))).normalize().as_tuple()
    digits = "".join(str(digit) for digit in decimal.digits)
    exponent = int(decimal.exponent) + len(digits) - 1
    if not -5 <= exponent <= 15:
        fraction = "." + digits[1:] if len(digits) > 1 else ""
        return f"{sign}{digits[0]}{fraction}e{exponent}"
    if exponent < 0:
        return sign + "0." + "0" * (-exponent - 1) + digits
    digits = digits.ljust(exponent + 1, "0")
    return sign + digits[: exponent + 1] + "." + (digits[exponent + 1 :] or "0")


class InvalidJson(ValueError):
    """The text is not JSON by the rules of the original's parser."""


def parse_json(text: str) -> JsonValue:
    """Parse one strict JSON value, optionally surrounded by JSON white space."""
    value, position = parse_value(text, skip_whitespace(text, 0), 0)
    if skip_whitespace(text, position) != len(text):
        raise InvalidJson("text after the value")
    return value


def parse_value(text: str, position: int, depth: int) -> tuple[JsonValue, int]:
    """Parse the value at `position`, inside `depth` lists and objects. Return it with the position after it."""
    for word, value in (("null", None), ("true", True), ("false", False)):
        if text.startswith(word, position):
            return value, position + len(word)
    character = text[position : position + 1]
    if character == '"':
        return parse_string(text, position)
    if character in ("[", "{") and depth >= MAX_DEPTH:
        raise InvalidJson("too many levels")
    if character == "[":
        return parse_list(text, position, depth + 1)
    if character == "{":
        return parse_object(text, position, depth + 1)
    return parse_number(text, position)


def parse_list(text: str, position: int, depth: int) -> tuple[JsonValue, int]:
    """Parse a list that starts at `position`."""
    items: list[JsonValue] = []
    position = skip_whitespace(text, position + 1)
    if text.startswith("]", position):
        return items, position + 1
    while True:
        item, position = parse_value(text, position, depth)
        items.append(item)
        position = skip_whitespace(text, position)
        if text.startswith("]", position):
            return items, position + 1
        position = skip_whitespace(text, skip_character(text, position, ","))


def parse_object(text: str, position: int, depth: int) -> tuple[JsonValue, int]:
    """Parse an object that starts at `position`. A repeated key has its last value at its first position."""
    members: dict[str, JsonValue] = {}
    position = skip_whitespace(text, position + 1)
    if text.startswith("}", position):
        return members, position + 1
    while True:
        key, position = parse_string(text, position)
        position = skip_character(text, skip_whitespace(text, position), ":")
        members[key], position = parse_value(text, skip_whitespace(text, position), depth)
        position = skip_whitespace(text, position)
        if text.startswith("}", position):
            return members, position + 1
        position = skip_whitespace(text, skip_character(text, position, ","))


def parse_string(text: str, position: int) -> tuple[str, int]:
    """Parse a string that starts at `position`."""
    position = skip_character(text, position, '"')
    chunks = []
    while True:
        end = match_end(JSON_PLAIN_CHARACTERS, text, position)
        chunks.append(text[position:end])
        position = end
        if text.startswith('"', position):
            return "".join(chunks), position + 1
        position = skip_character(text, position, "\\")
        escape = text[position : position + 1]
        if escape == "u":
            character, position = parse_unicode_escape(text, position - 1)
            chunks.append(character)
        elif escape in JSON_ESCAPES:
            chunks.append(JSON_ESCAPES[escape])
            position += 1
        else:
            raise InvalidJson(f"unknown escape at {position}")


def parse_unicode_escape(text: str, position: int) -> tuple[str, int]:
    """Parse one escape, or two that form a surrogate pair. `position` is that of the backslash."""
    code = parse_code_unit(text, position)
    position += 6
    if 0xD800 <= code <= 0xDBFF:
        low = parse_code_unit(text, position)
        if not 0xDC00 <= low <= 0xDFFF:
            raise InvalidJson("lone surrogate")
        code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00)
        position += 6
    elif 0xDC00 <= code <= 0xDFFF:
        raise InvalidJson("lone surrogate")
    return chr(code), position


def parse_code_unit(text: str, position: int) -> int:
    """Return the number of the escape at `position`."""
    match = JSON_HEX_ESCAPE.match(text, position)
    if match is None:
        raise InvalidJson(f"no Unicode escape at {position}")
    return int(match[1], 16)


def parse_number(text: str, position: int) -> tuple[int | float, int]:
    """Parse a number: an integer from -2^63 to 2^64 - 1, or else a finite double."""
    match = JSON_NUMBER.match(text, position)
    if match is None:
        raise InvalidJson(f"no value at {position}")
    integer, fraction, exponent = match.groups()
    # Longer integers do not fit, and int() rejects very long ones.
    if fraction is None and exponent is None and integer != "-0" and len(integer) <= 20:
        value = int(integer)
        if -(2**63) <= value < 2**64:
            return value, match.end()
    double = float(match[0])
    if math.isinf(double):
        raise InvalidJson("number too large")
    return double, match.end()


def skip_whitespace(text: str, position: int) -> int:
    """Return the position after JSON white space."""
    return match_end(JSON_WHITESPACE, text, position)


def match_end(pattern: re.Pattern[str], text: str, position: int) -> int:
    """Return the end of a match at `position`, or `position` if there is none."""
    match = pattern.match(text, position)
    return match.end() if match else position


def skip_character(text: str, position: int, character: str) -> int:
    """Return the position after `character`, which must be at `position`."""
    if not text.startswith(character, position):
        raise InvalidJson(f"expected {character} at {position}")
    return position + 1
