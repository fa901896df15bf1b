"""Current models refuse a history that ends in an answer of their own."""

from __future__ import annotations

from collections.abc import Iterator

from ..model import Conversation
from .rule import ANTHROPIC, Violation, at


class LastIsNotAssistant:
    name = "last-is-not-assistant"
    formats = frozenset({ANTHROPIC})

    def violations(self, conv: Conversation) -> Iterator[Violation]:
        if conv.messages and conv.messages[-1].role == "assistant":
            yield Violation(self.name, at(conv, conv.messages[-1]), "The last message must not be the assistant's.")
