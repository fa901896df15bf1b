"""The markers of what was let go: their wording, and how they are found again.

    [ibidem 123 3f9a1c0b77de: 340 lines left out, the file was changed later, Read(src/app.py)]

The twelve digits are the reference under which the store keeps the original; they come from its content, so nothing
else can be brought back by them. Where lines stay because something below refers to them, the others go in several
stretches, and only the first marker carries the reference. Each says how many lines it stands for, so that the lines
that stay keep their places.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

from .references import opening

DIGITS = 12
"""Of a reference: one in 280 billion texts would have the same, and the store refuses such a one."""

_GONE = re.compile(
    rf"\[ibidem (?P<tag>[0-9]{{3}})(?: (?P<ref>[0-9a-f]{{{DIGITS}}}))?: "
    r"(?P<lines>[0-9]{1,9}) lines? left out(?:, [^\[\]\n]*)?\]"
)

SHORT = 3
"""Lines between others that stay: fewer are not worth a marker."""


class Gone(NamedTuple):
    tag: str
    ref: str
    """Empty on all but the first marker of a text."""
    lines: int
    why: str = ""
    label: str = ""
    """The tool and its main argument, where a result went."""

    def __str__(self) -> str:
        ref = f" {self.ref}" if self.ref else ""
        text = f"[ibidem {self.tag}{ref}: {self.lines} line{'s' * (self.lines != 1)} left out"
        return "".join([text, *(f", {each}" for each in (self.why, self.label) if each), "]"])


def reference(text: str) -> str:
    """The name of a text, from its content."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:DIGITS]


def gone_lines(line: str, tag: str) -> int:
    """How many lines a line stands for, if it is such a marker of this conversation; else 0."""
    found = _GONE.fullmatch(line) if line.startswith(opening(tag)) else None
    return int(found["lines"]) if found and found["tag"] == tag else 0


def refs_in(text: str, tag: str) -> list[str]:
    """References of what was let go of a text."""
    if f"{opening(tag)} " not in text:
        return []
    return [found["ref"] for found in _GONE.finditer(text) if found["tag"] == tag and found["ref"]]


def thinned(lines: Sequence[str], stay: Iterable[tuple[int, int]], marker: Gone, go: Collection[int] = ()) -> str:
    """Lines of which only these stretches (first, and last not included) stay, in their places.

    A few lines between two stretches stay with them, unless they are to `go` in any case.
    """
    kept: list[str] = []
    done = 0
    for first, last in [*merged(stay), (len(lines), len(lines))]:
        few = first - done < SHORT and first < len(lines) and not any(done <= each < first for each in go)
        if first > done and not few:
            kept.append(str(marker._replace(lines=first - done)))
            marker = marker._replace(ref="", why="", label="")
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
