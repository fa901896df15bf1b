"""What the model has been shown so far, and where a text was shown before.

The index holds the texts as they were sent. Of their lines every fourth that says something is indexed, by hash, at
its earliest place, and every second in a short text; every line of a new text is looked up. So a run of four such lines
that stands anywhere above is found, at a quarter of the memory. A hit is compared in full and extended both ways before
it counts. Of a patch, its new side is indexed as well, as a text of its own.
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
"""Lines up to which a text is short: what it repeats is short as well, so more of its lines are indexed."""
TELLING_LENGTH = 10
"""Characters from which a line says enough to be looked for."""
MIN_LONE_LINE = 80
"""Characters below which a single line is not worth a look."""
KEPT_TEXTS = 4
"""Texts that are kept taken apart."""
COMPARED_TEXTS = 32
"""Texts with the same label that are compared with one a reference means; where there are more, it says which."""
NO_TAG = "\0"
"""Of no conversation: with it, no line is a marker."""
MAX_GIVEN_UP = 16
"""Lines of runs that were too short, which the next run may take in: so that no line is compared very often."""
COMPARED_LINES = 16
"""Lines of a run that are looked up to find it elsewhere."""
BLOCK_LINES, MANY_LINES = 64, 128
"""Lines that are looked up at once in a text of many: those in the middle of a run need not be."""
LONG_LINE = 160
"""Characters from which a line is indexed wherever it stands."""
OFFSET_BITS, OFFSET_MASK = 32, (1 << 32) - 1
"""Bits of an index entry that say where in its slot a line stands; the slot is in those above."""


INT_BYTES = 48
"""Bytes in memory of a hash or of an index entry."""
SLOT_BYTES = 700
"""Bytes in memory of a slot beside its texts, with what is known of it by its name, its source and its hash."""


Address = tuple[str, int, int]
"""What lines are called: a word, the first and the last."""


class LineIndex:
    def __init__(self, tag: str) -> None:
        self.tag = tag
        self.slots: list[IndexedText] = []
        self._index: dict[int, int] = {}
        self._again: dict[int, int] = {}
        """The latest places of lines that were indexed before."""
        self._labelled: dict[tuple[str, str, str], list[int]] = {}
        """Slots that go by the same name."""
        self._opaque: dict[int, IndexedText] = {}
        """What texts with markers that are not ours would be without them."""
        self._whole: dict[int, int] = {}
        self._by_source: dict[Source, int] = {}
        self._shown: dict[Source, Shown] = {}
        self._lines: dict[int, Lines] = {}
        """Of the slots that something referred to."""
        self.gone: set[int] = set()
        """Slots whose text was let go since."""
        self._measured: list[Bodies] = []
        self._copies = 0
        """Bytes in memory of texts that are not those that came."""

    @property
    def weight(self) -> int:
        """Bytes that it takes in memory beside the texts that came, about."""
        tables = getsizeof(self._index) + getsizeof(self._again)
        numbers = INT_BYTES * (2 * len(self._index) + len(self._again))
        return self._copies + tables + numbers + SLOT_BYTES * len(self.slots)

    def fork(self) -> LineIndex:
        """As it is, to go on by itself: the texts are shared, which never change."""
        found = copy(self)
        found.slots = [*self.slots]
        found._index, found._again = dict(self._index), dict(self._again)
        found._labelled = {name: [*numbers] for name, numbers in self._labelled.items()}
        found._opaque, found._whole = dict(self._opaque), dict(self._whole)
        found._by_source, found._shown = dict(self._by_source), dict(self._shown)
        found._lines, found.gone, found._measured = dict(self._lines), set(self.gone), []
        return found

    def forget(self) -> None:
        """What came before is no longer in the model's sight."""
        self._index.clear()
        self._again.clear()
        self._whole.clear()

    def drop(self, source: Source) -> None:
        """A text is no longer in the request."""
        slot = self._by_source.pop(source, None)
        if slot is not None:
            self.gone.update((slot, slot + 1) if self._viewed(slot) else (slot,))
            self._shown.pop(source, None)
            self._lines.pop(slot, None)

    def add_opaque(self, place: NumberedText, before: int) -> None:
        """Take in a text with markers that are not known to be ours: it is counted, and never referred to.

        What others are called goes by what it would be if it had none (law 9).
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
        """Take in a text as it was sent, after `before` characters.

        What was sent before `nearest` characters is out of reach, and this copy takes its place.
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
        if slot.whole:  # without a marker, the units joined are the text itself, and its hash is known
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
        """Whether the slot behind this one is a view of it."""
        return number + 1 < len(self.slots) and bool(self.slots[number + 1].view)

    def number(self, source: Source) -> int:
        """Which slot a text is in."""
        return self._by_source[source]

    def _reach(self, nearest: int) -> int:
        """The first slot that is in reach."""
        return bisect_left(self.slots, nearest, key=lambda slot: slot.place) if nearest > 0 else 0

    def _measure(self, layout: Layout) -> Bodies:
        """A text is looked up, in a few ways maybe, and then added: each is measured once."""
        for known in self._measured:
            if known.seq is layout.bodies:
                return known
        self._measured.append(Bodies(layout))
        return self._measured[-1]

    def _index_lines(self, bodies: Bodies, reach: int) -> None:
        """Index some lines of the next slot, the earliest copy of each that is in reach: the slot, then where in it."""
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
        """Whether no shape fits this text, as is known of one that was sent as it is before."""
        found = self._whole.get(hash(text))
        return found is not None and self.slots[found].shapeless and self.slots[found].sent == text

    def same(self, folded: str, nearest: int = 0) -> int | None:
        """The slot whose text is this one, to the letter (a marker that says how it was folded aside)."""
        found = self._whole.get(hash(folded))
        if found is None or found in self.gone:
            return None
        slot = self.slots[found]
        rest = slot.sent[len(folded) :]
        fits = slot.sent.startswith(folded) and (not rest or rest.startswith("\n" + backref.opening(self.tag)))
        return found if fits and slot.place >= nearest else None

    def label(self, number: int, unit: str = "", first: int = 0, last: int = 0) -> str:
        """What to call the lines of a slot: with its ordinal where a later text of the same name shows such lines."""
        return self._label(number, self._newest(number, unit, first, last))

    def _label(self, number: int, newest: bool) -> str:
        asked = self.slots[number].asked
        return asked.label if newest or not asked.nth else which(asked.label, asked.nth)

    def _newest(self, number: int, unit: str, first: int, last: int) -> bool:
        """Whether, of all texts of the same name, this one is the newest that shows such lines."""
        meant = self.slots[number]
        for other in islice(reversed(self._labelled.get(meant.name, ())), COMPARED_TEXTS):
            slot = self._opaque.get(other) or self.slots[other]
            if slot.source == meant.source:
                return True
            if (last <= slot.units or slot.numbering) and other not in self.gone and slot.fits(unit, first, last):
                return False
        return False

    def address(self, match: Match) -> Address:
        """What to call the lines of a match."""
        slot, position = self.slots[match.slot], self.line_at(match.slot, match.offset)
        length = match.last - match.first
        unit, first = "item" if slot.comma else "line", position + 1
        if slot.numbering is not None:
            unit, first = slot.numbering.address(position, position + length - 1)
        return unit, first, first + length - 1

    def findable(self, layout: Layout, match: Match, address: Address, nearest: int) -> tuple[Match, Address, str]:
        """A run where it is most easily found, here or at another place where it stands, with the label of that."""
        newest = self._newest(match.slot, *address)
        other = None if newest else self._elsewhere(layout, match, nearest)
        if other is not None and self._newest(other.slot, *(there := self.address(other))):
            match, address, newest = other, there, True
        return match, address, self._label(match.slot, newest)

    def _elsewhere(self, layout: Layout, match: Match, nearest: int) -> Match | None:
        """The latest other place where a run stands."""
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
        """A text that was sent, taken apart; the last few are kept, as references come in flocks."""
        if source not in self._by_source:
            return None
        if source not in self._shown:
            if len(self._shown) >= KEPT_TEXTS:
                del self._shown[next(iter(self._shown))]
            number = self._by_source[source]
            slot = self.slots[number]
            if not slot.units:  # it is opaque: what stands in it is found only by whoever takes it apart
                self._shown[source] = Shown.of(slot.sent, self.tag)
            else:
                self._shown[source] = IndexedShown(slot.sent, self.tag, slot, self._lines_of(number))
        return self._shown[source]

    def unread(self, source: Source) -> int:
        """Characters to be read before anything is found in a text: those of an opaque one, which is not indexed."""
        slot = self.slots[self._by_source[source]] if source in self._by_source else None
        return len(slot.sent) if slot is not None and not slot.units else 0

    def line_at(self, number: int, offset: int) -> int:
        """The line, counted from 0, of a place in a slot's text."""
        return self._lines_of(number).at(offset)

    def _lines_of(self, number: int) -> Lines:
        if number not in self._lines:
            self._lines[number] = Lines(self.slots[number].text)
        return self._lines[number]

    def matches(self, layout: Layout, nearest: int = 0, taken: Callable[[], int] | None = None) -> Iterator[Match]:
        """Runs of units that stand in slots from `nearest` characters on, each as long as it goes, left to right.

        `taken` says up to where runs were made use of. One that was not, being too short, may be a part of the next.
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
                if resume is not None:  # where the last run would go on, past a changed line or two
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
        """The run around unit `at`, up to `end`: it stands at that offset of a slot, and is more than a short line."""
        if number in self.gone:
            return None
        slot, bodies = self.slots[number], new.seq
        body, old = bodies[at], slot.text
        after = local + len(body)
        # A hash said that the line stands there. Hashes may agree by chance, and a run is resumed by a guess of its
        # place, so all is compared: the line itself, and that it begins and ends where a line of the slot does.
        if len(body) < MIN_LONE_LINE and not new.beside(at, old, local, after):
            return None
        if local < 0 or not old.startswith(body, local) or (local and old[local - 1] != "\n"):
            return None
        if (after < len(old) and old[after] != "\n") or slot.place < nearest:
            return None
        floor, limit = new.stretch(at) if new.edges else (0, len(bodies))
        limit = limit if end is None else min(limit, end)
        # Backward line by line: not every line is indexed, and usually only those few stand before the one hit.
        first = at
        while first > covered and first > floor:
            before = bodies[first - 1]
            there = local - len(before) - 1
            if there < 0 or not old.startswith(before, there) or (there and old[there - 1] != "\n"):
                break
            first, local = first - 1, there
        # Forward a run may be thousands of lines: compared as one text in ever longer slices, then cut to whole lines.
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
