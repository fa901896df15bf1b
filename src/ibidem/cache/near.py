"""A JSON object that differs from an earlier one in a few scalar values: which these are, and how they are written."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, NoReturn

from .outputs import utf8


@dataclass(frozen=True, slots=True)
class NearRefConfig:
    """When a changed JSON object is worth a near-reference."""

    max_delta_bytes: int = 50
    """Largest rendered delta, see `extract_delta`; equal still fits."""

    min_body_bytes: int = 500
    """Smallest new body; the size of the old one does not matter."""


DEFAULT_NEAR: Final = NearRefConfig()
JsonObject = dict[str, object]
_PLAIN_KEY = re.compile(r"[\w.-]+")


@dataclass(frozen=True, slots=True)
class DeltaField:
    """One top-level key whose scalar value changed, with both values as rendered."""

    key: str
    old: str
    new: str


@dataclass(frozen=True, slots=True)
class _Number:
    """A JSON number by its spelling: 1 and 1.0 differ, and no digit is lost to a float."""

    spelling: str


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


def _once(pairs: list[tuple[str, object]]) -> JsonObject:
    """An object whose keys stand once each: of one that says two things, which is meant is anyone's guess."""
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key stands twice")
    return found


def json_object(text: str, **options: Any) -> JsonObject | None:
    try:
        value = json.loads(text, parse_int=_Number, parse_float=_Number, parse_constant=_refuse, **options)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _scalar_text(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, _Number):
        return value.spelling
    if isinstance(value, str):
        return value
    raise ValueError("a list or an object has no place in a one-line delta")


def _scalar_json(value: object) -> str:
    """As JSON, so that no text can pass for another value, or for the words around it; on one line."""
    text = "null" if value is None else _scalar_text(value)
    text = json.dumps(text, ensure_ascii=False) if isinstance(value, str) else text
    if not text.isprintable():
        raise ValueError("it would steer a terminal")
    return text


def joined(head: Sequence[str], deltas: Sequence[DeltaField]) -> str:
    return ", ".join([*head, *(f"{each.key}: {each.old}→{each.new}" for each in deltas)])


def new_object(body: str, config: NearRefConfig) -> JsonObject | None:
    return json_object(body) if len(utf8(body)) >= config.min_body_bytes else None


def _delta(
    old: JsonObject | None, new: JsonObject, most: int, spelled: Callable[[object], str]
) -> tuple[DeltaField, ...] | None:
    if old is None or old.keys() != new.keys():
        return None
    try:
        deltas = tuple(
            DeltaField(key, spelled(old[key]), spelled(value)) for key, value in new.items() if value != old[key]
        )
        # Strict on purpose: an escaped lone surrogate would make a line nobody can send.
        size = len(joined((), deltas).encode("utf-8"))
    except (ValueError, RecursionError):  # comparing values descends as deep as parsing them
        return None
    return deltas if deltas and size <= most else None


def delta_between(old_body: str, new: JsonObject, config: NearRefConfig) -> tuple[DeltaField, ...] | None:
    return _delta(json_object(old_body), new, config.max_delta_bytes, _scalar_text)


def extract_delta(old_body: str, new_body: str, config: NearRefConfig = DEFAULT_NEAR) -> tuple[DeltaField, ...] | None:
    """The changed fields, in the order of the new body's keys, or None if not eligible.

    Eligible: the new body is long enough, both are JSON objects with the same top-level keys, at
    least one value differs, every differing value is scalar on both sides, and the rendered delta
    fits. The rendered delta is `key: old→new, key2: old→new`, without the frame and the id around
    it; the arrow counts three bytes. Null renders empty, a number as it was spelled, a string raw.
    Never raises: broken JSON, NaN or nesting too deep to parse is not eligible.
    """
    new = new_object(new_body, config)
    return None if new is None else delta_between(old_body, new, config)


def plain_object(body: str) -> JsonObject | None:
    """A JSON object of which nothing is said twice."""
    return json_object(body, object_pairs_hook=_once)


def changed_fields(old_body: str, new: JsonObject, config: NearRefConfig) -> str | None:
    """`status: "open"→"closed", total: 12→13`: what differs from an old body, spelled as JSON; None if not eligible.

    Eligible is what `extract_delta` takes, if besides nothing is said twice on either side and all of it can be read
    on one line.
    """
    deltas = _delta(plain_object(old_body), new, config.max_delta_bytes, _scalar_json)
    if deltas is None or not all(map(str.isprintable, new)):
        return None
    return joined((), [each if _PLAIN_KEY.fullmatch(each.key) else _quoted(each) for each in deltas])


def _quoted(field: DeltaField) -> DeltaField:
    return DeltaField(json.dumps(field.key, ensure_ascii=False), field.old, field.new)
