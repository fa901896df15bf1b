"""The texts of a request that a marker can refer to, numbered in the order in which the model sees them.

Results and calls are counted separately from the start of the request. Both `compact` and `expand` number with this
module, so a number has the same meaning in both.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from copy import copy
from typing import Any, NamedTuple

from ..model import Message, Opaque, Text, ToolCall, ToolResult
from ..store.references import ConversationOpening
from ..tool_arguments import call_label, named_arguments
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


UNKNOWN_CALL = CallSummary()
"""For a result whose call is not in the request."""


class NumberedText(NamedTuple):
    """A text that a marker can refer to, with its number and its call."""

    source: Source
    text: str
    call: CallSummary
    segment: Text | None = None
    """Its text in a result; None for an argument of a call."""
    is_error: bool = False
    call_id: str = ""


class SourceNumbers:
    """Numbers the texts of messages in order. The tag is known from the first response, call or result on; no text
    before needs it."""

    def __init__(self) -> None:
        self._opening = ConversationOpening()
        self._tag = ""
        self._calls = self._results = 0
        self._summaries: dict[str, CallSummary] = {}
        self._labels: Counter[str] = Counter()

    def fork(self) -> SourceNumbers:
        """Return an independent copy."""
        copied = copy(self)
        copied._opening = self._opening.fork()
        copied._summaries, copied._labels = dict(self._summaries), Counter(self._labels)
        return copied

    @property
    def tag(self) -> str:
        """Three digits of the conversation, set by `read` only, so that a later reader of the request computes the
        same."""
        return self._tag

    @property
    def opening_words(self) -> str:
        """The user's first words, which identify the conversation."""
        return self._opening.text

    @property
    def has_stable_tag(self) -> bool:
        """True if the tag is known and does not depend on the last message."""
        return bool(self._tag) and not self._opening.counts

    def number_texts(self, message: Message) -> Iterator[NumberedText]:
        """Number the texts of the next message."""
        self._opening.read_message(message)
        if hides_earlier_messages(message):
            self._labels.clear()
        if self._opening.ended and not self._tag:
            self._tag = backref.tag_of(self._opening.text)
        for part in message.parts:
            if isinstance(part, ToolCall):
                yield from self._number_call(part)
            elif isinstance(part, ToolResult):
                yield from self._number_result(part)

    def _number_call(self, call: ToolCall) -> Iterator[NumberedText]:
        self._calls += 1
        arguments = named_arguments(call)
        label = call_label(call.name, arguments)
        self._labels[label] += 1
        summary = CallSummary(call.name, call, label, self._labels[label])
        self._summaries[call.id] = summary
        for key, text in long_texts(arguments):
            yield NumberedText(Source("call", self._calls, key), text, summary)

    def _number_result(self, result: ToolResult) -> Iterator[NumberedText]:
        self._results += 1
        summary = self._summaries.get(result.call_id, UNKNOWN_CALL)
        texts = [segment for segment in result.segments if isinstance(segment, Text)]
        for position, segment in enumerate(texts, 1):
            source = Source("result", self._results, "" if len(texts) == 1 else str(position))
            yield NumberedText(source, segment.text, summary, segment, result.failed, result.call_id)


def hides_earlier_messages(message: Message) -> bool:
    """Return True if the model does not see the messages before this one."""
    if Opaque not in map(type, message.parts):  # true for nearly all messages, and cheap to check
        return False
    return any(part.kind == "compaction" for part in message.parts if isinstance(part, Opaque))


def long_texts(arguments: Any) -> Iterator[tuple[str, str]]:
    """Yield string arguments of three or more lines, by name, such as the content of a written file."""
    if isinstance(arguments, dict):
        for key, value in arguments.items():
            if isinstance(value, str) and value.count("\n") >= 2 and key.isidentifier() and key.isascii():
                yield key, value
