"""Edit a parsed JSON value: copy only the containers along the path of a change."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any, Literal, NamedTuple

from ..model import Path
from .sdk_objects import dump_object

Op = Literal["set", "drop", "before", "after", "lift"]


class KeyedValue(NamedTuple):
    """A value to set in an object, with the position of its key among the object's keys."""

    position: int
    value: Any


class JsonChange(NamedTuple):
    """One edit of a JSON value at `path`.

    `set` replaces the value. If the object lacks the key, `set` adds it as the last one, or at the position in
    `KeyedValue`. A `...` in the new value is a placeholder for the old value, which keeps its JSON style. `lift` is the
    inverse: it replaces the value at `path` by the part of it at the path `value`. `drop` removes the value. `before`
    and `after` insert `value` next to it; then `path` ends in a list index.
    """

    path: Path
    op: Op
    value: Any = None


def apply_changes(value: Any, changes: Iterable[JsonChange], depth: int = 0) -> Any:
    """Return the changed value. It shares every unchanged part with the original.

    `depth` is the number of path steps that lead to `value`. If a path continues into a string, the string is edited
    as JSON text, and its other bytes stay unchanged.
    """
    if isinstance(value, str):
        from .splice import splice_text  # circular import

        return splice_text(value, json.loads(value), changes, depth)
    here, below = group_by_key(changes, depth)
    if isinstance(value, list):
        items: list[Any] = []
        for index, item in enumerate(value):
            item_changes = here.get(index)
            if item_changes is None:
                items.append(apply_changes(item, below[index], depth + 1) if index in below else item)
                continue
            items.extend(change.value for change in item_changes if change.op == "before")
            if not any(change.op == "drop" for change in item_changes):
                items.append(_apply_item_changes(item, item_changes, below.get(index), depth))
            items.extend(change.value for change in item_changes if change.op == "after")
        items.extend(change.value for change in here.get(len(value), ()) if change.op == "before")
        return items
    value = dump_object(value)
    new = dict(value)
    for key in {**here, **below}:
        ops = [change.op for change in here.get(key, ())]
        if "drop" in ops:
            del new[key]
        else:
            old = value.get(key) if "set" in ops else value[key]
            new[key] = _apply_item_changes(old, here.get(key, ()), below.get(key), depth)
            if isinstance(new[key], KeyedValue):
                at, new[key] = new[key]
                order = move_item(list(new), list(new).index(key), at)
                new = {each: new[each] for each in order}
    return new


def move_item(items: list[Any], old: int, new: int) -> list[Any]:
    """Return the list with the item at index `old` moved to index `new`."""
    others = [*items[:old], *items[old + 1 :]]
    return [*others[:new], items[old], *others[new:]]


def _apply_item_changes(
    value: Any, item_changes: Sequence[JsonChange], below: list[JsonChange] | None, depth: int
) -> Any:
    for change in item_changes:
        if change.op == "set":
            return change.value if placeholder_path(change.value) is None else fill_placeholder(change.value, value)
        if change.op == "lift":
            return value_at(value, change.value)
    return apply_changes(value, below, depth + 1) if below else value


def fill_placeholder(template: Any, value: Any) -> Any:
    """Return the template with `value` in place of `...`."""
    if template is ...:
        return value
    if isinstance(template, dict):
        return {key: fill_placeholder(each, value) for key, each in template.items()}
    return [fill_placeholder(each, value) for each in template] if isinstance(template, list) else template


def placeholder_path(template: Any) -> Path | None:
    """Return the path of `...` in the template, or None."""
    if template is ...:
        return ()
    inside = enumerate(template) if isinstance(template, list) else ()
    for key, each in template.items() if isinstance(template, dict) else inside:
        below = placeholder_path(each)
        if below is not None:
            return (key, *below)
    return None


def value_at(value: Any, path: Iterable[Any]) -> Any:
    """Return the part of `value` at `path`. Raises KeyError, IndexError or TypeError if it does not exist."""
    for step in path:
        value = value[step]
    return value


def group_by_key(
    changes: Iterable[JsonChange], depth: int
) -> tuple[dict[Any, list[JsonChange]], dict[Any, list[JsonChange]]]:
    """Split changes into those of this container's own items and those further down. Both are grouped by key."""
    here: dict[Any, list[JsonChange]] = {}
    below: dict[Any, list[JsonChange]] = {}
    last = depth + 1
    for change in changes:
        path = change.path
        (here if len(path) == last else below).setdefault(path[depth], []).append(change)
    return here, below
