"""Edits, and the one function that carries them out.

A strategy proposes edits; it changes nothing. Every edit names a position in the history as given, so edits of several
strategies can be laid over each other, printed, priced, refused and replayed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from .billing.budget import Point
from .calls import arguments
from .model import INSERTED_INDEX, Conversation, Kind, Message, Part, Path, Text, Thinking, ToolCall, ToolResult, size
from .wire import Change, Op, rebuild


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit:
    """One change to the history, with what it takes away and what it puts there."""

    strategy: str
    """The name it is counted under."""
    op: Op
    """`set` what stands there, `drop` it, or put something `before` or `after` it."""
    message: int
    """Index in the history as given."""
    path: Path = ()
    """Inside that message; () is the message itself."""
    removed: tuple[str, ...] = ()
    """The texts that go, uncopied."""
    added: str = ""
    """The text that stands there instead."""
    value: Any = None
    """What is written on the wire; None means `added`."""
    fewer_tokens: bool = False
    """The strategy made sure that there are no more tokens than before, and no more bytes however they are spelled in
    JSON, so that nobody has to count again."""
    hits: int = 1
    """How often the strategy found what it looks for; 0 for an edit that only accompanies another."""
    reason: str = ""
    """For people: why it was made."""

    @property
    def bytes_saved(self) -> int:
        """Content bytes, never negative: what grows saves nothing."""
        return max(0, sum(map(size, self.removed)) - size(self.added))

    @property
    def written(self) -> Any:
        """What stands on the wire afterwards."""
        return self.added if self.value is None else self.value


@dataclass(frozen=True, slots=True)
class Plan:
    """Edits in the order they were decided. A later edit of the same position outranks an earlier one."""

    edits: tuple[Edit, ...] = ()
    """In the order in which they were decided."""
    points: tuple[Point, ...] = ()
    """Where what had been sent before was changed, and at what price (law 3)."""

    def __bool__(self) -> bool:
        return bool(self.edits)

    def __len__(self) -> int:
        return len(self.edits)

    def __iter__(self) -> Iterator[Edit]:
        return iter(self.edits)

    def __add__(self, other: Plan) -> Plan:
        return Plan(self.edits + other.edits, self.points + other.points)

    @property
    def structural(self) -> bool:
        """Whether it does more than put one text in another's place: only then can it break a rule of structure."""
        return any(edit.op != "set" or edit.value is not None for edit in self.edits)

    def changes(self, prefix: Path = ()) -> list[Change]:
        """What is to be done on the wire, each position once, `prefix` leading to the history."""
        final: dict[tuple[Any, ...], Change] = {}
        dropped = {edit.message for edit in self.edits if edit.op == "drop" and not edit.path}
        for number, edit in enumerate(self.edits):
            if edit.path and edit.message in dropped:
                continue
            change = Change((*prefix, edit.message, *edit.path), edit.op, edit.written)
            beside = edit.op in ("before", "after")
            final[(change.path, number) if beside else (change.path, None)] = change
        return list(final.values())


def apply(conv: Conversation, plan: Plan, step: Plan | None = None, sent: Conversation | None = None) -> Conversation:
    """The conversation as it will be sent. Untouched messages are the same objects.

    If the plan ends in `step`, and what came before that has been carried out already as `sent`, only messages that
    the step touches are made anew.
    """
    if not plan:
        return conv
    inside: dict[int, list[Edit]] = {}
    whole: dict[int, list[Edit]] = {}
    for edit in plan.edits:
        (inside if edit.path else whole).setdefault(edit.message, []).append(edit)
    for index in [index for index, edits in whole.items() if any(edit.op == "drop" for edit in edits)]:
        inside.pop(index, None)  # nobody will see them
    done: dict[int, Message] = {}
    if step is not None and sent is not None:
        touched = {edit.message for edit in step}
        done = {message.index: message for message in sent.messages if message.index not in touched}
    messages: list[Message] = []
    for message in conv.messages:
        index = message.index
        new = done.get(index) or (_edited(conv, message, inside[index]) if index in inside else message)
        messages.extend(_around(conv, new, whole[index]) if index in whole else (new,))
    messages.extend(_inserted(conv, edit) for edit in whole.get(len(conv.messages), ()) if edit.op == "before")
    return replace(conv, messages=tuple(messages))


def _around(conv: Conversation, message: Message, edits: list[Edit]) -> Iterator[Message]:
    """What edits of a whole message make of it."""
    yield from (_inserted(conv, edit) for edit in edits if edit.op == "before")
    if not any(edit.op == "drop" for edit in edits):
        yield message
    yield from (_inserted(conv, edit) for edit in edits if edit.op == "after")


def _inserted(conv: Conversation, edit: Edit) -> Message:
    return conv.dialect.read(INSERTED_INDEX, edit.value)


