"""Memory of `ibidem proxy` under mixed load: within the documented limit, and flat after some minutes."""

from __future__ import annotations

import sys

import pytest

from benchmarks.memory import RATE, measure

MEMORY_MB, MINUTES, STEP_SECONDS = 64, 4.0, 20.0
"""The limit is reached within the first two minutes."""


@pytest.mark.skipif(sys.platform != "linux", reason="memory of a process is read from /proc")
@pytest.mark.parametrize("profile", ["lossless", "recoverable"])
def test_memory_is_flat_and_within_the_limit(profile: str) -> None:
    assert measure(profile, MEMORY_MB, 1, MINUTES, STEP_SECONDS, RATE, seed=1)
