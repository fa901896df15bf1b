"""What is remembered of logs: by size and time, by content, by settings and edition; and whatever happens to it."""

from __future__ import annotations

import json
import multiprocessing
import os
import shutil
import sqlite3
import stat
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from ibidem.billing.prices import own_prices
from ibidem.report import gather as gathering
from ibidem.report import report_cache as remembering
from ibidem.report.log_summary import FileFacts, SessionFacts
from ibidem.report.measure import ReportSettings
from ibidem.report.report_cache import KEYS_PER_QUERY, ReportCache
from ibidem.report.selection import SessionFilter
from ibidem.report.session_result import FileResult
from tests.report.logs import NOON, alone, done, put, read, related, several, spoil, timed
from tests.report.test_report import ALL, TWICE, log

ROOT = hasattr(os, "geteuid") and os.geteuid() == 0
posix = pytest.mark.skipif(os.name == "nt", reason="processes, modes and signals of another kind")
linux = pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="names are any bytes")


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache" / "ibidem"


@pytest.fixture
def paths(tmp_path: Path) -> list[str]:
    return several(tmp_path / "logs", 3)


def test_a_log_that_did_not_change_is_not_looked_at_again(cache: Path, paths: list[str]) -> None:
    memory = ReportCache(cache, ReportSettings())
    first = done(paths, memory=memory)
    for path in paths:
        spoil(path)
    assert done(paths, memory=memory) == first
    assert done(paths, memory=ReportCache(cache, ReportSettings())) == first
    assert all(one.unread for one in done(paths).values())


def test_what_a_log_says_is_remembered_whatever_the_settings(cache: Path, paths: list[str]) -> None:
    """By size and time: what was paid needs no log to be opened."""
    first = read(paths, ReportCache(cache, ReportSettings()))
    for path in paths:
        spoil(path)
    assert read(paths, ReportCache(cache, ReportSettings(("devboy",), model="gpt-5"))) == first
    assert [len(facts.sessions) for facts in read(paths).values()] == [0, 0, 0]


def test_what_cannot_be_read_is_remembered_too(cache: Path, tmp_path: Path) -> None:
    paths = put(tmp_path, bad=b'{"a": 1}')
    memory = ReportCache(cache, ReportSettings())
    first = read(paths, memory)
    assert [facts.unread[0].why for facts in first.values()] == ["not a log of an agent that is known here"]
    assert read(paths, memory) == first


