"""What is held of a conversation while the proxy runs."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from sys import getsizeof
from typing import Any, NamedTuple

from ...billing.collapse import Billed
from ...plan import Edit
from .bill import Account
from .ledger import CacheView
from .rows import ConversationRow, ExchangeRow

MAX_EXCHANGES, MAX_DETAILS = 500, 50
"""Requests of one conversation that are held, and those of them that are held with their texts."""

MAX_PREFIX_ENDS = 32
"""Requests whose ends are remembered: enough for the 20 blocks that a provider looks back over, and several forks."""

POINTER_BYTES, EDIT_BYTES = 8, 600
"""Bytes in memory that an edit takes in each list that has it, and beside its texts."""


class PrefixEnd(NamedTuple):
    """Size of a request as it was sent, by its provider's count."""

    tokens: int
    messages: int


@dataclass(slots=True)
class WatchedConversation:
    """What is known of a conversation to judge its next answer by."""

    row: ConversationRow
    account: Account
    exchanges: deque[ExchangeRow] = field(default_factory=lambda: deque(maxlen=MAX_EXCHANGES))
    details: OrderedDict[str, tuple[tuple[Edit, ...], int]] = field(default_factory=OrderedDict)
    """The edits of the newest requests, and how many messages were not new in each."""
    texts: int = 0
    """Bytes that the texts in them and in the account take in memory, about: requests share them."""
    active: int = 0
    """Requests that are on their way."""
    last: Billed | None = None
    prefix_ends: list[PrefixEnd] = field(default_factory=list)
    """Ends of the first and the last requests, in ascending order: a provider may have them in its cache."""
    seen: CacheView = field(default_factory=CacheView)

    def note_edits(self, exchange: str, edits: tuple[Edit, ...], first_new: int, made: Iterable[Edit]) -> None:
        """These are the edits of a request, of which some were just made."""
        self.texts += POINTER_BYTES * len(edits) + sum(map(_memory_of, made if self.details else edits))
        self.details[exchange] = (edits, first_new)
        if len(self.details) > MAX_DETAILS:
            self.texts -= POINTER_BYTES * len(self.details.popitem(last=False)[1][0])

    def note_billed(self, billed: Billed) -> None:
        ends = self.prefix_ends
        if self.last is not None and self.last.model != billed.model:
            ends.clear()
        # A revision leaves the first messages as they are: what the user said, and no result yet.
        if billed.revised:
            del ends[1:]
        elif len(ends) >= MAX_PREFIX_ENDS:
            del ends[1]
        while ends and ends[-1].tokens >= billed.sent:
            ends.pop()
        ends.append(PrefixEnd(billed.sent, billed.messages))
        self.last = billed

    def forget_texts(self) -> None:
        self.account.forget_texts()
        self.details.clear()
        self.texts = 0


def _memory_of(edit: Edit) -> int:
    return EDIT_BYTES + getsizeof(edit.added) + sum(map(getsizeof, edit.removed))


def shown_edit(edit: Edit, first_new: int) -> Mapping[str, Any]:
    return {
        "message": edit.message,
        "strategy": edit.strategy,
        "label": edit.reason,
        "before": "\n".join(edit.removed),
        "after": edit.added,
        "bytes_saved": edit.bytes_saved,
        "new": edit.message >= first_new,
    }
