"""Every result answers a call, once, where the provider expects it."""

from __future__ import annotations

from collections.abc import Iterator

from ..model import Conversation
from .pairing import Pairing
from .rule import EVERY, Violation, at

WHY = {
    "unknown": "answers no call in this request",
    "misplaced": "does not stand where its call is answered",
    "duplicate": "answers a call that has its result already",
}


class ResultsAnswer:
    name = "results-answer-calls"
    formats = EVERY

    def among(self, conv: Conversation, pairing: Pairing) -> Iterator[Violation]:
        for stray in pairing.strays:
            message, result = conv.messages[stray.position], stray.result
            yield Violation(self.name, at(conv, message, result.path), f"Result {result.call_id!r} {WHY[stray.why]}.")
