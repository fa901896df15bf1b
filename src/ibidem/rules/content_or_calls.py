"""An assistant message says something or calls something."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..model import Conversation
from .rule import CHAT, Violation, at


class ContentOrCalls:
    name = "content-or-calls"
    formats = frozenset({CHAT})

    def violations(self, conv: Conversation) -> Iterator[Violation]:
        for message in conv.messages:
            if message.role == "assistant" and not message.parts and not _other_content(message.wire):
                yield Violation(
                    self.name, at(conv, message), "The assistant message has neither content nor tool calls."
                )


def _other_content(wire: Any) -> bool:
    return any(wire.get(field) for field in ("function_call", "refusal", "audio"))
