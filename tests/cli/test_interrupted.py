"""`ibidem report` and Ctrl-C: what is known is told and called partial, nothing is left running, 130 is the end."""

from __future__ import annotations

import json
import os
import re
import signal
import sqlite3
import subprocess
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.report.logs import DAY, NOON, command, complaints, timed
from tests.report.test_report import log

linux = pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="processes are looked up in /proc")
pytestmark = [pytest.mark.slow, linux]

NUMBER = 60
"""Logs."""


@pytest.fixture(scope="module")
def much(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Logs that take two processes some seconds."""
    folder = tmp_path_factory.mktemp("much")
    for n in range(NUMBER):
        data = log(*(f"{n}-{k % 9}.py" for k in range(45)), id=f"x{n}", prompts=5)
        (folder / f"{n}.jsonl").write_bytes(timed(data, NOON + n * DAY))
    return folder


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


def kept(file: Path) -> int:
    """Families whose figures are remembered."""
    try:
        with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True, timeout=5)) as db:
            return int(db.execute("SELECT count(*) FROM figures").fetchone()[0])
    except sqlite3.Error:
        return 0


def interrupted(running: subprocess.Popen[bytes]) -> tuple[str, str]:
    """Ctrl-C reaches every process of a terminal; what was printed, and said."""
    os.killpg(running.pid, signal.SIGINT)
    out, said = running.communicate(timeout=60)
    assert running.returncode == 130, said
    assert all_gone(running.pid)
    return out.decode(), complaints(said)


def while_replaying(home: Path, *args: str | Path) -> tuple[str, str]:
    memory = home / "cache/ibidem/report.sqlite"
    with command(home, *args, "--jobs", "2", start_new_session=True) as running:
        until = time.monotonic() + 30
        while kept(memory) < 6 and time.monotonic() < until:  # those that are kept are told a little later
            assert running.poll() is None
            time.sleep(0.02)
        return interrupted(running)


def test_in_the_middle_of_what_would_have_been_the_figures_so_far_are_told(tmp_path: Path, much: Path) -> None:
    out, said = while_replaying(tmp_path, much, "--by", "month", "--html", tmp_path / "out.html")
    assert said.strip() == f"ibidem: wrote {tmp_path / 'out.html'}"
    assert out.startswith("Paid $")
    assert f"for {NUMBER} sessions" in out.splitlines()[0]
    [partial] = re.findall(r"^Partial: .* for (\d+) sessions? of 60, the newest ones\.$", out, re.MULTILINE)
    assert 0 < int(partial) < NUMBER
    assert "lossless would have saved $" in out
    assert "Traceback" not in out
    memory = tmp_path / "cache/ibidem/report.sqlite"
    assert 0 < kept(memory) < NUMBER
    with closing(sqlite3.connect(memory)) as db:
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cache", "out.html"]


def test_what_was_done_before_is_not_done_again(tmp_path: Path, much: Path) -> None:
    out, said = while_replaying(tmp_path, much, "--json")
    value: dict[str, Any] = json.loads(out)
    assert (said, value["partial"]) == ("", True)
    assert value["paid"]["requests"] == NUMBER * 51
    replayed = [each for each in value["sessions"] if "profiles" in each]
    assert 0 < len(replayed) == value["totals"]["sessions"] < NUMBER == len(value["sessions"])
    known = kept(tmp_path / "cache/ibidem/report.sqlite")
    assert len(replayed) <= known


@pytest.mark.parametrize("pause", [0.05, 0.15, 0.3])
def test_while_workers_start_it_is_as_orderly(tmp_path: Path, much: Path, pause: float) -> None:
    with command(tmp_path, much, "--jobs", "2", "--no-cache", start_new_session=True) as running:
        until = time.monotonic() + 30
        while len(in_group(running.pid)) < 3 and time.monotonic() < until:
            time.sleep(0.005)
        time.sleep(pause)
        out, said = interrupted(running)
    assert said == ""
    assert re.search(r"^Partial: interrupted", out, re.MULTILINE)


READING = """
import os, signal
from ibidem.report import gather
whole = gather.facts_at
def slow(log, seen=[], **options):
    seen.append(log)
    if len(seen) > {before}:
        os.kill(os.getpid(), signal.SIGINT)
    return whole(log, **options)
gather.facts_at = slow
"""
"""A user who presses Ctrl-C after so many logs were read."""


@pytest.mark.parametrize("extra", [[], ["--paid"]], ids=["before what would have been", "of what was paid"])
def test_in_the_middle_of_reading_what_was_read_is_told(tmp_path: Path, much: Path, extra: list[str]) -> None:
    with command(tmp_path, much, "--jobs", "1", *extra, code=READING.format(before=3)) as running:
        out, said = running.communicate(timeout=60)
    assert (running.returncode, complaints(said)) == (130, "")
    told = out.decode().splitlines()
    assert told[0].startswith("Paid $")
    assert "for 3 sessions" in told[0]
    assert told[1] == "Partial: interrupted with 57 logs not read, the oldest ones."


def test_before_anything_was_read_it_does_not_say_that_nothing_is_there(tmp_path: Path, much: Path) -> None:
    with command(tmp_path, much, "--jobs", "1", code=READING.format(before=0)) as running:
        out, said = running.communicate(timeout=60)
    assert (running.returncode, complaints(said)) == (130, "")
    assert out.decode().strip() == "Partial: interrupted with 60 logs not read, the oldest ones."


def test_what_was_read_before_is_remembered(tmp_path: Path, much: Path) -> None:
    with command(tmp_path, much, "--jobs", "1", "--paid", code=READING.format(before=3)) as running:
        running.communicate(timeout=60)
    with closing(sqlite3.connect(tmp_path / "cache/ibidem/report.sqlite")) as db:
        assert db.execute("SELECT count(*) FROM facts").fetchone() == (3,)


def test_pauses_of_half_of_the_logs_are_not_kept(tmp_path: Path, much: Path) -> None:
    """They are habits of the user: `wrap` decides by them."""
    folder = tmp_path / ".claude/projects/x"
    folder.mkdir(parents=True)
    for path in sorted(much.iterdir())[:5]:
        (folder / path.name).write_bytes(path.read_bytes())
    with command(tmp_path, "--all", "--jobs", "1", "--paid", code=READING.format(before=3)) as running:
        running.communicate(timeout=60)
    assert running.returncode == 130
    assert not (tmp_path / ".local").exists()
