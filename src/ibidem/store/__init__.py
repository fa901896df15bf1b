"""Originals that were taken out of a conversation, and the state of sessions: kept while somebody needs them."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from .limits import Limits
from .memory import HERE, MemoryStore
from .redis import RedisStore
from .sqlite import SqliteStore
from .store import Store, StoreError, StoreStats, reference

__all__ = [
    "Limits",
    "MemoryStore",
    "RedisStore",
    "SqliteStore",
    "Store",
    "StoreError",
    "StoreStats",
    "open_store",
    "reference",
]

SERVERS = ("redis://", "rediss://", "unix://")


def open_store(
    target: str | Path,
    *,
    limits: Limits | None = None,
    clock: Callable[[], float] = time.time,
) -> Store:
    """`memory:`, the URL of a Redis server, or the path of an SQLite file. Nothing is opened before its first use."""
    limits = limits or Limits()
    if target == HERE:
        return MemoryStore(limits=limits, clock=clock)
    if isinstance(target, str) and target.startswith(SERVERS):
        return RedisStore(target, limits=limits, clock=clock)
    if isinstance(target, str) and "://" in target:
        raise StoreError(target.partition("://")[0], f"no such kind of store: a path, {HERE}, or {', '.join(SERVERS)}")
    return SqliteStore(Path(target), limits=limits, clock=clock)
