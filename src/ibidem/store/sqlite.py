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
from .limits import (
    MOST_NOTES,
    MOST_ORIGINALS,
    MOST_PLACES,
    MOST_SESSIONS,
    USED_SECONDS,
    Limits,
    SizeWarning,
    Slice,
    slice_bytes,
)
from .packing import Packed, original, pack, packed, unpack, whole
from .store import (
    NO_NOTES,
    Notes,
    NotesPlace,
    Store,
    StoreStats,
    collision,
    encoded,
    first_unknown,
    is_reference,
    known_references,
    new_log,
)

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
        return _rebuilt, (self.path, self.limits, self.clock)

    def put(self, session: str, originals: Mapping[str, str]) -> None:
        new = packed(self.where, originals)
        with self._database.writing() as connection:
            now = self.clock()
            key = _use(connection, session, now)
            added = sum(len(each.body) for each in new if self._keep(connection, each, now))
            connection.executemany(
                "INSERT OR IGNORE INTO links (session, ref) VALUES (?, ?)", [(key, each.ref) for each in new]
            )
            gone = _Pruning(connection, added).run(self.limits, now)
        self._after(gone)

    def _keep(self, connection: sqlite3.Connection, new: Packed, now: float) -> bool:
        """Store an original if it is missing or damaged. Return whether it was."""
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
        with self._reading.reading() as connection:
            query = "SELECT body FROM originals WHERE ref = ?"
            rows = [(ref, connection.execute(query, (ref,)).fetchone()) for ref in asked]
        texts = {ref: original(ref, row[0]) for ref, row in rows if row}
        return {ref: text for ref, text in texts.items() if text is not None}

    def place(self, places: Mapping[str, str]) -> None:
        with self._database.writing(durable=False) as connection:
            for ref, place in places.items():
                line = encoded(one_line(place))
                connection.execute("DELETE FROM places WHERE ref = ? AND place = ?", (ref, line))
                connection.execute(PLACE, (ref, line))
                connection.execute(LATER_PLACES, (ref, MOST_PLACES))

    def places(self, ref: str) -> list[str]:
        with self._reading.reading() as connection:
            rows = connection.execute("SELECT place FROM places WHERE ref = ? ORDER BY id", (ref,)).fetchall()
        return [place.decode("utf-8", "surrogatepass") for (place,) in rows]

    def refs(self, session: str) -> set[str]:
        query = "SELECT ref FROM links WHERE session = (SELECT id FROM sessions WHERE name = ?)"
        with self._reading.reading() as connection:
            return {ref for (ref,) in connection.execute(query, (encoded(session),))}

    def save(self, session: str, state: bytes, refs: Collection[str]) -> None:
        body, live = pack(state), known_references(self.where, refs)
        with self._database.writing() as connection:
            now = self.clock()
            key = _use(connection, session, now)
            connection.execute("UPDATE sessions SET state = ? WHERE id = ?", (body, key))
            before = {ref for (ref,) in connection.execute("SELECT ref FROM links WHERE session = ?", (key,))}
            gone, new = [(key, ref) for ref in before - live], [(key, ref) for ref in live - before]
            connection.executemany("DELETE FROM links WHERE session = ? AND ref = ?", gone)
            connection.executemany("INSERT INTO links (session, ref) VALUES (?, ?)", new)
            slice_ = _Pruning(connection, len(body)).run(self.limits, now)
        self._after(slice_)

    def load(self, session: str) -> bytes | None:
        name = encoded(session)
        with self._database.writing(durable=False) as connection:
            row = connection.execute("SELECT state FROM sessions WHERE name = ?", (name,)).fetchone()
            if row is not None:
                _use(connection, session, self.clock())
        return None if row is None or row[0] is None else unpack(row[0])

    def note(self, session: str, rows: Sequence[bytes], since: NotesPlace) -> Notes:
        name, bodies = encoded(session), [pack(row) for row in rows]
        with self._database.writing() as connection:
            now = self.clock()
            found = connection.execute(NOTED, (name,)).fetchone()
            place = NotesPlace(*found[1:3]) if found else NO_NOTES
            key = found[0] if found and place == since else _use(connection, session, now)
            if place != since:
                return Notes(whole(_rows_since(connection, key, place, since)), place)
            place = NotesPlace(since.log or new_log(), since.end + len(rows))
            values = [(key, number, body) for number, body in enumerate(bodies, since.end)]
            connection.executemany("INSERT INTO notes (session, number, body) VALUES (?, ?, ?)", values)
            connection.execute(NOTED_NOW, (now, *place, key))
            if place.end > MOST_NOTES:
                connection.execute("DELETE FROM notes WHERE session = ? AND number < ?", (key, place.end - MOST_NOTES))
            slice_ = _Pruning(connection, sum(map(len, bodies))).run(self.limits, now)
        self._after(slice_)
        return Notes([], place, added=True)

    def notes(self, session: str, since: NotesPlace = NO_NOTES) -> Notes:
        name, now = encoded(session), self.clock()
        if not self.path.exists():  # opening the store would create it
            return Notes([], NO_NOTES)
        with self._database.reading() as connection:
            found = connection.execute(NOTED, (name,)).fetchone()
            if found is None:
                return Notes([], NO_NOTES)
            place = NotesPlace(*found[1:3])
            bodies = _rows_since(connection, found[0], place, since) if place != since else []
        if found[3] < now - min(USED_SECONDS, self.limits.live_for / 2):
            # The session may have been deleted since the read. Then this changes no row.
            with self._database.writing(durable=False) as connection:
                connection.execute("UPDATE sessions SET used = max(used, ?) WHERE name = ?", (now, name))
        return Notes(whole(bodies), place)

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

    def prune(self) -> int:
        count, done = 0, False
        while not done and self.path.exists():  # opening the store would create it
            with self._database.writing() as connection:
                found = _Pruning(connection, 0).run(self.limits, self.clock())
            self._after(found)
            count, done = count + found.originals, found.done
        return count

    def _after(self, found: Slice) -> None:
        self._told(self.where, self.limits, found)
        if found.any:
            self._database.give_back()

    def stats(self) -> StoreStats:
        with self._reading.reading() as connection:
            return StoreStats(*connection.execute(STATS).fetchone())

    def close(self) -> None:
        self._database.close()
        self._reading.close()


