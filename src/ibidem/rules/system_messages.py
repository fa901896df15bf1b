"""A system message between the turns is text, and follows the user."""

from __future__ import annotations

from collections.abc import Iterator

from ..model import Conversation, Text
from .rule import ANTHROPIC, Violation, at, sets_output


class SystemMessages:
    name = "system-messages"
    formats = frozenset({ANTHROPIC})

    def violations(self, conv: Conversation) -> Iterator[Violation]:
        before = ""
        for message in conv.messages:
            if sets_output(message):
                continue
            if message.role == "system":
                if before != "user":
                    yield Violation(self.name, at(conv, message), "A system message must follow a user message.")
                if not all(isinstance(part, Text) for part in message.parts):
                    yield Violation(self.name, at(conv, message), "A system message holds text only.")
            before = message.speaker
