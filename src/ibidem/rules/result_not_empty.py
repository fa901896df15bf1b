"""A result has content."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..model import Conversation, Text, ToolResult
from .rule import ANTHROPIC, CHAT, Violation, at


class ResultNotEmpty:
    name = "result-not-empty"
    formats = frozenset({ANTHROPIC, CHAT})

    def violations(self, conv: Conversation) -> Iterator[Violation]:
        for message in conv.messages:
            for result in message.results:
                if not result.segments and _has_content(message.wire, result):
                    yield Violation(self.name, at(conv, message, result.path), "The result's content is empty.")
                elif not conv.dialect.silent_results and _blank(result):
                    yield Violation(self.name, at(conv, message, result.path), "The result's text is empty.")


def _has_content(wire: Any, result: ToolResult) -> bool:
    """An Anthropic result may leave `content` out; an empty list is refused."""
    for step in result.path:
        wire = wire[step]
    return "content" in wire


def _blank(result: ToolResult) -> bool:
    return all(isinstance(segment, Text) and not segment.text for segment in result.segments)
