"""Compress the histories of a large log in memory, and decompress only the one in use.

Reports read a session one segment at a time, and a log of several weeks can have hundreds of segments. A compressed
history takes a fraction of the memory. Only a segment that shares no entry with another one is compressed. That is the
usual case, because a compaction starts a new history. Shared entries must stay the same objects, so they are never
compressed.
"""

from __future__ import annotations

import marshal
import zlib
from collections import Counter
from collections.abc import Iterable

from .recording import Json, RecordedSegment, Recording

COMPRESSION_LEVEL = 1
"""Fastest level of zlib."""


class DecompressedHistory:
    """The one decompressed history of a log."""

    def __init__(self) -> None:
        self.segment: CompressedSegment | None = None
        self.history: list[Json] = []


class CompressedSegment(RecordedSegment):
    """A segment whose history is compressed while another one is in use. Each decompression creates new objects."""

    __slots__ = ("_compressed_entries", "_history_cache")

    def __init__(self, segment: RecordedSegment, history_cache: DecompressedHistory) -> None:
        """Compress a segment. Raises ValueError if a value is nested too deeply or is not JSON."""
        self._history_cache = history_cache
        super().__init__(segment.history, segment.requests, segment.inherited, segment.cause)

    @property
    def history(self) -> list[Json]:
        now = self._history_cache
        if now.segment is not self:
            now.segment, now.history = self, []  # free the old history before loading the new one
            now.history = marshal.loads(zlib.decompress(self._compressed_entries))
        return now.history

    @history.setter
    def history(self, entries: list[Json]) -> None:
        self._compressed_entries = zlib.compress(marshal.dumps(entries), COMPRESSION_LEVEL)

    @property
    def is_compressed(self) -> bool:
        return True

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, RecordedSegment):
            return NotImplemented
        mine = (self.requests, self.inherited, self.cause)
        return mine == (other.requests, other.inherited, other.cause) and self.history == [*other.history]

    __hash__ = None  # type: ignore[assignment]  # like every segment, because requests may still be added


def compress_segment(segment: RecordedSegment, history_cache: DecompressedHistory) -> RecordedSegment:
    """Return the segment compressed; unchanged if that is not possible. It must not share entries with another one."""
    try:
        return CompressedSegment(segment, history_cache)
    except ValueError:
        return segment


def compress_segments(sessions: Iterable[Recording], history_cache: DecompressedHistory) -> None:
    """Compress all segments that share no entry with another one."""
    all_segments = [(session, place) for session in sessions for place in range(len(session.segments))]
    uncompressed = [(session, place) for session, place in all_segments if not session.segments[place].is_compressed]
    uses = Counter(entry for session, place in uncompressed for entry in {*map(id, session.segments[place].history)})
    for session, place in uncompressed:
        segment = session.segments[place]
        if all(uses[id(entry)] == 1 for entry in segment.history):
            session.segments[place] = compress_segment(segment, history_cache)
