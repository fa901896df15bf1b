"""What the model has been shown so far, and where a text was shown before.

The ledger holds the texts as they were sent. Of their lines every third that says something is indexed, by hash, at its
earliest place; every line of a new text is looked up. So a run of three such lines that stands anywhere above is found,
at a third of the memory. A hit is compared in full and extended both ways before it counts.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from itertools import accumulate
from typing import NamedTuple

from .. import references
from ..layout import Layout, Numbering, Shown, lay_out
from ..references import Source

STRIDE = 3
TELLING = 10
"""Characters from which a line says enough to be looked for."""
LONG = 160
"""Characters from which a line is indexed wherever it stands."""


class Slot(NamedTuple):
    """One text as it was sent."""

    source: Source
    label: str
    tool: str
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

    def forget(self) -> None:
        """What came before is no longer in the model's sight."""
        self._index.clear()
        self._whole.clear()

    def add(self, source: Source, label: str, tool: str, sent: str, place: int) -> None:
        """Take in a text as it was sent."""
        layout = lay_out(sent, self.tag)
        plain = layout.bodies is layout.units and not layout.comma and references.opening(self.tag) not in sent
        text = sent if plain else "\n".join(layout.bodies)
        numbering, units = Numbering.of(layout), len(layout.units)
        slot = Slot(source, label, tool, sent, text, numbering, layout.comma, units, not layout.holes, place)
        self._index_lines(layout.bodies)
        if slot.whole:
            self._whole.setdefault(hash(layout.joint.join(layout.units)), len(self.slots))
        self._by_source[source] = len(self.slots)
        self.slots.append(slot)
        self._starts.append(self._end)
        self._end += len(text) + 1

    def _index_lines(self, bodies: list[str]) -> None:
        offsets = list(accumulate(map(len, bodies), initial=self._end))
        setdefault = self._index.setdefault
        due = 0
        for at, body in enumerate(bodies):
            if (at >= due and len(body) >= TELLING) or len(body) >= LONG:
                setdefault(hash(body), offsets[at] + at)
                due = at + STRIDE

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
        found = self._by_source.get(source)
        return None if found is None else Shown.of(self.slots[found].sent, self.tag)

    def matches(self, layout: Layout, nearest: int = 0) -> Iterator[Match]:
        """Runs of units that stand in slots from `nearest` characters on, each as long as it goes, left to right."""
        bodies = layout.bodies
        get = self._index.get
        found = [(at, offset) for at, offset in enumerate(map(get, map(hash, bodies))) if offset is not None]
        if not found:
            return
        text = "\n".join(bodies)
        starts = list(accumulate(map(len, bodies), initial=0))
        edges = layout.edges()
        covered = 0
        resume: tuple[int, int] | None = None
        for at, offset in found:
            if at < covered:
                continue
            best = self._extend(text, starts, bodies, edges, at, offset, covered, nearest)
            if resume is not None:  # where the last run went on, past a changed line or two
                there = self._starts[resume[0]] + resume[1] + starts[at] + at
                again = self._extend(text, starts, bodies, edges, at, there, covered, nearest)
                if again and (best is None or again.last - again.first > best.last - best.first):
                    best = again
            if best is not None:
                yield best
                covered = best.last
                resume = (best.slot, best.offset - starts[best.first] - best.first)

    def _extend(
        self,
        text: str,
        starts: list[int],
        bodies: list[str],
        edges: list[int],
        at: int,
        offset: int,
        covered: int,
        nearest: int,
    ) -> Match | None:
        """The run around unit `at`, if it stands at that offset of what was sent."""
        number = bisect_right(self._starts, offset) - 1
        if number < 0:
            return None
        slot = self.slots[number]
        local = offset - self._starts[number]
        old = slot.text
        if slot.place < nearest or local < 0 or (local and old[local - 1 : local] != "\n"):
            return None
        edge = bisect_right(edges, at)
        begin = starts[at] + at
        limit = starts[edges[edge]] + edges[edge] - 1 if edge < len(edges) else len(text)
        length = _whole_lines(text, begin, limit, old, local, common(text, begin, limit, old, local))
        if length < 0:
            return None
        last = at + 1 + text.count("\n", begin, begin + length)
        first = at
        floor = max(covered, edges[edge - 1] if edge else 0)
        while first > floor:
            body = bodies[first - 1]
            before = local - len(body) - 1
            if before < 0 or not old.startswith(body, before) or (before and old[before - 1] != "\n"):
                break
            first, local = first - 1, before
        return Match(first, last, number, local)


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
