"""Stores for evicted texts and for the state of sessions.

- `store.Store`: the protocol of a store, with its guarantees.
- `memory`, `sqlite` (with `database` and `schema`), `redis`: the implementations. `guarded`: deadlines for any store.
- `retention`: limits on time and size. `value_codec`: the encoding of values. `references`: the names of originals.
- `recall`: the default store, and how to fetch an original. `recall_server`: the same as an MCP tool for the model.

A new store is a file with the methods of `Store` and a line in `open_store` below. tests/store/test_store.py tests all
of them. Files may be from an older release, so a change of `schema` or `value_codec` must still read them.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .references import reference
from .retention import Limits
from .store import MEMORY_TARGET, Store, StoreError, StoreStats

if TYPE_CHECKING:
    from .memory import MemoryStore
    from .redis import RedisStore
    from .sqlite import SqliteStore

__all__ = [
    "Limits",
    "MemoryStore",
    "RedisStore",
    "SqliteStore",
    "Store",
    "StoreError",
    "StoreStats",
    "is_missing",
    "open_store",
    "reference",
]

_KINDS = {"MemoryStore": "memory", "RedisStore": "redis", "SqliteStore": "sqlite"}
"""Module of each store class, imported at first use. The import of SQLite is slower than that of all other modules."""

SERVER_SCHEMES = ("redis://", "rediss://", "unix://")


def open_store(
    target: str | Path,
    *,
    limits: Limits | None = None,
    clock: Callable[[], float] = time.time,
) -> Store:
    """Return the store at `target`: `memory:`, the URL of a Redis server, or the path of an SQLite file.

    It connects at the first call. Raises StoreError for other URLs.
    """
    limits = limits or Limits()
    from .memory import MemoryStore
    from .redis import RedisStore
    from .sqlite import SqliteStore

    if target == MEMORY_TARGET:
        return MemoryStore(limits=limits, clock=clock)
    if isinstance(target, str) and target.startswith(SERVER_SCHEMES):
        return RedisStore(target, limits=limits, clock=clock)
    if isinstance(target, str) and not _is_path(target):
        scheme = target.partition(":")[0]  # the rest may contain a password
        raise StoreError(scheme, f"no such kind of store: use a path, {MEMORY_TARGET}, or {', '.join(SERVER_SCHEMES)}")
    return SqliteStore(Path(target), limits=limits, clock=clock)


def is_missing(target: str) -> bool:
    """Return whether `target` is a file that does not exist. Raises StoreError if that is unknown.

    Callers that only read use this, because opening a store creates its file.
    """
    if target == MEMORY_TARGET or not _is_path(target):
        return False
    try:
        os.stat(target)
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError as error:
        raise StoreError(target, f"{error.strerror or error}: check the path, and that it can be read") from None
    return False


def _is_path(target: str) -> bool:
    """Return whether `target` is a file path. A path that starts like a server's address is a mistake."""
    return "://" not in target and f"{target.partition(':')[0]}://" not in SERVER_SCHEMES


def __getattr__(name: str) -> Any:
    if name not in _KINDS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f".{_KINDS[name]}", __name__), name)
    return value
