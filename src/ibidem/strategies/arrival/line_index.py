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
from ...markers.backref import Source, ordinal_label
from ...markers.layout import MARKER_UNIT, Layout, LineNumberRanges, VisibleText, parse_layout
from ...markers.line_offsets import LineOffsets
from ...markers.patches import VIEW, may_be_patch, new_side_lines
from ...markers.source_numbers import NumberedText
from .indexed_text import ComparableLines, IndexedText, IndexedVisibleText, LineMatch
from .sent_text import SentForm

INDEX_STRIDE, SHORT_STRIDE = 4, 2
SHORT_TEXT = 64
"""Maximum lines of a short text. Its repeats are short too, so more of its lines are indexed."""
MIN_INDEXABLE_LENGTH = 10
"""Minimum characters of an indexable line."""
MIN_LONE_LINE = 80
"""Minimum characters of a single line that may be replaced: a marker for less does not pay."""
MAX_PARSED_TEXTS = 4
"""Number of parsed texts that are cached."""
MAX_COMPARED_TEXTS = 32
"""Maximum texts with the same label that are compared. If there are more, a marker has an ordinal."""
NO_TAG = "\0"
"""A tag that no conversation has, so that no line is parsed as a marker."""
MAX_RECOMPARED_LINES = 16
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
        self._latest_copies: dict[int, int] = {}
        """Latest index entry of each line that was indexed before."""
        self._slots_by_name: dict[tuple[str, str, str], list[int]] = {}
        """Numbers of the slots with the same key."""
        self._opaque_texts: dict[int, IndexedText] = {}
        """Texts with unproven markers, parsed as if these were plain lines."""
        self._slots_by_text_hash: dict[int, int] = {}
        self._slots_by_source: dict[Source, int] = {}
        self._visible_texts: dict[Source, VisibleText] = {}
        self._offsets_by_slot: dict[int, LineOffsets] = {}
        """Line offsets of the slots that were referenced."""
        self.removed_slots: set[int] = set()
        """Slots whose text was evicted."""
        self._comparable: list[ComparableLines] = []
        self._copied_bytes = 0
        """Bytes in memory of texts that differ from those of the request."""

    @property
    def memory_bytes(self) -> int:
        """Approximate memory use in bytes, without the texts of the request."""
        tables = getsizeof(self._index) + getsizeof(self._latest_copies)
        numbers = INT_BYTES * (2 * len(self._index) + len(self._latest_copies))
        return self._copied_bytes + tables + numbers + SLOT_BYTES * len(self.slots)

    def fork(self) -> LineIndex:
        """Return an independent copy. The texts are shared, because they never change."""
        fork = copy(self)
        fork.slots = [*self.slots]
        fork._index, fork._latest_copies = dict(self._index), dict(self._latest_copies)
        fork._slots_by_name = {name: [*numbers] for name, numbers in self._slots_by_name.items()}
        fork._opaque_texts, fork._slots_by_text_hash = dict(self._opaque_texts), dict(self._slots_by_text_hash)
        fork._slots_by_source, fork._visible_texts = dict(self._slots_by_source), dict(self._visible_texts)
        fork._offsets_by_slot, fork.removed_slots, fork._comparable = (
            dict(self._offsets_by_slot),
            set(self.removed_slots),
            [],
        )
        return fork

    def clear_lines(self) -> None:
        """Clear the index of lines: the model can no longer see the earlier messages."""
        self._index.clear()
        self._latest_copies.clear()
        self._slots_by_text_hash.clear()

    def remove_text(self, source: Source) -> None:
        """Remove a text that was evicted from the request."""
        slot = self._slots_by_source.pop(source, None)
        if slot is not None:
            self.removed_slots.update((slot, slot + 1) if self._has_view(slot) else (slot,))
            self._visible_texts.pop(source, None)
            self._offsets_by_slot.pop(slot, None)

    def add_opaque(self, place: NumberedText, characters_before: int) -> None:
        """Add a text with markers that are not proven to be ours. It has a number, but no reference points to it.

        Its lines still decide whether the label of another text is ambiguous, as if its markers were plain lines.
        Otherwise a forged marker could change labels (invariant 9).
        """
        self._slots_by_source[place.source] = number = len(self.slots)
        slot = IndexedText(
            place.source, place.call, place.call_id, place.text, "", None, "", 0, False, (), characters_before, False
        )
        self.slots.append(slot)
        layout = parse_layout(place.text, NO_TAG)
        self._opaque_texts[number] = slot._replace(
            numbering=LineNumberRanges.from_layout(layout), comma=layout.comma, units=len(layout.units), whole=True
        )
        self._slots_by_name.setdefault(slot.call_key, []).append(number)

    def add_text(self, place: NumberedText, form: SentForm, characters_before: int, reach_start: int = 0) -> None:
        """Add a text as it was sent, after `characters_before` characters.

        Texts before `reach_start` are out of reach, so this text replaces their index entries.
        """
        sent_text = form.text
        layout = form.layout or parse_layout(sent_text, self.tag)
        bodies, self._comparable = self._comparable_lines(layout), []
        plain = layout.bodies is layout.units and not layout.comma and not layout.has_markers
        text = sent_text if plain else bodies.text
        numbering, units = LineNumberRanges.from_layout(layout), len(layout.units)
        holes = layout.has_holes and numbering is None
        slot = IndexedText(
            place.source,
            place.call,
            place.call_id,
            sent_text,
            text,
            numbering,
            layout.comma,
            units,
            not layout.has_holes,
            tuple(at for at, unit in enumerate(layout.units) if unit == MARKER_UNIT) if holes else (),
            characters_before,
            form.has_no_layout,
        )
        self._copied_bytes += (sent_text is not place.text and getsizeof(sent_text)) + (
            text is not sent_text and getsizeof(text)
        )
        first_slot = self._first_reachable_slot(reach_start)
        self._index_lines(bodies, first_slot)
        if slot.whole:  # without a marker, the joined units are the text itself, whose hash Python has cached
            encoded_text = (
                (form.encoded_text or layout.separator.join(layout.units)) if layout.has_markers else sent_text
            )
            earlier_slot = self._slots_by_text_hash.get(hash(encoded_text), -1)
            if earlier_slot < first_slot or earlier_slot in self.removed_slots:
                self._slots_by_text_hash[hash(encoded_text)] = len(self.slots)
        self._slots_by_source[place.source] = len(self.slots)
        if slot.whole or slot.units > len(slot.holes):
            self._slots_by_name.setdefault(slot.call_key, []).append(len(self.slots))
        self.slots.append(slot)
        if may_be_patch(sent_text) and layout.bodies is layout.units and not layout.comma:
            new = ComparableLines(layout._replace(bodies=[*new_side_lines(layout.units, MARKER_UNIT)]))
            self._index_lines(new, first_slot)
            self._copied_bytes += getsizeof(new.text)
            self.slots.append(slot._replace(text=new.text, whole=False, view=VIEW))

    def _has_view(self, number: int) -> bool:
        """Return True if the next slot is a view of this one."""
        return number + 1 < len(self.slots) and bool(self.slots[number + 1].view)

    def slot_number(self, source: Source) -> int:
        """Return the slot number of a text."""
        return self._slots_by_source[source]

    def _first_reachable_slot(self, nearest: int) -> int:
        """Return the number of the first slot in reach."""
        return bisect_left(self.slots, nearest, key=lambda slot: slot.characters_before) if nearest > 0 else 0

    def _comparable_lines(self, layout: Layout) -> ComparableLines:
        """Return the lines of a layout, cached: a text is searched, perhaps in several views, and then added."""
        for lines in self._comparable:
            if lines.seq is layout.bodies:
                return lines
        self._comparable.append(ComparableLines(layout))
        return self._comparable[-1]

    def _index_lines(self, bodies: ComparableLines, first_slot: int) -> None:
        """Index some lines of the next slot. Entries of removed texts and of texts out of reach are replaced."""
        hashes, lengths, starts = bodies.hashes, bodies.lengths, bodies.starts
        if first_slot:
            near = first_slot << OFFSET_BITS
            for key in [key for key in hashes if self._index.get(key, near) < near]:
                self._index.pop(key, None)
        if self.removed_slots:
            for key in [key for key in hashes if self._index.get(key, -1) >> OFFSET_BITS in self.removed_slots]:
                self._index.pop(key, None)
        base = len(self.slots) << OFFSET_BITS
        setdefault, again = self._index.setdefault, self._latest_copies
        at, count = 0, len(hashes)
        stride = INDEX_STRIDE if count > SHORT_TEXT else SHORT_STRIDE
        while at < count:
            if lengths[at] >= MIN_INDEXABLE_LENGTH:
                entry = base + starts[at] + at
                if setdefault(hashes[at], entry) is not entry:
                    again[hashes[at]] = entry
                at += stride
            else:
                at += 1
        if max(lengths, default=0) >= LONG_LINE:
            for at in [at for at, length in enumerate(lengths) if length >= LONG_LINE]:
                setdefault(hashes[at], base + starts[at] + at)

    def has_no_layout(self, text: str) -> bool:
        """Return True if an equal text was sent before, unchanged because no shorter layout fits."""
        number = self._slots_by_text_hash.get(hash(text))
        return number is not None and self.slots[number].has_no_layout and self.slots[number].sent_text == text

    def find_equal_text(self, encoded_text: str, reach_start: int = 0) -> int | None:
        """Return the number of the slot with exactly this text, without its encoding marker; None if there is no such
        slot in reach."""
        number = self._slots_by_text_hash.get(hash(encoded_text))
        if number is None or number in self.removed_slots:
            return None
        slot = self.slots[number]
        rest = slot.sent_text[len(encoded_text) :]
        fits = slot.sent_text.startswith(encoded_text) and (
            not rest or rest.startswith("\n" + backref.marker_prefix(self.tag))
        )
        return number if fits and slot.characters_before >= reach_start else None

    def text_label(self, number: int, unit: str = "", first: int = 0, last: int = 0) -> str:
        """Return the label of lines in a slot. It has an ordinal if a later text with the same key shows such lines."""
        return self._format_label(number, self._is_newest(number, unit, first, last))

    def _format_label(self, number: int, is_newest: bool) -> str:
        call = self.slots[number].call
        return call.label if is_newest or not call.nth else ordinal_label(call.label, call.nth)

    def _is_newest(self, number: int, unit: str, first: int, last: int) -> bool:
        """Return True if no later text with the same key shows such lines."""
        target = self.slots[number]
        for other in islice(reversed(self._slots_by_name.get(target.call_key, ())), MAX_COMPARED_TEXTS):
            slot = self._opaque_texts.get(other) or self.slots[other]
            if slot.source == target.source:
                return True
            if (
                (last <= slot.units or slot.numbering)
                and other not in self.removed_slots
                and slot.shows_lines(unit, first, last)
            ):
                return False
        return False

    def match_address(self, match: LineMatch) -> Address:
        """Return how a marker names the lines of a match."""
        slot, position = self.slots[match.slot], self.line_number(match.slot, match.offset)
        length = match.last - match.first
        unit, first = "item" if slot.comma else "line", position + 1
        if slot.numbering is not None:
            unit, first = slot.numbering.range_address(position, position + length - 1)
        return unit, first, first + length - 1

    def choose_location(
        self, layout: Layout, match: LineMatch, address: Address, nearest: int
    ) -> tuple[LineMatch, Address, str]:
        """Return the copy of a run that the model finds most easily, with its address and label.

        That is this match, or another copy whose label needs no ordinal.
        """
        is_newest = self._is_newest(match.slot, *address)
        other = None if is_newest else self._find_other_copy(layout, match, nearest)
        if other is not None and self._is_newest(other.slot, *(other_address := self.match_address(other))):
            match, address, is_newest = other, other_address, True
        return match, address, self._format_label(match.slot, is_newest)

    def _find_other_copy(self, layout: Layout, match: LineMatch, nearest: int) -> LineMatch | None:
        """Return the latest other copy of a run, or None."""
        new = self._comparable_lines(layout)
        for at in range(match.first, min(match.last, match.first + COMPARED_LINES)):
            entry = self._latest_copies.get(new.hashes[at], 0)
            if not entry or entry >> OFFSET_BITS == match.slot:
                continue
            slot, offset = entry >> OFFSET_BITS, entry & OFFSET_MASK
            other = self._extend_match(new, at, slot, offset, match.first, nearest, match.last)
            if other is not None and (other.first, other.last) == (match.first, match.last):
                return other
        return None

    def shown(self, source: Source) -> VisibleText | None:
        """Return a sent text, parsed. The last few are cached, because references to a text come close together."""
        if source not in self._slots_by_source:
            return None
        if source not in self._visible_texts:
            if len(self._visible_texts) >= MAX_PARSED_TEXTS:
                del self._visible_texts[next(iter(self._visible_texts))]
            number = self._slots_by_source[source]
            slot = self.slots[number]
            if not slot.units:  # an opaque text has no index, so it must be parsed
                self._visible_texts[source] = VisibleText.from_text(slot.sent_text, self.tag)
            else:
                self._visible_texts[source] = IndexedVisibleText(
                    slot.sent_text, self.tag, slot, self._line_offsets(number)
                )
        return self._visible_texts[source]

    def unread_characters(self, source: Source) -> int:
        """Return how many characters must be parsed before a lookup: the length of an opaque text, else 0."""
        slot = self.slots[self._slots_by_source[source]] if source in self._slots_by_source else None
        return len(slot.sent_text) if slot is not None and not slot.units else 0

    def line_number(self, number: int, offset: int) -> int:
        """Return the line, counted from 0, at an offset in a slot's text."""
        return self._line_offsets(number).line_at(offset)

    def _line_offsets(self, number: int) -> LineOffsets:
        if number not in self._offsets_by_slot:
            self._offsets_by_slot[number] = LineOffsets(self.slots[number].text)
        return self._offsets_by_slot[number]

    def find_matches(
        self, layout: Layout, nearest: int = 0, used_end: Callable[[], int] | None = None
    ) -> Iterator[LineMatch]:
        """Yield the maximal runs of units that repeat slots from `nearest` characters on, from left to right.

        `used_end` returns the end of the last run that was used. A run that was too short may be part of the next.
        """
        index, new = self._index, self._comparable_lines(layout)
        starts, total = new.starts, len(new.seq)
        block = BLOCK_LINES if total > MANY_LINES else total
        covered_end = begin = 0
        resume: tuple[int, int] | None = None
        while begin < total:
            hashes = new.hashes if block == total else [*map(hash, new.seq[begin : begin + block])]
            for at in compress(count(begin), map(index.__contains__, hashes)):
                if at < covered_end:
                    continue
                free = covered_end if used_end is None else max(used_end(), covered_end - MAX_RECOMPARED_LINES)
                best = None
                if resume is not None:  # try to continue the last run's copy, past a changed line or two
                    there = resume[1] + starts[at] + at
                    best = self._extend_match(new, at, resume[0], there, free, nearest)
                if best is None:
                    entry = index[hashes[at - begin]]
                    best = self._extend_match(new, at, entry >> OFFSET_BITS, entry & OFFSET_MASK, free, nearest)
                if best is not None:
                    yield best
                    covered_end = best.last
                    resume = (best.slot, best.offset - starts[best.first] - best.first)
            begin = max(begin + block, covered_end)

    def _extend_match(
        self,
        new: ComparableLines,
        at: int,
        number: int,
        local: int,
        covered_end: int,
        nearest: int,
        end: int | None = None,
    ) -> LineMatch | None:
        """Return the run around unit `at`, up to `end`, whose copy has this unit at offset `local` of slot `number`.

        None if the texts differ, or the run is a single short line.
        """
        if number in self.removed_slots:
            return None
        slot, bodies = self.slots[number], new.seq
        body, old = bodies[at], slot.text
        after = local + len(body)
        # Hashes may collide, and the position of a resumed run is a guess. So compare everything: the line, and that it
        # is a whole line of the slot's text.
        if len(body) < MIN_LONE_LINE and not new.has_equal_neighbor(at, old, local, after):
            return None
        if local < 0 or not old.startswith(body, local) or (local and old[local - 1] != "\n"):
            return None
        if (after < len(old) and old[after] != "\n") or slot.characters_before < nearest:
            return None
        floor, limit = new.run_bounds(at) if new.edges else (0, len(bodies))
        limit = limit if end is None else min(limit, end)
        # Backward line by line: only the few lines since the previous indexed one can be before the hit.
        first = at
        while first > covered_end and first > floor:
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
            length = _whole_lines(new.text, begin, stop, old, there, common_length(new.text, begin, stop, old, there))
            last = at + 1 + new.text.count("\n", begin, begin + length)
        if last - first == 1 and len(body) < MIN_LONE_LINE:
            return None
        return LineMatch(first, last, number, local)


def common_length(new: str, at: int, limit: int, old: str, there: int) -> int:
    """Return the length of the common prefix of both texts from these offsets on.

    It compares slices of doubling size until one differs, then halves it.
    """
    limit = min(limit - at, len(old) - there)
    equal_length, step = 0, 64
    while equal_length < limit:
        size = min(step, limit - equal_length)
        if new[at + equal_length : at + equal_length + size] == old[there + equal_length : there + equal_length + size]:
            equal_length += size
            step *= 2
        elif size == 1:
            break
        else:
            step = size // 2
            limit = equal_length + size - 1
    return equal_length


def _whole_lines(new: str, at: int, limit: int, old: str, there: int, length: int) -> int:
    """Return the common length, cut to whole lines of both texts; -1 if not one line is whole."""
    ends_new = at + length == limit or new[at + length] == "\n"
    ends_old = there + length == len(old) or old[there + length] == "\n"
    if ends_new and ends_old:
        return length
    return max(-1, new.rfind("\n", at, at + length) - at)
