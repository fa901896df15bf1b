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
from ..wire import Change
from ..wire.tree import Keyed, filled, found_at, hole_of, rebuild

SIGN_DIGITS = 16
"""Digits of the digest of the content at the breakpoints."""


def session_of(key: str) -> str:
    """Return the name under which the store has the records of a conversation."""
    return f"marks {key}"


def record(messages: int, body: Any, changes: Iterable[Change]) -> str:
    """Return a record of changes to a request. `body` is the request before them. Path steps index into it."""
    made = list(changes)
    undo = [_undone(body, change) for change in made]
    sign = _sign(_after(body, change) for change in made)
    rows = [(*each[:2], *_row(each.value)) for each in undo]
    return to_json({"marks": sign, "messages": messages, "undo": rows})


def _row(value: Any) -> tuple[Any, ...]:
    """Return the value to set, and the position of its key if it was moved."""
    return (value.value, value.at) if isinstance(value, Keyed) else (value,)


def taken_off(messages: int, body: Any, texts: Iterable[str]) -> list[Change]:
    """Return the changes that remove the recorded breakpoints from a request; none if the records disagree."""
    found = {to_json(undo): undo for sign, undo in _records(texts, messages) if _stands(body, undo, sign)}
    return next(iter(found.values())) if len(found) == 1 else []


def _undone(body: Any, change: Change) -> Change:
    hole = hole_of(change.value)
    if hole is not None:
        return Change(change.path, "lift", hole)
    *steps, last = change.path
    try:
        carrier = found_at(body, steps)
        old = carrier[last]
    except (KeyError, IndexError):
        return Change(change.path, "drop")
    moved = isinstance(change.value, Keyed)
    return Change(change.path, "set", Keyed(list(carrier).index(last), old) if moved else old)


def _after(body: Any, change: Change) -> Any:
    """Return the value around the breakpoint after the change."""
    *steps, last = change.path
    if hole_of(change.value) is not None:
        return filled(change.value, found_at(body, change.path))
    return rebuild(found_at(body, steps), [Change((last,), "set", change.value)]) if steps else change.value


def _carrier(body: Any, undo: Change) -> Any:
    steps = undo.path if undo.op == "lift" or len(undo.path) == 1 else undo.path[:-1]
    return found_at(body, steps)


def _sign(carriers: Iterable[Any]) -> str:
    text = to_json(list(carriers))
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:SIGN_DIGITS]


def _stands(body: Any, undo: list[Change], sign: str) -> bool:
    try:
        return _sign(_carrier(body, each) for each in undo) == sign
    except (LookupError, TypeError):
        return False


def _set(value: Any, at: int | None = None) -> Any:
    return value if at is None else Keyed(at, value)


def _records(texts: Iterable[str], messages: int) -> Iterator[tuple[str, list[Change]]]:
    """Yield the records for a request with this number of messages. Invalid texts are skipped."""
    for text in texts:
        try:
            found = json.loads(text)
            undo = [Change(tuple(path), op, _set(*value)) for path, op, *value in found["undo"]]
            if found["messages"] == messages:
                yield str(found["marks"]), undo
        except (ValueError, TypeError, LookupError, RecursionError):
            continue
