"""A message is an object with a role and content of the right type."""

from __future__ import annotations

from collections.abc import Iterator

from ..model import MALFORMED_KIND, Conversation, Opaque
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
            inside = [segment for result in message.results for segment in result.segments]
            for part in (*message.parts, *inside):
                if isinstance(part, Opaque) and part.kind == MALFORMED_KIND and part.path:
                    yield Violation(self.name, at(conv, message, part.path), "The content here is of no known type.")
