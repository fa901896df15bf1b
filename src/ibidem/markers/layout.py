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

from . import backref, eviction_markers
from .backref import Marker
from .line_numbers import NumberedLines, detect_style, split_numbered_lines
from .patches import lines_in_view
from .sequential_lines import find_sequential_lines

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
    style_letter: str
    """Letter of the line number style, see `line_numbers.STYLES`."""
    comma: str
    """Letter of the item separator, see ITEM_SEPARATORS; empty for lines."""
    has_holes: bool
    """True if a unit is a placeholder, so that the text is incomplete."""
    has_markers: bool = False
    """True if the text contains the start of a marker. Otherwise the joined units are the text itself."""
    gaps: tuple[tuple[int, int], ...] = ()
    """Placeholders of evicted lines, and how many lines each replaces. Positions of other lines do not change."""
    edges: Sequence[int] = ()
    """Positions where a range of consecutive numbers, or of lines without numbers, starts; empty without numbers."""

    @property
    def separator(self) -> str:
        return ITEM_SEPARATORS[self.comma] if self.comma else "\n"

    @property
    def unit_name(self) -> str:
        return "item" if self.comma else "line"

    def unit_at(self, position: int) -> int:
        """Return the unit at a position that also counts evicted lines; -1 for an evicted line."""
        if not self.gaps:
            return position
        before = accumulate((lines - 1 for _, lines in self.gaps), initial=0)
        positions = [unit + shift for (unit, _), shift in zip(self.gaps, before, strict=False)]
        gap = bisect_right(positions, position) - 1
        if gap < 0:
            return position
        unit, lines = self.gaps[gap]
        after = position - positions[gap] - lines
        return unit + 1 + after if after >= 0 else -1


OPAQUE_LAYOUT = Layout((), (), None, "", "", True, True)
"""Layout of a text whose markers are not ours. References cannot point into it."""


def parse_layout(text: str, tag: str) -> Layout:
    """Return the layout of a sent text. A marker for the whole text states how it was encoded."""
    if backref.marker_prefix(tag) not in text:
        return _split_units(text.split("\n"))
    # The start of a marker does not prove that it is ours. Either all of them are where ours would be, or the text is
    # a stub of an evicted text, or it is a quotation. References cannot point into a quotation.
    form = parse_marked(text, tag)
    if form is None:
        return _with_gaps(text, tag)
    lines, markers = form.lines, form.markers
    last = markers.get(len(lines) - 1)
    if len(lines) > 1 and last is not None and last.source is None:
        del lines[-1], markers[len(lines)]  # it only states how the text was encoded
    # Restore omitted line numbers first, or lines would be compared with their tabs and without numbers.
    flags = form.head.flags
    lines = restore_line_numbers(lines) if SPARSE_FLAG in flags else lines
    # A marker is one unit, however many lines it claims. So a false claim cannot move the units below.
    for place in markers:
        lines[place] = MARKER_UNIT
    return _split_units(lines, flags, bool(markers), True)


def _split_units(lines: list[str], flags: str = "", has_holes: bool = False, has_markers: bool = False) -> Layout:
    comma = separator_letter("\n".join(lines), flags) if flags or len(lines) == 1 else ""
    if comma:
        separator = ITEM_SEPARATORS[comma]
        units = [unit for line in lines for unit in ([MARKER_UNIT] if line == MARKER_UNIT else line.split(separator))]
        return Layout(units, units, None, "", comma, has_holes, has_markers)
    return split_line_numbers(lines, has_holes, has_markers)


def _with_gaps(text: str, tag: str) -> Layout:
    """Return the layout of a stub, one unit for each marker; OPAQUE_LAYOUT for other texts."""
    stub = eviction_markers.parse_stub(text, tag)
    if stub is None:
        return OPAQUE_LAYOUT
    lines = text.split("\n")
    for unit, _ in stub.gaps:
        lines[unit] = EVICTED_UNIT
    return split_line_numbers(lines, True, True)._replace(gaps=stub.gaps)


class MarkedText(NamedTuple):
    """A text in which every marker is where Ibidem would put one."""

    lines: list[str]
    markers: dict[int, Marker]
    """Markers by line."""
    head: Marker
    """The first marker. It has the digest, and states how the text was encoded."""


