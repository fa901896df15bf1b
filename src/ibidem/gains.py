"""What was paid and saved by requests that went through `ibidem wrap` and `ibidem proxy`: a file of figures, no texts.

`exchanges` has a row for each request that went to a model. Rows that are old, or too many, are added up in `days`, by
the day (of UTC) and without names, and dropped: so sums of all time stay. `trial` is there once somebody tried
(`--trial`), with a row for each request that took part. `PRAGMA user_version` is the version of the
tables; a file of a newer one is neither read nor written.

A status line reads this between two keystrokes, so nothing but the standard library is imported here. The writer is in
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
"""`PRAGMA application_id`, "IBIG": tells this file from the databases of other programs."""

DAY_SECONDS = 86_400
_NOON = f"(day * {DAY_SECONDS} + {DAY_SECONDS // 2})"
"""Where a day of UTC is counted, as SQL: nearly everywhere that is the same day."""
READ_SECONDS, FORGET_SECONDS = 0.25, 2.0
"""How long a reader waits for others, and who deletes all of it."""
MAX_NAME = 1000
"""Characters of a name that are kept."""

EXCHANGE_COLUMNS = (
    ("at", "REAL NOT NULL"),  # when it was sent, in Unix seconds
    ("started", "REAL NOT NULL"),  # the proxy; with `conversation` that names one in the whole file
    ("conversation", "TEXT NOT NULL"),
    ("session", "TEXT NOT NULL"),  # what the client itself calls it, where it says
    ("client", "TEXT NOT NULL"),
    ("project", "TEXT NOT NULL"),  # the folder that `ibidem wrap` was started in
    ("model", "TEXT NOT NULL"),
    ("format", "TEXT NOT NULL"),
    ("status", "INTEGER NOT NULL"),
    ("outcome", "TEXT NOT NULL"),  # rewritten, unchanged, observed, failed open, or passed for what is signed
    ("refused", "INTEGER NOT NULL"),
    ("miss", "INTEGER NOT NULL"),  # the provider's cache was missed after a change of ours
    ("observed", "INTEGER NOT NULL"),  # then `would_have_paid` is with ibidem, otherwise without
    ("paid", "REAL"),  # dollars for input; NULL where nothing was counted
    ("would_have_paid", "REAL"),
    ("output_paid", "REAL NOT NULL"),
    ("fresh", "INTEGER NOT NULL"),  # tokens, as the provider counted them
    ("read", "INTEGER NOT NULL"),
    ("written", "INTEGER NOT NULL"),  # for how long whatever
    ("written_1h", "INTEGER NOT NULL"),  # of these, for an hour
    ("output", "INTEGER NOT NULL"),
    ("removed", "INTEGER NOT NULL DEFAULT 0"),  # input tokens that were left out, or would have been if only observed
    ("plan", "INTEGER NOT NULL DEFAULT 0"),  # a subscription covers it: dollars are values at list prices
)
LATER_COLUMNS = EXCHANGE_COLUMNS[-2:]
"""Files of earlier builds lack these. Readers assume 0, and a writer adds them."""


TRIAL_COLUMNS = (
    ("at", "REAL NOT NULL"),
    ("unit", "TEXT NOT NULL"),  # what the coin was tossed for, as a keyed hash
    ("arm", "TEXT NOT NULL"),  # rewrite or measure
    ("share", "REAL NOT NULL"),  # of units that are rewritten
    ("profile", "TEXT NOT NULL"),
    ("status", "INTEGER NOT NULL"),
    ("outcome", "TEXT NOT NULL"),
    ("paid", "REAL"),  # dollars for input and output; NULL where nothing was counted
    ("saved", "REAL NOT NULL"),  # of these, by our count; nothing where it was only measured
    ("could_save", "REAL NOT NULL"),
    ("input", "INTEGER NOT NULL"),  # tokens
    ("output", "INTEGER NOT NULL"),
    ("turns", "INTEGER NOT NULL"),
    ("rereads", "INTEGER NOT NULL"),
    ("edits", "INTEGER NOT NULL"),
    ("failed_edits", "INTEGER NOT NULL"),
)
TRIAL_SCHEMA = f"CREATE TABLE IF NOT EXISTS trial ({', '.join(map(' '.join, TRIAL_COLUMNS))})"


class TrialUnit(NamedTuple):
    """One client session, or one conversation where none is named, in a trial: all its requests together."""

    unit: str
    first: float
    """When it began, in Unix seconds."""
    arm: str
    """The side that it began on: it counts there, whatever came after."""
    share: float
    profile: str
    off: bool
    """It was switched off at some time, and so left the trial."""
    requests: int
    """That were answered."""
    priced: int
    """Of these, those whose cost is known."""
    turns: int
    rereads: int
    edits: int
    failed_edits: int
    input: int
    output: int
    paid: float
    saved: float
    could_save: float


_ANSWERED = "status BETWEEN 200 AND 299"
_UNITS = (
    f"SELECT unit, min(at), arm, share, profile, max(outcome = 'off'), sum({_ANSWERED}), "
    f"sum({_ANSWERED} AND paid IS NOT NULL), sum(turns), sum(rereads), sum(edits), sum(failed_edits), "
    "sum(input), sum(output), total(paid), total(saved), total(could_save) FROM trial {} GROUP BY unit ORDER BY 2"
)
"""With `min`, the columns that stand alone are those of the row that has it: SQLite promises that."""


class Sum(NamedTuple):
    """Of some requests. Dollars are for input, at list prices; `written` holds `written_1h`."""

    requests: int = 0
    conversations: int = 0
    rewritten: int = 0
    observed: int = 0
    """Requests that were only looked at (`--observe`)."""
    failures: int = 0
    """Sent without new edits, because something was in the way."""
    refusals: int = 0
    """Rewritten, refused by the provider, and sent again."""
    misses: int = 0
    """Misses of the provider's cache after a change of ours."""
    unpriced: int = 0
    """Answered, and nobody knows what it cost."""
    paid: float = 0.0
    would_have_paid: float = 0.0
    """Without ibidem. What was only observed would have cost what it did."""
    could_save: float = 0.0
    """What ibidem would have saved of what was only observed."""
    output_paid: float = 0.0
    fresh: int = 0
    read: int = 0
    written: int = 0
    written_1h: int = 0
    output: int = 0
    removed: int = 0
    """Input tokens that were left out."""
    plan_requests: int = 0
    """Of all these, requests that a subscription covers. Their dollars are values at list prices."""
    plan_conversations: int = 0
    plan_paid: float = 0.0
    plan_would_have_paid: float = 0.0
    plan_output_paid: float = 0.0
    plan_input: int = 0
    plan_removed: int = 0

    @property
    def plan(self) -> Sum:
        """The part that a subscription covers, as far as it is known."""
        return Sum(
            requests=self.plan_requests,
            conversations=self.plan_conversations,
            paid=self.plan_paid,
            would_have_paid=self.plan_would_have_paid,
            output_paid=self.plan_output_paid,
            fresh=self.plan_input,
            removed=self.plan_removed,
        )

    @property
    def by_use(self) -> Sum:
        """The part that is paid by use."""
        return Sum(*[every - part for every, part in zip(self, self.plan, strict=True)])._replace(  # type: ignore[arg-type]
            **dict.fromkeys(PLAN_FIELDS, 0)
        )

    @property
    def removed_share(self) -> float:
        """Share of the input tokens that were left out."""
        return self.removed / (self.input + self.removed) if self.removed else 0.0

    @property
    def saved(self) -> float:
        return self.would_have_paid - self.paid

    @property
    def share(self) -> float:
        """Of what would have been paid, what was saved."""
        return self.saved / self.would_have_paid if self.would_have_paid else 0.0

    @property
    def input(self) -> int:
        return self.fresh + self.read + self.written

    def __bool__(self) -> bool:
        return self.requests > 0

    def plus(self, other: Sum) -> Sum:
        return Sum(*[mine + theirs for mine, theirs in zip(self, other, strict=True)])  # type: ignore[arg-type]


