"""How requests are sent under a profile: which messages it changes, and what that takes out of them.

From one request to the next a profile mostly adds changes behind those it made before. Such views share their lists,
each knowing how many entries are its own: a session of many requests takes no more than its last one, and two views of
it are compared by looking at one entry.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple


class MessageChange(NamedTuple):
    """What a profile does to one message."""

    message: int
    key: int
    """A fingerprint: two requests send the same only if these are equal."""
    removed: float
    """Provider tokens, before they are scaled."""


class SentView:
    """A segment as a profile sends it: the messages it changes, in order."""

    __slots__ = ("_count", "_keys", "_places", "_removed")

    def __init__(self, changes: Sequence[MessageChange] = ()) -> None:
        self._places = [change.message for change in changes]
        self._keys = [change.key for change in changes]
        self._removed = [0.0, *accumulate(change.removed for change in changes)]
        self._count = len(changes)

    def extended(self, changes: Sequence[MessageChange]) -> SentView:
        """With more changes, all of them in messages behind those that it has."""
        if not changes:
            return self
        found = SentView()
        found._places, found._keys, found._removed = self._places, self._keys, self._removed
        if len(self._places) != self._count:  # another one went on from here
            end = self._count
            found._places, found._keys = self._places[:end], self._keys[:end]
            found._removed = self._removed[: end + 1]
        for change in changes:
            found._places.append(change.message)
            found._keys.append(change.key)
            found._removed.append(found._removed[-1] + change.removed)
        found._count = self._count + len(changes)
        return found

    @property
    def last(self) -> int:
        """The last message that it changes; -1 if there is none."""
        return self._places[self._count - 1] if self._count else -1

    def before(self, message: int) -> float:
        """Tokens that it removes from the messages before this one."""
        return self._removed[bisect_left(self._places, message, 0, self._count)]

    def parts_from(self, other: SentView, shared: int) -> int:
        """The first message that the two send differently, of `shared` that they have in common."""
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
