"""The markers of Ibidem's own profiles: wording, grammar and parser.

A marker is one line. It says that what is left out is unchanged, and where it stands: in which result (or argument of a
call), counted from the start of the request, and in which of its lines. The tool and its main argument are named beside
the number, for the model; only the number counts for the parser.

The tag comes from the first words of the conversation, so a file written before it cannot contain it by design. The
first marker of a part also carries six digits of the digest of the part's original: `expand` accepts what it restored
only if these agree, so a line that merely looks like a marker is left alone.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple

EXPLANATION = "Ibidem leaves out what stands verbatim above and says where"

_NUMBER = r"[0-9]{1,9}"
_SOURCE = (
    rf"(?P<kind>result|call) (?P<number>{_NUMBER})(?:\.(?P<part>\w+))?"
    r"(?:, (?!but for:)(?P<label>[^\[\]\n]*?))?(?P<but>, but for:)?"
)
_SPAN = rf"(?P<unit>line|row|item)s? (?P<first>{_NUMBER})(?:-(?P<last>{_NUMBER}))? of"
_MARKER = re.compile(
    r"\[ibidem (?P<tag>[0-9]{3})(?:\.(?P<digest>[0-9]{6})(?P<flags>(?:[a-z][0-9]{0,2})*))?"
    rf"(?:: (?:(?P<own>{_NUMBER})(?:-{_NUMBER})? )?unchanged, (?:same as|{_SPAN}) {_SOURCE})?"
    rf"(?P<explains>\. {EXPLANATION})?\]"
)


class Source(NamedTuple):
    """A text the model can see: a result, or a string argument of a call, by its place in the request."""

    kind: str
    number: int
    part: str = ""
    """Which of several texts in a result (`2` for the second), or which argument of a call."""

    def __str__(self) -> str:
        return f"{self.kind} {self.number}" + (f".{self.part}" if self.part else "")


class Marker(NamedTuple):
    tag: str
    digest: str = ""
    """Of the part's original text, on the first marker of a part only."""
    flags: str = ""
    """Shapes that were folded, and what else unfolding the part needs."""
    source: Source | None = None
    """None: nothing is left out, the part is only folded."""
    unit: str = ""
    """Empty: the whole of the source."""
    first: int = 0
    last: int = 0
    own: int | None = None
    """The number of the first line left out, in a part with numbered lines."""
    label: str = ""
    but: bool = False
    """The source, except for the lines below the marker."""
    explains: bool = False

    def __str__(self) -> str:
        text = f"[ibidem {self.tag}" + (f".{self.digest}{self.flags}" if self.digest else "")
        if self.source is not None:
            own = "" if self.own is None else f"{_range(self.own, self.own + self.last - self.first)} "
            span = f"{self.unit}{'s' * (self.last > self.first)} {_range(self.first, self.last)} of"
            text += f": {own}unchanged, {span if self.unit else 'same as'} {self.source}"
            text += f", {self.label}" if self.label else ""
            text += ", but for:" if self.but else ""
        return text + (f". {EXPLANATION}]" if self.explains else "]")


def _range(first: int, last: int) -> str:
    return str(first) if first == last else f"{first}-{last}"


def parse(line: str, tag: str) -> Marker | None:
    """The marker that a line is, if it is one of this conversation."""
    match = _MARKER.fullmatch(line)
    if match is None or match["tag"] != tag:
        return None
    source = Source(match["kind"], int(match["number"]), match["part"] or "") if match["kind"] else None
    first = int(match["first"] or 0)
    marker = Marker(
        match["tag"],
        match["digest"] or "",
        match["flags"] or "",
        source,
        match["unit"] or "",
        first,
        int(match["last"] or first),
        int(match["own"]) if match["own"] else None,
        match["label"] or "",
        bool(match["but"]),
        bool(match["explains"]),
    )
    return marker if str(marker) == line and marker.last >= marker.first else None


def which(label: str, nth: int) -> str:
    """`2nd Read(src/app.py)`: which of the calls with this label, counted from the start, so that it stays true."""
    ending = "th" if nth % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(nth % 10, "th")
    return f"{nth}{ending} {label}"


def opening(tag: str) -> str:
    """How every marker of the conversation begins; a text with this in it is left alone."""
    return f"[ibidem {tag}"


def tag_of(beginning: Iterable[str]) -> str:
    """Three digits (one token) from the texts up to and including the user's first."""
    return f"{_number(beginning) % 1000:03d}"


@lru_cache(maxsize=2)
def digest_of(text: str) -> str:
    """Six digits, two tokens: one in a million texts would pass for another.

    A text that is referred to is asked for its digest several times over.
    """
    return f"{_number((text,)) % 1_000_000:06d}"


def _number(texts: Iterable[str]) -> int:
    digest = hashlib.sha256()
    for text in texts:
        digest.update(text.encode("utf-8", "surrogatepass"))
        digest.update(b"\0")
    return int.from_bytes(digest.digest()[:8], "big")