PLAN_FIELDS = tuple(name for name in Sum._fields if name.startswith("plan_"))
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
"""What a field of `Sum` is in `exchanges`, where it is not simply the sum of the column."""
SUMMED = ", ".join(
    _EXPRESSIONS.get(name) or (f"total({name})" if name == "output_paid" else f"coalesce(sum({name}), 0)")
    for name in Sum._fields
)
"""A `Sum` of rows in `exchanges`, as SQL."""

SCHEMA = (
    f"CREATE TABLE exchanges (id INTEGER PRIMARY KEY, {', '.join(map(' '.join, EXCHANGE_COLUMNS))})",
    "CREATE INDEX exchanges_by_time ON exchanges (at)",
    "CREATE INDEX exchanges_by_session ON exchanges (session) WHERE session <> ''",
    f"CREATE TABLE days (day INTEGER PRIMARY KEY, {', '.join(f'{name} NOT NULL DEFAULT 0' for name in Sum._fields)})",
)
LATER_FIELDS = ("removed", *PLAN_FIELDS)
"""Columns of `days` that files of earlier builds lack."""


Name = Literal["model", "project", "client"]
EARLIER = "(added up, more than 400 days ago)"


class GainsError(IbidemError):
    """The file cannot be used. One line says which, why, and what to do."""


