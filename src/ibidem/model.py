"""The values that all other code reads: a conversation as its provider will see it.

A value is frozen and has its position in the request: `path` leads from the message's own wire object to the value, in
the history *as given*. Every edit names such a position, so all strategies use one coordinate system. Values without an
edit keep their object and their bytes (invariant 7).

Sizes are always UTF-8 bytes. Windows count messages from the end.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, Protocol, TypeAlias

import msgspec

Path: TypeAlias = tuple[str | int, ...]
Answers = Literal["next", "following", "later"]
LoopThinking = Literal["", "all", "calls"]

Kind = Literal["result", "assistant text", "thinking", "arguments", "messages"]
"""What an edit may change. Everything else in a request is protected (invariant 8)."""


def utf8_size(text: str) -> int:
    """Return the number of UTF-8 bytes. A lone surrogate, which a JSON escape can contain, counts three."""
    return len(text) if text.isascii() else _encoded_size(text)


@lru_cache(maxsize=4)
def _encoded_size(text: str) -> int:
    """Cached, because a text and its replacement are measured again at every comparison."""
    return len(text.encode("utf-8", "surrogatepass"))


class Text(msgspec.Struct, frozen=True):
    """One string that the model reads."""

    text: str
    path: Path
    bound: bool = False
    """True if another field depends on this exact string (citations, annotations, a signature): never edited."""


class Thinking(msgspec.Struct, frozen=True):
    """Reasoning of the model, with or without a readable text."""

    text: str
    path: Path
    signed: bool = False
    removable: bool = True
    """False if the provider links it to the parts after it, so that it cannot be removed separately."""
    sealed: int = 0
    """Characters that only the provider can read (a signature, encrypted content), beyond the shortest possible ones.
    They indicate its size."""


class ToolCall(msgspec.Struct, frozen=True):
    """A tool call by the model."""

    id: str
    name: str
    input: Any
    """Arguments as sent: a string or a JSON value."""
    path: Path
    input_path: Path
    bound: bool = False
    """True if edits must not change its arguments."""
    nameless: bool = False
    """True if the request has no id: `id` is generated, and the call is paired by its tool's name and by order."""

    @property
    def arguments(self) -> str:
        """The arguments as text. An object is written compactly, in the order given."""
        return self.input if isinstance(self.input, str) else to_json(self.input)


class Opaque(msgspec.Struct, frozen=True):
    """Content that is forwarded byte for byte and never parsed: images, unknown blocks, future types."""

    kind: str
    path: Path


Segment = Text | Opaque


class ToolResult(msgspec.Struct, frozen=True):
    """The output of a tool call, as sent to the model."""

    call_id: str
    segments: tuple[Segment, ...]
    path: Path
    failed: bool = False
    """True if the client reports that the call failed."""
    name: str = ""
    """Name of the tool, if the request has it."""
    nameless: bool = False
    """True if the request has no id; see ToolCall."""


Part = Text | Thinking | ToolCall | ToolResult | Opaque

STORED_KIND = "item_reference"
"""Kind of an Opaque part that refers to an item stored by the provider."""

NO_OBJECT_KIND = "no object"
"""Kind of an Opaque segment in place of a response object."""

MALFORMED_KIND = "malformed"
"""Kind of an Opaque part that does not match the provider's format."""


class Message(msgspec.Struct, frozen=True):
    """One entry of a history."""

    index: int
    """Position in the history as given; `INSERTED_INDEX` for a message that a plan adds."""
    role: str
    """system | user | assistant | tool, or the value sent. A user message with only results has the role `tool`."""
    parts: tuple[Part, ...]
    wire: Any
    """The message as sent."""

    @property
    def calls(self) -> list[ToolCall]:
        """Tool calls in the message, in order."""
        return [part for part in self.parts if type(part) is ToolCall]

    @property
    def results(self) -> list[ToolResult]:
        """Tool results in the message, in order."""
        return [part for part in self.parts if type(part) is ToolResult]

    def texts(self) -> Iterator[str]:
        """Yield all texts of the message in order, without copying."""
        for part in self.parts:
            if isinstance(part, Text | Thinking):
                yield part.text
            elif isinstance(part, ToolCall):
                yield part.arguments
            elif isinstance(part, ToolResult):
                yield from (seg.text for seg in part.segments if isinstance(seg, Text))

    @property
    def speaker(self) -> str:
        """Role in a format that alternates user and assistant: results count as the user's."""
        return "user" if self.role == "tool" else self.role


INSERTED_INDEX = -1


