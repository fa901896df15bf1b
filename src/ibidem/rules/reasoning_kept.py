"""Reasoning stands directly before the item it led to."""

from __future__ import annotations

from collections.abc import Iterator

from ..model import STORED_KIND, Conversation, Thinking
from .rule import RESPONSES, Violation, at


class ReasoningKept:
    name = "reasoning-before-its-item"
    formats = frozenset({RESPONSES})

    def violations(self, conv: Conversation) -> Iterator[Violation]:
        following = [*conv.messages[1:], None]
        for message, after in zip(conv.messages, following, strict=False):
            thinks = any(isinstance(part, Thinking) for part in message.parts)
            if thinks and (after is None or after.role not in ("assistant", STORED_KIND)):
                yield Violation(self.name, at(conv, message), "The item this reasoning led to does not follow it.")
