"""Pauses (`ibidem off`, `ibidem on`) in the store, so that replicas agree and a restart changes nothing.

All proxies on one store share one log. A proxy adds its own changes and applies those of others, in the order of the
log.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Iterable
from typing import NamedTuple

from ..store.store import NO_NOTES, Store

log = logging.getLogger("ibidem")

LOG_NAME = "ibidem-pause"
"""Session of the store that has the log."""
MAX_TRIES = 64
"""How often others may be faster, one after the other."""


class Pause(NamedTuple):
    """One change."""

    name: str
    """Name of the conversation in the store; empty for all, also later ones."""
    off: bool


class PauseLog:
    """The log, as far as this process knows it. Safe to use from several threads."""

    def __init__(self, store: Store, apply: Callable[[Pause], None]) -> None:
        self._store, self._apply = store, apply
        self._place = NO_NOTES
        self._lock = threading.Lock()

    def read(self) -> None:
        """Apply what others added. Raises StoreError."""
        with self._lock:
            found = self._store.notes(LOG_NAME, self._place)
            self._place = found.place
            self._apply_all(found.rows)

    def add(self, pause: Pause) -> None:
        """Add a change that was made here. Raises StoreError."""
        row = json.dumps([pause.name, pause.off], separators=(",", ":")).encode()
        with self._lock:
            for _ in range(MAX_TRIES):
                found = self._store.note(LOG_NAME, [row], self._place)
                self._place = found.place
                if found.added:
                    return
                self._apply_all(found.rows)
                self._apply(pause)  # it comes after theirs

    def _apply_all(self, rows: Iterable[bytes]) -> None:
        for row in rows:
            try:
                name, off = json.loads(row)
                pause = Pause(str(name), bool(off))
            except (ValueError, TypeError):
                log.warning("a pause in the store cannot be read: it is skipped")
                continue
            self._apply(pause)
