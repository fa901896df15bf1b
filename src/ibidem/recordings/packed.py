"""Histories of a large log: packed where they wait, and unpacked one at a time while somebody looks at them.

A session is measured a segment at a time, and there may be hundreds of them in a log that goes on for weeks. Packed,
the texts of one take a fraction of what they take as values. Only a segment that shares no entry with another is packed
(most are, as a compaction begins a new history): what is shared is known by being the same object, and is kept.
"""

from __future__ import annotations

import marshal
import zlib
from collections import Counter
from collections.abc import Iterable

from .recording import Json, RecordedSegment, Recording

PACKING_LEVEL = 1
"""The quickest."""


class Unpacked:
    """The history of a log that is looked at now."""

    def __init__(self) -> None:
        self.segment: PackedSegment | None = None
        self.history: list[Json] = []


class PackedSegment(RecordedSegment):
    """A segment that shares no entry with another. Its entries are other objects whenever they are unpacked again."""

    __slots__ = ("_packed", "_unpacked")

    def __init__(self, segment: RecordedSegment, unpacked: Unpacked) -> None:
        """Raises ValueError for what cannot be packed: values are nested too deeply, or of no type that JSON has."""
        self._unpacked = unpacked
        super().__init__(segment.history, segment.requests, segment.inherited, segment.cause)

    @property
    def history(self) -> list[Json]:
        now = self._unpacked
        if now.segment is not self:
            now.segment, now.history = self, []  # the one before is gone before this one comes
            now.history = marshal.loads(zlib.decompress(self._packed))
        return now.history

    @history.setter
    def history(self, entries: list[Json]) -> None:
        self._packed = zlib.compress(marshal.dumps(entries), PACKING_LEVEL)

    @property
    def apart(self) -> bool:
        return True

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, RecordedSegment):
            return NotImplemented
        mine = (self.requests, self.inherited, self.cause)
        return mine == (other.requests, other.inherited, other.cause) and self.history == [*other.history]

    __hash__ = None  # type: ignore[assignment]  # as of every segment: requests may still be added


def packed(segment: RecordedSegment, unpacked: Unpacked) -> RecordedSegment:
    """A segment that shares no entry with another; as it is if it cannot be packed."""
    try:
        return PackedSegment(segment, unpacked)
    except ValueError:
        return segment


def pack(sessions: Iterable[Recording], unpacked: Unpacked) -> None:
    """All segments that are apart from others."""
    every = [(session, place) for session in sessions for place in range(len(session.segments))]
    plain = [(session, place) for session, place in every if not session.segments[place].apart]
    uses = Counter(entry for session, place in plain for entry in {*map(id, session.segments[place].history)})
    for session, place in plain:
        segment = session.segments[place]
        if all(uses[id(entry)] == 1 for entry in segment.history):
            session.segments[place] = packed(segment, unpacked)
