"""Database of what requests through `ibidem wrap` and `ibidem proxy` cost and saved. It has numbers and no texts.

`exchanges` has a row for each request to a model. Old rows, and rows above the limit, are summed in `days`, by UTC day
and without names, and deleted. So the totals of all time remain. `trial` exists after the first experiment (`--trial`),
with a row for each request that took part. `PRAGMA user_version` is the version of the tables. A file of a newer
version is neither read nor written.

A status line reads this between two keystrokes, so only the standard library is imported here. The writer is in
`proxy.books.gains`.
"""

from __future__ import annotations

import errno
import sqlite3
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self

from .environment import data_folder
from .errors import IbidemError, one_line

GAINS_FILE = "gains.sqlite3"
GAINS_VERSION = 1
GAINS_ID = 0x49424947
"""`PRAGMA application_id`, "IBIG". It distinguishes this file from databases of other programs."""

DAY_SECONDS = 86_400
_NOON = f"(day * {DAY_SECONDS} + {DAY_SECONDS // 2})"
"""Time at which a UTC day is counted, as SQL. At noon, the local date is the same nearly everywhere."""
READ_SECONDS, FORGET_SECONDS = 0.25, 2.0
"""Seconds that a reader waits for a lock, and that a deletion waits."""
MAX_NAME = 1000
"""Maximum stored characters of a name."""

EXCHANGE_COLUMNS = (
    ("at", "REAL NOT NULL"),  # when the request was sent, in Unix seconds
    ("started", "REAL NOT NULL"),  # start of the proxy; together with `conversation` it is unique in the file
    ("conversation", "TEXT NOT NULL"),
    ("session", "TEXT NOT NULL"),  # the client's own session id, if it sends one
    ("client", "TEXT NOT NULL"),
    ("project", "TEXT NOT NULL"),  # the folder in which `ibidem wrap` was started
    ("model", "TEXT NOT NULL"),
    ("format", "TEXT NOT NULL"),
    ("status", "INTEGER NOT NULL"),
    ("outcome", "TEXT NOT NULL"),  # rewritten, unchanged, observed, failed open, or passed if it is signed
    ("refused", "INTEGER NOT NULL"),
    ("miss", "INTEGER NOT NULL"),  # 1 after a cache miss that our revision caused
    ("observed", "INTEGER NOT NULL"),  # 1: `would_have_paid` is with Ibidem; 0: without
    ("paid", "REAL"),  # dollars for input; NULL without token counts
    ("would_have_paid", "REAL"),
    ("output_paid", "REAL NOT NULL"),
    ("fresh", "INTEGER NOT NULL"),  # tokens, as counted by the provider
    ("read", "INTEGER NOT NULL"),
    ("written", "INTEGER NOT NULL"),  # with any TTL
    ("written_1h", "INTEGER NOT NULL"),  # the part of `written` with a TTL of one hour
    ("output", "INTEGER NOT NULL"),
    ("removed", "INTEGER NOT NULL DEFAULT 0"),  # input tokens removed, or removable if only observed
    ("plan", "INTEGER NOT NULL DEFAULT 0"),  # 1 if a subscription covers it: dollars are values at list prices
)
LATER_COLUMNS = EXCHANGE_COLUMNS[-2:]
"""Columns that files of earlier builds lack. Readers assume 0, and a writer adds them."""


TRIAL_COLUMNS = (
    ("at", "REAL NOT NULL"),
    ("unit", "TEXT NOT NULL"),  # the randomized session or conversation, as a keyed hash
    ("arm", "TEXT NOT NULL"),  # rewrite or measure
    ("share", "REAL NOT NULL"),  # share of units that are rewritten
    ("profile", "TEXT NOT NULL"),
    ("status", "INTEGER NOT NULL"),
    ("outcome", "TEXT NOT NULL"),
    ("paid", "REAL"),  # dollars for input and output; NULL without token counts
    ("saved", "REAL NOT NULL"),  # dollars saved, estimated; 0 if only measured
    ("could_save", "REAL NOT NULL"),
    ("input", "INTEGER NOT NULL"),  # tokens
    ("output", "INTEGER NOT NULL"),
    ("turns", "INTEGER NOT NULL"),
    ("rereads", "INTEGER NOT NULL"),
    ("edits", "INTEGER NOT NULL"),
    ("failed_edits", "INTEGER NOT NULL"),
)
TRIAL_SCHEMA = f"CREATE TABLE IF NOT EXISTS trial ({', '.join(map(' '.join, TRIAL_COLUMNS))})"


