"""Work that the simulations of one session share: arrival edits, source numbers, and token counts.

Arrival edits depend on the messages, and on the evicted texts. So one strategy state runs through a segment, and its
edits are recorded in a log (`ArrivalLog`) for all simulations. After an eviction the log branches: the branch continues
with a copy of the state without the evicted texts. Simulations that evict the same texts at the same message share it.

Values that depend on one text only are computed once for all states at the same message, and then dropped. So a branch
advances the main log along with it, if other simulations will read that.
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
    """Tool and file of a call."""

    tool: str = ""
    file: str = ""


def asked_in(history: Iterable[Message]) -> dict[str, CallTarget]:
    """Map call ids to tool and file."""
    return {call.id: CallTarget(call.name, file_of(call)) for message in history for call in message.calls}


class _Numbered(NamedTuple):
    """Numbered texts of a message, and the tag of the conversation at that point."""

    places: list[NumberedText]
    tag: str
    begun: bool


class Numbers:
    """Source numbers of the texts of a segment. They depend only on the messages, so all simulations share them."""

    def __init__(self, known: Mapping[str, int], folded: dict[str, shapes.Folded]) -> None:
        """`known`: token counts of texts; `folded`: their encoded layouts."""
        self.read: list[_Numbered] = []
        self.sources = Sources()
        self._known, self._folded = known, folded
        self._place = -1
        self._counted: dict[str, int] = {}
        self._apart: dict[str, shapes.Folded] = {}

    def at(self, place: int, message: Message) -> _Numbered:
        """Number the texts of the message at this place. Cached values of other messages are dropped."""
        if place == len(self.read):
            places = list(self.sources.read(message))
            self.read.append(_Numbered(places, self.sources.tag, self.sources.begun))
        if place != self._place:
            self._place = place
            self._counted.clear()
            self._apart.clear()
        return self.read[place]

    def fold(self, text: str) -> shapes.Folded:
        """Encode the layout of a text, once. Most texts have no shorter layout and are stored as they are."""
        found = self._apart.get(text) or self._folded.get(text)
        if found is None:
            found = self._apart[text] = shapes.fold(text)
            self._folded[text] = found._replace(apart=None)  # this part takes more memory than it saves time
        return found

    def count(self, count: TokenCounter, text: str) -> int:
        """Count a text, once per message. Most texts here are pieces of a message's text."""
        found = self._known.get(text)
        if found is None:
            found = self._counted.get(text)
        if found is None:
            found = self._counted[text] = count(text)
        return found


class SharedSources:
    """Replacement for the `SourceNumbers` of a strategy state that reads the shared numbers."""

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
    """Arrival edits of one message, and its texts as sent."""

    edits: tuple[Edit, ...]
    said: list[SentText]
    tag: str = ""
    begun: bool = False
    rewritten: bool = False
    """Other strategies had evicted text before this message."""


