"""Choose what to send for one text of a result, and check that the text can be restored from it."""

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
"""Maximum characters of a replacement whose tokens are estimated before the original is counted."""
WORD = 8
"""Approximate characters of a word with its separator."""
SLACK = 4
"""Tokens by which a joined text may exceed the sum of its parts."""


class TokenGain(NamedTuple):
    """The minimum saving of a replacement. Counting is expensive, so cheap lower bounds are tried first."""

    count: TokenCounter
    gain: int
    """Minimum number of saved tokens."""

    def gains(self, before: str, after: str) -> bool:
        """Return True if the replacement has fewer bytes and saves enough tokens."""
        if size(after) >= size(before):
            return False
        words = least_tokens(before[: 3 * WORD * len(after)]) if len(after) <= MAX_COUNTED else 0
        if words >= len(after) + self.gain:
            return True
        least = self.count(after) + self.gain
        return words >= least or self.count(before) >= least

    def saves(self, before: str, after: str) -> bool:
        """Return True if a cheap lower bound shows that enough is saved. `before` may be a part of the original."""
        if size(after) >= size(before):
            return False
        if least_tokens(before[: 2 * WORD * len(after)]) >= len(after) + self.gain:  # usually a start is enough
            return True
        words = least_tokens(before)
        return words >= len(after) + self.gain or words >= self.count(after) + self.gain

    def folds(self, text: str, folded: str, marker: str, spared: int) -> bool:
        """Return True if the encoded text plus its marker saves enough. The codec reports `saved_tokens`."""
        sent = f"{folded}\n{marker}"
        if size(sent) >= size(text):
            return False
        known = spared - SLACK - self.gain
        if known > 0 and known >= self.count(f"\n{marker}"):
            return True
        return fewer(text, folded, self.count) + fewer(folded, sent, self.count) >= self.gain

    def has(self, text: str, tokens: int) -> bool:
        """Return True if the text has at least this number of tokens."""
        return least_tokens(text[: 3 * WORD * tokens]) >= tokens or self.count(text) >= tokens


def least_tokens(text: str) -> int:
    """Return a lower bound of the tokens: no token spans two words, except one that ends in a slash at a line start."""
    return len(text.split()) - text.count("\n/") - text.count("\r/")


if TYPE_CHECKING:
    from .backrefs import BackrefFold

MIN_TEXT = 64
"""Minimum characters of a text that may be replaced."""
LINES_READ = 48
"""Number of replaced lines that are checked first, to see that the saving is enough."""
NO_LINE = "\x00" * 3
"""Placeholder for a line that is not compared."""
MAX_FIELDS = 12
"""Maximum lines or fields that may differ from an earlier text if only the differences are sent."""


class Attempt(NamedTuple):
    """A possible replacement of a text, with its reason."""

    sent: str
    strategy: str = ""
    reason: str = ""
    refers: bool = False
    """True if it points at a text that was sent before."""
    foreign: bool = False
    """True if it has another system's wording, which `expand` cannot restore."""