class AssignedConversation(NamedTuple):
    """One client session, or one conversation without a session name, in an experiment, with the sum of its
    requests."""

    unit: str
    first: float
    """Time of its first request, in Unix seconds."""
    arm: str
    """The variant of its first request. It counts there, whatever came later."""
    share: float
    profile: str
    off: bool
    """True if it was paused at some time, and so left the experiment."""
    requests: int
    """Number of requests with a response."""
    priced: int
    """Number of those whose cost is known."""
    turns: int
    rereads: int
    edits: int
    failed_edits: int
    input: int
    output: int
    paid: float
    saved: float
    could_save: float


_HAS_RESPONSE = "status BETWEEN 200 AND 299"
_UNITS = (
    f"SELECT unit, min(at), arm, share, profile, max(outcome = 'off'), sum({_HAS_RESPONSE}), "
    f"sum({_HAS_RESPONSE} AND paid IS NOT NULL), sum(turns), sum(rereads), sum(edits), sum(failed_edits), "
    "sum(input), sum(output), total(paid), total(saved), total(could_save) FROM trial {} GROUP BY unit ORDER BY 2"
)
"""With `min`, the other columns are from the row with the minimum. SQLite guarantees that."""


class UsageTotals(NamedTuple):
    """Totals of some requests. Dollars are for input, at list prices; `written` includes `written_1h`."""

    requests: int = 0
    conversations: int = 0
    rewritten: int = 0
    observed: int = 0
    """Requests that were only observed (`--observe`)."""
    failures: int = 0
    """Requests sent without new edits, because of an error."""
    refusals: int = 0
    """Rewritten requests that the provider rejected, and that were sent again."""
    misses: int = 0
    """Cache misses after our revisions."""
    unpriced: int = 0
    """Requests with a response whose cost is unknown."""
    paid: float = 0.0
    would_have_paid: float = 0.0
    """Cost without Ibidem. An observed request counts with its actual cost."""
    could_save: float = 0.0
    """What Ibidem would have saved on observed requests."""
    output_paid: float = 0.0
    fresh: int = 0
    read: int = 0
    written: int = 0
    written_1h: int = 0
    output: int = 0
    removed: int = 0
    """Input tokens removed."""
    plan_requests: int = 0
    """Requests that a subscription covers, included in the totals. Their dollars are values at list prices."""
    plan_conversations: int = 0
    plan_paid: float = 0.0
    plan_would_have_paid: float = 0.0
    plan_output_paid: float = 0.0
    plan_input: int = 0
    plan_removed: int = 0

    @property
    def plan_totals(self) -> UsageTotals:
        """The part that a subscription covers, if known."""
        return UsageTotals(
            requests=self.plan_requests,
            conversations=self.plan_conversations,
            paid=self.plan_paid,
            would_have_paid=self.plan_would_have_paid,
            output_paid=self.plan_output_paid,
            fresh=self.plan_input,
            removed=self.plan_removed,
        )

    @property
    def pay_per_use_totals(self) -> UsageTotals:
        """The part that is billed per use."""
        return UsageTotals(*[every - part for every, part in zip(self, self.plan_totals, strict=True)])._replace(  # type: ignore[arg-type]
            **dict.fromkeys(PLAN_FIELDS, 0)
        )

    @property
    def removed_share(self) -> float:
        """Fraction of the input tokens that was removed."""
        return self.removed / (self.input_tokens + self.removed) if self.removed else 0.0

    @property
    def saved_dollars(self) -> float:
        """Dollars saved on input."""
        return self.would_have_paid - self.paid

    @property
    def saved_share(self) -> float:
        """Fraction of the input cost without Ibidem that was saved."""
        return self.saved_dollars / self.would_have_paid if self.would_have_paid else 0.0

    @property
    def saved_share_of_total(self) -> float | None:
        """Fraction of the cost of input and output that was saved; None if no output was recorded."""
        return self.saved_dollars / (self.would_have_paid + self.output_paid) if self.output_paid else None

    @property
    def input_tokens(self) -> int:
        """Input tokens, cached or not."""
        return self.fresh + self.read + self.written

    def __bool__(self) -> bool:
        return self.requests > 0

    def add(self, other: UsageTotals) -> UsageTotals:
        return UsageTotals(*[mine + theirs for mine, theirs in zip(self, other, strict=True)])  # type: ignore[arg-type]


