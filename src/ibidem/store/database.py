"""Connection to an SQLite file, which is opened at the first use in each process, with readable error messages.

Each `Database` has one connection and a lock for it. A connection must not cross a fork: the child's copy would assume
locks that only the parent has, and another process could then delete the write-ahead log. So all connections are closed
before a fork.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from weakref import WeakSet

from .schema import APPLICATION_ID, MIGRATIONS
from .store import StoreError

BUSY_SECONDS = 15.0
"""Maximum wait for other processes. Their transactions take milliseconds."""

LOG_BYTES = 4 << 20
"""Size from which we empty the write-ahead log, with the write lock. SQLite's automatic checkpoint has no such lock,
and before 3.51.3 commits could be lost if another process wrote at that moment (the WAL-reset bug)."""

FREE_PAGE_RATIO, FREED_PAGES = 4, 1024
"""If more than one page in `FREE_PAGE_RATIO` is free, this many are released at once. Fewer free pages are reused."""

DAMAGED = "this is damaged or not a database: move it away, or use another file"
REASONS = {
    sqlite3.SQLITE_BUSY: "another process keeps it locked: try again, or end that process",
    sqlite3.SQLITE_LOCKED: "another process keeps it locked: try again, or end that process",
    sqlite3.SQLITE_CANTOPEN: "cannot be opened: check the path, and that its folder can be written to",
    sqlite3.SQLITE_CORRUPT: DAMAGED,
    sqlite3.SQLITE_FULL: "the disk is full: free disk space, or use a file on another disk",
    sqlite3.SQLITE_IOERR: "reading or writing failed: check the disk and its free space",
    sqlite3.SQLITE_NOTADB: DAMAGED,
    sqlite3.SQLITE_PERM: "no permission: change the file's mode or run as its owner",
    sqlite3.SQLITE_READONLY: "cannot be written to: change the mode of the file and its folder, or use another file",
    sqlite3.SQLITE_TOOBIG: "a text is larger than SQLite allows: it cannot be stored",
}


class Database:
    """An SQLite file with one connection per process. Errors are raised as StoreError."""

    def __init__(self, path: Path, seconds: float | None = None) -> None:
        """`seconds`: maximum wait for other processes and for other threads of this one."""
        self.path = path
        self._file_name, self._log_name = str(path), f"{path}-wal"
        self._seconds = seconds or BUSY_SECONDS
        self.lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None
        self._file: tuple[int, int] | None = None
        """Device and inode of the open file."""
        self._set: dict[str, str | int] = {}
        """Current PRAGMA values. Setting one again would take as long as a short query."""
        with _registering:
            _all.add(self)

    @contextmanager
    def read_transaction(self) -> Iterator[sqlite3.Connection]:
        """Open a read transaction. It sees one state of the file, even if others write at the same time."""
        with (
            self._acquire_lock() as seconds,
            self._translate_errors(),
            _run_transaction(self._open_connection(seconds), "BEGIN") as connection,
        ):
            yield connection

    @contextmanager
    def write_transaction(self, *, durable: bool = True) -> Iterator[sqlite3.Connection]:
        """Open a write transaction. If it is not `durable`, a power loss may undo it, but a crash cannot."""
        with self._acquire_lock() as seconds, self._translate_errors():
            connection = self._open_connection(seconds)
            self._set_pragma(connection, "synchronous", "FULL" if durable else "NORMAL")
            with _run_transaction(connection, "BEGIN IMMEDIATE"):
                yield connection
            if _file_size(self._log_name) > LOG_BYTES:
                _checkpoint_log(connection)

    def shrink_file(self) -> None:
        """Release free pages to the system, and empty the write-ahead log, which still has the deleted data."""
        with self.lock, suppress(sqlite3.Error):  # fails while others read; later writes overwrite the data
            connection = self._open_connection(self._seconds)
            connection.executescript("PRAGMA incremental_vacuum")  # `execute` would free one page
            _checkpoint_log(connection)

    def release_pages(self) -> None:
        """Release some free pages to the system if there are many. It does not wait. Other free pages are reused."""
        with self.lock, suppress(sqlite3.Error, StoreError, OSError):
            connection = self._open_connection(0.0)
            (free,) = connection.execute("PRAGMA freelist_count").fetchone()
            (pages,) = connection.execute("PRAGMA page_count").fetchone()
            if free * FREE_PAGE_RATIO > pages:
                connection.executescript(f"PRAGMA incremental_vacuum({FREED_PAGES})")

    @contextmanager
    def _acquire_lock(self) -> Iterator[float]:
        """Acquire the lock. Yield the seconds that are left to wait for other processes."""
        seconds = self._seconds
        if not self.lock.acquire(blocking=False):
            start = time.monotonic()
            if not self.lock.acquire(timeout=seconds):
                raise StoreError(str(self.path), REASONS[sqlite3.SQLITE_BUSY])
            seconds = max(0.05, seconds - (time.monotonic() - start))
        try:
            yield seconds
        finally:
            self.lock.release()

    def close(self) -> None:
        """Close the connection. The next call opens it again."""
        with self.lock:
            self.close_connection()

    def close_connection(self) -> None:
        """Close the connection. The caller must have acquired the lock."""
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(sqlite3.Error):
                connection.close()

    def _open_connection(self, seconds: float) -> sqlite3.Connection:
        if self._connection is not None and self._file != _file_identity(self._file_name):
            self.close_connection()  # the file was deleted or replaced: writes to the old one would be lost
        if self._connection is None:
            _create_file(self.path)
            self._file = _file_identity(self._file_name)
            self._connection = _connect_file(self.path, seconds)
            self._set = {}
        self._set_pragma(self._connection, "busy_timeout", int(seconds * 1000))
        return self._connection

    def _set_pragma(self, connection: sqlite3.Connection, name: str, value: str | int) -> None:
        if self._set.get(name) != value:
            self._set.pop(name, None)  # if the PRAGMA fails, its value is unknown
            connection.execute(f"PRAGMA {name} = {value}")
            self._set[name] = value

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            code = getattr(error, "sqlite_errorcode", None)
            reason = REASONS.get(code & 0xFF) if code else None
            raise StoreError(str(self.path), reason or f"{error}: use another file, or report this") from error
        except OverflowError as error:
            raise StoreError(str(self.path), REASONS[sqlite3.SQLITE_TOOBIG]) from error
        except OSError as error:
            reason = f"{error.strerror or error}: check the path, and that its folder can be written to"
            raise StoreError(str(self.path), reason) from error


@contextmanager
def _run_transaction(connection: sqlite3.Connection, begin: str) -> Iterator[sqlite3.Connection]:
    connection.execute(begin)
    try:
        yield connection
        connection.execute("COMMIT")
    except BaseException:
        with suppress(sqlite3.Error):  # the first error is the one to report
            if connection.in_transaction:
                connection.execute("ROLLBACK")
        raise


def _checkpoint_log(connection: sqlite3.Connection) -> None:
    """Move the content of the write-ahead log to the file. Errors are ignored, because the log is as durable."""
    with suppress(sqlite3.Error):
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()


def _file_size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0


def _create_file(path: Path) -> None:
    """Create the file and its folder, accessible only to the user. Existing ones are not changed.

    SQLite gives its log files the mode of the file.
    """
    if not path.parent.exists():
        path.parent.parent.mkdir(parents=True, exist_ok=True)
        path.parent.mkdir(mode=0o700, exist_ok=True)
        _sync_folder(path.parent.parent)
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
        _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    """Sync a folder to disk, so that a new file in it survives a power loss. Not every file system supports this."""
    if os.name == "posix":
        with suppress(OSError):
            handle = os.open(folder, os.O_RDONLY)
            try:
                os.fsync(handle)
            finally:
                os.close(handle)


def _file_identity(path: str) -> tuple[int, int] | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _connect_file(path: Path, seconds: float) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=seconds, isolation_level=None, check_same_thread=False)
    try:
        _prepare_connection(connection, path, seconds)
    except BaseException:
        connection.close()
        raise
    return connection


def _prepare_connection(connection: sqlite3.Connection, path: Path, seconds: float) -> None:
    with _run_transaction(connection, "BEGIN"):  # see one state of the file: another process may be creating it
        version = _read_version(connection, path)
    if version is None:
        connection.execute("PRAGMA auto_vacuum = INCREMENTAL")  # works only before the first table is created
    _enable_wal(connection, path, seconds)
    connection.execute("PRAGMA wal_autocheckpoint = 0")  # see LOG_BYTES
    connection.execute("PRAGMA fullfsync = ON")  # macOS: a plain fsync only reaches the drive's cache
    connection.execute("PRAGMA secure_delete = ON")  # overwrite deleted data
    if version != len(MIGRATIONS):  # a current file needs no write lock
        _migrate_schema(connection, path)


def _migrate_schema(connection: sqlite3.Connection, path: Path) -> None:
    with _run_transaction(connection, "BEGIN IMMEDIATE"):
        applied_count = (
            _read_version(connection, path) or 0
        )  # read again, because another process may have migrated the file
        for statements in MIGRATIONS[applied_count:]:
            for statement in statements:
                connection.execute(statement)
        if applied_count < len(MIGRATIONS):
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version = {len(MIGRATIONS)}")


def _read_version(connection: sqlite3.Connection, path: Path) -> int | None:
    """Return the number of applied migrations, or None if the file is empty. Raises StoreError for other databases."""
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if not (application or version or tables):
        return None
    if application != APPLICATION_ID:
        raise StoreError(str(path), "this is a database of another program: use another file")
    if version > len(MIGRATIONS):
        version_text = f"a newer ibidem wrote this (version {version}, this one knows {len(MIGRATIONS)})"
        raise StoreError(str(path), f"{version_text}: upgrade ibidem-llm, or use another file")
    return int(version)


def _enable_wal(connection: sqlite3.Connection, path: Path, seconds: float) -> None:
    """Turn on write-ahead logging. SQLite does not wait for other processes here, so this function does."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
            break
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
            time.sleep(0.01)
    if mode != "wal":
        raise StoreError(str(path), "this disk cannot be shared between processes: use a file on a local disk")


_registering = threading.Lock()
_all: WeakSet[Database] = WeakSet()
_locked_databases: list[Database] = []


def _before_fork() -> None:
    """Wait for active transactions, and close all connections."""
    _registering.acquire()
    for database in list(_all):
        database.lock.acquire()
        _locked_databases.append(database)
        database.close_connection()


def _after_fork() -> None:
    while _locked_databases:
        _locked_databases.pop().lock.release()
    _registering.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork)
