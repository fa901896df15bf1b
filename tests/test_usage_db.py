"""What was paid and saved, kept in a file: read as it was written, by several at once, whatever happens to the file."""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from ibidem import usage_db
from ibidem.proxy.accounting import usage_writer as writing
from ibidem.proxy.accounting.exchange_rows import ExchangeRow
from ibidem.proxy.accounting.miss_cause import REVISED
from ibidem.proxy.accounting.usage_writer import UsageWriter
from ibidem.usage_db import DAY_SECONDS, UsageDatabase, UsageDatabaseError, UsageTotals
from tests.support.locked import held
from tests.support.modes import mortal

NOW = time.time()


def exchange(number: int = 1, **more: object) -> ExchangeRow:
    known: dict[str, object] = {"outcome": "rewritten", "status": 200, "paid": 0.25, "would_have_paid": 0.5}
    tokens = {"fresh": 10, "read": 100, "written": 20, "written_1h": 5, "output": 7, "output_paid": 0.125}
    names = {"conversation": "c1", "model": "claude-sonnet-4-5", "client": "claude-cli/2.1", "format": "anthropic"}
    return ExchangeRow(**{"id": f"e{number}", "at": NOW, "path": "/v1/messages", **known, **tokens, **names, **more})  # type: ignore[arg-type]


def write(file: Path, *rows: ExchangeRow, session: str = "", observed: bool = False, project: str = "") -> UsageWriter:
    writer = UsageWriter(file, project)
    for row in rows:
        writer.note(row, session, is_lost=False, observed=observed)
    writer.close()
    return writer


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "data" / "gains.sqlite3"


def test_what_was_noted_is_read(file: Path) -> None:
    revised = exchange(3, miss=f"history: {REVISED}", conversation="c2", resent="invalid_request_error")
    write(file, exchange(1), exchange(2, outcome="failed open"), revised, session="s-1", project="/src/app")
    write(file, exchange(4, paid=None, would_have_paid=None, output_paid=0.0, conversation=None))
    assert [each.name for each in file.parent.iterdir()] == [file.name], "the last to close it leaves no log"
    with UsageDatabase(file) as found:
        assert found.session_totals("s-1") == UsageTotals(
            requests=3,
            conversations=2,
            rewritten=2,
            failures=1,
            refusals=1,
            misses=1,
            paid=0.75,
            would_have_paid=1.5,
            output_paid=0.375,
            fresh=30,
            read=300,
            written=60,
            written_1h=15,
            output=21,
        )
        assert found.session_totals("s-2") is found.session_totals("") is None
        total = found.total_usage()
        assert (total.requests, total.conversations, total.unpriced, total.saved_dollars) == (4, 2, 1, 0.75)
        assert (total.saved_share, total.input_tokens) == (0.5, 520)
        assert {name: each.requests for name, each in found.totals_by_name("project").items()} == {"/src/app": 3, "": 1}
    if os.name == "posix":
        assert file.stat().st_mode & 0o777 == 0o600
        assert file.parent.stat().st_mode & 0o777 == 0o700


def test_what_was_only_observed_saved_nothing(file: Path) -> None:
    write(file, exchange(paid=0.5, would_have_paid=0.125), observed=True)
    write(file, exchange(paid=0.25, would_have_paid=1.0))
    with UsageDatabase(file) as found:
        total = found.total_usage()
    assert (total.paid, total.would_have_paid, total.saved_dollars, total.could_save) == (0.75, 1.5, 0.75, 0.375)
    assert total.observed == 1


def test_a_conversation_counts_once_in_each_sum(file: Path) -> None:
    day = NOW - NOW % DAY_SECONDS
    write(file, *(exchange(at=day + hours * 3600.0) for hours in (1, 2, 25, 26)))
    write(file, exchange(at=day + 3600.0))  # of another run
    with UsageDatabase(file) as found:
        days = [found.total_usage(day + number * DAY_SECONDS, day + (number + 1) * DAY_SECONDS) for number in (0, 1)]
        assert [(each.requests, each.conversations) for each in days] == [(3, 2), (2, 1)]
        assert found.time_range() == (day + 3600.0, day + 26 * 3600.0)
        assert found.total_usage().conversations == 2
        assert found.total_usage(since=day + 2 * 3600).requests == 3
        assert found.total_usage(until=day + 2 * 3600).requests == 2


def test_a_file_that_is_not_there_is_empty_and_stays_away(file: Path) -> None:
    with UsageDatabase(file) as found:
        assert found.total_usage() == UsageTotals()
        assert found.session_totals("s") is None
    assert usage_db.delete_usage(file) == UsageTotals()
    UsageWriter(file).close()
    assert not file.parent.exists()


