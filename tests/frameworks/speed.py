"""What an adapter adds to a framework's own call: processor time of a turn late in a long conversation.

The conversation has five hundred messages and a megabyte, mostly new text. The provider is a process of its own, so
what is measured is the framework, its SDK and us. With and without us by turns; the smallest counts.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from statistics import median
from typing import Any

from ibidem.testing import Upstream, by_turn

from .framework import Framework, Task
from .scenario import PROMPTS, TURNS, long_script, long_text

LATE = 30
"""Turns at the end of a conversation that are looked at."""
SHORT = 60
"""Turns of the conversation that tells on which wire a framework is quickest: there we weigh most."""
ROUNDS, ENOUGH_SECONDS = 3, 60.0


def measure(framework: Framework, formats: Sequence[str]) -> dict[str, Any]:
    """Milliseconds of a late turn, on the wire where we weigh most: of processor time without us and added by us, and
    the same on the clock."""
    format = min(formats, key=lambda each: _turn(framework, each, False, SHORT)[0]) if len(formats) > 1 else formats[0]
    without, with_us = [], []
    start = time.monotonic()
    for _ in range(ROUNDS):
        without.append(_turn(framework, format, False, TURNS))
        with_us.append(_turn(framework, format, True, TURNS))
        if time.monotonic() - start > ENOUGH_SECONDS:
            break
    own, total = (tuple(1e3 * min(each) for each in zip(*times, strict=True)) for times in (without, with_us))
    times = {"own": own[0], "added": total[0] - own[0], "clock": own[1], "clock_added": total[1] - own[1]}
    return {"format": format, **times}


def _turn(framework: Framework, format: str, adapted: bool, turns: int) -> tuple[float, float]:
    """Seconds of a late turn in the middle: of processor time, and on the clock."""
    times: list[tuple[float, float]] = []

    def read(path: str) -> str:
        times.append((time.process_time(), time.perf_counter()))
        return long_text(path)

    adapter = framework.adapter(format) if adapted else None
    with _provider(turns) as url:
        framework.run(Task(url, format, framework.modes[0], PROMPTS[:1], read, adapter, "long"))
    assert len(times) == turns, f"{len(times)} turns"
    late = list(pairwise(times[-LATE:]))
    return median(after[0] - before[0] for before, after in late), median(b[1] - a[1] for a, b in late)


@contextmanager
def _provider(turns: int) -> Iterator[str]:
    """One in a process of its own, which ends with ours."""
    command = [sys.executable, "-m", "tests.frameworks.speed", str(turns)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.terminate()


def main() -> None:
    with Upstream(by_turn(long_script(int(sys.argv[1])))) as upstream:
        print(upstream.url, flush=True)
        asyncio.run(asyncio.to_thread(sys.stdin.read))


if __name__ == "__main__":
    main()
