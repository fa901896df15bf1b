"""The markers of Ibidem's own profiles: wording, grammar and parser.

A marker is one line. It states that the removed text is unchanged, and where the same text is: in which result (or
argument of a call), counted from the start of the request, and in which of its lines. The tool and its main argument
are next to the number, for the model; the parser only uses the number. The markers of a part are kept or removed
together, so those below the first are short, and one with the same source as the marker above it does not repeat the
source. Text earlier in the same part is `above`.

The tag comes from the user's first words, so a file that was written without them contains it only by chance. Anyone
who knows the words can compute the tag, so no guarantee depends on it. The first marker of a part also has six digits
of the digest of the part's original. `expand` accepts a restored text only if these agree, so a line that only looks
like a marker is left unchanged.
"""

from __future__ import annotations

import hashlib
import re
from functools import lru_cache
from typing import NamedTuple

from .patches import VIEWS

EXPLANATION = "Ibidem leaves out what stands verbatim above and says where"

_NUMBER = r"[0-9]{1,9}"
_SEEN = f" (?:{'|'.join(map(re.escape, VIEWS))})"
_VIEW = rf"(?P<view>{_SEEN})?"
_SOURCE = (
    rf"(?P<kind>result|call) (?P<number>{_NUMBER})(?:\.(?P<part>\w+))?{_VIEW}"
    r"(?:, (?!but for:)(?P<label>[^\[\]\n]*?))?"
)
_SPAN = rf"(?P<unit>line|row|item)s? (?P<first>{_NUMBER})(?:-(?P<last>{_NUMBER}))?"
_OWN = rf"(?P<own>{_NUMBER})(?:-(?P<own_last>{_NUMBER}))?"
_FIRST = re.compile(
    r"\[ibidem (?P<tag>[0-9]{3})\.(?P<digest>[0-9]{6})(?P<flags>(?:[a-z][0-9]{0,2})*)"
    rf"(?:: (?:{_OWN} )?unchanged(?:, same as| since|, {_SPAN}(?: of|(?P<above> above)))"
    rf"(?: {_SOURCE}(?P<but>, but for:)?)?)?"
    rf"(?P<explains>\. {EXPLANATION})?\]"
)
_NEXT = re.compile(
    rf"\[ibidem (?P<tag>[0-9]{{3}}): (?:{_OWN}(?: as )?)?(?:{_SPAN})?"
    rf"(?: of {_SOURCE}| unchanged|(?P<again>{_SEEN})|(?P<above> above))?\]"
)


_HEAD_FIELDS = ("digest", "flags", "but", "explains")
_FIELDS = ("unit", "first", "last", "own", "own_last", "above", "kind", "number", "part", "view", "label")


class Source(NamedTuple):
    """A text that the model can see: a result, or a string argument of a call, by its number in the request."""

    kind: str
    number: int
    part: str = ""
    """Which of several texts in a result (`2` for the second), or which argument of a call."""

    def __str__(self) -> str:
        return f"{self.kind} {self.number}" + (f".{self.part}" if self.part else "")


ABOVE = Source("above", 0)
"""The text that contains the marker. Its lines count as they are sent, and all of them are above the marker."""


