"""Many logs: which belong together, what is remembered of them, and who works: one process, several, or a cluster."""

from __future__ import annotations

import gzip
import importlib.util
import json
import multiprocessing
import os
import shutil
import signal
import sqlite3
import stat
import subprocess
import sys
import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import zstandard

from ibidem.billing.prices import own_prices
from ibidem.model import IbidemError
from ibidem.report import executors
from ibidem.report.cache import ReportCache
from ibidem.report.executors import OPENING_BYTES, below, families, look, on_dask, on_this_machine
from ibidem.report.figures import FileFigures
from ibidem.report.measure import ReportSettings, measure_log
from tests.recordings.examples import lines
from tests.report.test_report import ALL, TWICE, log

ROOT = hasattr(os, "geteuid") and os.geteuid() == 0
posix = pytest.mark.skipif(os.name == "nt", reason="processes, modes and signals of another kind")
linux = pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="processes are looked up in /proc")


NOWHERE = ("tcp://127.0.0.1:1", "nonsense", "tls://127.0.0.1:1")


@pytest.fixture(scope="module", autouse=True)
def nobody_there(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, subprocess.Popen[bytes]]]:
    """Runs that look for a scheduler where none is: they take their time while the other tests run."""
    folder = tmp_path_factory.mktemp("nobody")
    [path] = put(folder, one=log(*TWICE))
    running = {each: command(folder, path, "--engine", "dask", "--scheduler", each) for each in NOWHERE}
    yield running
    for each in running.values():
        each.kill()
        each.communicate()


def command(home: Path, *args: str | Path, code: str = "", **options: Any) -> subprocess.Popen[bytes]:
    """`ibidem report` as a process, in a home of its own."""
    start = ["-c", f"{code}\nfrom ibidem.cli import main; main()"] if code else ["-m", "ibidem.cli"]
    env = {**os.environ, "HOME": str(home), "XDG_CACHE_HOME": str(home / "cache"), "NO_COLOR": "1", "COLUMNS": "200"}
    line = [sys.executable, *start, "report", *map(str, args)]
    return subprocess.Popen(line, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options)


def put(folder: Path, **logs: bytes) -> list[str]:
    """Write logs; their paths."""
    folder.mkdir(exist_ok=True, parents=True)
    for name, data in logs.items():
        (folder / f"{name}.jsonl").write_bytes(data)
    return [str(folder / f"{name}.jsonl") for name in logs]


def several(folder: Path, number: int = 5) -> list[str]:
    return put(folder, **{f"log{n}": log(*TWICE, id=f"x{n}", project=f"/p{n}", prompts=n) for n in range(number)})


def done(
    paths: Sequence[str], settings: ReportSettings | None = None, memory: ReportCache | None = None, jobs: int = 1
) -> Any:
    """Figures by path, whatever the order in which they came."""
    found = on_this_machine(families(paths), settings or ReportSettings(), memory, jobs)
    return by_path(one for some in found for one in some)


def by_path(found: Any) -> dict[str, FileFigures]:
    return {next(each.path for each in (*one.sessions, *one.unread)): one for one in found}


def spoil(path: str) -> None:
    """Other content, of the same size and time."""
    was = os.stat(path)
    Path(path).write_bytes(b"x" * was.st_size)
    os.utime(path, ns=(was.st_atime_ns, was.st_mtime_ns))


# ── families ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_logs_that_begin_with_the_same_answer_belong_together(tmp_path: Path) -> None:
    long, other, short = put(
        tmp_path, long=log(*TWICE, "c.py", "d.py"), other=log(*TWICE, id="b"), short=log("a.py", "b.py")
    )
    assert families([long, other, short]) == [(short, long), (other,)]


def test_a_packed_copy_belongs_to_its_log(tmp_path: Path) -> None:
    data = log(*TWICE, "c.py")
    [plain] = put(tmp_path, one=data)
    for ending, pack in ((".gz", gzip.compress), (".zst", zstandard.compress)):
        Path(f"{plain}{ending}").write_bytes(pack(data))
    (family,) = families([plain, f"{plain}.gz", f"{plain}.zst"])
    found = look(family, ReportSettings())
    assert sum(session.requests for each in found for session in each.sessions) == 5


