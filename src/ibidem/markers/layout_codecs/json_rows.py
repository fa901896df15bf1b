"""Indented JSON, and JSON lists of objects that all have the same keys."""

from __future__ import annotations

import json
import re
from typing import Any

_INDENT = re.compile(r"[\[{]\n( +)\S")
USUAL_INDENT = 2


class JsonIndentCodec:
    """Writes indented JSON as compact JSON, if indenting it again gives the same text."""

    letter = "j"

    def encode_text(self, text: str) -> tuple[str, str] | None:
        match = _INDENT.match(text)
        if match is None or len(text) > MAX_TEXT:
            return None
        try:
            compact = json.dumps(json.loads(text), separators=(",", ":"), ensure_ascii=False)
        except (ValueError, RecursionError):
            return None
        return compact, "" if len(match[1]) == USUAL_INDENT else str(len(match[1]))

    def decode_text(self, text: str, digits: str, limit: int) -> str:
        value = json.loads(text)
        encoder = json.JSONEncoder(indent=int(digits or USUAL_INDENT), separators=(",", ": "), ensure_ascii=False)
        pieces: list[str] = []
        for piece in encoder.iterencode(value):  # indentation grows with depth, so few may become many
            limit -= len(piece)
            if limit < 0:
                raise ValueError("too large")
            pieces.append(piece)
        return "".join(pieces)


MAX_TEXT = 1 << 20
"""Characters above which encoding takes too long."""
SEPARATORS = {"": (", ", ": "), "1": (",", ":")}
"""Separators of the original, by the digits in the marker."""


class JsonRowsCodec:
    """Writes keys only in the first object of a list. The others become lists of their values, in that order.

    `[{"a": 1, "b": 2}, {"a": 3, "b": 4}]` becomes `[{"a": 1, "b": 2}, [3, 4]]`.
    """

    letter = "r"

    def encode_text(self, text: str) -> tuple[str, str] | None:
        if text[:1] not in ("[", "{") or text[-1:] not in ("]", "}") or len(text) > MAX_TEXT or "\n" in text:
            return None
        if text.count("{") < 3:
            return None
        digits = "" if ": " in text[:200] else "1"
        try:
            value = json.loads(text)
            encoded = _to_json(_encode_lists(value), ", ", ": ")
        except (ValueError, RecursionError):
            return None
        return encoded, digits

    def decode_text(self, text: str, digits: str, limit: int) -> str:
        value = RowDecoder(limit).decode_value(json.loads(text))
        decoded_json = _to_json(value, *SEPARATORS[digits])
        if len(decoded_json) > limit:
            raise ValueError("too large")
        return decoded_json


def _to_json(value: Any, comma: str, colon: str) -> str:
    return json.dumps(value, separators=(comma, colon), ensure_ascii=False)


def _nested_keys(value: Any) -> Any:
    """Return the nested keys of an object. They must be equal for two objects of a list."""
    if isinstance(value, dict):
        return tuple((key, _nested_keys(below)) for key, below in value.items())
    return None


def _nested_values(value: Any) -> Any:
    return [_nested_values(below) for below in value.values()] if isinstance(value, dict) else _encode_lists(value)


def _encode_lists(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _encode_lists(below) for key, below in value.items()}
    if not isinstance(value, list):
        return value
    if len(value) > 1 and isinstance(value[0], dict) and value[0]:
        model = _nested_keys(value[0])
        if all(isinstance(each, dict) and _nested_keys(each) == model for each in value[1:]):
            return [_encode_lists(value[0]), *(_nested_values(each) for each in value[1:])]
    return [_encode_lists(each) for each in value]


class RowDecoder:
    """Restores the keys of list rows, up to a size limit."""

    def __init__(self, limit: int) -> None:
        self._characters_left = limit

    def decode_value(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {key: self.decode_value(below) for key, below in value.items()}
        if not isinstance(value, list):
            return value
        if len(value) > 1 and isinstance(value[0], dict) and all(isinstance(each, list) for each in value[1:]):
            first = self.decode_value(value[0])
            return [first, *(self._restore_keys(first, each) for each in value[1:])]
        return [self.decode_value(each) for each in value]

    def _restore_keys(self, model: Any, values: Any) -> Any:
        if not isinstance(model, dict):
            return self.decode_value(values)
        if not isinstance(values, list) or len(values) != len(model):
            raise ValueError("not a row of that model")
        self._characters_left -= sum(map(len, model))
        if self._characters_left < 0:
            raise ValueError("too large")
        return {
            key: self._restore_keys(below, value) for (key, below), value in zip(model.items(), values, strict=True)
        }
