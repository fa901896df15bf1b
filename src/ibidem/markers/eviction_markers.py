"""The markers of evicted text: their wording, and how they are parsed.

    [ibidem 123 3f9a1c0b77de: 340 lines left out, the file was changed later]

A marker replaces the text at its position, so the call that it answers, or the name of the argument that it is, says
what the text was. The twelve digits are the reference under which the store has the original. They come from its
content, so no other text can be fetched by them. If lines must stay because a text below refers to them, the rest is
removed in several ranges, and only the first marker has the reference. Each marker has its number of removed lines, so
that the positions of the other lines do not change.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

from ..store.references import REFERENCE_DIGITS
from .backref import marker_prefix

_REF = f"[0-9a-f]{{{REFERENCE_DIGITS}}}"
_EVICTED = re.compile(
    rf"\[ibidem (?P<tag>[0-9]{{3}})(?: (?P<ref>{_REF}))?: "
    r"(?P<lines>[0-9]{1,9}) lines? left out(?:, [^\[\]\n]*)?\]"
)

MIN_GAP_LINES = 3
"""Ranges of fewer lines than this between remaining lines are not worth a marker."""


class EvictedMarker(NamedTuple):
    """A marker in place of evicted lines."""

    tag: str
    ref: str
    """Reference in the store; empty on all but the first marker of a text."""
    line_count: int
    reason: str = ""
    recall_tool: str = ""
    """The tool that returns the original, if the request offers one."""

    def __str__(self) -> str:
        ref = f" {self.ref}" if self.ref else ""
        text = f"[ibidem {self.tag}{ref}: {self.line_count} line{'s' * (self.line_count != 1)} left out"
        why, way = (
            (f", {self.reason}" if self.reason else ""),
            (f", {self.recall_tool} gives it back" if self.recall_tool else ""),
        )
        return f"{text}{why}{way}]"


def evicted_line_count(line: str, tag: str) -> int:
    """Return how many lines a marker line of this conversation replaces; 0 for other lines."""
    match = _EVICTED.fullmatch(line) if line.startswith(marker_prefix(tag)) else None
    return int(match["lines"]) if match and match["tag"] == tag else 0


class Stub(NamedTuple):
    """A text from which lines may have been evicted, by its form."""

    ref: str
    gaps: tuple[tuple[int, int], ...]
    """Positions of its markers, and how many lines each replaces."""


def parse_stub(text: str, tag: str) -> Stub | None:
    """Parse a stub; None for a text that Ibidem cannot have written, such as one that quotes a marker.

    An evicted text contains no marker. So in a stub, each occurrence of the marker's start is a whole marker line, and
    only the first has a reference.
    """
    start = marker_prefix(tag)
    if start not in text:
        return None
    lines = enumerate(text.split("\n"))
    marker_lines = [(at, _EVICTED.fullmatch(line)) for at, line in lines if line.startswith(start)]
    markers = [(at, each) for at, each in marker_lines if each is not None and each["tag"] == tag]
    if len(markers) != text.count(start) or [bool(each["ref"]) for _, each in markers].count(True) != 1:
        return None
    first = markers[0][1]
    gaps = tuple((at, int(each["lines"])) for at, each in markers)
    return Stub(first["ref"], gaps) if first["ref"] else None


def refs_in(text: str, tag: str) -> list[str]:
    """Return the reference of the original if the text is a stub."""
    parsed_stub = parse_stub(text, tag)
    return [] if parsed_stub is None else [parsed_stub.ref]


def is_stub_of(text: str, original: str, tag: str) -> bool:
    """Return True if a text has lines of the original at their positions, and markers for the other lines."""
    lines, at = original.split("\n"), 0
    for line in text.split("\n"):
        evicted_count = evicted_line_count(line, tag)
        if not evicted_count and lines[at : at + 1] != [line]:
            return False
        at += evicted_count or 1
    return at == len(lines)


def remove_lines(
    lines: Sequence[str],
    remaining_ranges: Iterable[tuple[int, int]],
    marker: EvictedMarker,
    required_removals: Collection[int] = (),
) -> str:
    """Return the lines with markers in place of all lines outside the ranges `remaining_ranges` (first, end).

    A few lines between two ranges stay too, unless one of them is in `required_removals`.
    """
    remaining: list[str] = []
    position = 0
    for first, last in [*merge_ranges(remaining_ranges), (len(lines), len(lines))]:
        is_small_gap = (
            first - position < MIN_GAP_LINES
            and first < len(lines)
            and not any(each in required_removals for each in range(position, first))
        )
        if first > position and not is_small_gap:
            remaining.append(str(marker._replace(line_count=first - position)))
            marker = marker._replace(ref="", reason="", recall_tool="")
        else:
            remaining.extend(lines[position:first])
        remaining.extend(lines[first:last])
        position = max(position, last)
    return "\n".join(remaining)


def merge_ranges(ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Merge overlapping ranges; the result is sorted."""
    merged_ranges: list[tuple[int, int]] = []
    for first, last in sorted(ranges):
        if merged_ranges and first <= merged_ranges[-1][1]:
            merged_ranges[-1] = (merged_ranges[-1][0], max(last, merged_ranges[-1][1]))
        else:
            merged_ranges.append((first, last))
    return merged_ranges
