"""Index of the texts sent so far, to find lines that were sent before.

The index has the texts as they were sent. Every fourth indexable line is indexed by its hash, at its earliest position;
in a short text, every second one. Every line of a new text is looked up. So any repeated run of four indexable lines is
found, with a quarter of the memory. A hit is compared in full and extended in both directions before it counts. The new
side of a patch is indexed too, as a separate text.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator
from copy import copy
from itertools import compress, count, islice
from sys import getsizeof

from ...markers import backref
from ...markers.backref import Source, which
from ...markers.layout import MARKER_UNIT, Layout, Numbering, Shown, lay_out
from ...markers.lines import Lines
from ...markers.numbering import NumberedText
from ...markers.patches import VIEW, may_be_patch, shown_lines
from .sent import SentForm
from .slots import Bodies, IndexedShown, IndexedText, Match

INDEX_STRIDE, SHORT_STRIDE = 4, 2
SHORT_TEXT = 64
"""Maximum lines of a short text. Its repeats are short too, so more of its lines are indexed."""
TELLING_LENGTH = 10
"""Minimum characters of an indexable line."""
MIN_LONE_LINE = 80
"""Minimum characters of a single line that may be replaced: a marker for less does not pay."""
KEPT_TEXTS = 4
"""Number of parsed texts that are cached."""
COMPARED_TEXTS = 32
"""Maximum texts with the same label that are compared. If there are more, a marker has an ordinal."""
NO_TAG = "\0"
"""A tag that no conversation has, so that no line is parsed as a marker."""
MAX_GIVEN_UP = 16
"""Maximum lines of runs that were too short, which the next run may include. Limits how often a line is compared."""
COMPARED_LINES = 16
"""Maximum lines of a run that are compared to find another copy."""
BLOCK_LINES, MANY_LINES = 64, 128
"""Lines per block, and minimum lines of a text that is searched in blocks. Blocks inside a run are skipped."""
LONG_LINE = 160
"""Minimum characters of a line that is always indexed, at any position."""
OFFSET_BITS, OFFSET_MASK = 32, (1 << 32) - 1
"""An index entry is a slot number, shifted by these bits, plus the offset of the line in the slot's text."""


INT_BYTES = 48
"""Bytes in memory of a hash or of an index entry."""
SLOT_BYTES = 700
"""Bytes in memory of a slot without its texts, but with its entries in other tables."""


Address = tuple[str, int, int]
"""How a marker names lines: the unit, first and last number."""


