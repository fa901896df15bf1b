"""The last requests of the conversations that were used last: what begins with one is known by comparing it."""

from __future__ import annotations

from collections import OrderedDict

from ..wire import Scanned
from ..wire.scan import LastRequest
from .conversation import LiveConversation


class RecentBodies:
    """Changed under the lock of who has the conversations. Without a body, hashes of its messages tell the same."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._found: OrderedDict[str, LastRequest] = OrderedDict()
        """By conversation."""
        self.size = 0
        """Bytes that are held."""

    def last(self, conversation: LiveConversation) -> LastRequest | None:
        """None where it is not held."""
        return self._found.get(conversation.id)

    def put(self, conversation: LiveConversation, scanned: Scanned) -> None:
        """It was gone on with by this request."""
        self.drop(conversation)
        last = scanned.last()
        if last is None or last.size > self._most:
            return
        self._found[conversation.id] = last
        self.size += last.size
        while self.size > self._most:
            self.size -= self._found.popitem(last=False)[1].size

    def drop(self, conversation: LiveConversation) -> None:
        gone = self._found.pop(conversation.id, None)
        self.size -= gone.size if gone is not None else 0
