"""A request says something."""

from __future__ import annotations

from collections.abc import Iterator

from ..model import Conversation
from .rule import EVERY, Violation, at


class NotEmpty:
    name = "history-not-empty"
    formats = EVERY

    def violations(self, conv: Conversation) -> Iterator[Violation]:
        if conv.whole and not conv.messages and not conv.server_history:
            yield Violation(self.name, at(conv), "The history is empty.")
