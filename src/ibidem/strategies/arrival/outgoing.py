"""One text on its way out: what is sent for it, and whether that is safe."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from heapq import merge
from itertools import repeat
from typing import TYPE_CHECKING, Any, NamedTuple

from ...markers import backref, shapes
from ...markers.backref import ABOVE, Marker, Source
from ...markers.counting import TabbedUnits
from ...markers.layout import ITEM_SEPARATORS, Layout, Shown, comma_of, number, numbered_layout, thin
from ...markers.line_numbers import TABBED
from ...markers.lines import lines_of
from ...markers.numbering import NumberedText
from ...markers.patches import SIGNED, may_be_patch, signed_lines
from ...markers.restore import Budget, Unfolded, restore
from ...model import size
from ...tokens import TokenCounter, fewer
from ...wire import no_larger, surely_no_larger
from .composed import ComposedText
from .hints import HintStyle, hint
from .index import Address
from .slots import IndexedText, Match

MAX_COUNTED = 512
"""Characters of what is sent instead up to which its tokens are counted first."""
WORD = 8
"""Characters of a word and what parts it from the next, about."""
SLACK = 4
"""Tokens that two texts may have more beside each other than apart."""


class TokenGain(NamedTuple):
    count: TokenCounter
    gain: int
    """Tokens that must be saved."""

    def gains(self, before: str, after: str) -> bool:
        """Whether bytes and enough tokens are saved."""
        if size(after) >= size(before):
            return False
        words = least_tokens(before[: 3 * WORD * len(after)]) if len(after) <= MAX_COUNTED else 0
        if words >= len(after) + self.gain:
            return True
        least = self.count(after) + self.gain
        return words >= least or self.count(before) >= least

    def saves(self, before: str, after: str) -> bool:
        """Whether a text that has this in it saves enough; False where that takes counting all of it."""
        if size(after) >= size(before):
            return False
        if least_tokens(before[: 2 * WORD * len(after)]) >= len(after) + self.gain:  # most often it is far from it
            return True
        words = least_tokens(before)
        return words >= len(after) + self.gain or words >= self.count(after) + self.gain

    def folds(self, text: str, folded: str, marker: str, spared: int) -> bool:
        """Whether a folded text with a marker behind it saves enough; `spared` tokens are known to be fewer in it."""
        sent = f"{folded}\n{marker}"
        if size(sent) >= size(text):
            return False
        known = spared - SLACK - self.gain
        if known > 0 and known >= self.count(f"\n{marker}"):
            return True
        return fewer(text, folded, self.count) + fewer(folded, sent, self.count) >= self.gain

    def has(self, text: str, tokens: int) -> bool:
        """Whether a text has so many tokens."""
        return least_tokens(text[: 3 * WORD * tokens]) >= tokens or self.count(text) >= tokens


def least_tokens(text: str) -> int:
    """No token spans two words, but for those that end in a slash at the start of a line."""
    return len(text.split()) - text.count("\n/") - text.count("\r/")


if TYPE_CHECKING:
    from .backrefs import BackrefFold

MIN_TEXT = 64
"""Characters below which nothing can be gained."""
LINES_READ = 48
"""Lines of what is left out that are looked at first to see that it is enough."""
NO_LINE = "\x00" * 3
"""Stands for what is not compared."""
MAX_FIELDS = 12
"""Lines or fields that may differ where a text is told by what is different."""


class Attempt(NamedTuple):
    """What may be sent for a text, and why."""

    sent: str
    strategy: str = ""
    reason: str = ""
    refers: bool = False
    """To a text that was sent before."""
    foreign: bool = False
    """In another system's words, which cannot be followed."""