def test_a_chat_of_gemini_cli_that_was_resumed_is_counted_once(tmp_path: Path) -> None:
    head = {"sessionId": "5e551011-0000", "projectHash": "40fc80"}
    said = [{"id": f"u{n}", "type": "user", "content": f"Question {n}"} for n in (1, 2)]
    told = [{"id": f"a{n}", "type": "gemini", "content": f"Answer {n}", "model": "gemini-2.5-pro"} for n in (1, 2)]
    old, new = str(tmp_path / "session-1.json"), str(tmp_path / "session-1.jsonl")
    Path(old).write_text(json.dumps({**head, "messages": [said[0], told[0]]}))
    Path(new).write_bytes(lines(head, said[0], told[0], said[1], told[1]))
    (family,) = families([old, new])
    assert sorted(family) == [old, new]
    figures = look(family, ReportSettings())
    assert sum(session.requests for each in figures for session in each.sessions) == 2


def test_the_largest_family_is_first(tmp_path: Path) -> None:
    paths = [put(tmp_path, **{f"log{n}": log(*["a.py"] * n, id=f"x{n}")})[0] for n in (2, 4, 1, 3)]
    assert families(paths) == [(paths[1],), (paths[3],), (paths[0],), (paths[2],)]


def test_what_has_no_answer_in_its_opening_stands_alone(tmp_path: Path) -> None:
    data = log("a.py")
    late = lines({"type": "summary", "summary": "x" * OPENING_BYTES}) + data
    paths = put(tmp_path, late1=late, late2=late, empty1=b"", empty2=b"", one=data)
    for name in ("one.json", "two.json", "folder.jsonl"):
        paths.append(str(tmp_path / name))
    (tmp_path / "one.json").write_bytes(data)
    (tmp_path / "two.json").write_bytes(data)
    (tmp_path / "folder.jsonl").mkdir()
    paths.append(str(tmp_path / "gone.jsonl"))
    assert sorted(families(paths)) == sorted((path,) for path in paths)


def test_no_logs_are_no_families() -> None:
    assert families([]) == []
    assert list(on_this_machine([], ReportSettings())) == []


# ── a family ────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.slow
@pytest.mark.parametrize("resumed_is_longer", [True, False])
def test_what_a_resumed_session_repeats_is_counted_once(tmp_path: Path, resumed_is_longer: bool) -> None:
    """Five answers are in both; one has two more, the other four."""
    more, less = (*TWICE, "c.py", "d.py", "e.py", "f.py", "g.py"), (*TWICE, "c.py", "d.py", "h.py")
    first, second = (less, more) if resumed_is_longer else (more, less)
    paths = put(tmp_path, first=log(*first), second=log(*second, id="b", known=5))
    [family] = families(paths)
    found = look(family, ReportSettings())
    assert len(found) == 2
    assert sum(session.requests for one in found for session in one.sessions) == 5 + 2 + 4
    alone = [look((path,), ReportSettings())[0].sessions[0] for path in family]
    assert [alone[0].requests, alone[1].requests] == [7, 9]
    assert found[0].sessions == [alone[0]]
    assert found[1].sessions[0].requests == 4
    assert found[1].sessions[0].baseline.cost < alone[1].baseline.cost


def test_a_log_that_is_all_in_another_has_no_session(tmp_path: Path) -> None:
    paths = put(tmp_path, one=log(*TWICE), two=log(*TWICE))
    found = look(tuple(paths), ReportSettings())
    assert [len(one.sessions) for one in found] == [1, 0]
    assert [one.unread for one in found] == [[], []]


def test_results_that_a_resumed_session_repeats_are_counted_once(tmp_path: Path) -> None:
    paths = put(tmp_path, one=log("a.py", "b.py", "a.py"), two=log("a.py", "b.py", "a.py", "c.py", id="b", known=4))
    found = look(families(paths)[0], ReportSettings())
    sessions = [session for one in found for session in one.sessions]
    assert sum(session.tools["Read"].count for session in sessions) == 4
    assert sum(session.profiles["lossless"].strategies["dedup"].hits for session in sessions) == 1