class OutgoingText:
    """Chooses what to send for one text of a result.

    It updates the strategy state at once: all texts share one budget for following markers, and the first marker of a
    conversation explains what markers are.
    """

    def __init__(self, fold: BackrefFold, place: NumberedText, again: int | None) -> None:
        self.fold = fold
        self.settings = fold.settings
        self.margin = TokenGain(fold.count, fold.settings.min_gain)
        self.known = fold.known
        self.text = place.text
        self.tool = place.asked.tool
        self.again = again
        """Content hash of the last result of this call, if the call is repeated; else None."""
        self.seen: dict[Source, Shown | None] = {}
        self.inside = fold.settings.inside
        self.marked = self.in_full = self.ours = self.repeats = False
        self.folded = self.flags = ""
        self.shape = shapes.Folded("")
        self.layout: Layout | None = None
        self.composed: ComposedText | None = None

    def attempt(self) -> Attempt:
        """Return what to send: the text itself if a replacement does not pay, or is unsafe."""
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
        """Try again without references inside the text. They can make it look like another layout, so that it cannot
        be restored."""
        if not self.repeats:
            return None
        self.inside, self.repeats, self.marked = None, False, False
        attempt = self._partly() or self._only_folded()
        return attempt and self._safe(attempt)

    def _safe(self, attempt: Attempt) -> Attempt | None:
        """Return the attempt if it would be admitted and restores the text; else None.

        The check is made here, because the index needs the sent text.
        """
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
        """Return True if the text is no larger in JSON. A common tail is skipped if the rest decides it."""
        tail, end = self.shape.tail, len(self.folded)
        if not tail or not sent.startswith(self.folded):
            return no_larger(sent, self.text)
        rest = sent[: end - tail] + sent[end:]
        return surely_no_larger(rest, self.text[: len(self.text) - tail]) or no_larger(sent, self.text)

    def _folded(self) -> shapes.Folded:
        known = self.known  # an equal text that was sent unchanged can be referenced as a whole, so keep the layout
        said = known.same(self.text, self.fold.nearest) is not None
        if said or not self.settings.shapes or known.shapeless(self.text):
            return shapes.Folded(self.text)
        return self.fold.folds(self.text)

    def _restores(self, sent: str) -> bool:
        """Return True if `expand` restores exactly this text (invariant 6)."""
        fold = self.fold
        budget = Budget(fold.sent, fold.fetched)
        # The codec has already checked that the encoded text decodes to this one.
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
        """Hash of the content, without a header that differs each time."""
        start = self.folded.index("\n") if shapes.HEADER_FLAG in self.flags else 0
        return hash(self.folded[start:])

    def _recognised(self) -> bool:
        """Return True if this text was rewritten by us before and refers to another text.

        It then counts as its original, so that a second pass decides like the first. A text whose markers cannot be
        proven ours is opaque: it stays unchanged and does not affect other texts. The work on such texts is limited
        over the whole conversation, because there may be very many.
        """
        fold = self.fold
        fold.rewritten = fold.rewritten or fold.evicted(self.text)
        if fold.rewritten:
            return False
        budget = Budget(fold.sent, fold.fetched + fold.tried, 2)  # the other half is for texts that we rewrote before

        def shown(source: Source) -> Shown | None:
            if source not in self.seen:
                budget.spend(self.known.unread(source))
            return self._shown(source)

        found = restore(self.text, self.known.tag, shown, budget)
        if found is None:
            fold.tried += budget.used
            return False
        fold.fetched += budget.used  # `expand` counts the same
        fold.explained = True
        self.ours, self.folded, self.flags = True, found.folded, found.flags
        self.in_full = not found.refers and self.again is not None and self.essence == self.again
        return found.refers

    def _shown(self, source: Source) -> Shown | None:
        if source not in self.seen:
            self.seen[source] = self.known.shown(source)
        return self.seen[source]

    def _marker(self, **fields: Any) -> Marker:
        """Return a marker. The first of a text has its digest and flags, the first of a conversation an explanation."""
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
        """Return the layout of the sent text, equal to that of `lay_out`; None if it must be computed."""
        if self.layout is None or sent is self.folded:
            return self.layout
        if self.settings.numbers == "sparse" or not self.ours:
            return None
        if self.composed is not None and self.composed.done:
            return self.composed.as_sent()
        return self.layout._replace(marked=True) if self.is_folded(sent) else None

    def is_folded(self, sent: str) -> bool:
        """Return True if the sent text is the whole encoded text plus its marker, without references."""
        return self.ours and sent.startswith(self.folded)

    def _hint(self, slot: IndexedText) -> Attempt | None:
        """Return a reference to a whole result in another system's wording, which names results by call id."""
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
        """Return the layout to compare with earlier texts. Line numbers are separate only if they can be restored."""
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
        """Return True if all line numbers have the form in which they would be restored."""
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
        """Yield the repeats of earlier texts from left to right, each with the compared layout and its diff view."""
        nearest = self.fold.nearest
        ways = {"": layout}
        if self.settings.diffs and layout.numbers is None and not layout.comma and may_be_patch(self.text):
            for view, sign in SIGNED.items():
                ways[view] = layout._replace(bodies=signed_lines(layout.units, sign, NO_LINE))
        found = [
            zip(self.known.matches(lines, nearest, done), repeat(lines), repeat(view)) for view, lines in ways.items()
        ]
        for match, lines, view in merge(*found, key=lambda each: each[0].first) if len(found) > 1 else found[0]:
            # A view of a view has no notation, and a line that was not compared may match by chance.
            if view and (self.known.slots[match.slot].view or NO_LINE in lines.bodies[match.first : match.last]):
                continue
            yield match, lines, view

    def _repeats(self, told: ComposedText, end: int) -> bool:
        """Replace repeats inside the text up to unit `end`. Return True if any was replaced."""
        layout, least, done = told.layout, self.inside, told.done
        if least is None or layout.comma:
            return False
        # Line numbers could not be restored. And a patch stays whole, so that later texts can refer to its new side.
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
        """Try to send only the units that differ from the last result of the same tool."""
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
        if not self.margin.gains(self.folded, sent):  # the shorter layout alone saves as much
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
