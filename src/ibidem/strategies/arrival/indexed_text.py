"""Sent texts as the line index stores them, and the comparison of their lines."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple

from ...markers.backref import Marker, Source, parse_marker
from ...markers.layout import (
    EVICTED_UNIT,
    MARKER_UNIT,
    SPARSE_FLAG,
    Layout,
    LineNumberRanges,
    VisibleText,
    first_unit_position,
)
from ...markers.line_offsets import LineOffsets
from ...markers.patches import lines_in_view
from ...markers.source_numbers import CallSummary


class IndexedText(NamedTuple):
    """One text as it was sent, with the lines that can be referenced."""

    source: Source
    call: CallSummary
    call_id: str
    sent_text: str
    text: str
    """Bodies of its units, one per line. A marker is a placeholder unit."""
    numbering: LineNumberRanges | None
    comma: str
    units: int
    whole: bool
    """True if no marker replaces a part of the text."""
    holes: tuple[int, ...]
    """Positions of markers, if its lines have no numbers."""
    characters_before: int
    """Number of characters sent before it, to compute the distance of a reference."""
    has_no_layout: bool
    """True if it was sent unchanged because no shorter layout fits."""
    view: str = ""
    """Kind of view, if its lines are those of the previous slot without the signs of a diff; else empty."""

    @property
    def call_key(self) -> tuple[str, str, str]:
        """Key of the text: kind and call label, for an argument also its name. Texts of repeated calls share it."""
        return self.source.kind, self.source.part if self.source.kind == "call" else "", self.call.label

    def shows_lines(self, unit: str, first: int, last: int) -> bool:
        """Return True if the lines with these numbers are visible; without a unit, if the whole text is."""
        if not unit:
            return self.whole
        if (unit == "item") is not bool(self.comma) or (last > self.units and self.numbering is None):
            return False
        if self.numbering is not None:
            start = self.numbering.find_position(unit, first)
            return start >= 0 and self.numbering.find_position(unit, last) == start + last - first < self.units
        at = bisect_left(self.holes, first - 1)
        return at == len(self.holes) or self.holes[at] >= last


class LineMatch(NamedTuple):
    """Units from `first` to `last` (exclusive) of a new text that repeat units of an earlier text."""

    first: int
    last: int
    slot: int
    offset: int
    """Offset of the first unit in the slot's text."""


@dataclass(frozen=True)
class IndexedVisibleText(VisibleText):
    """Visible text of a slot. The lines that a marker names are read without parsing the whole text."""

    slot: IndexedText
    lines: LineOffsets

    @property
    def comma(self) -> str:
        return self.slot.comma

    def full_text(self) -> str | None:
        """Return the whole text, or None. If no part was replaced, it is the text above the encoding marker."""
        encoded_text, _, last = self.sent.rpartition("\n")
        marker = parse_marker(last, self.tag) if self.slot.whole else None
        if marker is None or marker.source is not None or SPARSE_FLAG in marker.flags:
            return super().full_text()
        return encoded_text

    def find_position(self, marker: Marker) -> int:
        return first_unit_position(self.slot.numbering, marker)

    def find_units(self, marker: Marker) -> Sequence[str] | None:
        text = self._text_at(marker)
        bodies = None if text is None else text.split("\n")
        if bodies is None or (not self.slot.whole and (MARKER_UNIT in bodies or EVICTED_UNIT in bodies)):
            return None  # a line may equal a placeholder, and `expand` could not distinguish it from a gap
        return lines_in_view(bodies, marker.view)

    def joined_units(self, marker: Marker) -> str | None:
        text = self._text_at(marker)
        if text is None or marker.view or (MARKER_UNIT in text and not self.slot.whole):
            return super().joined_units(marker)
        return text

    def _text_at(self, marker: Marker) -> str | None:
        first = self.find_position(marker)
        last = first + marker.last - marker.first
        return None if first < 0 or last >= self.slot.units else self.lines.text_between(first, last + 1)


class ComparableLines:
    """The bodies of a text's units, prepared once for lookup and indexing."""

    __slots__ = ("_hashes", "edges", "joined", "lengths", "seq", "starts")

    def __init__(self, layout: Layout) -> None:
        self.seq = layout.bodies
        self.edges = layout.edges if layout.numbers is not None else []
        self._hashes: list[int] | None = None
        self.lengths = [*map(len, layout.bodies)]
        self.starts = [*accumulate(self.lengths, initial=0)]
        """Number of characters before each unit, without line breaks."""
        self.joined: str | None = None

    def run_bounds(self, at: int) -> tuple[int, int]:
        """Return the first and last (exclusive) unit that a run around this unit may contain."""
        edge = bisect_right(self.edges, at)
        return self.edges[edge - 1] if edge else 0, self.edges[edge] if edge < len(self.edges) else len(self.seq)

    def has_equal_neighbor(self, at: int, old: str, local: int, after: int) -> bool:
        """Return True if a neighbor of this unit is also next to its copy, which is rare for a chance match."""
        seq = self.seq
        if at + 1 < len(seq) and old.startswith(seq[at + 1], after + 1):
            return True
        return at > 0 and local > 0 and old.endswith(seq[at - 1], 0, local - 1)

    @property
    def hashes(self) -> list[int]:
        """Hashes of all units. Computed on first access, because most long texts need only some."""
        if self._hashes is None:
            self._hashes = [*map(hash, self.seq)]
        return self._hashes

    @property
    def text(self) -> str:
        """The bodies, one per line."""
        if self.joined is None:
            self.joined = "\n".join(self.seq)
        return self.joined
