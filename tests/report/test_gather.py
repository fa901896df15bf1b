"""From names of logs to figures: what is read, which logs belong together, and what cannot be read."""

from __future__ import annotations

import gzip
import importlib.util
import json
import os
from pathlib import Path
from typing import Any

import pytest

from ibidem.errors import IbidemError
from ibidem.report import gather as gathering
from ibidem.report.executors import LocalWorkers
from ibidem.report.gather import LogGroupTask, gather_facts, group_logs, measure_groups
from ibidem.report.log_sources import LogFile, list_logs
from ibidem.report.measure import ReportSettings, measure_log
from ibidem.report.report_cache import ReportCache
from ibidem.report.selection import SessionFilter
from ibidem.report.session_result import FileResult
from ibidem.wire import zstd
from tests.recordings.examples import lines
from tests.report.logs import DAY, NOON, alone, by_path, done, names, put, read, related, several, timed
from tests.report.test_report import TWICE, log

ROOT = hasattr(os, "geteuid") and os.geteuid() == 0
posix = pytest.mark.skipif(os.name == "nt", reason="processes, modes and signals of another kind")


# ── which belong together ───────────────────────────────────────────────────────────────────────────────────────────


def test_logs_that_share_an_answer_belong_together(tmp_path: Path) -> None:
    long, other, short = put(
        tmp_path, long=log(*TWICE, "c.py", "d.py"), other=log(*TWICE, id="b"), short=log("a.py", "b.py")
    )
    assert sorted(names(related([long, other, short]))) == [(other,), (short, long)]


def test_an_answer_deep_in_the_logs_brings_them_together(tmp_path: Path) -> None:
    late = lines({"type": "summary", "summary": "x" * 200_000}) + log("a.py")
    one, two = put(tmp_path, one=late, two=late)
    assert names(related([one, two])) == [(one, two)]


def test_logs_belong_together_through_others(tmp_path: Path) -> None:
    """A copy of the first five answers, one of the first of these, and a log with none of them."""
    paths = put(
        tmp_path,
        first=log(*["a.py"] * 6),
        second=log(*["a.py"] * 7, id="b", known=5),
        third=log(*["a.py"] * 8, id="c", known=1),
        other=log(*["a.py"] * 9, id="d"),
    )
    assert sorted(names(related(paths))) == [tuple(paths[:3]), (paths[3],)]


def test_what_has_no_answers_stands_alone(tmp_path: Path) -> None:
    """Requests alone tell nothing of whose copies they are."""
    body = {"model": "claude-opus-4-6", "messages": [{"role": "user", "content": "Begin"}]}
    paths = put(tmp_path, one=lines(body), two=lines(body), empty=b"")
    paths.append(str(tmp_path / "gone.jsonl"))
    assert sorted(names(related(paths))) == [(paths[0],), (paths[1],)]


def test_short_ids_name_an_answer_in_their_own_session_only(tmp_path: Path) -> None:
    """Two agents that number their answers from one did not say the same."""
    head = {"projectHash": "40fc80"}
    rows = [{"id": "u1", "type": "user", "content": "Q"}, {"id": "a1", "type": "gemini", "content": "A", "model": "g"}]
    paths = put(
        tmp_path,
        one=lines({**head, "sessionId": "5e551011-0000"}, *rows),
        two=lines({**head, "sessionId": "5e551012-0000"}, *rows),
    )
    assert len(related(paths)) == 2


def test_a_packed_copy_belongs_to_its_log(tmp_path: Path) -> None:
    data = log(*TWICE, "c.py")
    [plain] = put(tmp_path, one=data)
    for ending, pack in ((".gz", gzip.compress), (".zst", zstd.compress)):
        Path(f"{plain}{ending}").write_bytes(pack(data))
    (family,) = related([plain, f"{plain}.gz", f"{plain}.zst"])
    assert sum(session.requests for each in alone(family) for session in each.sessions) == 5