class Dialect(Protocol):
    """The facts about a wire format that other code needs; `formats/` has one implementation each."""

    @property
    def name(self) -> str: ...
    @property
    def history_key(self) -> str:
        """Field of the body that contains the history."""

    @property
    def answers(self) -> Answers:
        """Required position of a call's results: in the next message, in the messages directly after, or anywhere
        later."""

    @property
    def alternating(self) -> bool:
        """True if user and assistant must alternate."""

    @property
    def object_arguments(self) -> bool:
        """True if call arguments are a JSON object; in other formats they are a string."""

    @property
    def blank_is_empty(self) -> bool:
        """True if the provider rejects a text of only white space, like an empty one."""

    @property
    def tells_failures(self) -> bool:
        """True if the result of a failed call has a field that says so."""

    @property
    def silent_results(self) -> bool:
        """True if a result may be an empty text."""

    @property
    def shows_thinking(self) -> bool:
        """True if thinking has a field in requests. In other formats, a client may send it although a log does not show
        it."""

    @property
    def loop_thinking(self) -> LoopThinking:
        """Thinking of the active tool loop that the provider requires: none, all, or only in messages with calls."""

    @property
    def reasoning_key(self) -> str:
        """Field of a message that contains thinking separately from its content; empty without one. `read_message`
        ignores it."""

    def read_message(self, index: int, wire: Any) -> Message: ...
    def server_history(self, head: Mapping[str, Any]) -> bool:
        """Return True if the provider stores a part of the history, so a result may answer a call that is not here."""

    def clears_history(self, head: Mapping[str, Any]) -> bool:
        """Return True if the provider may remove earlier messages without reporting it, or shows the model results that
        are not in the request. A reference may then name a text that the model does not see."""

    def manages_context(self, head: Mapping[str, Any]) -> bool:
        """Return True if the provider may clear or compact earlier messages. Its response reports that."""

    def clears_thinking(self, head: Mapping[str, Any]) -> bool:
        """Return True if the request asks the provider to clear the thinking of earlier turns."""

    def drops_unfit_thinking(self, head: Mapping[str, Any]) -> bool:
        """Return True if the request asks the provider to drop thinking that was signed for another history, instead of
        rejecting the request."""

    def cache_settings(self, head: Mapping[str, Any]) -> str:
        """Return the settings whose change makes the provider lose the cached conversation; empty if unknown."""

    def has_checksum(self, head: Mapping[str, Any]) -> bool:
        """Return True if the request carries a checksum of its body, so that no other body may be sent."""

    def tool_names(self, head: Mapping[str, Any]) -> list[str]:
        """Return the names of the tools that a request offers."""

    def has_one_hour_ttl(self, head: Mapping[str, Any], recent: Sequence[Message]) -> bool:
        """Return True if the request asks for a TTL of one hour. `recent` are its last messages."""

    @property
    def cache_control(self) -> Any:
        """The cache directives of the format, a `formats.cache_control.CacheControl`."""

    def user_message(self, text: str) -> Any:
        """Return a user message as sent."""

    def text_block(self, text: str) -> Any:
        """Return a text part as sent, for a message with a list of parts."""

    def result_block(self, call: ToolCall, text: str) -> Any:
        """Return the result of a call as sent: a part, or a whole message."""

    def results_message(self, blocks: Sequence[Any]) -> list[Any]:
        """Return the message or messages as sent that contain these result blocks."""

    def parts_path(self, message: Message) -> Path | None:
        """Return the path of a message's list of parts; None if its content is not a list."""


@dataclass(frozen=True, slots=True)
class Conversation:
    """A request as values: its history and its parameters."""

    messages: tuple[Message, ...]
    dialect: Dialect
    head: Mapping[str, Any]
    """The request parameters: all fields of the body except the history. Empty for a bare list."""
    whole: bool = True
    """False if the history is not a list of messages (a bare `input` string), so that it cannot be edited."""

    @property
    def server_history(self) -> bool:
        """True if the provider stores a part of the history that the model sees."""
        return self.dialect.server_history(self.head) or any(
            isinstance(part, Opaque) and part.kind == STORED_KIND for message in self.messages for part in message.parts
        )

    def older_than(self, window: int) -> tuple[Message, ...]:
        """Return all but the last `window` messages."""
        return self.messages[: max(0, len(self.messages) - window)]

    def running_loop(self) -> int:
        """Return the position where the active tool loop starts; the number of messages without one.

        A loop is active while the history ends in calls or results. It starts at the last message that the user wrote.
        Providers require its thinking unchanged.
        """
        messages = self.messages
        if not messages or not (messages[-1].results or messages[-1].calls):
            return len(messages)
        for position in range(len(messages) - 1, -1, -1):
            message = messages[position]
            if message.role == "user" and not message.results:
                return position
        return 0


_compact = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode


def to_json(value: Any) -> str:
    """Return compact JSON text. Order, Unicode and numbers are written as Python writes them; NaN is allowed."""
    return _compact(value)


def string_or_empty(value: Any) -> str:
    """Return a value that should be a string, or "" for any other type. Wrong types are forwarded, not reported,
    here."""
    return value if isinstance(value, str) else ""


_TYPES = {dict: "an object", list: "a list", str: "a string", bool: "a boolean", int: "a number", float: "a number"}


def type_name(value: Any) -> str:
    """Return JSON's name for the type of a value."""
    return "null" if value is None else _TYPES.get(type(value), f"a {type(value).__name__}")
