"""A text as it is sent, taken apart into the units that references count in.

Everything here is a function of the sent text alone, so whoever reads the request later, to expand it or to compact it
further, counts the same.

A text with markers may be anybody's: a tool can print what it likes. So it is taken apart only if every marker in it
stands where one of ours would (`marked`), and a line that stands for many is one unit, however many it claims.
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
"""How a text of one line is parted; the letter stands among the flags of its marker."""

MARKER_UNIT = "\x00"
"""Stands where a marker stands: equal to no line that could be meant."""

EVICTED_UNIT = "\x00\x00"
"""Stands for lines that were let go: equal to no line that could be meant."""


class Layout(NamedTuple):
    units: Sequence[str]
    """Lines, or pieces of a single line; MARKER_UNIT where a marker stands."""
    bodies: Sequence[str]
    """What is compared: units without their line numbers."""
    numbers: Sequence[int | None] | None
    """Line numbers, where the text has them."""
    mark: str
    """Letter of how the numbers are written, see `line_numbers.STYLES`."""
    comma: str
    """Letter of what parts the units, see ITEM_SEPARATORS; empty for lines."""
    holes: bool
    marked: bool = False
    """A marker, or what begins like one, stands in the text; without one, the units joined are the text itself."""
    gaps: tuple[tuple[int, int], ...] = ()
    """Units that stand for lines which were let go, and how many lines each: the others keep their places."""
    edges: Sequence[int] = ()
    """Positions where a stretch of consecutive numbers, or of lines without, begins; none without numbers."""

    @property
    def joint(self) -> str:
        return ITEM_SEPARATORS[self.comma] if self.comma else "\n"

    @property
    def word(self) -> str:
        return "item" if self.comma else "line"

    def unit_at(self, place: int) -> int:
        """Which unit stands at a place, counted with what was let go; -1 for what was."""
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
"""Of a text whose markers are not ours: nothing in it can be pointed at."""


def lay_out(text: str, tag: str) -> Layout:
    """The layout of a sent text; its own marker, if it has one, says how it was folded."""
    if backref.opening(tag) not in text:
        return _parted(text.split("\n"))
    # What begins like a marker is not believed by its looks: either all of them stand where ours would, or the text is
    # a stub of what was let go, or it is somebody's quotation, and then nothing in it can be pointed at.
    form = marked(text, tag)
    if form is None:
        return _with_gaps(text, tag)
    lines, markers = form.lines, form.markers
    last = markers.get(len(lines) - 1)
    if len(lines) > 1 and last is not None and last.source is None:
        del lines[-1], markers[len(lines)]  # it says how the text was folded, and hides nothing
    # Line numbers that were thinned out are put back first, or lines would be compared with their tabs and no number.
    flags = form.head.flags
    lines = thicken(lines) if SPARSE_FLAG in flags else lines
    # A marker is one unit, however many lines it stands for: so a claim in it cannot move what stands below.
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
    """Of a text of which lines were let go, one unit for each marker; OPAQUE_LAYOUT if it is none."""
    found = evicted.stub(text, tag)
    if found is None:
        return OPAQUE_LAYOUT
    lines = text.split("\n")
    for unit, _ in found.gaps:
        lines[unit] = EVICTED_UNIT
    return number(lines, True, True)._replace(gaps=found.gaps)


class Marked(NamedTuple):
    """A text in which every marker stands where one of ours would."""

    lines: list[str]
    markers: dict[int, Marker]
    """The marker that a line is, by its place."""
    head: Marker
    """The first: it has the digest, and says how the text was folded."""


def marked(text: str, tag: str) -> Marked | None:
    """A text that has the form of a part with references; None for any other, such as one that quotes a marker.

    What is rewritten had no marker in it. So all that begins like one is one, on a line of its own, and only the first
    has a digest.
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
    """Whether no letter stands twice among the flags of a marker."""
    letters = [letter for letter in flags if letter.isalpha()]
    return len(set(letters)) == len(letters)


SPARSE_FLAG = "s"
"""Among the flags: of consecutive line numbers only every tenth is written."""
_DENSE = re.compile(r"(\d{1,9})(?=\t)")


