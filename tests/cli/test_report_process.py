"""`ibidem report` as a process: what comes first, what a terminal lacks, many logs, and two runs at once."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from ibidem.report.executors import count_cores
from tests.report.logs import DAY, NOON, command, complaints, put, timed
from tests.report.test_report import TWICE, log

pytestmark = pytest.mark.slow
posix = pytest.mark.skipif(os.name == "nt", reason="pipes and terminals of another kind")


def ended(running: subprocess.Popen[bytes], seconds: float = 60) -> str:
    """What was printed, if all went well."""
    out, said = running.communicate(timeout=seconds)
    assert (running.returncode, complaints(said)) == (0, "")
    return out.decode()


HELD = """
import os, time
from ibidem.report import gather
whole = gather.measure_group
def held(*args, **named):
    while not os.path.exists({gate!r}):
        time.sleep(0.01)
    return whole(*args, **named)
gather.measure_group = held
"""
"""A replay that takes until a file is there."""


@posix
def test_what_was_paid_is_in_the_pipe_before_anything_is_replayed(tmp_path: Path) -> None:
    [path] = put(tmp_path / "logs", one=log(*TWICE))
    gate = tmp_path / "gate"
    with command(tmp_path, path, "--jobs", "1", code=HELD.format(gate=str(gate))) as running:
        assert running.stdout
        first = running.stdout.readline()
        assert re.fullmatch(rb"Paid \$0\.17 \(.*\) for 1 session, 4 requests\.\n", first)
        assert running.poll() is None
        gate.touch()
        rest = ended(running)
    assert rest.startswith("lossless would have saved $")
    assert "Paid $" not in rest


@posix
@pytest.mark.parametrize("flag", ["--json", "--csv"])
def test_what_other_programs_read_comes_whole(tmp_path: Path, flag: str) -> None:
    paths = put(tmp_path / "logs", one=log(*TWICE))
    with command(tmp_path, *paths, flag) as running:
        out = ended(running)
    assert len(json.loads(out)["sessions"] if flag == "--json" else list(csv.DictReader(io.StringIO(out)))) == 1


def unmarked(id: str) -> bytes:
    """A session that asked for nothing to be kept."""
    rows = [json.loads(line) for line in log(*TWICE, id=id).splitlines()]
    for row in rows:
        if used := row.get("message", {}).get("usage"):
            used["input_tokens"] += used.pop("cache_read_input_tokens") + used.pop("cache_creation_input_tokens")
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


def test_that_nothing_was_kept_is_said_before_what_was_paid(tmp_path: Path) -> None:
    paths = put(tmp_path / "logs", one=unmarked("b"), two=log(*TWICE))
    with command(tmp_path, *paths, "--jobs", "1") as running:
        first, second, *_ = ended(running).splitlines()
    assert first.startswith("1 session did not use its provider's prompt cache: it cost $")
    assert second.startswith("Paid $")


@posix
def test_a_short_session_of_another_provider_does_not_keep_it_waiting(tmp_path: Path) -> None:
    """Of a provider that keeps by itself, or too short to be kept: there is nothing to say of marks."""
    other = unmarked("b").replace(b"claude-opus-4-6", b"gpt-5")
    short = log(id="c").replace(b'"cache_creation_input_tokens": 8997', b'"cache_creation_input_tokens": 0')
    paths = put(tmp_path / "logs", one=other, two=short, three=log(*TWICE))
    gate = tmp_path / "gate"
    with command(tmp_path, *paths, "--jobs", "1", code=HELD.format(gate=str(gate))) as running:
        assert running.stdout
        assert running.stdout.readline().startswith(b"Paid $")
        gate.touch()
        ended(running)


# --- what a terminal lacks, and what it must not be told ----------------------------------------


@pytest.mark.parametrize("encoding", ["ascii", "cp1252", "utf-16"])
def test_every_encoding_does(tmp_path: Path, encoding: str) -> None:
    paths = put(tmp_path / "logs", one=log(*TWICE, prompts=2).replace(b"Begin", "größer → 漢字".encode()))
    env = {**os.environ, "PYTHONIOENCODING": encoding, "HOME": str(tmp_path), "COLUMNS": "80"}
    for extra in (["--by", "session"], ["--csv"]):
        line = [sys.executable, "-m", "ibidem.cli", "report", *paths, "--jobs", "1", *extra]
        done = subprocess.run(line, env=env, capture_output=True, check=False)
        assert (done.returncode, done.stderr) == (0, b"")
        assert "requests" in done.stdout.decode(encoding)


HOSTILE = "\x1b[31mred\x1b]0;title\x07\r\n\x9b2J\u202eabc\u202c[bold]|\t"


@posix
@pytest.mark.parametrize("args", [["--by", "session"], ["--by", "model", "--by", "project"], ["--csv"]])
def test_nothing_in_a_log_steers_a_terminal(tmp_path: Path, args: list[str]) -> None:
    import pty

    rows = [json.loads(line) for line in log(*TWICE, project=f"/{HOSTILE}", model=f"m{HOSTILE}").splitlines()]
    rows[0]["message"]["content"] = HOSTILE
    for row in rows:
        row["sessionId"] = HOSTILE
    paths = put(tmp_path / "logs", one=b"".join(json.dumps(row).encode() + b"\n" for row in rows))
    ours, theirs = pty.openpty()
    env = {**os.environ, "HOME": str(tmp_path), "NO_COLOR": "1", "COLUMNS": "100", "TERM": "dumb"}
    line = [sys.executable, "-m", "ibidem.cli", "report", *paths, "--jobs", "1", *args]
    with subprocess.Popen(line, env=env, stdout=theirs, stderr=subprocess.PIPE) as running:
        os.close(theirs)
        shown = b""
        try:
            while some := os.read(ours, 65536):
                shown += some
        except OSError:  # the other end is closed
            pass
        os.close(ours)
        assert running.wait(60) == 0
    text = shown.decode().replace("\r\n", "\n")
    steering = {char for char in text if not char.isprintable()} - {"\n", "\x1b"}
    assert steering == set()
    assert re.findall(r"\x1b(?!\[[0-9;]*m)", text) == []  # bold and dim are ours
    assert "\x1b[31m" not in text
    assert "red" in text


# --- many logs ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two thousand small logs."""
    folder = tmp_path_factory.mktemp("many")
    for n in range(2000):
        (folder / f"{n}.jsonl").write_bytes(timed(log("a.py", id=f"x{n}-"), NOON + n * DAY / 24))
    return folder


