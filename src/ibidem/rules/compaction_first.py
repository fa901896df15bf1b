"""A compaction block opens the message that carries it."""

from __future__ import annotations

from collections.abc import Iterator

from ..model import Conversation, Opaque
from .rule import ANTHROPIC, Violation, at


class CompactionFirst:
    name = "compaction-first"
    formats = frozenset({ANTHROPIC})

    def violations(self, conv: Conversation) -> Iterator[Violation]:
        for message in conv.messages:
            for position, part in enumerate(message.parts):
                if isinstance(part, Opaque) and part.kind == "compaction" and position:
                    yield Violation(self.name, at(conv, message, part.path), "A compaction block must stand first.")
