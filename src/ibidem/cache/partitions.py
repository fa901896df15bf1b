"""Many contexts at one seat: what one of them was sent is never hinted at in another."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Final

from .memory import MemorySettings, OutputMemory

MAX_PARTITIONS = 64


class OutputMemories:
    """An `OutputMemory` per key, such as (session, subagent); the one least recently used goes first.

    A key stands for what one model can see. Where several contexts cannot be told apart, there is no key that is true
    of them, and nothing may be remembered.
    """

    def __init__(self, settings: MemorySettings | None = None, max_partitions: int = MAX_PARTITIONS) -> None:
        self.settings: Final = MemorySettings() if settings is None else settings
        self.max_partitions: Final = max(1, max_partitions)
        self._memories: OrderedDict[Hashable, OutputMemory] = OrderedDict()

    def __len__(self) -> int:
        return len(self._memories)

    def __contains__(self, key: Hashable) -> bool:
        return key in self._memories

    def of(self, key: Hashable) -> OutputMemory:
        """The memory of this context, an empty one if there is none; now the most recently used."""
        found = self._memories.get(key)
        if found is None:
            while len(self._memories) >= self.max_partitions:
                self._memories.popitem(last=False)
            found = self._memories[key] = OutputMemory(self.settings)
        self._memories.move_to_end(key)
        return found

    def forget(self, key: Hashable) -> bool:
        """Drop the memory of this context; False if there was none."""
        return self._memories.pop(key, None) is not None

    def forget_where(self, test: Callable[[Hashable], bool]) -> int:
        """Drop the memories of all contexts whose key passes; returns how many."""
        gone = [key for key in self._memories if test(key)]
        for key in gone:
            del self._memories[key]
        return len(gone)
