"""What the model has been shown so far, and where a text was shown before.

The ledger holds the texts as they were sent. Of their lines every fourth that says something is indexed, by hash, at
its earliest place; every line of a new text is looked up. So a run of four such lines that stands anywhere above is
found, at a quarter of the memory. A hit is compared in full and extended both ways before it counts.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate, compress
from typing import NamedTuple

from .. import references
from ..layout import Layout, Numbering, Shown, lay_out
from ..references import Source
from ..sources import Place

STRIDE = 4
TELLING = 10
"""Characters from which a line says enough to be looked for."""
ALONE = 80
"""Characters below which a single line is not worth a look."""
KEPT = 4
"""Texts that are kept taken apart."""
LONG = 160
"""Characters from which a line is indexed wherever it stands."""


class Slot(NamedTuple):
    """One text as it was sent."""

    source: Source
    label: str
    call_id: str
    sent: str
    text: str
    """Bodies of its units, a line each; holes where markers stand."""
    numbering: Numbering | None
    comma: str
    units: int
    whole: bool
    """Nothing of it was left out."""
    place: int
    """Characters sent before it, of everything that counts as distance."""


class Match(NamedTuple):
    """Units `first` up to, not including, `last` of the new text stand in a slot."""

    first: int
    last: int
    slot: int
    offset: int
    """Where they start in the slot's text."""


