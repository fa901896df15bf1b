"""A turn thinks before it calls."""

from __future__ import annotations

from collections.abc import Iterator

from ..model import Conversation, Thinking, ToolCall
from .rule import ANTHROPIC, Violation, at


class ThinkingBeforeCalls:
    name = "thinking-before-calls"
    formats = frozenset({ANTHROPIC})

    def violations(self, conv: Conversation) -> Iterator[Violation]:
        for message in conv.messages:
            called = False
            for part in message.parts:
                called = called or isinstance(part, ToolCall)
                if called and isinstance(part, Thinking):
                    yield Violation(
                        self.name, at(conv, message, part.path), "Thinking stands behind a call of its turn."
                    )
