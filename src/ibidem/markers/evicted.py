"""The markers of what was let go: their wording, and how they are found again.

    [ibidem 123 3f9a1c0b77de: 340 lines left out, the file was changed later]

It stands where the text stood, so the call that it answers, or the name of the argument that it is, says what the text
was. The twelve digits are the reference under which the store keeps the original; they come from its content, so that
nothing else can be brought back by them. Where lines stay because something below refers to them, the others go in
several stretches, and only the first marker carries the reference. Each says how many lines it stands for, so that the
lines that stay keep their places.
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
"""Lines between others that stay: fewer are not worth a marker."""


class EvictedMarker(NamedTuple):
    tag: str
    ref: str
    """Empty on all but the first marker of a text."""
    lines: int
    why: str = ""
    way: str = ""
    """The tool that brings it back, where the request offers one."""

    def __str__(self) -> str:
        ref = f" {self.ref}" if self.ref else ""
        text = f"[ibidem {self.tag}{ref}: {self.lines} line{'s' * (self.lines != 1)} left out"
        why, way = (f", {self.why}" if self.why else ""), (f", {self.way} gives it back" if self.way else "")
        return f"{text}{why}{way}]"


def gone_lines(line: str, tag: str) -> int:
    """How many lines a line stands for, if it is such a marker of this conversation; else 0."""
    found = _EVICTED.fullmatch(line) if line.startswith(opening(tag)) else None
    return int(found["lines"]) if found and found["tag"] == tag else 0


class Stub(NamedTuple):
    """A text that has the form of one of which lines were let go."""

    ref: str
    gaps: tuple[tuple[int, int], ...]
    """Lines of it that stand for others, and for how many each."""


def stub(text: str, tag: str) -> Stub | None:
    """None for a text that we cannot have left, such as one that quotes a marker.

    What is let go had no marker in it. So all that begins like one is one of this kind, on a line of its own, and the
    first alone has a reference.
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
    """The reference of what was let go of a text, if something was."""
    found = stub(text, tag)
    return [] if found is None else [found.ref]


def stands_for(text: str, original: str, tag: str) -> bool:
    """Whether a text is what was left of an original: some of its lines in their places, and markers for the rest."""
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
    """Lines of which only these stretches (first, and last not included) stay, in their places.

    A few lines between two stretches stay with them, unless they are to `go` in any case.
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
    """In order, without overlap."""
    found: list[tuple[int, int]] = []
    for first, last in sorted(stretches):
        if found and first <= found[-1][1]:
            found[-1] = (found[-1][0], max(last, found[-1][1]))
        else:
            found.append((first, last))
    return found
