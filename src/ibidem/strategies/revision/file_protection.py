"""Protect old text of files that are in use from eviction. The rules of every profile that evicts.

A protected candidate is not queued. It is checked again when its protection ends, and at every request with a cold
cache, for which protection is shorter. All rules depend only on the calls so far. Each lists its measured effect on
recorded sessions (`benchmarks.need`; need: the model used evicted text later).

1. *Never protected*: thinking of earlier turns, and reads of which every line was read again. Their need is 0.
2. *Other results* are evicted after `mask` newer results: models hardly ever copy from outputs of commands or searches.
3. *Reads* are evicted after `mask` newer results too, but not while their file is in the working set: for
   `working_set` requests after a call last named the file. Nine of ten needs were a read that was edited later.
4. *Reads without an edit yet* stay for `pending` requests after they arrived, as long as their file was not written
   since. A write of the file counts as use, not as a reason to evict: the model continues to edit from its last read.
5. *Arguments without a file* are evicted like results, *arguments of edits and writes* only after `edit_arguments`
   requests without use of their file: half of the need of eviction without this rule.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from heapq import heappop, heappush
from typing import TypeAlias

from .entry import InventoryEntry

NEVER = 1 << 40
"""Number of requests for protection that does not end while the cache is warm."""


Clock: TypeAlias = tuple[int, int]
"""Number of requests for which a text stays: if the cache is warm, and if it is cold."""


class FileProtection:
    """The protected texts, and when their protection ends."""

    def __init__(self, working_set: Clock, pending: Clock, edit_arguments: Clock) -> None:
        self._clocks = {"result": (working_set, pending), "arguments": (edit_arguments, (0, 0))}
        self._last_access: dict[str, int] = {}
        """File name → last request before which a call named the file."""
        self._last_write: dict[str, int] = {}
        self._protected_entries: dict[int, InventoryEntry] = {}
        """Protected texts by `id`."""
        self._checks: list[tuple[int, int, int]] = []
        """Heap of the requests at which a text is checked again: request, order, `id`."""
        self._order = 0
        self._waiting_for_write: dict[str, dict[int, InventoryEntry]] = {}
        """File name → texts that stay until their file is written."""
        self._released_by_file: dict[str, dict[int, InventoryEntry]] = {}
        """File name → texts whose protection has ended."""

    def protect_entry(self, entry: InventoryEntry) -> None:
        """Protect a text until its protection ends."""
        self._protected_entries[id(entry)] = entry
        for name in entry.file_names:
            self._waiting_for_write.setdefault(name, {})[id(entry)] = entry
        self._schedule_check(entry, self._protection_end(entry, cold=False))

    def record_access(self, names: Iterable[str], turn: int) -> list[InventoryEntry]:
        """Note that a call names files. Return the released texts that are protected again."""
        protected_again: dict[int, InventoryEntry] = {}
        for name in names:
            self._last_access[name] = turn
            protected_again |= self._released_by_file.pop(name, {})
        for entry in protected_again.values():
            self.remove_entry(entry)
        return list(protected_again.values())

    def record_write(self, name: str, turn: int) -> None:
        """Note that a file was written."""
        self._last_write[name] = turn
        for key, entry in self._waiting_for_write.pop(name, {}).items():  # protection may end sooner now
            if key in self._protected_entries:
                self._schedule_check(entry, self._protection_end(entry, cold=False))

    def remove_entry(self, entry: InventoryEntry) -> None:
        """Stop tracking a text."""
        self._protected_entries.pop(id(entry), None)
        for name in entry.file_names:
            self._released_by_file.get(name, {}).pop(id(entry), None)

    def release_expired(self, turn: int, cold: bool) -> Iterator[InventoryEntry]:
        """Yield the texts whose protection has ended at this request."""
        while self._checks and self._checks[0][0] <= turn:
            _, _, key = heappop(self._checks)
            if (entry := self._protected_entries.get(key)) is not None:
                end = self._protection_end(entry, cold=False)
                if end > turn:
                    self._schedule_check(entry, end)
                else:
                    yield self._release_entry(entry)
        for entry in list(self._protected_entries.values()) if cold else ():
            if self._protection_end(entry, cold=True) <= turn:
                yield self._release_entry(entry)

    def is_protected(self, entry: InventoryEntry, turn: int) -> bool:
        """Return True if the text is protected while the cache is warm."""
        return self._protection_end(entry, cold=False) > turn

    def _release_entry(self, entry: InventoryEntry) -> InventoryEntry:
        del self._protected_entries[id(entry)]
        for name in entry.file_names:
            self._released_by_file.setdefault(name, {})[id(entry)] = entry
        return entry

    def _schedule_check(self, entry: InventoryEntry, end: int) -> None:
        if end < NEVER:
            self._order += 1
            heappush(self._checks, (end, self._order, id(entry)))

    def _protection_end(self, entry: InventoryEntry, cold: bool) -> int:
        working_set, pending = self._clocks[entry.kind]
        end = max(self._last_access.get(name, 0) for name in entry.file_names) + working_set[cold]
        if all(self._last_write.get(name, -1) < entry.turn for name in entry.file_names):
            end = max(end, entry.turn + pending[cold])
        return end + 1
