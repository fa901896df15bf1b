"""A message has content."""

from __future__ import annotations

from collections.abc import Iterator

from ..model import Conversation
from .rule import ANTHROPIC, GEMINI, Violation, at, sets_output


class PartsNotEmpty:
    name = "parts-not-empty"
    formats = frozenset({ANTHROPIC, GEMINI})

    def violations(self, conv: Conversation) -> Iterator[Violation]:
        for message in conv.messages:
            if not message.parts and not sets_output(message):
                yield Violation(self.name, at(conv, message), "The message has no content.")
