"""Restore one text: fetch what its markers refer to.

The markers may come from any source. So the size of each referenced text is counted in an `ExpansionBudget` before it
is fetched, and the result only counts if it has the digest in the first marker.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from . import backref, eviction_markers, layout_codecs
from .backref import ABOVE, Marker, Source
from .layout import (
    ITEM_SEPARATORS,
    SPARSE_FLAG,
    MarkedText,
    VisibleText,
    has_unique_flags,
    parse_marked,
    restore_line_numbers,
)
from .sequential_lines import number_lines

BUDGET_BASE, BUDGET_RATIO, BUDGET_SHARE = 2**20, 16, 4
"""Characters that all markers of a request may expand to: a base, and a multiple of the sent characters. The third
number is the divisor of that multiple for a single text."""


class ExpansionBudget:
    """Characters that markers may still expand to, at a position of a request.

    Ibidem's own rewrites stay within it. So a text that exceeds it is not ours and need not be expanded: it could have
    us fetch without end.
    """

    def __init__(self, sent: int, spent: int = 0, times: int = 1) -> None:
        """Create the budget of a text. `sent` characters were sent before it, and `spent` were fetched for others."""
        request_limit = times * (BUDGET_BASE + BUDGET_RATIO * sent) - spent
        self.remaining = self._limit = max(0, min(request_limit, BUDGET_BASE + BUDGET_RATIO * sent // BUDGET_SHARE))

    @property
    def used_characters(self) -> int:
        """Characters that were fetched within this budget."""
        return self._limit - max(0, self.remaining)

    def spend(self, characters: int) -> None:
        """Count fetched characters. Raises ValueError if they exceed the budget."""
        self.remaining -= characters
        if self.remaining < 0:
            raise ValueError("the text would expand beyond its budget")


class RestoredText(NamedTuple):
    """The original of a part."""

    original: str
    encoded: str
    """The text before its layouts were decoded."""
    flags: str
    has_references: bool
    """True if a marker in it refers to another text."""


class DecodedText(NamedTuple):
    """An encoded text and its known original."""

    encoded: str
    flags: str
    original: str


def restore_text(
    sent: str,
    tag: str,
    visible_text: Callable[[Source], VisibleText | None],
    budget: ExpansionBudget,
    known_text: DecodedText | None = None,
) -> RestoredText | None:
    """Restore a part that has a marker of this conversation; None for other texts."""
    if known_text is not None and _is_known_encoding(sent, tag, known_text):
        return _restore_known(known_text, budget)
    part = parse_marked(sent, tag) if backref.marker_prefix(tag) in sent else None
    if part is None:
        return None
    head = part.head
    lines = restore_line_numbers(part.lines) if SPARSE_FLAG in head.flags else part.lines
    if sum(marker.last - marker.first + 1 for marker in part.markers.values() if marker.unit) > budget.remaining:
        return None  # a unit has at least one character
    try:
        if head.source and not head.unit:
            encoded = _copy_source(head, lines, visible_text, budget)
        else:
            encoded = _splice_references(
                part._replace(lines=lines), visible_text, budget, VisibleText.from_text(sent, tag)
            )
        if encoded is None:
            return None
        if known_text is not None and known_text.flags == head.flags and known_text.encoded == encoded:
            original = known_text.original
        else:
            original = layout_codecs.decode_layout(encoded, head.flags, budget.remaining)
        budget.spend(len(original))
    except (ValueError, LookupError, RecursionError):
        return None
    if backref.digest_of(original) != head.digest:
        return None
    return RestoredText(original, encoded, head.flags, any(marker.source for marker in part.markers.values()))


def _is_known_encoding(sent: str, tag: str, known_text: DecodedText) -> bool:
    """Return True if a text is exactly the encoded text and a marker that says so."""
    prefix, end = backref.marker_prefix(tag), len(known_text.encoded)
    if (
        not sent.startswith("\n" + prefix, end)
        or not sent.startswith(known_text.encoded)
        or prefix in known_text.encoded
    ):
        return False
    marker = backref.parse_marker(sent[end + 1 :], tag)
    if marker is None or marker.source is not None or marker.flags != known_text.flags:
        return False
    has_other_flags = any(letter in marker.flags for letter in (*ITEM_SEPARATORS, SPARSE_FLAG))
    return (
        not has_other_flags
        and has_unique_flags(marker.flags)
        and backref.digest_of(known_text.original) == marker.digest
    )


def _restore_known(known_text: DecodedText, budget: ExpansionBudget) -> RestoredText | None:
    try:
        budget.spend(len(known_text.original))
    except ValueError:
        return None
    return RestoredText(known_text.original, known_text.encoded, known_text.flags, False)


def _copy_source(
    head: Marker, lines: list[str], visible_text: Callable[[Source], VisibleText | None], budget: ExpansionBudget
) -> str | None:
    """Return the whole source, with the units that the lines below the marker replace."""
    source_text = visible_text(head.source) if head.source else None
    if source_text is None:
        return None
    budget.spend(len(source_text.sent))
    if len(lines) == 1:
        return source_text.full_text()
    if source_text.layout.has_holes:
        return None
    units = list(source_text.layout.units)
    for line in lines[1:]:
        place, _, unit = line.partition(": ")
        if not place.isdecimal() or len(place) > 9 or not 0 < int(place) <= len(units):
            return None
        units[int(place) - 1] = unit
    return source_text.layout.separator.join(units)


def _splice_references(
    part: MarkedText, visible_text: Callable[[Source], VisibleText | None], budget: ExpansionBudget, itself: VisibleText
) -> str | None:
    """Return the lines with each marker replaced by the text that it refers to."""
    comma = next((letter for letter in ITEM_SEPARATORS if letter in part.head.flags), "")
    joint = ITEM_SEPARATORS[comma] if comma else "\n"
    pieces: list[str] = []
    position = 0
    for place, marker in part.markers.items():
        pieces += part.lines[position:place]
        position = place + 1
        if marker.source is None:
            continue
        source_text = itself if marker.source == ABOVE else visible_text(marker.source)
        text = source_text.joined_units(marker) if source_text else None
        if text is None or (source_text is itself and not _is_above(itself, marker, place)):
            return None
        budget.spend(len(text) + 1)
        if marker.own is not None:
            text = number_lines(marker.own, text.split("\n"))
        pieces.append(text.replace("\n", joint) if comma else text)
    return joint.join([*pieces, *part.lines[position:]])


def _is_above(itself: VisibleText, marker: Marker, place: int) -> bool:
    """Return True if the lines that a marker refers to are above it, where the marker is at `place`."""
    return not itself.comma and itself.find_position(marker) + marker.last - marker.first < place


def is_remainder_of(text: str, original: str, tag: str) -> bool:
    """Return True if a text is the stub of an original."""
    if eviction_markers.is_stub_of(text, original, tag):
        return True
    stub = eviction_markers.parse_stub(text, tag)
    if stub is None:
        return False
    lines = text.split("\n")
    at = stub.gaps[0][0]
    if len(stub.gaps) == 1 and 0 < at < len(lines) - 1:  # only the ends stay if lines are too long
        ends = "\n".join(lines[:at]), "\n".join(lines[at + 1 :])
        if original.startswith(ends[0]) and original.endswith(ends[1]):
            return True
    marker_units = {unit for unit, _ in stub.gaps}
    encoded_lines = iter(
        layout_codecs.encode_layout(original).text.split("\n")
    )  # remaining lines are in the layout that was sent
    return all(line in encoded_lines for unit, line in enumerate(lines) if unit not in marker_units)
