"""Restore one text: fetch what its markers refer to.

The markers may come from any source. So the size of each referenced text is counted in an `ExpansionBudget` before it
is fetched, and the result only counts if it has the digest in the first marker.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from . import backref, evicted, shapes
from .backref import ABOVE, Marker, Source
from .counting import counted_up
from .layout import ITEM_SEPARATORS, SPARSE_FLAG, Marked, Shown, marked, thicken, unambiguous

BUDGET_BASE, BUDGET_RATIO, BUDGET_SHARE = 2**20, 16, 4
"""Characters that all markers of a request may expand to: a base, and a multiple of the sent characters. The third
number is the divisor of that multiple for a single text."""


class Budget:
    """Characters that markers may still expand to, at a position of a request.

    Ibidem's own rewrites stay within it. So a text that exceeds it is not ours and need not be expanded: it could have
    us fetch without end.
    """

    def __init__(self, sent: int, spent: int = 0, times: int = 1) -> None:
        """Create the budget of a text. `sent` characters were sent before it, and `spent` were fetched for others."""
        all_of_it = times * (BUDGET_BASE + BUDGET_RATIO * sent) - spent
        self.left = self._room = max(0, min(all_of_it, BUDGET_BASE + BUDGET_RATIO * sent // BUDGET_SHARE))

    @property
    def used(self) -> int:
        """Characters that were fetched within this budget."""
        return self._room - max(0, self.left)

    def spend(self, characters: int) -> None:
        """Count fetched characters. Raises ValueError if they exceed the budget."""
        self.left -= characters
        if self.left < 0:
            raise ValueError("the text would expand beyond its budget")


class Restored(NamedTuple):
    """The original of a part."""

    original: str
    folded: str
    """The text before its layouts were decoded."""
    flags: str
    refers: bool
    """True if a marker in it refers to another text."""


class Unfolded(NamedTuple):
    """An encoded text and its known original."""

    folded: str
    flags: str
    original: str


def restore(
    sent: str, tag: str, shown: Callable[[Source], Shown | None], budget: Budget, known: Unfolded | None = None
) -> Restored | None:
    """Restore a part that has a marker of this conversation; None for other texts."""
    if known is not None and _is_folded(sent, tag, known):
        return _unfolded(known, budget)
    found = marked(sent, tag) if backref.opening(tag) in sent else None
    if found is None:
        return None
    head = found.head
    lines = thicken(found.lines) if SPARSE_FLAG in head.flags else found.lines
    if sum(marker.last - marker.first + 1 for marker in found.markers.values() if marker.unit) > budget.left:
        return None  # a unit has at least one character
    try:
        if head.source and not head.unit:
            folded = _copied(head, lines, shown, budget)
        else:
            folded = _spliced(found._replace(lines=lines), shown, budget, Shown.of(sent, tag))
        if folded is None:
            return None
        if known is not None and known.flags == head.flags and known.folded == folded:
            original = known.original
        else:
            original = shapes.unfold(folded, head.flags, budget.left)
        budget.spend(len(original))
    except (ValueError, LookupError, RecursionError):
        return None
    if backref.digest_of(original) != head.digest:
        return None
    return Restored(original, folded, head.flags, any(marker.source for marker in found.markers.values()))


def _is_folded(sent: str, tag: str, known: Unfolded) -> bool:
    """Return True if a text is exactly the encoded text and a marker that says so."""
    opening, end = backref.opening(tag), len(known.folded)
    if not sent.startswith("\n" + opening, end) or not sent.startswith(known.folded) or opening in known.folded:
        return False
    marker = backref.parse(sent[end + 1 :], tag)
    if marker is None or marker.source is not None or marker.flags != known.flags:
        return False
    parted = any(letter in marker.flags for letter in (*ITEM_SEPARATORS, SPARSE_FLAG))
    return not parted and unambiguous(marker.flags) and backref.digest_of(known.original) == marker.digest


def _unfolded(known: Unfolded, budget: Budget) -> Restored | None:
    try:
        budget.spend(len(known.original))
    except ValueError:
        return None
    return Restored(known.original, known.folded, known.flags, False)


def _copied(head: Marker, lines: list[str], shown: Callable[[Source], Shown | None], budget: Budget) -> str | None:
    """Return the whole source, with the units that the lines below the marker replace."""
    found = shown(head.source) if head.source else None
    if found is None:
        return None
    budget.spend(len(found.sent))
    if len(lines) == 1:
        return found.whole()
    if found.layout.holes:
        return None
    units = list(found.layout.units)
    for line in lines[1:]:
        place, _, unit = line.partition(": ")
        if not place.isdecimal() or len(place) > 9 or not 0 < int(place) <= len(units):
            return None
        units[int(place) - 1] = unit
    return found.layout.joint.join(units)


def _spliced(part: Marked, shown: Callable[[Source], Shown | None], budget: Budget, itself: Shown) -> str | None:
    """Return the lines with each marker replaced by the text that it refers to."""
    comma = next((letter for letter in ITEM_SEPARATORS if letter in part.head.flags), "")
    joint = ITEM_SEPARATORS[comma] if comma else "\n"
    pieces: list[str] = []
    done = 0
    for place, marker in part.markers.items():
        pieces += part.lines[done:place]
        done = place + 1
        if marker.source is None:
            continue
        found = itself if marker.source == ABOVE else shown(marker.source)
        text = found.lines_at(marker) if found else None
        if text is None or (found is itself and not _is_above(itself, marker, place)):
            return None
        budget.spend(len(text) + 1)
        if marker.own is not None:
            text = counted_up(marker.own, text.split("\n"))
        pieces.append(text.replace("\n", joint) if comma else text)
    return joint.join([*pieces, *part.lines[done:]])


def _is_above(itself: Shown, marker: Marker, place: int) -> bool:
    """Return True if the lines that a marker refers to are above it, where the marker is at `place`."""
    return not itself.comma and itself.position(marker) + marker.last - marker.first < place


def left_of(text: str, original: str, tag: str) -> bool:
    """Return True if a text is the stub of an original."""
    if evicted.stands_for(text, original, tag):
        return True
    found = evicted.stub(text, tag)
    if found is None:
        return False
    lines = text.split("\n")
    at = found.gaps[0][0]
    if len(found.gaps) == 1 and 0 < at < len(lines) - 1:  # only the ends stay if lines are too long
        ends = "\n".join(lines[:at]), "\n".join(lines[at + 1 :])
        if original.startswith(ends[0]) and original.endswith(ends[1]):
            return True
    gone = {unit for unit, _ in found.gaps}
    folded = iter(shapes.fold(original).text.split("\n"))  # remaining lines are in the layout that was sent
    return all(line in folded for unit, line in enumerate(lines) if unit not in gone)