def test_names_may_be_anything(file: Path) -> None:
    names: dict[str, Any] = {"model": "m\0\ud800\x1b[31m", "client": "x" * 5000}
    write(file, exchange(**names, fresh=10**30), session="a\nb", project="/src/\u202eapp")
    with UsageDatabase(file) as found:
        assert found.session_totals("a\nb")
        assert [*found.totals_by_name("model")] == ["m\\x00\\ud800\\x1b[31m"]
        assert [*found.totals_by_name("project")] == ["/src/\\u202eapp"]
        assert [len(name) for name in found.totals_by_name("client")] == [usage_db.MAX_NAME]


# --- a file that cannot be used -----------------------------------------------------------------------------------


def newer(file: Path) -> None:
    write(file, exchange())
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("PRAGMA user_version = 99")


def foreign(file: Path) -> None:
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("CREATE TABLE mine (x)")


def torn(file: Path) -> None:
    write(file, *map(exchange, range(2000)))
    data = bytearray(file.read_bytes())
    data[5000:] = random.Random(1).randbytes(len(data) - 5000)
    file.write_bytes(data)


UNUSABLE: dict[str, tuple[Callable[[Path], object], str]] = {
    "a newer version": (newer, "a newer ibidem wrote this (version 99, this one knows 1): upgrade"),
    "another program's": (foreign, "this is a database of another program"),
    "no database": (
        lambda file: file.write_bytes(b"no database, and longer than a header " * 99),
        "the file is damaged",
    ),
    "torn": (torn, "the file is damaged"),
    "a folder": (lambda file: file.mkdir(), "not a regular file"),
    "a pipe": (lambda file: os.mkfifo(file), "not a regular file"),
}


@pytest.mark.sampled(2)
@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes to make")
@pytest.mark.parametrize("what", UNUSABLE)
def test_a_file_that_cannot_be_used_is_told_once_and_left_alone(
    file: Path, what: str, caplog: pytest.LogCaptureFixture
) -> None:
    make, words = UNUSABLE[what]
    file.parent.mkdir()
    make(file)
    before = file.read_bytes() if file.is_file() else None
    with pytest.raises(UsageDatabaseError) as raised, UsageDatabase(file) as found:
        found.total_usage()
    assert f"{file}: {words}" in str(raised.value)
    assert "\n" not in str(raised.value)
    writer = UsageWriter(file)
    for number in range(3):
        writer.note(exchange(number), "", is_lost=False, observed=False)
        time.sleep(writing.BATCH_SECONDS * 1.5)
    writer.close()
    told = [record.getMessage() for record in caplog.records]
    assert len(told) == 1, told
    assert words in told[0]
    assert words in writer.trouble
    assert before is None or file.read_bytes() == before


@pytest.mark.slow
def test_a_file_that_is_locked_is_written_to_later(file: Path, caplog: pytest.LogCaptureFixture) -> None:
    write(file, exchange())
    writer = UsageWriter(file)
    with held(file, "BEGIN IMMEDIATE"):
        started = time.monotonic()
        writer.note(exchange(2), "", is_lost=False, observed=False)
        assert time.monotonic() - started < 0.1, "nobody waits for the file"
        deadline = time.monotonic() + 30
        while not writer.trouble and time.monotonic() < deadline:
            time.sleep(0.02)
        with UsageDatabase(file) as found:
            assert found.total_usage().requests == 1, "who reads does not wait"
        with pytest.raises(UsageDatabaseError, match="another process keeps it locked"):
            usage_db.delete_usage(file)
    writer.close()
    assert writer.trouble == ""
    assert len(caplog.records) == 1
    with UsageDatabase(file) as found:
        assert found.total_usage().requests == 2


READS_AND_WRITES = """
import sys
from pathlib import Path
from ibidem.usage_db import UsageDatabase
from tests.test_usage_db import exchange, write

print(write(Path(sys.argv[1]), exchange()).trouble)
print(UsageDatabase(Path(sys.argv[1])).total_usage().requests)
"""


@pytest.mark.sampled(1)
@pytest.mark.skipif(os.name != "posix", reason="modes of another kind")
@pytest.mark.parametrize(("of_file", "of_folder"), [(0o400, 0o700), (0o400, 0o500), (0o600, 0o500)])
def test_a_file_that_is_read_only_is_read_and_not_written(file: Path, of_file: int, of_folder: int) -> None:
    write(file, exchange())
    file.chmod(of_file)
    file.parent.chmod(of_folder)
    command = [sys.executable, "-c", READS_AND_WRITES, str(file)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, preexec_fn=mortal)
    file.parent.chmod(0o700)
    trouble, requests = done.stdout.splitlines()
    assert requests == "1", done.stderr
    assert trouble.startswith(f"{file}: "), done.stderr
    assert trouble.count(": ") == 2


