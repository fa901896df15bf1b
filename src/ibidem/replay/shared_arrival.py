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

from ..markers import layout_codecs
from ..markers.backref import Source
from ..markers.layout import VisibleText
from ..markers.source_numbers import NumberedText, SourceNumbers
from ..model import Message
from ..plan import Edit
from ..strategies.arrival.backrefs import BackReferences, BackReferenceState
from ..strategies.arrival.sent_text import SentText
from ..tokens import TokenCounter
from ..tool_arguments import file_argument
from .need import SegmentOutputs, read_outputs


class CallTarget(NamedTuple):
    """Tool and file of a call."""

    tool: str = ""
    file: str = ""


def call_targets(history: Iterable[Message]) -> dict[str, CallTarget]:
    """Map call ids to tool and file."""
    return {call.id: CallTarget(call.name, file_argument(call)) for message in history for call in message.calls}


class _NumberedTexts(NamedTuple):
    """Numbered texts of a message, and the tag of the conversation at that point."""

    places: list[NumberedText]
    tag: str
    begun: bool


class SegmentNumbers:
    """Source numbers of the texts of a segment. They depend only on the messages, so all simulations share them."""

    def __init__(self, counts: Mapping[str, int], layouts: dict[str, layout_codecs.EncodedText]) -> None:
        """`counts`: token counts of texts; `layouts`: their encoded layouts."""
        self.read: list[_NumberedTexts] = []
        self.sources = SourceNumbers()
        self._known, self._folded = counts, layouts
        self._place = -1
        self._counted: dict[str, int] = {}
        self._apart: dict[str, layout_codecs.EncodedText] = {}

    def texts_at(self, place: int, message: Message) -> _NumberedTexts:
        """Number the texts of the message at this place. Cached values of other messages are dropped."""
        if place == len(self.read):
            places = list(self.sources.number_texts(message))
            self.read.append(_NumberedTexts(places, self.sources.tag, self.sources.has_stable_tag))
        if place != self._place:
            self._place = place
            self._counted.clear()
            self._apart.clear()
        return self.read[place]

    def encode_layout(self, text: str) -> layout_codecs.EncodedText:
        """Encode the layout of a text, once. Most texts have no shorter layout and are stored as they are."""
        layout = self._apart.get(text) or self._folded.get(text)
        if layout is None:
            layout = self._apart[text] = layout_codecs.encode_layout(text)
            self._folded[text] = layout._replace(numbered_lines=None)  # this part takes more memory than it saves time
        return layout

    def count_tokens(self, count: TokenCounter, text: str) -> int:
        """Count a text, once per message. Most texts here are pieces of a message's text."""
        tokens = self._known.get(text)
        if tokens is None:
            tokens = self._counted.get(text)
        if tokens is None:
            tokens = self._counted[text] = count(text)
        return tokens


class SharedSources:
    """Replacement for the `SourceNumbers` of a strategy state that reads the shared numbers."""

    def __init__(self, numbers: SegmentNumbers, place: int = 0) -> None:
        self._numbers, self._place = numbers, place
        self.tag, self.has_stable_tag = "", False

    def number_texts(self, message: Message) -> Iterator[NumberedText]:
        places, self.tag, self.has_stable_tag = self._numbers.texts_at(self._place, message)
        self._place += 1
        yield from places

    def fork(self) -> SharedSources:
        return copy(self)

    @property
    def opening_words(self) -> str:
        return self._numbers.sources.opening_words


class ArrivedMessage(NamedTuple):
    """Arrival edits of one message, and its texts as sent."""

    edits: tuple[Edit, ...]
    said: list[SentText]
    tag: str = ""
    begun: bool = False
    rewritten: bool = False
    """Other strategies had evicted text before this message."""


