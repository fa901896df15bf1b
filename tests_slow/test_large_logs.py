"""The memory of a report on a log that is not held whole."""

from __future__ import annotations

from pathlib import Path

from ibidem.recordings.log_streams import STREAMED_BYTES
from tests.report.test_large_logs import MOST_TIMES, extra_memory

from .conftest import Tally


def test_report_memory_above_the_real_limit(tmp_path: Path, tally: Tally) -> None:
    times = extra_memory(tmp_path, 180, STREAMED_BYTES, ["-m", "ibidem.cli"])
    tally("report on a large log", sizes_of_the_log=round(times, 2))
    assert times < MOST_TIMES
