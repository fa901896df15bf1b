"""The values that everything else reads: a conversation as its provider will see it.

A value is frozen and remembers where it stands on the wire: `path` leads from the message's own wire object to the
value, in the history *as it was given*. Every edit names such a position, so there is one coordinate system from the
first strategy to the last, and what nobody names keeps its object and its bytes (law 7).

Sizes are UTF-8 bytes throughout, windows count messages from the end.
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
"""What an edit may touch. Everything else in a request is sacred (law 8)."""


def size(text: str) -> int:
    """UTF-8 bytes. A lone surrogate, which a JSON escape can carry, counts three."""
    return len(text) if text.isascii() else _encoded_size(text)


@lru_cache(maxsize=4)
def _encoded_size(text: str) -> int:
    """A text and what is sent for it are measured again at every step that compares them."""
    return len(text.encode("utf-8", "surrogatepass"))


class Text(msgspec.Struct, frozen=True):
    """One string that the model reads."""

    text: str
    path: Path
    bound: bool = False
    """Something beside it counts on this very string (citations, annotations, a signature): never edited."""


class Thinking(msgspec.Struct, frozen=True):
    text: str
    path: Path
    signed: bool = False
    removable: bool = True
    """False where the provider ties it to what follows, so that it cannot go alone."""
    sealed: int = 0
    """Characters of what only the provider can read (a signature, encrypted content), beyond those that the shortest
    has. They tell its size."""


class ToolCall(msgspec.Struct, frozen=True):
    id: str
    name: str
    input: Any
    """Arguments as they stand on the wire: a string or a JSON value."""
    path: Path
    input_path: Path
    bound: bool = False
    nameless: bool = False
    """The wire gives no id: `id` is made up, and it is paired by its tool's name and by order."""

    @property
    def arguments(self) -> str:
        """The arguments as text; an object is written compactly, in the order it was given."""
        return self.input if isinstance(self.input, str) else to_json(self.input)


class Opaque(msgspec.Struct, frozen=True):
    """Carried to the byte, never looked into: images, unknown blocks, whatever comes next year."""

    kind: str
    path: Path


Segment = Text | Opaque


class ToolResult(msgspec.Struct, frozen=True):
    call_id: str
    segments: tuple[Segment, ...]
    path: Path
    failed: bool = False
    """The client says that the call failed."""
    name: str = ""
    """Of the tool, where the wire says it."""
    nameless: bool = False
    """The wire gives no id, see ToolCall."""


Part = Text | Thinking | ToolCall | ToolResult | Opaque

STORED_KIND = "item_reference"
"""The kind of an Opaque part that stands for something the provider keeps."""

NO_OBJECT_KIND = "no object"
"""The kind of an Opaque segment where a response should be an object."""

MALFORMED_KIND = "malformed"
"""The kind of an Opaque part that stands where a provider would expect something else."""


class Message(msgspec.Struct, frozen=True):
    index: int
    """Position in the history as given; `INSERTED_INDEX` for a message that a plan adds."""
    role: str
    """system | user | assistant | tool, or what the wire says. A user message that holds only results is `tool`."""
    parts: tuple[Part, ...]
    wire: Any

    @property
    def calls(self) -> list[ToolCall]:
        return [part for part in self.parts if type(part) is ToolCall]

    @property
    def results(self) -> list[ToolResult]:
        return [part for part in self.parts if type(part) is ToolResult]

    def texts(self) -> Iterator[str]:
        """Everything in it that is text, in order, uncopied."""
        for part in self.parts:
            if isinstance(part, Text | Thinking):
                yield part.text
            elif isinstance(part, ToolCall):
                yield part.arguments
            elif isinstance(part, ToolResult):
                yield from (seg.text for seg in part.segments if isinstance(seg, Text))

    @property
    def speaker(self) -> str:
        """Whose turn it is on the wire of an alternating format: results are the user's."""
        return "user" if self.role == "tool" else self.role


INSERTED_INDEX = -1


