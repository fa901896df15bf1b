"""What is held of a conversation while the proxy runs."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ...billing.collapse import Billed
from ...plan import Edit
from .bill import Account
from .ledger import CacheView
from .rows import ConversationRow, ExchangeRow

MAX_EXCHANGES = 500
"""Requests of one conversation that are held."""


@dataclass(slots=True)
class WatchedConversation:
    """What is known of a conversation to judge its next answer by."""

    row: ConversationRow
    account: Account
    exchanges: deque[ExchangeRow] = field(default_factory=lambda: deque(maxlen=MAX_EXCHANGES))
    details: OrderedDict[str, tuple[tuple[Edit, ...], int]] = field(default_factory=OrderedDict)
    """The edits of the newest requests, and how many messages were not new in each."""
    texts: int = 0
    """Bytes that the texts in them take, about: requests share them."""
    active: int = 0
    """Requests that are on their way."""
    last: Billed | None = None
    seen: CacheView = field(default_factory=CacheView)


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
