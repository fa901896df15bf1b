"""In a message with results the results stand first."""

from __future__ import annotations

from collections.abc import Iterator

from ..model import Conversation, ToolResult
from .rule import ANTHROPIC, Violation, at


class ResultsFirst:
    name = "results-first"
    formats = frozenset({ANTHROPIC})

    def violations(self, conv: Conversation) -> Iterator[Violation]:
        for message in conv.messages:
            other = False
            for part in message.parts:
                if isinstance(part, ToolResult) and other:
                    yield Violation(self.name, at(conv, message, part.path), "A result stands behind other content.")
                other = other or not isinstance(part, ToolResult)
