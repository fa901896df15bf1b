"""Nothing is said twice: the strategy behind the default profile.

A fold over the messages. Each new result is folded into its shorter shape, looked up in what was shown before, and sent
with a marker wherever it repeats that. What is decided for a result depends on it and on what came before, and is never
revisited, so every later request begins with the same bytes (law 2). Every rewritten result is restored on the spot and
compared with its original before the edit counts (law 6).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from ...markers import backref, shapes
from ...markers.backref import Marker, Source
from ...markers.layout import COLON, ITEM_SEPARATORS, NUMBER_MARKS, TAB, Layout, Shown, comma_of, number, thin
from ...markers.lines import lines_of
from ...markers.numbering import NumberedText, Sources, clears
from ...markers.restore import Budget, restore
from ...model import Kind, Message, Text, size
from ...plan import Edit
from ...tokens import TokenCounter, counter
from ...wire import no_larger
from ..strategy import Fold, Start, Strategy
from .hints import HintStyle, hint
from .index import IndexedText, LineIndex, Match
from .sent import SentForm, SentText

MIN_TEXT = 64
"""Characters below which nothing can be gained."""
MAX_FIELDS = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class BackReferences(Strategy):
    """Refer to what was shown before; fold layouts that say nothing."""

    name: ClassVar[str] = "said-once"
    labels: ClassVar[tuple[str, ...]] = ("dedup", "spans", "shapes", "fields")
    touches: ClassVar[frozenset[Kind]] = frozenset({"result"})
    final: ClassVar[bool] = True

    dedup: bool = True
    """Whole results said before."""
    spans: bool = True
    """Runs of lines that stand in an earlier result, or in an argument of an earlier call."""
    shapes: bool = True
    """Padding of line numbers, repeated paths, indented JSON, Codex headers."""
    fields: bool = True
    """Results that differ from an earlier one of the same tool in a few lines or JSON fields."""
    hints: HintStyle = HintStyle.IBIDEM
    """Wording of references to whole results. `expand` restores ours alone: the others carry no digest."""
    min_gain: int = 4
    """Tokens that a reference must save beyond its marker."""
    numbers: Literal["all", "sparse"] = "all"
    """`sparse` writes only every tenth of consecutive line numbers. Tools that edit by line number need them all."""
    max_distance: int | None = None
    """Tokens (of four characters) that a reference may reach back; None for all the way."""
    repeat_guard: int = 8
    """A call made again within so many results of the one that got a reference gets the full text: it could not use
    the reference. 0 switches this off."""

    @property
    def lossless(self) -> bool:
        return self.hints is HintStyle.IBIDEM

    def begin(self, start: Start) -> BackrefFold:
        return BackrefFold(self, start.refers)


class BackrefFold(Fold):
    """The state after some messages."""

    def __init__(self, settings: BackReferences, refers: bool, evicted: Callable[[str], bool] | None = None) -> None:
        """`evicted` says of a text with markers whether it is what is left of one that was let go before."""
        self.settings = settings
        self.refers = refers
        self.evicted = evicted or (lambda text: False)
        self.count: TokenCounter = counter()
        self.sources = Sources()
        self.sent = self.results = 0
        self.explained = False
        self.referred: dict[tuple[str, str, str], tuple[int, str]] = {}
        self.last_of: dict[str, int] = {}
        self._known: LineIndex | None = None
        self.rewritten = False
        """Something was let go of what came before: the history is one that was sent, and stays as it is from there."""
        self.fetched = self.tried = 0
        """Characters that our markers stand for, and those that were fetched for markers which are not ours."""
        self.as_is = False
        """The last message was sent as it came, and stays so."""
        self.said: list[SentText] = []
        """The texts of the last message."""

    @property
    def known(self) -> LineIndex:
        self._known = self._known or LineIndex(self.sources.tag)
        return self._known

    @property
    def nearest(self) -> int:
        """Characters sent before what a reference may still reach."""
        far = self.settings.max_distance
        return 0 if far is None else max(0, self.sent - 4 * far)

    def feed(self, message: Message, as_is: bool = False) -> Iterator[Edit]:
        self.as_is = as_is
        if clears(message):
            self.last_of.clear()
            if self._known is not None:
                self._known.forget()
        self.said = []
        for place in self.sources.read(message):
            sent = SentForm(place.text)
            if place.segment is not None:
                self.results = place.source.number
                sent = yield from self._result(message.index, place.segment, place)
            if not sent.ours and backref.opening(self.known.tag) in sent.text:
                self.known.add_opaque(place, self.sent)
            else:
                nearest = self.sent + 1 if sent.in_full else self.nearest
                self.known.add(place, sent.text, self.sent, sent.layout, nearest)
            if place.segment is not None and place.asked.tool:
                self.last_of[place.asked.tool] = len(self.known.slots) - 1
            self.sent += len(sent.text)
            self.said.append(SentText(place, sent.text, sent.targets))

    def _result(self, index: int, segment: Text, place: NumberedText) -> Generator[Edit, None, SentForm]:
        """Yields the edit of a result, if there is one; returns how it is sent."""
        if segment.bound or place.failed:
            return SentForm(segment.text)
        call = (place.asked.tool, place.asked.arguments, place.source.part)
        # The same call again, and the same answer, soon after that was a reference: it wants the text itself.
        last = self.referred.pop(call, None)
        again = last[1] if last is not None and self.results - last[0] <= self.settings.repeat_guard else ""
        part = OutgoingText(self, place, again)
        sent = part.written()
        if sent != segment.text:
            yield Edit(
                strategy=part.strategy,
                op="set",
                message=index,
                path=segment.path,
                removed=(segment.text,),
                added=sent,
                fewer_tokens=True,
                reason=part.reason,
            )
        if part.refers:
            self.referred[call] = (self.results, part.essence)
        targets = tuple(part.seen) if part.refers else ()
        return SentForm(sent, part.layout if sent is part.folded else None, part.in_full, targets, part.ours)

    def forget(self, source: Source) -> None:
        """A text was let go: nothing may refer to it any more."""
        self.known.drop(source)


class OutgoingText:
    """One text of a result on its way out."""

    def __init__(self, fold: BackrefFold, place: NumberedText, again: str) -> None:
        self.fold = fold
        self.settings = fold.settings
        self.known = fold.known
        self.text = place.text
        self.asked = place.asked
        self.again = again
        self.nearest = fold.nearest
        self.in_full = False
        self.seen: dict[Source, Shown | None] = {}
        self.marked = False
        self.foreign = False
        self.ours = False
        self.folded = ""
        self.layout: Layout | None = None
        self.strategy = ""
        self.reason = ""
        self.refers = False

    def written(self) -> str:
        """What is sent for it: the text itself wherever nothing is gained, or gaining it would be unsafe."""
        if backref.opening(self.known.tag) in self.text:
            self._recognise()
            return self.text
        if self.fold.rewritten or self.fold.as_is or len(self.text) < MIN_TEXT:
            return self.text
        self.folded, self.flags = self._folded()
        self.in_full = bool(self.again) and self.essence == self.again
        self.may_refer = self.fold.refers and not self.in_full
        for attempt in (self._whole, self._partly, self._only_folded):
            sent = attempt()
            if sent is not None:
                if size(sent) >= size(self.text) or not no_larger(sent, self.text):
                    break  # it would be refused, and the ledger must know what is sent
                if self.foreign:
                    return sent
                sent = self._thinned(sent) if self.settings.numbers == "sparse" else sent
                if not self._restores(sent):
                    break
                self.fold.explained = True
                return sent
        self.refers = False
        return self.text

    def _folded(self) -> tuple[str, str]:
        if not self.settings.shapes or self.known.shapeless(self.text):
            return self.text, ""
        return shapes.fold(self.text)

    def _restores(self, sent: str) -> bool:
        """Whether this is the text again for whoever reads it, in full and to the letter (law 6)."""
        fold = self.fold
        budget = Budget(fold.sent, fold.fetched)
        found = restore(sent, self.known.tag, self._shown, budget)
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
    def essence(self) -> str:
        """Digest of what it says, without a header that is never the same twice."""
        start = self.folded.index("\n") if shapes.HEADER_FLAG in self.flags else 0
        return backref.digest_of(self.folded[start:])

    def _recognise(self) -> None:
        """A part that was rewritten before counts for what it was, so that a second pass decides as the first did.

        What cannot be shown to be such a part is opaque: it stays as it is and says nothing about anything else. Work
        on such texts is bounded over the whole conversation, since there may be very many.
        """
        fold = self.fold
        fold.rewritten = fold.rewritten or fold.evicted(self.text)
        if fold.rewritten:
            return
        budget = Budget(fold.sent, fold.fetched + fold.tried, 2)  # half of it is for what was rewritten before

        def shown(source: Source) -> Shown | None:
            if source not in self.seen:
                budget.spend(self.known.unread(source))
            return self._shown(source)

        found = restore(self.text, self.known.tag, shown, budget)
        if found is None:
            fold.tried += budget.used
        else:
            fold.fetched += budget.used  # as whoever expands it counts
            self.ours, self.refers, self.folded, self.flags = True, found.refers, found.folded, found.flags
            fold.explained = True
            self.in_full = not self.refers and bool(self.again) and self.essence == self.again

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

    # Each attempt below returns what would be sent, or None.

    def _whole(self) -> str | None:
        slot = self.known.same(self.folded, self.nearest) if self.settings.dedup and self.may_refer else None
        if slot is None:
            return None
        if self.settings.hints is not HintStyle.IBIDEM:
            return self._hint(slot)
        sent = str(self._marker(source=slot.source, label=slot.label))
        if not self._gains(self.text, sent):
            self.marked = False
            return None
        self.strategy, self.reason, self.refers = "dedup", f"same as {slot.source}", True
        return sent

    def _hint(self, slot: IndexedText) -> str | None:
        """The same in another system's words, which know results by their call's id."""
        if slot.sent != self.text or not slot.call_id:
            return None
        sent = hint(self.settings.hints, slot.call_id, self.text)
        if not self._gains(self.text, sent):
            return None
        self.strategy, self.reason, self.refers, self.foreign = "dedup", f"same as {slot.source}", True, True
        return sent

    def _partly(self) -> str | None:
        if not self.may_refer:
            return None
        layout = self._layout()
        shape_flags = self.flags
        self.flags += layout.comma + (COLON if layout.mark == COLON and layout.numbers is not None else "")
        sent = self._but(layout) if self.settings.fields else None
        if sent is None and self.settings.spans:
            sent = self._spans(layout)
        if sent is None:
            self.flags, self.marked = shape_flags, False
        return sent

    def _layout(self) -> Layout:
        """As everyone will see it once it is sent, but numbers count only where they can be written anew."""
        comma = comma_of(self.folded)
        if comma:
            units = self.folded.split(ITEM_SEPARATORS[comma])
            self.layout = Layout(units, units, None, "", comma, False)
        else:
            self.layout = number(lines_of(self.folded))
        found = self.layout
        if found.numbers is None or (
            found.mark in (TAB, COLON)
            and all(
                shown is None or unit == f"{shown}{NUMBER_MARKS[found.mark]}{body}"
                for unit, body, shown in zip(found.units, found.bodies, found.numbers, strict=True)
            )
        ):
            return found
        return Layout(found.units, found.units, None, "", "", False)

    def _spans(self, layout: Layout) -> str | None:
        pieces: list[str] = []
        done = 0
        labelled: set[Source] = set()
        for match in self.known.matches(layout, self.nearest):
            left_out = layout.joint.join(layout.units[match.first : match.last])
            if len(left_out) < MIN_TEXT:
                continue
            marker = self._pointer(layout, match, labelled)
            if not self._gains(left_out, str(marker)):
                self.marked = self.marked and bool(done)
                continue
            if match.first > done:
                pieces.append(layout.joint.join(layout.units[done : match.first]))
            pieces.append(str(marker))
            labelled.add(self.known.slots[match.slot].source)
            done = match.last
        if not done:
            return None
        if done < len(layout.units):
            pieces.append(layout.joint.join(layout.units[done:]))
        where = ", ".join(map(str, sorted(labelled)))
        self.strategy, self.reason, self.refers = "spans", f"stands in part in {where}", True
        return "\n".join(pieces)

    def _pointer(self, layout: Layout, match: Match, labelled: set[Source]) -> Marker:
        slot = self.known.slots[match.slot]
        position = self.known.line_at(match.slot, match.offset)
        length = match.last - match.first
        unit, first = "item" if slot.comma else "line", position + 1
        if slot.numbering is not None:
            unit, first = slot.numbering.address(position, position + length - 1)
        return self._marker(
            source=slot.source,
            unit=unit,
            first=first,
            last=first + length - 1,
            own=layout.numbers[match.first] if layout.numbers else None,
            label="" if slot.source in labelled else slot.label,
        )

    def _but(self, layout: Layout) -> str | None:
        """As an earlier result of the same tool, but for a few units."""
        number = self.fold.last_of.get(self.asked.tool)
        if number is None or number in self.known.gone or layout.numbers is not None:
            return None
        slot = self.known.slots[number]
        units = layout.units
        if slot.units != len(units) or slot.comma != layout.comma or not slot.whole or slot.place < self.nearest:
            return None
        if slot.numbering is not None:
            return None
        old = slot.text.split("\n")
        other = [at for at, (here, there) in enumerate(zip(units, old, strict=True)) if here != there]
        if not other or len(other) > MAX_FIELDS or len(other) * 4 > len(units):
            return None
        marker = self._marker(source=slot.source, label=slot.label, but=True)
        sent = "\n".join([str(marker), *(f"{at + 1}: {units[at]}" for at in other)])
        if not self._gains(self.folded, sent):  # folding alone would give that much
            self.marked = False
            return None
        self.strategy, self.reason, self.refers = (
            "fields",
            f"as {slot.source} but for {len(other)} {layout.word}s",
            True,
        )
        return sent

    def _only_folded(self) -> str | None:
        if not self.flags:
            return None
        sent = f"{self.folded}\n{self._marker()}"
        if not self._gains(self.text, sent):
            self.marked = False
            return None
        self.strategy, self.reason = "shapes", f"folded: {shapes.described(self.flags)}"
        return sent

    def _gains(self, before: str, after: str) -> bool:
        """Whether bytes and enough tokens are saved; counted only where the lengths do not tell."""
        if size(after) >= size(before):
            return False
        # No token spans two words, and none is shorter than a character.
        if len(before[: 24 * len(after)].split()) >= len(after) + self.settings.min_gain:
            return True
        count = self.fold.count
        return count(before) - count(after) >= self.settings.min_gain
