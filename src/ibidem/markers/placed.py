"""Cache marks that we put on a request: how they are recorded, and how the record is found again.

Marks leave no marker: a provider takes them in its own words alone. So the record is found by the request itself: by
the words of its conversation, the number of its messages, and what stands where marks were put, as it was sent. What
agrees with a record was sent by us, or says the same to the byte as what was.
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
"""Of the digest of what stands where marks were put."""


def session_of(key: str) -> str:
    """Where the store keeps the records of a conversation, by its name."""
    return f"marks {key}"


def record(messages: int, body: Any, changes: Iterable[Change]) -> str:
    """Of changes that are made to a request. `body` is it before that: what a step of a path leads to is its item."""
    made = list(changes)
    undo = [_undone(body, change) for change in made]
    sign = _sign(_after(body, change) for change in made)
    rows = [(*each[:2], *_row(each.value)) for each in undo]
    return to_json({"marks": sign, "messages": messages, "undo": rows})


def _row(value: Any) -> tuple[Any, ...]:
    """What is set, and where its key stood, if it was moved."""
    return (value.value, value.at) if isinstance(value, Keyed) else (value,)


def taken_off(messages: int, body: Any, texts: Iterable[str]) -> list[Change]:
    """The changes that take off what records say we put on a request; none where they say different things of it."""
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
    """What carries it then."""
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
    """What is no record says nothing."""
    for text in texts:
        try:
            found = json.loads(text)
            undo = [Change(tuple(path), op, _set(*value)) for path, op, *value in found["undo"]]
            if found["messages"] == messages:
                yield str(found["marks"]), undo
        except (ValueError, TypeError, LookupError, RecursionError):
            continue
