"""What it costs to ask `ibidem report`, on a year of made-up logs: `python -m benchmarks.report`, or `--size 50MB`.

The floor is reading the bytes that a question can concern: the logs that were written to since then, or all of them.
The report runs as a user runs it, in processes of its own, with a home and caches that are made up. Processor time is
that of all its processes. What is compared is run in turns, with everything in the page cache, and the smallest of
several runs counts: noise only ever adds. A first run finds no cache of its own, a second one that of the first.

With a folder of recorded sessions, `python -m benchmarks.report FOLDER`, the steps of the report are timed instead.
"""

from __future__ import annotations

import argparse
import os
import pty
import re
import resource
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from .throughput import throughput
from .year import DAY, END, LAST_DAYS, Year, year

FIRST_FIGURES_AIM = 3.0
"""Seconds, on the screen."""
PATIENCE = 3600.0
"""Seconds after which a run is given up."""
SINCE = END - LAST_DAYS * DAY
SINCE_DAY = f"{datetime.fromtimestamp(SINCE, UTC):%Y-%m-%d}"
WEEK = ("--since", SINCE_DAY, "--by", "day")
MONTHS = ("--all", "--paid", "--by", "month")
UNITS = {"KB": 1e3, "MB": 1e6, "GB": 1e9}
DOLLARS = re.compile(rb"[^\r\n]*\$ ?\d[^\r\n]*")
ESCAPES = re.compile(rb"\x1b\[[0-9;?]*[A-Za-z]")


class Took(NamedTuple):
    """Seconds."""

    processor: float
    wall: float


def smallest(runs: Sequence[Took]) -> Took:
    return Took(min(each.processor for each in runs), min(each.wall for each in runs))


def timed(work: Callable[[], object]) -> Took:
    """In this process."""
    processor, wall = time.process_time(), time.perf_counter()
    work()
    return Took(time.process_time() - processor, time.perf_counter() - wall)


class Home:
    """A user with these logs and nothing else."""

    def __init__(self, logs: Year, folder: Path) -> None:
        self.cache = folder / "cache"
        places = {"HOME": folder / "home", "XDG_CACHE_HOME": self.cache, "XDG_DATA_HOME": folder / "data"}
        places |= {"XDG_CONFIG_HOME": folder / "config", "CLAUDE_CONFIG_DIR": logs.claude, "CODEX_HOME": logs.codex}
        for place in places.values():
            place.mkdir(parents=True, exist_ok=True)
        kept = {name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ}
        self.variables = kept | {name: str(place) for name, place in places.items()} | {"TERM": "xterm", "TZ": "UTC"}

    def forget(self) -> None:
        shutil.rmtree(self.cache)
        self.cache.mkdir()

    def ask(self, *words: str) -> Took:
        """The report, on a pipe."""
        return self.run("-m", "ibidem.cli", "report", *words)

    def run(self, *words: str) -> Took:
        """A program of this Python. Its processor time is that of all processes that it started and saw the end of."""
        before, wall = _of_children(), time.perf_counter()
        command = [sys.executable, *words]
        ended = subprocess.run(command, env=self.variables, capture_output=True, timeout=PATIENCE, text=True)
        took = Took(_of_children() - before, time.perf_counter() - wall)
        if ended.returncode:
            raise SystemExit(f"{' '.join(words)}: exit code {ended.returncode}\n{ended.stderr}")
        return took


def _of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def read_all(files: Sequence[Path]) -> None:
    for path in files:
        with open(path, "rb", buffering=0) as file:
            file.read()


class Asked(NamedTuple):
    """A question, beside reading what it can concern."""

    floor: Took
    first: Took
    second: Took


def asked(home: Home, files: Sequence[Path], words: Sequence[str], rounds: int) -> Asked:
    read_all(files)
    turns = []
    for _ in range(rounds):
        floor = timed(lambda: read_all(files))
        home.forget()
        turns.append(Asked(floor, home.ask(*words), home.ask(*words)))
    floors, firsts, seconds = zip(*turns, strict=True)
    return Asked(smallest(floors), smallest(firsts), smallest(seconds))


class Shown(NamedTuple):
    """A line on the screen, and after how many seconds it was there."""

    after: float
    line: str


def first_figures(home: Home, *words: str) -> Shown | None:
    """The first line with dollars on the screen; None if the report ends without one."""
    home.forget()
    ours, theirs = pty.openpty()
    start = time.perf_counter()
    command = [sys.executable, "-m", "ibidem.cli", "report", *words]
    with open(ours, "rb", buffering=0) as screen:
        started = subprocess.Popen(
            command, env=home.variables, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True
        )
        os.close(theirs)
        try:
            return first_dollars(screen.fileno(), start)
        finally:  # the rest of the report is of no interest here
            with suppress(ProcessLookupError):
                os.killpg(started.pid, signal.SIGTERM)
            started.wait()


