"""A call id is used once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ..model import Conversation
from .rule import ANTHROPIC, Violation, at


@dataclass(frozen=True, slots=True)
class UniqueIds:
    name: str = "unique-call-ids"
    formats: frozenset[str] = frozenset({ANTHROPIC})

    def violations(self, conv: Conversation) -> Iterator[Violation]:
        seen: set[str] = set()
        for message in conv.messages:
            for call in message.calls:
                if call.id in seen:
                    yield Violation(self.name, at(conv, message, call.path), f"Call id {call.id!r} was used before.")
                seen.add(call.id)