def test_a_chat_of_gemini_cli_that_was_resumed_is_counted_once(tmp_path: Path) -> None:
    head = {"sessionId": "5e551011-0000", "projectHash": "40fc80"}
    said = [{"id": f"u{n}", "type": "user", "content": f"Question {n}"} for n in (1, 2)]
    told = [{"id": f"a{n}", "type": "gemini", "content": f"Answer {n}", "model": "gemini-2.5-pro"} for n in (1, 2)]
    old, new = str(tmp_path / "session-1.json"), str(tmp_path / "session-1.jsonl")
    Path(old).write_text(json.dumps({**head, "messages": [said[0], told[0]]}))
    Path(new).write_bytes(lines(head, said[0], told[0], said[1], told[1]))
    (family,) = related([old, new])
    assert sorted(log.path for log in family.logs) == [old, new]
    assert sum(session.requests for each in alone(family) for session in each.sessions) == 2


def test_the_newest_family_is_first(tmp_path: Path) -> None:
    days = (2, 4, 1, 3)
    paths = put(tmp_path, **{f"log{n}": timed(log("a.py", id=f"x{n}"), NOON + n * DAY) for n in days})
    assert names(related(paths)) == [(paths[1],), (paths[3],), (paths[0],), (paths[2],)]


def test_no_logs_are_no_families() -> None:
    assert related([]) == []
    assert list(measure_groups([], ReportSettings(), LocalWorkers(2))) == []


# ── a family ────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.slow
@pytest.mark.parametrize("resumed_is_longer", [True, False])
def test_what_a_resumed_session_repeats_is_counted_once(tmp_path: Path, resumed_is_longer: bool) -> None:
    """Five answers are in both; one has two more, the other four."""
    more, less = (*TWICE, "c.py", "d.py", "e.py", "f.py", "g.py"), (*TWICE, "c.py", "d.py", "h.py")
    first, second = (less, more) if resumed_is_longer else (more, less)
    paths = put(tmp_path, first=log(*first), second=log(*second, id="b", known=5))
    [family] = related(paths)
    found = alone(family)
    assert len(found) == 2
    assert sum(session.requests for one in found for session in one.sessions) == 5 + 2 + 4
    assert sum(len(each.numbers) for each in family.sessions) == 5 + 2 + 4
    each = [done([log.path])[log.path].sessions[0] for log in family.logs]
    assert [one.requests for one in each] == [7, 9]
    assert found[0].sessions == [each[0]]
    assert found[1].sessions[0].requests == 4
    assert found[1].sessions[0].baseline.cost < each[1].baseline.cost


def test_a_log_that_is_all_in_another_has_no_session(tmp_path: Path) -> None:
    [family] = related(put(tmp_path, one=log(*TWICE), two=log(*TWICE)))
    found = alone(family)
    assert [len(one.sessions) for one in found] == [1, 0]
    assert [one.unread for one in found] == [[], []]


def test_results_that_a_resumed_session_repeats_are_counted_once(tmp_path: Path) -> None:
    paths = put(tmp_path, one=log("a.py", "b.py", "a.py"), two=log("a.py", "b.py", "a.py", "c.py", id="b", known=4))
    sessions = [session for one in alone(related(paths)[0]) for session in one.sessions]
    assert sum(session.tools["Read"].count for session in sessions) == 4
    assert sum(session.profiles["lossless"].strategies["dedup"].hits for session in sessions) == 1


def test_a_part_of_a_family_counts_what_stands_in_no_log_before(tmp_path: Path) -> None:
    """The copy in the larger log is in the range too, and is no second request."""
    one = timed(log(*TWICE), NOON)
    two = timed(log(*TWICE, "c.py", id="b", known=4), NOON)
    paths = put(tmp_path, one=one, two=two)
    [family] = related(paths, SessionFilter(since=NOON.timestamp() + 100))
    assert [len(each.numbers) for each in family.sessions] == [3, 1]
    assert [session.requests for each in alone(family) for session in each.sessions] == [3, 1]


