"""Writes what was paid and saved to the file that `ibidem gain` reads, off the way of any request.

`note` puts a row in a list and returns. A thread, which starts with the first row, writes what has gathered every
`BATCH_SECONDS`, in one transaction: a process that is killed loses no more than that. The file is opened for each batch
and closed after it, so nothing is held while nothing happens, whoever deletes or replaces it is obeyed, and the last to
close it empties the log beside it (`wal_autocheckpoint` is 0: before SQLite 3.51.3 two processes that emptied it while
writing could lose commits). Whatever is wrong with the file is told once and reaches no exchange.
"""

from __future__ import annotations

import logging
import os
import sqlite3
import stat
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path

from ...gains import (
    DAY_SECONDS,
    EXCHANGE_COLUMNS,
    GAINS_ID,
    GAINS_VERSION,
    SCHEMA,
    SUMMED,
    TRIAL_COLUMNS,
    TRIAL_SCHEMA,
    GainsError,
    Sum,
    in_words,
    is_busy,
    missing_columns,
    name_kept,
    version_of,
)
from .explained import REVISED
from .rows import ExchangeRow

log = logging.getLogger("ibidem")

BATCH_SECONDS = 0.3
"""For so long rows gather before they are written."""
BUSY_SECONDS, CLOSING_SECONDS = 2.0, 3.0
"""How long a batch waits for other processes, and the end of the proxy for the last batch."""
RETRY_SECONDS = 5.0
"""After so long a file is tried again that could not be written to."""
MAX_WAITING = 10_000
"""Rows that wait for a file that cannot be written to just now; the oldest go first."""
MAX_DAYS, MAX_ROWS, ROWS_LEFT = 400, 500_000, 450_000
"""Older rows, and those above so many down to so many, are added up by the day and dropped."""
FOLD_EVERY = 10_000
"""Rows that a process writes before it looks again whether some are to be dropped."""
MAX_TOKENS = 10**10
"""Tokens of one request that are believed: sums of more would not fit into a whole number of the database."""

GainRow = tuple[object, ...]
"""As `EXCHANGE_COLUMNS` has them, or `TRIAL_COLUMNS`."""

_COLUMNS = ", ".join(name for name, _ in EXCHANGE_COLUMNS)
_INSERT = f"INSERT INTO exchanges ({_COLUMNS}) VALUES ({', '.join('?' * len(EXCHANGE_COLUMNS))})"
_INSERT_TRIAL = f"INSERT INTO trial VALUES ({', '.join('?' * len(TRIAL_COLUMNS))})"
_ADDED = ", ".join(f"{name} = {name} + excluded.{name}" for name in Sum._fields)
_FOLD = (
    f"INSERT INTO days (day, {', '.join(Sum._fields)}) "
    f"SELECT CAST(at / {DAY_SECONDS} AS INTEGER), {SUMMED} FROM exchanges WHERE at < ? GROUP BY 1 "
    f"ON CONFLICT (day) DO UPDATE SET {_ADDED}"
)


