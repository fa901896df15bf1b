"""Originals that were taken out of a conversation, and the state of sessions: kept while somebody needs them.

- `store.Store`: what every store promises; durability is said exactly there.
- `memory`, `sqlite` (`database`, `schema`), `redis`: three that keep it.
- `limits`: how long and how much is remembered. `packing`: how a value is written. `naming`: by which name.
- `recall`: where a user's originals are, and how one comes back. `recall_server`: the same as a tool for the model.

A new store is a file with the methods of `Store` and a line in `open_store` below; tests/store/test_store.py holds
each to the contract. What is on disk was written by an older release: a change of `schema` or `packing` must read it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .limits import Limits
from .naming import reference
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
"""Each is loaded when it is first asked for: SQLite takes longer to import than the rest of us."""

SERVER_SCHEMES = ("redis://", "rediss://", "unix://")


def open_store(
    target: str | Path,
    *,
    limits: Limits | None = None,
    clock: Callable[[], float] = time.time,
) -> Store:
    """`memory:`, the URL of a Redis server, or the path of an SQLite file. Nothing is opened before its first use."""
    limits = limits or Limits()
    from .memory import MemoryStore
    from .redis import RedisStore
    from .sqlite import SqliteStore

    if target == MEMORY_TARGET:
        return MemoryStore(limits=limits, clock=clock)
    if isinstance(target, str) and target.startswith(SERVER_SCHEMES):
        return RedisStore(target, limits=limits, clock=clock)
    if isinstance(target, str) and not _is_path(target):
        scheme = target.partition(":")[0]  # what follows may be a password
        raise StoreError(scheme, f"no such kind of store: a path, {MEMORY_TARGET}, or {', '.join(SERVER_SCHEMES)}")
    return SqliteStore(Path(target), limits=limits, clock=clock)


def is_missing(target: str) -> bool:
    """Whether it is a file that is not there: who only looks makes none. StoreError if that cannot be found out."""
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
    """One that begins like the address of a server is a mistake, not a file."""
    return "://" not in target and f"{target.partition(':')[0]}://" not in SERVER_SCHEMES


def __getattr__(name: str) -> Any:
    if name not in _KINDS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f".{_KINDS[name]}", __name__), name)
    return value
