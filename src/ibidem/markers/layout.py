"""A sent text, split into the units that references count.

Everything here depends only on the sent text, so `expand` and a later `compact` count the same units.

A text with markers may come from any source: a tool can print any text. So it is split only if every marker in it is
where Ibidem would put one (`parse_marked`), and a marker is one unit, however many lines it claims.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, pairwise
from typing import NamedTuple

from . import backref, evicted
from .backref import Marker
from .counting import counting
from .line_numbers import NumberedLines, numbered, style_of
from .patches import viewed

ITEM_SEPARATORS = {"x": ", ", "y": ","}
"""Separators of the units in a text of one line, by their letter in the marker's flags."""

MARKER_UNIT = "\x00"
"""Placeholder for a marker. Never equal to a line that could be referred to."""

EVICTED_UNIT = "\x00\x00"
"""Placeholder for evicted lines. Never equal to a line that could be referred to."""


class Layout(NamedTuple):
    """The units of one text, with their numbers."""

    units: Sequence[str]
    """Lines, or items of a single line; MARKER_UNIT for a marker."""
    bodies: Sequence[str]
    """Units without their line numbers, for comparison."""
    numbers: Sequence[int | None] | None
    """Line numbers, if the text has them."""
    mark: str
    """Letter of the line number style, see `line_numbers.STYLES`."""
    comma: str
    """Letter of the item separator, see ITEM_SEPARATORS; empty for lines."""
    holes: bool
    """True if a unit is a placeholder, so that the text is incomplete."""
    marked: bool = False
    """True if the text contains the start of a marker. Otherwise the joined units are the text itself."""
    gaps: tuple[tuple[int, int], ...] = ()
    """Placeholders of evicted lines, and how many lines each replaces. Positions of other lines do not change."""
    edges: Sequence[int] = ()
    """Positions where a range of consecutive numbers, or of lines without numbers, starts; empty without numbers."""

    @property
    def joint(self) -> str:
        return ITEM_SEPARATORS[self.comma] if self.comma else "\n"

    @property
    def word(self) -> str:
        return "item" if self.comma else "line"

    def unit_at(self, place: int) -> int:
        """Return the unit at a position that also counts evicted lines; -1 for an evicted line."""
        if not self.gaps:
            return place
        before = accumulate((lines - 1 for _, lines in self.gaps), initial=0)
        places = [unit + shift for (unit, _), shift in zip(self.gaps, before, strict=False)]
        gap = bisect_right(places, place) - 1
        if gap < 0:
            return place
        unit, lines = self.gaps[gap]
        after = place - places[gap] - lines
        return unit + 1 + after if after >= 0 else -1


OPAQUE_LAYOUT = Layout((), (), None, "", "", True, True)
"""Layout of a text whose markers are not ours. References cannot point into it."""


def lay_out(text: str, tag: str) -> Layout:
    """Return the layout of a sent text. A marker for the whole text states how it was encoded."""
    if backref.opening(tag) not in text:
        return _parted(text.split("\n"))
    # The start of a marker does not prove that it is ours. Either all of them are where ours would be, or the text is
    # a stub of an evicted text, or it is a quotation. References cannot point into a quotation.
    form = marked(text, tag)
    if form is None:
        return _with_gaps(text, tag)
    lines, markers = form.lines, form.markers
    last = markers.get(len(lines) - 1)
    if len(lines) > 1 and last is not None and last.source is None:
        del lines[-1], markers[len(lines)]  # it only states how the text was encoded
    # Restore omitted line numbers first, or lines would be compared with their tabs and without numbers.
    flags = form.head.flags
    lines = thicken(lines) if SPARSE_FLAG in flags else lines
    # A marker is one unit, however many lines it claims. So a false claim cannot move the units below.
    for place in markers:
        lines[place] = MARKER_UNIT
    return _parted(lines, flags, bool(markers), True)


def _parted(lines: list[str], flags: str = "", holes: bool = False, marked: bool = False) -> Layout:
    comma = comma_of("\n".join(lines), flags) if flags or len(lines) == 1 else ""
    if comma:
        joint = ITEM_SEPARATORS[comma]
        units = [unit for line in lines for unit in ([MARKER_UNIT] if line == MARKER_UNIT else line.split(joint))]
        return Layout(units, units, None, "", comma, holes, marked)
    return number(lines, holes, marked)


