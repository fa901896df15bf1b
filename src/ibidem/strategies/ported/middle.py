"""The middle of a long conversation goes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from ...markers import codetether
from ...model import Conversation, Kind, Message, Thinking, size, to_json
from ...plan import Edit
from ..strategy import Strategy


@dataclass(frozen=True, slots=True, kw_only=True)
class DropMiddle(Strategy):
    """Keep the first and the last messages, say how much went between them.

    A call is never parted from its results, nor reasoning from the item it led to.
    """

    name: ClassVar[str] = "middle"
    touches: ClassVar[frozenset[Kind]] = frozenset({"messages"})

    sinks: int = 2
    """Messages kept at the start."""
    window: int = 16
    """Messages kept at the end."""
    min_messages: int = 22
    """Shorter conversations stay whole."""

    def plan(self, conv: Conversation) -> Iterator[Edit]:
        start, end = self.cut(conv)
        going = conv.messages[start:end]
        if len(going) < 2:
            return
        texts = tuple(text for message in going for text in message.texts())
        marker = codetether.middle(len(going), sum(map(size, texts)))
        if size(to_json(conv.dialect.user_message(marker))) >= sum(_wire_size(message) for message in going):
            return
        for message in going:
            yield Edit(strategy=self.name, op="drop", message=message.index, removed=tuple(message.texts()), hits=0)
        yield self._mark(conv, start, marker)

    def cut(self, conv: Conversation) -> tuple[int, int]:
        """Positions between which everything goes."""
        messages = conv.messages
        if len(messages) < self.min_messages:
            return 0, 0
        start, end = self.sinks, len(messages) - self.window
        while end < len(messages) and _belongs_to_next(messages[end - 1]):
            end += 1
        while end < len(messages) and messages[end].results:
            end += 1
        apart = conv.dialect.answers == "later"  # a turn's thinking and its calls are messages of their own
        while start < end and (messages[start].results or (apart and _belongs_to_next(messages[start - 1]))):
            start += 1
        if end == len(messages):
            return 0, 0
        if conv.dialect.alternating and messages[end].speaker == "user":
            if messages[end - 1].role != "assistant":
                return 0, 0
            end -= 1  # the marker is the user's turn: the answer before this one stays
        return start, end

    def _mark(self, conv: Conversation, start: int, marker: str) -> Edit:
        before = conv.messages[start - 1]
        reason = f"between the first {self.sinks} and the last {self.window} messages"
        blocks = conv.dialect.parts_path(before) if before.index >= 0 else None
        if conv.dialect.alternating and before.speaker == "user" and blocks is not None:
            path = (*blocks, len(before.wire[blocks[0]]))
            value = conv.dialect.text_block(marker)
            return Edit(
                strategy=self.name,
                op="before",
                message=before.index,
                path=path,
                added=marker,
                value=value,
                reason=reason,
            )
        value = conv.dialect.user_message(marker)
        following = conv.messages[start].index
        return Edit(strategy=self.name, op="before", message=following, added=marker, value=value, reason=reason)


def _belongs_to_next(message: Message) -> bool:
    if message.role != "assistant":
        return False
    only_thinks = bool(message.parts) and all(isinstance(part, Thinking) for part in message.parts)
    return bool(message.calls) or only_thinks


def _wire_size(message: Message) -> int:
    return size(to_json(message.wire))
