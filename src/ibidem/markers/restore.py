"""The way back for one text: what was left out of it, fetched from where its markers point.

Whoever wrote the text chose its markers. So what they point at is paid for out of a `Budget` before it is fetched, and
the outcome counts only if it has the digest that the first of them carries.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from . import backref, evicted, shapes
from .backref import ABOVE, Marker, Source
from .counting import counted_up
from .layout import ITEM_SEPARATORS, SPARSE_FLAG, Marked, Shown, marked, thicken, unambiguous

BUDGET_BASE, BUDGET_RATIO, BUDGET_SHARE = 2**20, 16, 4
"""Characters that all markers of a request may stand for: so many, and so many for each that is sent; and how much of
that those of one text may."""


class Budget:
    """Characters that may still be fetched for markers, at a place of a request.

    What is rewritten stays within it, so whoever reads the request again may refuse to follow what does not: a text of
    somebody else's that would have us fetch without end.
    """

    def __init__(self, sent: int, spent: int = 0, times: int = 1) -> None:
        """For a text before which so many characters were sent, and so many fetched for others."""
        all_of_it = times * (BUDGET_BASE + BUDGET_RATIO * sent) - spent
        self.left = self._room = max(0, min(all_of_it, BUDGET_BASE + BUDGET_RATIO * sent // BUDGET_SHARE))

    @property
    def used(self) -> int:
        return self._room - max(0, self.left)

    def spend(self, characters: int) -> None:
        """Raises ValueError where they are more than is left."""
        self.left -= characters
        if self.left < 0:
            raise ValueError("it would stand for too much")


class Restored(NamedTuple):
    """A part as it was."""

    original: str
    folded: str
    """Before its shapes were unfolded."""
    flags: str
    refers: bool
    """Something in it stands elsewhere."""


class Unfolded(NamedTuple):
    """What a folded text is known to unfold to."""

    folded: str
    flags: str
    original: str


def restore(
    sent: str, tag: str, shown: Callable[[Source], Shown | None], budget: Budget, known: Unfolded | None = None
) -> Restored | None:
    """What a part was that carries a marker of this conversation; None if it is no such part."""
    if known is not None and _is_folded(sent, tag, known):
        return _unfolded(known, budget)
    found = marked(sent, tag) if backref.opening(tag) in sent else None
    if found is None:
        return None
    head = found.head
    lines = thicken(found.lines) if SPARSE_FLAG in head.flags else found.lines
    if sum(marker.last - marker.first + 1 for marker in found.markers.values() if marker.unit) > budget.left:
        return None  # a unit is a character at least
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
    """Whether a text is the folded one with a marker that says so, and nothing else."""
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
    """The whole of a source, but for the units given below the marker."""
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
    """Lines as they stand, and what the markers between them point at."""
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
    """Whether the lines that a marker points at stand above it, on the line at `place`."""
    return not itself.comma and itself.position(marker) + marker.last - marker.first < place


def left_of(text: str, original: str, tag: str) -> bool:
    """Whether a text is what was left of an original when lines of it were let go."""
    if evicted.stands_for(text, original, tag):
        return True
    found = evicted.stub(text, tag)
    if found is None:
        return False
    lines = text.split("\n")
    at = found.gaps[0][0]
    if len(found.gaps) == 1 and 0 < at < len(lines) - 1:  # its ends: the lines were too long for whole ones
        ends = "\n".join(lines[:at]), "\n".join(lines[at + 1 :])
        if original.startswith(ends[0]) and original.endswith(ends[1]):
            return True
    gone = {unit for unit, _ in found.gaps}
    folded = iter(shapes.fold(original).text.split("\n"))  # where lines had to stay, those stay that were sent
    return all(line in folded for unit, line in enumerate(lines) if unit not in gone)