def _with_gaps(text: str, tag: str) -> Layout:
    """Return the layout of a stub, one unit for each marker; OPAQUE_LAYOUT for other texts."""
    found = evicted.stub(text, tag)
    if found is None:
        return OPAQUE_LAYOUT
    lines = text.split("\n")
    for unit, _ in found.gaps:
        lines[unit] = EVICTED_UNIT
    return number(lines, True, True)._replace(gaps=found.gaps)


class Marked(NamedTuple):
    """A text in which every marker is where Ibidem would put one."""

    lines: list[str]
    markers: dict[int, Marker]
    """Markers by line."""
    head: Marker
    """The first marker. It has the digest, and states how the text was encoded."""


def marked(text: str, tag: str) -> Marked | None:
    """Parse a part with references; None for any other text, such as one that quotes a marker.

    A rewritten text contained no marker before. So each occurrence of a marker's start is a whole marker line, and only
    the first has a digest.
    """
    lines = text.split("\n")
    markers = parsed(text, lines, tag)
    found = [*markers.values()]
    if not found or len(found) != text.count(backref.opening(tag)):
        return None
    if not unambiguous(found[0].flags) or [bool(marker.digest) for marker in found].count(True) != 1:
        return None
    return Marked(lines, markers, found[0]) if found[0].digest else None


def unambiguous(flags: str) -> bool:
    """Return True if each letter occurs once among a marker's flags."""
    letters = [letter for letter in flags if letter.isalpha()]
    return len(set(letters)) == len(letters)


SPARSE_FLAG = "s"
"""Flag: of consecutive line numbers, only every tenth is written."""
_DENSE = re.compile(r"(\d{1,9})(?=\t)")


def thin(sent: str, tag: str) -> str | None:
    """Remove most consecutive line numbers from a sent text; None if it has no marker to record that."""
    lines = sent.split("\n")
    markers = parsed(sent, lines, tag)
    head = next((at for at, marker in markers.items() if marker.digest), None)
    if head is None:
        return None
    last: int | None = None
    for at, line in enumerate(lines):
        numeral = _DENSE.match(line)
        shown = int(numeral[1]) if numeral else None
        if numeral and shown is not None and last is not None and shown == last + 1 and shown % 10:
            lines[at] = line[numeral.end() :]
        last = shown
    lines[head] = str(markers[head]._replace(flags=markers[head].flags + SPARSE_FLAG))
    return "\n".join(lines)


def thicken(lines: list[str]) -> list[str]:
    """Restore omitted line numbers. A line that starts with a tab has the next number."""
    dense: list[str] = []
    last: int | None = None
    for line in lines:
        numeral = _DENSE.match(line)
        if numeral is None and line[:1] == "\t" and last is not None:
            last += 1
            dense.append(f"{last}{line}")
            continue
        last = int(numeral[1]) if numeral else None
        dense.append(line)
    return dense


def parsed(text: str, lines: list[str], tag: str) -> dict[int, Marker]:
    """Return the markers of a part by line. A short one depends on the marker above it."""
    found: dict[int, Marker] = {}
    before: Marker | None = None
    line = done = 0
    for start in _starts(text, backref.opening(tag)):
        line += text.count("\n", done, start)
        done = start
        marker = backref.parse(lines[line], tag, before)
        if marker is not None:
            found[line] = before = marker
    return found


def _starts(text: str, opening: str) -> Iterator[int]:
    """Yield the offsets of lines that start with `opening`."""
    if text.startswith(opening):
        yield 0
    at = text.find("\n" + opening) + 1
    while at:
        yield at
        at = text.find("\n" + opening, at) + 1


def comma_of(text: str, flags: str = "") -> str:
    """Return the letter of the item separator, from the flags or the text; empty for lines."""
    for letter in ITEM_SEPARATORS:
        if letter in flags:
            return letter
    if "\n" in text or len(text) < 200:
        return ""
    return next((letter for letter, joint in ITEM_SEPARATORS.items() if text.count(joint) >= 8), "")


def number(lines: Sequence[str], holes: bool = False, marked: bool = False) -> Layout:
    """Return the layout of lines, with their numbers split off if they have any."""
    gone = lines.count(EVICTED_UNIT)
    counts = counting(lines)
    if counts is not None:
        most = 2 * len(counts.bodies) >= len(lines) - gone
        return numbered_layout(lines, counts.apart(lines) if most else None, holes, marked)
    style = style_of([line for line in lines if line != EVICTED_UNIT] if gone else lines)
    found = numbered("\n".join(lines), style, gone) if style is not None else None
    return numbered_layout(lines, found, holes, marked)


