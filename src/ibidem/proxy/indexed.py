"""Conversations by something that they share."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from itertools import islice

from .conversation import Key, LiveConversation

OpeningHint = tuple[Key, int]
"""The key of a conversation, and what a request begins with."""

HINT_BYTES = 2048
"""Bytes that the requests of a conversation usually begin with alike."""


def hint_of(key: Key, body: bytes) -> OpeningHint:
    return key, hash(body[:HINT_BYTES])


class ConversationIndex:
    """Used under the lock of who has them."""

    def __init__(self) -> None:
        self._found: dict[Hashable, OrderedDict[str, LiveConversation]] = {}

    def newest(self, name: Hashable, most: int | None = None) -> list[LiveConversation]:
        """Those that were added last come first."""
        found = self._found.get(name)
        return [] if found is None else [*islice(reversed(found.values()), most)]

    def add(self, name: Hashable, conversation: LiveConversation) -> None:
        known = self._found.setdefault(name, OrderedDict())
        known[conversation.id] = conversation
        known.move_to_end(conversation.id)

    def drop(self, name: Hashable, conversation: LiveConversation) -> None:
        known = self._found[name]
        known.pop(conversation.id, None)
        if not known:
            del self._found[name]
