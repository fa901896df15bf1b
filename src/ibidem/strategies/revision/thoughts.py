"""Record removed thinking in the store, and detect thinking that another process removed.

The store is queried before a revision, and again when thinking is removed: meanwhile another process may have recorded
a conversation with the same words.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ...errors import IbidemError
from ...markers.thinking import Dropped, Spine, blocks_of, record, recorded, stood
from ...model import Message, Path, to_json
from ...store.naming import reference
from ...store.recall import Keep, keeper
from .entry import Entry

if TYPE_CHECKING:
    from ...store import Store

MAX_RECORDS = 256
"""Maximum records under one name. Conversations with the same start share a name, and a lookup reads all records."""


class Thoughts:
    """The thinking of a conversation, and the store's records of removed thinking."""

    def __init__(self, store: Store | None) -> None:
        self.stay = False
        """True if all thinking must stay, because its record would be ambiguous."""
        self._store = store
        self._spine = Spine()
        self._blocks: dict[int, dict[Path, Any]] = {}
        self._compared = 0
        """Number of messages that were compared with the records."""
        self._refs: set[str] = set()
        """References of the records that were read."""
        self._asked = False
        """True if the store was queried for this request."""
        self._kept = self._crowded = False

    def read(self, message: Message) -> None:
        """Add the next message of the conversation."""
        if self._store is None:
            return
        self._spine.read(message)
        if found := blocks_of(message):
            self._blocks[message.index] = found

    def went_before(self) -> bool:
        """Return True if recorded thinking is missing from the messages: another process removed it (invariant 10)."""
        if self._store is None or not self._spine.name:
            return False
        since, self._compared = self._compared, len(self._spine.places)
        self._asked = "_records" not in self.__dict__
        for index, place in enumerate(self._spine.places[since:] if self._records else (), since):
            before, there = stood(self._records.get(index, ()), place), self._blocks.get(index)
            if before and there is None:
                return True
            if before and there is not None:
                same = to_json([*before.values()]) == to_json([*there.values()])
                self.stay, self._crowded = self.stay or not same, self._crowded and not same
        self.stay = self.stay or self._crowded
        return False

    @cached_property
    def _records(self) -> dict[int, list[Dropped]]:
        assert self._store is not None
        try:
            self._refs = self._store.refs(self._spine.name)
            self._crowded = len(self._refs) >= MAX_RECORDS
            return recorded(self._store.get(self._refs).values()) if self._refs else {}
        except IbidemError:
            return {}  # if the store cannot be read, it saves no original either, so nothing is evicted

    def _contradicted(self) -> bool:
        """Return True if other processes added conflicting records since the last query."""
        if self._asked or self._store is None:
            return False
        try:
            if self._store.refs(self._spine.name) == self._refs:
                return False
        except IbidemError:
            return True
        del self._records
        self._compared = 0
        return self.went_before() or self.stay

    @cached_property
    def _keep(self) -> Keep:
        assert self._store is not None
        return keeper(self._store, self._spine.name)

    def keep(self, going: Iterable[Entry]) -> bool:
        """Record the thinking that is removed. Return True if that succeeded."""
        if self._store is None:
            return True
        places, blocks = self._spine.places, self._blocks
        dropped = [
            Dropped(entry.message, places[entry.message], entry.path, blocks[entry.message][entry.path])
            for entry in going
            if entry.kind == "thinking"
        ]
        if not dropped:
            return True
        text = record(dropped)
        if self._contradicted() or not self._keep({reference(text): text}):
            return False
        self._refs = {*self._refs, reference(text)}
        self._kept = True
        return True

    def still_used(self) -> None:
        """Renew the records in the store, so that they do not expire."""
        if self._kept:
            self._keep({})