def first_dollars(screen: int, start: float) -> Shown | None:
    shown = b""
    while time.perf_counter() - start < PATIENCE:
        try:
            more = os.read(screen, 1 << 16)
        except OSError:  # Linux says so when nobody has the other end any more
            more = b""
        if not more:
            return None
        shown = ESCAPES.sub(b"", shown[-4096:] + more)
        if found := DOLLARS.search(shown):
            return Shown(time.perf_counter() - start, found[0].decode(errors="replace").strip())
    return None


OPEN_AND_ASK = """
import os, sqlite3, sys
known, names = sys.argv[1:]
db = sqlite3.connect(known)
for path in open(names).read().splitlines():
    with open(path, "rb", buffering=0) as file:
        os.fstat(file.fileno())
    db.execute("SELECT data FROM known WHERE path = ?", (path,)).fetchall()
"""
"""What any program has to do that knows these files: see that each is the same as before, and look up what it knew."""


def unchanged(home: Home, files: Sequence[Path], folder: Path, rounds: int) -> Asked:
    """A second run on files that are known, beside a program that opens each and asks a database for it; and a run on
    one of them, which is what starting costs."""
    known = folder / "known.sqlite"
    known.unlink(missing_ok=True)
    with closing(sqlite3.connect(known)) as db, db:
        db.execute("CREATE TABLE known (path TEXT PRIMARY KEY, data BLOB)")
        db.executemany("INSERT INTO known VALUES (?, ?)", [(str(path), bytes(1000)) for path in files])
    names = folder / "names"
    names.write_text("\n".join(map(str, files)))
    read_all(files)
    home.ask(*MONTHS)
    turns = []
    for _ in range(rounds):
        floor = home.run("-c", OPEN_AND_ASK, str(known), str(names))
        turns.append(Asked(floor, home.ask(str(files[0]), *MONTHS[1:]), home.ask(*MONTHS)))
    floors, starts, seconds = zip(*turns, strict=True)
    return Asked(smallest(floors), smallest(starts), smallest(seconds))


def row(label: str, took: Took, floor: Took) -> None:
    ratios = f"{took.processor / floor.processor:9.1f} {took.wall / floor.wall:9.1f}"
    print(f"{label:52} {took.processor * 1e3:9.1f} {took.wall * 1e3:9.1f} {ratios}", flush=True)


def header(label: str) -> None:
    print(f"\n{label:52} {'processor':>9} {'wall, ms':>9} {'x floor':>9} {'x floor':>9}")


def measure(logs: Year, folder: Path, rounds: int) -> None:
    files, recent = logs.files(), logs.files(SINCE)
    home = Home(logs, folder / "user")
    for words, concerned in ((WEEK, recent), (MONTHS, files)):
        found = asked(home, concerned, words, rounds)
        header(f"{len(concerned):,} files, {_megabytes(concerned)}")
        row("the floor: reading them", found.floor, found.floor)
        question = f"report {' '.join(words)}"
        row(f"{question}, first", found.first, found.floor)
        row(f"{question}, second", found.second, found.floor)
    small = logs.small.files()
    known = unchanged(Home(logs.small, folder / "small user"), small, folder, rounds)
    header(f"{len(small):,} small files, unchanged, {_megabytes(small)}")
    row("the floor: opening each, one query each", known.floor, known.floor)
    row(f"report ONE {' '.join(MONTHS[1:])}", known.first, known.floor)
    row(f"report {' '.join(MONTHS)}, second", known.second, known.floor)
    pairs = zip(known.second, known.first, strict=True)
    row("the difference: what the other files cost", Took(*(second - one for second, one in pairs)), known.floor)
    shown = [told for _ in range(rounds) if (told := first_figures(home, "--all"))]
    aim = f"(aim {FIRST_FIGURES_AIM:.0f} s)"
    if not shown:
        print(f"\nreport --all, first: no dollars on the screen {aim}")
        return
    earliest = min(shown)
    print(f"\nreport --all, first: dollars are on the screen after {earliest.after:.1f} s {aim}\n  {earliest.line}")


def _megabytes(files: Sequence[Path]) -> str:
    return f"{sum(path.stat().st_size for path in files) / 1e6:,.1f} MB"


def size_of(words: str) -> int:
    found = re.fullmatch(r"(\d+(?:\.\d+)?) ?([KMG]B)", words.upper())
    if found is None:
        raise argparse.ArgumentTypeError(f"{words!r}: a size is such as 50MB or 1GB")
    return int(float(found[1]) * UNITS[found[2]])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recorded", type=Path, nargs="?", metavar="FOLDER", help="of recorded sessions")
    parser.add_argument("--size", type=size_of, default="1GB", help="of the year, such as 50MB; 1GB if not given")
    usual = Path(tempfile.gettempdir()) / "ibidem-year"
    parser.add_argument("--folder", type=Path, default=usual, help="where the year is written, or was")
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    if args.recorded is not None:
        throughput(args.recorded, args.rounds)
        return
    logs = year(args.folder.resolve(), args.size)
    with tempfile.TemporaryDirectory() as folder:
        measure(logs, Path(folder), args.rounds)


if __name__ == "__main__":
    main()
