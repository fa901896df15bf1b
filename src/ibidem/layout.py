"""A text as it is sent, taken apart into the units that references count in.

Everything here is a function of the sent text alone, so whoever reads the request later, to expand it or to compact it
further, counts the same.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from operator import lt

from . import references, removals, shapes
from .references import Marker, Source

MARKS = {"n": "→", "t": "\t", "k": ":"}
"""What parts a line's number from its text; folded text has tabs."""
TAB, COLON = "t", "k"
COMMAS = {"x": ", ", "y": ","}
"""How a text of one line is parted; the letter stands among the flags of its marker."""

HOLE = "\x00"
"""Stands where a marker stands: equal to no line that could be meant."""

GONE = "\x00\x00"
"""Stands for each line that was let go: it keeps the others in their places, and counts for nothing else."""

LEFT_OUT = " left out"
"""What markers of lines that went say."""

LOOK = 60
_NUMBERED = {letter: re.compile(rf" *(\d+){mark}") for letter, mark in MARKS.items()}
_ANY_NUMBER = re.compile(rf"\n *\d+[{''.join(MARKS.values())}]")


@dataclass(frozen=True)
class Layout:
    units: Sequence[str]
    """Lines, or pieces of a single line; HOLE where a marker stands."""
    bodies: Sequence[str]
    """What is compared: units without their line numbers."""
    numbers: list[int | None] | None
    """Line numbers, where the text has them."""
    mark: str
    """Letter of the numbering, see MARKS."""
    comma: str
    """Letter of what parts the units, see COMMAS; empty for lines."""
    holes: bool
    marked: bool = False
    """A marker, or what begins like one, stands in the text; without one, the units joined are the text itself."""

    @property
    def joint(self) -> str:
        return COMMAS[self.comma] if self.comma else "\n"

    @property
    def word(self) -> str:
        return "item" if self.comma else "line"

    @cached_property
    def edges(self) -> list[int]:
        """Positions where a stretch of consecutive numbers, or of lines without, begins; none without numbers."""
        numbers = self.numbers
        if numbers is None:
            return []
        return [
            at
            for at, (before, here) in enumerate(pairwise(numbers), 1)
            if here != (None if before is None else before + 1)
        ]


def lay_out(text: str, tag: str) -> Layout:
    """The layout of a sent text; its own marker, if it has one, says how it was folded."""
    lines = text.split("\n")
    marked = holes = references.opening(tag) in text
    flags = ""
    if marked:
        markers = parsed(lines, tag)
        flags = next((marker.flags for marker in markers if marker is not None and marker.digest), "")
        if (
            len(lines) > 1 and markers[-1] is not None and markers[-1].source is None
        ):  # it says how the text was folded, and hides nothing
            del lines[-1], markers[-1]
        holes = any(markers)
        lines = thicken(lines) if SPARSE in flags else lines
        lines = [line if marker is None else HOLE for line, marker in zip(lines, markers, strict=True)]
        if LEFT_OUT in text:
            lines, holes = [each for line in lines for each in _in_place(line, tag)], True
    comma = comma_of("\n".join(lines), flags) if flags or len(lines) == 1 else ""
    if comma:
        joint = COMMAS[comma]
        units = [unit for line in lines for unit in ([HOLE] if line == HOLE else line.split(joint))]
        return Layout(units, units, None, "", comma, holes, marked)
    return number(lines, holes, marked)


def _in_place(line: str, tag: str) -> list[str]:
    count = removals.gone_lines(line, tag)
    return [GONE] * count if count else [line]


SPARSE = "s"
"""Among the flags: of consecutive line numbers only every tenth is written."""
_DENSE = re.compile(r"(\d{1,9})(?=\t)")


def thin(sent: str, tag: str) -> str | None:
    """A sent text with most of its consecutive line numbers left out; None if it has no marker to say so."""
    lines = sent.split("\n")
    markers = parsed(lines, tag)
    head = next((at for at, marker in enumerate(markers) if marker is not None and marker.digest), None)
    if head is None:
        return None
    last: int | None = None
    for at, line in enumerate(lines):
        found = _DENSE.match(line)
        shown = int(found[1]) if found else None
        if found and shown is not None and last is not None and shown == last + 1 and shown % 10:
            lines[at] = line[found.end() :]
        last = shown
    marker = markers[head]
    if marker is not None:
        lines[head] = str(marker._replace(flags=marker.flags + SPARSE))
    return "\n".join(lines)


def thicken(lines: list[str]) -> list[str]:
    """The numbers put back: a line that starts with a tab goes on counting."""
    dense: list[str] = []
    last: int | None = None
    for line in lines:
        found = _DENSE.match(line)
        if found is None and line[:1] == "\t" and last is not None:
            last += 1
            dense.append(f"{last}{line}")
            continue
        last = int(found[1]) if found else None
        dense.append(line)
    return dense


def parsed(lines: list[str], tag: str) -> list[Marker | None]:
    opening = references.opening(tag)
    return [references.parse(line, tag) if line.startswith(opening) else None for line in lines]