PLAN_FIELDS = tuple(name for name in UsageTotals._fields if name.startswith("plan_"))
_WITHOUT = "CASE WHEN observed THEN paid ELSE would_have_paid END"
_EXPRESSIONS = {
    "requests": "count(*)",
    "conversations": "count(DISTINCT CASE WHEN conversation <> '' THEN started || ' ' || conversation END)",
    "removed": "coalesce(sum(removed * (1 - observed)), 0)",
    "plan_requests": "sum(plan)",
    "plan_conversations": "count(DISTINCT CASE WHEN plan AND conversation <> '' "
    "THEN started || ' ' || conversation END)",
    "plan_paid": "total(plan * paid)",
    "plan_would_have_paid": f"total(plan * {_WITHOUT})",
    "plan_output_paid": "total(plan * output_paid)",
    "plan_input": "coalesce(sum(plan * (fresh + read + written)), 0)",
    "plan_removed": "coalesce(sum(plan * removed * (1 - observed)), 0)",
    "rewritten": "sum(outcome = 'rewritten')",
    "observed": "sum(observed)",
    "failures": "sum(outcome = 'failed open')",
    "refusals": "sum(refused)",
    "misses": "sum(miss)",
    "unpriced": "sum(paid IS NULL AND status BETWEEN 200 AND 299)",
    "paid": "total(paid)",
    "would_have_paid": f"total({_WITHOUT})",
    "could_save": "total(CASE WHEN observed THEN paid - would_have_paid END)",
}
"""SQL for each field of `UsageTotals` that is not the plain sum of its column in `exchanges`."""
TOTALS_SQL = ", ".join(
    _EXPRESSIONS.get(name) or (f"total({name})" if name == "output_paid" else f"coalesce(sum({name}), 0)")
    for name in UsageTotals._fields
)
"""SQL for the `UsageTotals` of rows in `exchanges`."""

_DAY_COLUMNS = ", ".join(f"{name} NOT NULL DEFAULT 0" for name in UsageTotals._fields)

SCHEMA = (
    f"CREATE TABLE exchanges (id INTEGER PRIMARY KEY, {', '.join(map(' '.join, EXCHANGE_COLUMNS))})",
    "CREATE INDEX exchanges_by_time ON exchanges (at)",
    "CREATE INDEX exchanges_by_session ON exchanges (session) WHERE session <> ''",
    f"CREATE TABLE days (day INTEGER PRIMARY KEY, {_DAY_COLUMNS})",
)
LATER_FIELDS = ("removed", *PLAN_FIELDS)
"""Columns of `days` that files of earlier builds lack."""


Name = Literal["model", "project", "client"]
EARLIER = "(added up, more than 400 days ago)"


class UsageDatabaseError(IbidemError):
    """The database cannot be used. One line says which file, why, and what to do."""


def database_path() -> Path:
    """Return the path of the database, which may not exist. Raises IbidemError without a home folder."""
    return data_folder() / GAINS_FILE


def stored_name(text: str) -> str:
    """Return a client's name as stored: one printable line of limited length."""
    return one_line(text[:MAX_NAME])


_DAMAGED = "the file is damaged or not a database: `ibidem gain --forget` removes it"
_BUSY = "another process keeps it locked: try again, or end that process"
REASONS = {
    sqlite3.SQLITE_BUSY: _BUSY,
    sqlite3.SQLITE_LOCKED: _BUSY,
    sqlite3.SQLITE_CANTOPEN: "cannot be opened: check its mode, and that of its folder",
    sqlite3.SQLITE_CORRUPT: _DAMAGED,
    sqlite3.SQLITE_NOTADB: _DAMAGED,
    sqlite3.SQLITE_FULL: "the disk is full: make room",
    sqlite3.SQLITE_READONLY: "cannot be written to: change the mode of the file and of its folder",
    sqlite3.SQLITE_PERM: "no permission: change its mode, or run as its owner",
}


def describe_error(file: Path, error: sqlite3.Error | OSError) -> UsageDatabaseError:
    """Return an error of SQLite or the system as one line with advice."""
    where = one_line(str(file))
    if isinstance(error, OSError):
        if error.errno in (errno.EMFILE, errno.ENFILE):
            return UsageDatabaseError(
                f"{where}: too many files are open: close clients, or raise the limit (ulimit -n)"
            )
        return UsageDatabaseError(
            f"{where}: {error.strerror or type(error).__name__}: check its mode, and that of its folder"
        )
    code = getattr(error, "sqlite_errorcode", None)
    reason = REASONS.get((code or 0) & 0xFF)
    if reason is None and isinstance(error, sqlite3.DatabaseError) and not isinstance(error, sqlite3.OperationalError):
        reason = _DAMAGED
    return UsageDatabaseError(f"{where}: {reason or f'{one_line(str(error))}: `ibidem gain --forget` removes it'}")