class OutgoingText:
    """One text of a result on its way out.

    What it finds out about the conversation goes into the fold at once: the budget for following markers is one for all
    texts, and the first marker of all explains what they are.
    """

    def __init__(self, fold: BackrefFold, place: NumberedText, again: int | None) -> None:
        self.fold = fold
        self.settings = fold.settings
        self.margin = TokenGain(fold.count, fold.settings.min_gain)
        self.known = fold.known
        self.text = place.text
        self.tool = place.asked.tool
        self.again = again
        """The essence of what would be asked for again, if anything."""
        self.seen: dict[Source, Shown | None] = {}
        self.inside = fold.settings.inside
        self.marked = self.in_full = self.ours = self.repeats = False
        self.folded = self.flags = ""
        self.shape = shapes.Folded("")
        self.layout: Layout | None = None
        self.composed: ComposedText | None = None

    def attempt(self) -> Attempt:
        """What is sent for it: the text itself wherever nothing is gained, or gaining it would be unsafe."""
        if backref.opening(self.known.tag) in self.text:
            return Attempt(self.text, refers=self._recognised())
        if self.fold.rewritten or self.fold.as_is or len(self.text) < MIN_TEXT:
            return Attempt(self.text)
        self.shape = self._folded()
        self.folded, self.flags = self.shape.text, self.shape.flags
        self.in_full = self.again is not None and self.essence == self.again
        may_refer = self.fold.refers and not self.in_full
        for way in (self._whole, self._partly, self._only_folded) if may_refer else (self._only_folded,):
            attempt = way()
            if attempt is not None:
                return self._safe(attempt) or self._without_repeats() or Attempt(self.text)
        return Attempt(self.text)

    def _without_repeats(self) -> Attempt | None:
        """Where what refers to itself would not come back: less of it may look like another layout."""
        if not self.repeats:
            return None
        self.inside, self.repeats, self.marked = None, False, False
        attempt = self._partly() or self._only_folded()
        return attempt and self._safe(attempt)

    def _safe(self, attempt: Attempt) -> Attempt | None:
        """None for one that would be refused, or would not give the text back: the index must know what is sent."""
        sent = attempt.sent
        if size(sent) >= size(self.text) or not self._no_larger(sent):
            return None
        if attempt.foreign:
            return attempt
        sent = self._thinned(sent) if self.settings.numbers == "sparse" else sent
        if not self._restores(sent):
            return None
        self.fold.explained = True
        return attempt._replace(sent=sent)

    def _no_larger(self, sent: str) -> bool:
        """Whether it is no larger in JSON; what both texts end in need not be looked at if the rest of them tells."""
        tail, end = self.shape.tail, len(self.folded)
        if not tail or not sent.startswith(self.folded):
            return no_larger(sent, self.text)
        rest = sent[: end - tail] + sent[end:]
        return surely_no_larger(rest, self.text[: len(self.text) - tail]) or no_larger(sent, self.text)

    def _folded(self) -> shapes.Folded:
        known = self.known  # what was sent as it is stands there unfolded, and may be said to be the same
        said = known.same(self.text, self.fold.nearest) is not None
        if said or not self.settings.shapes or known.shapeless(self.text):
            return shapes.Folded(self.text)
        return self.fold.folds(self.text)

    def _restores(self, sent: str) -> bool:
        """Whether this is the text again for whoever reads it, in full and to the letter (law 6)."""
        fold = self.fold
        budget = Budget(fold.sent, fold.fetched)
        # That the folded text unfolds to this one was tried when it was folded.
        known = Unfolded(self.folded, self.flags, self.text)
        found = restore(sent, self.known.tag, self._shown, budget, known)
        self.ours = found is not None and found.original == self.text
        fold.fetched += budget.used if self.ours else 0
        return self.ours

    def _thinned(self, sent: str) -> str:
        other = thin(sent, self.known.tag)
        if other is None or len(other) >= len(sent):
            return sent
        found = restore(other, self.known.tag, self._shown, Budget(self.fold.sent, self.fold.fetched))
        return other if found is not None and found.original == self.text else sent

    @property
    def essence(self) -> int:
        """Hash of what it says, without a header that is never the same twice."""
        start = self.folded.index("\n") if shapes.HEADER_FLAG in self.flags else 0
        return hash(self.folded[start:])

    def _recognised(self) -> bool:
        """Whether it refers to another, being one that was rewritten before.

        Such a one counts for what it was, so that a second pass decides as the first did.
        What cannot be shown to be such a part is opaque: it stays as it is and says nothing about anything else. Work
        on such texts is bounded over the whole conversation, since there may be very many.
        """
        fold = self.fold
        fold.rewritten = fold.rewritten or fold.evicted(self.text)
        if fold.rewritten:
            return False
        budget = Budget(fold.sent, fold.fetched + fold.tried, 2)  # half of it is for what was rewritten before

        def shown(source: Source) -> Shown | None:
            if source not in self.seen:
                budget.spend(self.known.unread(source))
            return self._shown(source)

        found = restore(self.text, self.known.tag, shown, budget)
        if found is None:
            fold.tried += budget.used
            return False
        fold.fetched += budget.used  # as whoever expands it counts
        fold.explained = True
        self.ours, self.folded, self.flags = True, found.folded, found.flags
        self.in_full = not found.refers and self.again is not None and self.essence == self.again
        return found.refers

    def _shown(self, source: Source) -> Shown | None:
        if source not in self.seen:
            self.seen[source] = self.known.shown(source)
        return self.seen[source]

    def _marker(self, **fields: Any) -> Marker:
        """The part's first marker carries its digest and its flags, the conversation's first an explanation."""
        first = not self.marked
        self.marked = True
        digest = backref.digest_of(self.text) if first else ""
        return Marker(
            self.known.tag,
            digest,
            self.flags if first else "",
            explains=first and not self.fold.explained,
            **fields,
        )

    def _whole(self) -> Attempt | None:
        number = self.known.same(self.folded, self.fold.nearest) if self.settings.dedup else None
        if number is None:
            return None
        slot = self.known.slots[number]
        if self.settings.hints is not HintStyle.IBIDEM:
            return self._hint(slot)
        sent = str(self._marker(source=slot.source, label=self.known.label(number)))
        if not self.margin.gains(self.text, sent):
            self.marked = False
            return None
        return Attempt(sent, "dedup", f"same as {slot.source}", refers=True)

    def layout_of(self, sent: str) -> Layout | None:
        """Of what is sent for it, as `lay_out` would find it, where it follows from what is known."""
        if self.layout is None or sent is self.folded:
            return self.layout
        if self.settings.numbers == "sparse" or not self.ours:
            return None
        if self.composed is not None and self.composed.done:
            return self.composed.as_sent()
        return self.layout._replace(marked=True) if self.is_folded(sent) else None

    def is_folded(self, sent: str) -> bool:
        """Whether what is sent is all of it, folded, with a marker that says so."""
        return self.ours and sent.startswith(self.folded)

    def _hint(self, slot: IndexedText) -> Attempt | None:
        """A reference to a whole result in another system's words, which know results by their call's id."""
        if slot.sent != self.text or not slot.call_id:
            return None
        sent = hint(self.settings.hints, slot.call_id, self.text)
        if not self.margin.gains(self.text, sent):
            return None
        return Attempt(sent, "dedup", f"same as {slot.source}", refers=True, foreign=True)

    def _partly(self) -> Attempt | None:
        layout = self._layout()
        shape_flags = self.flags
        self.flags += layout.comma
        attempt = self._but(layout) if self.settings.fields else None
        if attempt is None and self.settings.spans:
            attempt = self._spans(layout)
        if attempt is None:
            self.flags, self.marked = shape_flags, False
        return attempt

    def _layout(self) -> Layout:
        """As everyone will see it once it is sent, but numbers count only where they can be written anew."""
        comma = comma_of(self.folded)
        if comma:
            units = self.folded.split(ITEM_SEPARATORS[comma])
            self.layout = Layout(units, units, None, "", comma, False)
        else:
            apart = self.shape.apart
            if apart is not None:
                self.layout = numbered_layout(TabbedUnits(apart), apart)
            elif self.shape.numberless:
                self.layout = numbered_layout(lines_of(self.folded), None)
            else:
                self.layout = number(lines_of(self.folded))
        found = self.layout
        if found.numbers is None or self.shape.apart is not None:
            return found
        if found.mark == TABBED.letter and self._rewritable(found, found.numbers):
            return found
        return Layout(found.units, found.units, None, "", "", False)

    def _rewritable(self, layout: Layout, numbers: Sequence[int | None]) -> bool:
        """Whether all numbers are as they would be written anew."""
        text = self.folded
        if text[0] not in " 0" and "\n0" not in text and "\n " not in text:
            return True
        rows = zip(layout.units, layout.bodies, numbers, strict=True)
        return all(shown is None or unit == f"{shown}\t{body}" for unit, body, shown in rows)

    def _spans(self, layout: Layout) -> Attempt | None:
        self.composed = told = ComposedText(layout)
        labelled: set[Source] = set()
        before: Source | None = None
        for match, lines, view in self._matches(layout, lambda: told.done):
            if match.first < told.done:
                continue
            before = None if self._repeats(told, match.first) else before
            left_out = layout.joint.join(layout.units[match.first : min(match.last, match.first + LINES_READ)])
            all_of_it = match.last <= match.first + LINES_READ
            if all_of_it and len(left_out) < MIN_TEXT:
                continue
            address, label = self.known.address(match), ""
            if self.known.slots[match.slot].source not in labelled:
                match, address, label = self.known.findable(lines, match, address, self.fold.nearest)
            marker = str(self._pointer(layout, match, address, label, before, view))
            if (all_of_it or not self.margin.saves(left_out, marker)) and not self.margin.gains(
                left_out if all_of_it else layout.joint.join(layout.units[match.first : match.last]), marker
            ):
                self.marked = self.marked and bool(told.done)
                continue
            told.leave_out(match.first, match.last, marker)
            before = self.known.slots[match.slot].source
            labelled.add(before)
        self._repeats(told, len(layout.units))
        if not told.done:
            return None
        where = ", ".join([*map(str, sorted(labelled)), *["itself"] * self.repeats])
        return Attempt(told.whole(), "spans", f"stands in part in {where}", refers=True)

    def _matches(self, layout: Layout, done: Callable[[], int]) -> Iterator[tuple[Match, Layout, str]]:
        """What stands elsewhere, left to right, with the lines that were compared, and how they are to be seen."""
        nearest = self.fold.nearest
        ways = {"": layout}
        if self.settings.diffs and layout.numbers is None and not layout.comma and may_be_patch(self.text):
            for view, sign in SIGNED.items():
                ways[view] = layout._replace(bodies=signed_lines(layout.units, sign, NO_LINE))
        found = [
            zip(self.known.matches(lines, nearest, done), repeat(lines), repeat(view)) for view, lines in ways.items()
        ]
        for match, lines, view in merge(*found, key=lambda each: each[0].first) if len(found) > 1 else found[0]:
            # A view of a view has no name; and a line that is not compared may stand there by chance.
            if view and (self.known.slots[match.slot].view or NO_LINE in lines.bodies[match.first : match.last]):
                continue
            yield match, lines, view

    def _repeats(self, told: ComposedText, end: int) -> bool:
        """Leave out what stands above in the text itself, up to a unit; whether something was left out."""
        layout, least, done = told.layout, self.inside, told.done
        if least is None or layout.comma:
            return False
        # Numbers that cannot be written anew; and the new side of a patch is worth more with all of its lines.
        if layout is not self.layout or may_be_patch(self.text):
            return False
        for run in told.repeats(end):
            left_out = layout.joint.join(layout.units[run.first : run.last])
            if len(left_out) < MIN_TEXT or not self.margin.has(left_out, least):
                continue
            unit, first, last = told.address(run)
            own = layout.numbers[run.first] if layout.numbers else None
            marker = str(self._marker(source=ABOVE, unit=unit, first=first, last=last, own=own))
            if not self.margin.gains(left_out, marker):
                self.marked = self.marked and bool(told.done)
                continue
            told.leave_out(run.first, run.last, marker)
            self.repeats = True
        return told.done > done

    def _pointer(
        self, layout: Layout, match: Match, address: Address, label: str, before: Source | None, view: str
    ) -> Marker:
        slot = self.known.slots[match.slot]
        unit, first, last = address
        return self._marker(
            source=slot.source,
            unit=unit,
            first=first,
            last=last,
            own=layout.numbers[match.first] if layout.numbers else None,
            label=label,
            leans=slot.source == before,
            view=view or slot.view,
        )

    def _but(self, layout: Layout) -> Attempt | None:
        """As an earlier result of the same tool, but for a few units."""
        number = self.fold.last_of.get(self.tool)
        if number is None or number in self.known.gone or layout.numbers is not None:
            return None
        slot = self.known.slots[number]
        units = layout.units
        if slot.units != len(units) or slot.comma != layout.comma or not slot.whole or slot.place < self.fold.nearest:
            return None
        if slot.numbering is not None:
            return None
        old = slot.text.split("\n")
        other = [at for at, (here, there) in enumerate(zip(units, old, strict=True)) if here != there]
        if not other or len(other) > MAX_FIELDS or len(other) * 4 > len(units):
            return None
        marker = self._marker(source=slot.source, label=self.known.label(number), but=True)
        sent = "\n".join([str(marker), *(f"{at + 1}: {units[at]}" for at in other)])
        if not self.margin.gains(self.folded, sent):  # folding alone would give that much
            self.marked = False
            return None
        return Attempt(sent, "fields", f"as {slot.source} but for {len(other)} {layout.word}s", refers=True)

    def _only_folded(self) -> Attempt | None:
        if not self.flags:
            return None
        marker = str(self._marker())
        if not self.margin.folds(self.text, self.folded, marker, self.shape.spared):
            self.marked = False
            return None
        return Attempt(f"{self.folded}\n{marker}", "shapes", f"folded: {shapes.described(self.flags)}")
