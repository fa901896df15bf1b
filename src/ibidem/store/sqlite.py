"""Store in one SQLite file. After `put` returns, its texts survive a crash, a kill and a power loss."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import Any

from ..errors import one_line
from .database import Database
from .retention import (
    MOST_NOTES,
    MOST_ORIGINALS,
    MOST_PLACES,
    MOST_SESSIONS,
    USED_SECONDS,
    Limits,
    PrunedBatch,
    SizeWarning,
    batch_bytes,
)
from .store import (
    JOURNAL_START,
    JournalPage,
    JournalPosition,
    Store,
    StoreStats,
    collision_error,
    encode_text,
    first_unknown,
    is_reference,
    known_references,
    new_journal_id,
)
from .value_codec import EncodedValue, decode_original, decode_value, encode_originals, encode_value, valid_values

EVER = float("inf")
READ_SECONDS = 2.0
"""Maximum wait of a read for processes that lock the file. In WAL mode, reads usually do not wait."""

USE = """
INSERT INTO sessions (name, used) VALUES (?, ?)
ON CONFLICT (name) DO UPDATE SET used = max(used, excluded.used)
"""
"""Record a use. `max`, because a clock that is set back must not make a session look unused."""

NOTED = "SELECT id, log, noted, used FROM sessions WHERE name = ?"
NOTED_NOW = "UPDATE sessions SET used = max(used, ?), log = ?, noted = ? WHERE id = ?"

PLACE = "INSERT INTO places (ref, place) SELECT ref, ?2 FROM originals WHERE ref = ?1"
LATER_PLACES = """
DELETE FROM places WHERE ref = ?1
AND id NOT IN (SELECT id FROM places WHERE ref = ?1 ORDER BY id DESC LIMIT ?2)
"""

LOOSE = """
SELECT loose.ref, length(body) FROM loose JOIN originals ON originals.ref = loose.ref
WHERE loose.added < ? ORDER BY loose.added, loose.rowid LIMIT ?
"""
DUE = "SELECT (SELECT min(used) FROM sessions), (SELECT min(added) FROM loose), stored + states FROM totals"
LEAST_RECENT = "SELECT id FROM sessions WHERE used < ? ORDER BY used, id LIMIT 1"
STATS = """
SELECT originals, (SELECT count(*) FROM sessions), stored, size,
    (SELECT min(added) FROM originals), (SELECT max(added) FROM originals), states
