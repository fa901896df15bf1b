"""How the accepted requests of a conversation were sent, as values that never change.

A request that cannot be rewritten starts as earlier requests did. Which of them counts depends on how far it agrees
with them: a rewound branch must not start with edits that its parent made later.
"""

from __future__ import annotations

from typing import NamedTuple

from ..engine.incremental import SentPrefix
from ..wire import Scanned

MAX_REVISIONS = 4
"""Revisions of which the last accepted request is kept."""


class SentRequest(NamedTuple):
    """How a request was sent."""

    prefix: SentPrefix
    freed: tuple[float, ...]
    """Tokens that each of its edits removes."""

    @property
    def revised_at(self) -> int:
        """Number of messages of the request that changed earlier messages last; 0 if none did."""
        points = self.prefix.plan.points
        return points[-1].length if points else 0

    def is_followed_by(self, later: SentRequest) -> bool:
        """Return True if `later` is a longer request that was sent in the same way as far as this one goes."""
        return later.prefix.continues(self.prefix) and later.prefix.wrote_alike(self.prefix, self.prefix.messages)

    def cut(self, scanned: Scanned, shared: int) -> SentRequest:
        """A request whose first messages, `shared` of them, are sent as here, and all others unchanged."""
        pairs = zip(self.prefix.plan.edits, self.freed, strict=True)
        freed = tuple(tokens for edit, tokens in pairs if edit.message < shared)
        return SentRequest(self.prefix.cut(scanned, shared), freed)


class SentHistory(NamedTuple):
    """The last accepted request of each revision, newest last."""

    requests: tuple[SentRequest, ...] = ()

    @property
    def newest(self) -> SentRequest | None:
        return self.requests[-1] if self.requests else None

    def add(self, sent: SentRequest) -> SentHistory:
        """The history with one more accepted request. A longer one may have been accepted before it."""
        if any(sent.is_followed_by(each) for each in self.requests if each.revised_at == sent.revised_at):
            return self
        others = [each for each in self.requests if each.revised_at != sent.revised_at]
        return SentHistory((*others, sent)[-MAX_REVISIONS:])

    def for_request(self, scanned: Scanned) -> tuple[SentRequest, int] | None:
        """The newest request that this one starts like, and the number of messages in common; None if there is none.

        Messages were sent in its way only up to the request that revised them, so all of those have to be in common.
        """
        for sent in reversed(self.requests):
            shared = sent.prefix.shared(scanned)
            if shared and sent.revised_at <= shared:
                return sent, shared
        return None


NOTHING_SENT = SentHistory()
