"""Indented JSON, and JSON lists of objects that all have the same keys."""

from __future__ import annotations

import json
import re
from typing import Any

_INDENT = re.compile(r"[\[{]\n( +)\S")
USUAL_INDENT = 2


class PrettyJson:
    """Writes indented JSON as compact JSON, if indenting it again gives the same text."""

    letter = "j"

    def fold(self, text: str) -> tuple[str, str] | None:
        found = _INDENT.match(text)
        if found is None or len(text) > MAX_TEXT:
            return None
        try:
            compact = json.dumps(json.loads(text), separators=(",", ":"), ensure_ascii=False)
        except (ValueError, RecursionError):
            return None
        return compact, "" if len(found[1]) == USUAL_INDENT else str(len(found[1]))

    def unfold(self, text: str, digits: str, limit: int) -> str:
        value = json.loads(text)
        indented = json.JSONEncoder(indent=int(digits or USUAL_INDENT), separators=(",", ": "), ensure_ascii=False)
        pieces: list[str] = []
        for piece in indented.iterencode(value):  # indentation grows with depth, so few may become many
            limit -= len(piece)
            if limit < 0:
                raise ValueError("too large")
            pieces.append(piece)
        return "".join(pieces)


MAX_TEXT = 1 << 20
"""Characters above which encoding takes too long."""
SEPARATORS = {"": (", ", ": "), "1": (",", ":")}
"""Separators of the original, by the digits in the marker."""


class Rows:
    """Writes keys only in the first object of a list. The others become lists of their values, in that order.

    `[{"a": 1, "b": 2}, {"a": 3, "b": 4}]` becomes `[{"a": 1, "b": 2}, [3, 4]]`.
    """

    letter = "r"

    def fold(self, text: str) -> tuple[str, str] | None:
        if text[:1] not in ("[", "{") or text[-1:] not in ("]", "}") or len(text) > MAX_TEXT or "\n" in text:
            return None
        if text.count("{") < 3:
            return None
        digits = "" if ": " in text[:200] else "1"
        try:
            value = json.loads(text)
            folded = _dump(_fold(value), ", ", ": ")
        except (ValueError, RecursionError):
            return None
        return folded, digits

    def unfold(self, text: str, digits: str, limit: int) -> str:
        value = Unfolding(limit).whole(json.loads(text))
        unfolded = _dump(value, *SEPARATORS[digits])
        if len(unfolded) > limit:
            raise ValueError("too large")
        return unfolded


def _dump(value: Any, comma: str, colon: str) -> str:
    return json.dumps(value, separators=(comma, colon), ensure_ascii=False)


def _shape(value: Any) -> Any:
    """Return the nested keys of an object. They must be equal for two objects of a list."""
    if isinstance(value, dict):
        return tuple((key, _shape(below)) for key, below in value.items())
    return None


def _values(value: Any) -> Any:
    return [_values(below) for below in value.values()] if isinstance(value, dict) else _fold(value)


def _fold(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _fold(below) for key, below in value.items()}
    if not isinstance(value, list):
        return value
    if len(value) > 1 and isinstance(value[0], dict) and value[0]:
        model = _shape(value[0])
        if all(isinstance(each, dict) and _shape(each) == model for each in value[1:]):
            return [_fold(value[0]), *(_values(each) for each in value[1:])]
    return [_fold(each) for each in value]


class Unfolding:
    """Restores the keys of list rows, up to a size limit."""

    def __init__(self, limit: int) -> None:
        self._room = limit

    def whole(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {key: self.whole(below) for key, below in value.items()}
        if not isinstance(value, list):
            return value
        if len(value) > 1 and isinstance(value[0], dict) and all(isinstance(each, list) for each in value[1:]):
            first = self.whole(value[0])
            return [first, *(self._keyed(first, each) for each in value[1:])]
        return [self.whole(each) for each in value]

    def _keyed(self, model: Any, values: Any) -> Any:
        if not isinstance(model, dict):
            return self.whole(values)
        if not isinstance(values, list) or len(values) != len(model):
            raise ValueError("not a row of that model")
        self._room -= sum(map(len, model))
        if self._room < 0:
            raise ValueError("too large")
        return {key: self._keyed(below, value) for (key, below), value in zip(model.items(), values, strict=True)}
