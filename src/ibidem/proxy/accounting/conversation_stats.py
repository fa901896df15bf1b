"""Statistics of one conversation while the proxy runs."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from sys import getsizeof
from typing import Any, NamedTuple

from ...billing.cache_loss import BilledRequest
from ...plan import Edit
from .bill import RemovedTokens
from .exchange_rows import ConversationRow, ExchangeRow
from .shadow_cache import ShadowCache

MAX_EXCHANGES, MAX_DETAILS = 500, 50
"""Maximum requests of one conversation, and maximum requests with the texts of their edits."""

MAX_PREFIX_ENDS = 32
"""Maximum stored request sizes. Enough for a provider's lookback of 20 blocks, and several forks."""

POINTER_BYTES, EDIT_BYTES = 8, 600
"""Estimated memory of an edit: in each list that contains it, and without its texts."""


class PrefixEnd(NamedTuple):
    """Size of a sent request, in the provider's tokens and in messages."""

    tokens: int
    messages: int


@dataclass(slots=True)
class ConversationStats:
    """State of a conversation: its row, its requests, and the data to judge the next response."""

    row: ConversationRow
    account: RemovedTokens
    exchanges: deque[ExchangeRow] = field(default_factory=lambda: deque(maxlen=MAX_EXCHANGES))
    details: OrderedDict[str, tuple[tuple[Edit, ...], int]] = field(default_factory=OrderedDict)
    """Edits of the newest requests, each with the number of messages that were sent before."""
    texts: int = 0
    """Estimated memory of the texts in `details` and `account`, in bytes. Requests share texts."""
    active: int = 0
    """Requests without a complete response."""
    last_billed: BilledRequest | None = None
    prefix_ends: list[PrefixEnd] = field(default_factory=list)
    """Sizes of the first and the last requests, ascending. The provider's cache may end at each."""
    shadow: ShadowCache = field(default_factory=ShadowCache)

    def add_edits(self, exchange: str, edits: tuple[Edit, ...], first_new: int, new_edits: Iterable[Edit]) -> None:
        """Store the edits of a request. `new_edits`: the new ones, whose texts are not counted yet."""
        self.texts += POINTER_BYTES * len(edits) + sum(map(_edit_memory, new_edits if self.details else edits))
        self.details[exchange] = (edits, first_new)
        if len(self.details) > MAX_DETAILS:
            self.texts -= POINTER_BYTES * len(self.details.popitem(last=False)[1][0])

    def add_billed(self, billed: BilledRequest) -> None:
        """Store the size of a request after its response."""
        ends = self.prefix_ends
        if self.last_billed is not None and self.last_billed.model != billed.model:
            ends.clear()
        # A revision does not change the first request, which has only the user's text and no results yet.
        if billed.revised:
            del ends[1:]
        elif len(ends) >= MAX_PREFIX_ENDS:
            del ends[1]
        while ends and ends[-1].tokens >= billed.sent:
            ends.pop()
        ends.append(PrefixEnd(billed.sent, billed.messages))
        self.last_billed = billed

    def forget_texts(self) -> None:
        """Delete the texts of all edits. Counts stay."""
        self.account.forget_texts()
        self.details.clear()
        self.texts = 0


def _edit_memory(edit: Edit) -> int:
    return EDIT_BYTES + getsizeof(edit.added) + sum(map(getsizeof, edit.removed))


def edit_row(edit: Edit, first_new: int) -> Mapping[str, Any]:
    """Return an edit as the page and the API show it."""
    return {
        "message": edit.message,
        "strategy": edit.strategy,
        "label": edit.reason,
        "before": "\n".join(edit.removed),
        "after": edit.added,
        "bytes_saved": edit.bytes_saved,
        "new": edit.message >= first_new,
    }