@pytest.mark.parametrize("what", [None, "a newer version", "another program's", "no database", "torn"])
def test_what_is_forgotten_is_gone(file: Path, what: str | None) -> None:
    if what is None:
        write(file, exchange(), exchange(2))
    else:
        file.parent.mkdir()
        UNUSABLE[what][0](file)
    writer = UsageWriter(file)
    assert usage_db.delete_usage(file).requests == (2 if what is None else 0)
    assert list(file.parent.iterdir()) == []
    writer.note(exchange(3), "", is_lost=False, observed=False)  # a proxy that runs goes on
    writer.close()
    with UsageDatabase(file) as found:
        assert found.total_usage().requests == 1


# --- how much is kept ---------------------------------------------------------------------------------------------


def test_old_rows_are_added_up_by_the_day(file: Path) -> None:
    old = NOW - 500 * DAY_SECONDS
    start = old - old % DAY_SECONDS
    write(file, *(exchange(at=start + number) for number in range(10)), exchange(at=start + DAY_SECONDS), exchange())
    with UsageDatabase(file) as found:
        assert {name: each.requests for name, each in found.totals_by_name("model").items()} == {
            usage_db.EARLIER: 11,
            "claude-sonnet-4-5": 1,
        }
        assert [found.total_usage(start, start + days * DAY_SECONDS).requests for days in (1, 2)] == [10, 11]
        assert found.time_range() == (start + DAY_SECONDS / 2, NOW)
        total = found.total_usage()
    assert (total.requests, total.paid, total.would_have_paid) == (12, 3.0, 6.0)


def test_rows_that_are_too_many_are_added_up(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("MAX_ROWS", 100), ("ROWS_LEFT", 50), ("ROLL_UP_EVERY", 10)):
        monkeypatch.setattr(writing, name, value)
    for batch in range(6):
        write(file, *(exchange(at=NOW + batch * 40 + number) for number in range(40)))
        with closing(sqlite3.connect(file)) as connection:
            assert connection.execute("SELECT count(*) FROM exchanges").fetchone()[0] <= 100
    with UsageDatabase(file) as found:
        assert (found.total_usage().requests, found.total_usage().paid) == (240, 60.0)


# --- several processes --------------------------------------------------------------------------------------------

WRITES = """
import sys, time
from pathlib import Path
from ibidem.proxy.accounting.usage_writer import UsageWriter
from ibidem.proxy.accounting.exchange_rows import ExchangeRow

writer, forever = UsageWriter(Path(sys.argv[1])), sys.argv[2] == "forever"
for number in range(10**9 if forever else int(sys.argv[2])):
    row = ExchangeRow(f"e{number}", time.time(), "/v1/messages", "rewritten", conversation="c1", paid=1.0)
    writer.note(row, f"s{number % 3}", is_lost=False, observed=False)
    if number % 10 == 9:
        time.sleep(0.01)
    if number == 100:
        print("begun", flush=True)
writer.close()
"""


def writing_process(file: Path, count: str) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", WRITES, str(file), count], stdout=subprocess.PIPE, text=True)


@pytest.mark.slow
def test_several_processes_write_at_once(file: Path) -> None:
    """To a file that none of them finds there."""
    writers = [writing_process(file, "1000") for _ in range(3)]
    while any(each.poll() is None for each in writers):
        with UsageDatabase(file, patience=5.0) as found:
            assert 0 <= found.total_usage().requests <= 3000
        time.sleep(0.05)
    for each in writers:
        each.communicate()
        assert each.returncode == 0
    with UsageDatabase(file) as found:
        assert (found.total_usage().requests, found.total_usage().paid, found.total_usage().conversations) == (
            3000,
            3000.0,
            3,
        )


@pytest.fixture
def endless(file: Path) -> Iterator[subprocess.Popen[str]]:
    process = writing_process(file, "forever")
    yield process
    process.kill()
    process.communicate()


@pytest.mark.slow
def test_who_is_killed_loses_the_last_moment_at_most(file: Path, endless: subprocess.Popen[str]) -> None:
    assert endless.stdout is not None
    assert endless.stdout.readline() == "begun\n"
    time.sleep(2.0)
    killed = time.time()
    endless.send_signal(signal.SIGTERM if os.name == "nt" else signal.SIGKILL)
    endless.wait()
    with UsageDatabase(file, patience=5.0) as found:
        span = found.time_range()
        assert span is not None
        assert killed - span[1] <= 1.5
        before = found.total_usage().requests
    write(file, exchange())
    with UsageDatabase(file) as found:
        assert found.total_usage().requests == before + 1
    with closing(sqlite3.connect(file)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)


# --- what a status line needs -------------------------------------------------------------------------------------


