"""A request says something."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ..model import Conversation
from .rule import EVERY, Violation, at


@dataclass(frozen=True, slots=True)
class NotEmpty:
    name: str = "history-not-empty"
    formats: frozenset[str] = EVERY

    def violations(self, conv: Conversation) -> Iterator[Violation]:
        if conv.whole and not conv.messages and not conv.server_history:
            yield Violation(self.name, at(conv), "The history is empty.")