def _rebuilt(path: Path, limits: Limits, clock: Callable[[], float]) -> SqliteStore:
    return SqliteStore(path, limits=limits, clock=clock)


def _use(connection: sqlite3.Connection, session: str, now: float) -> int:
    name = encoded(session)
    connection.execute(USE, (name, now))
    (key,) = connection.execute("SELECT id FROM sessions WHERE name = ?", (name,)).fetchone()
    return int(key)


def _rows_since(connection: sqlite3.Connection, key: int, place: NotesPlace, since: NotesPlace) -> list[bytes]:
    query = "SELECT body FROM notes WHERE session = ? AND number >= ? ORDER BY number"
    return [body for (body,) in connection.execute(query, (key, first_unknown(place, since)))]


def _drop_loose(connection: sqlite3.Connection, before: float) -> int:
    found = connection.execute("SELECT ref FROM loose WHERE added < ?", (before,)).fetchall()
    connection.executemany("DELETE FROM originals WHERE ref = ?", found)
    return len(found)


class _Pruning:
    """Deletes one batch beyond the limits, within a transaction."""

    def __init__(self, connection: sqlite3.Connection, added: int) -> None:
        self._connection = connection
        self._most = slice_bytes(added)
        self._bytes = self._originals = self._sessions = 0

    def run(self, limits: Limits, now: float) -> Slice:
        before = limits.over_before(now)
        if not self._due(limits, before):
            return Slice(0, 0, 0, True)
        while not self._spent and self._end_one(before):
            pass
        self._drop(before, EVER)
        excess = limits.excess(self._kept())
        while excess and not self._spent:
            self._drop(EVER, excess)
            excess = limits.excess(self._kept())
            if excess and not self._spent and not self._end_one(limits.idle_before(now)):
                break
        return Slice(self._originals, self._sessions, excess, not self._spent)

    def _due(self, limits: Limits, before: float) -> bool:
        """Return whether there is content beyond the limits. This fast check runs with every write."""
        used, added, kept = self._connection.execute(DUE).fetchone()
        return any(oldest is not None and oldest < before for oldest in (used, added)) or limits.excess(kept) > 0

    @property
    def _spent(self) -> bool:
        return self._sessions >= MOST_SESSIONS or self._originals >= MOST_ORIGINALS or self._bytes >= self._most

    def _kept(self) -> int:
        (kept,) = self._connection.execute("SELECT stored + states FROM totals").fetchone()
        return int(kept)

    def _end_one(self, before: float) -> bool:
        """Delete the least recently used session if its last use was before this time. Return whether it was."""
        found = self._connection.execute(LEAST_RECENT, (before,)).fetchone()
        if found is not None:
            self._connection.execute("DELETE FROM sessions WHERE id = ?", found)
            self._sessions += 1
        return found is not None

    def _drop(self, before: float, wanted: float) -> None:
        """Delete the oldest unreferenced originals from before this time, until `bytes_wanted` or the batch size."""
        victims = []
        for ref, length in self._connection.execute(LOOSE, (before, max(0, MOST_ORIGINALS - self._originals))):
            if wanted <= 0 or self._bytes >= self._most:
                break
            victims.append((ref,))
            wanted -= length
            self._bytes += length
        self._originals += len(victims)
        self._connection.executemany("DELETE FROM originals WHERE ref = ?", victims)
