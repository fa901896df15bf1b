"""A text while it is put together: what is sent of it so far, and which of its lines stand in that already.

Lines are looked up by what they say, at their first place among those that are sent. A run ends where its copy above
meets a marker or the run itself, so it stands above in full and no reference rests on another. Whatever is found is
passed over, whether it is worth a marker or not: each line is compared a fixed number of times (law 11).
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
    """Units `first` up to, not including, `last` of a text stand in it above, from unit `place` on."""

    first: int
    last: int
    place: int


class ComposedText:
    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.done = 0
        """Units that are sent or left out."""
        self._pieces: list[str] = []
        self._looked_at = 0
        self._places: dict[str, int] = {}
        """Where a line stands first among those that are sent."""
        self._starts, self._ends, self._shifts = [0], list[int](), [0]
        """Stretches that are sent as they are: their units, and how many lines earlier each stands there."""

    def leave_out(self, first: int, last: int, marker: str) -> None:
        """A marker goes in the place of these units."""
        layout = self.layout
        if first > self.done:
            self._pieces.append(layout.joint.join(layout.units[self.done : first]))
        self._pieces.append(marker)
        self.done = self._looked_at = last
        self._ends.append(first)
        self._starts.append(last)
        self._shifts.append(self._shifts[-1] + last - first - 1)

    def whole(self) -> str:
        """All of it, the rest as it is."""
        units = self.layout.units
        rest = [self.layout.joint.join(units[self.done :])] if self.done < len(units) else []
        return "\n".join([*self._pieces, *rest])

    def as_sent(self) -> Layout | None:
        """The layout of it, as `lay_out` finds it; None where that is best asked."""
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
        """Runs of units up to `end` that stand above, each as long as it goes, left to right."""
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
        if edges:  # of lines with numbers, only those go together whose numbers do
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
        """What the lines above are called, as they are sent: a word, the first and the last."""
        length = run.last - run.first
        unit, first = "line", self._line(run.place)
        if self._numbering is not None:
            unit, shown = self._numbering.address(run.place, run.place + length - 1)
            first = first if unit == "row" else shown
        return unit, first, first + length - 1

    def _line(self, place: int) -> int:
        """Which line it is, counted from 1 with the markers above it."""
        return place + 1 - self._shifts[bisect_right(self._starts, place) - 1]

    @cached_property
    def _numbering(self) -> Numbering | None:
        return Numbering.of(self.layout)


def _between_markers(every: Sequence[T], kept: Sequence[tuple[int, int]], marker: T) -> list[T]:
    """What is kept of a sequence, a marker between two stretches."""
    found: list[T] = []
    for first, last in kept:
        found += every[first:last]
        found.append(marker)
    del found[-1]
    return found
