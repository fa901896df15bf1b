"""Names: of an original, by digits of a digest of its content, so that nothing else can be brought back by it; of a
conversation, by the words that it begins with."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from copy import copy

from ..model import Message, Text

REFERENCE_DIGITS = 12
"""Of a reference: one in 280 billion texts would have the same, and the store refuses such a one."""


def reference(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:REFERENCE_DIGITS]


class Opening:
    """Reads messages in order, for the words of a conversation: what the user said before the first answer.

    Formats differ in where a system text stands, and clients in how they part what the user said into blocks and
    messages: neither counts, so that a conversation has the same words however it is written.
    """

    def __init__(self) -> None:
        self._said: list[str] = []
        self._first = ""
        self.ended = False
        """An answer, a call or a result was read: nothing that comes later changes the words."""
        self.counts = False
        """The last message that was read has some of the words in it, or may have."""

    def fork(self) -> Opening:
        """As it is, to go on by itself."""
        found = copy(self)
        found._said = [*self._said]
        return found

    @property
    def words(self) -> str:
        """Of the user, or else the first text of any kind."""
        return "".join(self._said) or self._first

    def read(self, message: Message) -> None:
        if self.ended:
            self.counts = False
            return
        answers = message.role == "assistant" and any(self._said)
        self.counts = not (answers or message.results)
        if self.counts:
            texts = [part.text for part in message.parts if isinstance(part, Text)]
            self._first = self._first or "".join(texts)
            if message.role == "user":
                self._said.extend(texts)
        self.ended = bool(answers or message.calls or message.results)


def conversation_key(words: str) -> str:
    """The name of a conversation in a store."""
    return hashlib.sha256(words.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def words_of(messages: Iterable[Message]) -> str:
    """The words that a conversation with these messages is known by."""
    opening = Opening()
    for message in messages:
        opening.read(message)
    return opening.words
