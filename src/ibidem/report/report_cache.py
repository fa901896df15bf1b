"""Cache of the results of logs, so that a second report reads only new logs.

Keys: facts have a file's size and time, results a digest of its content. The cache can be deleted at any time. After
any error, the work is repeated.
"""

from __future__ import annotations

import hashlib
import os
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from .log_summary import FileFacts
from .measure import ReportSettings
from .session_result import FileResult, decode_result, encode_result

T = TypeVar("T")

MAX_KEPT_LOGS = 50_000
"""Maximum number of logs in the cache. The least recently used ones are deleted."""
STATES_PER_LOG = 4
"""Average number of states stored per log: size and time change while an agent writes it."""
KEYS_PER_QUERY = 500
"""Keys in one query. SQLite limits the number of parameters."""

SCHEMA = """
CREATE TABLE IF NOT EXISTS logs (state TEXT PRIMARY KEY, digest TEXT);
CREATE TABLE IF NOT EXISTS figures (key TEXT PRIMARY KEY, used REAL, data BLOB);
CREATE TABLE IF NOT EXISTS facts (key TEXT PRIMARY KEY, used REAL, data BLOB);
CREATE INDEX IF NOT EXISTS figures_used ON figures (used, key);
CREATE INDEX IF NOT EXISTS facts_used ON facts (used, key);
"""


