"""Logs of benchmarks are read here too: their readers keep the same contract."""

from __future__ import annotations

import pytest

from benchmarks import readers
from ibidem import recordings


@pytest.fixture(autouse=True)
def benchmark_readers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recordings, "READERS", readers.READERS)
