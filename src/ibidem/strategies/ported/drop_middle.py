"""Remove the middle of a long conversation."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from ...markers import codetether
from ...model import Conversation, Kind, Message, Opaque, Path, Text, Thinking, ToolCall, ToolResult, utf8_size
from ...plan import Edit
from ...wire import Op
from ..strategy import ProviderDemands
from .ported_strategy import Ported, codetether_arguments, codetether_messages

_FILE_KINDS = frozenset({"image", "file", "image_url", "input_image", "input_file", "input_audio", "document"})
_FILE_KINDS |= {"inlineData", "inline_data", "fileData", "file_data"}
_FILE_BYTES = 1024
"""Bytes that the original counts for an image or a file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DropMiddle(Ported):
    """Keep the first and the last messages, and put one marker in place of the rest."""

    name: ClassVar[str] = "middle"
    touches: ClassVar[frozenset[Kind]] = frozenset({"messages"})

    sinks: int = 2
    """Number of messages that stay at the start."""
    window: int = 16
    """Number of messages that stay at the end."""
    min_messages: int = 22
    """Shorter conversations stay whole."""

    def edits(self, conv: Conversation, demands: ProviderDemands) -> Iterator[Edit]:
        messages = codetether_messages(conv)
        if len(messages) < self.min_messages:
            return
        start, end = self._removed_range(messages)
        if end <= start + 1:
            return
        if conv.dialect.answers == "later":
            start, end = _with_whole_turns(messages, start, end, demands)
            if end <= start + 1:
                return
        host, is_leading = None, False
        if conv.dialect.alternating and _meets_user(messages, start, end) and demands.override_original():
            end, host, is_leading = _fit_marker(messages, start, end)
            if end <= start + 1:
                return
        removed_messages = messages[start:end]
        total = sum(map(_counted_bytes, removed_messages))
        marker = codetether.trim_marker(len(removed_messages), total)
        yield from self._drop_messages(messages, start, end)
        counted_bytes = max(0, total - utf8_size(marker))
        if host is not None:
            yield self._merge_marker(conv, host, is_leading, marker, counted_bytes)
            return
        # If the other half of the first message stays, the marker follows it.
        is_halved = start > 0 and messages[start - 1].index == messages[start].index
        value = conv.dialect.user_message(marker)
        op: Op = "after" if is_halved else "before"
        yield self._make_edit(
            op, messages[start].index, (), added=marker, value=value, hits=1, counted_bytes=counted_bytes
        )

    def _removed_range(self, messages: Sequence[Message]) -> tuple[int, int]:
        """Positions between which the original removes all messages."""
        total = len(messages)
        start, end = self.sinks, total - self.window
        if end <= start:  # settings other than the original's
            return start, end
        while end < total and messages[end - 1].role == "assistant" and messages[end - 1].calls:
            end += 1
        while end < total and messages[end].role == "tool":
            end += 1
        while start < end and messages[start].role == "tool":
            start += 1
        return start, end

    def _drop_messages(self, messages: Sequence[Message], start: int, end: int) -> Iterator[Edit]:
        kept_indexes = {message.index for message in (*messages[start - 1 : start], *messages[end : end + 1])}
        last: int | None = None
        for message in messages[start:end]:
            if message.index in kept_indexes:  # one half of the message stays
                for part in message.parts:
                    path = part.path[:-1] if type(part) is Text else part.path
                    yield self._make_edit("drop", message.index, path)
            elif message.index != last:  # both halves of a message are dropped once
                last = message.index
                yield Edit(strategy="middle", op="drop", message=last, hits=0, counted_bytes=0)

    def _merge_marker(
        self, conv: Conversation, message: Message, is_leading: bool, marker: str, counted_bytes: int
    ) -> Edit:
        """Edit that puts the marker into a message as a text block, at its start if `is_leading`, else at its end."""
        block = conv.dialect.text_block(marker)
        blocks = conv.dialect.parts_path(message)
        if blocks is None:
            text = next(part for part in message.parts if type(part) is Text)
            own = conv.dialect.text_block(text.text)
            both = [block, own] if is_leading else [own, block]
            return self._make_edit(
                "set", message.index, text.path, added=marker, value=both, hits=1, counted_bytes=counted_bytes
            )
        path = (*blocks, 0 if is_leading else len(message.wire[blocks[0]]))
        return self._make_edit(
            "before", message.index, path, added=marker, value=block, hits=1, counted_bytes=counted_bytes
        )

    def _make_edit(
        self,
        op: Op,
        index: int,
        path: Path,
        *,
        added: str = "",
        value: Any = None,
        hits: int = 0,
        counted_bytes: int = 0,
    ) -> Edit:
        reason = f"between the first {self.sinks} and the last {self.window} messages"
        return Edit(
            strategy=self.name,
            op=op,
            message=index,
            path=path,
            added=added,
            value=value,
            hits=hits,
            counted_bytes=counted_bytes,
            reason=reason,
        )


def _with_whole_turns(messages: Sequence[Message], start: int, end: int, demands: ProviderDemands) -> tuple[int, int]:
    """Move both ends so that they are not inside a turn: there each call and each reasoning item is a message."""
    exact = start, end
    while end < len(messages) and (_continues_turn(messages[end - 1]) or messages[end].role == "tool"):
        end += 1
    while start < end and start and (_continues_turn(messages[start - 1]) or messages[start].role == "tool"):
        start += 1
    return (start, end) if (start, end) != exact and demands.override_original() else exact


def _continues_turn(message: Message) -> bool:
    """Return True if the next message belongs to the same turn: reasoning leads to an item, a call to others."""
    if message.role != "assistant":
        return False
    return any(type(part) is ToolCall for part in message.parts) or all(
        type(part) is Thinking for part in message.parts
    )


def _meets_user(messages: Sequence[Message], start: int, end: int) -> bool:
    """Return True if a user message in place of the range would follow or precede another one."""
    return "user" in (_first_speaker(reversed(messages[:start])), _first_speaker(messages[end:]))


def _first_speaker(messages: Iterable[Message]) -> str:
    """Role of the first message that is not a system message, which takes no turn; results are the user's."""
    return next((message.speaker for message in messages if message.role != "system"), "")


def _fit_marker(messages: Sequence[Message], start: int, end: int) -> tuple[int, Message | None, bool]:
    """Return the end of the range, the message that takes the marker, and whether it takes it at its start.

    None: the marker can be a separate message. The end moves back to an assistant message if turns would not alternate
    otherwise.
    """
    before = next((message for message in reversed(messages[:start]) if message.role != "system"), None)
    following = messages[end] if end < len(messages) else None
    if before is not None and before.speaker == "user":
        return (end if following is None else _assistant_at(messages, start, end)), before, False
    if following is not None and following.speaker == "user":
        return end, following, True
    return _assistant_at(messages, start, end), None, False


def _assistant_at(messages: Sequence[Message], start: int, end: int) -> int:
    """Position of the last assistant message up to `end`; `start` if no message is the assistant's."""
    while end > start and messages[end].role != "assistant":
        end -= 1
    return end


def _counted_bytes(message: Message) -> int:
    """Size of a message as the original counts it, without thinking."""
    total = 0
    for part in message.parts:
        if type(part) is Text:
            total += utf8_size(part.text)
        elif type(part) is ToolResult:
            total += sum(utf8_size(segment.text) for segment in part.segments if type(segment) is Text)
        elif type(part) is ToolCall:
            total += utf8_size(codetether_arguments(part)) + utf8_size(part.name)
        elif type(part) is Opaque and part.kind in _FILE_KINDS:
            total += _FILE_BYTES
    return total