class ReportCache:
    """SQLite cache of facts and results. It is opened for each query, because workers and other runs share it."""

    def __init__(self, folder: Path, settings: ReportSettings) -> None:
        self._path = folder / "report.sqlite"
        self._settings_digest = hashlib.sha256(
            repr(settings).encode("utf-8", "backslashreplace") + code_version()
        ).hexdigest()

    # --- facts ----------------------------------------------------------------------------------

    def find_facts(self, states: Iterable[str]) -> dict[str, FileFacts]:
        """Look up facts by the state of logs (path, size and time)."""
        keys = {_fact_key(state): state for state in states if state}
        facts: dict[str, FileFacts] = {}
        for key, data in self._fetch_rows("facts", keys):
            with suppress(msgspec.DecodeError, TypeError):
                facts[keys[key]] = msgspec.msgpack.decode(data, type=FileFacts)
        return facts

    def store_facts(self, facts: Mapping[str, FileFacts]) -> None:
        """Store facts by the state of their logs."""
        rows = []
        for state, each in facts.items():
            with suppress(UnicodeEncodeError):  # a lone surrogate in a name: such a log is read again each time
                rows.append((_fact_key(state), time.time(), msgspec.msgpack.encode(each)))
        self._store_rows("facts", rows)

    # --- results --------------------------------------------------------------------------------

    def find_digests(self, states: Iterable[str]) -> dict[str, str]:
        """Look up digests of logs by their state (path, size and time)."""
        state_by_key = {_encode_state(state): state for state in states if state}
        rows = self._run_query(
            lambda db: list(_select_rows(db, "SELECT state, digest FROM logs WHERE state", list(state_by_key)))
        )
        return {state_by_key[state]: str(digest) for state, digest in rows or () if isinstance(digest, str)}

    def find_results(self, logs: Sequence[Sequence[str]], selections: Sequence[str]) -> list[list[FileResult] | None]:
        """Look up the results of groups of logs, by their digests and selections; None if a group is not cached."""
        keys = [self._result_key(digests, what) for digests, what in zip(logs, selections, strict=True)]
        results: dict[str, list[FileResult]] = {}
        for key, data in self._fetch_rows("figures", keys):
            with suppress(msgspec.DecodeError, TypeError):
                results[key] = [decode_result(part) for part in msgspec.msgpack.decode(data, type=list[bytes])]
        return [results.get(key) for key in keys]

    def store_results(
        self, states: Sequence[str], digests: Sequence[str], figures: Sequence[FileResult], selection: str
    ) -> None:
        """Store the results of a group of logs, and the digest of each log's state."""
        try:
            data = msgspec.msgpack.encode([encode_result(each) for each in figures])
        except UnicodeEncodeError:  # a lone surrogate in a name, as in `store_facts`
            return
        pairs = [pair for pair in zip(map(_encode_state, states), digests, strict=True) if pair[0]]

        def write_digests(db: sqlite3.Connection) -> None:
            db.executemany("INSERT OR REPLACE INTO logs VALUES (?, ?)", pairs)
            db.execute(
                "DELETE FROM logs WHERE rowid <= (SELECT max(rowid) FROM logs) - ?", (STATES_PER_LOG * MAX_KEPT_LOGS,)
            )

        self._run_query(write_digests)
        self._store_rows("figures", [(self._result_key(digests, selection), time.time(), data)])

    def _result_key(self, digests: Sequence[str], selection: str) -> str:
        return hashlib.sha256("\n".join([self._settings_digest, selection, *digests]).encode()).hexdigest()

    # --- the database ---------------------------------------------------------------------------

    def _fetch_rows(self, table: str, keys: Iterable[str]) -> list[tuple[str, bytes]]:
        """Fetch rows with these keys, and update the time of their last use."""
        names = list(keys)

        def read_rows(db: sqlite3.Connection) -> list[tuple[str, bytes]]:
            rows = list(_select_rows(db, f"SELECT key, data FROM {table} WHERE key", names))
            for batch in _split_keys([key for key, _ in rows]):
                marks = ", ".join("?" * len(batch))
                db.execute(f"UPDATE {table} SET used = ? WHERE key IN ({marks})", (time.time(), *batch))
            return rows

        return (self._run_query(read_rows) if names else None) or []

    def _store_rows(self, table: str, rows: Sequence[tuple[str, float, bytes]]) -> None:
        oldest = f"SELECT key FROM {table} ORDER BY used DESC LIMIT -1 OFFSET ?"

        def write_rows(db: sqlite3.Connection) -> None:
            db.executemany(f"INSERT OR REPLACE INTO {table} VALUES (?, ?, ?)", rows)
            db.execute(f"DELETE FROM {table} WHERE key IN ({oldest})", (MAX_KEPT_LOGS,))

        if rows:
            self._run_query(write_rows)

    def _run_query(self, question: Callable[[sqlite3.Connection], T]) -> T | None:
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with closing(sqlite3.connect(self._path, timeout=5)) as db, db:
                os.chmod(self._path, 0o600)
                db.execute("PRAGMA synchronous = OFF")  # after a power cut, the work is repeated
                db.executescript(SCHEMA)
                return question(db)
        except sqlite3.OperationalError:
            pass  # locked by another process, or not writable for this user
        except sqlite3.DatabaseError:  # damaged: without a new file, no result would be cached again
            with suppress(OSError):
                self._path.unlink()
        except (sqlite3.Error, OSError):
            pass
        return None


def _select_rows(db: sqlite3.Connection, question: str, keys: Sequence[str]) -> Iterator[tuple[str, Any]]:
    for batch in _split_keys(keys):
        yield from db.execute(f"{question} IN ({', '.join('?' * len(batch))})", batch)


def _split_keys(keys: Sequence[str]) -> Iterator[Sequence[str]]:
    return (keys[first : first + KEYS_PER_QUERY] for first in range(0, len(keys), KEYS_PER_QUERY))


def _fact_key(state: str) -> str:
    return hashlib.sha256(f"{_version_digest()} {_encode_state(state)}".encode()).hexdigest()


def _encode_state(state: str) -> str:
    """Make a state valid Unicode: file names can contain other bytes."""
    return state.encode("utf-8", "backslashreplace").decode()


@cache
def code_version() -> bytes:
    """Identify the code and the prices. Cached results of another version are not used."""
    parts = [metadata.version("genai-prices")]
    package = Path(__file__).parent.parent
    for path in sorted(package.rglob("*.py")):
        status = path.stat()
        parts.append(f"{path.relative_to(package)} {status.st_size} {status.st_mtime_ns}")
    return "\n".join(parts).encode()


@cache
def _version_digest() -> str:
    return hashlib.sha256(code_version()).hexdigest()
