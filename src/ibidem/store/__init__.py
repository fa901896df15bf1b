"""Originals that were taken out of a conversation, and the state of sessions: kept until nobody refers to them."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from .memory import HERE, MemoryStore
from .redis import RedisStore
from .sqlite import SqliteStore
from .store import Store, StoreError, StoreStats, reference

__all__ = [
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
    max_bytes: int | None = None,
    max_age: float | None = None,
    clock: Callable[[], float] = time.time,
) -> Store:
    """`memory:`, the URL of a Redis server, or the path of an SQLite file. Nothing is opened before its first use."""
    if target == HERE:
        return MemoryStore(max_bytes=max_bytes, max_age=max_age, clock=clock)
    if isinstance(target, str) and target.startswith(SERVERS):
        return RedisStore(target, max_bytes=max_bytes, max_age=max_age, clock=clock)
    if isinstance(target, str) and "://" in target:
        raise StoreError(target.partition("://")[0], f"no such kind of store: a path, {HERE}, or {', '.join(SERVERS)}")
    return SqliteStore(Path(target), max_bytes=max_bytes, max_age=max_age, clock=clock)