def numbered_layout(
    lines: Sequence[str], found: NumberedLines | None, holes: bool = False, marked: bool = False
) -> Layout:
    """Return the layout of lines whose numbers were split off, if they have any."""
    if found is None:
        return Layout(lines, lines, None, "", "", holes, marked)
    return Layout(lines, found.bodies, found.numbers, found.style.letter, "", holes, marked, edges=found.edges)


@dataclass(frozen=True, slots=True)
class Numbering:
    """Positions of a text's line numbers, as ranges of (position, number), and whether each number occurs once."""

    starts: tuple[int, ...]
    firsts: tuple[int | None, ...]
    unique: bool
    by_number: tuple[tuple[int, int, int], ...]
    """Number, position and length of each numbered range, sorted by number."""

    @classmethod
    def of(cls, layout: Layout) -> Numbering | None:
        if layout.numbers is None:
            return None
        starts = (0, *layout.edges)
        firsts = tuple(layout.numbers[start] for start in starts)
        ends = (*starts[1:], len(layout.numbers))
        stretches = zip(firsts, starts, ends, strict=True)
        by_number = sorted((first, start, end - start) for first, start, end in stretches if first is not None)
        return cls(starts, firsts, _once_each(by_number), tuple(by_number))

    def address(self, first: int, last: int) -> tuple[str, int]:
        """Return how to name a range of lines: by their visible numbers (`line`) or by position (`row`)."""
        at = bisect_right(self.starts, first) - 1
        shown = self.firsts[at]
        whole = at + 1 == len(self.starts) or last < self.starts[at + 1]
        if self.unique and shown is not None and whole:
            return "line", shown + first - self.starts[at]
        return "row", first + 1

    def position(self, unit: str, first: int) -> int:
        """Return the position of the line with this name; -1 without one."""
        if unit == "row":
            return first - 1
        at = bisect_right(self.by_number, (first, len(self.starts) + self.starts[-1])) - 1
        if at < 0:
            return -1
        shown, start, length = self.by_number[at]
        return start + first - shown if first - shown < length else -1


def _once_each(stretches: list[tuple[int, int, int]]) -> bool:
    """Return True if no number occurs in two of the ranges, which are sorted by their first number."""
    return all(first + length <= after for (first, _, length), (after, _, _) in pairwise(stretches))


def placed(numbering: Numbering | None, marker: Marker) -> int:
    """Return the position of the first unit that a marker points at, in a text with this numbering; -1 without one."""
    return marker.first - 1 if numbering is None else numbering.position(marker.unit, marker.first)


@dataclass(frozen=True)
class Shown:
    """A text that the model can see. Split into units when a reference needs a part of it."""

    sent: str
    tag: str

    @classmethod
    def of(cls, sent: str, tag: str) -> Shown:
        return cls(sent, tag)

    @cached_property
    def layout(self) -> Layout:
        return lay_out(self.sent, self.tag)

    @cached_property
    def numbering(self) -> Numbering | None:
        return Numbering.of(self.layout)

    def whole(self) -> str | None:
        """Return the complete text, without the marker that only states how it was encoded; None if text is missing."""
        if backref.opening(self.tag) not in self.sent:
            return self.sent
        return None if self.layout.holes else self.layout.joint.join(self.layout.units)

    @property
    def comma(self) -> str:
        """Letter of the item separator; empty for lines."""
        return self.layout.comma

    def position(self, marker: Marker) -> int:
        """Return the first unit that a marker points at; -1 without one."""
        found = placed(self.numbering, marker)
        shown = self.numbering is not None and marker.unit != "row"
        return found if shown else self.layout.unit_at(found)

    def bodies(self, marker: Marker) -> Sequence[str] | None:
        """Return the units that a marker points at; None if they are not complete."""
        first = self.position(marker)
        last = first + marker.last - marker.first
        if first < 0 or last < first or last >= len(self.layout.bodies):
            return None
        found = self.layout.bodies[first : last + 1]
        if self.layout.holes and (MARKER_UNIT in found or EVICTED_UNIT in found):
            return None
        return viewed(found, marker.view)

    def lines_at(self, marker: Marker) -> str | None:
        """Return the units that a marker points at, one per line; None if they are not complete."""
        found = self.bodies(marker)
        return None if found is None else "\n".join(found)
