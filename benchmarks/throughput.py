"""How fast the steps of `ibidem report` are, on recorded sessions: `python -m benchmarks.report FOLDER`.

The floor is parsing the same bytes with the fastest JSON parser, in one process. Everything is timed in this one run,
the best of several, per core, and stated as a multiple of the floor.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from ibidem.billing.calibration import Weights, weigh
from ibidem.recordings import LogError, read
from ibidem.recordings.discovery import load, logs_in
from ibidem.replay.billing import messages_of
from ibidem.replay.simulate import Simulation
from ibidem.report.measure import ReportSettings, measure_log
from ibidem.strategies import profiles
from ibidem.tokens import counter, remembering


def best(work: Callable[[], Any], rounds: int) -> float:
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)


def parse(contents: dict[str, bytes]) -> None:
    for data in contents.values():
        for line in data.split(b"\n"):
            try:
                msgspec.json.decode(line)
            except msgspec.DecodeError:
                try:
                    msgspec.json.decode(data)
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
        count = remembering(counter())
        for history in messages_of(session):
            for message in history:
                weigh(message, Weights(), count)


def rerun_all(sessions: list[Any], profile: str) -> None:
    for session in sessions:
        Simulation(session, messages_of(session), profiles.named(profile), Weights(), len)


def throughput(folder: Path, rounds: int) -> None:
    contents = {str(path): load(path) for path in logs_in(folder)}
    megabytes = sum(map(len, contents.values())) / 1e6
    floor = best(lambda: parse(contents), rounds)
    sessions = read_all(contents)
    works: dict[str, Callable[[], Any]] = {
        "reading logs": lambda: read_all(contents),
        "counting tokens": lambda: count_all(sessions),
        "rewriting, lossless": lambda: rerun_all(sessions, "lossless"),
        "report, lossless": lambda: [measure_log(path, data, ReportSettings()) for path, data in contents.items()],
    }
    print(f"{len(contents)} files, {megabytes:.1f} MB, {len(sessions)} sessions; the floor takes {floor * 1e3:.0f} ms")
    print(f"{'':24} {'MB/s':>8} {'x floor':>8}")
    print(f"{'the floor':24} {megabytes / floor:8.0f} {1:8.1f}")
    for name, work in works.items():
        took = best(work, rounds)
        print(f"{name:24} {megabytes / took:8.1f} {took / floor:8.1f}", flush=True)
