"""The user's default store, a function that stores evicted texts in it, and `recall`, which fetches them."""

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
    """Function that stores originals, with their positions. It returns whether they are stored."""

    def __call__(self, originals: Mapping[str, str], places: Mapping[str, str] | None = None, /) -> bool: ...


VERBS = ("put", "get", "refs", "load")
"""Minimum methods of a store."""

NOTED_SECONDS, LONG_PAUSE_SECONDS = 300.0, 6 * 3600.0
"""Minimum seconds between two records of a conversation's use, and idle time after which a store may have deleted
it."""


@cache
def _opened(target: str) -> Store:
    from . import Limits, open_store

    return open_store(target, limits=Limits.usual())


def default_store() -> Store:
    """Return the user's store: `IBIDEM_STORE`, or a file in the data folder. It is opened at the first call."""
    return _opened(store_target())


def checked_store(store: Any) -> None:
    """Raise UsageError if `store` is not a store."""
    if store is None or (not isinstance(store, type) and all(hasattr(store, verb) for verb in VERBS)):
        return
    path = store if isinstance(store, str | os.PathLike) else "PATH"
    raise UsageError(f"store: {store!r} is not a store: pass ibidem.store.open_store({str(path)!r})")


def keeper(store: Store, session: str) -> Keep:
    """Return a function that stores originals and returns whether it succeeded. If not, texts must not be evicted.

    The function also stores their positions if the store supports it. Errors there are ignored.

    Without originals it records that the conversation is in use, because a store deletes unused ones. After a long idle
    time the store may have deleted it, so the function stores all earlier originals again.
    """
    noted, owed = 0.0, False
    before: dict[str, str] = {}

    def keep(originals: Mapping[str, str], places: Mapping[str, str] | None = None, /) -> bool:
        nonlocal noted, owed
        now = time.time()  # not monotonic time, which may stop while the machine sleeps
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
            log.warning("no text was evicted: %s" if originals else "a use was not recorded: %s", error)
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
    from .store import is_reference

    checked_store(store)
    if not isinstance(ref, str) or not is_reference(ref):
        raise UsageError(f"{ref!r}: not a reference. Pass the 12 hex digits in the marker")
    found = (store or default_store()).get([ref])
    if ref not in found:
        where = (store or default_store()).where
        raise IbidemError(f"{ref}: not in the store {where}: pass the store of the conversation")
    return found[ref]
