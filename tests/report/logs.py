"""Logs on a disk, and what is found in them: what tests of the report share."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from ibidem.report.executors import LocalWorkers, LogWorkers
from ibidem.report.gather import LogGroup, LogGroupTask, gather_facts, group_logs, measure_group, measure_groups
from ibidem.report.log_sources import LogFile
from ibidem.report.log_summary import FileFacts
from ibidem.report.measure import ReportSettings
from ibidem.report.report_cache import ReportCache
from ibidem.report.selection import SessionFilter
from ibidem.report.session_result import FileResult
from tests.report.test_report import TWICE, log

NOON = datetime(2026, 5, 6, 12, tzinfo=UTC)
"""A Wednesday."""
DAY = timedelta(days=1)


def put(folder: Path, **logs: bytes) -> list[str]:
    """Write logs; their paths."""
    folder.mkdir(exist_ok=True, parents=True)
    for name, data in logs.items():
        (folder / f"{name}.jsonl").write_bytes(data)
    return [str(folder / f"{name}.jsonl") for name in logs]


def several(folder: Path, number: int = 5) -> list[str]:
    return put(folder, **{f"log{n}": log(*TWICE, id=f"x{n}", project=f"/p{n}", prompts=n) for n in range(number)})


def timed(data: bytes, start: datetime, step: timedelta = timedelta(minutes=1), **fields: Any) -> bytes:
    """The log with lines that follow each other from a moment on, and other fields in every line of it."""
    rows = [json.loads(line) for line in data.splitlines()]
    for number, row in enumerate(rows):
        row |= {"timestamp": (start + number * step).astimezone(UTC).isoformat(), **fields}
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


def spoil(path: str) -> None:
    """Other content, of the same size and time."""
    was = os.stat(path)
    Path(path).write_bytes(b"x" * was.st_size)
    os.utime(path, ns=(was.st_atime_ns, was.st_mtime_ns))


def read(
    paths: Iterable[str], memory: ReportCache | None = None, workers: LogWorkers | None = None
) -> dict[LogFile, FileFacts]:
    return dict(gather_facts([LogFile.from_path(path) for path in paths], workers or LocalWorkers(1), memory))


def related(paths: Iterable[str], selection: SessionFilter | None = None) -> list[LogGroup]:
    return group_logs(read(paths), selection or SessionFilter())


def names(found: Iterable[LogGroup]) -> list[tuple[str, ...]]:
    return [tuple(log.path for log in family.logs) for family in found]


def alone(family: LogGroup, memory: ReportCache | None = None, settings: ReportSettings | None = None) -> Any:
    """The figures of one family."""
    return measure_group(LogGroupTask.from_group(family), settings or ReportSettings(), memory)[1]


def done(
    paths: Sequence[str],
    settings: ReportSettings | None = None,
    memory: ReportCache | None = None,
    jobs: int = 1,
    workers: LogWorkers | None = None,
) -> dict[str, FileResult]:
    """Figures by path, whatever the order in which they came; and what could not be read."""
    with workers or LocalWorkers(jobs) as working:
        facts = read(paths, memory, working)
        work = [LogGroupTask.from_group(family) for family in group_logs(facts, SessionFilter())]
        found = [one for _, some in measure_groups(work, settings or ReportSettings(), working, memory) for one in some]
    found += [FileResult(unread=one.unread) for one in facts.values() if one.unread]
    return by_path(found)


def by_path(found: Iterable[FileResult]) -> dict[str, FileResult]:
    """Files in which nothing was counted have no path."""
    named: dict[str, FileResult] = {}
    for one in found:
        paths = [session.path for session in one.sessions] + [unread.path for unread in one.unread]
        named |= dict.fromkeys(paths[:1], one)
    return named


def command(home: Path, *args: str | Path, code: str = "", **options: Any) -> subprocess.Popen[bytes]:
    """`ibidem report` as a process, in a home of its own."""
    start = ["-c", f"{code}\nfrom ibidem.cli import main; main()"] if code else ["-m", "ibidem.cli"]
    env = {**os.environ, "HOME": str(home), "XDG_CACHE_HOME": str(home / "cache"), "NO_COLOR": "1", "COLUMNS": "200"}
    line = [sys.executable, *start, "report", *map(str, args)]
    return subprocess.Popen(line, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options)


def complaints(said: bytes) -> str:
    """What was said on standard error, but for the news that slow machines get."""
    lines = said.decode().splitlines(keepends=True)
    return "".join(line for line in lines if not re.match(r"ibidem: [\w ]+, so far: ", line))
