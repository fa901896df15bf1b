"""The user speaks first."""

from __future__ import annotations

from collections.abc import Iterator

from ..model import Conversation
from .rule import ANTHROPIC, Violation, at


class FirstIsUser:
    name = "first-is-user"
    formats = frozenset({ANTHROPIC})

    def violations(self, conv: Conversation) -> Iterator[Violation]:
        if conv.messages and conv.messages[0].speaker != "user":
            first = conv.messages[0]
            yield Violation(self.name, at(conv, first), f"The first message must be the user's, not {first.role!r}.")
