"""The notes of a conversation in a store: read from where one was, and added to.

A conversation may go on in several processes, one after the other or at once. Each adds what it noted behind what the
others did, and only after it has read that (`Store.note`); so the last row of a request is what all of them know of it.
"""

from __future__ import annotations

import logging

from ..errors import IbidemError
from ..store.store import NO_NOTES, Notes, Store, StoreError
from .journal import Position
from .session import Session

log = logging.getLogger("ibidem")

MAX_TRIES = 64
"""How often others may be faster, one after the other."""


class Notebook:
    """Of one conversation, for one session of it. Its users see to it that only one of them is in it at a time."""

    def __init__(self, session: Session, store: Store, name: str) -> None:
        """`name` is that of the conversation in the store."""
        self._session, self._store, self._name = session, store, name
        self._place = NO_NOTES
        self._rows: dict[Position, bytes] = {}
        """The last of each request that is in the store."""
        self._whole: bytes | None = None
        """All notes as one, as they were kept before there were rows."""
        self._begun = False

    def __bool__(self) -> bool:
        """Whether the store knows the conversation, as far as is known here."""
        return self._whole is not None or bool(self._rows)

    def tell(self, session: Session) -> None:
        """Another session learns what the store has, as far as is known here. That may be asked for at any time."""
        session.learn_rows(list(self._rows.values()))
        _learn_whole(session, self._whole)

    def read(self) -> None:
        """The session learns what others noted. Raises StoreError, and what a store raises."""
        self._learn(self._store.notes(self._name, self._place))
        if not self._begun:
            self._whole = self._store.load(self._name)
            _learn_whole(self._session, self._whole)
            self._begun = True

    def write(self) -> None:
        """What the session noted is in the store when this returns. Raises StoreError, and what a store raises."""
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
        raise StoreError(self._store.where, "others add to the same conversation all the time: try again")

    def _learn(self, found: Notes) -> None:
        begun_again = found.place.log != self._place.log
        forgotten = begun_again and bool(self._place.log)
        if forgotten:
            self._rows = {}
        self._place = found.place
        if found.rows or forgotten:
            self._rows.update(self._session.learn_rows(found.rows, forgotten))


def _learn_whole(session: Session, state: bytes | None) -> None:
    """What is no state, or one of another version, is nothing to go on with: it is begun without."""
    if state is None:
        return
    try:
        session.learn(state)
    except IbidemError as error:
        log.warning("a conversation begins without what was known of it: %s", error)
