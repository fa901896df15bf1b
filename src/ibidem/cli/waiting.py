"""A line with the current task and its elapsed time on standard error, if it is a terminal."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ..errors import one_line

PATIENCE = 2.0
"""Seconds before the line appears. Shorter tasks need none."""
MAX_WIDTH = 78
ERASED = "\r\x1b[K"


@contextmanager
def waiting(doing: str) -> Iterator[Callable[[str], None]]:
    """Show a task and its elapsed seconds until the block ends. Yields a function that changes the task's text."""
    said = [doing]
    if sys.stderr is None or not sys.stderr.isatty():
        yield said.append
        return
    ended = threading.Event()

    def tell() -> None:
        begun = time.monotonic()
        pause = PATIENCE
        while not ended.wait(pause):
            words = f"{one_line(said[-1])}, {time.monotonic() - begun:.0f} s"
            sys.stderr.write(ERASED + words[-MAX_WIDTH:])
            sys.stderr.flush()
            pause = 1.0
        if pause != PATIENCE:
            sys.stderr.write(ERASED)
            sys.stderr.flush()

    teller = threading.Thread(target=tell, daemon=True)
    teller.start()
    try:
        yield said.append
    finally:
        ended.set()
        teller.join()
