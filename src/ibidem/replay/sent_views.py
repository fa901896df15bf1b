"""Views of requests as sent with a profile: the changed messages, and the tokens removed from them.

From one request to the next, a profile mostly adds changes after the earlier ones. Such views share their lists, and
each has its own length. So a session with many requests takes the memory of its last view, and comparing two views
takes one step.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple


class MessageChange(NamedTuple):
    """The change of one message by a profile."""

    message: int
    key: int
    """Fingerprint of the edits. Two requests send the same message only if it is equal."""
    removed: float
    """Weighted tokens, not scaled."""


class SentView:
    """The changed messages of a segment with a profile, in order."""

    __slots__ = ("_count", "_keys", "_places", "_removed")

    def __init__(self, changes: Sequence[MessageChange] = ()) -> None:
        self._places = [change.message for change in changes]
        self._keys = [change.key for change in changes]
        self._removed = [0.0, *accumulate(change.removed for change in changes)]
        self._count = len(changes)

    def add_changes(self, changes: Sequence[MessageChange]) -> SentView:
        """Add changes of later messages, in a new view."""
        if not changes:
            return self
        view = SentView()
        view._places, view._keys, view._removed = self._places, self._keys, self._removed
        if len(self._places) != self._count:  # another view has extended these lists
            end = self._count
            view._places, view._keys = self._places[:end], self._keys[:end]
            view._removed = self._removed[: end + 1]
        for change in changes:
            view._places.append(change.message)
            view._keys.append(change.key)
            view._removed.append(view._removed[-1] + change.removed)
        view._count = self._count + len(changes)
        return view

    @property
    def last_message(self) -> int:
        """Index of the last changed message; -1 if there is none."""
        return self._places[self._count - 1] if self._count else -1

    def removed_before(self, message: int) -> float:
        """Add up the tokens removed from the messages before this one."""
        return self._removed[bisect_left(self._places, message, 0, self._count)]

    def first_difference(self, other: SentView, shared: int) -> int:
        """Find the first message that two views send differently, among the first `shared` messages."""
        common = min(self._count, other._count)
        place = common
        if self._places is not other._places:
            pairs = zip(self._places, other._places, self._keys, other._keys, strict=False)
            for at, (here, there, ours, theirs) in enumerate(pairs):
                if at == common:
                    break
                if here != there or ours != theirs:
                    place = at
                    break
        ends = [view._places[place] for view in (self, other) if place < view._count]
        return min([shared, *ends])


AS_RECORDED = SentView()
