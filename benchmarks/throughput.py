"""How fast the steps of `ibidem report` are, on recorded sessions: `python -m benchmarks.report FOLDER`.

The floor is what any program does that reads logs and knows them again: parsing the same bytes with the fastest JSON
parser, hashing them, and writing the values down. Processor time of one process, the best of several rounds in which
everything takes its turn, stated as a multiple of the floor. Memory is the largest that a run of the report itself
had, on the largest of the logs, and beside it what a run on a log of one request has: that much is the program.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from ibidem.billing.calibration import TokenWeights, weigh_message
from ibidem.recordings import LogError
from ibidem.recordings.discovery import find_logs, load_log
from ibidem.replay.replay_bill import parse_histories
from ibidem.report.measure import ReportSettings, measure_log
from ibidem.tokens import cached_counter, counter_for

from .readers import read

ONE_REQUEST = b'[{"request": {"model": "gpt-5", "messages": [{"role": "user", "content": "Why?"}]}}]'
BOTH = ("lossless", "recoverable")


def smallest(works: Mapping[str, Callable[[], Any]], rounds: int) -> dict[str, float]:
    """Processor time of each, in seconds."""
    times: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(rounds):
        for name, work in works.items():
            start = time.process_time()
            work()
            times[name].append(time.process_time() - start)
    return {name: min(each) for name, each in times.items()}


def floor(contents: dict[str, bytes]) -> None:
    for data in contents.values():
        hashlib.sha256(data).digest()
        for line in data.split(b"\n"):
            try:
                msgspec.json.encode(msgspec.json.decode(line))
            except msgspec.DecodeError:
                try:
                    msgspec.json.encode(msgspec.json.decode(data))
                except msgspec.DecodeError:
                    continue
                break


def read_all(contents: dict[str, bytes]) -> list[Any]:
    found = []
    for path, data in contents.items():
        try:
            found += read(path, data)
        except LogError:
            continue
    return found


def count_all(sessions: list[Any]) -> None:
    for session in sessions:
        count = cached_counter(counter_for())
        for history in parse_histories(session):
            for message in history:
                weigh_message(message, TokenWeights(), count)


def report_all(contents: dict[str, bytes], settings: ReportSettings) -> None:
    for path, data in contents.items():
        measure_log(path, data, settings)


PEAK = """
import resource, subprocess, sys
subprocess.run([sys.executable, *sys.argv[1:]], stdout=subprocess.DEVNULL, check=True)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
"""


def peak(log: Path, *words: str, program: Sequence[str] = ("-m", "ibidem.cli")) -> float:
    """Return the peak memory of a report on this log, in megabytes."""
    asked = ["report", str(log), "--all", "--no-cache", "--json", "--jobs", "1", *words]
    ended = subprocess.run([sys.executable, "-c", PEAK, *program, *asked], capture_output=True, check=True, text=True)
    return int(ended.stdout) / (1e6 if sys.platform == "darwin" else 1e3)


def throughput(folder: Path, rounds: int) -> None:
    contents = {str(path): load_log(path) for path in find_logs(folder)}
    megabytes = sum(map(len, contents.values())) / 1e6
    sessions = read_all(contents)
    report_all({"one": ONE_REQUEST}, ReportSettings(BOTH))  # what is loaded once
    works: dict[str, Callable[[], Any]] = {
        "the floor": lambda: floor(contents),
        "reading logs": lambda: read_all(contents),
        "counting tokens": lambda: count_all(sessions),
        "report, lossless": lambda: report_all(contents, ReportSettings()),
        "report, lossless, --verify": lambda: report_all(contents, ReportSettings(verify=True)),
        "report, lossless and recoverable": lambda: report_all(contents, ReportSettings(BOTH)),
        "the same, --verify": lambda: report_all(contents, ReportSettings(BOTH, verify=True)),
    }
    took = smallest(works, rounds)
    print(f"{len(contents)} files, {megabytes:.1f} MB, {len(sessions)} sessions")
    print(f"{'':34} {'MB/s':>8} {'x floor':>8}")
    for name, each in took.items():
        print(f"{name:34} {megabytes / each:8.1f} {each / took['the floor']:8.1f}", flush=True)
    largest = Path(max(contents, key=lambda path: len(contents[path])))
    size = len(contents[str(largest)]) / 1e6
    with tempfile.TemporaryDirectory() as scratch:
        one = Path(scratch, "one.json")
        one.write_bytes(ONE_REQUEST)
        alone = peak(one)
    print(f"\nmemory: {alone:.0f} MB for one request; the largest log has {size:.1f} MB, and then it is")
    for words in ((), ("--verify",)):
        most = peak(largest, *words)
        print(
            f"{' '.join(('report', *words)):34} {most:8.0f} MB, {(most - alone) / size:.1f} times the log beyond that"
        )
