"""Progress on standard error: a bar with rate and remaining time, and the first results."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ...errors import one_line

Done = Callable[[int, str], None]
"""Function that reports progress: the number of bytes done, and a short text with the results so far."""

PATIENCE = 2.5
"""Seconds after which one line is printed if standard error is not a terminal."""


@contextmanager
def progress(what: str, total: int) -> Iterator[Done]:
    """Show progress until the block ends. `total` is the number of bytes of all logs; 0 if unknown."""
    if not sys.stderr.isatty():
        yield _told_once(what, total)
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    columns = (
        TextColumn(what),
        BarColumn(bar_width=20),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[known]}", markup=False),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=total or None, known="")

        def done(size: int, known: str) -> None:
            bar.update(task, advance=size, known=one_line(known))

        yield done


def _told_once(what: str, total: int) -> Done:
    """Print one progress line if the work takes long. A reader of a pipe then knows that it runs."""
    started, told, rest = time.monotonic(), False, total

    def done(size: int, known: str) -> None:
        nonlocal told, rest
        rest -= size
        if not told and known and rest > 0 and time.monotonic() - started > PATIENCE:
            told = True
            print(f"ibidem: {what}, so far: {one_line(known)}", file=sys.stderr, flush=True)

    return done
