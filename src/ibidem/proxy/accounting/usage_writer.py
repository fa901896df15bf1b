"""Write costs and savings to the usage database of `ibidem gain`, in a background thread.

`note` appends a row to a queue and returns. A thread, started with the first row, writes the queue in one transaction
every `BATCH_SECONDS`. A killed process loses only the rows of that time.

The file is opened for each batch and closed after it. So an idle process holds no file handle, and a deleted or
replaced file is noticed. The last process that closes the file also checkpoints its write-ahead log.
`wal_autocheckpoint` is 0, because before SQLite 3.51.3 two processes could lose commits if both checkpointed while
writing. An error of the file is reported once and does not reach an exchange.
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

from ...usage_db import (
    DAY_SECONDS,
    EXCHANGE_COLUMNS,
    GAINS_ID,
    GAINS_VERSION,
    SCHEMA,
    TOTALS_SQL,
    TRIAL_COLUMNS,
    TRIAL_SCHEMA,
    UsageDatabaseError,
    UsageTotals,
    describe_error,
    is_busy,
    missing_columns,
    stored_name,
    version_of,
)
from .exchange_rows import ExchangeRow
from .miss_cause import REVISED

log = logging.getLogger("ibidem")

BATCH_SECONDS = 0.3
"""Time between two batches."""
BUSY_SECONDS, CLOSING_SECONDS = 2.0, 3.0
"""Maximum wait of a batch for other processes, and of the proxy's exit for the last batch."""
RETRY_SECONDS = 5.0
"""Time until the next attempt after a failed write."""
MAX_WAITING = 10_000
"""Maximum rows in the queue while the file cannot be written. The oldest are dropped first."""
MAX_DAYS, MAX_ROWS, ROWS_LEFT = 400, 500_000, 450_000
"""Rows older than `MAX_DAYS` are rolled up by day. If there are more than `MAX_ROWS`, `ROWS_LEFT` remain."""
ROLL_UP_EVERY = 10_000
"""Rows that a process writes between two checks for rows to roll up."""
MAX_TOKENS = 10**10
"""Upper bound for the tokens of one request, so that sums fit into the database's integers."""

UsageRow = tuple[object, ...]
"""Values in the order of `EXCHANGE_COLUMNS` or `TRIAL_COLUMNS`."""

_COLUMNS = ", ".join(name for name, _ in EXCHANGE_COLUMNS)
_INSERT = f"INSERT INTO exchanges ({_COLUMNS}) VALUES ({', '.join('?' * len(EXCHANGE_COLUMNS))})"
_INSERT_TRIAL = f"INSERT INTO trial VALUES ({', '.join('?' * len(TRIAL_COLUMNS))})"
_ADDED = ", ".join(f"{name} = {name} + excluded.{name}" for name in UsageTotals._fields)
_ROLL_UP = (
    f"INSERT INTO days (day, {', '.join(UsageTotals._fields)}) "
    f"SELECT CAST(at / {DAY_SECONDS} AS INTEGER), {TOTALS_SQL} FROM exchanges WHERE at < ? GROUP BY 1 "
    f"ON CONFLICT (day) DO UPDATE SET {_ADDED}"
)