def thin(sent: str, tag: str) -> str | None:
    """A sent text with most of its consecutive line numbers left out; None if it has no marker to say so."""
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
    """The numbers put back: a line that starts with a tab goes on counting."""
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
    """The lines of a part that are markers, by their place: what one says may rest on the one above it."""
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
    """Where lines begin that begin with this."""
    if text.startswith(opening):
        yield 0
    at = text.find("\n" + opening) + 1
    while at:
        yield at
        at = text.find("\n" + opening, at) + 1


def comma_of(text: str, flags: str = "") -> str:
    for letter in ITEM_SEPARATORS:
        if letter in flags:
            return letter
    if "\n" in text or len(text) < 200:
        return ""
    return next((letter for letter, joint in ITEM_SEPARATORS.items() if text.count(joint) >= 8), "")


def number(lines: Sequence[str], holes: bool = False, marked: bool = False) -> Layout:
    """Lines, with their numbers told apart if they have any."""
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
    """Of lines whose numbers were told apart, if they have any."""
    if found is None:
        return Layout(lines, lines, None, "", "", holes, marked)
    return Layout(lines, found.bodies, found.numbers, found.style.letter, "", holes, marked, edges=found.edges)


@dataclass(frozen=True, slots=True)
class Numbering:
    """Where the numbers of a text's lines stand: stretches of (position, number), and whether a number occurs once."""

    starts: tuple[int, ...]
    firsts: tuple[int | None, ...]
    unique: bool
    by_number: tuple[tuple[int, int, int], ...]
    """Number, position and length of each stretch that has numbers, in the order of the numbers."""

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
        """What to call a range of lines: by the numbers they show, or by where they stand (`row`)."""
        at = bisect_right(self.starts, first) - 1
        shown = self.firsts[at]
        whole = at + 1 == len(self.starts) or last < self.starts[at + 1]
        if self.unique and shown is not None and whole:
            return "line", shown + first - self.starts[at]
        return "row", first + 1

    def position(self, unit: str, first: int) -> int:
        """Where the line called that stands; -1 if there is none."""
        if unit == "row":
            return first - 1
        at = bisect_right(self.by_number, (first, len(self.starts) + self.starts[-1])) - 1
        if at < 0:
            return -1
        shown, start, length = self.by_number[at]
        return start + first - shown if first - shown < length else -1


def _once_each(stretches: list[tuple[int, int, int]]) -> bool:
    """Whether no number occurs in two of the stretches, which are in the order of their first."""
    return all(first + length <= after for (first, _, length), (after, _, _) in pairwise(stretches))


def placed(numbering: Numbering | None, marker: Marker) -> int:
    """Where the first unit that a marker points at stands in a text that is numbered like that; -1 if nowhere."""
    return marker.first - 1 if numbering is None else numbering.position(marker.unit, marker.first)


@dataclass(frozen=True)
class Shown:
    """A text the model can see, ready to be pointed at; taken apart when a part of it is."""

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
        """All of it, without the marker that says how it was folded; None if it is not there in full."""
        if backref.opening(self.tag) not in self.sent:
            return self.sent
        return None if self.layout.holes else self.layout.joint.join(self.layout.units)

    @property
    def comma(self) -> str:
        """Letter of what parts its units; empty for lines."""
        return self.layout.comma

    def position(self, marker: Marker) -> int:
        """The first unit that a marker points at; -1 if there is none."""
        found = placed(self.numbering, marker)
        shown = self.numbering is not None and marker.unit != "row"
        return found if shown else self.layout.unit_at(found)

    def bodies(self, marker: Marker) -> Sequence[str] | None:
        """The units that a marker points at; None if they are not there in full."""
        first = self.position(marker)
        last = first + marker.last - marker.first
        if first < 0 or last < first or last >= len(self.layout.bodies):
            return None
        found = self.layout.bodies[first : last + 1]
        if self.layout.holes and (MARKER_UNIT in found or EVICTED_UNIT in found):
            return None
        return viewed(found, marker.view)

    def lines_at(self, marker: Marker) -> str | None:
        """The units that a marker points at, a line each; None if they are not there in full."""
        found = self.bodies(marker)
        return None if found is None else "\n".join(found)