class Ledger:
    def __init__(self, tag: str) -> None:
        self.tag = tag
        self.slots: list[Slot] = []
        self._starts: list[int] = []
        self._end = 0
        self._index: dict[int, int] = {}
        self._whole: dict[int, int] = {}
        self._by_source: dict[Source, int] = {}
        self._shown: dict[Source, Shown] = {}

    def forget(self) -> None:
        """What came before is no longer in the model's sight."""
        self._index.clear()
        self._whole.clear()

    def add(self, place: Place, sent: str, before: int, layout: Layout | None = None, nearest: int = 0) -> None:
        """Take in a text as it was sent, after `before` characters; its layout may be known already.

        What was sent before `nearest` characters is out of reach, and this copy takes its place.
        """
        layout = layout or lay_out(sent, self.tag)
        plain = layout.bodies is layout.units and not layout.comma and references.opening(self.tag) not in sent
        text = sent if plain else "\n".join(layout.bodies)
        numbering, units = Numbering.of(layout), len(layout.units)
        slot = Slot(
            place.source,
            place.asked.label,
            place.call_id,
            sent,
            text,
            numbering,
            layout.comma,
            units,
            not layout.holes,
            before,
        )
        reach = self._reach(nearest)
        self._index_lines(layout.bodies, self._starts[reach] if reach < len(self._starts) else self._end)
        if slot.whole:  # without a marker, the units joined are the text itself, and its hash is known
            folded = layout.joint.join(layout.units) if references.opening(self.tag) in sent else sent
            if self._whole.get(hash(folded), -1) < reach:
                self._whole[hash(folded)] = len(self.slots)
        self._by_source[place.source] = len(self.slots)
        self.slots.append(slot)
        self._starts.append(self._end)
        self._end += len(text) + 1

    def _reach(self, nearest: int) -> int:
        """The first slot that is in reach."""
        return bisect_left(self.slots, nearest, key=lambda slot: slot.place) if nearest > 0 else 0

    def _index_lines(self, bodies: Sequence[str], reach: int) -> None:
        """Index some lines, the earliest copy of each that is in reach."""
        if reach:
            for key in [key for body in bodies if self._index.get(key := hash(body), reach) < reach]:
                self._index.pop(key, None)
        offsets = list(accumulate(map(len, bodies), initial=self._end))
        setdefault = self._index.setdefault
        at, count = 0, len(bodies)
        while at < count:
            body = bodies[at]
            if len(body) >= TELLING:
                setdefault(hash(body), offsets[at] + at)
                at += STRIDE
            else:
                at += 1
        if max(map(len, bodies), default=0) >= LONG:
            for at in [at for at, body in enumerate(bodies) if len(body) >= LONG]:
                setdefault(hash(bodies[at]), offsets[at] + at)

    def same(self, folded: str, nearest: int = 0) -> Slot | None:
        """The slot whose text is this one, to the letter (a marker that says how it was folded aside)."""
        found = self._whole.get(hash(folded))
        if found is None:
            return None
        slot = self.slots[found]
        rest = slot.sent[len(folded) :]
        fits = slot.sent.startswith(folded) and (not rest or rest.startswith("\n" + references.opening(self.tag)))
        return slot if fits and slot.place >= nearest else None

    def shown(self, source: Source) -> Shown | None:
        """A text that was sent, taken apart; the last few are kept, as references come in flocks."""
        if source not in self._by_source:
            return None
        if source not in self._shown:
            if len(self._shown) >= KEPT:
                del self._shown[next(iter(self._shown))]
            self._shown[source] = Shown.of(self.slots[self._by_source[source]].sent, self.tag)
        return self._shown[source]

    def matches(self, layout: Layout, nearest: int = 0) -> Iterator[Match]:
        """Runs of units that stand in slots from `nearest` characters on, each as long as it goes, left to right."""
        bodies = layout.bodies
        index = self._index
        hits = list(compress(range(len(bodies)), map(index.__contains__, map(hash, bodies))))
        if not hits:
            return
        new = _New("\n".join(bodies), bodies, list(accumulate(map(len, bodies), initial=0)), layout.edges())
        covered = 0
        resume: tuple[int, int] | None = None
        for at in hits:
            if at < covered:
                continue
            best = None
            if resume is not None:  # where the last run would go on, past a changed line or two
                there = resume[1] + new.starts[at] + at
                best = self._extend(new, at, resume[0], there, covered, nearest)
            if best is None:
                offset = index[hash(bodies[at])]
                slot = bisect_right(self._starts, offset) - 1
                best = self._extend(new, at, slot, offset - self._starts[slot], covered, nearest)
            if best is not None:
                yield best
                covered = best.last
                resume = (best.slot, best.offset - new.starts[best.first] - best.first)

    def _extend(self, new: _New, at: int, number: int, local: int, covered: int, nearest: int) -> Match | None:
        """The run around unit `at`, if it stands at that offset of a slot, and is more than a short line."""
        slot, body = self.slots[number], new.bodies[at]
        old = slot.text
        after = local + len(body)
        if local < 0 or slot.place < nearest or not old.startswith(body, local) or (local and old[local - 1] != "\n"):
            return None
        if old[after : after + 1] not in ("\n", ""):
            return None
        edge = bisect_right(new.edges, at)
        first = at
        floor = max(covered, new.edges[edge - 1] if edge else 0)
        while first > floor:
            before = new.bodies[first - 1]
            there = local - len(before) - 1
            if there < 0 or not old.startswith(before, there) or (there and old[there - 1] != "\n"):
                break
            first, local = first - 1, there
        limit = new.edges[edge] if edge < len(new.edges) else len(new.bodies)
        last = at + 1
        if last < limit and old.startswith(new.bodies[last], after + 1):
            end = new.starts[limit] + limit - 1
            begin = new.starts[at] + at
            there = after - len(body)
            length = _whole_lines(new.text, begin, end, old, there, common(new.text, begin, end, old, there))
            last = at + 1 + new.text.count("\n", begin, begin + length)
        if last - first == 1 and len(body) < ALONE:
            return None
        return Match(first, last, number, local)


class _New(NamedTuple):
    """The text that is looked up."""

    text: str
    bodies: Sequence[str]
    starts: list[int]
    """Characters before each unit, line breaks not counted."""
    edges: list[int]


def common(new: str, at: int, limit: int, old: str, there: int) -> int:
    """How many characters agree from there on. Compares ever longer slices, then ever shorter ones."""
    limit = min(limit - at, len(old) - there)
    done, step = 0, 64
    while done < limit:
        size = min(step, limit - done)
        if new[at + done : at + done + size] == old[there + done : there + done + size]:
            done += size
            step *= 2
        elif size == 1:
            break
        else:
            step = size // 2
            limit = done + size - 1
    return done


def _whole_lines(new: str, at: int, limit: int, old: str, there: int, length: int) -> int:
    """The agreement cut back to whole lines on both sides; -1 if not even one is whole."""
    ends_new = at + length == limit or new[at + length] == "\n"
    ends_old = there + length == len(old) or old[there + length] == "\n"
    if ends_new and ends_old:
        return length
    return max(-1, new.rfind("\n", at, at + length) - at)
