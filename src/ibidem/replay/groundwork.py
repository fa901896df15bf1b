"""What the simulations of one session have in common, done once.

Arrival edits depend on what was said, and on what was let go of it. So one fold goes through a segment and what it says
is written down; whoever comes later reads that. Where texts are let go, the tape branches: the branch goes on with a
copy of the fold as it was there, without these texts, and whoever lets go of the same ones at the same place reads it.

What only depends on a text is found once for all folds that come to it one after the other, and then forgotten: a
branch has the tape that others will read go along with it.
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
from .need import Outputs, outputs_of


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

    def __init__(self, known: Mapping[str, int], folded: dict[str, shapes.Folded]) -> None:
        """`known`: tokens of texts that were counted; `folded`: their shorter shapes."""
        self.read: list[_Numbered] = []
        self.sources = Sources()
        self._known, self._folded = known, folded
        self._place = -1
        self._counted: dict[str, int] = {}
        self._apart: dict[str, shapes.Folded] = {}

    def at(self, place: int, message: Message) -> _Numbered:
        """The message there; what was noted of texts of another one is forgotten."""
        if place == len(self.read):
            places = list(self.sources.read(message))
            self.read.append(_Numbered(places, self.sources.tag, self.sources.begun))
        if place != self._place:
            self._place = place
            self._counted.clear()
            self._apart.clear()
        return self.read[place]

    def fold(self, text: str) -> shapes.Folded:
        """A shorter shape is found once: most texts have none, and then it is the text itself that is noted."""
        found = self._apart.get(text) or self._folded.get(text)
        if found is None:
            found = self._apart[text] = shapes.fold(text)
            self._folded[text] = found._replace(apart=None)  # which takes more room than it is worth
        return found

    def count(self, count: TokenCounter, text: str) -> int:
        """What is asked for here is mostly a piece of a text: it is noted for those who come to the same message."""
        found = self._known.get(text)
        if found is None:
            found = self._counted.get(text)
        if found is None:
            found = self._counted[text] = count(text)
        return found


class SharedSources:
    """Stands in for the `Sources` of a fold: what one has read, others need not."""

    def __init__(self, numbers: Numbers, place: int = 0) -> None:
        self._numbers, self._place = numbers, place
        self.tag, self.begun = "", False

    def read(self, message: Message) -> Iterator[NumberedText]:
        places, self.tag, self.begun = self._numbers.at(self._place, message)
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
    tag: str = ""
    begun: bool = False
    rewritten: bool = False
    """Something had been let go of what came before, by others."""


class ArrivalTape:
    """The arrival of a segment from a message on, message by message, as far as somebody went."""

    def __init__(
        self,
        history: Sequence[Message],
        begin: Callable[[], BackrefFold],
        first: int = 0,
        trunk: ArrivalTape | None = None,
    ) -> None:
        """`begin` gives a fold to which the messages before the first were fed; `trunk` is the tape that this is a
        branch of, or a branch of a branch."""
        self._history, self._begin, self._first, self._trunk = history, begin, first, trunk
        self._arrived: list[Arrived] = []
        self._broken = False
        """It could not be fed on: whoever comes there finds out for himself why."""
        self._branches: dict[tuple[int, tuple[Source, ...]], ArrivalTape] = {}
        self.awaited = False
        """Somebody will read all of it."""
        self.fold = begin()

    def arrived(self, place: int) -> Arrived | None:
        """What was said of the message there; None if that cannot be told here."""
        if self._trunk is not None and self._trunk.awaited:
            self._trunk.arrived(place)
        while self._end <= place:
            if self._broken:
                return None
            try:
                edits = tuple(self.fold.feed(self._history[self._end]))
            except Exception:  # it is told where it happens again, to whom it matters
                self._broken = True
                return None
            fold, sources = self.fold, self.fold.sources
            self._arrived.append(Arrived(edits, fold.said, sources.tag, sources.begun, fold.rewritten))
        return self._arrived[place - self._first]

    @property
    def _end(self) -> int:
        return self._first + len(self._arrived)

    def edits(self, length: int) -> list[Edit] | None:
        """Those of the first so many messages; None if they cannot be told here."""
        if length and self.arrived(length - 1) is None:
            return None
        return [edit for arrived in self._arrived[:length] for edit in arrived.edits]

    def said(self) -> Iterator[tuple[int, list[SentText]]]:
        """Every message, as far as somebody went, and how its texts are sent."""
        return enumerate(arrived.said for arrived in self._arrived)

    def fork(self, place: int) -> BackrefFold:
        """A fold before this message, to go on with. It is at hand for whoever comes before others went on."""
        if place == self._end and not self._broken:
            return self.fold.fork()
        found = self._begin()
        for message in self._history[self._first : place]:
            for _ in found.feed(message):
                pass
        return found

    def branch(self, place: int, gone: tuple[Source, ...]) -> ArrivalTape:
        """From this message on, after these texts were let go."""
        key = (place, gone)
        if key not in self._branches:
            begin = partial(self._without, place, gone)
            self._branches[key] = ArrivalTape(self._history, begin, place, self._trunk or self)
        return self._branches[key]

    def cut(self) -> None:
        """Let go of the branches, which hold what they grow from: so that all of it goes when nobody needs it."""
        for branch in self._branches.values():
            branch.cut()
        self._branches.clear()

    def _without(self, place: int, gone: tuple[Source, ...]) -> BackrefFold:
        found = self.fork(place)
        for source in gone:
            found.forget(source)
        return found


class TapedArrival:
    """Stands in for a `BackrefFold`: read from a tape, or from its branches where something was let go."""

    def __init__(self, tape: ArrivalTape, evicted: Callable[[str], bool]) -> None:
        self._tape = tape
        self._evicted = WeakMethod(evicted)  # of whoever holds this: it is to go when nobody needs it any more
        self._place = 0
        """Messages that were fed."""
        self._gone: list[Source] = []
        """What was let go since the last of them."""
        self._now = Arrived((), [])
        self._own: BackrefFold | None = None

    def feed(self, message: Message, as_is: bool = False) -> Iterable[Edit]:
        if self._own is None and not as_is and message.index == self._place:
            arrived = self._branched().arrived(self._place)
            if arrived is not None:
                self._now = arrived
                self._place += 1
                return arrived.edits
        return self._parted().feed(message, as_is)

    def forget(self, source: Source) -> None:
        if self._own is None:
            self._gone.append(source)
        else:
            self._own.forget(source)

    def _branched(self) -> ArrivalTape:
        if self._gone:
            self._tape = self._tape.branch(self._place, tuple(self._gone))
            self._tape.fold.evicted = self._asks_owner
            self._gone.clear()
        return self._tape

    @property
    def _asks_owner(self) -> Callable[[str], bool]:
        owner = self._evicted

        def asked(text: str) -> bool:
            evicted = owner()
            return evicted is not None and evicted(text)

        return asked

    def _parted(self) -> BackrefFold:
        if self._own is None:
            self._own = self._branched().fork(self._place)
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
        return self._now.rewritten if self._own is None else self._own.rewritten

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
        self._outputs: dict[int, Outputs] = {}

    def asked(self, segment: int, length: int | None = None) -> Mapping[str, CallTarget]:
        """Of the first so many messages, or of all."""
        history = self.messages[segment]
        if length is None or not any(message.calls for message in history[length:]):
            length = len(history)
        key = (segment, length)
        if key not in self._asked:
            self._asked[key] = asked_in(history[:length])
        return self._asked[key]

    def outputs(self, segment: int, lengths: Sequence[int]) -> Outputs:
        """The recorded outputs of a segment, and the text that each used."""
        if segment not in self._outputs:
            self._outputs[segment] = outputs_of(self.messages[segment], lengths)
        return self._outputs[segment]

    def done(self) -> None:
        """Nobody needs what was kept of the segments so far."""
        for tape in self._tapes.values():
            tape.cut()
        self._numbers.clear()
        self._folded.clear()
        self._tapes.clear()
        self._outputs.clear()

    def tape(self, segment: int, settings: BackReferences, refers: bool) -> ArrivalTape:
        key = (segment, settings, refers)
        if key not in self._tapes:
            numbers = self._numbers.setdefault(segment, Numbers(self._known, self._folded))
            self._tapes[key] = ArrivalTape(self.messages[segment], partial(_begin, numbers, settings, refers))
        return self._tapes[key]

    def arrival(self, segment: int) -> Callable[[BackReferences, bool, Callable[[str], bool]], TapedArrival]:
        """What a strategy takes in place of a fold of its own (`Start.arrival`)."""

        def begun(settings: BackReferences, refers: bool, evicted: Callable[[str], bool]) -> TapedArrival:
            return TapedArrival(self.tape(segment, settings, refers), evicted)

        return begun


def _begin(numbers: Numbers, settings: BackReferences, refers: bool) -> BackrefFold:
    """A fold that asks there for what does not depend on it."""
    found = BackrefFold(settings, refers)
    sources: Any = SharedSources(numbers)
    found.sources = sources
    found.folds, found.count = numbers.fold, partial(numbers.count, found.count)
    return found