class Dialect(Protocol):
    """What may be asked about a wire format; `formats/` has one implementation each."""

    @property
    def name(self) -> str: ...
    @property
    def history_key(self) -> str:
        """The field of the body that holds the history."""

    @property
    def answers(self) -> Answers:
        """Where the results of a call must stand: in the next message, in the messages that follow
        without a break, or anywhere later."""

    @property
    def alternating(self) -> bool:
        """User and assistant take turns."""

    @property
    def object_arguments(self) -> bool:
        """Call arguments are a JSON object; elsewhere they are a string."""

    @property
    def blank_is_empty(self) -> bool:
        """A text of white space alone is refused as an empty one is."""

    @property
    def tells_failures(self) -> bool:
        """A result of a call that failed is marked as such."""

    @property
    def silent_results(self) -> bool:
        """A result may be an empty text."""

    @property
    def shows_thinking(self) -> bool:
        """Thinking that is sent back has a place on the wire; elsewhere a client may send it and a log not tell."""

    @property
    def loop_thinking(self) -> LoopThinking:
        """Thinking of the active tool loop without which the provider rejects a request: none, all of it, or that of
        messages with calls."""

    @property
    def reasoning_key(self) -> str:
        """Field of a message that has thinking beside its content; empty if there is none. `read` does not read it."""

    def read(self, index: int, wire: Any) -> Message: ...
    def server_history(self, head: Mapping[str, Any]) -> bool:
        """Part of the history is kept by the provider, so a result may answer a call that is not here."""

    def clears_history(self, head: Mapping[str, Any]) -> bool:
        """Return True if the provider may remove earlier messages without a word in its response, or shows the model
        results that are not in the request: what a reference names is not sure to be what the model finds."""

    def manages_context(self, head: Mapping[str, Any]) -> bool:
        """Return True if the provider may clear or compact earlier messages. Its response says when it did."""

    def clears_thinking(self, head: Mapping[str, Any]) -> bool:
        """The request asks the provider to clear the thinking of earlier turns."""

    def drops_unfit_thinking(self, head: Mapping[str, Any]) -> bool:
        """The request asks the provider to drop thinking that was signed against something else, not to refuse it."""

    def cache_settings(self, head: Mapping[str, Any]) -> str:
        """Return the settings whose change makes the provider lose the cached conversation; empty if unknown."""

    def has_checksum(self, head: Mapping[str, Any]) -> bool:
        """Return True if the request carries a checksum of its body: no other body may be sent with it."""

    def tool_names(self, head: Mapping[str, Any]) -> list[str]:
        """The tools that a request offers."""

    def remembered_for_an_hour(self, head: Mapping[str, Any], recent: Sequence[Message]) -> bool:
        """The request asks the provider to keep it in its cache for that long. `recent` are its last messages."""

    @property
    def marks(self) -> Any:
        """How a provider is told what to keep in its cache: `formats.marks.Marks`."""

    def user_message(self, text: str) -> Any:
        """A user message, as wire."""

    def text_block(self, text: str) -> Any:
        """A text part for a message that holds a list of parts, as wire."""

    def result_block(self, call: ToolCall, text: str) -> Any:
        """The answer to a call, as the wire part (or whole message) that carries it."""

    def results_message(self, blocks: Sequence[Any]) -> list[Any]:
        """The wire message or messages that carry these result blocks."""

    def parts_path(self, message: Message) -> Path | None:
        """Where a message's list of parts stands, or None if its content is no list."""


@dataclass(frozen=True, slots=True)
class Conversation:
    messages: tuple[Message, ...]
    dialect: Dialect
    head: Mapping[str, Any]
    """The rest of the request body: everything that is not history. Empty for a bare list."""
    whole: bool = True
    """False when the history is not a list of messages (a bare `input` string): nothing to work on."""

    @property
    def server_history(self) -> bool:
        """Part of what the model sees is kept by the provider."""
        return self.dialect.server_history(self.head) or any(
            isinstance(part, Opaque) and part.kind == STORED_KIND for message in self.messages for part in message.parts
        )

    def older_than(self, window: int) -> tuple[Message, ...]:
        """All but the last `window` messages."""
        return self.messages[: max(0, len(self.messages) - window)]

    def running_loop(self) -> int:
        """Position where the running tool loop starts; past the end when none is running.

        A loop runs while the history ends in calls or results, and reaches back to the last message that is the
        user's own. Providers demand the thinking of that stretch unchanged.
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
    """Compact JSON text. Order, unicode and number spelling are Python's; NaN is carried."""
    return _compact(value)


def string(value: Any) -> str:
    """A field that should be a string. Anything else reads as empty: it is carried, not judged, here."""
    return value if isinstance(value, str) else ""


_TYPES = {dict: "an object", list: "a list", str: "a string", bool: "a boolean", int: "a number", float: "a number"}


def type_name(value: Any) -> str:
    """What JSON calls it."""
    return "null" if value is None else _TYPES.get(type(value), f"a {type(value).__name__}")
