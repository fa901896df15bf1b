"""A function response is an object."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ..model import MALFORMED, Conversation, Opaque
from .rule import GEMINI, Violation, at


@dataclass(frozen=True, slots=True)
class ResponseObject:
    name: str = "response-is-object"
    formats: frozenset[str] = frozenset({GEMINI})

    def violations(self, conv: Conversation) -> Iterator[Violation]:
        for message in conv.messages:
            for result in message.results:
                if any(isinstance(segment, Opaque) and segment.kind == MALFORMED for segment in result.segments):
                    yield Violation(self.name, at(conv, message, result.path), "`response` must be an object.")
