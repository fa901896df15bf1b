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

RECENT_HISTORIES = 4
"""Number of recent histories with a stored path. A session usually switches between a few branches."""
MAX_DEPTH = 50
"""Depth limit for comparing an entry. Containers below that are equal only if they are the same object."""


def common_prefix_length(before: Sequence[Any], after: Sequence[Any]) -> int:
    """Return the length of the common prefix of two histories."""
    for number in range(_identical_prefix_length(before, after), min(len(before), len(after))):
        if before[number] is not after[number] and before[number] != after[number]:
            return number
    return min(len(before), len(after))


def _identical_prefix_length(before: Sequence[Any], after: Sequence[Any]) -> int:
    """Return the length of the prefix whose entries are identical objects."""
    return next(compress(count(), map(is_not, before, after)), min(len(before), len(after)))


class _PrefixNode:
    """An entry in the tree. Its path from the root is a prefix of a history."""

    __slots__ = ("children", "entry")

    def __init__(self, entry: Json) -> None:
        self.entry = entry
        self.children: dict[Hashable, _PrefixNode] = {}


class PrefixTree:
    """Tree of the histories that were sent."""

    def __init__(self) -> None:
        self._root = _PrefixNode({})
        self._recent: deque[tuple[Sequence[Json], list[_PrefixNode]]] = deque(maxlen=RECENT_HISTORIES)
        self._keys = _EntryKeys()

    def add_history(self, history: Sequence[Json]) -> None:
        """Add a history to the tree."""
        path = self._find_path(history)
        node = path[-1] if path else self._root
        for entry in history[len(path) :]:
            node = node.children.setdefault(self._keys.key_for(entry), _PrefixNode(entry))
            path.append(node)
        self._recent.append((list(history), path))

    def longest_prefix(self, history: Sequence[Json]) -> list[Json]:
        """Return the longest prefix of this history that an earlier one has, as the objects of the earlier one."""
        return [node.entry for node in self._find_path(history)]

    def _find_path(self, history: Sequence[Json]) -> list[_PrefixNode]:
        path: list[_PrefixNode] = []
        for recent, recent_path in self._recent:
            if (common := _identical_prefix_length(recent, history)) > len(path):
                path = recent_path[:common]
        node = path[-1] if path else self._root
        for entry in history[len(path) :]:
            child = node.children.get(self._keys.key_for(entry))
            if child is None:
                break
            path.append(node := child)
        return path


class _EntryKeys:
    """Keys of entries. Equal entries have the same key.

    Each object is compared once and then recognized by its `id()`. The object is stored, so that its `id()` is not
    reused.
    """

    def __init__(self) -> None:
        self._objects: dict[int, tuple[Any, Hashable]] = {}
        self._equal: dict[Hashable, object] = {}

    def key_for(self, value: Any, depth: int = 0) -> Hashable:
        match value:
            case dict() | list() if depth > MAX_DEPTH:
                return self._objects.setdefault(id(value), (value, object()))[1]
            case dict():
                if id(value) not in self._objects:
                    fields = frozenset((name, self.key_for(each, depth + 1)) for name, each in value.items())
                    self._objects[id(value)] = value, self._equal.setdefault(fields, object())
                return self._objects[id(value)][1]
            case list():
                return ("list", *(self.key_for(each, depth + 1) for each in value))
            case str():
                return value
        return ("other", repr(value))  # numbers as text: an attacker can easily construct numbers with equal hashes
