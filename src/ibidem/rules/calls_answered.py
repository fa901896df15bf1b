"""Every call is answered where the provider looks for the answer."""

from __future__ import annotations

from collections.abc import Iterator

from ..model import Conversation
from .pairing import Pairing
from .rule import EVERY, Violation, at

WHERE_ANSWERED = {"next": "in the next message", "following": "right after it", "later": "anywhere after it"}


class CallsAnswered:
    name = "calls-answered"
    formats = EVERY

    def among(self, conv: Conversation, pairing: Pairing) -> Iterator[Violation]:
        place = WHERE_ANSWERED[conv.dialect.answers]
        for missing in pairing.unanswered:
            message, call = conv.messages[missing.position], missing.call
            yield Violation(self.name, at(conv, message, call.path), f"Call {call.id!r} has no result {place}.")
