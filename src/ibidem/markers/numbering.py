"""The texts of a request that the model can be referred to, numbered as it meets them.

Results and calls are counted from the start of the request, each for themselves. Both `compact` and `expand` number
with this, so a number means the same to both.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from copy import copy
from typing import Any, NamedTuple

from ..calls import label_of, named_arguments
from ..model import Message, Opaque, Text, ToolCall, ToolResult
from ..store.naming import Opening
from . import backref
from .backref import Source


class CallSummary(NamedTuple):
    """A call, as far as its result is concerned."""

    tool: str = ""
    call: ToolCall | None = None
    label: str = ""
    nth: int = 0
    """Which of the calls with this label it is, counted from where the model's sight begins."""

    @property
    def arguments(self) -> str:
        return self.call.arguments if self.call is not None else ""


NOT_ASKED = CallSummary()
"""A result whose call is not there."""


class NumberedText(NamedTuple):
    source: Source
    text: str
    asked: CallSummary
    segment: Text | None = None
    """Where it stands in a result; None for an argument of a call."""
    failed: bool = False
    call_id: str = ""


class Sources:
    """Reads messages in order. Its tag is known from the first answer, call or result on: nothing before needs it."""

    def __init__(self) -> None:
        self._opening = Opening()
        self._tag = ""
        self._calls = self._results = 0
        self._asked: dict[str, CallSummary] = {}
        self._labels: Counter[str] = Counter()

    def fork(self) -> Sources:
        """As it is, to go on by itself."""
        found = copy(self)
        found._opening = self._opening.fork()
        found._asked, found._labels = dict(self._asked), Counter(self._labels)
        return found

    @property
    def tag(self) -> str:
        """Fixed by what is read, never by being asked for: whoever reads the request again must find the same."""
        return self._tag

    @property
    def words(self) -> str:
        """What the conversation is known by."""
        return self._opening.words

    @property
    def begun(self) -> bool:
        """The tag is known, and comes from nothing in the last message."""
        return bool(self._tag) and not self._opening.counts

    def read(self, message: Message) -> Iterator[NumberedText]:
        """The places of one more message."""
        self._opening.read(message)
        if clears(message):
            self._labels.clear()
        if self._opening.ended and not self._tag:
            self._tag = backref.tag_of(self._opening.words)
        for part in message.parts:
            if isinstance(part, ToolCall):
                yield from self._call(part)
            elif isinstance(part, ToolResult):
                yield from self._result(part)

    def _call(self, call: ToolCall) -> Iterator[NumberedText]:
        self._calls += 1
        given = named_arguments(call)
        label = label_of(call.name, given)
        self._labels[label] += 1
        asked = CallSummary(call.name, call, label, self._labels[label])
        self._asked[call.id] = asked
        for key, text in long_texts(given):
            yield NumberedText(Source("call", self._calls, key), text, asked)

    def _result(self, result: ToolResult) -> Iterator[NumberedText]:
        self._results += 1
        asked = self._asked.get(result.call_id, NOT_ASKED)
        texts = [segment for segment in result.segments if isinstance(segment, Text)]
        for place, segment in enumerate(texts, 1):
            source = Source("result", self._results, "" if len(texts) == 1 else str(place))
            yield NumberedText(source, segment.text, asked, segment, result.failed, result.call_id)


def clears(message: Message) -> bool:
    """Whether what came before a message is out of the model's sight."""
    if Opaque not in map(type, message.parts):  # as nearly always
        return False
    return any(part.kind == "compaction" for part in message.parts if isinstance(part, Opaque))


def long_texts(given: Any) -> Iterator[tuple[str, str]]:
    """String arguments of several lines, by name: the content of a file that was written, say."""
    if isinstance(given, dict):
        for key, value in given.items():
            if isinstance(value, str) and value.count("\n") >= 2 and key.isidentifier() and key.isascii():
                yield key, value
