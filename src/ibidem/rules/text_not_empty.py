"""No empty texts."""

from __future__ import annotations

from collections.abc import Iterator

from ..model import Conversation, Text
from .rule import ANTHROPIC, GEMINI, Violation, at


class TextNotEmpty:
    name = "text-not-empty"
    formats = frozenset({ANTHROPIC, GEMINI})

    def violations(self, conv: Conversation) -> Iterator[Violation]:
        blank_counts = conv.dialect.blank_is_empty
        for message in conv.messages:
            for part in message.parts:
                if isinstance(part, Text) and not part.bound and not (part.text.strip() if blank_counts else part.text):
                    yield Violation(self.name, at(conv, message, part.path), "The text is empty.")
