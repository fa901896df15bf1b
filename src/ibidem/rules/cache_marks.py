"""At most four cache marks, long-lived ones first; none on thinking, empty text, or a tool that is loaded later."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ..model import Conversation
from .rule import ANTHROPIC, Violation, at

MAX_MARKS = 4


class CacheMarks:
    name = "cache-marks"
    formats = frozenset({ANTHROPIC})

    def violations(self, conv: Conversation) -> Iterator[Violation]:
        marks = list(_marks(conv))
        if len(marks) > MAX_MARKS:
            yield Violation(
                self.name, marks[MAX_MARKS][0], f"{len(marks)} cache marks; the provider takes {MAX_MARKS}."
            )
        short = False
        for position, block in marks:
            long = isinstance(block["cache_control"], dict) and block["cache_control"].get("ttl") == "1h"
            if long and short:
                yield Violation(self.name, position, "A one-hour cache mark stands behind a five-minute one.")
            short = short or not long
            if block.get("type") in ("thinking", "redacted_thinking") or block.get("text") == "":
                yield Violation(self.name, position, "A cache mark cannot stand on thinking or empty text.")
            if block.get("defer_loading"):
                yield Violation(self.name, position, "A cache mark cannot stand on a tool that is loaded later.")


def _marks(conv: Conversation) -> Iterator[tuple[str, dict[str, Any]]]:
    """Marked blocks in the order of the prefix: tools, system, messages; then the request, which counts as its end."""
    for field in ("tools", "system"):
        blocks = conv.head.get(field)
        for number, block in enumerate(blocks if isinstance(blocks, list) else ()):
            if _marked(block):
                yield f"{field}[{number}]", block
    for message in conv.messages:
        content = message.wire.get("content") if isinstance(message.wire, dict) else None
        for number, block in enumerate(content if isinstance(content, list) else ()):
            if not isinstance(block, dict):
                continue
            if block.get("cache_control"):
                yield at(conv, message, ("content", number)), block
            if isinstance(inner := block.get("content"), list):
                for below, segment in enumerate(inner):
                    if _marked(segment):
                        yield at(conv, message, ("content", number, "content", below)), segment
    if _marked(conv.head):
        yield "cache_control", {"cache_control": conv.head["cache_control"]}


def _marked(block: Any) -> bool:
    return isinstance(block, Mapping) and bool(block.get("cache_control"))