def parse_marked(text: str, tag: str) -> MarkedText | None:
    """Parse a part with references; None for any other text, such as one that quotes a marker.

    A rewritten text contained no marker before. So each occurrence of a marker's start is a whole marker line, and only
    the first has a digest.
    """
    lines = text.split("\n")
    markers = parse_markers(text, lines, tag)
    marker_list = [*markers.values()]
    if not marker_list or len(marker_list) != text.count(backref.marker_prefix(tag)):
        return None
    if not has_unique_flags(marker_list[0].flags) or [bool(marker.digest) for marker in marker_list].count(True) != 1:
        return None
    return MarkedText(lines, markers, marker_list[0]) if marker_list[0].digest else None


def has_unique_flags(flags: str) -> bool:
    """Return True if each letter occurs once among a marker's flags."""
    letters = [letter for letter in flags if letter.isalpha()]
    return len(set(letters)) == len(letters)


SPARSE_FLAG = "s"
"""Flag: of consecutive line numbers, only every tenth is written."""
_DENSE = re.compile(r"(\d{1,9})(?=\t)")


def drop_line_numbers(sent: str, tag: str) -> str | None:
    """Remove most consecutive line numbers from a sent text; None if it has no marker to record that."""
    lines = sent.split("\n")
    markers = parse_markers(sent, lines, tag)
    head = next((index for index, marker in markers.items() if marker.digest), None)
    if head is None:
        return None
    last: int | None = None
    for at, line in enumerate(lines):
        numeral = _DENSE.match(line)
        number = int(numeral[1]) if numeral else None
        if numeral and number is not None and last is not None and number == last + 1 and number % 10:
            lines[at] = line[numeral.end() :]
        last = number
    lines[head] = str(markers[head]._replace(flags=markers[head].flags + SPARSE_FLAG))
    return "\n".join(lines)


def restore_line_numbers(lines: list[str]) -> list[str]:
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


def parse_markers(text: str, lines: list[str], tag: str) -> dict[int, Marker]:
    """Return the markers of a part by line. A short one depends on the marker above it."""
    markers: dict[int, Marker] = {}
    before: Marker | None = None
    line = offset = 0
    for start in _find_line_starts(text, backref.marker_prefix(tag)):
        line += text.count("\n", offset, start)
        offset = start
        marker = backref.parse_marker(lines[line], tag, before)
        if marker is not None:
            markers[line] = before = marker
    return markers


def _find_line_starts(text: str, prefix: str) -> Iterator[int]:
    """Yield the offsets of lines that start with `prefix`."""
    if text.startswith(prefix):
        yield 0
    offset = text.find("\n" + prefix) + 1
    while offset:
        yield offset
        offset = text.find("\n" + prefix, offset) + 1


def separator_letter(text: str, flags: str = "") -> str:
    """Return the letter of the item separator, from the flags or the text; empty for lines."""
    for letter in ITEM_SEPARATORS:
        if letter in flags:
            return letter
    if "\n" in text or len(text) < 200:
        return ""
    return next((letter for letter, joint in ITEM_SEPARATORS.items() if text.count(joint) >= 8), "")


def split_line_numbers(lines: Sequence[str], has_holes: bool = False, has_markers: bool = False) -> Layout:
    """Return the layout of lines, with their numbers split off if they have any."""
    evicted_count = lines.count(EVICTED_UNIT)
    sequence = find_sequential_lines(lines)
    if sequence is not None:
        is_majority = 2 * len(sequence.bodies) >= len(lines) - evicted_count
        return numbered_layout(
            lines, sequence.to_numbered_lines(lines) if is_majority else None, has_holes, has_markers
        )
    style = detect_style([line for line in lines if line != EVICTED_UNIT] if evicted_count else lines)
    numbered_lines = split_numbered_lines("\n".join(lines), style, evicted_count) if style is not None else None
    return numbered_layout(lines, numbered_lines, has_holes, has_markers)


def numbered_layout(
    lines: Sequence[str], numbered_lines: NumberedLines | None, has_holes: bool = False, has_markers: bool = False
) -> Layout:
    """Return the layout of lines whose numbers were split off, if they have any."""
    if numbered_lines is None:
        return Layout(lines, lines, None, "", "", has_holes, has_markers)
    return Layout(
        lines,
        numbered_lines.bodies,
        numbered_lines.numbers,
        numbered_lines.style.letter,
        "",
        has_holes,
        has_markers,
        edges=numbered_lines.edges,
    )


