"""What stays although it is old: text of files that are in use. The rules behind every evicting profile.

A candidate that is protected is set aside. It is asked for again when its protection ends, and at every request whose
cache is cold anyway, where clocks are shorter. All rules are functions of the calls so far. Beside each is what it was
measured to be worth on recorded sessions (`benchmarks.need`; need: the model used evicted text later).

1. *Always free to go*: thinking of earlier turns, and reads of which every line was read again. Their need is 0.
2. *Other results* go beyond the last `mask` results: outputs of commands and searches are hardly ever copied from.
3. *Reads* go beyond the last `mask` results too, but not while their file is in the working set: for
   `working_set` requests after a call last named the file. Nine of ten needs were a read that was edited later.
4. *Reads that are still to be edited* stay for `pending` requests after they arrived, as long as their file was not
   written since. That a file was changed is a touch of it, not a reason to evict: the model goes on editing from the
   read it has.
5. *Arguments without a file* go like results, *arguments of edits and writes* only after `edit_arguments` requests
   without a touch of their file: half of the need of eviction without this clock.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from heapq import heappop, heappush
from typing import TypeAlias

from .entry import Entry

NEVER = 1 << 40
"""A clock that does not run out while a cache is warm."""


Clock: TypeAlias = tuple[int, int]
"""Requests for which a text stays: while the cache is warm, and at a request whose cache is cold anyway."""


class Gate:
    """Texts that are protected, and when they stop being so."""

    def __init__(self, working_set: Clock, pending: Clock, edit_arguments: Clock) -> None:
        self._clocks = {"result": (working_set, pending), "arguments": (edit_arguments, (0, 0))}
        self._touched: dict[str, int] = {}
        """Names of files → the last request before which a call named them."""
        self._written: dict[str, int] = {}
        self._held: dict[int, Entry] = {}
        """By identity."""
        self._ends: list[tuple[int, int, int]] = []
        """A heap of the requests at which to ask again: request, order, identity."""
        self._order = 0
        self._unwritten: dict[str, dict[int, Entry]] = {}
        """Names of files → texts that wait for their file to be written."""
        self._open: dict[str, dict[int, Entry]] = {}
        """Names of files → texts that were let through because of their clocks."""

    def hold(self, entry: Entry) -> None:
        """Set a text aside until its clocks have run out."""
        self._held[id(entry)] = entry
        for name in entry.names:
            self._unwritten.setdefault(name, {})[id(entry)] = entry
        self._push(entry, self._end(entry, cold=False))

    def touch(self, names: Iterable[str], turn: int) -> list[Entry]:
        """A call names files. Returns texts that were let through and are protected again."""
        again: dict[int, Entry] = {}
        for name in names:
            self._touched[name] = turn
            again |= self._open.pop(name, {})
        for entry in again.values():
            self.drop(entry)
        return list(again.values())

    def write(self, name: str, turn: int) -> None:
        """A file was written."""
        self._written[name] = turn
        for key, entry in self._unwritten.pop(name, {}).items():  # its end may be nearer now
            if key in self._held:
                self._push(entry, self._end(entry, cold=False))

    def drop(self, entry: Entry) -> None:
        """The clocks of a text do not matter any more."""
        self._held.pop(id(entry), None)
        for name in entry.names:
            self._open.get(name, {}).pop(id(entry), None)

    def released(self, turn: int, cold: bool) -> Iterator[Entry]:
        """Texts whose clocks have run out at a request."""
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
        """Whether a text stays while the cache is warm."""
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
