"""Reasoning stands directly before the item it led to."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ..model import Conversation, Thinking
from .rule import RESPONSES, Violation, at


@dataclass(frozen=True, slots=True)
class ReasoningKept:
    name: str = "reasoning-before-its-item"
    formats: frozenset[str] = frozenset({RESPONSES})

    def violations(self, conv: Conversation) -> Iterator[Violation]:
        following = [*conv.messages[1:], None]
        for message, after in zip(conv.messages, following, strict=True):
            thinks = any(isinstance(part, Thinking) for part in message.parts)
            if thinks and (after is None or after.role != "assistant"):
                yield Violation(self.name, at(conv, message), "The item this reasoning led to does not follow it.")