# ── logs that cannot be read ────────────────────────────────────────────────────────────────────────────────────────


def test_a_log_that_is_gone_is_named(tmp_path: Path) -> None:
    good, gone = put(tmp_path, good=log(*TWICE), gone=log(*TWICE, id="b"))
    work = families([good, gone])
    os.unlink(gone)
    found = by_path(one for some in on_this_machine(work, ReportSettings(), jobs=1) for one in some)
    assert [(each.path, each.why) for each in found[gone].unread] == [(gone, "no such file")]
    assert found[good] == measure_log(good, log(*TWICE), ReportSettings())


def test_one_of_a_family_that_is_gone_is_named_and_the_other_counted(tmp_path: Path) -> None:
    one, two = put(tmp_path, one=log(*TWICE), two=log(*TWICE, "c.py", id="b", known=4))
    [family] = families([one, two])
    memory = ReportCache(tmp_path / "cache", ReportSettings())
    os.unlink(one)
    for _ in range(2):
        found = by_path(look(family, ReportSettings(), memory))
        assert found[two].sessions[0].requests == 5
        assert found[one].unread[0].path == one


@posix
def test_a_folder_in_place_of_a_log_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").mkdir()
    [found] = look((str(tmp_path / "a.jsonl"),), ReportSettings())
    assert found.unread[0].why == "Is a directory"


@pytest.mark.skipif(ROOT, reason="root may read everything")
@posix
def test_a_log_without_permission_is_named(tmp_path: Path) -> None:
    good, closed = put(tmp_path, good=log(*TWICE), closed=log(*TWICE, id="b"))
    os.chmod(closed, 0)
    found = done([good, closed])
    assert found[closed].unread[0].why == "Permission denied"
    assert found[good].sessions


BROKEN = {
    "empty": b"",
    "white space": b" \n\t\n",
    "no JSON": b"\x00\xff" * 1000,
    "another kind of JSON": b'{"a": 1}\n[1, 2]\n',
    "a log that breaks off before the first answer": log(*TWICE)[:200],
    "half a zstd file": b"\x28\xb5\x2f\xfd rubbish",
    "lists in each other": b"[" * 100_000,
    "an integer of many digits": b'{"parentUuid": ' + b"1" * 100_000 + b', "sessionId": 1}',
}


@pytest.mark.parametrize("case", BROKEN)
def test_one_broken_log_does_not_take_the_others_with_it(tmp_path: Path, case: str) -> None:
    good = several(tmp_path, 2)
    [bad] = put(tmp_path, bad=BROKEN[case])
    found = done([*good, bad])
    [unread] = found.pop(bad).unread
    assert unread.path == bad
    assert unread.why
    assert bad not in unread.why
    assert "fault of ibidem" not in unread.why
    assert found == done(good)


def test_a_fault_of_ours_is_called_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(path: str, *_: Any) -> FileFigures:
        if "log1" in path:
            raise ZeroDivisionError("oh")
        return measure_log(path, *_)

    monkeypatch.setattr(executors, "measure_log", fail)
    found = done(paths := several(tmp_path, 3))
    assert "this is a fault of ibidem: please report it (ZeroDivisionError: oh)" in found[paths[1]].unread[0].why
    assert [len(found[path].sessions) for path in paths] == [1, 0, 1]


@pytest.mark.parametrize("jobs", [1, 2])
def test_wrong_settings_are_no_fault_of_a_log(tmp_path: Path, jobs: int) -> None:
    with pytest.raises(IbidemError, match="'house-model-7' is not in the price list"):
        done(several(tmp_path, 2), ReportSettings(model="house-model-7"), jobs=jobs)


# ── what is remembered ──────────────────────────────────────────────────────────────────────────────────────────────


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