def comma_of(text: str, flags: str = "") -> str:
    for letter in COMMAS:
        if letter in flags:
            return letter
    if "\n" in text or len(text) < 200:
        return ""
    return next((letter for letter, joint in COMMAS.items() if text.count(joint) >= 8), "")


def number(lines: Sequence[str], holes: bool = False, marked: bool = False) -> Layout:
    """Lines, with their numbers told apart if they have any."""
    shown = [line for line in lines if line != GONE] if GONE in lines else lines
    start = "\n".join(["", *shown[:LOOK]])
    for letter, pattern in _NUMBERED.items() if _ANY_NUMBER.search(start) else ():
        match = pattern.match
        if MARKS[letter] not in start or not any(map(match, shown[:LOOK])):
            continue
        found = [match(line) for line in lines]
        if 2 * sum(map(bool, found)) < len(shown):
            continue
        numbers = [int(each[1]) if each and len(each[1]) < 10 else None for each in found]
        if letter == COLON and not _count_up(numbers):
            continue
        bodies = [
            line[each.end() :] if each and len(each[1]) < 10 else line for line, each in zip(lines, found, strict=True)
        ]
        return Layout(lines, bodies, numbers, letter, "", holes, marked)
    return Layout(lines, lines, None, "", "", holes, marked)


def _count_up(numbers: list[int | None]) -> bool:
    """Whether these are line numbers: times of day have colons too."""
    shown = [each for each in numbers if each is not None]
    return 5 * [*map(lt, shown, shown[1:])].count(True) >= 4 * (len(shown) - 1)


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
        shown = [each for each in layout.numbers if each is not None]
        ends = (*starts[1:], len(layout.numbers))
        stretches = zip(firsts, starts, ends, strict=True)
        by_number = sorted((first, start, end - start) for first, start, end in stretches if first is not None)
        return cls(starts, firsts, len(set(shown)) == len(shown), tuple(by_number))

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
        if references.opening(self.tag) not in self.sent:
            return self.sent
        return None if self.layout.holes else self.layout.joint.join(self.layout.units)

    @property
    def comma(self) -> str:
        """Letter of what parts its units; empty for lines."""
        return self.layout.comma

    def position(self, marker: Marker) -> int:
        """Where the first unit that a marker points at stands; -1 if there is none."""
        return placed(self.numbering, marker)

    def bodies(self, marker: Marker) -> Sequence[str] | None:
        """The units that a marker points at; None if they are not there in full."""
        first = self.position(marker)
        last = first + marker.last - marker.first
        if first < 0 or last >= len(self.layout.bodies):
            return None
        found = self.layout.bodies[first : last + 1]
        return None if self.layout.holes and (HOLE in found or GONE in found) else found


def restore(sent: str, tag: str, shown: Callable[[Source], Shown | None]) -> str | None:
    """The original of a part that carries a marker of this conversation; None if it is no such part."""
    if references.opening(tag) not in sent:
        return None
    lines = sent.split("\n")
    markers = parsed(lines, tag)
    head = next((marker for marker in markers if marker is not None and marker.digest), None)
    if head is None:
        return None
    lines = thicken(lines) if SPARSE in head.flags else lines
    folded = _copied(head, lines, shown) if head.source and not head.unit else _spliced(head, lines, markers, shown)
    if folded is None:
        return None
    try:
        original = shapes.unfold(folded, head.flags)
    except (ValueError, KeyError, RecursionError):
        return None
    return original if references.digest_of(original) == head.digest else None


def _copied(head: Marker, lines: list[str], shown: Callable[[Source], Shown | None]) -> str | None:
    """The whole of a source, but for the units given below the marker."""
    found = shown(head.source) if head.source else None
    if found is None or len(lines) == 1:
        return None if found is None else found.whole()
    if found.layout.holes:
        return None
    units = list(found.layout.units)
    for line in lines[1:]:
        place, _, unit = line.partition(": ")
        if not place.isdecimal() or len(place) > 9 or not 0 < int(place) <= len(units):
            return None
        units[int(place) - 1] = unit
    return found.layout.joint.join(units)


def _spliced(
    head: Marker, lines: list[str], markers: list[Marker | None], shown: Callable[[Source], Shown | None]
) -> str | None:
    """Lines as they stand, and what the markers between them point at."""
    comma = next((letter for letter in COMMAS if letter in head.flags), "")
    joint = COMMAS[comma] if comma else "\n"
    mark = MARKS[COLON if COLON in head.flags else TAB]
    pieces: list[str] = []
    for line, marker in zip(lines, markers, strict=True):
        if marker is None:
            pieces.append(line)
            continue
        if marker.source is None:
            continue
        found = shown(marker.source)
        bodies = found.bodies(marker) if found else None
        if bodies is None:
            return None
        own = marker.own
        pieces.append(joint.join(bodies if own is None else [f"{own + n}{mark}{b}" for n, b in enumerate(bodies)]))
    return joint.join(pieces)
