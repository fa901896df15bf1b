"""How long work takes, for tests that compare times: no time alone decides one."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from typing import Any


def seconds(work: Callable[[], Any]) -> float:
    """Of this process alone: what else the machine does is not counted."""
    gc.collect()
    start = time.process_time()
    work()
    return time.process_time() - start


def best(works: list[Callable[[], Any]], rounds: int) -> list[float]:
    """The fastest of several runs of each, in turns: noise only ever adds."""
    runs = [[seconds(work) for work in works] for _ in range(rounds)]
    return [min(times) for times in zip(*runs, strict=True)]