class GainsWriter:
    """For the requests of one proxy. `note` is for the thread of the event loop; the file has a thread of its own."""

    def __init__(self, file: Path, project: str = "", clock: Callable[[], float] = time.time) -> None:
        self.file = file
        self.trouble = ""
        """What is wrong with the file, in a line; empty while all is well."""
        self._project = name_kept(project)
        self._clock = clock
        self._started = clock()
        self._waiting: deque[tuple[GainRow, GainRow | None]] = deque(maxlen=MAX_WAITING)
        """Of each request the row, and that of a trial if it took part in one."""
        self._news = threading.Event()
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None
        self._until_fold = 0
        self._hopeless = False

    def note(self, found: ExchangeRow, session: str, lost: bool, observed: bool) -> None:
        """The answer to a request is over. `lost`: the cache was missed after a change of ours in an earlier one."""
        if self._hopeless or self._closing.is_set():
            return
        self._waiting.append((self._row(found, session, lost, observed), _trial_row(found)))
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="ibidem-gains", daemon=True)
            self._thread.start()
        self._news.set()

    def close(self) -> None:
        """What waits is written, if that is possible soon."""
        self._closing.set()
        self._news.set()
        if self._thread is not None:
            self._thread.join(CLOSING_SECONDS)

    def _row(self, found: ExchangeRow, session: str, lost: bool, observed: bool) -> GainRow:
        names = (found.conversation or "", session, found.client, self._project, found.model, found.format)
        tokens = (found.fresh, found.read, found.written, found.written_1h, found.output, found.removed)
        revised = found.miss is not None and found.miss.endswith(REVISED)
        measured = found.trial is not None and found.trial.arm == "measure"
        return (
            found.at,
            self._started,
            *map(name_kept, names),
            found.status,
            found.outcome,
            bool(found.resent),
            lost or revised,
            observed or measured,
            found.paid,
            found.paid - found.could_save if measured and found.paid is not None else found.would_have_paid,
            found.output_paid,
            *(min(each, MAX_TOKENS) for each in tokens),
            found.plan,
        )

    def _work(self) -> None:
        while True:
            self._news.wait()
            self._closing.wait(BATCH_SECONDS)
            self._news.clear()
            last = self._closing.is_set()
            self._flush()
            if last or self._hopeless:
                return
            if self._waiting and self.trouble:
                self._news.set()
                self._closing.wait(RETRY_SECONDS)

    def _flush(self) -> None:
        rows = [self._waiting.popleft() for _ in range(len(self._waiting))]
        if not rows:
            return
        try:
            self._write(rows)
        except (sqlite3.Error, OSError) as error:
            self._tell(in_words(self.file, error))
            self._waiting.extendleft(reversed(rows))  # for the next time
            self._hopeless = not isinstance(error, OSError) and not is_busy(error) and _is_damaged(error)
        except GainsError as error:
            self._tell(error)
            self._hopeless = True
        except Exception as error:
            self._tell(GainsError(f"{type(error).__name__} while figures were written"))
            self._hopeless = True
        else:
            self.trouble = ""

    def _tell(self, error: GainsError) -> None:
        if str(error) != self.trouble:
            log.warning("what is paid and saved is not kept: %s", error)
        self.trouble = str(error)

    def _write(self, rows: Sequence[tuple[GainRow, GainRow | None]]) -> None:
        tried = [trial for _, trial in rows if trial is not None]
        _create(self.file)
        with closing(sqlite3.connect(self.file, timeout=BUSY_SECONDS, isolation_level=None)) as connection:
            if not version_of(connection, self.file):
                _make(connection, self.file)
            connection.execute("PRAGMA wal_autocheckpoint = 0")
            connection.execute("PRAGMA synchronous = NORMAL")
            connection.execute("BEGIN IMMEDIATE")
            for table, columns in missing_columns(connection).items():
                for column in columns:
                    connection.execute(f"ALTER TABLE {table} ADD COLUMN {column}")
            connection.executemany(_INSERT, [row for row, _ in rows])
            if tried:
                connection.execute(TRIAL_SCHEMA)
                connection.executemany(_INSERT_TRIAL, tried)
            self._until_fold -= len(rows)
            if self._until_fold < 0:
                self._until_fold = FOLD_EVERY
                fold(connection, self._clock())
            connection.execute("COMMIT")


def fold(connection: sqlite3.Connection, now: float) -> None:
    """Rows that are old or too many are added up by the day, and dropped."""
    (count,) = connection.execute("SELECT count(*) FROM exchanges").fetchone()
    until = now - MAX_DAYS * DAY_SECONDS
    if count > MAX_ROWS:
        query = "SELECT at FROM exchanges ORDER BY at LIMIT 1 OFFSET ?"
        (newest,) = connection.execute(query, [count - ROWS_LEFT]).fetchone()
        until = max(until, newest)
    connection.execute(_FOLD, [until])
    connection.execute("DELETE FROM exchanges WHERE at < ?", [until])
    if connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'trial'").fetchone():
        connection.execute("DELETE FROM trial WHERE at < ?", [until])


def _trial_row(found: ExchangeRow) -> GainRow | None:
    note = found.trial
    if note is None:
        return None
    paid = found.paid + found.output_paid if found.paid is not None else None
    saved = found.would_have_paid - found.paid if found.paid is not None and found.would_have_paid is not None else 0.0
    sides = (note.unit, note.arm, note.share, name_kept(note.profile))
    money = (paid, saved, found.could_save)
    tokens = (min(found.input, MAX_TOKENS), min(found.output, MAX_TOKENS))
    counts = (note.turns, note.rereads, note.edits, note.failed_edits)
    return (found.at, *sides, found.status, found.outcome, *money, *tokens, *counts)


def _create(file: Path) -> None:
    """The file and its folder are ours alone; what stands beside it while it is written gets the file's mode."""
    if not file.parent.exists():
        file.parent.parent.mkdir(parents=True, exist_ok=True)
        file.parent.mkdir(mode=0o700, exist_ok=True)
    try:
        # Only a new one: to close a file takes away the locks that this process has on it.
        os.close(os.open(file, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
    except FileExistsError:
        if not stat.S_ISREG(os.stat(file).st_mode):  # nobody waits for a pipe
            raise GainsError(f"{name_kept(str(file))}: this is no file: move it away") from None


def _make(connection: sqlite3.Connection, file: Path) -> None:
    _use_log(connection)
    connection.execute("BEGIN IMMEDIATE")
    if not version_of(connection, file):  # another process may have been faster
        for statement in SCHEMA:
            connection.execute(statement)
        connection.execute(f"PRAGMA application_id = {GAINS_ID}")
        connection.execute(f"PRAGMA user_version = {GAINS_VERSION}")
    connection.execute("COMMIT")


def _use_log(connection: sqlite3.Connection) -> None:
    """Write-ahead logging. SQLite does not wait for others here, so we do."""
    deadline = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if not is_busy(error) or time.monotonic() > deadline:
                raise
            time.sleep(0.01)


def _is_damaged(error: sqlite3.Error) -> bool:
    code = (getattr(error, "sqlite_errorcode", None) or 0) & 0xFF
    return code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR)