def test_a_family_that_did_not_change_is_not_looked_at_again(cache: Path, tmp_path: Path) -> None:
    one, two = put(tmp_path, one=log(*TWICE), two=log(*TWICE, "c.py", id="b", known=4))
    memory = ReportCache(cache, ReportSettings())
    [family] = families([one, two])
    first = look(family, ReportSettings(), memory)
    spoil(one)
    spoil(two)
    assert look(family, ReportSettings(), memory) == first


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


def refuse(*_: Any) -> FileFigures:
    raise AssertionError("looked at again")


def test_a_log_is_known_by_its_content(cache: Path, paths: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    memory = ReportCache(cache, ReportSettings())
    first = done(paths, memory=memory)
    for path in paths:
        os.utime(path, (1, 1))
    monkeypatch.setattr(executors, "measure_log", refuse)
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
    "UPDATE figures SET data = x'00'",
    "UPDATE figures SET data = x'91c40231'",
    "UPDATE logs SET digest = 'rubbish'",
    "UPDATE logs SET digest = NULL",
    "ALTER TABLE logs RENAME COLUMN digest TO other",
]


@pytest.mark.parametrize("how", DAMAGE)
def test_whatever_happens_to_the_memory_the_work_is_done(cache: Path, paths: list[str], how: str) -> None:
    memory = ReportCache(cache, ReportSettings())
    first = done(paths, memory=memory)
    damage(how, cache)
    assert done(paths, memory=memory) == first
    assert done(paths, memory=memory) == first


OTHER_TYPES = ["UPDATE logs SET digest = 7", *(f"UPDATE figures SET data = {value}" for value in ("7", "''", "NULL"))]


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


