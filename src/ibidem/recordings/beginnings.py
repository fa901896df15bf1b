"""Find the longest common prefix of a history and all earlier ones.

A log may rewind a thousand times in a history of a thousand entries, so comparing every pair of histories is too slow.
Equal entries get the same key, and each history is a path in a tree of keys. Readers reuse the entry objects, so most
prefixes are found by object identity, without comparing entries.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Sequence
from itertools import compress, count
from operator import is_not
from typing import Any

from .recording import Json

RECENT = 4
"""Number of recent histories with a stored path. A session usually switches between a few branches."""
DEEPEST = 50
"""Depth limit for comparing an entry. Containers below that are equal only if they are the same object."""


def shared(before: Sequence[Any], after: Sequence[Any]) -> int:
    """Return the length of the common prefix of two histories."""
    for number in range(_same(before, after), min(len(before), len(after))):
        if before[number] is not after[number] and before[number] != after[number]:
            return number
    return min(len(before), len(after))


def _same(before: Sequence[Any], after: Sequence[Any]) -> int:
    """Return the length of the prefix whose entries are identical objects."""
    return next(compress(count(), map(is_not, before, after)), min(len(before), len(after)))


class _Node:
    """An entry in the tree. Its path from the root is a prefix of a history."""

    __slots__ = ("after", "entry")

    def __init__(self, entry: Json) -> None:
        self.entry = entry
        self.after: dict[Hashable, _Node] = {}


class Beginnings:
    """Tree of the histories that were sent."""

    def __init__(self) -> None:
        self._root = _Node({})
        self._recent: deque[tuple[Sequence[Json], list[_Node]]] = deque(maxlen=RECENT)
        self._keys = _Keys()

    def add(self, history: Sequence[Json]) -> None:
        """Add a history to the tree."""
        way = self._way(history)
        node = way[-1] if way else self._root
        for entry in history[len(way) :]:
            node = node.after.setdefault(self._keys.of(entry), _Node(entry))
            way.append(node)
        self._recent.append((list(history), way))

    def longest(self, history: Sequence[Json]) -> list[Json]:
        """Return the longest prefix of this history that an earlier one has, as the objects of the earlier one."""
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
    """Keys of entries. Equal entries have the same key.

    Each object is compared once and then recognized by its `id()`. The object is stored, so that its `id()` is not
    reused.
    """

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
        return ("other", repr(value))  # numbers as text: an attacker can easily construct numbers with equal hashes