def version_of(connection: sqlite3.Connection, file: Path) -> int:
    """Return the version of the tables; 0 for an empty file. Raises UsageDatabaseError if this version cannot read
    it."""
    starts_transaction = not connection.in_transaction
    if starts_transaction:
        connection.execute("BEGIN")  # a consistent view: another process may be creating the tables
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if starts_transaction:
        connection.execute("COMMIT")
    if not (application or version or tables):
        return 0
    where = one_line(str(file))
    if application != GAINS_ID:
        raise UsageDatabaseError(f"{where}: this is a database of another program: move it away")
    if version > GAINS_VERSION:
        cause = f"a newer ibidem wrote this (version {version}, this one knows {GAINS_VERSION})"
        raise UsageDatabaseError(f"{where}: {cause}: upgrade ibidem-llm")
    return int(version)


class UsageDatabase:
    """The usage database, read-only. A missing file counts as empty and is not created.

    Opening and reading raise UsageDatabaseError if the file cannot be used.
    """

    def __init__(self, file: Path | None = None, patience: float = READ_SECONDS) -> None:
        self.file = database_path() if file is None else file
        self._connection: sqlite3.Connection | None = None
        try:
            self._connection = _open_read_only(self.file, patience)
            if self._connection is not None and not version_of(self._connection, self.file):
                self.close()  # another process is creating it
            if self._connection is not None:
                _add_missing(self._connection)
        except (sqlite3.Error, OSError) as error:
            self.close()
            raise describe_error(self.file, error) from None
        except UsageDatabaseError:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def session_totals(self, client_session: str) -> UsageTotals | None:
        """Return the totals of a client's session; None without requests.

        The status line does not call it, because importing this module is slow: `statusline_text` has its own query.
        A test compares the two results.
        """
        name = stored_name(client_session)
        rows = self._fetch_rows(f"SELECT {TOTALS_SQL} FROM exchanges WHERE session = ? AND session <> ''", name)
        return next((UsageTotals(*row) for row in rows if row[0]), None)

    def total_usage(self, since: float | None = None, until: float | None = None) -> UsageTotals:
        """Return the totals of requests since one time and before another, in Unix seconds."""
        query, values = _time_filter("at", since, until)
        rows = self._fetch_rows(f"SELECT {TOTALS_SQL} FROM exchanges {query}", *values)
        return next((UsageTotals(*row) for row in rows if row[0]), UsageTotals()).add(self._daily_totals(since, until))

    def totals_by_name(
        self, by: Name, since: float | None = None, until: float | None = None
    ) -> dict[str, UsageTotals]:
        """Return totals by name. The name is empty if none was sent, and `EARLIER` for rows without names."""
        query, values = _time_filter("at", since, until)
        rows = self._fetch_rows(f"SELECT {by}, {TOTALS_SQL} FROM exchanges {query} GROUP BY 1", *values)
        totals = {name: UsageTotals(*sums) for name, *sums in rows}
        earlier = self._daily_totals(since, until)
        return {**totals, EARLIER: earlier} if earlier else totals

    def time_range(self) -> tuple[float, float] | None:
        """Return the times of the first and the last request; None for an empty database."""
        query = f"SELECT min(at), max(at) FROM (SELECT at FROM exchanges UNION ALL SELECT {_NOON} FROM days)"
        return next(((first, last) for first, last in self._fetch_rows(query) if first is not None), None)

    def assigned_conversations(
        self, since: float | None = None, until: float | None = None
    ) -> list[AssignedConversation]:
        """Return the units of experiments, in the order of their first request."""
        if not self._fetch_rows("SELECT 1 FROM sqlite_master WHERE name = 'trial'"):
            return []
        query, values = _time_filter("at", since, until)
        return [
            AssignedConversation(*row)._replace(off=bool(row[5]))
            for row in self._fetch_rows(_UNITS.format(query), *values)
        ]

    def _daily_totals(self, since: float | None, until: float | None) -> UsageTotals:
        sums_sql = ", ".join(f"coalesce(sum({name}), 0)" for name in UsageTotals._fields)
        query, values = _time_filter(_NOON, since, until)
        return next(
            (UsageTotals(*row) for row in self._fetch_rows(f"SELECT {sums_sql} FROM days {query}", *values)),
            UsageTotals(),
        )

    def _fetch_rows(self, query: str, *values: object) -> list[Any]:
        try:
            return [] if self._connection is None else self._connection.execute(query, values).fetchall()
        except sqlite3.Error as error:
            raise describe_error(self.file, error) from None