FROM totals
"""


@dataclass(eq=False)
class SqliteStore(Store):
    """Store in an SQLite file, for any number of processes on one machine."""

    path: Path
    """Path of the file. The file and its folder are created when needed."""
    _: KW_ONLY
    limits: Limits = field(default_factory=Limits)
    clock: Callable[[], float] = time.time

    def __post_init__(self) -> None:
        self.path = Path(self.path).absolute()  # the file is opened later, maybe in another working directory
        self.where = str(self.path)
        self._database = Database(self.path)
        # A second connection, so that reads do not wait for a thread that waits to write.
        self._reading = Database(self.path, READ_SECONDS)
        self._told = SizeWarning()

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild_store, (self.path, self.limits, self.clock)

    def put(self, session: str, originals: Mapping[str, str]) -> None:
        new = encode_originals(self.where, originals)
        with self._database.write_transaction() as connection:
            now = self.clock()
            key = _use_session(connection, session, now)
            added_bytes = sum(len(each.body) for each in new if self._store_original(connection, each, now))
            connection.executemany(
                "INSERT OR IGNORE INTO links (session, ref) VALUES (?, ?)", [(key, each.ref) for each in new]
            )
            batch = _SqlitePruner(connection, added_bytes).prune_batch(self.limits, now)
        self._finish_batch(batch)

    def _store_original(self, connection: sqlite3.Connection, new: EncodedValue, now: float) -> bool:
        """Store an original if it is missing or damaged. Return whether it was."""
        row = connection.execute("SELECT body FROM originals WHERE ref = ?", (new.ref,)).fetchone()
        if row is None:
            values = (new.ref, new.size, now, new.body)
            connection.execute("INSERT INTO originals (ref, size, added, body) VALUES (?, ?, ?, ?)", values)
            return True
        text = decode_original(new.ref, row[0])
        if text is None:
            connection.execute("UPDATE originals SET size = ?, body = ? WHERE ref = ?", (new.size, new.body, new.ref))
        elif text != new.text:
            raise collision_error(self.where, new.ref)
        return text is None

    def get(self, refs: Iterable[str]) -> dict[str, str]:
        requested_refs = {ref for ref in refs if is_reference(ref)}
        with self._reading.read_transaction() as connection:
            query = "SELECT body FROM originals WHERE ref = ?"
            rows = [(ref, connection.execute(query, (ref,)).fetchone()) for ref in requested_refs]
        texts = {ref: decode_original(ref, row[0]) for ref, row in rows if row}
        return {ref: text for ref, text in texts.items() if text is not None}

    def place(self, places: Mapping[str, str]) -> None:
        with self._database.write_transaction(durable=False) as connection:
            for ref, place in places.items():
                line = encode_text(one_line(place))
                connection.execute("DELETE FROM places WHERE ref = ? AND place = ?", (ref, line))
                connection.execute(PLACE, (ref, line))
                connection.execute(LATER_PLACES, (ref, MOST_PLACES))

    def places(self, ref: str) -> list[str]:
        with self._reading.read_transaction() as connection:
            rows = connection.execute("SELECT place FROM places WHERE ref = ? ORDER BY id", (ref,)).fetchall()
        return [place.decode("utf-8", "surrogatepass") for (place,) in rows]

    def refs(self, session: str) -> set[str]:
        query = "SELECT ref FROM links WHERE session = (SELECT id FROM sessions WHERE name = ?)"
        with self._reading.read_transaction() as connection:
            return {ref for (ref,) in connection.execute(query, (encode_text(session),))}

    def save(self, session: str, state: bytes, refs: Collection[str]) -> None:
        body, live = encode_value(state), known_references(self.where, refs)
        with self._database.write_transaction() as connection:
            now = self.clock()
            key = _use_session(connection, session, now)
            connection.execute("UPDATE sessions SET state = ? WHERE id = ?", (body, key))
            before = {ref for (ref,) in connection.execute("SELECT ref FROM links WHERE session = ?", (key,))}
            removed_links, new = [(key, ref) for ref in before - live], [(key, ref) for ref in live - before]
            connection.executemany("DELETE FROM links WHERE session = ? AND ref = ?", removed_links)
            connection.executemany("INSERT INTO links (session, ref) VALUES (?, ?)", new)
            batch = _SqlitePruner(connection, len(body)).prune_batch(self.limits, now)
        self._finish_batch(batch)

    def load(self, session: str) -> bytes | None:
        name = encode_text(session)
        with self._database.write_transaction(durable=False) as connection:
            row = connection.execute("SELECT state FROM sessions WHERE name = ?", (name,)).fetchone()
            if row is not None:
                _use_session(connection, session, self.clock())
        return None if row is None or row[0] is None else decode_value(row[0])

    def note(self, session: str, rows: Sequence[bytes], since: JournalPosition) -> JournalPage:
        name, bodies = encode_text(session), [encode_value(row) for row in rows]
        with self._database.write_transaction() as connection:
            now = self.clock()
            session_row = connection.execute(NOTED, (name,)).fetchone()
            place = JournalPosition(*session_row[1:3]) if session_row else JOURNAL_START
            key = session_row[0] if session_row and place == since else _use_session(connection, session, now)
            if place != since:
                return JournalPage(valid_values(_rows_since(connection, key, place, since)), place)
            place = JournalPosition(since.log or new_journal_id(), since.end + len(rows))
            values = [(key, number, body) for number, body in enumerate(bodies, since.end)]
            connection.executemany("INSERT INTO notes (session, number, body) VALUES (?, ?, ?)", values)
            connection.execute(NOTED_NOW, (now, *place, key))
            if place.end > MOST_NOTES:
                connection.execute("DELETE FROM notes WHERE session = ? AND number < ?", (key, place.end - MOST_NOTES))
            batch = _SqlitePruner(connection, sum(map(len, bodies))).prune_batch(self.limits, now)
        self._finish_batch(batch)
        return JournalPage([], place, added=True)

    def notes(self, session: str, since: JournalPosition = JOURNAL_START) -> JournalPage:
        name, now = encode_text(session), self.clock()
        if not self.path.exists():  # opening the store would create it
            return JournalPage([], JOURNAL_START)
        with self._database.read_transaction() as connection:
            row = connection.execute(NOTED, (name,)).fetchone()
            if row is None:
                return JournalPage([], JOURNAL_START)
            place = JournalPosition(*row[1:3])
            bodies = _rows_since(connection, row[0], place, since) if place != since else []
        if row[3] < now - min(USED_SECONDS, self.limits.live_for / 2):
            # The session may have been deleted since the read. Then this changes no row.
            with self._database.write_transaction(durable=False) as connection:
                connection.execute("UPDATE sessions SET used = max(used, ?) WHERE name = ?", (now, name))
        return JournalPage(valid_values(bodies), place)

    def forget(self, session: str) -> int:
        return self._forget_sessions("DELETE FROM sessions WHERE name = ?", encode_text(session), EVER)

    def forget_all(self) -> int:
        return self._forget_sessions("DELETE FROM sessions WHERE used < ?", EVER, EVER)

    def forget_older(self, seconds: float) -> int:
        before = self.clock() - seconds
        return self._forget_sessions("DELETE FROM sessions WHERE used < ?", before, before)

    def _forget_sessions(self, sessions: str, which: object, before: float) -> int:
        with self._database.write_transaction() as connection:
            connection.execute(sessions, (which,))
            count = _drop_loose(connection, before)
        self._database.shrink_file()
        return count

    def prune(self) -> int:
        count, is_complete = 0, False
        while not is_complete and self.path.exists():  # opening the store would create it
            with self._database.write_transaction() as connection:
                batch = _SqlitePruner(connection, 0).prune_batch(self.limits, self.clock())
            self._finish_batch(batch)
            count, is_complete = count + batch.originals, batch.is_complete
        return count

    def _finish_batch(self, batch: PrunedBatch) -> None:
        self._told(self.where, self.limits, batch)
        if batch.has_deletions:
            self._database.release_pages()

    def stats(self) -> StoreStats:
        with self._reading.read_transaction() as connection:
            return StoreStats(*connection.execute(STATS).fetchone())

    def close(self) -> None:
        self._database.close()
        self._reading.close()


def _rebuild_store(path: Path, limits: Limits, clock: Callable[[], float]) -> SqliteStore:
    return SqliteStore(path, limits=limits, clock=clock)


def _use_session(connection: sqlite3.Connection, session: str, now: float) -> int:
    name = encode_text(session)
    connection.execute(USE, (name, now))
    (key,) = connection.execute("SELECT id FROM sessions WHERE name = ?", (name,)).fetchone()
    return int(key)


def _rows_since(
    connection: sqlite3.Connection, key: int, place: JournalPosition, since: JournalPosition
) -> list[bytes]:
    query = "SELECT body FROM notes WHERE session = ? AND number >= ? ORDER BY number"
    return [body for (body,) in connection.execute(query, (key, first_unknown(place, since)))]


def _drop_loose(connection: sqlite3.Connection, before: float) -> int:
    rows = connection.execute("SELECT ref FROM loose WHERE added < ?", (before,)).fetchall()
    connection.executemany("DELETE FROM originals WHERE ref = ?", rows)
    return len(rows)


class _SqlitePruner:
    """Deletes one batch beyond the limits, within a transaction."""

    def __init__(self, connection: sqlite3.Connection, added_bytes: int) -> None:
        self._connection = connection
        self._most = batch_bytes(added_bytes)
        self._bytes = self._originals = self._sessions = 0

    def prune_batch(self, limits: Limits, now: float) -> PrunedBatch:
        before = limits.over_before(now)
        if not self._is_due(limits, before):
            return PrunedBatch(0, 0, 0, True)
        while not self._is_full and self._end_oldest_session(before):
            pass
        self._drop_oldest(before, EVER)
        excess = limits.excess(self._stored_bytes())
        while excess and not self._is_full:
            self._drop_oldest(EVER, excess)
            excess = limits.excess(self._stored_bytes())
            if excess and not self._is_full and not self._end_oldest_session(limits.idle_before(now)):
                break
        return PrunedBatch(self._originals, self._sessions, excess, not self._is_full)

    def _is_due(self, limits: Limits, before: float) -> bool:
        """Return whether there is content beyond the limits. This fast check runs with every write."""
        oldest_use, oldest_loose, stored_bytes = self._connection.execute(DUE).fetchone()
        return (
            any(oldest is not None and oldest < before for oldest in (oldest_use, oldest_loose))
            or limits.excess(stored_bytes) > 0
        )

    @property
    def _is_full(self) -> bool:
        return self._sessions >= MOST_SESSIONS or self._originals >= MOST_ORIGINALS or self._bytes >= self._most

    def _stored_bytes(self) -> int:
        (stored_bytes,) = self._connection.execute("SELECT stored + states FROM totals").fetchone()
        return int(stored_bytes)

    def _end_oldest_session(self, before: float) -> bool:
        """Delete the least recently used session if its last use was before this time. Return whether it was."""
        row = self._connection.execute(LEAST_RECENT, (before,)).fetchone()
        if row is not None:
            self._connection.execute("DELETE FROM sessions WHERE id = ?", row)
            self._sessions += 1
        return row is not None

    def _drop_oldest(self, before: float, bytes_wanted: float) -> None:
        """Delete the oldest unreferenced originals from before this time, until `bytes_wanted` or the batch size."""
        victims = []
        for ref, length in self._connection.execute(LOOSE, (before, max(0, MOST_ORIGINALS - self._originals))):
            if bytes_wanted <= 0 or self._bytes >= self._most:
                break
            victims.append((ref,))
            bytes_wanted -= length
            self._bytes += length
        self._originals += len(victims)
        self._connection.executemany("DELETE FROM originals WHERE ref = ?", victims)
