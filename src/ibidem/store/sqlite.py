"""A store in one file: what `put` returned from is there after a crash, a kill, and a loss of power."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Any

from .database import Database
from .packing import Packed, original, pack, packed, unpack
from .store import Store, StoreStats, collision, encoded, full, is_reference, known_references

EVER = float("inf")

USE = """
INSERT INTO sessions (name, used) VALUES (?, ?)
ON CONFLICT (name) DO UPDATE SET used = max(used, excluded.used)
"""
"""A clock that is set back must not age what is in use."""

LOOSE = """
SELECT loose.ref, length(body) FROM loose JOIN originals ON originals.ref = loose.ref ORDER BY loose.added, loose.rowid
"""
STATS = """
SELECT originals, (SELECT count(*) FROM sessions), stored, size,
    (SELECT min(added) FROM originals), (SELECT max(added) FROM originals)
FROM totals
"""


@dataclass(eq=False)
class SqliteStore(Store):
    path: Path
    """The file; it and its folder are made when they are first needed."""
    _: KW_ONLY
    max_bytes: int | None = None
    """Of originals as they are kept; None is no limit."""
    max_age: float | None = None
    """Seconds for which a session is live after its last use; None is for ever."""
    clock: Callable[[], float] = time.time

    def __post_init__(self) -> None:
        self.path = Path(self.path).absolute()  # the file is opened later, when we may be elsewhere
        self.where = str(self.path)
        self._database = Database(self.path)

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuilt, (self.path, self.max_bytes, self.max_age, self.clock)

    def put(self, session: str, originals: Mapping[str, str]) -> None:
        new = packed(self.where, originals)
        with self._database.writing() as connection:
            now = self.clock()
            key = _use(connection, session, now)
            written = [self._keep(connection, each, now) for each in new]
            connection.executemany(
                "INSERT OR IGNORE INTO links (session, ref) VALUES (?, ?)", [(key, each.ref) for each in new]
            )
            if self.max_age is not None:
                _expire(connection, now - self.max_age)
            if self.max_bytes is not None and _excess(connection, self.max_bytes) > 0 and any(written):
                raise full(self.where, self.max_bytes)

    def _keep(self, connection: sqlite3.Connection, new: Packed, now: float) -> bool:
        """Whether it had to be written."""
        row = connection.execute("SELECT body FROM originals WHERE ref = ?", (new.ref,)).fetchone()
        if row is None:
            values = (new.ref, new.size, now, new.body)
            connection.execute("INSERT INTO originals (ref, size, added, body) VALUES (?, ?, ?, ?)", values)
            return True
        text = original(new.ref, row[0])
        if text is None:
            connection.execute("UPDATE originals SET size = ?, body = ? WHERE ref = ?", (new.size, new.body, new.ref))
        elif text != new.text:
            raise collision(self.where, new.ref)
        return text is None

    def get(self, refs: Iterable[str]) -> dict[str, str]:
        asked = {ref for ref in refs if is_reference(ref)}
        with self._database.reading() as connection:
            query = "SELECT body FROM originals WHERE ref = ?"
            rows = [(ref, connection.execute(query, (ref,)).fetchone()) for ref in asked]
        texts = {ref: original(ref, row[0]) for ref, row in rows if row}
        return {ref: text for ref, text in texts.items() if text is not None}

    def save(self, session: str, state: bytes, refs: Collection[str]) -> None:
        body, live = pack(state), known_references(self.where, refs)
        with self._database.writing() as connection:
            key = _use(connection, session, self.clock())
            connection.execute("UPDATE sessions SET state = ? WHERE id = ?", (body, key))
            before = {ref for (ref,) in connection.execute("SELECT ref FROM links WHERE session = ?", (key,))}
            gone, new = [(key, ref) for ref in before - live], [(key, ref) for ref in live - before]
            connection.executemany("DELETE FROM links WHERE session = ? AND ref = ?", gone)
            connection.executemany("INSERT INTO links (session, ref) VALUES (?, ?)", new)

    def load(self, session: str) -> bytes | None:
        name = encoded(session)
        with self._database.writing(durable=False) as connection:
            row = connection.execute("SELECT state FROM sessions WHERE name = ?", (name,)).fetchone()
            if row is not None:
                _use(connection, session, self.clock())
        return None if row is None or row[0] is None else unpack(row[0])

    def forget(self, session: str) -> int:
        return self._forget("DELETE FROM sessions WHERE name = ?", encoded(session), EVER)

    def forget_all(self) -> int:
        return self._forget("DELETE FROM sessions WHERE used < ?", EVER, EVER)

    def forget_older(self, seconds: float) -> int:
        before = self.clock() - seconds
        return self._forget("DELETE FROM sessions WHERE used < ?", before, before)

    def _forget(self, sessions: str, which: object, before: float) -> int:
        with self._database.writing() as connection:
            connection.execute(sessions, (which,))
            count = _drop_loose(connection, before)
        self._database.shrink()
        return count

    def stats(self) -> StoreStats:
        with self._database.reading() as connection:
            return StoreStats(*connection.execute(STATS).fetchone())

    def close(self) -> None:
        self._database.close()


def _rebuilt(path: Path, max_bytes: int | None, max_age: float | None, clock: Callable[[], float]) -> SqliteStore:
    return SqliteStore(path, max_bytes=max_bytes, max_age=max_age, clock=clock)


def _use(connection: sqlite3.Connection, session: str, now: float) -> int:
    name = encoded(session)
    connection.execute(USE, (name, now))
    (key,) = connection.execute("SELECT id FROM sessions WHERE name = ?", (name,)).fetchone()
    return int(key)


def _expire(connection: sqlite3.Connection, before: float) -> None:
    connection.execute("DELETE FROM sessions WHERE used < ?", (before,))
    _drop_loose(connection, before)


def _drop_loose(connection: sqlite3.Connection, before: float) -> int:
    found = connection.execute("SELECT ref FROM loose WHERE added < ?", (before,)).fetchall()
    connection.executemany("DELETE FROM originals WHERE ref = ?", found)
    return len(found)


def _excess(connection: sqlite3.Connection, limit: int) -> int:
    """What there is above the limit after making what room can be made."""
    (stored,) = connection.execute("SELECT stored FROM totals").fetchone()
    excess = int(stored) - limit
    victims = []
    if excess > 0:
        for ref, length in connection.execute(LOOSE):
            victims.append((ref,))
            excess -= length
            if excess <= 0:
                break
    connection.executemany("DELETE FROM originals WHERE ref = ?", victims)
    return excess
