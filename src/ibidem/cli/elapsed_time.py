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
ERASE_LINE = "\r\x1b[K"


@contextmanager
def show_elapsed_time(task: str) -> Iterator[Callable[[str], None]]:
    """Show a task and its elapsed seconds until the block ends. Yields a function that changes the task's text."""
    texts = [task]
    if sys.stderr is None or not sys.stderr.isatty():
        yield texts.append
        return
    stop = threading.Event()

    def update_line() -> None:
        started_at = time.monotonic()
        pause = PATIENCE
        while not stop.wait(pause):
            line = f"{one_line(texts[-1])}, {time.monotonic() - started_at:.0f} s"
            sys.stderr.write(ERASE_LINE + line[-MAX_WIDTH:])
            sys.stderr.flush()
            pause = 1.0
        if pause != PATIENCE:
            sys.stderr.write(ERASE_LINE)
            sys.stderr.flush()

    thread = threading.Thread(target=update_line, daemon=True)
    thread.start()
    try:
        yield texts.append
    finally:
        stop.set()
        thread.join()