def test_reading_loads_nothing_but_the_standard_library(file: Path) -> None:
    write(file, exchange(), session="s-1")
    code = (
        "import sys; from pathlib import Path; from ibidem.usage_db import UsageDatabase; "
        "assert UsageDatabase(Path(sys.argv[1])).session_totals('s-1').requests == 1; "
        "print(*{name.partition('.')[0] for name in sys.modules} - set(sys.stdlib_module_names))"
    )
    done = subprocess.run([sys.executable, "-c", code, str(file)], capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) <= {"ibidem", "__main__", "sitecustomize", "usercustomize"} | {
        name for name in done.stdout.split() if name.startswith(("_", "a1_", "distutils"))
    }


def test_a_session_is_found_quickly_among_many(file: Path) -> None:
    """By an index: what it takes does not grow with what is kept of others."""
    for number in range(20):
        write(file, *(exchange() for _ in range(500)), session=f"s-{number}")
    with closing(sqlite3.connect(file)) as connection:
        query = f"EXPLAIN QUERY PLAN SELECT {usage_db.TOTALS_SQL} FROM exchanges WHERE session = ? AND session <> ''"
        plan = " ".join(row[3] for row in connection.execute(query, ["s-7"]))
    assert "exchanges_by_session" in plan
    with UsageDatabase(file) as found:
        session = found.session_totals("s-7")
    assert session is not None
    assert session.requests == 500


# ── requests on a subscription ──────────────────────────────────────────────────────────────────────────────────────

FIRST_COLUMNS = [column for column in usage_db.EXCHANGE_COLUMNS if column not in usage_db.LATER_COLUMNS]
FIRST_FIELDS = [name for name in UsageTotals._fields if name not in usage_db.LATER_FIELDS]


def write_first_build(file: Path) -> None:
    """A file as builds wrote it that did not know of subscriptions: one request, and one day."""
    file.parent.mkdir()
    names = ", ".join(name for name, _ in FIRST_COLUMNS)
    row = ["" if kind.startswith("TEXT") else 2 for _, kind in FIRST_COLUMNS]
    with closing(sqlite3.connect(file)) as database, database:
        database.execute(f"CREATE TABLE exchanges (id INTEGER PRIMARY KEY, {', '.join(map(' '.join, FIRST_COLUMNS))})")
        database.execute(f"CREATE TABLE days (day INTEGER PRIMARY KEY, {', '.join(FIRST_FIELDS)})")
        database.execute(f"INSERT INTO exchanges ({names}) VALUES ({', '.join('?' * len(row))})", row)
        database.execute(
            f"INSERT INTO days VALUES ({', '.join('?' * (len(FIRST_FIELDS) + 1))})", [1, *[1] * len(FIRST_FIELDS)]
        )
        database.execute(f"PRAGMA application_id = {usage_db.GAINS_ID}")
        database.execute("PRAGMA user_version = 1")


def test_file_without_later_columns_is_read_and_continued(file: Path) -> None:
    write_first_build(file)
    before = file.read_bytes()
    with UsageDatabase(file) as found:
        old = found.total_usage()
        assert found.totals_by_name("model")[""].requests == 1
    assert file.read_bytes() == before
    assert (old.requests, old.plan_totals.requests, old.removed) == (2, 0, 0)
    write(file, exchange(1, plan=True, removed=130))
    with UsageDatabase(file) as found:
        new = found.total_usage()
    assert (new.requests, new.plan_totals.requests, new.plan_totals.removed, new.pay_per_use_totals.requests) == (
        3,
        1,
        130,
        2,
    )


def test_requests_on_a_subscription_are_summed_apart(file: Path) -> None:
    write(file, exchange(1, removed=65), exchange(2, plan=True, removed=130, conversation="c2"))
    write(file, exchange(3, plan=True, removed=999), observed=True)
    with UsageDatabase(file) as found:
        total = found.total_usage()
    by_use = total.pay_per_use_totals
    assert (by_use.requests, by_use.conversations, by_use.paid, by_use.would_have_paid) == (1, 1, 0.25, 0.5)
    assert (by_use.output_paid, by_use.removed, by_use.plan_totals) == (0.125, 65, UsageTotals())
    assert total.pay_per_use_totals.input_tokens == 130
    assert total.plan_totals == UsageTotals(
        requests=2, conversations=2, paid=0.5, would_have_paid=0.75, output_paid=0.25, fresh=260, removed=130
    )
    assert total.plan_totals.removed_share == pytest.approx(1 / 3)


def test_subscription_survives_when_rows_are_rolled_up(file: Path) -> None:
    old = NOW - 500 * DAY_SECONDS
    write(file, exchange(1, plan=True, removed=130, at=old), exchange(2, at=old))
    with UsageDatabase(file) as found:
        total = found.total_usage()
    assert (total.plan_totals.requests, total.plan_totals.removed, total.pay_per_use_totals.requests) == (1, 130, 1)
