"""Changes to a parsed value: only the containers along a path are copied."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any, Literal, NamedTuple

from ..model import Path

Op = Literal["set", "drop", "before", "after"]


class Change(NamedTuple):
    """Set or drop the value at `path`, or insert `value` beside it (path then ends in a list index)."""

    path: Path
    op: Op
    value: Any = None


def rebuild(value: Any, changes: Iterable[Change], depth: int = 0) -> Any:
    """The value with the changes made, sharing everything that no change names.

    `depth` is how many steps of the changes' paths lead to the value. A path that goes on below a string means the
    JSON that is written in it: its other bytes stay as they are.
    """
    if isinstance(value, str):
        from .splice import splice_text  # it needs us too

        return splice_text(value, json.loads(value), changes, depth)
    here, below = by_key(changes, depth)
    if isinstance(value, list):
        kept: list[Any] = []
        for index, item in enumerate(value):
            beside = here.get(index)
            if beside is None:
                kept.append(rebuild(item, below[index], depth + 1) if index in below else item)
                continue
            kept.extend(change.value for change in beside if change.op == "before")
            if not any(change.op == "drop" for change in beside):
                kept.append(_one(item, beside, below.get(index), depth))
            kept.extend(change.value for change in beside if change.op == "after")
        kept.extend(change.value for change in here.get(len(value), ()) if change.op == "before")
        return kept
    new = dict(value)
    for key in {**here, **below}:
        new[key] = _one(value[key], here.get(key, ()), below.get(key), depth)
    return new


def _one(value: Any, beside: Sequence[Change], below: list[Change] | None, depth: int) -> Any:
    for change in beside:
        if change.op == "set":
            return change.value
    return rebuild(value, below, depth + 1) if below else value


def by_key(changes: Iterable[Change], depth: int) -> tuple[dict[Any, list[Change]], dict[Any, list[Change]]]:
    """Changes of this container's own items, and those of containers further down, by the key at that depth."""
    here: dict[Any, list[Change]] = {}
    below: dict[Any, list[Change]] = {}
    last = depth + 1
    for change in changes:
        path = change.path
        (here if len(path) == last else below).setdefault(path[depth], []).append(change)
    return here, below