class ArrivalTape:
    """Log of the arrival edits of a segment, from one message on. It is computed as far as it was read."""

    def __init__(
        self,
        history: Sequence[Message],
        begin: Callable[[], BackrefFold],
        first: int = 0,
        trunk: ArrivalTape | None = None,
    ) -> None:
        """`begin` makes a strategy state after the messages before `first`. `trunk`: the main log of a branch."""
        self._history, self._begin, self._first, self._trunk = history, begin, first, trunk
        self._arrived: list[Arrived] = []
        self._broken = False
        """The strategy state raised an error. Readers repeat the message with a state of their own, and get the
        error."""
        self._branches: dict[tuple[int, tuple[Source, ...]], ArrivalTape] = {}
        self.awaited = False
        """A simulation will read the whole log."""
        self.fold = begin()

    def arrived(self, place: int) -> Arrived | None:
        """Read the arrival of a message; None after an error of the strategy state."""
        if self._trunk is not None and self._trunk.awaited:
            self._trunk.arrived(place)
        while self._end <= place:
            if self._broken:
                return None
            try:
                edits = tuple(self.fold.feed(self._history[self._end]))
            except Exception:  # a reader repeats it and reports it
                self._broken = True
                return None
            fold, sources = self.fold, self.fold.sources
            self._arrived.append(Arrived(edits, fold.said, sources.tag, sources.begun, fold.rewritten))
        return self._arrived[place - self._first]

    @property
    def _end(self) -> int:
        return self._first + len(self._arrived)

    def edits(self, length: int) -> list[Edit] | None:
        """List the edits of the first messages; None after an error of the strategy state."""
        if length and self.arrived(length - 1) is None:
            return None
        return [edit for arrived in self._arrived[:length] for edit in arrived.edits]

    def said(self) -> Iterator[tuple[int, list[SentText]]]:
        """Yield the place of each computed message, with its texts as sent."""
        return enumerate(arrived.said for arrived in self._arrived)

    def fork(self, place: int) -> BackrefFold:
        """Copy the strategy state before this message. If the log is already past it, the state is computed again."""
        if place == self._end and not self._broken:
            return self.fold.fork()
        found = self._begin()
        for message in self._history[self._first : place]:
            for _ in found.feed(message):
                pass
        return found

    def branch(self, place: int, gone: tuple[Source, ...]) -> ArrivalTape:
        """Get the branch from this message on, without these evicted texts."""
        key = (place, gone)
        if key not in self._branches:
            begin = partial(self._without, place, gone)
            self._branches[key] = ArrivalTape(self._history, begin, place, self._trunk or self)
        return self._branches[key]

    def cut(self) -> None:
        """Drop the branches. They refer to the main log, so the cycle would keep both in memory."""
        for branch in self._branches.values():
            branch.cut()
        self._branches.clear()

    def _without(self, place: int, gone: tuple[Source, ...]) -> BackrefFold:
        found = self.fork(place)
        for source in gone:
            found.forget(source)
        return found


class TapedArrival:
    """Replacement for a `BackrefFold` that reads from a log, or from its branches after evictions."""

    def __init__(self, tape: ArrivalTape, evicted: Callable[[str], bool]) -> None:
        self._tape = tape
        self._evicted = WeakMethod(evicted)  # a strong reference to the owner would be a cycle
        self._place = 0
        """Number of messages read."""
        self._gone: list[Source] = []
        """Texts evicted since the last message."""
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
        """Look up a text as sent. The index can be ahead, but callers ask only for earlier texts in the
        conversation."""
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
    """Shared work of all simulations of a session: histories, call targets, arrival logs and outputs."""

    def __init__(self, messages: Sequence[Sequence[Message]], known: Mapping[str, int] | None = None) -> None:
        """`known`: token counts of texts in the default encoding."""
        self.messages = messages
        self._known = known or {}
        self._folded: dict[str, shapes.Folded] = {}
        self._asked: dict[tuple[int, int], Mapping[str, CallTarget]] = {}
        self._numbers: dict[int, Numbers] = {}
        self._tapes: dict[tuple[int, BackReferences, bool], ArrivalTape] = {}
        self._outputs: dict[int, Outputs] = {}

    def asked(self, segment: int, length: int | None = None) -> Mapping[str, CallTarget]:
        """Map call ids to tool and file, for the first `length` messages or all messages of a segment."""
        history = self.messages[segment]
        if length is None or not any(message.calls for message in history[length:]):
            length = len(history)
        key = (segment, length)
        if key not in self._asked:
            self._asked[key] = asked_in(history[:length])
        return self._asked[key]

    def outputs(self, segment: int, lengths: Sequence[int]) -> Outputs:
        """Read the recorded outputs of a segment, and the text that each used."""
        if segment not in self._outputs:
            self._outputs[segment] = outputs_of(self.messages[segment], lengths)
        return self._outputs[segment]

    def done(self) -> None:
        """Drop the shared work of the finished segments."""
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
        """Make the factory that strategies use instead of their own state (`Start.arrival`)."""

        def begun(settings: BackReferences, refers: bool, evicted: Callable[[str], bool]) -> TapedArrival:
            return TapedArrival(self.tape(segment, settings, refers), evicted)

        return begun


def _begin(numbers: Numbers, settings: BackReferences, refers: bool) -> BackrefFold:
    """Make a strategy state that reads shared values from `numbers`."""
    found = BackrefFold(settings, refers)
    sources: Any = SharedSources(numbers)
    found.sources = sources
    found.folds, found.count = numbers.fold, partial(numbers.count, found.count)
    return found
