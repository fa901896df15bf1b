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

from ...markers.layout import MARKER_UNIT, Layout, LineNumberRanges, split_line_numbers
from ...markers.line_numbers import PROBED_LINES, TABBED, detect_style, range_starts
from .line_index import MIN_INDEXABLE_LENGTH

T = TypeVar("T")


class RepeatedRun(NamedTuple):
    """Units from `first` to `last` (exclusive) of a text that repeat its earlier units from `copy_start` on."""

    first: int
    last: int
    copy_start: int


class PartialOutput:
    """The text to send for a result, assembled from left to right."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.done_units = 0
        """Number of units that are sent or replaced."""
        self._pieces: list[str] = []
        self._compared_units = 0
        self._first_positions: dict[str, int] = {}
        """First position of each line among the sent lines."""
        self._starts, self._ends, self._shifts = [0], list[int](), [0]
        """Unit ranges that are sent unchanged, and by how many lines markers moved each range up."""

    def replace_units(self, first: int, last: int, marker: str) -> None:
        """Replace these units with a marker."""
        layout = self.layout
        if first > self.done_units:
            self._pieces.append(layout.separator.join(layout.units[self.done_units : first]))
        self._pieces.append(marker)
        self.done_units = self._compared_units = last
        self._ends.append(first)
        self._starts.append(last)
        self._shifts.append(self._shifts[-1] + last - first - 1)

    def complete_text(self) -> str:
        """Return the text to send, with all remaining units unchanged."""
        units = self.layout.units
        remaining_text = [self.layout.separator.join(units[self.done_units :])] if self.done_units < len(units) else []
        return "\n".join([*self._pieces, *remaining_text])

    def sent_layout(self) -> Layout | None:
        """Return the layout of the text to send, equal to that of `parse_layout`; None if that must compute it."""
        layout = self.layout
        if layout.comma:
            return None
        ranges = [*zip(self._starts, [*self._ends, len(layout.units)], strict=True)]
        units = _join_with_markers(layout.units, ranges, MARKER_UNIT)
        if layout.numbers is None:
            return split_line_numbers(units, True, True)
        numbers = _join_with_markers(layout.numbers, ranges, None)
        sampled_numbers = numbers[:PROBED_LINES]
        if 2 * sampled_numbers.count(None) >= len(sampled_numbers) and detect_style(units) is not TABBED:
            return split_line_numbers(units, True, True)
        if 2 * numbers.count(None) > len(units):
            return Layout(units, units, None, "", "", True, True)
        bodies = _join_with_markers(layout.bodies, ranges, MARKER_UNIT)
        return Layout(units, bodies, numbers, layout.style_letter, "", True, True, edges=range_starts(numbers))

    def find_repeats(self, end: int) -> Iterator[RepeatedRun]:
        """Yield the maximal runs of units up to `end` that repeat earlier units, from left to right."""
        bodies, places = self.layout.bodies, self._first_positions
        covered_end = at = self._compared_units
        while at < end:
            body = bodies[at]
            if len(body) < MIN_INDEXABLE_LENGTH or places.setdefault(body, at) == at:
                at += 1
                continue
            run = self._extend_run(at, places[body], covered_end, end)
            covered_end = at = run.last
            yield run
        self._compared_units = end

    def _extend_run(self, at: int, copy_start: int, covered_end: int, end: int) -> RepeatedRun:
        bodies, edges = self.layout.bodies, self.layout.edges
        range_number = bisect_right(self._starts, copy_start) - 1
        if edges:  # a run must not cross a gap in the line numbers
            edge = bisect_right(edges, at)
            covered_end = max(covered_end, edges[edge - 1] if edge else 0)
            end = min(end, edges[edge] if edge < len(edges) else end)
        first, copy = at, copy_start
        while first > covered_end and copy > self._starts[range_number] and bodies[first - 1] == bodies[copy - 1]:
            first, copy = first - 1, copy - 1
        limit = min(end, at + (self._ends[range_number] if range_number < len(self._ends) else first) - copy_start)
        last = at + 1
        while last < limit and bodies[last] == bodies[copy_start + last - at]:
            last += 1
        return RepeatedRun(first, last, copy)

    def line_address(self, run: RepeatedRun) -> tuple[str, int, int]:
        """Return how a marker names the repeated lines in the sent text: the unit, first and last number."""
        length = run.last - run.first
        unit, first = "line", self._line_number(run.copy_start)
        if self._numbering is not None:
            unit, first_number = self._numbering.range_address(run.copy_start, run.copy_start + length - 1)
            first = first if unit == "row" else first_number
        return unit, first, first + length - 1

    def _line_number(self, place: int) -> int:
        """Return the line number of a unit in the sent text, counted from 1. Each marker above is one line."""
        return place + 1 - self._shifts[bisect_right(self._starts, place) - 1]

    @cached_property
    def _numbering(self) -> LineNumberRanges | None:
        return LineNumberRanges.from_layout(self.layout)


def _join_with_markers(items: Sequence[T], ranges: Sequence[tuple[int, int]], marker: T) -> list[T]:
    """Return the items in the ranges, with a marker between two ranges."""
    output: list[T] = []
    for first, last in ranges:
        output += items[first:last]
        output.append(marker)
    del output[-1]
    return output
