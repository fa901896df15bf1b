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

from .entry import Entry

NEVER = 1 << 40
"""Number of requests for protection that does not end while the cache is warm."""


Clock: TypeAlias = tuple[int, int]
"""Number of requests for which a text stays: if the cache is warm, and if it is cold."""


class Gate:
    """The protected texts, and when their protection ends."""

    def __init__(self, working_set: Clock, pending: Clock, edit_arguments: Clock) -> None:
        self._clocks = {"result": (working_set, pending), "arguments": (edit_arguments, (0, 0))}
        self._touched: dict[str, int] = {}
        """File name → last request before which a call named the file."""
        self._written: dict[str, int] = {}
        self._held: dict[int, Entry] = {}
        """Protected texts by `id`."""
        self._ends: list[tuple[int, int, int]] = []
        """Heap of the requests at which a text is checked again: request, order, `id`."""
        self._order = 0
        self._unwritten: dict[str, dict[int, Entry]] = {}
        """File name → texts that stay until their file is written."""
        self._open: dict[str, dict[int, Entry]] = {}
        """File name → texts whose protection has ended."""

    def hold(self, entry: Entry) -> None:
        """Protect a text until its protection ends."""
        self._held[id(entry)] = entry
        for name in entry.names:
            self._unwritten.setdefault(name, {})[id(entry)] = entry
        self._push(entry, self._end(entry, cold=False))

    def touch(self, names: Iterable[str], turn: int) -> list[Entry]:
        """Note that a call names files. Return the released texts that are protected again."""
        again: dict[int, Entry] = {}
        for name in names:
            self._touched[name] = turn
            again |= self._open.pop(name, {})
        for entry in again.values():
            self.drop(entry)
        return list(again.values())

    def write(self, name: str, turn: int) -> None:
        """Note that a file was written."""
        self._written[name] = turn
        for key, entry in self._unwritten.pop(name, {}).items():  # protection may end sooner now
            if key in self._held:
                self._push(entry, self._end(entry, cold=False))

    def drop(self, entry: Entry) -> None:
        """Stop tracking a text."""
        self._held.pop(id(entry), None)
        for name in entry.names:
            self._open.get(name, {}).pop(id(entry), None)

    def released(self, turn: int, cold: bool) -> Iterator[Entry]:
        """Yield the texts whose protection has ended at this request."""
        while self._ends and self._ends[0][0] <= turn:
            _, _, key = heappop(self._ends)
            if (entry := self._held.get(key)) is not None:
                end = self._end(entry, cold=False)
                if end > turn:
                    self._push(entry, end)
                else:
                    yield self._release(entry)
        for entry in list(self._held.values()) if cold else ():
            if self._end(entry, cold=True) <= turn:
                yield self._release(entry)

    def protects(self, entry: Entry, turn: int) -> bool:
        """Return True if the text is protected while the cache is warm."""
        return self._end(entry, cold=False) > turn

    def _release(self, entry: Entry) -> Entry:
        del self._held[id(entry)]
        for name in entry.names:
            self._open.setdefault(name, {})[id(entry)] = entry
        return entry

    def _push(self, entry: Entry, end: int) -> None:
        if end < NEVER:
            self._order += 1
            heappush(self._ends, (end, self._order, id(entry)))

    def _end(self, entry: Entry, cold: bool) -> int:
        working_set, pending = self._clocks[entry.kind]
        end = max(self._touched.get(name, 0) for name in entry.names) + working_set[cold]
        if all(self._written.get(name, -1) < entry.turn for name in entry.names):
            end = max(end, entry.turn + pending[cold])
        return end + 1
