"""The texts that were shown, as the index holds them."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple

from ...markers.backref import Marker, Source, parse
from ...markers.layout import EVICTED_UNIT, MARKER_UNIT, SPARSE_FLAG, Layout, Numbering, Shown, placed
from ...markers.lines import Lines
from ...markers.numbering import CallSummary
from ...markers.patches import viewed


class IndexedText(NamedTuple):
    """One text as it was sent."""

    source: Source
    asked: CallSummary
    call_id: str
    sent: str
    text: str
    """Bodies of its units, a line each; holes where markers stand."""
    numbering: Numbering | None
    comma: str
    units: int
    whole: bool
    """Nothing of it was left out."""
    holes: tuple[int, ...]
    """Where markers stand, in a text whose lines have no numbers."""
    place: int
    """Characters sent before it, of everything that counts as distance."""
    shapeless: bool
    """It was sent as it is because no shape fits it."""
    view: str = ""
    """What its lines are a view of: those of the slot before it, without their signs."""

    @property
    def name(self) -> tuple[str, str, str]:
        """What tells it from others, but for its number: a result by its call, an argument by its own name as well."""
        return self.source.kind, self.source.part if self.source.kind == "call" else "", self.asked.label

    def fits(self, unit: str, first: int, last: int) -> bool:
        """Whether it shows the lines that are called that, or without a unit, whether all of it is shown."""
        if not unit:
            return self.whole
        if (unit == "item") is not bool(self.comma) or (last > self.units and self.numbering is None):
            return False
        if self.numbering is not None:
            start = self.numbering.position(unit, first)
            return start >= 0 and self.numbering.position(unit, last) == start + last - first < self.units
        at = bisect_left(self.holes, first - 1)
        return at == len(self.holes) or self.holes[at] >= last


class Match(NamedTuple):
    """Units `first` up to, not including, `last` of the new text stand in a slot."""

    first: int
    last: int
    slot: int
    offset: int
    """Where they start in the slot's text."""


@dataclass(frozen=True)
class IndexedShown(Shown):
    """The text of a slot: the lines that a marker points at are found without taking all of it apart."""

    slot: IndexedText
    lines: Lines

    @property
    def comma(self) -> str:
        return self.slot.comma

    def whole(self) -> str | None:
        """What stands before the marker that says how it was folded is all of it, unless that is not all of it."""
        folded, _, last = self.sent.rpartition("\n")
        said = parse(last, self.tag) if self.slot.whole else None
        if said is None or said.source is not None or SPARSE_FLAG in said.flags:
            return super().whole()
        return folded

    def position(self, marker: Marker) -> int:
        return placed(self.slot.numbering, marker)

    def bodies(self, marker: Marker) -> Sequence[str] | None:
        text = self._text_at(marker)
        found = None if text is None else text.split("\n")
        if found is None or (not self.slot.whole and (MARKER_UNIT in found or EVICTED_UNIT in found)):
            return None  # a line may look like that; `expand` would not know it from a gap
        return viewed(found, marker.view)

    def lines_at(self, marker: Marker) -> str | None:
        text = self._text_at(marker)
        if text is None or marker.view or (MARKER_UNIT in text and not self.slot.whole):
            return super().lines_at(marker)
        return text

    def _text_at(self, marker: Marker) -> str | None:
        first = self.position(marker)
        last = first + marker.last - marker.first
        return None if first < 0 or last >= self.slot.units else self.lines.text(first, last + 1)


class Bodies:
    """What is compared of a text, measured once: to look it up, and to index it."""

    __slots__ = ("_hashes", "edges", "joined", "lengths", "seq", "starts")

    def __init__(self, layout: Layout) -> None:
        self.seq = layout.bodies
        self.edges = layout.edges if layout.numbers is not None else []
        self._hashes: list[int] | None = None
        self.lengths = [*map(len, layout.bodies)]
        self.starts = [*accumulate(self.lengths, initial=0)]
        """Characters before each unit, line breaks not counted."""
        self.joined: str | None = None

    def stretch(self, at: int) -> tuple[int, int]:
        """First and last (not included) of the units that a run around this one may take in."""
        edge = bisect_right(self.edges, at)
        return self.edges[edge - 1] if edge else 0, self.edges[edge] if edge < len(self.edges) else len(self.seq)

    def beside(self, at: int, old: str, local: int, after: int) -> bool:
        """Whether a unit next to this one may stand there as well: most lines that are found stand alone."""
        seq = self.seq
        if at + 1 < len(seq) and old.startswith(seq[at + 1], after + 1):
            return True
        return at > 0 and local > 0 and old.endswith(seq[at - 1], 0, local - 1)

    @property
    def hashes(self) -> list[int]:
        """Of all units: most that stand elsewhere never need theirs."""
        if self._hashes is None:
            self._hashes = [*map(hash, self.seq)]
        return self._hashes

    @property
    def text(self) -> str:
        """A line each."""
        if self.joined is None:
            self.joined = "\n".join(self.seq)
        return self.joined
