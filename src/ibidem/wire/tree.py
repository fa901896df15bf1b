"""Edit a parsed JSON value: copy only the containers along the path of a change."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any, Literal, NamedTuple

from ..model import Path
from .sdk_objects import dump_object

Op = Literal["set", "drop", "before", "after", "lift"]


class Keyed(NamedTuple):
    """A value to set in an object, with the position of its key among the object's keys."""

    at: int
    value: Any


class Change(NamedTuple):
    """One edit of a JSON value at `path`.

    `set` replaces the value. If the object lacks the key, `set` adds it as the last one, or at the position in
    `KeyedValue`. A `...` in the new value is a placeholder for the old value, which keeps its JSON style. `lift` is the
    inverse: it replaces the value at `path` by the part of it at the path `value`. `drop` removes the value. `before`
    and `after` insert `value` next to it; then `path` ends in a list index.
    """

    path: Path
    op: Op
    value: Any = None


def rebuild(value: Any, changes: Iterable[Change], depth: int = 0) -> Any:
    """Return the changed value. It shares every unchanged part with the original.

    `depth` is the number of path steps that lead to `value`. If a path continues into a string, the string is edited
    as JSON text, and its other bytes stay unchanged.
    """
    if isinstance(value, str):
        from .splice import splice_text  # circular import

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
    value = dump_object(value)
    new = dict(value)
    for key in {**here, **below}:
        ops = [change.op for change in here.get(key, ())]
        if "drop" in ops:
            del new[key]
        else:
            old = value.get(key) if "set" in ops else value[key]
            new[key] = _one(old, here.get(key, ()), below.get(key), depth)
            if isinstance(new[key], Keyed):
                at, new[key] = new[key]
                order = moved(list(new), list(new).index(key), at)
                new = {each: new[each] for each in order}
    return new


def moved(items: list[Any], old: int, new: int) -> list[Any]:
    """Return the list with the item at index `old` moved to index `new`."""
    others = [*items[:old], *items[old + 1 :]]
    return [*others[:new], items[old], *others[new:]]


def _one(value: Any, beside: Sequence[Change], below: list[Change] | None, depth: int) -> Any:
    for change in beside:
        if change.op == "set":
            return change.value if hole_of(change.value) is None else filled(change.value, value)
        if change.op == "lift":
            return found_at(value, change.value)
    return rebuild(value, below, depth + 1) if below else value


def filled(template: Any, value: Any) -> Any:
    """Return the template with `value` in place of `...`."""
    if template is ...:
        return value
    if isinstance(template, dict):
        return {key: filled(each, value) for key, each in template.items()}
    return [filled(each, value) for each in template] if isinstance(template, list) else template


def hole_of(template: Any) -> Path | None:
    """Return the path of `...` in the template, or None."""
    if template is ...:
        return ()
    inside = enumerate(template) if isinstance(template, list) else ()
    for key, each in template.items() if isinstance(template, dict) else inside:
        below = hole_of(each)
        if below is not None:
            return (key, *below)
    return None


def found_at(value: Any, path: Iterable[Any]) -> Any:
    """Return the part of `value` at `path`. Raises KeyError, IndexError or TypeError if it does not exist."""
    for step in path:
        value = value[step]
    return value


def by_key(changes: Iterable[Change], depth: int) -> tuple[dict[Any, list[Change]], dict[Any, list[Change]]]:
    """Split changes into those of this container's own items and those further down. Both are grouped by key."""
    here: dict[Any, list[Change]] = {}
    below: dict[Any, list[Change]] = {}
    last = depth + 1
    for change in changes:
        path = change.path
        (here if len(path) == last else below).setdefault(path[depth], []).append(change)
    return here, below