class ArrivalLog:
    """Log of the arrival edits of a segment, from one message on. It is computed as far as it was read."""

    def __init__(
        self,
        history: Sequence[Message],
        begin: Callable[[], BackReferenceState],
        first: int = 0,
        trunk: ArrivalLog | None = None,
    ) -> None:
        """`begin` makes a strategy state after the messages before `first`. `trunk`: the main log of a branch."""
        self._history, self._begin, self._first, self._trunk = history, begin, first, trunk
        self._arrived: list[ArrivedMessage] = []
        self._broken = False
        """The strategy state raised an error. Readers repeat the message with a state of their own, and get the
        error."""
        self._branches: dict[tuple[int, tuple[Source, ...]], ArrivalLog] = {}
        self.awaited = False
        """A simulation will read the whole log."""
        self.fold = begin()

    def read_message(self, place: int) -> ArrivedMessage | None:
        """Read the arrival of a message; None after an error of the strategy state."""
        if self._trunk is not None and self._trunk.awaited:
            self._trunk.read_message(place)
        while self._end_place <= place:
            if self._broken:
                return None
            try:
                edits = tuple(self.fold.feed(self._history[self._end_place]))
            except Exception:  # a reader repeats it and reports it
                self._broken = True
                return None
            fold, sources = self.fold, self.fold.sources
            self._arrived.append(ArrivedMessage(edits, fold.said, sources.tag, sources.has_stable_tag, fold.rewritten))
        return self._arrived[place - self._first]

    @property
    def _end_place(self) -> int:
        return self._first + len(self._arrived)

    def edits_before(self, length: int) -> list[Edit] | None:
        """List the edits of the first messages; None after an error of the strategy state."""
        if length and self.read_message(length - 1) is None:
            return None
        return [edit for arrived in self._arrived[:length] for edit in arrived.edits]

    def sent_texts(self) -> Iterator[tuple[int, list[SentText]]]:
        """Yield the place of each computed message, with its texts as sent."""
        return enumerate(arrived.said for arrived in self._arrived)

    def fork_state(self, place: int) -> BackReferenceState:
        """Copy the strategy state before this message. If the log is already past it, the state is computed again."""
        if place == self._end_place and not self._broken:
            return self.fold.fork()
        state = self._begin()
        for message in self._history[self._first : place]:
            for _ in state.feed(message):
                pass
        return state

    def get_branch(self, place: int, evicted_texts: tuple[Source, ...]) -> ArrivalLog:
        """Get the branch from this message on, without these evicted texts."""
        key = (place, evicted_texts)
        if key not in self._branches:
            begin = partial(self._state_without, place, evicted_texts)
            self._branches[key] = ArrivalLog(self._history, begin, place, self._trunk or self)
        return self._branches[key]

    def drop_branches(self) -> None:
        """Drop the branches. They refer to the main log, so the cycle would keep both in memory."""
        for branch in self._branches.values():
            branch.drop_branches()
        self._branches.clear()

    def _state_without(self, place: int, evicted_texts: tuple[Source, ...]) -> BackReferenceState:
        state = self.fork_state(place)
        for source in evicted_texts:
            state.forget(source)
        return state


class ReplayedArrival:
    """Replacement for a `BackReferenceState` that reads from a log, or from its branches after evictions."""

    def __init__(self, tape: ArrivalLog, is_evicted: Callable[[str], bool]) -> None:
        self._tape = tape
        self._evicted = WeakMethod(is_evicted)  # a strong reference to the owner would be a cycle
        self._place = 0
        """Number of messages read."""
        self._gone: list[Source] = []
        """Texts evicted since the last message."""
        self._now = ArrivedMessage((), [])
        self._own: BackReferenceState | None = None

    def feed(self, message: Message, as_is: bool = False) -> Iterable[Edit]:
        if self._own is None and not as_is and message.index == self._place:
            arrival = self._current_log().read_message(self._place)
            if arrival is not None:
                self._now = arrival
                self._place += 1
                return arrival.edits
        return self._own_state().feed(message, as_is)

    def forget(self, source: Source) -> None:
        if self._own is None:
            self._gone.append(source)
        else:
            self._own.forget(source)

    def _current_log(self) -> ArrivalLog:
        if self._gone:
            self._tape = self._tape.get_branch(self._place, tuple(self._gone))
            self._tape.fold.is_evicted = self._asks_owner
            self._gone.clear()
        return self._tape

    @property
    def _asks_owner(self) -> Callable[[str], bool]:
        owner = self._evicted

        def is_evicted(text: str) -> bool:
            callback = owner()
            return callback is not None and callback(text)

        return is_evicted

    def _own_state(self) -> BackReferenceState:
        if self._own is None:
            self._own = self._current_log().fork_state(self._place)
            self._own.is_evicted = self._asks_owner
        return self._own

    @property
    def known(self) -> Any:
        return self if self._own is None else self._own.known

    def shown(self, source: Source) -> VisibleText | None:
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
    def has_stable_tag(self) -> bool:
        return self._now.begun

    @property
    def opening_words(self) -> str:
        return self._tape.fold.sources.opening_words

    @property
    def as_is(self) -> bool:
        return self._own is not None and self._own.as_is

    @property
    def rewritten(self) -> bool:
        return self._now.rewritten if self._own is None else self._own.rewritten

    @rewritten.setter
    def rewritten(self, so: bool) -> None:
        self._own_state().rewritten = so


