"""The year of logs that `benchmarks.report` makes up: read whole, with nothing in it that a provider would refuse.

python -m pytest tests_slow/test_year.py
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from benchmarks.report import SINCE, first_dollars
from benchmarks.year import END, SMALL_FILES, Year, year
from ibidem import recordings, rules
from ibidem.formats import format_named, parse_request

ROOT = Path(__file__).parent.parent
SIZE = 20_000_000


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Year:
    return year(tmp_path_factory.mktemp("year"), SIZE)


def test_every_line_is_read_and_every_request_is_one_that_a_provider_takes(logs: Year) -> None:
    agents, causes = set(), set()
    for path in logs.files():
        for session in recordings.read(str(path), path.read_bytes()):
            agents.add(session.agent)
            assert not session.skipped
            assert all(each.usage for segment in session.segments for each in segment.requests)
            for segment in session.segments:
                causes.add(segment.cause)
                key = format_named(session.format).history_key
                body = {key: segment.history[: segment.requests[-1].length]}
                assert not list(rules.violations(parse_request(body, format_named(session.format)))), path
    assert agents == {"claude-code", "codex"}
    assert causes == {"start", "compaction"}


def test_sizes_and_times_are_as_said(logs: Year) -> None:
    sizes = [path.stat().st_size for path in logs.files()]
    assert sum(sizes) == pytest.approx(SIZE, rel=0.1)
    assert sum(path.stat().st_size for path in logs.files(SINCE)) == pytest.approx(SIZE / 50, rel=0.5)
    assert len(logs.small.files()) >= SMALL_FILES
    for path in logs.files():
        requests = [
            each
            for session in recordings.read(str(path), path.read_bytes())
            for segment in session.segments
            for each in segment.requests
        ]
        written = path.stat().st_mtime
        assert requests[-1].answered == pytest.approx(written, abs=1)
        assert written <= END


def test_the_same_size_gives_the_same_bytes_and_what_is_there_stays(logs: Year, tmp_path: Path) -> None:
    again = year(tmp_path, SIZE)
    names = [path.relative_to(logs.folder) for path in logs.files()]
    assert names == [path.relative_to(again.folder) for path in again.files()]
    assert all((logs.folder / name).read_bytes() == (again.folder / name).read_bytes() for name in names)
    before = [path.stat().st_ctime_ns for path in again.files()]
    year(tmp_path, SIZE)
    assert [path.stat().st_ctime_ns for path in again.files()] == before


def test_a_folder_of_somebody_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("mine")
    with pytest.raises(SystemExit, match="not empty"):
        year(tmp_path, SIZE)


@pytest.mark.parametrize(
    ("shown", "line"),
    [
        (b"reading\r\n\x1b[1mpaid: $\x1b[0m12.30\r\nmore", "paid: $12.30"),
        (b"reading logs\r\nno figures, $ or not\r\n", None),
    ],
)
def test_the_first_dollars_on_the_screen_are_found(shown: bytes, line: str | None, tmp_path: Path) -> None:
    screen = tmp_path / "screen"
    screen.write_bytes(shown)
    with screen.open("rb") as file:
        found = first_dollars(file.fileno(), time.perf_counter())
    assert (found and found.line) == line


def test_the_benchmark_runs(logs: Year) -> None:
    command = [sys.executable, "-m", "benchmarks.report", "--size", "20MB", "--rounds", "1", "--folder"]
    ended = subprocess.run([*command, str(logs.folder)], cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert ended.returncode == 0, ended.stderr
    assert "writing" not in ended.stdout
    assert "dollars are on the screen after" in ended.stdout
