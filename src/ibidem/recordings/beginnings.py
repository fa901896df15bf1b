"""What histories have in common from their beginning.

A log may go back a thousand times in a history of a thousand entries, so no history is compared with every other one.
Entries that are equal get the same key, once for each object, and histories are ways through a tree of keys. Where two
histories hold the same objects no entry is looked at: readers hand on the objects that they were given.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Sequence
from itertools import compress, count
from operator import is_not
from typing import Any

from .recording import Json

RECENT = 4
"""Ways that are remembered: a session that goes back and forth does so between few of them."""
DEEPEST = 50
"""Levels of an entry that are looked at: what is below is equal to itself alone."""


def shared(before: Sequence[Any], after: Sequence[Any]) -> int:
    """How many entries two histories have in common from their beginning."""
    for number in range(_same(before, after), min(len(before), len(after))):
        if before[number] is not after[number] and before[number] != after[number]:
            return number
    return min(len(before), len(after))


def _same(before: Sequence[Any], after: Sequence[Any]) -> int:
    """How many entries are the same objects, from the beginning."""
    return next(compress(count(), map(is_not, before, after)), min(len(before), len(after)))


class _Node:
    """An entry behind certain others."""

    __slots__ = ("after", "entry")

    def __init__(self, entry: Json) -> None:
        self.entry = entry
        self.after: dict[Hashable, _Node] = {}


class Beginnings:
    """Histories that were sent, as a tree."""

    def __init__(self) -> None:
        self._root = _Node({})
        self._recent: deque[tuple[Sequence[Json], list[_Node]]] = deque(maxlen=RECENT)
        self._keys = _Keys()

    def add(self, history: Sequence[Json]) -> None:
        way = self._way(history)
        node = way[-1] if way else self._root
        for entry in history[len(way) :]:
            node = node.after.setdefault(self._keys.of(entry), _Node(entry))
            way.append(node)
        self._recent.append((list(history), way))

    def longest(self, history: Sequence[Json]) -> list[Json]:
        """The longest beginning of this history that a known one has as well, as it stands there."""
        return [node.entry for node in self._way(history)]

    def _way(self, history: Sequence[Json]) -> list[_Node]:
        known: list[_Node] = []
        for recent, way in self._recent:
            if (same := _same(recent, history)) > len(known):
                known = way[:same]
        node = known[-1] if known else self._root
        for entry in history[len(known) :]:
            found = node.after.get(self._keys.of(entry))
            if found is None:
                break
            known.append(node := found)
        return known


class _Keys:
    """Keys of entries: equal ones have one. An object is looked at once; from then on it is known by its identity, and
    kept, so that no other gets that."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[Any, Hashable]] = {}
        self._equal: dict[Hashable, object] = {}

    def of(self, value: Any, depth: int = 0) -> Hashable:
        match value:
            case dict() | list() if depth > DEEPEST:
                return self._known.setdefault(id(value), (value, object()))[1]
            case dict():
                if id(value) not in self._known:
                    fields = frozenset((name, self.of(each, depth + 1)) for name, each in value.items())
                    self._known[id(value)] = value, self._equal.setdefault(fields, object())
                return self._known[id(value)][1]
            case list():
                return ("list", *(self.of(each, depth + 1) for each in value))
            case str():
                return value
        return ("other", repr(value))  # numbers as they are written: equal hashes of numbers are easy to find