class UsageWriter:
    """Writer for the requests of one proxy. Call `note` on the event loop's thread; another thread writes the file."""

    def __init__(self, file: Path, project: str = "", clock: Callable[[], float] = time.time) -> None:
        self.file = file
        self.trouble = ""
        """Current error of the file, in a line; empty if there is none."""
        self._project = stored_name(project)
        self._clock = clock
        self._started = clock()
        self._queue: deque[tuple[UsageRow, UsageRow | None]] = deque(maxlen=MAX_WAITING)
        """Rows to write: one per request, and its trial row if it takes part in a trial."""
        self._news = threading.Event()
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None
        self._until_roll_up = 0
        self._has_failed = False

    def note(self, exchange_row: ExchangeRow, session: str, is_lost: bool, observed: bool) -> None:
        """Queue a request after its response. `is_lost`: a cache miss because of our edit in an earlier request."""
        if self._has_failed or self._closing.is_set():
            return
        self._queue.append((self._build_row(exchange_row, session, is_lost, observed), _trial_row(exchange_row)))
        if self._thread is None:
            self._thread = threading.Thread(target=self._run_writer, name="ibidem-gains", daemon=True)
            self._thread.start()
        self._news.set()

    def close(self) -> None:
        """Write the queue, but wait at most `CLOSING_SECONDS`."""
        self._closing.set()
        self._news.set()
        if self._thread is not None:
            self._thread.join(CLOSING_SECONDS)

    def _build_row(self, exchange_row: ExchangeRow, session: str, is_lost: bool, observed: bool) -> UsageRow:
        names = (
            exchange_row.conversation or "",
            session,
            exchange_row.client,
            self._project,
            exchange_row.model,
            exchange_row.format,
        )
        tokens = (
            exchange_row.fresh,
            exchange_row.read,
            exchange_row.written,
            exchange_row.written_1h,
            exchange_row.output,
            exchange_row.removed,
        )
        revised = exchange_row.miss is not None and exchange_row.miss.endswith(REVISED)
        is_measured = exchange_row.trial is not None and exchange_row.trial.arm == "measure"
        return (
            exchange_row.at,
            self._started,
            *map(stored_name, names),
            exchange_row.status,
            exchange_row.outcome,
            bool(exchange_row.resent),
            is_lost or revised,
            observed or is_measured,
            exchange_row.paid,
            exchange_row.paid - exchange_row.could_save
            if is_measured and exchange_row.paid is not None
            else exchange_row.would_have_paid,
            exchange_row.output_paid,
            *(min(each, MAX_TOKENS) for each in tokens),
            exchange_row.plan,
        )

    def _run_writer(self) -> None:
        while True:
            self._news.wait()
            self._closing.wait(BATCH_SECONDS)
            self._news.clear()
            last = self._closing.is_set()
            self._write_queue()
            if last or self._has_failed:
                return
            if self._queue and self.trouble:
                self._news.set()
                self._closing.wait(RETRY_SECONDS)

    def _write_queue(self) -> None:
        rows = [self._queue.popleft() for _ in range(len(self._queue))]
        if not rows:
            return
        try:
            self._write_rows(rows)
        except (sqlite3.Error, OSError) as error:
            self._report_error(describe_error(self.file, error))
            self._queue.extendleft(reversed(rows))  # back into the queue, for the next attempt
            self._has_failed = not isinstance(error, OSError) and not is_busy(error) and _is_damaged(error)
        except UsageDatabaseError as error:
            self._report_error(error)
            self._has_failed = True
        except Exception as error:
            self._report_error(UsageDatabaseError(f"{type(error).__name__} while writing usage"))
            self._has_failed = True
        else:
            self.trouble = ""

    def _report_error(self, error: UsageDatabaseError) -> None:
        if str(error) != self.trouble:
            log.warning("costs and savings are not stored: %s", error)
        self.trouble = str(error)

    def _write_rows(self, rows: Sequence[tuple[UsageRow, UsageRow | None]]) -> None:
        trial_rows = [trial for _, trial in rows if trial is not None]
        _create_file(self.file)
        with closing(sqlite3.connect(self.file, timeout=BUSY_SECONDS, isolation_level=None)) as connection:
            if not version_of(connection, self.file):
                _create_schema(connection, self.file)
            connection.execute("PRAGMA wal_autocheckpoint = 0")
            connection.execute("PRAGMA synchronous = NORMAL")
            connection.execute("BEGIN IMMEDIATE")
            for table, columns in missing_columns(connection).items():
                for column in columns:
                    connection.execute(f"ALTER TABLE {table} ADD COLUMN {column}")
            connection.executemany(_INSERT, [row for row, _ in rows])
            if trial_rows:
                connection.execute(TRIAL_SCHEMA)
                connection.executemany(_INSERT_TRIAL, trial_rows)
            self._until_roll_up -= len(rows)
            if self._until_roll_up < 0:
                self._until_roll_up = ROLL_UP_EVERY
                roll_up_days(connection, self._clock())
            connection.execute("COMMIT")


def roll_up_days(connection: sqlite3.Connection, now: float) -> None:
    """Roll up rows that are too old or too many into daily sums, and delete them."""
    (count,) = connection.execute("SELECT count(*) FROM exchanges").fetchone()
    until = now - MAX_DAYS * DAY_SECONDS
    if count > MAX_ROWS:
        query = "SELECT at FROM exchanges ORDER BY at LIMIT 1 OFFSET ?"
        (newest,) = connection.execute(query, [count - ROWS_LEFT]).fetchone()
        until = max(until, newest)
    connection.execute(_ROLL_UP, [until])
    connection.execute("DELETE FROM exchanges WHERE at < ?", [until])
    if connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'trial'").fetchone():
        connection.execute("DELETE FROM trial WHERE at < ?", [until])


def _trial_row(exchange_row: ExchangeRow) -> UsageRow | None:
    note = exchange_row.trial
    if note is None:
        return None
    paid = exchange_row.paid + exchange_row.output_paid if exchange_row.paid is not None else None
    saved = (
        exchange_row.would_have_paid - exchange_row.paid
        if exchange_row.paid is not None and exchange_row.would_have_paid is not None
        else 0.0
    )
    assignment = (note.unit, note.arm, note.share, stored_name(note.profile))
    money = (paid, saved, exchange_row.could_save)
    tokens = (min(exchange_row.input, MAX_TOKENS), min(exchange_row.output, MAX_TOKENS))
    counts = (note.turns, note.rereads, note.edits, note.failed_edits)
    return (exchange_row.at, *assignment, exchange_row.status, exchange_row.outcome, *money, *tokens, *counts)


def _create_file(file: Path) -> None:
    """Create the file and its folder, readable only by the user. SQLite gives its journal files the same mode."""
    if not file.parent.exists():
        file.parent.parent.mkdir(parents=True, exist_ok=True)
        file.parent.mkdir(mode=0o700, exist_ok=True)
    try:
        # O_EXCL opens only a new file: closing an existing one would drop this process's POSIX locks on it.
        os.close(os.open(file, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
    except FileExistsError:
        if not stat.S_ISREG(os.stat(file).st_mode):  # SQLite would block on a pipe
            raise UsageDatabaseError(f"{stored_name(str(file))}: not a regular file: move it away") from None


def _create_schema(connection: sqlite3.Connection, file: Path) -> None:
    _use_wal(connection)
    connection.execute("BEGIN IMMEDIATE")
    if not version_of(connection, file):  # another process may have created it since the check
        for statement in SCHEMA:
            connection.execute(statement)
        connection.execute(f"PRAGMA application_id = {GAINS_ID}")
        connection.execute(f"PRAGMA user_version = {GAINS_VERSION}")
    connection.execute("COMMIT")


def _use_wal(connection: sqlite3.Connection) -> None:
    """Turn on write-ahead logging. SQLite's busy timeout does not apply here, so retry until the deadline."""
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
