"""Parsed histories of a session's segments."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import SupportsIndex, overload

from .. import formats
from ..model import Message
from ..recordings import Recording
from ..tokens import TokenCounter


class CountsByHash:
    """Token counter with a cache by hash: it does not keep texts in memory, and counts reloaded texts only once."""

    def __init__(self, count: TokenCounter) -> None:
        self._count = count
        self._known: dict[int, int] = {}

    def __call__(self, text: str) -> int:
        key = hash(text)
        count = self._known.get(key)
        if count is None:
            count = self._known[key] = self._count(text)
        return count


class Histories(Sequence[Sequence[Message]]):
    """Parsed messages by segment. Messages that segments share are parsed once.

    Separate segments are parsed on access, and dropped at the access to the next one: in a large log, texts take nearly
    all memory.
    """

    def __init__(
        self, session: Recording, on_drop: Callable[[], object] = lambda: None, keep_all: bool = False
    ) -> None:
        """`on_drop` is called when a segment is dropped. `keep_all`: keep all segments in memory."""
        self._segments, self._dialect, self._left = session.segments, formats.format_named(session.format), on_drop
        self._read: dict[int, Message] = {}
        """Identity of a shared entry → parsed message."""
        numbers = [number for number, segment in enumerate(self._segments) if keep_all or not segment.is_compressed]
        self._kept = {number: self._parse_shared(number) for number in numbers}
        self._number = -1
        self._now: list[Message] = []

    def __len__(self) -> int:
        return len(self._segments)

    @overload
    def __getitem__(self, at: SupportsIndex) -> Sequence[Message]: ...
    @overload
    def __getitem__(self, at: slice) -> list[Sequence[Message]]: ...
    def __getitem__(self, at: SupportsIndex | slice) -> Sequence[Message] | list[Sequence[Message]]:
        if isinstance(at, slice):
            return [self[number] for number in range(*at.indices(len(self)))]
        number = range(len(self))[at]
        return self._kept[number] if number in self._kept else self._parse_separate(number)

    def entry_key(self, message: Message) -> Hashable:
        """Make a key for a message's entry: equal in all segments that share it, and after it is parsed again."""
        here = self._now[message.index] if message.index < len(self._now) else None
        return (self._number, message.index) if here is message else id(message.wire)

    def entry_keys(self, number: int) -> list[Hashable]:
        """List the keys of a segment's entries."""
        if number not in self._kept:
            return [(number, place) for place in range(len(self[number]))]
        return [id(message.wire) for message in self._kept[number]]

    def _parse_shared(self, number: int) -> list[Message]:
        history = []
        for index, wire in enumerate(self._segments[number].history):
            message = self._read.get(id(wire))
            if message is None or message.index != index:
                message = self._read[id(wire)] = self._dialect.read_message(index, wire)
            history.append(message)
        return history

    def _parse_separate(self, number: int) -> list[Message]:
        if number != self._number:
            self._number, self._now = number, []
            self._left()
            self._now = [
                self._dialect.read_message(index, wire) for index, wire in enumerate(self._segments[number].history)
            ]
        return self._now