def path() -> Path:
    """Where the file is, or would be. IbidemError for who has no home."""
    return data_folder() / GAINS_FILE


def name_kept(text: str) -> str:
    """What is kept of a name that a client sends: one line, not too long, that any database takes."""
    return one_line(text[:MAX_NAME])


_DAMAGED = "this is damaged or no database: `ibidem gain --forget` removes it"
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


def in_words(file: Path, error: sqlite3.Error | OSError) -> GainsError:
    where = one_line(str(file))
    if isinstance(error, OSError):
        if error.errno in (errno.EMFILE, errno.ENFILE):
            return GainsError(f"{where}: too many files are open: close clients, or raise the limit (ulimit -n)")
        return GainsError(f"{where}: {error.strerror or type(error).__name__}: check its mode, and that of its folder")
    code = getattr(error, "sqlite_errorcode", None)
    known = REASONS.get((code or 0) & 0xFF)
    if known is None and isinstance(error, sqlite3.DatabaseError) and not isinstance(error, sqlite3.OperationalError):
        known = _DAMAGED
    return GainsError(f"{where}: {known or f'{one_line(str(error))}: `ibidem gain --forget` removes it'}")


def version_of(connection: sqlite3.Connection, file: Path) -> int:
    """Of its tables; 0 for a file that is empty. Raises GainsError for one that is not for this version."""
    outside = not connection.in_transaction
    if outside:
        connection.execute("BEGIN")  # one state of the file: another process may be making it
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if outside:
        connection.execute("COMMIT")
    if not (application or version or tables):
        return 0
    where = one_line(str(file))
    if application != GAINS_ID:
        raise GainsError(f"{where}: this is a database of another program: move it away")
    if version > GAINS_VERSION:
        known = f"a newer ibidem wrote this (version {version}, this one knows {GAINS_VERSION})"
        raise GainsError(f"{where}: {known}: upgrade ibidem-llm")
    return int(version)


class Gains:
    """The file, to be read. One that is not there is empty, and is not made by looking.

    Opening it raises GainsError, and so does reading, for a file that cannot be used.
    """

    def __init__(self, file: Path | None = None, patience: float = READ_SECONDS) -> None:
        self.file = path() if file is None else file
        self._connection: sqlite3.Connection | None = None
        try:
            self._connection = _opened(self.file, patience)
            if self._connection is not None and not version_of(self._connection, self.file):
                self.close()  # somebody is just making it
            if self._connection is not None:
                _add_missing(self._connection)
        except (sqlite3.Error, OSError) as error:
            self.close()
            raise in_words(self.file, error) from None
        except GainsError:
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

    def session(self, client_session: str) -> Sum | None:
        """Of what the client calls its session; None where nothing is known of it."""
        name = name_kept(client_session)
        found = self._rows(f"SELECT {SUMMED} FROM exchanges WHERE session = ? AND session <> ''", name)
        return next((Sum(*row) for row in found if row[0]), None)

    def total(self, since: float | None = None, until: float | None = None) -> Sum:
        """Of requests from then on and up to then, in Unix seconds."""
        query, values = _within("at", since, until)
        found = self._rows(f"SELECT {SUMMED} FROM exchanges {query}", *values)
        return next((Sum(*row) for row in found if row[0]), Sum()).plus(self._days(since, until))

    def sums(self, by: Name, since: float | None = None, until: float | None = None) -> dict[str, Sum]:
        """By name; empty where none was told, and `EARLIER` for what has none any more."""
        query, values = _within("at", since, until)
        rows = self._rows(f"SELECT {by}, {SUMMED} FROM exchanges {query} GROUP BY 1", *values)
        found = {name: Sum(*sums) for name, *sums in rows}
        earlier = self._days(since, until)
        return {**found, EARLIER: earlier} if earlier else found

    def span(self) -> tuple[float, float] | None:
        """When the first and the last request were; None where nothing is kept."""
        query = f"SELECT min(at), max(at) FROM (SELECT at FROM exchanges UNION ALL SELECT {_NOON} FROM days)"
        return next(((first, last) for first, last in self._rows(query) if first is not None), None)

    def trial(self, since: float | None = None, until: float | None = None) -> list[TrialUnit]:
        """What took part in a trial, in the order in which it began."""
        if not self._rows("SELECT 1 FROM sqlite_master WHERE name = 'trial'"):
            return []
        query, values = _within("at", since, until)
        return [TrialUnit(*row)._replace(off=bool(row[5])) for row in self._rows(_UNITS.format(query), *values)]

    def _days(self, since: float | None, until: float | None) -> Sum:
        summed = ", ".join(f"coalesce(sum({name}), 0)" for name in Sum._fields)
        query, values = _within(_NOON, since, until)
        return next((Sum(*row) for row in self._rows(f"SELECT {summed} FROM days {query}", *values)), Sum())

    def _rows(self, query: str, *values: object) -> list[Any]:
        try:
            return [] if self._connection is None else self._connection.execute(query, values).fetchall()
        except sqlite3.Error as error:
            raise in_words(self.file, error) from None


