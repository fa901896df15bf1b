"""Changes to a parsed value: only the containers along a path are copied."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any, Literal, NamedTuple

from ..model import Path
from .sdk_objects import dump_object

Op = Literal["set", "drop", "before", "after", "lift"]


class Keyed(NamedTuple):
    """A value that is set, and where its key then stands among those of its object."""

    at: int
    value: Any


class Change(NamedTuple):
    """Set or drop the value at `path`, or insert `value` beside it (path then ends in a list index).

    To set a key that an object lacks is to add it, behind all others, or where `Keyed` says. Where `...` stands in a
    value that is set, there what was at the path stands from then on, as it was spelled; `lift` is the way back: what
    is at the path gives way to what stands in it at the path `value`.
    """

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
    """With the one at a place at another."""
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
    """The template with the value in place of `...`."""
    if template is ...:
        return value
    if isinstance(template, dict):
        return {key: filled(each, value) for key, each in template.items()}
    return [filled(each, value) for each in template] if isinstance(template, list) else template


def hole_of(template: Any) -> Path | None:
    """Where in it `...` stands."""
    if template is ...:
        return ()
    inside = enumerate(template) if isinstance(template, list) else ()
    for key, each in template.items() if isinstance(template, dict) else inside:
        below = hole_of(each)
        if below is not None:
            return (key, *below)
    return None


def found_at(value: Any, path: Iterable[Any]) -> Any:
    """What stands there. KeyError, IndexError or TypeError if nothing does."""
    for step in path:
        value = value[step]
    return value


def by_key(changes: Iterable[Change], depth: int) -> tuple[dict[Any, list[Change]], dict[Any, list[Change]]]:
    """Changes of this container's own items, and those of containers further down, by the key at that depth."""
    here: dict[Any, list[Change]] = {}
    below: dict[Any, list[Change]] = {}
    last = depth + 1
    for change in changes:
        path = change.path
        (here if len(path) == last else below).setdefault(path[depth], []).append(change)
    return here, below
