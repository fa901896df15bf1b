"""What the simulations of one session have in common, done once.

Arrival edits depend on what was said and on nothing else, until a profile lets go of something that had been sent. So
one fold goes through a segment and what it says is written down; whoever comes later reads that. A profile that lets
go of a text for the first time goes on with a copy of the fold as it was there, and leaves the fold to the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from functools import partial
from typing import Any, NamedTuple
from weakref import WeakMethod

from ..calls import file_of
from ..markers import shapes
from ..markers.backref import Source
from ..markers.layout import Shown
from ..markers.numbering import NumberedText, Sources
from ..model import Message
from ..plan import Edit
from ..strategies.arrival.backrefs import BackReferences, BackrefFold
from ..strategies.arrival.sent import SentText
from ..tokens import TokenCounter


class CallTarget(NamedTuple):
    """What a result was for."""

    tool: str = ""
    file: str = ""


def asked_in(history: Iterable[Message]) -> dict[str, CallTarget]:
    """Call id → tool and file."""
    return {call.id: CallTarget(call.name, file_of(call)) for message in history for call in message.calls}


class _Numbered(NamedTuple):
    """The texts of a message, and what was known of the conversation then."""

    places: list[NumberedText]
    tag: str
    begun: bool


class Numbers:
    """The texts of a segment, numbered once: that depends on what was said alone."""

    def __init__(self) -> None:
        self.read: list[_Numbered] = []
        self.sources = Sources()


class SharedSources:
    """Stands in for the `Sources` of a fold: what one has read, others need not."""

    def __init__(self, numbers: Numbers, place: int = 0) -> None:
        self._numbers, self._place = numbers, place
        self.tag, self.begun = "", False

    def read(self, message: Message) -> Iterator[NumberedText]:
        numbers = self._numbers
        if self._place == len(numbers.read):
            places = list(numbers.sources.read(message))
            numbers.read.append(_Numbered(places, numbers.sources.tag, numbers.sources.begun))
        places, self.tag, self.begun = numbers.read[self._place]
        self._place += 1
        yield from places

    def fork(self) -> SharedSources:
        return copy(self)

    @property
    def words(self) -> str:
        return self._numbers.sources.words


class Arrived(NamedTuple):
    """What was said of one message when it came."""

    edits: tuple[Edit, ...]
    said: list[SentText]
    tag: str
    begun: bool


class ArrivalTape:
    """The arrival of a segment, message by message, as far as somebody went."""

    def __init__(self, history: Sequence[Message], begin: Callable[[], BackrefFold]) -> None:
        """`begin` gives a fold to which nothing was fed."""
        self._history, self._begin = history, begin
        self._arrived: list[Arrived] = []
        self._broken = False
        """It could not be fed on: whoever comes there finds out for himself why."""
        self.fold = begin()

    def arrived(self, place: int) -> Arrived | None:
        """What was said of the message there; None if that cannot be told here."""
        while len(self._arrived) <= place:
            if self._broken:
                return None
            try:
                edits = tuple(self.fold.feed(self._history[len(self._arrived)]))
            except Exception:  # it is told where it happens again, to whom it matters
                self._broken = True
                return None
            sources = self.fold.sources
            self._arrived.append(Arrived(edits, self.fold.said, sources.tag, sources.begun))
        return self._arrived[place]

    def edits(self, length: int) -> list[Edit] | None:
        """Those of the first so many messages; None if they cannot be told here."""
        if length and self.arrived(length - 1) is None:
            return None
        return [edit for arrived in self._arrived[:length] for edit in arrived.edits]

    def said(self) -> Iterator[tuple[int, list[SentText]]]:
        """Every message, as far as somebody went, and how its texts are sent."""
        return enumerate(arrived.said for arrived in self._arrived)

    def fork(self, place: int) -> BackrefFold:
        """A fold after so many messages, to go on with. It is at hand for whoever comes before others went on."""
        if place == len(self._arrived) and not self._broken:
            return self.fold.fork()
        found = self._begin()
        for message in self._history[:place]:
            for _ in found.feed(message):
                pass
        return found


class TapedArrival:
    """Stands in for a `BackrefFold`: read from a tape up to the first text that is let go."""

    def __init__(self, tape: ArrivalTape, evicted: Callable[[str], bool]) -> None:
        self._tape = tape
        self._evicted = WeakMethod(evicted)  # of whoever holds this: it is to go when nobody needs it any more
        self._place = 0
        """Messages that were fed."""
        self._now = Arrived((), [], "", False)
        self._own: BackrefFold | None = None

    def feed(self, message: Message, as_is: bool = False) -> Iterable[Edit]:
        if self._own is None and not as_is and message.index == self._place:
            arrived = self._tape.arrived(self._place)
            if arrived is not None:
                self._now = arrived
                self._place += 1
                return arrived.edits
        return self._parted().feed(message, as_is)

    def forget(self, source: Source) -> None:
        self._parted().forget(source)

    @property
    def _asks_owner(self) -> Callable[[str], bool]:
        owner = self._evicted

        def asked(text: str) -> bool:
            evicted = owner()
            return evicted is not None and evicted(text)

        return asked

    def _parted(self) -> BackrefFold:
        if self._own is None:
            self._own = self._tape.fork(self._place)
            self._own.evicted = self._asks_owner
        return self._own

    @property
    def known(self) -> Any:
        return self if self._own is None else self._own.known

    def shown(self, source: Source) -> Shown | None:
        """As the index says, which may know more by now: nothing that was let go, or that came later, is asked for."""
        return self._tape.fold.known.shown(source)

    @property
    def said(self) -> list[SentText]:
        return self._now.said if self._own is None else self._own.said

    @property
    def sources(self) -> Any:
        return self if self._own is None else self._own.sources

    @property
    def tag(self) -> str:
        return self._now.tag

    @property
    def begun(self) -> bool:
        return self._now.begun

    @property
    def words(self) -> str:
        return self._tape.fold.sources.words

    @property
    def as_is(self) -> bool:
        return self._own is not None and self._own.as_is

    @property
    def rewritten(self) -> bool:
        return (self._own or self._tape.fold).rewritten

    @rewritten.setter
    def rewritten(self, so: bool) -> None:
        self._parted().rewritten = so


class Groundwork:
    """For all simulations of a session: its histories, what was called in them, and their arrival."""

    def __init__(self, messages: Sequence[Sequence[Message]], known: Mapping[str, int] | None = None) -> None:
        """`known`: tokens of texts that were counted, in the encoding that is usual."""
        self.messages = messages
        self._known = known or {}
        self._folded: dict[str, shapes.Folded] = {}
        self._asked: dict[tuple[int, int], Mapping[str, CallTarget]] = {}
        self._numbers: dict[int, Numbers] = {}
        self._tapes: dict[tuple[int, BackReferences, bool], ArrivalTape] = {}

    def asked(self, segment: int, length: int | None = None) -> Mapping[str, CallTarget]:
        """Of the first so many messages, or of all."""
        history = self.messages[segment]
        key = (segment, len(history) if length is None else length)
        if key not in self._asked:
            self._asked[key] = asked_in(history[: key[1]])
        return self._asked[key]

    def done(self) -> None:
        """Nobody needs what was kept of the segments so far."""
        self._numbers.clear()
        self._folded.clear()
        self._tapes.clear()

    def tape(self, segment: int, settings: BackReferences, refers: bool) -> ArrivalTape:
        key = (segment, settings, refers)
        if key not in self._tapes:
            begin = partial(self._begin, self._numbers.setdefault(segment, Numbers()), settings, refers)
            self._tapes[key] = ArrivalTape(self.messages[segment], begin)
        return self._tapes[key]

    def _begin(self, numbers: Numbers, settings: BackReferences, refers: bool) -> BackrefFold:
        """A fold that asks here for what does not depend on it."""
        found = BackrefFold(settings, refers)
        sources: Any = SharedSources(numbers)
        found.sources = sources
        found.folds, found.count = self._fold, partial(self._count, found.count)
        return found

    def _fold(self, text: str) -> shapes.Folded:
        """A shorter shape is found once: most texts have none, and then it is the text itself that is noted."""
        if text not in self._folded:
            self._folded[text] = shapes.fold(text)._replace(apart=None)  # which takes more room than it is worth
        return self._folded[text]

    def _count(self, count: TokenCounter, text: str) -> int:
        """What is asked for here is mostly a piece of a text, for once: it is not noted."""
        found = self._known.get(text)
        return count(text) if found is None else found

    def arrival(self, segment: int) -> Callable[[BackReferences, bool, Callable[[str], bool]], TapedArrival]:
        """What a strategy takes in place of a fold of its own (`Start.arrival`)."""

        def begun(settings: BackReferences, refers: bool, evicted: Callable[[str], bool]) -> TapedArrival:
            return TapedArrival(self.tape(segment, settings, refers), evicted)

        return begun
