"""Arguments have the type the provider parses: an object here, a string there."""

from __future__ import annotations

from collections.abc import Iterator

from ..model import Conversation
from .rule import EVERY, Violation, at


class CallArguments:
    name = "call-arguments"
    formats = EVERY

    def violations(self, conv: Conversation) -> Iterator[Violation]:
        wanted = dict if conv.dialect.object_arguments else str
        for message in conv.messages:
            for call in message.calls:
                if not call.bound and not isinstance(call.input, wanted):
                    what = "a JSON object" if wanted is dict else "a string"
                    yield Violation(self.name, at(conv, message, call.input_path), f"Call arguments must be {what}.")
