"""Record removed thinking in the store, and detect thinking that another process removed.

The store is queried before a revision, and again when thinking is removed: meanwhile another process may have recorded
a conversation with the same words.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ...errors import IbidemError
from ...markers.thinking_records import (
    HistoryFingerprint,
    RemovedThinking,
    blocks_of,
    make_record,
    parse_records,
    removed_blocks,
)
from ...model import Message, Path, to_json
from ...store.recall import SaveOriginal, original_writer
from ...store.references import reference
from .entry import InventoryEntry

if TYPE_CHECKING:
    from ...store import Store

MAX_RECORDS = 256
"""Maximum records under one name. Conversations with the same start share a name, and a lookup reads all records."""


class ThinkingHistory:
    """The thinking of a conversation, and the store's records of removed thinking."""

    def __init__(self, store: Store | None) -> None:
        self.must_stay = False
        """True if all thinking must stay, because its record would be ambiguous."""
        self._store = store
        self._fingerprint = HistoryFingerprint()
        self._blocks: dict[int, dict[Path, Any]] = {}
        self._compared_count = 0
        """Number of messages that were compared with the records."""
        self._record_refs: set[str] = set()
        """References of the records that were read."""
        self._is_store_queried = False
        """True if the store was queried for this request."""
        self._has_saved = self._has_too_many_records = False

    def add_message(self, message: Message) -> None:
        """Add the next message of the conversation."""
        if self._store is None:
            return
        self._fingerprint.add_message(message)
        if blocks := blocks_of(message):
            self._blocks[message.index] = blocks

    def was_removed_before(self) -> bool:
        """Return True if recorded thinking is missing from the messages: another process removed it (invariant 10)."""
        if self._store is None or not self._fingerprint.name:
            return False
        start, self._compared_count = self._compared_count, len(self._fingerprint.digests)
        self._is_store_queried = "_records" not in self.__dict__
        for index, place in enumerate(self._fingerprint.digests[start:] if self._records else (), start):
            recorded_blocks, present_blocks = (
                removed_blocks(self._records.get(index, ()), place),
                self._blocks.get(index),
            )
            if recorded_blocks and present_blocks is None:
                return True
            if recorded_blocks and present_blocks is not None:
                same = to_json([*recorded_blocks.values()]) == to_json([*present_blocks.values()])
                self.must_stay, self._has_too_many_records = (
                    self.must_stay or not same,
                    self._has_too_many_records and not same,
                )
        self.must_stay = self.must_stay or self._has_too_many_records
        return False

    @cached_property
    def _records(self) -> dict[int, list[RemovedThinking]]:
        assert self._store is not None
        try:
            self._record_refs = self._store.refs(self._fingerprint.name)
            self._has_too_many_records = len(self._record_refs) >= MAX_RECORDS
            return parse_records(self._store.get(self._record_refs).values()) if self._record_refs else {}
        except IbidemError:
            return {}  # if the store cannot be read, it saves no original either, so nothing is evicted

    def _has_new_conflict(self) -> bool:
        """Return True if other processes added conflicting records since the last query."""
        if self._is_store_queried or self._store is None:
            return False
        try:
            if self._store.refs(self._fingerprint.name) == self._record_refs:
                return False
        except IbidemError:
            return True
        del self._records
        self._compared_count = 0
        return self.was_removed_before() or self.must_stay

    @cached_property
    def _save_record(self) -> SaveOriginal:
        assert self._store is not None
        return original_writer(self._store, self._fingerprint.name)

    def save_removed(self, evictable: Iterable[InventoryEntry]) -> bool:
        """Record the thinking that is removed. Return True if that succeeded."""
        if self._store is None:
            return True
        places, blocks = self._fingerprint.digests, self._blocks
        removed_thinking = [
            RemovedThinking(entry.message, places[entry.message], entry.path, blocks[entry.message][entry.path])
            for entry in evictable
            if entry.kind == "thinking"
        ]
        if not removed_thinking:
            return True
        text = make_record(removed_thinking)
        if self._has_new_conflict() or not self._save_record({reference(text): text}):
            return False
        self._record_refs = {*self._record_refs, reference(text)}
        self._has_saved = True
        return True

    def still_used(self) -> None:
        """Renew the records in the store, so that they do not expire."""
        if self._has_saved:
            self._save_record({})
