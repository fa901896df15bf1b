"""Where what was let go is kept, and how it comes back."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING, Any, Protocol

from ..environment import store_target
from ..errors import IbidemError, UsageError

if TYPE_CHECKING:
    from . import Store

log = logging.getLogger("ibidem")


class Keep(Protocol):
    def __call__(self, originals: Mapping[str, str], places: Mapping[str, str] | None = None, /) -> bool: ...


VERBS = ("put", "get", "refs", "load")
"""What a store must be able to do, at least."""

NOTED_SECONDS, LONG_PAUSE_SECONDS = 300.0, 6 * 3600.0
"""Seconds within which the use of a conversation is noted once, and after which a store may have forgotten it."""


@cache
def _opened(target: str) -> Store:
    from . import Limits, open_store  # SQLite takes longer to import than the rest of us

    return open_store(target, limits=Limits.usual())


def default_store() -> Store:
    """The store of this user: `IBIDEM_STORE`, or a file in their data folder. Nothing is opened before it is used."""
    return _opened(store_target())


def checked_store(store: Any) -> None:
    """Raises UsageError for what is no store."""
    if store is None or (not isinstance(store, type) and all(hasattr(store, verb) for verb in VERBS)):
        return
    path = store if isinstance(store, str | os.PathLike) else "PATH"
    raise UsageError(f"store: {store!r} is no store: pass ibidem.store.open_store({str(path)!r})")


def keeper(store: Store, session: str) -> Keep:
    """Puts originals into a store; says whether that went well. What cannot be kept stays in the conversation.

    Where they stood is remembered too, where the store can: nothing depends on that.

    Given none, it notes that the conversation is still in use: a store forgets those that are not. After a long pause
    it puts again what it put before.
    """
    noted, owed = 0.0, False
    before: dict[str, str] = {}

    def keep(originals: Mapping[str, str], places: Mapping[str, str] | None = None, /) -> bool:
        nonlocal noted, owed
        now = time.time()  # of day: it goes on while a machine sleeps
        pause, noted = now - noted, now
        if not originals and 0 <= pause < NOTED_SECONDS:
            noted = now - pause
            return True
        again = before if owed or pause > LONG_PAUSE_SECONDS else {}
        try:
            if originals or again:
                store.put(session, {**again, **originals})
            else:
                store.load(session)
        except IbidemError as error:
            log.warning("nothing was let go: %s" if originals else "a use was not noted: %s", error)
            owed = bool(again)
            return False
        owed = False
        before.update(originals)
        if places and hasattr(store, "place"):
            with suppress(IbidemError):
                store.place(places)
        return True

    return keep


def recall(ref: str, *, store: Store | None = None) -> str:
    """Fetch an evicted text by the 12 digits in its marker, byte for byte. Raises IbidemError if it is not stored."""
    from .store import is_reference  # SQLite takes longer to import than the rest of us

    checked_store(store)
    if not isinstance(ref, str) or not is_reference(ref):
        raise UsageError(f"{ref!r}: not a reference. Pass the 12 hex digits in the marker")
    found = (store or default_store()).get([ref])
    if ref not in found:
        where = (store or default_store()).where
        raise IbidemError(f"{ref}: not in the store {where}: name the store that the conversation was kept in")
    return found[ref]
