"""Edits, and the functions that apply them.

A strategy proposes edits and changes nothing itself. Every edit names a position in the history as given, so edits of
several strategies can be combined, printed, priced, rejected and replayed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec
from msgspec import structs

from .billing.revision_budget import PricedRevision
from .model import (
    INSERTED_INDEX,
    Conversation,
    Kind,
    Message,
    Part,
    Path,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    utf8_size,
)
from .tool_arguments import arguments_by_name
from .wire import JsonChange, Op, apply_changes


class Edit(msgspec.Struct, frozen=True, kw_only=True):
    """One change to the history, with the texts that it removes and adds."""

    strategy: str
    """The label that it is counted under."""
    op: Op
    """`set` replaces the value at the position, `drop` removes it, `before` and `after` insert next to it."""
    message: int
    """Index in the history as given."""
    path: Path = ()
    """Path inside that message; () is the message itself."""
    removed: tuple[str, ...] = ()
    """The removed texts, not copied."""
    added: str = ""
    """The text that replaces them."""
    value: Any = None
    """The value for the request; None means `added`."""
    fewer_tokens: bool = False
    """True if the strategy ensured that the edit adds no tokens, and no bytes in any JSON style, so that no other code
    must count again."""
    hits: int = 1
    """Number of matches of the strategy; 0 for an edit that only accompanies another."""
    reason: str = ""
    """Why it was made, for people."""
    keeps_structure: bool = False
    """True if the strategy ensured that the edit breaks no structure rule: it removes thinking next to other parts, or
    replaces arguments with others of the right type."""
    counted_bytes: int | None = None
    """Bytes saved, if a ported strategy does not count them from `removed` and `added`."""
    counted_tokens: float | None = None
    """Estimated tokens removed, if `removed` does not show them: thinking may have an empty text."""

    @property
    def bytes_saved(self) -> int:
        """Content bytes saved, never negative: a longer text counts 0."""
        if self.counted_bytes is not None:
            return self.counted_bytes
        return max(0, sum(map(utf8_size, self.removed)) - utf8_size(self.added))

    @property
    def adds_parts(self) -> bool:
        """True if it inserts next to its position, or turns a content string into a list of parts."""
        return self.op in ("before", "after") or isinstance(self.value, list)

    @property
    def written(self) -> Any:
        """The value in the request after the edit."""
        return self.added if self.value is None else self.value


LAYOUT_LABELS = ("shapes",)
"""Labels of edits that change only the layout of a text."""

REPEATED_CALL = "the same call was made again right after a reference"
"""Why the repeat guard sends a text in full."""


class FullText(NamedTuple):
    """A text that was sent before, and is sent in full again."""

    message: int
    """Index of its message in the history as given."""
    path: Path
    """Path inside that message."""
    reason: str = REPEATED_CALL


@dataclass(frozen=True, slots=True)
class Plan:
    """Edits in the order of decision. A later edit of the same position replaces an earlier one."""

    edits: tuple[Edit, ...] = ()
    """The edits, in the order of decision."""
    points: tuple[PricedRevision, ...] = ()
    """Revisions of text that was already sent, with their prices (invariant 3)."""
    full_texts: tuple[FullText, ...] = ()
    """Texts that are sent in full although they were sent before, with the reason. Later edits may still evict them."""

    def __bool__(self) -> bool:
        return bool(self.edits)

    def __len__(self) -> int:
        return len(self.edits)

    def __iter__(self) -> Iterator[Edit]:
        return iter(self.edits)

    def __add__(self, other: Plan) -> Plan:
        return Plan(self.edits + other.edits, self.points + other.points, self.full_texts + other.full_texts)

    @property
    def full_text_lines(self) -> list[str]:
        """A line for each reason why texts are sent in full, with their number. Evicted texts are not counted."""
        replaced = {(edit.message, edit.path) for edit in self.edits if edit.strategy not in LAYOUT_LABELS}
        reasons = Counter(each.reason for each in self.full_texts if each[:2] not in replaced)
        return [f"{count:,} result{'s' * (count != 1)} sent in full: {reason}" for reason, count in reasons.items()]

    @property
    def structural(self) -> bool:
        """True if any edit does more than replace a text. Only such edits can break a structure rule."""
        return any((edit.op != "set" or edit.value is not None) and not edit.keeps_structure for edit in self.edits)

    @property
    def adds_parts(self) -> bool:
        """True if it adds parts to messages, which are then parsed again."""
        return any(edit.path and edit.adds_parts for edit in self.edits)

    def changes(self, prefix: Path = ()) -> list[JsonChange]:
        """Return the changes to the request, one per position. `prefix` leads to the history."""
        final: dict[tuple[Any, ...], JsonChange] = {}
        removed_messages = {edit.message for edit in self.edits if edit.op == "drop" and not edit.path}
        removed_parts = {(edit.message, edit.path) for edit in self.edits if edit.op == "drop" and edit.path}
        for number, edit in enumerate(self.edits):
            if edit.path and (edit.message in removed_messages or (removed_parts and _is_inside(edit, removed_parts))):
                continue
            change = JsonChange((*prefix, edit.message, *edit.path), edit.op, edit.written)
            is_insertion = edit.op in ("before", "after")
            final[(change.path, number) if is_insertion else (change.path, None)] = change
        return list(final.values())


def _is_inside(edit: Edit, removed_parts: set[tuple[int, Path]]) -> bool:
    """Return True if an edit changes something inside a part that is dropped."""
    return any((edit.message, edit.path[:length]) in removed_parts for length in range(1, len(edit.path)))


def apply_plan(
    conv: Conversation, plan: Plan, step: Plan | None = None, sent: Conversation | None = None
) -> Conversation:
    """Return the conversation as it will be sent. Messages without edits are the same objects.

    If the plan ends in `step`, and the edits before it were applied already to give `sent`, only messages that the step
    changes are created again.
    """
    if not plan:
        return conv
    edits_inside: dict[int, list[Edit]] = {}
    message_edits: dict[int, list[Edit]] = {}
    for edit in plan.edits:
        (edits_inside if edit.path else message_edits).setdefault(edit.message, []).append(edit)
    if edits_inside:
        for index in [index for index, edits in message_edits.items() if any(edit.op == "drop" for edit in edits)]:
            edits_inside.pop(index, None)  # the whole message is removed
    reused: dict[int, Message] = {}
    if step is not None and sent is not None:
        changed_indexes = {edit.message for edit in step}
        reused = {message.index: message for message in sent.messages if message.index not in changed_indexes}
    messages: list[Message] = []
    for message in conv.messages:
        index = message.index
        rewritten_message = reused.get(index) or (
            _edit_message(conv, message, edits_inside[index]) if index in edits_inside else message
        )
        messages.extend(
            _with_insertions(conv, rewritten_message, message_edits[index])
            if index in message_edits
            else (rewritten_message,)
        )
    messages.extend(
        _new_message(conv, edit) for edit in message_edits.get(len(conv.messages), ()) if edit.op == "before"
    )
    return Conversation(tuple(messages), conv.dialect, conv.head, conv.whole)


def apply_step(sent: Conversation, step: Plan) -> Conversation:
    """Return the conversation with more edits. No earlier edit may have moved their positions.

    Its time depends only on these edits, unlike `apply_plan`, which visits the whole history.
    """
    edits_inside: dict[int, list[Edit]] = {}
    insertions: dict[int, list[Edit]] = {}
    removed_messages: set[int] = set()
    for edit in step.edits:
        if edit.path:
            edits_inside.setdefault(edit.message, []).append(edit)
        elif edit.op == "drop":
            removed_messages.add(edit.message)
        else:
            insertions.setdefault(edit.message, []).append(edit)
    messages: Sequence[Message] = sent.messages
    if edits_inside:
        messages = [
            _edit_message(sent, message, edits_inside[message.index])
            if message.index in edits_inside and message.index not in removed_messages
            else message
            for message in messages
        ]
    if insertions:
        messages = [
            new for message in messages for new in _with_insertions(sent, message, insertions.get(message.index, ()))
        ]
    if removed_messages:
        messages = [message for message in messages if message.index not in removed_messages]
    return Conversation(tuple(messages), sent.dialect, sent.head, sent.whole)


def _with_insertions(conv: Conversation, message: Message, edits: Sequence[Edit]) -> Sequence[Message]:
    """Return the messages that replace one."""
    if not edits:
        return (message,)
    before = [_new_message(conv, edit) for edit in edits if edit.op == "before"]
    unchanged = () if any(edit.op == "drop" for edit in edits) else (message,)
    return (*before, *unchanged, *(_new_message(conv, edit) for edit in edits if edit.op == "after"))


def _new_message(conv: Conversation, edit: Edit) -> Message:
    return conv.dialect.read_message(INSERTED_INDEX, edit.value)


def _edit_message(conv: Conversation, message: Message, edits: list[Edit]) -> Message:
    """Apply edits inside a message. Values keep their positions, so that later strategies can name them.

    A message that gains parts is parsed again from its new wire form. It must not be edited after that.
    """
    if any(edit.adds_parts for edit in edits):
        changes = Plan(tuple(structs.replace(edit, message=0) for edit in edits)).changes()
        wire = apply_changes([message.wire], changes)[0]
        return conv.dialect.read_message(message.index, wire)
    by_path = {edit.path: edit for edit in edits}
    parts = [new for part in message.parts if (new := _edit_part(part, by_path)) is not None]
    return Message(message.index, message.role, tuple(parts), message.wire)


def _edit_part(part: Part, edits: Mapping[Path, Edit]) -> Part | None:
    edit = edits.get(part.path)
    if edit is not None and edit.op == "drop":
        return None
    if type(part) is Text:
        block = edits.get(part.path[:-1])  # a block is dropped whole; its text is replaced
        if block is not None and block.op == "drop":
            return None
        return part if edit is None else Text(edit.added, part.path)
    if type(part) is ToolCall:
        return _edit_call(part, edits)
    if type(part) is ToolResult and any(segment.path in edits for segment in part.segments):
        segments = tuple(
            Text(edits[segment.path].added, segment.path)
            if type(segment) is Text and segment.path in edits
            else segment
            for segment in part.segments
        )
        return structs.replace(part, segments=segments)
    return part


def _edit_call(call: ToolCall, edits: Mapping[Path, Edit]) -> ToolCall:
    """Return a call with edited arguments."""
    if (new := edits.get(call.input_path)) is not None:
        return structs.replace(call, input=new.written)
    depth = len(call.input_path)
    changes = [
        JsonChange(path[depth:], "set", edit.added)
        for path, edit in edits.items()
        if len(path) == depth + 1 and path[:depth] == call.input_path
    ]
    return structs.replace(call, input=apply_changes(call.input, changes)) if changes else call


def model_texts(message: Message) -> Iterator[tuple[Path, str]]:
    """Yield the texts that the model wrote (messages, and string arguments of calls), with their positions."""
    for part in message.parts:
        if isinstance(part, Text) and message.role == "assistant":
            yield part.path, part.text
        elif isinstance(part, ToolCall):
            by_name = arguments_by_name(part)
            if by_name is None and isinstance(part.input, str):
                yield part.input_path, part.input
            for key, value in (by_name or {}).items():
                if isinstance(value, str):
                    yield (*part.input_path, key), value


@dataclass(frozen=True, slots=True)
class EditTarget:
    """What an edit inside a message would touch."""

    kind: Kind
    text: str | None = None
    """The current text, if the edit replaces it."""


class EditTargets:
    """The values that edits of one message may change. Finding one takes constant time."""

    def __init__(self, message: Message) -> None:
        self.message = message
        self._parts: dict[Path, Part] = {}
        self._texts: dict[Path, EditTarget] = {}
        self._calls: dict[Path, ToolCall] = {}
        self._arguments_by_name: dict[Path, Mapping[Any, Any]] = {}
        for part in message.parts:
            self._parts.setdefault(part.path, part)
            if isinstance(part, ToolResult):
                for segment in part.segments:
                    if isinstance(segment, Text) and not segment.bound:
                        self._texts.setdefault(segment.path, EditTarget("result", segment.text))
            elif isinstance(part, Text):
                if message.role == "assistant" and not part.bound:
                    self._texts.setdefault(part.path, EditTarget("assistant text", part.text))
            elif isinstance(part, ToolCall) and not part.bound:
                self._calls.setdefault(part.input_path, part)

    def find_target(self, edit: Edit) -> EditTarget | None:
        """Return what an edit would change; None if the position is protected, or not for this kind of edit."""
        if edit.adds_parts:
            return EditTarget("messages")
        if edit.op == "drop":
            part = self._parts.get(edit.path)
            if isinstance(part, ToolResult):
                return EditTarget("messages")
            return EditTarget("thinking") if isinstance(part, Thinking) and part.removable else None
        target_at = self._texts.get(edit.path) or self._argument_target(edit.path)
        is_text = edit.value is None or isinstance(edit.value, str)
        return target_at if target_at is not None and (is_text or target_at.kind == "arguments") else None

    def _argument_target(self, path: Path) -> EditTarget | None:
        """Return the arguments of a call, or one text among them."""
        if path in self._calls:
            return EditTarget("arguments", self._calls[path].arguments)
        call = path[:-1]
        if not path or call not in self._calls:
            return None
        if call not in self._arguments_by_name:
            self._arguments_by_name[call] = arguments_by_name(self._calls[call]) or {}
        value = self._arguments_by_name[call].get(path[-1])
        return EditTarget("arguments", value) if isinstance(value, str) else None


def find_target(message: Message, edit: Edit) -> EditTarget | None:
    """Return what a single edit would change."""
    return EditTargets(message).find_target(edit)