class LineIndex:
    """All texts of a conversation as they were sent, with an index of their lines."""

    def __init__(self, tag: str) -> None:
        self.tag = tag
        self.slots: list[IndexedText] = []
        self._index: dict[int, int] = {}
        self._again: dict[int, int] = {}
        """Latest index entry of each line that was indexed before."""
        self._labelled: dict[tuple[str, str, str], list[int]] = {}
        """Numbers of the slots with the same key."""
        self._opaque: dict[int, IndexedText] = {}
        """Texts with unproven markers, parsed as if these were plain lines."""
        self._whole: dict[int, int] = {}
        self._by_source: dict[Source, int] = {}
        self._shown: dict[Source, Shown] = {}
        self._lines: dict[int, Lines] = {}
        """Line offsets of the slots that were referenced."""
        self.gone: set[int] = set()
        """Slots whose text was evicted."""
        self._measured: list[Bodies] = []
        self._copies = 0
        """Bytes in memory of texts that differ from those of the request."""

    @property
    def weight(self) -> int:
        """Approximate memory use in bytes, without the texts of the request."""
        tables = getsizeof(self._index) + getsizeof(self._again)
        numbers = INT_BYTES * (2 * len(self._index) + len(self._again))
        return self._copies + tables + numbers + SLOT_BYTES * len(self.slots)

    def fork(self) -> LineIndex:
        """Return an independent copy. The texts are shared, because they never change."""
        found = copy(self)
        found.slots = [*self.slots]
        found._index, found._again = dict(self._index), dict(self._again)
        found._labelled = {name: [*numbers] for name, numbers in self._labelled.items()}
        found._opaque, found._whole = dict(self._opaque), dict(self._whole)
        found._by_source, found._shown = dict(self._by_source), dict(self._shown)
        found._lines, found.gone, found._measured = dict(self._lines), set(self.gone), []
        return found

    def forget(self) -> None:
        """Clear the index of lines: the model can no longer see the earlier messages."""
        self._index.clear()
        self._again.clear()
        self._whole.clear()

    def drop(self, source: Source) -> None:
        """Remove a text that was evicted from the request."""
        slot = self._by_source.pop(source, None)
        if slot is not None:
            self.gone.update((slot, slot + 1) if self._viewed(slot) else (slot,))
            self._shown.pop(source, None)
            self._lines.pop(slot, None)

    def add_opaque(self, place: NumberedText, before: int) -> None:
        """Add a text with markers that are not proven to be ours. It has a number, but no reference points to it.

        Its lines still decide whether the label of another text is ambiguous, as if its markers were plain lines.
        Otherwise a forged marker could change labels (invariant 9).
        """
        self._by_source[place.source] = number = len(self.slots)
        slot = IndexedText(
            place.source, place.asked, place.call_id, place.text, "", None, "", 0, False, (), before, False
        )
        self.slots.append(slot)
        layout = lay_out(place.text, NO_TAG)
        self._opaque[number] = slot._replace(
            numbering=Numbering.of(layout), comma=layout.comma, units=len(layout.units), whole=True
        )
        self._labelled.setdefault(slot.name, []).append(number)

    def add(self, place: NumberedText, form: SentForm, before: int, nearest: int = 0) -> None:
        """Add a text as it was sent, after `characters_before` characters.

        Texts before `reach_start` are out of reach, so this text replaces their index entries.
        """
        sent = form.text
        layout = form.layout or lay_out(sent, self.tag)
        bodies, self._measured = self._measure(layout), []
        plain = layout.bodies is layout.units and not layout.comma and not layout.marked
        text = sent if plain else bodies.text
        numbering, units = Numbering.of(layout), len(layout.units)
        holes = layout.holes and numbering is None
        slot = IndexedText(
            place.source,
            place.asked,
            place.call_id,
            sent,
            text,
            numbering,
            layout.comma,
            units,
            not layout.holes,
            tuple(at for at, unit in enumerate(layout.units) if unit == MARKER_UNIT) if holes else (),
            before,
            form.shapeless,
        )
        self._copies += (sent is not place.text and getsizeof(sent)) + (text is not sent and getsizeof(text))
        reach = self._reach(nearest)
        self._index_lines(bodies, reach)
        if slot.whole:  # without a marker, the joined units are the text itself, whose hash Python has cached
            folded = (form.whole or layout.joint.join(layout.units)) if layout.marked else sent
            known = self._whole.get(hash(folded), -1)
            if known < reach or known in self.gone:
                self._whole[hash(folded)] = len(self.slots)
        self._by_source[place.source] = len(self.slots)
        if slot.whole or slot.units > len(slot.holes):
            self._labelled.setdefault(slot.name, []).append(len(self.slots))
        self.slots.append(slot)
        if may_be_patch(sent) and layout.bodies is layout.units and not layout.comma:
            new = Bodies(layout._replace(bodies=[*shown_lines(layout.units, MARKER_UNIT)]))
            self._index_lines(new, reach)
            self._copies += getsizeof(new.text)
            self.slots.append(slot._replace(text=new.text, whole=False, view=VIEW))

    def _viewed(self, number: int) -> bool:
        """Return True if the next slot is a view of this one."""
        return number + 1 < len(self.slots) and bool(self.slots[number + 1].view)

    def number(self, source: Source) -> int:
        """Return the slot number of a text."""
        return self._by_source[source]

    def _reach(self, nearest: int) -> int:
        """Return the number of the first slot in reach."""
        return bisect_left(self.slots, nearest, key=lambda slot: slot.place) if nearest > 0 else 0

    def _measure(self, layout: Layout) -> Bodies:
        """Return the lines of a layout, cached: a text is searched, perhaps in several views, and then added."""
        for known in self._measured:
            if known.seq is layout.bodies:
                return known
        self._measured.append(Bodies(layout))
        return self._measured[-1]

    def _index_lines(self, bodies: Bodies, reach: int) -> None:
        """Index some lines of the next slot. Entries of removed texts and of texts out of reach are replaced."""
        hashes, lengths, starts = bodies.hashes, bodies.lengths, bodies.starts
        if reach:
            near = reach << OFFSET_BITS
            for key in [key for key in hashes if self._index.get(key, near) < near]:
                self._index.pop(key, None)
        if self.gone:
            for key in [key for key in hashes if self._index.get(key, -1) >> OFFSET_BITS in self.gone]:
                self._index.pop(key, None)
        base = len(self.slots) << OFFSET_BITS
        setdefault, again = self._index.setdefault, self._again
        at, count = 0, len(hashes)
        stride = INDEX_STRIDE if count > SHORT_TEXT else SHORT_STRIDE
        while at < count:
            if lengths[at] >= TELLING_LENGTH:
                entry = base + starts[at] + at
                if setdefault(hashes[at], entry) is not entry:
                    again[hashes[at]] = entry
                at += stride
            else:
                at += 1
        if max(lengths, default=0) >= LONG_LINE:
            for at in [at for at, length in enumerate(lengths) if length >= LONG_LINE]:
                setdefault(hashes[at], base + starts[at] + at)

    def shapeless(self, text: str) -> bool:
        """Return True if an equal text was sent before, unchanged because no shorter layout fits."""
        found = self._whole.get(hash(text))
        return found is not None and self.slots[found].shapeless and self.slots[found].sent == text

    def same(self, folded: str, nearest: int = 0) -> int | None:
        """Return the number of the slot with exactly this text, without its encoding marker; None if there is no such
        slot in reach."""
        found = self._whole.get(hash(folded))
        if found is None or found in self.gone:
            return None
        slot = self.slots[found]
        rest = slot.sent[len(folded) :]
        fits = slot.sent.startswith(folded) and (not rest or rest.startswith("\n" + backref.opening(self.tag)))
        return found if fits and slot.place >= nearest else None

    def label(self, number: int, unit: str = "", first: int = 0, last: int = 0) -> str:
        """Return the label of lines in a slot. It has an ordinal if a later text with the same key shows such lines."""
        return self._label(number, self._newest(number, unit, first, last))

    def _label(self, number: int, newest: bool) -> str:
        asked = self.slots[number].asked
        return asked.label if newest or not asked.nth else which(asked.label, asked.nth)

    def _newest(self, number: int, unit: str, first: int, last: int) -> bool:
        """Return True if no later text with the same key shows such lines."""
        meant = self.slots[number]
        for other in islice(reversed(self._labelled.get(meant.name, ())), COMPARED_TEXTS):
            slot = self._opaque.get(other) or self.slots[other]
            if slot.source == meant.source:
                return True
            if (last <= slot.units or slot.numbering) and other not in self.gone and slot.fits(unit, first, last):
                return False
        return False

    def address(self, match: Match) -> Address:
        """Return how a marker names the lines of a match."""
        slot, position = self.slots[match.slot], self.line_at(match.slot, match.offset)
        length = match.last - match.first
        unit, first = "item" if slot.comma else "line", position + 1
        if slot.numbering is not None:
            unit, first = slot.numbering.address(position, position + length - 1)
        return unit, first, first + length - 1

    def findable(self, layout: Layout, match: Match, address: Address, nearest: int) -> tuple[Match, Address, str]:
        """Return the copy of a run that the model finds most easily, with its address and label.

        That is this match, or another copy whose label needs no ordinal.
        """
        newest = self._newest(match.slot, *address)
        other = None if newest else self._elsewhere(layout, match, nearest)
        if other is not None and self._newest(other.slot, *(there := self.address(other))):
            match, address, newest = other, there, True
        return match, address, self._label(match.slot, newest)

    def _elsewhere(self, layout: Layout, match: Match, nearest: int) -> Match | None:
        """Return the latest other copy of a run, or None."""
        new = self._measure(layout)
        for at in range(match.first, min(match.last, match.first + COMPARED_LINES)):
            entry = self._again.get(new.hashes[at], 0)
            if not entry or entry >> OFFSET_BITS == match.slot:
                continue
            slot, offset = entry >> OFFSET_BITS, entry & OFFSET_MASK
            other = self._extend(new, at, slot, offset, match.first, nearest, match.last)
            if other is not None and (other.first, other.last) == (match.first, match.last):
                return other
        return None

    def shown(self, source: Source) -> Shown | None:
        """Return a sent text, parsed. The last few are cached, because references to a text come close together."""
        if source not in self._by_source:
            return None
        if source not in self._shown:
            if len(self._shown) >= KEPT_TEXTS:
                del self._shown[next(iter(self._shown))]
            number = self._by_source[source]
            slot = self.slots[number]
            if not slot.units:  # an opaque text has no index, so it must be parsed
                self._shown[source] = Shown.of(slot.sent, self.tag)
            else:
                self._shown[source] = IndexedShown(slot.sent, self.tag, slot, self._lines_of(number))
        return self._shown[source]

    def unread(self, source: Source) -> int:
        """Return how many characters must be parsed before a lookup: the length of an opaque text, else 0."""
        slot = self.slots[self._by_source[source]] if source in self._by_source else None
        return len(slot.sent) if slot is not None and not slot.units else 0

    def line_at(self, number: int, offset: int) -> int:
        """Return the line, counted from 0, at an offset in a slot's text."""
        return self._lines_of(number).at(offset)

    def _lines_of(self, number: int) -> Lines:
        if number not in self._lines:
            self._lines[number] = Lines(self.slots[number].text)
        return self._lines[number]

    def matches(self, layout: Layout, nearest: int = 0, taken: Callable[[], int] | None = None) -> Iterator[Match]:
        """Yield the maximal runs of units that repeat slots from `nearest` characters on, from left to right.

        `used_end` returns the end of the last run that was used. A run that was too short may be part of the next.
        """
        index, new = self._index, self._measure(layout)
        starts, total = new.starts, len(new.seq)
        block = BLOCK_LINES if total > MANY_LINES else total
        covered = begin = 0
        resume: tuple[int, int] | None = None
        while begin < total:
            hashes = new.hashes if block == total else [*map(hash, new.seq[begin : begin + block])]
            for at in compress(count(begin), map(index.__contains__, hashes)):
                if at < covered:
                    continue
                free = covered if taken is None else max(taken(), covered - MAX_GIVEN_UP)
                best = None
                if resume is not None:  # try to continue the last run's copy, past a changed line or two
                    there = resume[1] + starts[at] + at
                    best = self._extend(new, at, resume[0], there, free, nearest)
                if best is None:
                    entry = index[hashes[at - begin]]
                    best = self._extend(new, at, entry >> OFFSET_BITS, entry & OFFSET_MASK, free, nearest)
                if best is not None:
                    yield best
                    covered = best.last
                    resume = (best.slot, best.offset - starts[best.first] - best.first)
            begin = max(begin + block, covered)

    def _extend(
        self, new: Bodies, at: int, number: int, local: int, covered: int, nearest: int, end: int | None = None
    ) -> Match | None:
        """Return the run around unit `at`, up to `end`, whose copy has this unit at offset `local` of slot `number`.

        None if the texts differ, or the run is a single short line.
        """
        if number in self.gone:
            return None
        slot, bodies = self.slots[number], new.seq
        body, old = bodies[at], slot.text
        after = local + len(body)
        # Hashes may collide, and the position of a resumed run is a guess. So compare everything: the line, and that it
        # is a whole line of the slot's text.
        if len(body) < MIN_LONE_LINE and not new.beside(at, old, local, after):
            return None
        if local < 0 or not old.startswith(body, local) or (local and old[local - 1] != "\n"):
            return None
        if (after < len(old) and old[after] != "\n") or slot.place < nearest:
            return None
        floor, limit = new.stretch(at) if new.edges else (0, len(bodies))
        limit = limit if end is None else min(limit, end)
        # Backward line by line: only the few lines since the previous indexed one can be before the hit.
        first = at
        while first > covered and first > floor:
            before = bodies[first - 1]
            there = local - len(before) - 1
            if there < 0 or not old.startswith(before, there) or (there and old[there - 1] != "\n"):
                break
            first, local = first - 1, there
        # Forward, a run may have thousands of lines: compare slices of doubling size, then cut to whole lines.
        last = at + 1
        if last < limit and old.startswith(bodies[last], after + 1):
            begin, stop = new.starts[at] + at, new.starts[limit] + limit - 1
            there = after - len(body)
            length = _whole_lines(new.text, begin, stop, old, there, common(new.text, begin, stop, old, there))
            last = at + 1 + new.text.count("\n", begin, begin + length)
        if last - first == 1 and len(body) < MIN_LONE_LINE:
            return None
        return Match(first, last, number, local)


def common(new: str, at: int, limit: int, old: str, there: int) -> int:
    """Return the length of the common prefix of both texts from these offsets on.

    It compares slices of doubling size until one differs, then halves it.
    """
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
    """Return the common length, cut to whole lines of both texts; -1 if not one line is whole."""
    ends_new = at + length == limit or new[at + length] == "\n"
    ends_old = there + length == len(old) or old[there + length] == "\n"
    if ends_new and ends_old:
        return length
    return max(-1, new.rfind("\n", at, at + length) - at)
