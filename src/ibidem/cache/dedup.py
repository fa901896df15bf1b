"""devboy's output cache: bounded, evicts the least recently used entry first, emptied when the host compacts."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from ..errors import UsageError
from .near_references import DEFAULT_NEAR, DeltaField, NearRefConfig, delta_from, parse_new_body
from .outputs import ToolKind, check_hash, check_names


@dataclass(frozen=True, slots=True)
class Fresh:
    """Not in the cache: send the output in full, then insert it."""


@dataclass(frozen=True, slots=True)
class Hint:
    """In the cache: the output is equal to the one of this call."""

    reference_tool_call_id: str


DedupDecision = Fresh | Hint
ContentHash = bytes
"""The first 16 bytes of a SHA-256."""

MAX_PARTITION = 2**64 - 1

_Key = tuple[Literal["hash", "path", "tool"], str | bytes]


@dataclass(frozen=True, slots=True, eq=False)
class _Entry:
    """One stored output. Compared by identity, so that equal outputs are separate entries."""

    tool_call_id: str
    body: str | None
    keys: tuple[_Key, ...]
    """The groups that contain it. `path` only for file reads, because other entries do not become stale by a path."""


class DedupCache:
    """A bounded cache of the outputs sent last. Holds at least one and evicts the least recently used first.

    Operations take amortized constant time. Dropping takes the number dropped, and only `find_near_ref` visits every
    entry. Entries are grouped by their lookup keys, each group in the order of the whole. The first of a group is thus
    what a scan from the oldest entry would return.
    """

    def __init__(self, capacity: int = 5) -> None:
        self._capacity = max(1, capacity)
        self._partition = 0
        # OrderedDict, because a plain dict finds its first key by skipping the slots of removed ones.
        self._order: OrderedDict[_Entry, None] = OrderedDict()
        self._groups: dict[_Key, OrderedDict[_Entry, None]] = {}

    @classmethod
    def with_capacity(cls, capacity: int) -> DedupCache:
        """Return a cache of this capacity, at least one."""
        return cls(capacity)

    @property
    def capacity(self) -> int:
        """Number of outputs that fit."""
        return self._capacity

    @property
    def partition(self) -> int:
        """How many compaction boundaries have passed."""
        return self._partition

    def __len__(self) -> int:
        return len(self._order)

    def is_empty(self) -> bool:
        """Return True if no output is stored."""
        return not self._order

    def check(self, hash: ContentHash) -> DedupDecision:
        """Look up an output. Of several equal entries the oldest is returned; a hit becomes the most recent."""
        check_hash(hash)
        entry = self._promote_first(("hash", hash))
        return Fresh() if entry is None else Hint(entry.tool_call_id)

    def insert(
        self,
        hash: bytes,
        id: str,
        kind: ToolKind = ToolKind.OTHER,
        path_hash: str | None = None,
        tool_name: str = "",
    ) -> None:
        """Store an output as the most recent. A full cache evicts the oldest first. Equal outputs are not merged."""
        self.insert_with_body(hash, id, kind, path_hash, None, tool_name)

    def insert_with_body(
        self,
        hash: bytes,
        id: str,
        kind: ToolKind = ToolKind.OTHER,
        path_hash: str | None = None,
        body: str | None = None,
        tool_name: str = "",
    ) -> None:
        """As `insert`, and store the text, if given, for near-references."""
        check_hash(hash)
        if not isinstance(kind, ToolKind):
            raise UsageError(f"kind: {kind!r} is not a ToolKind: pass ToolKind.from_tool_name(tool_name)")
        if len(self._order) >= self._capacity:
            self._drop(next(iter(self._order)))
        keys: tuple[_Key, ...] = (("hash", hash), ("tool", tool_name))
        if kind is ToolKind.FILE_READ and path_hash is not None:
            keys += (("path", path_hash),)
        entry = _Entry(id, body, keys)
        self._order[entry] = None
        for key in keys:
            self._groups.setdefault(key, OrderedDict())[entry] = None

    def find_near_ref(
        self, body: str, config: NearRefConfig = DEFAULT_NEAR
    ) -> tuple[str, tuple[DeltaField, ...]] | None:
        """Return the most recent entry with an eligible delta to `body`. The order of entries does not change."""
        new = parse_new_body(body, config)
        if new is None:
            return None
        for entry in reversed(self._order):
            deltas = None if entry.body is None else delta_from(entry.body, new, config)
            if deltas is not None:
                return entry.tool_call_id, deltas
        return None

    def invalidate_file(self, path_hash: str) -> int:
        """Drop the file reads of this path, but no other entries that name it. Return their number."""
        return self._drop_group(("path", path_hash))

    def invalidate_by_tool(self, names: Iterable[str]) -> int:
        """Drop every entry of these tools. Return their number."""
        return sum(self._drop_group(("tool", name)) for name in check_names(names))

    def on_compaction_boundary(self) -> None:
        """Drop everything: the model no longer sees the outputs that hints would name."""
        self._order.clear()
        self._groups.clear()
        self._partition = min(self._partition + 1, MAX_PARTITION)

    def _promote_first(self, key: _Key) -> _Entry | None:
        group = self._groups.get(key)
        if group is None:
            return None
        entry = next(iter(group))
        self._order.move_to_end(entry)
        for each in entry.keys:
            self._groups[each].move_to_end(entry)
        return entry

    def _drop_group(self, key: _Key) -> int:
        stale = list(self._groups.get(key, ()))
        for entry in stale:
            self._drop(entry)
        return len(stale)

    def _drop(self, entry: _Entry) -> None:
        del self._order[entry]
        for key in entry.keys:
            group = self._groups[key]
            del group[entry]
            if not group:  # a group is never empty, so an absent key means no entries
                del self._groups[key]
