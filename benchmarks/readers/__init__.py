"""Readers of benchmark logs, which no user of an agent has on a machine: moatless, SWE-agent and tau-bench.

They keep the contract of `ibidem.recordings`, and tests/recordings/test_contract.py holds them to it. `ibidem report`
does not read these logs. `python -m benchmarks.cli report` does.
"""

from __future__ import annotations

from ibidem import recordings
from ibidem.recordings import LogBytes, Reader, Recording

from .moatless import READER as MOATLESS
from .swe_agent import READER as SWE_AGENT
from .tau_bench import READER as TAU_BENCH

BENCHMARK_READERS: tuple[Reader, ...] = (MOATLESS, SWE_AGENT, TAU_BENCH)
READERS: tuple[Reader, ...] = (*recordings.READERS[:-1], *BENCHMARK_READERS, recordings.READERS[-1])
"""All readers. The reader of plain request bodies stays last: it accepts the most."""


def register() -> None:
    """Let `ibidem.recordings` read benchmark logs too, in this process."""
    recordings.READERS = READERS


def read(path: str, data: LogBytes) -> list[Recording]:
    """Return the sessions of a log. Raises LogError if it is not a log, or has no request."""
    register()
    return recordings.read(path, data)
