"""Read and write the journal of a conversation in a store.

A conversation may continue in several processes, one after the other or at the same time. Each process appends its
rows, and only after it has read the rows of the others (`Store.note`). So the last row of a request has all facts.
"""

from __future__ import annotations

import logging

from ..errors import IbidemError
from ..store.store import NO_NOTES, Notes, Store, StoreError
from .journal import Position
from .session import Session

log = logging.getLogger("ibidem")

MAX_TRIES = 64
"""Maximum attempts to append while other processes are faster."""


class Notebook:
    """Synchronizes the journal of one session with the store. Not thread-safe: callers use a lock."""

    def __init__(self, session: Session, store: Store, name: str) -> None:
        """`name` is the name of the conversation in the store."""
        self._session, self._store, self._name = session, store, name
        self._place = NO_NOTES
        self._rows: dict[Position, bytes] = {}
        """Last stored row of each request."""
        self._whole: bytes | None = None
        """Journal in the older format: one state instead of rows."""
        self._begun = False

    def __bool__(self) -> bool:
        """True if the store had entries of the conversation when it was last read."""
        return self._whole is not None or bool(self._rows)

    def tell(self, session: Session) -> None:
        """Add the entries that were read so far to another session. This may be called at any time."""
        session.learn_rows(list(self._rows.values()))
        _learn_whole(session, self._whole)

    def read(self) -> None:
        """Read the entries of other processes into the session. Raises StoreError, or another error of the store."""
        self._learn(self._store.notes(self._name, self._place))
        if not self._begun:
            self._whole = self._store.load(self._name)
            _learn_whole(self._session, self._whole)
            self._begun = True

    def write(self) -> None:
        """Append the session's unsaved entries to the store. Raises StoreError, or another error of the store."""
        for _ in range(MAX_TRIES):
            unsaved = self._session.unsaved()
            if not unsaved.rows:
                return
            found = self._store.note(self._name, unsaved.rows, self._place)
            if found.added:
                self._place = found.place
                self._rows.update(zip(unsaved.notes, unsaved.rows, strict=True))
                self._session.saved(unsaved)
                return
            self._learn(found)
        raise StoreError(self._store.where, "other processes keep adding to this conversation: try again")

    def _learn(self, found: Notes) -> None:
        begun_again = found.place.log != self._place.log
        forgotten = begun_again and bool(self._place.log)
        if forgotten:
            self._rows = {}
        self._place = found.place
        if found.rows or forgotten:
            self._rows.update(self._session.learn_rows(found.rows, forgotten))


def _learn_whole(session: Session, state: bytes | None) -> None:
    """Load a state into the session. A damaged state, or one of another version, is ignored with a warning."""
    if state is None:
        return
    try:
        session.learn(state)
    except IbidemError as error:
        log.warning("a stored conversation could not be loaded, starting without it: %s", error)