def timed_run(home: Path, *args: str | Path) -> tuple[dict[str, Any], float]:
    start = time.monotonic()
    with command(home, *args, "--json") as running:
        value: dict[str, Any] = json.loads(ended(running, 300))
    return value, time.monotonic() - start


@posix
def test_two_thousand_logs_take_seconds_and_the_second_time_less(tmp_path: Path, many: Path) -> None:
    import resource

    value, first = timed_run(tmp_path, many, "--paid")
    assert value["paid"]["requests"] == 4000
    again, second = timed_run(tmp_path, many, "--paid", "--by", "day", "--by", "session")
    assert again["paid"] == value["paid"]
    assert len(again["by"]["session"]) == 2000
    assert second < first + 5  # the machine may have become busy
    assert resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss < 1 << 20  # kilobytes


def test_two_runs_at_once_share_what_they_know(tmp_path: Path) -> None:
    logs = {f"log{n}": log(*TWICE, id=f"x{n}-") for n in range(30)}
    paths = put(tmp_path / "logs", **logs)
    both = [command(tmp_path, *paths, "--json", "--jobs", str(min(2, count_cores()))) for _ in range(2)]
    one, other = (json.loads(ended(each, 120)) for each in both)
    assert one == other
    with command(tmp_path, *paths, "--json", "--jobs", "1") as running:
        assert json.loads(ended(running)) == one


# --- clocks -------------------------------------------------------------------------------------


@posix
def test_days_are_those_of_the_machines_clock(tmp_path: Path) -> None:
    """In summer and in winter: the same hour after midnight belongs to the new day."""
    logs = {
        "summer": timed(log(id="b"), datetime(2026, 7, 1, 22, 10, tzinfo=UTC), timedelta(minutes=1)),
        "winter": timed(log(id="c"), datetime(2026, 1, 1, 23, 10, tzinfo=UTC), timedelta(minutes=1)),
    }
    paths = put(tmp_path / "logs", **logs)
    zone = "import os, time; os.environ['TZ'] = 'Europe/Berlin'; time.tzset()"
    with command(tmp_path, *paths, "--json", "--paid", "--by", "day", code=zone) as running:
        rows = json.loads(ended(running))["by"]["day"]
    assert [row["name"] for row in rows] == ["2026-01-02", "2026-07-02"]


@posix
def test_a_closed_standard_input_is_named(tmp_path: Path) -> None:
    with command(tmp_path, "-", code="import sys; sys.stdin = None") as running:
        out, said = running.communicate(timeout=60)
    assert (running.returncode, out) == (2, b"")
    assert said == b"ibidem: standard input: closed: pipe a log into it or pass a file\n"