@dataclass(frozen=True, slots=True)
class LineNumberRanges:
    """Positions of a text's line numbers, as ranges of (position, number), and whether each number occurs once."""

    starts: tuple[int, ...]
    firsts: tuple[int | None, ...]
    unique: bool
    by_number: tuple[tuple[int, int, int], ...]
    """Number, position and length of each numbered range, sorted by number."""

    @classmethod
    def from_layout(cls, layout: Layout) -> LineNumberRanges | None:
        if layout.numbers is None:
            return None
        starts = (0, *layout.edges)
        firsts = tuple(layout.numbers[start] for start in starts)
        ends = (*starts[1:], len(layout.numbers))
        ranges = zip(firsts, starts, ends, strict=True)
        by_number = sorted((first, start, end - start) for first, start, end in ranges if first is not None)
        return cls(starts, firsts, _once_each(by_number), tuple(by_number))

    def range_address(self, first: int, last: int) -> tuple[str, int]:
        """Return how to name a range of lines: by their visible numbers (`line`) or by position (`row`)."""
        index = bisect_right(self.starts, first) - 1
        number = self.firsts[index]
        is_one_range = index + 1 == len(self.starts) or last < self.starts[index + 1]
        if self.unique and number is not None and is_one_range:
            return "line", number + first - self.starts[index]
        return "row", first + 1

    def find_position(self, unit: str, first: int) -> int:
        """Return the position of the line with this name; -1 without one."""
        if unit == "row":
            return first - 1
        index = bisect_right(self.by_number, (first, len(self.starts) + self.starts[-1])) - 1
        if index < 0:
            return -1
        number, start, length = self.by_number[index]
        return start + first - number if first - number < length else -1


def _once_each(ranges: list[tuple[int, int, int]]) -> bool:
    """Return True if no number occurs in two of the ranges, which are sorted by their first number."""
    return all(first + length <= after for (first, _, length), (after, _, _) in pairwise(ranges))


def first_unit_position(numbering: LineNumberRanges | None, marker: Marker) -> int:
    """Return the position of the first unit that a marker points at, in a text with this numbering; -1 without one."""
    return marker.first - 1 if numbering is None else numbering.find_position(marker.unit, marker.first)


@dataclass(frozen=True)
class VisibleText:
    """A text that the model can see. Split into units when a reference needs a part of it."""

    sent: str
    tag: str

    @classmethod
    def from_text(cls, sent: str, tag: str) -> VisibleText:
        return cls(sent, tag)

    @cached_property
    def layout(self) -> Layout:
        return parse_layout(self.sent, self.tag)

    @cached_property
    def numbering(self) -> LineNumberRanges | None:
        return LineNumberRanges.from_layout(self.layout)

    def full_text(self) -> str | None:
        """Return the complete text, without the marker that only states how it was encoded; None if text is missing."""
        if backref.marker_prefix(self.tag) not in self.sent:
            return self.sent
        return None if self.layout.has_holes else self.layout.separator.join(self.layout.units)

    @property
    def comma(self) -> str:
        """Letter of the item separator; empty for lines."""
        return self.layout.comma

    def find_position(self, marker: Marker) -> int:
        """Return the first unit that a marker points at; -1 without one."""
        position = first_unit_position(self.numbering, marker)
        is_numbered = self.numbering is not None and marker.unit != "row"
        return position if is_numbered else self.layout.unit_at(position)

    def find_units(self, marker: Marker) -> Sequence[str] | None:
        """Return the units that a marker points at; None if they are not complete."""
        first = self.find_position(marker)
        last = first + marker.last - marker.first
        if first < 0 or last < first or last >= len(self.layout.bodies):
            return None
        units = self.layout.bodies[first : last + 1]
        if self.layout.has_holes and (MARKER_UNIT in units or EVICTED_UNIT in units):
            return None
        return lines_in_view(units, marker.view)

    def joined_units(self, marker: Marker) -> str | None:
        """Return the units that a marker points at, one per line; None if they are not complete."""
        units = self.find_units(marker)
        return None if units is None else "\n".join(units)
