"""The last requests of the conversations that were used last: what begins with one is known by comparing it."""

from __future__ import annotations

from collections import OrderedDict

from ..engine.incremental import SentPrefix
from ..wire import Scanned
from ..wire.scan import Known
from .conversation import LiveConversation


class RecentBodies:
    """Changed under the lock of who has the conversations. Without a body, hashes of its messages tell the same."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._found: OrderedDict[str, tuple[Known, bytes]] = OrderedDict()
        """By conversation."""
        self.size = 0
        """Bytes that are held."""

    def body(self, conversation: LiveConversation, last: SentPrefix) -> bytes:
        """That of the request that was written so, up to the end of its messages; empty where it is not held."""
        found = self._found.get(conversation.id)
        return found[1] if found is not None and found[0] is last.known else b""

    def put(self, conversation: LiveConversation, scanned: Scanned) -> None:
        """It was gone on with by this request."""
        self.drop(conversation)
        known, body = scanned.known, scanned.given
        if known is None or not isinstance(body, bytes) or len(body) > self._most:
            return
        self._found[conversation.id] = known, body[: known.spans[-1][1]]
        self.size += known.spans[-1][1]
        while self.size > self._most:
            self.size -= len(self._found.popitem(last=False)[1][1])

    def drop(self, conversation: LiveConversation) -> None:
        gone = self._found.pop(conversation.id, None)
        self.size -= len(gone[1]) if gone is not None else 0