def test_another_edition_forgets(cache: Path, paths: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """What other code found is not what this one would."""
    done(paths, memory=ReportCache(cache, ReportSettings()))
    for path in paths:
        spoil(path)
    monkeypatch.setattr(remembering, "code_version", lambda: b"another")
    remembering._version_digest.cache_clear()
    try:
        assert all(one.unread for one in done(paths, memory=ReportCache(cache, ReportSettings())).values())
    finally:
        remembering._version_digest.cache_clear()


def test_a_family_that_did_not_change_is_not_looked_at_again(cache: Path, tmp_path: Path) -> None:
    one, two = put(tmp_path, one=log(*TWICE), two=log(*TWICE, "c.py", id="b", known=4))
    memory = ReportCache(cache, ReportSettings())
    first = done([one, two], memory=memory)
    spoil(one)
    spoil(two)
    assert done([one, two], memory=memory) == first


def test_parts_of_a_session_are_remembered_apart(cache: Path, tmp_path: Path) -> None:
    paths = put(tmp_path, one=timed(log(*TWICE, prompts=3), NOON))
    memory = ReportCache(cache, ReportSettings())
    cuts = [None, *(NOON.timestamp() + 60 * minute for minute in (2, 4, 6))]
    for _ in range(2):  # the second time from memory
        for since in cuts:
            [family] = related(paths, SessionFilter(since=since))
            assert alone(family, memory) == alone(family)


def test_a_log_that_changed_is_looked_at_again(cache: Path, paths: list[str]) -> None:
    memory = ReportCache(cache, ReportSettings())
    first = done(paths, memory=memory)
    Path(paths[0]).write_bytes(log("z.py", "z.py", id="new"))
    second = done(paths, memory=memory)
    assert second[paths[0]] == done(paths[:1])[paths[0]] != first[paths[0]]
    assert second[paths[1]] == first[paths[1]]


def test_a_log_of_the_same_size_and_another_time_is_looked_at_again(cache: Path, paths: list[str]) -> None:
    memory = ReportCache(cache, ReportSettings())
    done(paths, memory=memory)
    spoil(paths[0])
    os.utime(paths[0], (1, 1))
    assert done(paths, memory=memory)[paths[0]].unread


def refuse(*_: Any) -> FileResult:
    raise AssertionError("looked at again")


def test_a_log_is_known_by_its_content(cache: Path, paths: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    memory = ReportCache(cache, ReportSettings())
    first = done(paths, memory=memory)
    for path in paths:
        os.utime(path, (1, 1))
    monkeypatch.setattr(gathering, "measure_log", refuse)
    assert done(paths, memory=memory) == first


def test_a_log_that_was_touched_is_opened_once_more_only(cache: Path, paths: list[str]) -> None:
    memory = ReportCache(cache, ReportSettings())
    first = done(paths, memory=memory)
    for path in paths:
        os.utime(path, (1, 1))
    assert done(paths, memory=memory) == first
    for path in paths:
        spoil(path)
    assert done(paths, memory=memory) == first


def test_a_copy_has_its_own_path(cache: Path, tmp_path: Path) -> None:
    one, two = put(tmp_path, one=log(*TWICE)), put(tmp_path, two=log(*TWICE))
    memory = ReportCache(cache, ReportSettings())
    assert [[*done(some, memory=memory)] for some in (one, two, one)] == [one, two, one]


SETTINGS = {
    "another profile": ReportSettings(("devboy",)),
    "several profiles": ReportSettings(ALL),
    "another model": ReportSettings(model="gpt-5"),
    "prices of one's own": ReportSettings(prices=own_prices('{"claude-opus-4-6": {"input": 1}}', "p")),
    "others of one's own": ReportSettings(prices=own_prices('{"claude-opus-4-6": {"input": 2}}', "p")),
}


def test_other_settings_have_other_figures(cache: Path, paths: list[str]) -> None:
    every = {"the usual ones": ReportSettings(), **SETTINGS}
    fresh = {name: done(paths, settings) for name, settings in every.items()}
    for name, settings in every.items():
        assert done(paths, settings, ReportCache(cache, settings)) == fresh[name], name
    for path in paths:
        spoil(path)
    for name, settings in every.items():
        assert done(paths, settings, ReportCache(cache, settings)) == fresh[name], name
    assert len({json.dumps(each[paths[0]].sessions[0].baseline.cost) for each in fresh.values()}) == 4


@posix
def test_nobody_else_may_read_what_is_remembered(cache: Path, paths: list[str]) -> None:
    before = os.umask(0)
    try:
        done(paths, memory=ReportCache(cache, ReportSettings()))
    finally:
        os.umask(before)
    assert stat.S_IMODE(cache.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in cache.iterdir()} == {0o600}


# ── damage ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def damage(how: str, cache: Path) -> None:
    file = cache / "report.sqlite"
    match how:
        case "deleted":
            shutil.rmtree(cache)
        case "emptied":
            file.write_bytes(b"")
        case "overwritten":
            file.write_bytes(b"rubbish " * 4000)
        case "cut off":
            file.write_bytes(file.read_bytes()[:5000])
        case "spoilt in the middle":
            data = file.read_bytes()
            file.write_bytes(data[:4096] + b"\xff" * (len(data) - 4096))
        case "a folder":
            file.unlink()
            file.mkdir()
        case "in a folder that is a file":
            shutil.rmtree(cache)
            cache.write_bytes(b"")
        case _:
            with closing(sqlite3.connect(file)) as db, db:
                db.execute(how)


DAMAGE = [
    "deleted",
    "emptied",
    "overwritten",
    "cut off",
    "spoilt in the middle",
    "a folder",
    "in a folder that is a file",
    "DROP TABLE figures",
    "DROP TABLE facts",
    "UPDATE figures SET data = x'00'",
    "UPDATE figures SET data = x'91c40231'",
    "UPDATE facts SET data = x'00'",
    "UPDATE facts SET data = x'83'",
    "UPDATE logs SET digest = 'rubbish'",
    "UPDATE logs SET digest = NULL",
    "ALTER TABLE logs RENAME COLUMN digest TO other",
    "ALTER TABLE facts RENAME COLUMN data TO other",
]


@pytest.mark.parametrize("how", DAMAGE)
def test_whatever_happens_to_the_memory_the_work_is_done(cache: Path, paths: list[str], how: str) -> None:
    memory = ReportCache(cache, ReportSettings())
    first = done(paths, memory=memory)
    damage(how, cache)
    assert done(paths, memory=memory) == first
    assert done(paths, memory=memory) == first


@pytest.mark.parametrize("how", ["overwritten", "cut off", "spoilt in the middle"])
def test_a_memory_that_is_damaged_is_begun_anew(cache: Path, paths: list[str], how: str) -> None:
    memory = ReportCache(cache, ReportSettings())
    first = done(paths, memory=memory)
    damage(how, cache)
    for _ in range(2):
        done(paths, memory=memory)
    for path in paths:
        spoil(path)
    assert done(paths, memory=memory) == first


OTHER_TYPES = [
    "UPDATE logs SET digest = 7",
    *(f"UPDATE {table} SET data = {value}" for table in ("figures", "facts") for value in ("7", "''", "NULL")),
]


@pytest.mark.parametrize("how", OTHER_TYPES)
def test_other_types_in_the_memory_are_harmless(cache: Path, paths: list[str], how: str) -> None:
    memory = ReportCache(cache, ReportSettings())
    first = done(paths, memory=memory)
    with closing(sqlite3.connect(cache / "report.sqlite")) as db, db:
        db.executescript(
            "CREATE TABLE l2 (state PRIMARY KEY, digest); INSERT INTO l2 SELECT * FROM logs; DROP TABLE logs;"
            "ALTER TABLE l2 RENAME TO logs;"
        )
        db.execute(how)
    assert done(paths, memory=memory) == first


@pytest.mark.skipif(ROOT, reason="root may write everywhere")
@posix
def test_a_memory_that_cannot_be_written_is_harmless(cache: Path, paths: list[str]) -> None:
    memory = ReportCache(cache, ReportSettings())
    first = done(paths[:1], memory=memory)
    (cache / "report.sqlite").chmod(0o400)
    cache.chmod(0o500)
    try:
        assert done(paths, memory=memory)[paths[0]] == first[paths[0]]
    finally:
        cache.chmod(0o700)


# ── how much is kept ────────────────────────────────────────────────────────────────────────────────────────────────


def test_what_was_used_longest_ago_is_forgotten_first(
    cache: Path, paths: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ibidem.report.report_cache.MAX_KEPT_LOGS", 2)
    memory = ReportCache(cache, ReportSettings())
    for path in (paths[0], paths[1], paths[0], paths[2]):
        done([path], memory=memory)
    spoil(paths[0])
    spoil(paths[1])
    assert done([paths[0]], memory=memory)[paths[0]].sessions
    assert done([paths[1]], memory=memory)[paths[1]].unread


def test_no_more_than_so_many_are_kept(cache: Path, paths: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ibidem.report.report_cache.MAX_KEPT_LOGS", 2)
    for _ in range(2):
        done(paths, memory=ReportCache(cache, ReportSettings()))
    with closing(sqlite3.connect(cache / "report.sqlite")) as db:
        for table in ("figures", "facts"):
            assert db.execute(f"SELECT count(*) FROM {table}").fetchone() == (2,)


@pytest.mark.parametrize("table", ["figures", "facts"])
def test_what_is_to_be_forgotten_is_found_without_reading_it_all(cache: Path, paths: list[str], table: str) -> None:
    """Each log that is kept asks for it."""
    done(paths, memory=ReportCache(cache, ReportSettings()))
    with closing(sqlite3.connect(cache / "report.sqlite")) as db:
        oldest = f"EXPLAIN QUERY PLAN SELECT key FROM {table} ORDER BY used DESC LIMIT -1 OFFSET 5"
        assert "USING COVERING INDEX" in str(db.execute(oldest).fetchall())


def test_more_logs_than_one_question_takes_are_remembered(cache: Path) -> None:
    memory = ReportCache(cache, ReportSettings())
    facts = {
        f"state {n}": FileFacts([SessionFacts(str(n), "agent", "anthropic")]) for n in range(2 * KEYS_PER_QUERY + 7)
    }
    memory.store_facts(facts)
    assert memory.find_facts([*facts, "another", ""]) == facts


# ── odd names ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_text_that_is_no_unicode_is_remembered_or_not_but_harmless(cache: Path, tmp_path: Path) -> None:
    odd = put(tmp_path, odd=log("a\ud800.py", "a\ud800.py", project="/\ud800"), good=log(*TWICE, id="b"))
    first = done(odd)
    for _ in range(2):
        assert done(odd, memory=ReportCache(cache, ReportSettings())) == first


@linux
def test_a_file_name_that_is_no_unicode_is_harmless(cache: Path, tmp_path: Path) -> None:
    path = os.fsdecode(os.fsencode(tmp_path) + b"/\xff.jsonl")
    with open(path, "wb") as file:
        file.write(log(*TWICE))
    for _ in range(2):
        assert done([path], memory=ReportCache(cache, ReportSettings()))[path].sessions[0].path == path


def test_prices_of_a_model_whose_name_is_no_unicode_are_harmless(cache: Path, paths: list[str]) -> None:
    settings = ReportSettings(prices=own_prices(r'{"\ud800": {"input": 1}}', "p"))
    assert done(paths, settings, ReportCache(cache, settings)) == done(paths, settings)


# ── several at once ─────────────────────────────────────────────────────────────────────────────────────────────────


def keep_some(folder: Path, first: int) -> None:
    memory = ReportCache(folder, ReportSettings())
    for n in range(first, first + 40):
        facts = FileFacts([SessionFacts(str(n), "agent", "anthropic")])
        memory.store_facts({f"state {n}": facts})
        memory.store_results([f"state {n}"], [f"digest {n}"], [FileResult(size=n)], "")


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["threads", "processes"])
def test_two_that_write_at_once_do_not_lose_anything(cache: Path, kind: str) -> None:
    make: Any = threading.Thread if kind == "threads" else multiprocessing.get_context("spawn").Process
    running = [make(target=keep_some, args=(cache, first)) for first in (0, 40, 80)]
    for each in running:
        each.start()
    for each in running:
        each.join(60)
    memory = ReportCache(cache, ReportSettings())
    assert len(memory.find_facts(f"state {n}" for n in range(120))) == 120
    found = memory.find_results([[f"digest {n}"] for n in range(120)], [""] * 120)
    assert [one and one[0].size for one in found] == list(range(120))
