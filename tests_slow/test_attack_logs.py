"""Logs made to harm who reads them: odd values in every place, and files that unpack to more than there is memory."""

from __future__ import annotations

import importlib
import pkgutil
import random
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks import readers
from ibidem import recordings
from ibidem.report.measure import ReportSettings, measure_log
from tests.recordings.examples import Example
from tests.recordings.hostile import ODD, Hostile, refusal

TESTS = Path(__file__).parent.parent / "tests"


NAMES = [
    f"{package}.{found.name}"
    for package in ("recordings", "benchmarks")
    for found in pkgutil.iter_modules([str(TESTS / package)])
    if not found.name.startswith("test_") and found.name not in ("conftest", "examples", "hostile")
]


def examples(name: str) -> list[Example]:
    found: list[Example] = importlib.import_module(f"tests.{name}").EXAMPLES
    return found


@pytest.fixture(autouse=True)
def benchmark_readers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recordings, "READERS", readers.READERS)


@pytest.mark.parametrize("name", NAMES)
def test_every_odd_value_in_every_place_of_every_log(name: str, tally: Callable[..., None]) -> None:
    read = refused = 0
    for example in examples(name):
        hostile = Hostile(example.data)
        logs = (hostile.with_odd(path, odd) for path in hostile.places for odd in ODD)
        gaps = (hostile.with_gap(path) for path in hostile.places)
        for data in (*gaps, *logs):
            said = refusal(data)
            assert not said or said.startswith("some.log: "), data
            read, refused = read + (not said), refused + bool(said)
    tally(f"odd values in logs of {name}", read=read, refused_with_a_message=refused, raised=0)


@pytest.mark.parametrize("seed", range(4))
def test_what_is_read_of_an_odd_log_can_be_reported(seed: int, tally: Callable[..., None]) -> None:
    """Several odd values at once, through the whole of a report."""
    chance, settings, count = random.Random(seed), ReportSettings(profiles=("lossless", "recoverable")), 0
    logs = [Hostile(example.data) for name in NAMES for example in examples(name)]
    for _ in range(4000):
        measure_log("some.log", chance.choice(logs).with_several(chance, chance.randint(1, 4)), settings)
        count += 1
    tally("reports of odd logs", logs=count, raised=0)


BOMB = """
import resource, sys, gzip
resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
from ibidem import recordings
from ibidem.wire import zstd
name, size = sys.argv[1], 3 << 30
if name.endswith("zst"):
    packer = zstd.ZstdCompressor(level=19)
    pieces = [packer.compress(b" " * (1 << 20)) for _ in range(size >> 20)] + [packer.flush()]
else:
    import zlib
    packer = zlib.compressobj(9, wbits=31)
    pieces = [packer.compress(b" " * (1 << 20)) for _ in range(size >> 20)] + [packer.flush()]
data = b"".join(pieces)
try:
    recordings.read(name, data)
except recordings.LogError as error:
    print(len(data), error)
"""


@pytest.mark.parametrize("name", ["log.jsonl.zst", "log.jsonl.gz"])
def test_three_gigabytes_in_a_small_file_are_refused_within_one(name: str, tally: Callable[..., None]) -> None:
    command = [sys.executable, "-c", textwrap.dedent(BOMB), name]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-500:]
    size, _, said = done.stdout.strip().partition(" ")
    assert (
        said
        == f"{name}: decompresses to more than 512 MiB: if that is correct, decompress it and pass the resulting file"
    )
    tally(f"a bomb in {name}", bytes=int(size), unpacks_to=3 << 30, address_space=1 << 30)
