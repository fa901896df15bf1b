"""devboy's near-references: a JSON object that differs from an earlier one in a few scalar values.

Bodies are parsed as the original's JSON library parses them, which is stricter than Python's, and values are rendered
as it renders them. One deviation: a double is rounded correctly, where the original is off by one digit for some.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NoReturn

from .outputs import WHITE_SPACE, encode_utf8

MAX_DEPTH = 127
"""Levels of nesting, the object itself included."""

_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|.)", re.DOTALL)
_BRACKET = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{}]', re.DOTALL)


@dataclass(frozen=True, slots=True)
class NearRefConfig:
    """Limits of a near-reference."""

    max_delta_bytes: int = 50
    """Largest size of the rendered fields, each with the comma and space in front of it."""

    min_body_bytes: int = 500
    """Smallest new body. The old one may have any size."""


DEFAULT_NEAR: Final = NearRefConfig()


@dataclass(frozen=True, slots=True)
class DeltaField:
    """One top-level key whose scalar value changed, with both values as rendered."""

    key: str
    old: str
    new: str


def extract_delta(old_body: str, new_body: str, config: NearRefConfig = DEFAULT_NEAR) -> tuple[DeltaField, ...] | None:
    """Return the changed fields in the order of the new body's keys, or None if a near-reference is not eligible.

    Eligible: the new body is large enough, both are JSON objects with the same top-level keys, at least one value
    differs, every differing value is a scalar on both sides, and the rendered fields fit. Never raises.
    """
    new = parse_new_body(new_body, config)
    return None if new is None else delta_from(old_body, new, config)


def render_near_ref_hint(id: str, deltas: Sequence[DeltaField]) -> str:
    """Return the line that replaces an output that differs from the one of call `id` in these fields."""
    return f"> [near-ref: {id}{_render_fields(deltas)}]"


def parse_new_body(body: str, config: NearRefConfig) -> dict[str, Any] | None:
    """Return the object in a body that is large enough, or None."""
    return _parse_object(body) if len(encode_utf8(body)) >= config.min_body_bytes else None


def delta_from(old_body: str, new: dict[str, Any], config: NearRefConfig) -> tuple[DeltaField, ...] | None:
    """Return the fields in which a parsed object differs from an old body, or None if not eligible."""
    old = _parse_object(old_body)
    if old is None or old.keys() != new.keys():
        return None
    deltas: list[DeltaField] = []
    for key, value in new.items():
        if _is_equal(old[key], value):
            continue
        if isinstance(value, dict | list) or isinstance(old[key], dict | list):
            return None
        deltas.append(DeltaField(key, _render_value(old[key]), _render_value(value)))
    return tuple(deltas) if deltas and len(encode_utf8(_render_fields(deltas))) <= config.max_delta_bytes else None


def _render_fields(deltas: Sequence[DeltaField]) -> str:
    return "".join([f", {field.key}: {field.old}→{field.new}" for field in deltas])


def _parse_object(body: str) -> dict[str, Any] | None:
    text = body.lstrip(WHITE_SPACE)
    if not text.startswith("{") or _is_too_deep(text) or _has_lone_surrogate(text):
        return None
    try:
        value = json.loads(text, parse_int=_parse_integer, parse_float=_parse_double, parse_constant=_reject_constant)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _is_too_deep(text: str) -> bool:
    if text.count("{") + text.count("[") <= MAX_DEPTH:
        return False
    depth = 0
    for match in _BRACKET.finditer(text):
        depth += {"{": 1, "[": 1, "}": -1, "]": -1}.get(match[0], 0)
        if depth > MAX_DEPTH:
            return True
    return False


def _has_lone_surrogate(text: str) -> bool:
    """Return True if an escape in the text is half of a surrogate pair: Python would accept that."""
    if "\\ud" not in text and "\\uD" not in text:
        return False
    high_end = -1
    for match in _ESCAPE.finditer(text):
        unit = int(match[1], 16) if match[1] else 0
        if high_end >= 0 and (match.start() != high_end or not 0xDC00 <= unit < 0xE000):
            return True
        if high_end < 0 and 0xDC00 <= unit < 0xE000:
            return True
        high_end = match.end() if 0xD800 <= unit < 0xDC00 else -1
    return high_end >= 0


def _parse_integer(digits: str) -> int | float:
    """Parse 64-bit integers as integers; all others, and `-0`, as doubles."""
    if len(digits) <= 20 and digits != "-0" and -(2**63) <= (value := int(digits)) < 2**64:
        return value
    return _parse_double(digits)


def _parse_double(digits: str) -> float:
    value = float(digits)
    if math.isinf(value):
        raise ValueError(f"{digits} is too large")
    return value


def _reject_constant(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


def _is_equal(old: Any, new: Any) -> bool:
    """Compare by value; an integer never equals a double or a boolean."""
    if type(old) is not type(new):
        return False
    if isinstance(old, dict):
        return old.keys() == new.keys() and all(_is_equal(value, new[key]) for key, value in old.items())
    if isinstance(old, list):
        return len(old) == len(new) and all(map(_is_equal, old, new))
    return bool(old == new)


def _render_value(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return _render_double(value) if isinstance(value, float) else str(value)


def _render_double(value: float) -> str:
    """Render the shortest digits: plain for decimal exponents from -5 to 15, else `1e16`, `1.5e-300`."""
    sign = "-" if math.copysign(1.0, value) < 0 else ""
    mantissa, _, exponent = f"{abs(value)!r}".partition("e")
    whole, _, fraction = mantissa.partition(".")
    fraction = "" if fraction == "0" else fraction
    digits = (whole + fraction).lstrip("0")
    if not digits:
        return f"{sign}0.0"
    # Position of the decimal point after the first significant digit.
    point = len(whole) - (len(whole + fraction) - len(digits)) + int(exponent or 0)
    digits = digits.rstrip("0")
    scale = point - 1
    if not -5 <= scale <= 15:
        return f"{sign}{digits[0]}{'.' * (len(digits) > 1)}{digits[1:]}e{scale}"
    if point <= 0:
        return f"{sign}0.{'0' * -point}{digits}"
    padded = digits.ljust(point, "0")
    return f"{sign}{padded[:point]}.{padded[point:] or '0'}"
