"""Read and write the journal of a conversation in a store.

A conversation may continue in several processes, one after the other or at the same time. Each process appends its
rows, and only after it has read the rows of the others (`Store.note`). So the last row of a request has all facts.
"""

from __future__ import annotations

import logging

from ..errors import IbidemError
from ..store.store import JOURNAL_START, JournalPage, Store, StoreError
from .journal import Position
from .session import Session

log = logging.getLogger("ibidem")

MAX_TRIES = 64
"""Maximum attempts to append while other processes are faster."""


class JournalStore:
    """Synchronizes the journal of one session with the store. Not thread-safe: callers use a lock."""

    def __init__(self, session: Session, store: Store, name: str) -> None:
        """`name` is the name of the conversation in the store."""
        self._session, self._store, self._name = session, store, name
        self._position = JOURNAL_START
        self._rows: dict[Position, bytes] = {}
        """Last stored row of each request."""
        self._old_state: bytes | None = None
        """Journal in the older format: one state instead of rows."""
        self._has_loaded = False

    def __bool__(self) -> bool:
        """True if the store had entries of the conversation when it was last read."""
        return self._old_state is not None or bool(self._rows)

    def share_with(self, session: Session) -> None:
        """Add the entries that were read so far to another session. This may be called at any time."""
        session.learn_rows(list(self._rows.values()))
        _learn_state(session, self._old_state)

    def read(self) -> None:
        """Read the entries of other processes into the session. Raises StoreError, or another error of the store."""
        self._add_page(self._store.notes(self._name, self._position))
        if not self._has_loaded:
            self._old_state = self._store.load(self._name)
            _learn_state(self._session, self._old_state)
            self._has_loaded = True

    def write(self) -> None:
        """Append the session's unsaved entries to the store. Raises StoreError, or another error of the store."""
        for _ in range(MAX_TRIES):
            unsaved_entries = self._session.unsaved()
            if not unsaved_entries.rows:
                return
            page = self._store.note(self._name, unsaved_entries.rows, self._position)
            if page.added:
                self._position = page.place
                self._rows.update(zip(unsaved_entries.entries, unsaved_entries.rows, strict=True))
                self._session.saved(unsaved_entries)
                return
            self._add_page(page)
        raise StoreError(self._store.where, "other processes keep adding to this conversation: try again")

    def _add_page(self, page: JournalPage) -> None:
        is_new_log = page.place.log != self._position.log
        is_lost = is_new_log and bool(self._position.log)
        if is_lost:
            self._rows = {}
        self._position = page.place
        if page.rows or is_lost:
            self._rows.update(self._session.learn_rows(page.rows, is_lost))


def _learn_state(session: Session, state: bytes | None) -> None:
    """Load a state into the session. A damaged state, or one of another version, is ignored with a warning."""
    if state is None:
        return
    try:
        session.learn(state)
    except IbidemError as error:
        log.warning("a stored conversation could not be loaded, starting without it: %s", error)
