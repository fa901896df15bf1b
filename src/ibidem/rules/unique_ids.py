"""A call id is used once."""

from __future__ import annotations

from collections.abc import Iterator

from ..model import Conversation
from .rule import ANTHROPIC, Violation, at


class UniqueIds:
    name = "unique-call-ids"
    formats = frozenset({ANTHROPIC})

    def violations(self, conv: Conversation) -> Iterator[Violation]:
        seen: set[str] = set()
        for message in conv.messages:
            for call in message.calls:
                if call.id in seen:
                    yield Violation(self.name, at(conv, message, call.path), f"Call id {call.id!r} was used before.")
                seen.add(call.id)
