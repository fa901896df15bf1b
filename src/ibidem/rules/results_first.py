"""In a message with results the results stand first."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ..model import Conversation, ToolResult
from .rule import ANTHROPIC, Violation, at


@dataclass(frozen=True, slots=True)
class ResultsFirst:
    name: str = "results-first"
    formats: frozenset[str] = frozenset({ANTHROPIC})

    def violations(self, conv: Conversation) -> Iterator[Violation]:
        for message in conv.messages:
            other = False
            for part in message.parts:
                if isinstance(part, ToolResult) and other:
                    yield Violation(self.name, at(conv, message, part.path), "A result stands behind other content.")
                other = other or not isinstance(part, ToolResult)