def test_what_was_used_longest_ago_is_forgotten_first(
    cache: Path, paths: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ibidem.report.cache.MAX_KEPT_LOGS", 2)
    memory = ReportCache(cache, ReportSettings())
    for path in (paths[0], paths[1], paths[0], paths[2]):
        done([path], memory=memory)
    spoil(paths[0])
    spoil(paths[1])
    assert done([paths[0]], memory=memory)[paths[0]].sessions
    assert done([paths[1]], memory=memory)[paths[1]].unread


def test_no_more_than_so_many_are_kept(cache: Path, paths: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ibidem.report.cache.MAX_KEPT_LOGS", 2)
    for _ in range(2):
        done(paths, memory=ReportCache(cache, ReportSettings()))
    with closing(sqlite3.connect(cache / "report.sqlite")) as db:
        assert db.execute("SELECT count(*) FROM figures").fetchone() == (2,)


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


# ── several processes ───────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.slow
def test_two_processes_find_what_one_does(cache: Path, tmp_path: Path) -> None:
    paths = several(tmp_path / "logs", 6)
    paths += put(tmp_path / "logs", bad=b"rubbish", one=log("q.py"), two=log("q.py", "r.py", id="b", known=2))
    settings = ReportSettings(("lossless", "codetether"))
    alone = done(paths, settings)
    memory = ReportCache(cache, settings)
    assert done(paths, settings, memory, jobs=2) == alone
    for path in paths[:6]:
        spoil(path)
    assert done(paths[:6], settings, memory) == {path: alone[path] for path in paths[:6]}  # both kept theirs


def our_workers() -> list[Any]:
    return [each for each in multiprocessing.active_children() if each.name.startswith("SpawnProcess")]


def gone(seconds: float = 5) -> bool:
    until = time.monotonic() + seconds
    while our_workers() and time.monotonic() < until:
        time.sleep(0.02)
    return not our_workers()


@pytest.mark.slow
@posix
def test_who_stops_asking_stops_the_workers(tmp_path: Path) -> None:
    found = on_this_machine(families(several(tmp_path, 8)), ReportSettings(), jobs=2)
    assert next(found)
    assert len(our_workers()) == 2
    assert isinstance(found, Generator)
    found.close()
    assert gone()


@pytest.mark.slow
@posix
def test_a_worker_that_is_killed_ends_the_run_with_a_clear_message(tmp_path: Path) -> None:
    paths = put(tmp_path, **{f"log{n}": log(*TWICE * 8, id=f"x{n}") for n in range(40)})
    found = on_this_machine(families(paths), ReportSettings(), jobs=2)
    assert next(found)
    for worker in our_workers():
        os.kill(worker.pid, signal.SIGKILL)
    with pytest.raises(IbidemError, match=r"a worker was stopped.*--jobs 1"):
        list(found)
    assert gone()


# ── an interrupt ────────────────────────────────────────────────────────────────────────────────────────────────────


def in_group(group: int) -> list[int]:
    """Processes of a group that still run."""
    found = []
    for each in Path("/proc").iterdir():
        try:
            state, _, its_group = (each / "stat").read_text().rpartition(")")[2].split()[:3]
        except (OSError, ValueError):
            continue
        if each.name.isdigit() and int(its_group) == group and state not in "ZX":
            found.append(int(each.name))
    return found


def all_gone(group: int, seconds: float = 5) -> bool:
    until = time.monotonic() + seconds
    while in_group(group) and time.monotonic() < until:
        time.sleep(0.02)
    return not in_group(group)


@pytest.fixture(scope="module")
def much(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Logs that take two processes some seconds."""
    folder = tmp_path_factory.mktemp("much")
    for n in range(60):
        data = log(*(f"{n}-{k % 9}.py" for k in range(45)), id=f"x{n}", prompts=5)
        (folder / f"{n}.jsonl").write_bytes(data)
    return folder


def kept(file: Path) -> int:
    try:
        with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True, timeout=5)) as db:
            return int(db.execute("SELECT count(*) FROM figures").fetchone()[0])
    except sqlite3.Error:
        return 0


@pytest.mark.slow
@linux
def test_an_interrupt_ends_everything_at_once(tmp_path: Path, much: Path) -> None:
    page, memory = tmp_path / "out.html", tmp_path / "cache/ibidem/report.sqlite"
    page.write_bytes(b"kept")
    args: list[str | Path] = [much, "--jobs", "2", "--html", page, "--profile", "lossless", "--profile", "codetether"]
    with command(tmp_path, *args, start_new_session=True) as running:
        until = time.monotonic() + 30
        while not kept(memory) and time.monotonic() < until:
            assert running.poll() is None
            time.sleep(0.02)
        os.killpg(running.pid, signal.SIGINT)
        out, said = running.communicate(timeout=60)
    assert (running.returncode, out, said.strip()) == (130, b"", b"")
    assert all_gone(running.pid)
    assert page.read_bytes() == b"kept"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cache", "out.html"]
    assert 0 < kept(memory) < 60
    with closing(sqlite3.connect(memory)) as db:
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)


@pytest.mark.slow
@linux
def test_an_interrupt_while_workers_start_is_as_quiet(tmp_path: Path, much: Path) -> None:
    heard = []
    for pause in (0.05, 0.15, 0.3):
        with command(tmp_path, much, "--jobs", "2", "--no-cache", start_new_session=True) as running:
            until = time.monotonic() + 30
            while len(in_group(running.pid)) < 3 and time.monotonic() < until:
                time.sleep(0.005)
            time.sleep(pause)
            os.killpg(running.pid, signal.SIGINT)
            heard.append(running.communicate(timeout=60)[1].strip())
            assert running.returncode == 130
        assert all_gone(running.pid)
    assert heard == [b""] * 3


# ── logs elsewhere ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_logs_at_a_url_are_found_and_read(tmp_path: Path, cache: Path) -> None:
    fsspec = pytest.importorskip("fsspec")
    local = several(tmp_path / "logs", 2)
    there = fsspec.filesystem("memory")
    names = ["one.jsonl", "deeper/two.jsonl"]
    for name, path in zip(names, local, strict=True):
        there.pipe(f"/ibidem-test/{name}", Path(path).read_bytes())
    there.pipe("/ibidem-test/readme.md", b"no log")
    try:
        found = below("memory://ibidem-test")
        assert found == [f"memory:///ibidem-test/{name}" for name in sorted(names)]
        assert below("memory://ibidem-test/one.jsonl") == ["memory://ibidem-test/one.jsonl"]
        remote = done(found, memory=ReportCache(cache, ReportSettings()))
        assert remote == done(found, memory=ReportCache(cache, ReportSettings()))
    finally:
        there.rm("/ibidem-test", recursive=True)
    ours = done(local)
    for name, path in zip(names, local, strict=True):
        one = remote[f"memory:///ibidem-test/{name}"]
        assert [each.baseline for each in one.sessions] == [each.baseline for each in ours[path].sessions]


def test_a_resumed_session_at_a_url_is_counted_once(tmp_path: Path) -> None:
    pytest.importorskip("fsspec")
    put(tmp_path, one=log(*TWICE), two=log(*TWICE, "c.py", id="b", known=4))
    urls = below(tmp_path.as_uri())
    assert urls == [(tmp_path / name).as_uri() for name in ("one.jsonl", "two.jsonl")]
    found = done(urls, jobs=2)
    assert sum(session.requests for one in found.values() for session in one.sessions) == 5


def test_a_url_that_leads_nowhere_is_named() -> None:
    pytest.importorskip("fsspec")
    found = done(below("memory://ibidem-test/gone.jsonl"))
    assert found["memory://ibidem-test/gone.jsonl"].unread


def test_a_url_that_leads_nowhere_is_named_with_the_reason() -> None:
    pytest.importorskip("fsspec")
    found = done(below("memory://ibidem-test/gone.jsonl"))
    assert "no such file" in found["memory://ibidem-test/gone.jsonl"].unread[0].why.lower()


@pytest.mark.parametrize("url", ["nosuch://a/b.jsonl", "s3://bucket/a.jsonl"])
def test_a_url_of_a_kind_that_is_not_known_gets_a_clear_message(url: str) -> None:
    pytest.importorskip("fsspec")
    if url.startswith("s3") and importlib.util.find_spec("s3fs"):
        pytest.skip("s3fs is installed")
    with pytest.raises(IbidemError):
        below(url)


# ── a cluster ───────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_cluster_finds_what_this_machine_does(tmp_path: Path) -> None:
    distributed = pytest.importorskip("distributed")
    paths = several(tmp_path / "logs", 4)
    paths += put(tmp_path / "logs", bad=b"rubbish", one=log("q.py"), two=log("q.py", "r.py", id="b", known=2))
    settings = ReportSettings(("lossless", "codetether"), prices=own_prices('{"claude-opus-4-6": {"input": 1}}', "p"))
    options = {"n_workers": 2, "threads_per_worker": 1, "host": "127.0.0.1", "dashboard_address": None}
    with distributed.LocalCluster(**options, processes=True, silence_logs=50) as cluster:
        work = families([*paths, str(tmp_path / "gone.jsonl")])
        found = by_path(one for some in on_dask(work, settings, cluster.scheduler_address) for one in some)
    assert found == done([*paths, str(tmp_path / "gone.jsonl")], settings)


def the_error(running: subprocess.Popen[bytes], seconds: float = 30) -> str:
    out, said = running.communicate(timeout=seconds)
    assert (running.returncode, out, said.count(b"\n")) == (2, b"", 1), said
    assert said.startswith(b"ibidem: ")
    return said.decode()


@pytest.mark.slow
@pytest.mark.parametrize("address", NOWHERE)
def test_no_scheduler_there_is_one_line(nobody_there: dict[str, subprocess.Popen[bytes]], address: str) -> None:
    pytest.importorskip("distributed")
    said = the_error(nobody_there[address])
    assert f"no Dask scheduler at {address}" in said
    assert "start one, or name another" in said


MISSING = {
    "a cluster": (["--engine", "dask", "--scheduler", "tcp://127.0.0.1:1"], "distributed", "--engine dask"),
    "a URL": (["memory://somewhere/a.jsonl"], "fsspec", "URL"),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", MISSING)
def test_what_is_not_installed_is_named_with_the_way_to_get_it(tmp_path: Path, case: str) -> None:
    args, module, words = MISSING[case]
    paths = put(tmp_path, one=log(*TWICE))
    with command(tmp_path, *paths, *args, code=f"import sys; sys.modules[{module!r}] = None") as running:
        said = the_error(running)
    assert "pip install 'ibidem-llm[dask]'" in said
    assert words in said
