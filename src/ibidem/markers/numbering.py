"""The texts of a request that a marker can refer to, numbered in the order in which the model sees them.

Results and calls are counted separately from the start of the request. Both `compact` and `expand` number with this
module, so a number has the same meaning in both.
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
    """The facts about a call that its result needs."""

    tool: str = ""
    call: ToolCall | None = None
    label: str = ""
    nth: int = 0
    """Number among the calls with this label, counted from the first message that the model still sees."""

    @property
    def arguments(self) -> str:
        """The arguments of the call as sent; empty if the call is unknown."""
        return self.call.arguments if self.call is not None else ""


NOT_ASKED = CallSummary()
"""For a result whose call is not in the request."""


class NumberedText(NamedTuple):
    """A text that a marker can refer to, with its number and its call."""

    source: Source
    text: str
    asked: CallSummary
    segment: Text | None = None
    """Its text in a result; None for an argument of a call."""
    failed: bool = False
    call_id: str = ""


class Sources:
    """Numbers the texts of messages in order. The tag is known from the first response, call or result on; no text
    before needs it."""

    def __init__(self) -> None:
        self._opening = Opening()
        self._tag = ""
        self._calls = self._results = 0
        self._asked: dict[str, CallSummary] = {}
        self._labels: Counter[str] = Counter()

    def fork(self) -> Sources:
        """Return an independent copy."""
        found = copy(self)
        found._opening = self._opening.fork()
        found._asked, found._labels = dict(self._asked), Counter(self._labels)
        return found

    @property
    def tag(self) -> str:
        """Three digits of the conversation, set by `read` only, so that a later reader of the request computes the
        same."""
        return self._tag

    @property
    def words(self) -> str:
        """The user's first words, which identify the conversation."""
        return self._opening.words

    @property
    def begun(self) -> bool:
        """True if the tag is known and does not depend on the last message."""
        return bool(self._tag) and not self._opening.counts

    def read(self, message: Message) -> Iterator[NumberedText]:
        """Number the texts of the next message."""
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
    """Return True if the model does not see the messages before this one."""
    if Opaque not in map(type, message.parts):  # true for nearly all messages, and cheap to check
        return False
    return any(part.kind == "compaction" for part in message.parts if isinstance(part, Opaque))


def long_texts(given: Any) -> Iterator[tuple[str, str]]:
    """Yield string arguments of three or more lines, by name, such as the content of a written file."""
    if isinstance(given, dict):
        for key, value in given.items():
            if isinstance(value, str) and value.count("\n") >= 2 and key.isidentifier() and key.isascii():
                yield key, value
