"""A function response is an object."""

from __future__ import annotations

from collections.abc import Iterator

from ..model import NO_OBJECT_KIND, Conversation, Opaque
from .rule import GEMINI, Violation, at


class ResponseObject:
    name = "response-is-object"
    formats = frozenset({GEMINI})

    def violations(self, conv: Conversation) -> Iterator[Violation]:
        for message in conv.messages:
            for result in message.results:
                if any(isinstance(segment, Opaque) and segment.kind == NO_OBJECT_KIND for segment in result.segments):
                    yield Violation(self.name, at(conv, message, result.path), "`response` must be an object.")