class SharedArrival:
    """Shared work of all simulations of a session: histories, call targets, arrival logs and outputs."""

    def __init__(self, messages: Sequence[Sequence[Message]], counts: Mapping[str, int] | None = None) -> None:
        """`counts`: token counts of texts in the default encoding."""
        self.messages = messages
        self._known = counts or {}
        self._folded: dict[str, layout_codecs.EncodedText] = {}
        self._asked: dict[tuple[int, int], Mapping[str, CallTarget]] = {}
        self._numbers: dict[int, SegmentNumbers] = {}
        self._tapes: dict[tuple[int, BackReferences, bool], ArrivalLog] = {}
        self._outputs: dict[int, SegmentOutputs] = {}

    def targets_in(self, segment: int, length: int | None = None) -> Mapping[str, CallTarget]:
        """Map call ids to tool and file, for the first `length` messages or all messages of a segment."""
        history = self.messages[segment]
        if length is None or not any(message.calls for message in history[length:]):
            length = len(history)
        key = (segment, length)
        if key not in self._asked:
            self._asked[key] = call_targets(history[:length])
        return self._asked[key]

    def read_outputs(self, segment: int, lengths: Sequence[int]) -> SegmentOutputs:
        """Read the recorded outputs of a segment, and the text that each used."""
        if segment not in self._outputs:
            self._outputs[segment] = read_outputs(self.messages[segment], lengths)
        return self._outputs[segment]

    def drop_segment(self) -> None:
        """Drop the shared work of the finished segments."""
        for tape in self._tapes.values():
            tape.drop_branches()
        self._numbers.clear()
        self._folded.clear()
        self._tapes.clear()
        self._outputs.clear()

    def get_log(self, segment: int, settings: BackReferences, refers: bool) -> ArrivalLog:
        key = (segment, settings, refers)
        if key not in self._tapes:
            numbers = self._numbers.setdefault(segment, SegmentNumbers(self._known, self._folded))
            self._tapes[key] = ArrivalLog(self.messages[segment], partial(_make_state, numbers, settings, refers))
        return self._tapes[key]

    def arrival_factory(self, segment: int) -> Callable[[BackReferences, bool, Callable[[str], bool]], ReplayedArrival]:
        """Make the factory that strategies use instead of their own state (`Start.arrival`)."""

        def make_arrival(settings: BackReferences, refers: bool, is_evicted: Callable[[str], bool]) -> ReplayedArrival:
            return ReplayedArrival(self.get_log(segment, settings, refers), is_evicted)

        return make_arrival


def _make_state(numbers: SegmentNumbers, settings: BackReferences, refers: bool) -> BackReferenceState:
    """Make a strategy state that reads shared values from `numbers`."""
    state = BackReferenceState(settings, refers)
    sources: Any = SharedSources(numbers)
    state.sources = sources
    state.encode_layout, state.count = numbers.encode_layout, partial(numbers.count_tokens, state.count)
    return state
