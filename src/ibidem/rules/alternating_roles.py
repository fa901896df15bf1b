"""User and assistant take turns; a system message in between is nobody's turn."""

from __future__ import annotations

from collections.abc import Iterator

from ..model import Conversation
from .rule import ANTHROPIC, Violation, at


class AlternatingRoles:
    name = "alternating-roles"
    formats = frozenset({ANTHROPIC})

    def violations(self, conv: Conversation) -> Iterator[Violation]:
        before = ""
        for message in conv.messages:
            if message.role == "system":
                continue
            if message.speaker == before:
                yield Violation(self.name, at(conv, message), f"Two {before} messages in a row.")
            before = message.speaker
