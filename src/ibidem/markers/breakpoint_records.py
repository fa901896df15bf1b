"""Records of the cache breakpoints that were added to requests, and how a record is matched to its request.

Cache breakpoints leave no marker: a provider accepts them only in its own format. So the record is found by the request
itself: by the words of its conversation, the number of its messages, and the content at the breakpoints, as it was
sent. A request that matches a record was sent by Ibidem, or is the same byte for byte.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from typing import Any

from ..model import to_json
from ..wire import JsonChange
from ..wire.json_tree import KeyedValue, apply_changes, fill_placeholder, placeholder_path, value_at

SIGN_DIGITS = 16
"""Digits of the digest of the content at the breakpoints."""


def session_of(key: str) -> str:
    """Return the name under which the store has the records of a conversation."""
    return f"marks {key}"


def make_record(messages: int, body: Any, changes: Iterable[JsonChange]) -> str:
    """Return a record of changes to a request. `body` is the request before them. Path steps index into it."""
    change_list = list(changes)
    undo = [_inverse_change(body, change) for change in change_list]
    sign = _hash_carriers(_carrier_after(body, change) for change in change_list)
    rows = [(*each[:2], *_encode_value(each.value)) for each in undo]
    return to_json({"marks": sign, "messages": messages, "undo": rows})


def _encode_value(value: Any) -> tuple[Any, ...]:
    """Return the value to set, and the position of its key if it was moved."""
    return (value.value, value.position) if isinstance(value, KeyedValue) else (value,)


def breakpoint_removals(messages: int, body: Any, texts: Iterable[str]) -> list[JsonChange]:
    """Return the changes that remove the recorded breakpoints from a request; none if the records disagree."""
    candidates = {
        to_json(undo): undo for sign, undo in _parse_records(texts, messages) if _matches_record(body, undo, sign)
    }
    return next(iter(candidates.values())) if len(candidates) == 1 else []


def _inverse_change(body: Any, change: JsonChange) -> JsonChange:
    placeholder = placeholder_path(change.value)
    if placeholder is not None:
        return JsonChange(change.path, "lift", placeholder)
    *steps, last = change.path
    try:
        carrier = value_at(body, steps)
        old = carrier[last]
    except (KeyError, IndexError):
        return JsonChange(change.path, "drop")
    is_moved = isinstance(change.value, KeyedValue)
    return JsonChange(change.path, "set", KeyedValue(list(carrier).index(last), old) if is_moved else old)


def _carrier_after(body: Any, change: JsonChange) -> Any:
    """Return the value around the breakpoint after the change."""
    *steps, last = change.path
    if placeholder_path(change.value) is not None:
        return fill_placeholder(change.value, value_at(body, change.path))
    return apply_changes(value_at(body, steps), [JsonChange((last,), "set", change.value)]) if steps else change.value


def _find_carrier(body: Any, undo: JsonChange) -> Any:
    steps = undo.path if undo.op == "lift" or len(undo.path) == 1 else undo.path[:-1]
    return value_at(body, steps)


def _hash_carriers(carriers: Iterable[Any]) -> str:
    text = to_json(list(carriers))
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:SIGN_DIGITS]


def _matches_record(body: Any, undo: list[JsonChange], sign: str) -> bool:
    try:
        return _hash_carriers(_find_carrier(body, each) for each in undo) == sign
    except (LookupError, TypeError):
        return False


def _decode_value(value: Any, at: int | None = None) -> Any:
    return value if at is None else KeyedValue(at, value)


def _parse_records(texts: Iterable[str], messages: int) -> Iterator[tuple[str, list[JsonChange]]]:
    """Yield the records for a request with this number of messages. Invalid texts are skipped."""
    for text in texts:
        try:
            record_data = json.loads(text)
            undo = [JsonChange(tuple(path), op, _decode_value(*value)) for path, op, *value in record_data["undo"]]
            if record_data["messages"] == messages:
                yield str(record_data["marks"]), undo
        except (ValueError, TypeError, LookupError, RecursionError):
            continue