class Marker(NamedTuple):
    """One marker. The first of a part has a digest and names its source in full; those below are shorter."""

    tag: str
    digest: str = ""
    """Digest of the part's original text; only on the first marker of a part."""
    flags: str = ""
    """Letters of the layout codecs that were used, and of what else decoding the part needs."""
    source: Source | None = None
    """None if the part was only encoded with a shorter layout."""
    unit: str = ""
    """`line`, `row` or `item`; empty for the whole source."""
    first: int = 0
    last: int = 0
    own: int | None = None
    """Number of the first removed line, in a part with numbered lines."""
    label: str = ""
    but: bool = False
    """True if the lines below the marker differ from the source."""
    explains: bool = False
    omits_source: bool = False
    """True if the source is that of the marker before it in the part, and is not repeated."""
    view: str = ""
    """A view of the source, such as its lines without their signs (see `patches`); empty for the lines unchanged."""

    def __str__(self) -> str:
        if not self.digest:
            suffix = self._short_suffix if self.omits_source else self._source_suffix
            return f"[ibidem {self.tag}: {self._lines_text}{suffix}]"
        text = f"[ibidem {self.tag}.{self.digest}{self.flags}"
        if self.source is not None:
            text += f": {self._position_text}" + (", but for:" if self.but else "")
        return text + (f". {EXPLANATION}]" if self.explains else "]")

    @property
    def _has_same_numbers(self) -> bool:
        """True if the lines have the same numbers here and in the source, so that one number is enough."""
        return self.unit == "line" and self.own == self.first and not self.view and self.source != ABOVE

    @property
    def _position_text(self) -> str:
        own = "" if self.own is None else f"{_format_range(self.own, self.own + self.last - self.first)} "
        if self._has_same_numbers:
            return f"{own}unchanged since {self._source_text}"
        return f"{own}unchanged, " + (
            f"{self._range_text}{self._source_suffix}" if self.unit else f"same as {self._source_text}"
        )

    @property
    def _lines_text(self) -> str:
        if self.own is None:
            return self._range_text
        own = _format_range(self.own, self.own + self.last - self.first)
        return own if self._has_same_numbers else f"{own} as {self._range_text}"

    @property
    def _short_suffix(self) -> str:
        return " unchanged" if self._has_same_numbers else self._view_suffix

    @property
    def _range_text(self) -> str:
        return f"{self.unit}{'s' * (self.last > self.first)} {_format_range(self.first, self.last)}"

    @property
    def _source_suffix(self) -> str:
        return " above" if self.source == ABOVE else f" of {self._source_text}"

    @property
    def _source_text(self) -> str:
        return f"{self.source}{self._view_suffix}" + (f", {self.label}" if self.label else "")

    @property
    def _view_suffix(self) -> str:
        return f" {self.view}" if self.view else ""


def _format_range(first: int, last: int) -> str:
    return str(first) if first == last else f"{first}-{last}"


def parse_marker(line: str, tag: str, before: Marker | None = None) -> Marker | None:
    """Parse a line as a marker of this conversation; None if it is not one. `before` is the marker above it in the
    part."""
    heads = line.startswith(".", len(marker_prefix(tag)))
    match = (_FIRST if heads else _NEXT).fullmatch(line)
    if match is None or match["tag"] != tag:
        return None
    digest, flags, but, explains = match.group(*_HEAD_FIELDS) if heads else ("", "", None, None)
    unit, first, last, own, own_last, above, kind, number, part, view, label = match.group(*_FIELDS)
    source = Source(kind, int(number), part or "") if kind else None
    if above:
        source = ABOVE
    omits_source = not digest and source is None
    if omits_source:
        source = before.source if before is not None and before.unit and before.source != ABOVE else None
    if not digest and source is None:
        return None
    if own and not unit:  # one number for both sides
        unit, first, last = "line", own, own_last
    marker = Marker(
        tag,
        digest,
        flags,
        source,
        unit or "",
        int(first or 0),
        int(last or first or 0),
        int(own) if own else None,
        label or "",
        bool(but),
        bool(explains),
        omits_source,
        (view or (not heads and match["again"]) or "").strip(),
    )
    return marker if str(marker) == line and marker.last >= marker.first else None


def ordinal_label(label: str, nth: int) -> str:
    """Return `2nd Read(src/app.py)`: the number among calls with this label. Counted from the start, so it never
    changes."""
    ending = "th" if nth % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(nth % 10, "th")
    return f"{nth}{ending} {label}"


@lru_cache(maxsize=4)
def marker_prefix(tag: str) -> str:
    """Return the start of every marker of the conversation. A text that contains it is not rewritten."""
    return f"[ibidem {tag}"


def tag_of(words: str) -> str:
    """Return three digits (one token) from the user's first words."""
    return f"{_hash_number(words) % 1000:03d}"


@lru_cache(maxsize=2)
def digest_of(text: str) -> str:
    """Return six digits (two tokens) of a text's digest. One in a million other texts has the same.

    Cached, because the digest of a text with references is requested several times.
    """
    return f"{_hash_number(text) % 1_000_000:06d}"


def _hash_number(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.encode("utf-8", "surrogatepass") + b"\0").digest()[:8], "big")
