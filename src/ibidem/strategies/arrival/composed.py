"""A text while it is assembled: its part to send so far, and repeats of lines that this part already contains.

A dictionary has the first position of each line among the sent lines. A repeated run ends where its copy meets
a marker or the run itself. So the copy is complete in the sent text, and references never depend on references. A run
is skipped after it was found, even if no marker pays. So each line is compared a fixed number of times (invariant 11).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import NamedTuple, TypeVar

from ...markers.layout import MARKER_UNIT, Layout, Numbering, number
from ...markers.line_numbers import PROBED_LINES, TABBED, edges_of, style_of
from .index import TELLING_LENGTH

T = TypeVar("T")


class Run(NamedTuple):
    """Units from `first` to `last` (exclusive) of a text that repeat its earlier units from `copy_start` on."""

    first: int
    last: int
    place: int


class ComposedText:
    """The text to send for a result, assembled from left to right."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.done = 0
        """Number of units that are sent or replaced."""
        self._pieces: list[str] = []
        self._looked_at = 0
        self._places: dict[str, int] = {}
        """First position of each line among the sent lines."""
        self._starts, self._ends, self._shifts = [0], list[int](), [0]
        """Unit ranges that are sent unchanged, and by how many lines markers moved each range up."""

    def leave_out(self, first: int, last: int, marker: str) -> None:
        """Replace these units with a marker."""
        layout = self.layout
        if first > self.done:
            self._pieces.append(layout.joint.join(layout.units[self.done : first]))
        self._pieces.append(marker)
        self.done = self._looked_at = last
        self._ends.append(first)
        self._starts.append(last)
        self._shifts.append(self._shifts[-1] + last - first - 1)

    def whole(self) -> str:
        """Return the text to send, with all remaining units unchanged."""
        units = self.layout.units
        rest = [self.layout.joint.join(units[self.done :])] if self.done < len(units) else []
        return "\n".join([*self._pieces, *rest])

    def as_sent(self) -> Layout | None:
        """Return the layout of the text to send, equal to that of `lay_out`; None if `lay_out` must compute it."""
        layout = self.layout
        if layout.comma:
            return None
        kept = [*zip(self._starts, [*self._ends, len(layout.units)], strict=True)]
        units = _between_markers(layout.units, kept, MARKER_UNIT)
        if layout.numbers is None:
            return number(units, True, True)
        numbers = _between_markers(layout.numbers, kept, None)
        probed = numbers[:PROBED_LINES]
        if 2 * probed.count(None) >= len(probed) and style_of(units) is not TABBED:
            return number(units, True, True)
        if 2 * numbers.count(None) > len(units):
            return Layout(units, units, None, "", "", True, True)
        bodies = _between_markers(layout.bodies, kept, MARKER_UNIT)
        return Layout(units, bodies, numbers, layout.mark, "", True, True, edges=edges_of(numbers))

    def repeats(self, end: int) -> Iterator[Run]:
        """Yield the maximal runs of units up to `end` that repeat earlier units, from left to right."""
        bodies, places = self.layout.bodies, self._places
        covered = at = self._looked_at
        while at < end:
            body = bodies[at]
            if len(body) < TELLING_LENGTH or places.setdefault(body, at) == at:
                at += 1
                continue
            run = self._extended(at, places[body], covered, end)
            covered = at = run.last
            yield run
        self._looked_at = end

    def _extended(self, at: int, place: int, covered: int, end: int) -> Run:
        bodies, edges = self.layout.bodies, self.layout.edges
        stretch = bisect_right(self._starts, place) - 1
        if edges:  # a run must not cross a gap in the line numbers
            edge = bisect_right(edges, at)
            covered = max(covered, edges[edge - 1] if edge else 0)
            end = min(end, edges[edge] if edge < len(edges) else end)
        first, copy = at, place
        while first > covered and copy > self._starts[stretch] and bodies[first - 1] == bodies[copy - 1]:
            first, copy = first - 1, copy - 1
        limit = min(end, at + (self._ends[stretch] if stretch < len(self._ends) else first) - place)
        last = at + 1
        while last < limit and bodies[last] == bodies[place + last - at]:
            last += 1
        return Run(first, last, copy)

    def address(self, run: Run) -> tuple[str, int, int]:
        """Return how a marker names the repeated lines in the sent text: the unit, first and last number."""
        length = run.last - run.first
        unit, first = "line", self._line(run.place)
        if self._numbering is not None:
            unit, shown = self._numbering.address(run.place, run.place + length - 1)
            first = first if unit == "row" else shown
        return unit, first, first + length - 1

    def _line(self, place: int) -> int:
        """Return the line number of a unit in the sent text, counted from 1. Each marker above is one line."""
        return place + 1 - self._shifts[bisect_right(self._starts, place) - 1]

    @cached_property
    def _numbering(self) -> Numbering | None:
        return Numbering.of(self.layout)


def _between_markers(every: Sequence[T], kept: Sequence[tuple[int, int]], marker: T) -> list[T]:
    """Return the items in the ranges, with a marker between two ranges."""
    found: list[T] = []
    for first, last in kept:
        found += every[first:last]
        found.append(marker)
    del found[-1]
    return found