# ── reading ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_newest_logs_are_read_first(tmp_path: Path) -> None:
    paths = several(tmp_path, 4)
    for path, day in zip(paths, (2, 4, 1, 3), strict=True):
        os.utime(path, (day * 86400, day * 86400))
    found = gather_facts([LogFile.from_path(path) for path in paths], LocalWorkers(1), None)
    assert [log.path for log, _ in found] == [paths[1], paths[3], paths[0], paths[2]]


def test_a_log_is_known_without_being_opened(tmp_path: Path) -> None:
    [path] = put(tmp_path, one=log(*TWICE))
    os.utime(path, (5, 5))
    found = LogFile.from_path(path)
    assert (found.path, found.size, found.written) == (path, os.path.getsize(path), 5.0)
    assert found == LogFile.from_path(path)
    os.utime(path, (6, 6))
    assert found.state != LogFile.from_path(path).state


@pytest.mark.parametrize("path", ["gone.jsonl", "memory://somewhere/a.jsonl", "a\0b", "."])
def test_of_what_is_no_file_nothing_is_known(path: str) -> None:
    assert LogFile.from_path(path) == LogFile(path)


def test_a_database_that_keeps_what_is_new_beside_it_has_another_state(tmp_path: Path) -> None:
    database = tmp_path / "opencode.db"
    database.write_bytes(b"x")
    os.utime(database, (5, 5))
    before = LogFile.from_path(str(database))
    beside = tmp_path / "opencode.db-wal"
    beside.write_bytes(b"new")
    os.utime(beside, (9, 9))
    after = LogFile.from_path(str(database))
    assert before.state != after.state
    assert (before.written, after.written) == (5.0, 9.0)
    beside.write_bytes(b"newer")
    os.utime(beside, (9, 9))
    assert LogFile.from_path(str(database)).state != after.state


