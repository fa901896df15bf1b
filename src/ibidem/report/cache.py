"""Figures of logs that were read before, by content, so that a second run reads only what is new.

A cache and nothing more: it may be deleted at any time, and whatever goes wrong with it, the work is done again.
"""

from __future__ import annotations

import hashlib
import os
import sqlite3
import time
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import TypeVar

import msgspec

from .figures import FileFigures, decoded, encoded
from .measure import ReportSettings

T = TypeVar("T")

MAX_KEPT_LOGS = 50_000
"""Logs whose figures are kept; the ones that were used longest ago go first."""

SCHEMA = """
CREATE TABLE IF NOT EXISTS logs (state TEXT PRIMARY KEY, digest TEXT);
CREATE TABLE IF NOT EXISTS figures (key TEXT PRIMARY KEY, used REAL, data BLOB);
"""


class ReportCache:
    """Opened anew for every question: workers and runs beside this one may share it."""

    def __init__(self, folder: Path, settings: ReportSettings) -> None:
        self._path = folder / "report.sqlite"
        self._asked = hashlib.sha256(repr(settings).encode("utf-8", "backslashreplace") + edition()).hexdigest()

    def digest(self, state: str) -> str | None:
        """The digest of a log that was read when its size and time were the same."""
        rows = self._ask(lambda db: db.execute("SELECT digest FROM logs WHERE state = ?", (_spelt(state),)).fetchall())
        return rows[0][0] if rows and isinstance(rows[0][0], str) else None

    def figures(self, digests: Sequence[str]) -> list[FileFigures] | None:
        """The figures of logs with these contents, that were read together."""
        key = self._key(digests)
        used = "UPDATE figures SET used = ? WHERE key = ? RETURNING data"
        rows = self._ask(lambda db: db.execute(used, (time.time(), key)).fetchall())
        try:
            return [decoded(part) for part in msgspec.msgpack.decode(rows[0][0], type=list[bytes])] if rows else None
        except (msgspec.DecodeError, TypeError):
            return None

    def keep(self, states: Sequence[str], digests: Sequence[str], figures: Sequence[FileFigures]) -> None:
        try:
            data = msgspec.msgpack.encode([encoded(each) for each in figures])
        except UnicodeEncodeError:  # a lone surrogate in a name: such a log is read again each time
            return

        def write(db: sqlite3.Connection) -> None:
            pairs = zip(map(_spelt, states), digests, strict=True)
            db.executemany("INSERT OR REPLACE INTO logs VALUES (?, ?)", [pair for pair in pairs if pair[0]])
            db.execute("INSERT OR REPLACE INTO figures VALUES (?, ?, ?)", (self._key(digests), time.time(), data))
            db.execute(
                "DELETE FROM figures WHERE key IN (SELECT key FROM figures ORDER BY used DESC LIMIT -1 OFFSET ?)",
                (MAX_KEPT_LOGS,),
            )

        self._ask(write)

    def _key(self, digests: Sequence[str]) -> str:
        return hashlib.sha256("\n".join([self._asked, *digests]).encode()).hexdigest()

    def _ask(self, question: Callable[[sqlite3.Connection], T]) -> T | None:
        with suppress(sqlite3.Error, OSError):
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with closing(sqlite3.connect(self._path, timeout=5)) as db, db:
                os.chmod(self._path, 0o600)
                db.executescript(SCHEMA)
                return question(db)
        return None


def _spelt(state: str) -> str:
    """File names need not be Unicode."""
    return state.encode("utf-8", "backslashreplace").decode()


@cache
def edition() -> bytes:
    """Changes whenever the code or the prices do."""
    parts = [metadata.version("genai-prices")]
    package = Path(__file__).parent.parent
    for path in sorted(package.rglob("*.py")):
        status = path.stat()
        parts.append(f"{path.relative_to(package)} {status.st_size} {status.st_mtime_ns}")
    return "\n".join(parts).encode()
