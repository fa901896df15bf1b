"""Changes to a parsed value: only the containers along a path are copied."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal, NamedTuple

from ..model import Path

Op = Literal["set", "drop", "before", "after"]


class Change(NamedTuple):
    """Set or drop the value at `path`, or insert `value` beside it (path then ends in a list index)."""

    path: Path
    op: Op
    value: Any = None


def rebuild(value: Any, changes: Iterable[Change]) -> Any:
    """The value with the changes made, sharing everything that no change names."""
    here, below = by_key(changes)
    if isinstance(value, list):
        kept: list[Any] = []
        for index, item in enumerate(value):
            beside = here.get(index, ())
            kept.extend(change.value for change in beside if change.op == "before")
            if not any(change.op == "drop" for change in beside):
                kept.append(_one(item, beside, below.get(index)))
            kept.extend(change.value for change in beside if change.op == "after")
        kept.extend(change.value for change in here.get(len(value), ()) if change.op == "before")
        return kept
    new = dict(value)
    for key in {**here, **below}:
        new[key] = _one(value[key], here.get(key, ()), below.get(key))
    return new


def _one(value: Any, beside: Sequence[Change], below: list[Change] | None) -> Any:
    for change in beside:
        if change.op == "set":
            return change.value
    return rebuild(value, below) if below else value


def by_key(changes: Iterable[Change]) -> tuple[dict[Any, list[Change]], dict[Any, list[Change]]]:
    """Changes of this container's own items, and those of containers further down, by first key."""
    here: dict[Any, list[Change]] = {}
    below: dict[Any, list[Change]] = {}
    for change in changes:
        key, rest = change.path[0], change.path[1:]
        if rest:
            below.setdefault(key, []).append(Change(rest, change.op, change.value))
        else:
            here.setdefault(key, []).append(change)
    return here, below
