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

from ..store.naming import REFERENCE_DIGITS
from .backref import opening

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
    lines: int
    why: str = ""
    way: str = ""
    """The tool that returns the original, if the request offers one."""

    def __str__(self) -> str:
        ref = f" {self.ref}" if self.ref else ""
        text = f"[ibidem {self.tag}{ref}: {self.lines} line{'s' * (self.lines != 1)} left out"
        why, way = (f", {self.why}" if self.why else ""), (f", {self.way} gives it back" if self.way else "")
        return f"{text}{why}{way}]"


def gone_lines(line: str, tag: str) -> int:
    """Return how many lines a marker line of this conversation replaces; 0 for other lines."""
    found = _EVICTED.fullmatch(line) if line.startswith(opening(tag)) else None
    return int(found["lines"]) if found and found["tag"] == tag else 0


class Stub(NamedTuple):
    """A text from which lines may have been evicted, by its form."""

    ref: str
    gaps: tuple[tuple[int, int], ...]
    """Positions of its markers, and how many lines each replaces."""


def stub(text: str, tag: str) -> Stub | None:
    """Parse a stub; None for a text that Ibidem cannot have written, such as one that quotes a marker.

    An evicted text contains no marker. So in a stub, each occurrence of the marker's start is a whole marker line, and
    only the first has a reference.
    """
    start = opening(tag)
    if start not in text:
        return None
    lines = enumerate(text.split("\n"))
    found = [(at, _EVICTED.fullmatch(line)) for at, line in lines if line.startswith(start)]
    markers = [(at, each) for at, each in found if each is not None and each["tag"] == tag]
    if len(markers) != text.count(start) or [bool(each["ref"]) for _, each in markers].count(True) != 1:
        return None
    first = markers[0][1]
    gaps = tuple((at, int(each["lines"])) for at, each in markers)
    return Stub(first["ref"], gaps) if first["ref"] else None


def refs_in(text: str, tag: str) -> list[str]:
    """Return the reference of the original if the text is a stub."""
    found = stub(text, tag)
    return [] if found is None else [found.ref]


def stands_for(text: str, original: str, tag: str) -> bool:
    """Return True if a text has lines of the original at their positions, and markers for the other lines."""
    lines, at = original.split("\n"), 0
    for line in text.split("\n"):
        gone = gone_lines(line, tag)
        if not gone and lines[at : at + 1] != [line]:
            return False
        at += gone or 1
    return at == len(lines)


def thinned(
    lines: Sequence[str], stay: Iterable[tuple[int, int]], marker: EvictedMarker, go: Collection[int] = ()
) -> str:
    """Return the lines with markers in place of all lines outside the ranges `stay` (first, end).

    A few lines between two ranges stay too, unless one of them is in `go`.
    """
    kept: list[str] = []
    done = 0
    for first, last in [*merged(stay), (len(lines), len(lines))]:
        few = first - done < MIN_GAP_LINES and first < len(lines) and not any(each in go for each in range(done, first))
        if first > done and not few:
            kept.append(str(marker._replace(lines=first - done)))
            marker = marker._replace(ref="", why="", way="")
        else:
            kept.extend(lines[done:first])
        kept.extend(lines[first:last])
        done = max(done, last)
    return "\n".join(kept)


def merged(stretches: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Merge overlapping ranges; the result is sorted."""
    found: list[tuple[int, int]] = []
    for first, last in sorted(stretches):
        if found and first <= found[-1][1]:
            found[-1] = (found[-1][0], max(last, found[-1][1]))
        else:
            found.append((first, last))
    return found
