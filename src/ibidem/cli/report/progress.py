"""Progress on standard error: a bar with rate and remaining time, and the first results."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ...errors import one_line

ProgressCallback = Callable[[int, str], None]
"""Function that reports progress: the number of bytes done, and a short text with the results so far."""

PATIENCE = 2.5
"""Seconds after which one line is printed if standard error is not a terminal."""


@contextmanager
def show_progress(what: str, total: int) -> Iterator[ProgressCallback]:
    """Show progress until the block ends. `total` is the number of bytes of all logs; 0 if unknown."""
    if not sys.stderr.isatty():
        yield _print_once(what, total)
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

        def update_bar(size: int, text: str) -> None:
            bar.update(task, advance=size, known=one_line(text))

        yield update_bar


def _print_once(what: str, total: int) -> ProgressCallback:
    """Print one progress line if the work takes long. A reader of a pipe then knows that it runs."""
    started, has_printed, bytes_left = time.monotonic(), False, total

    def count_done(size: int, text: str) -> None:
        nonlocal has_printed, bytes_left
        bytes_left -= size
        if not has_printed and text and bytes_left > 0 and time.monotonic() - started > PATIENCE:
            has_printed = True
            print(f"ibidem: {what}, so far: {one_line(text)}", file=sys.stderr, flush=True)

    return count_done
