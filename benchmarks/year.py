"""A year of logs, made up, as Claude Code and Codex leave them on a machine that is used every day.

Many are small and some have 5 to 20 MB, as real ones do: sizes are spread log-normally. Contexts grow to a limit and
are compacted there; counts of tokens follow from the texts. The last seven days hold a fiftieth of the bytes. A file's
time is that of its last request. The same size gives the same bytes, and the year ends on a fixed day: what was written
once can be used again.
"""

from __future__ import annotations

import json
import math
import os
import random
import shutil
from collections.abc import Callable
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import NamedTuple

from .agents import ClaudeLog, CodexLog
from .made_up import identifier
from .work import Project

EDITION = 1
"""Of what is written: another one is written anew."""
END = datetime(2026, 11, 1, tzinfo=UTC).timestamp()
DAY = 86400.0
LAST_DAYS, LAST_SHARE = 7, 0.02
USUAL_BYTES, SPREAD = 180_000, 1.5
"""Median and width of the sizes."""
SMALLEST, LARGEST = 6_000, 20_000_000
SUB_AGENT_SHARE = 0.3
"""Of Claude Code's sessions that have one."""
CLAUDE_SHARE = 0.65
PROJECTS = ("shop", "importer", "site", "notes", "engine")
SMALL_FILES = 1_000


class Year(NamedTuple):
    """Where the logs are. Those of the small files are in a home of their own."""

    folder: Path

    @property
    def claude(self) -> Path:
        return self.folder / "claude"

    @property
    def codex(self) -> Path:
        return self.folder / "codex"

    @property
    def small(self) -> Year:
        return Year(self.folder / "small")

    def files(self, since: float = 0.0) -> list[Path]:
        """All logs, or those that were written to since then."""
        found = [*self.claude.rglob("*.jsonl"), *self.codex.rglob("*.jsonl")]
        return sorted(path for path in found if path.stat().st_mtime >= since)


def year(folder: Path, size: int, say: Callable[[str], object] = print) -> Year:
    """Logs of about so many bytes, in this folder: written if they are not there yet."""
    found, about = Year(folder), {"edition": EDITION, "size": size}
    mark = folder / "made.json"
    if mark.exists() and json.loads(mark.read_text()) == about:
        return found
    if folder.exists() and any(folder.iterdir()) and not mark.exists():
        raise SystemExit(f"{folder}: not empty, and not made by this benchmark: name another folder")
    say(f"writing {size / 1e6:,.0f} MB of logs to {folder}")
    for each in (found.claude, found.codex, found.small.folder):
        shutil.rmtree(each, ignore_errors=True)
    rng = random.Random(11)
    last = END - LAST_DAYS * DAY
    _fill(found, rng, int(size * (1 - LAST_SHARE)), END - 365 * DAY, last - DAY / 8)
    _fill(found, rng, int(size * LAST_SHARE), last + DAY / 4, END)
    for _ in range(SMALL_FILES):
        _session(found.small, rng, SMALLEST, rng.uniform(END - 365 * DAY, END))
    mark.write_text(json.dumps(about))
    return found


@cache
def _projects() -> tuple[Project, ...]:
    return tuple(Project(name, seed) for seed, name in enumerate(PROJECTS))


def _fill(found: Year, rng: random.Random, budget: int, since: float, until: float) -> None:
    """Sessions that end between two times."""
    largest = min(LARGEST, max(budget // 4, SMALLEST))
    left = budget
    while left > 0:
        size = round(min(max(rng.lognormvariate(math.log(USUAL_BYTES), SPREAD), SMALLEST), largest, left))
        left -= _session(found, rng, size, rng.uniform(since, until))


def _session(found: Year, rng: random.Random, size: int, end: float) -> int:
    """One session, as one of the agents writes it; and its size."""
    project, session = rng.choice(_projects()), identifier(rng)
    if rng.random() >= CLAUDE_SHARE:
        codex = CodexLog(rng, project, session, size)
        began = datetime.fromtimestamp(end - codex.clock.now, UTC)
        name = f"rollout-{began:%Y-%m-%dT%H-%M-%S}-{session}.jsonl"
        return _write(found.codex / "sessions" / f"{began:%Y/%m/%d}" / name, codex.written(end), end)
    folder = found.claude / "projects" / project.folder.replace("/", "-")
    log = ClaudeLog(rng, project, session, size)
    written = _write(folder / f"{session}.jsonl", log.written(end), end)
    if size > 4 * SMALLEST and rng.random() < SUB_AGENT_SHARE:
        helper = ClaudeLog(rng, project, session, size // 8, agent=f"{rng.getrandbits(28):07x}")
        path = folder / session / "subagents" / f"agent-{helper.agent}.jsonl"
        written += _write(path, helper.written(end), end)
    return written


def _write(path: Path, data: bytes, at: float) -> int:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    os.utime(path, (at, at))
    return len(data)