def test_a_log_by_another_name_is_remembered_under_that(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures are told by path: those of a relative one are not those of an absolute one."""
    [path] = put(tmp_path, one=log(*TWICE))
    monkeypatch.chdir(tmp_path)
    memory = ReportCache(tmp_path / "cache", ReportSettings())
    for name in ("one.jsonl", path, "./one.jsonl", "one.jsonl"):
        found = done([name], memory=memory)
        assert [*found] == [name]
        assert [session.path for session in found[name].sessions] == [name]


# ── logs that cannot be read ────────────────────────────────────────────────────────────────────────────────────────


def test_a_log_that_is_gone_is_named(tmp_path: Path) -> None:
    good, gone = put(tmp_path, good=log(*TWICE), gone=log(*TWICE, id="b"))
    work = [LogGroupTask.from_group(family) for family in related([good, gone])]
    os.unlink(gone)
    some = measure_groups(work, ReportSettings(), LocalWorkers(1))
    found = by_path(one for _, figures in some for one in figures)
    assert [(each.path, each.why) for each in found[gone].unread] == [(gone, "no such file")]
    assert found[good] == measure_log(good, log(*TWICE), ReportSettings())
    assert [each.why for facts in read([gone]).values() for each in facts.unread] == ["no such file"]


def test_one_of_a_family_that_is_gone_is_named_and_the_other_counted(tmp_path: Path) -> None:
    one, two = put(tmp_path, one=log(*TWICE), two=log(*TWICE, "c.py", id="b", known=4))
    [family] = related([one, two])
    memory = ReportCache(tmp_path / "cache", ReportSettings())
    os.unlink(one)
    for _ in range(2):
        found = by_path(alone(family, memory))
        assert found[two].sessions[0].requests == 5
        assert found[one].unread[0].path == one


@posix
def test_a_folder_in_place_of_a_log_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").mkdir()
    [found] = read([str(tmp_path / "a.jsonl")]).values()
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
    "half a gzip file": gzip.compress(log(*TWICE))[:40],
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
    assert "bug in ibidem" not in unread.why
    assert found == done(good)


@pytest.mark.parametrize("place", ["measure_log", "read_facts"])
def test_a_fault_of_ours_is_called_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    whole = getattr(gathering, place)

    def fail(path: str, *rest: Any) -> FileResult:
        if "log1" in path:
            raise ZeroDivisionError("oh")
        found: FileResult = whole(path, *rest)
        return found

    monkeypatch.setattr(gathering, place, fail)
    found = done(paths := several(tmp_path, 3))
    assert "this is a bug in ibidem. Please report it (ZeroDivisionError: oh)" in found[paths[1]].unread[0].why
    assert [len(found[path].sessions) for path in paths] == [1, 0, 1]


@pytest.mark.parametrize("jobs", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_wrong_settings_are_no_fault_of_a_log(tmp_path: Path, jobs: int) -> None:
    with pytest.raises(IbidemError, match="'house-model-7' is not in the price list"):
        done(several(tmp_path, 2), ReportSettings(model="house-model-7"), jobs=jobs)


# ── logs elsewhere ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_logs_at_a_url_are_found_and_read(tmp_path: Path) -> None:
    fsspec = pytest.importorskip("fsspec")
    local = several(tmp_path / "logs", 2)
    there = fsspec.filesystem("memory")
    urls = ["one.jsonl", "deeper/two.jsonl"]
    for name, path in zip(urls, local, strict=True):
        there.pipe(f"/ibidem-test/{name}", Path(path).read_bytes())
    there.pipe("/ibidem-test/readme.md", b"no log")
    memory = ReportCache(tmp_path / "cache", ReportSettings())
    try:
        found = [each.path for each in list_logs("memory://ibidem-test")]
        assert found == [f"memory:///ibidem-test/{name}" for name in sorted(urls)]
        assert [each.path for each in list_logs("memory://ibidem-test/one.jsonl")] == ["memory://ibidem-test/one.jsonl"]
        remote = done(found, memory=memory)
        assert remote == done(found, memory=memory)
    finally:
        there.rm("/ibidem-test", recursive=True)
    ours = done(local)
    for name, path in zip(urls, local, strict=True):
        one = remote[f"memory:///ibidem-test/{name}"]
        assert [each.baseline for each in one.sessions] == [each.baseline for each in ours[path].sessions]


@pytest.mark.slow
def test_a_resumed_session_at_a_url_is_counted_once(tmp_path: Path) -> None:
    pytest.importorskip("fsspec")
    put(tmp_path, one=log(*TWICE), two=log(*TWICE, "c.py", id="b", known=4))
    urls = [each.path for each in list_logs(tmp_path.as_uri())]
    assert urls == [(tmp_path / name).as_uri() for name in ("one.jsonl", "two.jsonl")]
    found = done(urls, jobs=2)
    assert sum(session.requests for one in found.values() for session in one.sessions) == 5


def test_packed_logs_at_a_url_are_found(tmp_path: Path) -> None:
    pytest.importorskip("fsspec")
    (tmp_path / "one.json.gz").write_bytes(gzip.compress(log(*TWICE)))
    assert [each.path for each in list_logs(tmp_path.as_uri())] == [(tmp_path / "one.json.gz").as_uri()]


def test_a_url_that_leads_nowhere_is_named_with_the_reason() -> None:
    pytest.importorskip("fsspec")
    found = done([each.path for each in list_logs("memory://ibidem-test/gone.jsonl")])
    assert "no such file" in found["memory://ibidem-test/gone.jsonl"].unread[0].why.lower()


@pytest.mark.parametrize("url", ["nosuch://a/b.jsonl", "s3://bucket/a.jsonl"])
def test_a_url_of_a_kind_that_is_not_known_gets_a_clear_message(url: str) -> None:
    pytest.importorskip("fsspec")
    if url.startswith("s3") and importlib.util.find_spec("s3fs"):
        pytest.skip("s3fs is installed")
    with pytest.raises(IbidemError):
        list_logs(url)


def test_families_of_what_was_read_need_no_file(tmp_path: Path) -> None:
    facts = read(put(tmp_path, one=log(*TWICE)))
    (tmp_path / "one.jsonl").unlink()
    [family] = group_logs(facts, SessionFilter())
    assert (family.size_bytes, family.last_request_time) == (len(log(*TWICE)), 1767261608.0)