def missing_columns(connection: sqlite3.Connection) -> dict[str, list[str]]:
    """Return definitions, by table, of the columns that a file of an earlier build lacks."""
    later_columns = {"exchanges": LATER_COLUMNS, "days": [(name, "NOT NULL DEFAULT 0") for name in LATER_FIELDS]}
    missing = {}
    for table, columns in later_columns.items():
        existing = {row[1] for row in connection.execute(f"PRAGMA main.table_info({table})")}
        missing[table] = [f"{name} {kind}" for name, kind in columns if name not in existing]
    return missing


def _add_missing(connection: sqlite3.Connection) -> None:
    """Let queries use the later columns of a read-only file: temporary views hide its tables."""
    for table, columns in missing_columns(connection).items():
        if columns:
            zeros = ", ".join(f"0 AS {column.split()[0]}" for column in columns)
            connection.execute(f"CREATE TEMP VIEW {table} AS SELECT *, {zeros} FROM main.{table}")


def _time_filter(column: str, since: float | None, until: float | None) -> tuple[str, list[float]]:
    """Return a WHERE clause and its values. Without bounds it is empty, because scanning by index takes five times as
    long."""
    ends = [(f"{column} {sign} ?", end) for sign, end in ((">=", since), ("<", until)) if end is not None]
    return f"WHERE {' AND '.join(term for term, _ in ends)}" if ends else "", [end for _, end in ends]


def _open_read_only(file: Path, patience: float) -> sqlite3.Connection | None:
    if not file.is_file():
        if file.exists():
            raise UsageDatabaseError(f"{one_line(str(file))}: not a regular file: move it away")
        return None
    address = f"{file.absolute().as_uri()}?mode=ro"
    connection = sqlite3.connect(address, uri=True, timeout=patience, isolation_level=None, check_same_thread=False)
    try:
        connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except sqlite3.OperationalError as error:
        connection.close()
        is_blocked = error.sqlite_errorcode & 0xFF in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY)
        if not is_blocked or Path(f"{file}-wal").exists():
            raise
        # No process writes, and SQLite cannot create its shared-memory file here. So the file does not change.
        return sqlite3.connect(f"{address}&immutable=1", uri=True, isolation_level=None, check_same_thread=False)
    return connection


def delete_usage(file: Path | None = None) -> UsageTotals:
    """Delete the database. Return its totals, or empty ones if it could not be read.

    The rows are deleted before the file, so that a process that has it open finds it empty and continues.
    """
    file, totals = database_path() if file is None else file, UsageTotals()
    try:
        if not file.exists():
            return totals
        with suppress(UsageDatabaseError), UsageDatabase(file, patience=FORGET_SECONDS) as database:
            totals = database.total_usage()
        _delete_rows(file)
        for name in (file, *(file.with_name(f"{file.name}{end}") for end in ("-wal", "-shm", "-journal"))):
            name.unlink(missing_ok=True)
    except (sqlite3.Error, OSError) as error:
        raise describe_error(file, error) from None
    return totals


def _delete_rows(file: Path) -> None:
    """Delete all rows. Raises if another process locks the file. Damaged files, and those of other versions, are only
    deleted."""
    with closing(sqlite3.connect(file, timeout=FORGET_SECONDS, isolation_level=None)) as connection:
        try:
            connection.execute("PRAGMA secure_delete = ON")
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("DELETE FROM exchanges")
            connection.execute("DELETE FROM days")
            connection.execute(TRIAL_SCHEMA)  # the table may be missing
            connection.execute("DELETE FROM trial")
            connection.execute("COMMIT")
        except sqlite3.DatabaseError as error:
            if is_busy(error):
                raise
        with suppress(sqlite3.DatabaseError):
            connection.execute("PRAGMA journal_mode = DELETE")  # if no other process has it open, this removes its log


def is_busy(error: sqlite3.Error) -> bool:
    """Return True if another process locks the file, so that a retry may help."""
    return (getattr(error, "sqlite_errorcode", None) or 0) & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
