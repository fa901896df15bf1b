"""Nothing is said twice: the strategy behind the default profile.

A fold over the messages. Each new result is folded into its shorter shape, looked up in what was shown before, and sent
with a marker wherever it repeats that. What is decided for a result depends on it and on what came before, and is never
revisited, so every later request begins with the same bytes (law 2). Every rewritten result is restored on the spot and
compared with its original before the edit counts (law 6).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from copy import copy
from dataclasses import dataclass
from typing import ClassVar, Literal
from weakref import WeakMethod

from ...markers import backref, shapes
from ...markers.backref import Source
from ...markers.numbering import NumberedText, Sources, clears
from ...model import Kind, Message, Text
from ...plan import Edit
from ...tokens import TokenCounter, counter
from ..strategy import Fold, Start, Strategy
from .hints import HintStyle
from .index import LineIndex
from .outgoing import OutgoingText
from .sent import SentForm, SentText


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
    inside: int | None = None
    """Tokens from which a run of lines that stood above in the same result becomes a reference as well, 60 say; None
    for never. It needs `spans`."""
    shapes: bool = True
    """Padding of line numbers, repeated paths, indented JSON, Codex headers."""
    fields: bool = True
    """Results that differ from an earlier one of the same tool in a few lines or JSON fields."""
    diffs: bool = False
    """Runs of lines of a diff that stand in an earlier text without their sign. It needs `spans`."""
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

    @property
    def shared_arrival(self) -> BackReferences | None:
        """The settings of the fold, by which several may share one; None if it is somebody's that does more."""
        plain = type(self).begin is BackReferences.begin and type(self).plan is Strategy.plan
        return self if plain else None

    def begin(self, start: Start) -> BackrefFold:
        return BackrefFold(self, start.refers)


class BackrefFold(Fold):
    """The state after some messages."""

    def __init__(self, settings: BackReferences, refers: bool, evicted: Callable[[str], bool] | None = None) -> None:
        """`evicted` says of a text with markers whether it is what is left of one that was let go before."""
        self.settings = settings
        self.refers = self._refers = refers
        self.evicted = _asked_weakly(evicted) if evicted is not None else _never
        self.count: TokenCounter = counter()
        self.folds: Callable[[str], shapes.Folded] = shapes.fold
        self.sources = Sources()
        self.sent = self.results = 0
        self.explained = False
        self.referred: dict[tuple[str, str, str], dict[str, tuple[int, int]]] = {}
        """Calls whose result was a reference: by label, which is quick to tell, then by all of their arguments."""
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

    def fork(self) -> BackrefFold:
        """As it is between two messages, to go on by itself."""
        found = copy(self)
        found.sources = self.sources.fork()
        found.referred = {call: dict(alike) for call, alike in self.referred.items()}
        found.last_of = dict(self.last_of)
        found._known = None if self._known is None else self._known.fork()
        found.said = []
        return found

    @property
    def known(self) -> LineIndex:
        if self._known is None:
            self._known = LineIndex(self.sources.tag)
        return self._known

    @property
    def weight(self) -> int:
        return 0 if self._known is None else self._known.weight

    @property
    def nearest(self) -> int:
        """Characters sent before what a reference may still reach."""
        far = self.settings.max_distance
        return 0 if far is None else max(0, self.sent - 4 * far)

    def feed(self, message: Message, as_is: bool = False) -> Iterator[Edit]:
        self.as_is = as_is
        if clears(message):
            self.refers = self._refers
            self.last_of.clear()
            if self._known is not None:
                self._known.forget()
        self.said = []
        for place in self.sources.read(message):
            known = self.known
            if place.segment is None:
                sent = SentForm(place.text)
            else:
                self.results = place.source.number
                sent = yield from self._result(message.index, place.segment, place)
            if not sent.ours and backref.opening(known.tag) in sent.text:
                known.add_opaque(place, self.sent)
            else:
                nearest = self.sent + 1 if sent.in_full else self.nearest
                known.add(place, sent, self.sent, nearest)
            if place.segment is not None and place.asked.tool:
                self.last_of[place.asked.tool] = known.number(place.source)
            self.sent += len(sent.text)
            self.said.append(SentText(place, sent.text, sent.targets))

    def _result(self, index: int, segment: Text, place: NumberedText) -> Generator[Edit, None, SentForm]:
        """Yields the edit of a result, if there is one; returns how it is sent."""
        if segment.bound or place.failed:
            return SentForm(segment.text)
        call = (place.asked.tool, place.asked.label, place.source.part)
        alike = self.referred.get(call)
        # The same call again, and the same answer, soon after that was a reference: it wants the text itself.
        last = alike.pop(place.asked.arguments, None) if alike else None
        again = last[1] if last is not None and self.results - last[0] <= self.settings.repeat_guard else None
        outgoing = OutgoingText(self, place, again)
        attempt = outgoing.attempt()
        if attempt.sent != segment.text:
            yield Edit(
                strategy=attempt.strategy,
                op="set",
                message=index,
                path=segment.path,
                removed=(segment.text,),
                added=attempt.sent,
                fewer_tokens=True,
                reason=attempt.reason,
            )
        if attempt.refers:
            self.referred.setdefault(call, {})[place.asked.arguments] = (self.results, outgoing.essence)
        targets = tuple(outgoing.seen) if attempt.refers else ()
        as_it_is = outgoing.layout is not None and attempt.sent is outgoing.folded
        layout = outgoing.layout_of(attempt.sent)
        whole = outgoing.folded if layout is not None and outgoing.is_folded(attempt.sent) else ""
        return SentForm(attempt.sent, layout, outgoing.in_full, targets, outgoing.ours, as_it_is, whole)

    def results_cleared(self) -> None:
        """The provider clears the oldest results anew for each request: a target that is visible now may be cleared
        before the text that refers to it."""
        self.refers = False

    def forget(self, source: Source) -> None:
        """A text was let go: nothing may refer to it any more."""
        self.known.drop(source)


def _never(text: str) -> bool:
    return False


def _asked_weakly(evicted: Callable[[str], bool]) -> Callable[[str], bool]:
    """A method without a hold on its object, which holds the fold: both are freed with their last user."""
    method = WeakMethod(evicted)

    def ask(text: str) -> bool:
        found = method()
        return found is not None and found(text)

    return ask
