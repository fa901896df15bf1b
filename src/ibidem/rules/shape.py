"""A message is an object with a role and content of the right type."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ..model import MALFORMED_KIND, Conversation, Message, Opaque, Part, ToolResult
from .rule import EVERY, Violation, at


class MessageShape:
    name = "shape"
    formats = EVERY

    def violations(self, conv: Conversation) -> Iterator[Violation]:
        for message in conv.messages:
            if message.role == MALFORMED_KIND:
                yield Violation(
                    self.name, at(conv, message), "This is not a message: an object with a role is expected."
                )
            for part in message.parts:
                if type(part) is ToolResult:
                    yield from self._among(conv, message, part.segments)
                elif type(part) is Opaque:
                    yield from self._among(conv, message, (part,))

    def _among(self, conv: Conversation, message: Message, parts: Iterable[Part]) -> Iterator[Violation]:
        for part in parts:
            if type(part) is Opaque and part.kind == MALFORMED_KIND and part.path:
                yield Violation(self.name, at(conv, message, part.path), "The content here is of no known type.")
