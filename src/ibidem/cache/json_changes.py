"""Describe how a JSON object differs from an earlier one, for the hints of `OutputMemory`.

devboy has its own rules for the same purpose, see `near_references`.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import NoReturn

from .near_references import NearRefConfig

JsonObject = dict[str, object]
_PLAIN_KEY = re.compile(r"[\w.-]+")


@dataclass(frozen=True, slots=True)
class _Number:
    """A JSON number as written: 1 and 1.0 differ, and no digit is lost to a float."""

    spelling: str


def parse_plain_object(body: str) -> JsonObject | None:
    """Return the JSON object in a text, or None if the text is not one or repeats a key."""
    try:
        value = json.loads(
            body,
            parse_int=_Number,
            parse_float=_Number,
            parse_constant=_reject_constant,
            object_pairs_hook=_unique_keys,
        )
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def describe_changes(old_body: str, new: JsonObject, config: NearRefConfig) -> str | None:
    """Return `status: "open"→"closed", total: 12→13`, values as JSON, or None if the changes do not fit on one line.

    Both must be objects with the same top-level keys that only differ in scalar values, and no key may be repeated.
    """
    old = parse_plain_object(old_body)
    if old is None or old.keys() != new.keys():
        return None
    try:
        changes = [(key, _to_json(old[key]), _to_json(value)) for key, value in new.items() if value != old[key]]
        size = len(", ".join([f"{key}: {before}→{after}" for key, before, after in changes]).encode())
    except (ValueError, RecursionError):  # a lone surrogate cannot be sent; comparing descends as deep as parsing
        return None
    if not changes or size > config.max_delta_bytes or not all(map(str.isprintable, new)):
        return None
    return ", ".join([f"{_key_text(key)}: {before}→{after}" for key, before, after in changes])


def _reject_constant(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


def _unique_keys(pairs: list[tuple[str, object]]) -> JsonObject:
    value = dict(pairs)
    if len(value) < len(pairs):
        raise ValueError("a key is repeated")
    return value


def _to_json(value: object) -> str:
    """Render a scalar as JSON, so that no text can pass for another value or for the words around it."""
    if isinstance(value, _Number):
        return value.spelling
    if value is not None and not isinstance(value, bool | str):
        raise ValueError("a list or an object does not fit on the line")
    text = json.dumps(value, ensure_ascii=False)
    if not text.isprintable():
        raise ValueError("a control character would steer a terminal")
    return text


def _key_text(key: str) -> str:
    return key if _PLAIN_KEY.fullmatch(key) else json.dumps(key, ensure_ascii=False)