def _edited(conv: Conversation, message: Message, edits: list[Edit]) -> Message:
    """Values keep their positions, so that later strategies can name them.

    Only a message that gains parts is read anew from its new wire form; nothing may edit it after that.
    """
    if any(edit.op in ("before", "after") or _reshapes(edit) for edit in edits):
        changes = Plan(tuple(replace(edit, message=0) for edit in edits)).changes()
        wire = rebuild([message.wire], changes)[0]
        return conv.dialect.read(message.index, wire)
    by_path = {edit.path: edit for edit in edits}
    inside: dict[Path, list[Change]] = {}
    for path, edit in by_path.items():
        inside.setdefault(path[:-1], []).append(Change(path[-1:], "set", edit.added))
    parts = [new for part in message.parts if (new := _part(part, by_path, inside)) is not None]
    return Message(message.index, message.role, tuple(parts), message.wire)


def _reshapes(edit: Edit) -> bool:
    """A content string becomes a list of parts."""
    return isinstance(edit.value, list)


def _part(part: Part, edits: Mapping[Path, Edit], inside: Mapping[Path, list[Change]]) -> Part | None:
    edit = edits.get(part.path)
    if edit is not None and edit.op == "drop":
        return None
    if isinstance(part, Text):
        return part if edit is None else Text(edit.added, part.path)
    if isinstance(part, ToolCall):
        if (new := edits.get(part.input_path)) is not None:
            return replace(part, input=new.written)
        changes = inside.get(part.input_path)
        return replace(part, input=rebuild(part.input, changes)) if changes else part
    if isinstance(part, ToolResult) and any(segment.path in edits for segment in part.segments):
        segments = tuple(
            Text(edits[segment.path].added, segment.path)
            if isinstance(segment, Text) and segment.path in edits
            else segment
            for segment in part.segments
        )
        return ToolResult(part.call_id, segments, part.path, part.failed)
    return part


def own_texts(message: Message) -> Iterator[tuple[Path, str]]:
    """Texts of the model itself (what it says, and strings that it gives to tools), and where they stand."""
    for part in message.parts:
        if isinstance(part, Text) and message.role == "assistant":
            yield part.path, part.text
        elif isinstance(part, ToolCall):
            given = arguments(part)
            if given is None and isinstance(part.input, str):
                yield part.input_path, part.input
            for key, value in (given or {}).items():
                if isinstance(value, str):
                    yield (*part.input_path, key), value


@dataclass(frozen=True, slots=True)
class Target:
    """What an edit inside a message would touch."""

    kind: Kind
    text: str | None = None
    """What stands there, if the edit puts something in its place."""


class Targets:
    """What edits of one message would touch: each is found at once, however many parts the message has."""

    def __init__(self, message: Message) -> None:
        self.message = message
        self._parts: dict[Path, Part] = {}
        self._texts: dict[Path, Target] = {}
        self._calls: dict[Path, ToolCall] = {}
        self._given: dict[Path, Mapping[Any, Any]] = {}
        for part in message.parts:
            self._parts.setdefault(part.path, part)
            if isinstance(part, ToolResult):
                for segment in part.segments:
                    if isinstance(segment, Text) and not segment.bound:
                        self._texts.setdefault(segment.path, Target("result", segment.text))
            elif isinstance(part, Text):
                if message.role == "assistant" and not part.bound:
                    self._texts.setdefault(part.path, Target("assistant text", part.text))
            elif isinstance(part, ToolCall) and not part.bound:
                self._calls.setdefault(part.input_path, part)

    def of(self, edit: Edit) -> Target | None:
        """None when it is nothing that may be touched, or not in that way."""
        if edit.op in ("before", "after") or _reshapes(edit):
            return Target("messages")
        if edit.op == "drop":
            part = self._parts.get(edit.path)
            if isinstance(part, ToolResult):
                return Target("messages")
            return Target("thinking") if isinstance(part, Thinking) and part.removable else None
        found = self._texts.get(edit.path) or self._argument(edit.path)
        written = edit.value is None or isinstance(edit.value, str)
        return found if found is not None and (written or found.kind == "arguments") else None

    def _argument(self, path: Path) -> Target | None:
        """The arguments of a call, or a text that is one of them."""
        if path in self._calls:
            return Target("arguments", self._calls[path].arguments)
        call = path[:-1]
        if not path or call not in self._calls:
            return None
        if call not in self._given:
            self._given[call] = arguments(self._calls[call]) or {}
        value = self._given[call].get(path[-1])
        return Target("arguments", value) if isinstance(value, str) else None


def target(message: Message, edit: Edit) -> Target | None:
    """What a single edit would touch."""
    return Targets(message).of(edit)