def missing_columns(connection: sqlite3.Connection) -> dict[str, list[str]]:
    """By table, definitions of the columns that a file of an earlier build lacks."""
    wanted = {"exchanges": LATER_COLUMNS, "days": [(name, "NOT NULL DEFAULT 0") for name in LATER_FIELDS]}
    missing = {}
    for table, columns in wanted.items():
        known = {row[1] for row in connection.execute(f"PRAGMA main.table_info({table})")}
        missing[table] = [f"{name} {kind}" for name, kind in columns if name not in known]
    return missing


def _add_missing(connection: sqlite3.Connection) -> None:
    """Let queries find the later columns of a file that is only read: temporary views hide its tables."""
    for table, columns in missing_columns(connection).items():
        if columns:
            zeros = ", ".join(f"0 AS {column.split()[0]}" for column in columns)
            connection.execute(f"CREATE TEMP VIEW {table} AS SELECT *, {zeros} FROM main.{table}")


def _within(at: str, since: float | None, until: float | None) -> tuple[str, list[float]]:
    """Which rows, as SQL. For all of them no index is gone through: that takes five times as long."""
    ends = [(f"{at} {sign} ?", end) for sign, end in ((">=", since), ("<", until)) if end is not None]
    return f"WHERE {' AND '.join(term for term, _ in ends)}" if ends else "", [end for _, end in ends]


def _opened(file: Path, patience: float) -> sqlite3.Connection | None:
    if not file.is_file():
        if file.exists():
            raise GainsError(f"{one_line(str(file))}: this is no file: move it away")
        return None
    address = f"{file.absolute().as_uri()}?mode=ro"
    connection = sqlite3.connect(address, uri=True, timeout=patience, isolation_level=None, check_same_thread=False)
    try:
        connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except sqlite3.OperationalError as error:
        connection.close()
        barred = error.sqlite_errorcode & 0xFF in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY)
        if not barred or Path(f"{file}-wal").exists():
            raise
        # Nobody is writing, and the folder does not let us put there what readers agree by: then nothing changes.
        return sqlite3.connect(f"{address}&immutable=1", uri=True, isolation_level=None, check_same_thread=False)
    return connection


def forget(file: Path | None = None) -> Sum:
    """Delete the file, and what stands in it. Returns what that was; nothing for a file that could not be read.

    What is there is deleted first and then the file: who has it open finds it empty, and goes on.
    """
    file, was = path() if file is None else file, Sum()
    try:
        if not file.exists():
            return was
        with suppress(GainsError), Gains(file, patience=FORGET_SECONDS) as found:
            was = found.total()
        _emptied(file)
        for name in (file, *(file.with_name(f"{file.name}{end}") for end in ("-wal", "-shm", "-journal"))):
            name.unlink(missing_ok=True)
    except (sqlite3.Error, OSError) as error:
        raise in_words(file, error) from None
    return was


def _emptied(file: Path) -> None:
    """Raises if others keep it locked. What is damaged, or of another version, is for the file system to delete."""
    with closing(sqlite3.connect(file, timeout=FORGET_SECONDS, isolation_level=None)) as connection:
        try:
            connection.execute("PRAGMA secure_delete = ON")
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("DELETE FROM exchanges")
            connection.execute("DELETE FROM days")
            connection.execute(TRIAL_SCHEMA)  # there may be none, and what is empty is deleted with the file
            connection.execute("DELETE FROM trial")
            connection.execute("COMMIT")
        except sqlite3.DatabaseError as error:
            if is_busy(error):
                raise
        with suppress(sqlite3.DatabaseError):
            connection.execute("PRAGMA journal_mode = DELETE")  # where nobody else has it open, no log stays beside it


def is_busy(error: sqlite3.Error) -> bool:
    """Others have it: to try again may help."""
    return (getattr(error, "sqlite_errorcode", None) or 0) & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
