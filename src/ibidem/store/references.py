"""Names in a store: references of originals, from a digest of the text, and keys of conversations, from their first
user text."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from copy import copy

from ..model import Message, Text

REFERENCE_DIGITS = 12
"""Length of a reference. One in 280 billion texts has the same reference as another. The store rejects it."""


def reference(text: str) -> str:
    """Return the reference of a text: the first 12 hex digits of its SHA-256 digest."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:REFERENCE_DIGITS]


class ConversationOpening:
    """Collects the opening text of a conversation: the user's text before the model's first response.

    The position of system texts depends on the format, and the split into blocks and messages on the client. Neither
    changes the opening text, so a conversation has the same key in all of them.
    """

    def __init__(self) -> None:
        self._said: list[str] = []
        self._first = ""
        self.ended = False
        """A response, call or result was read, so later messages do not change the text."""
        self.counts = False
        """The last message that was read may belong to the opening text."""

    def fork(self) -> ConversationOpening:
        """Return an independent copy."""
        clone = copy(self)
        clone._said = [*self._said]
        return clone

    @property
    def text(self) -> str:
        """Text of the user so far. Without one, the first text of any role."""
        return "".join(self._said) or self._first

    def read_message(self, message: Message) -> None:
        """Read the next message."""
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


def conversation_key(text: str) -> str:
    """Return the key of a conversation in a store, from its opening text."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def opening_text(messages: Iterable[Message]) -> str:
    """Return the opening text of a conversation, which its key is made from."""
    opening = ConversationOpening()
    for message in messages:
        opening.read_message(message)
    return opening.text
