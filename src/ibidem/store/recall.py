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


class SaveOriginal(Protocol):
    """Function that stores originals, with their positions. It returns whether they are stored."""

    def __call__(self, originals: Mapping[str, str], places: Mapping[str, str] | None = None, /) -> bool: ...


VERBS = ("put", "get", "refs", "load")
"""Minimum methods of a store."""

NOTED_SECONDS, LONG_PAUSE_SECONDS = 300.0, 6 * 3600.0
"""Minimum seconds between two records of a conversation's use, and idle time after which a store may have deleted
it."""


@cache
def _open_user_store(target: str) -> Store:
    from . import Limits, open_store

    return open_store(target, limits=Limits.usual())


def default_store() -> Store:
    """Return the user's store: `IBIDEM_STORE`, or a file in the data folder. It is opened at the first call."""
    return _open_user_store(store_target())


def check_store(store: Any) -> None:
    """Raise UsageError if `store` is not a store."""
    if store is None or (not isinstance(store, type) and all(hasattr(store, verb) for verb in VERBS)):
        return
    path = store if isinstance(store, str | os.PathLike) else "PATH"
    raise UsageError(f"store: {store!r} is not a store: pass ibidem.store.open_store({str(path)!r})")


def original_writer(store: Store, session: str) -> SaveOriginal:
    """Return a function that stores originals and returns whether it succeeded. If not, texts must not be evicted.

    The function also stores their positions if the store supports it. Errors there are ignored.

    Without originals it records that the conversation is in use, because a store deletes unused ones. After a long idle
    time the store may have deleted it, so the function stores all earlier originals again.
    """
    last_use, is_rewrite_due = 0.0, False
    before: dict[str, str] = {}

    def write_originals(originals: Mapping[str, str], places: Mapping[str, str] | None = None, /) -> bool:
        nonlocal last_use, is_rewrite_due
        now = time.time()  # not monotonic time, which may stop while the machine sleeps
        idle_seconds, last_use = now - last_use, now
        if not originals and 0 <= idle_seconds < NOTED_SECONDS:
            last_use = now - idle_seconds
            return True
        again = before if is_rewrite_due or idle_seconds > LONG_PAUSE_SECONDS else {}
        try:
            if originals or again:
                store.put(session, {**again, **originals})
            else:
                store.load(session)
        except IbidemError as error:
            log.warning("no text was evicted: %s" if originals else "a use was not recorded: %s", error)
            is_rewrite_due = bool(again)
            return False
        is_rewrite_due = False
        before.update(originals)
        if places and hasattr(store, "place"):
            with suppress(IbidemError):
                store.place(places)
        return True

    return write_originals


def recall(ref: str, *, store: Store | None = None) -> str:
    """Fetch an evicted text by the 12 digits in its marker, byte for byte. Raises IbidemError if it is not stored."""
    from .store import is_reference

    check_store(store)
    if not isinstance(ref, str) or not is_reference(ref):
        raise UsageError(f"{ref!r}: not a reference. Pass the 12 hex digits in the marker")
    texts = (store or default_store()).get([ref])
    if ref not in texts:
        where = (store or default_store()).where
        raise IbidemError(f"{ref}: not in the store {where}: pass the store of the conversation")
    return texts[ref]
