"""What somebody sees who waits: a bar with rate and time left on standard error, and the first figures early."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ...errors import one_line

Done = Callable[[int, str], None]
"""So many bytes more are done; and what is known so far, in a few words."""

PATIENCE = 2.5
"""Seconds after which something is said where there is no terminal to show a bar on."""


@contextmanager
def progress(what: str, total: int) -> Iterator[Done]:
    """While bytes of logs are worked on."""
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
    """Whoever reads standard error later needs no bar; but who waits for a pipe learns that something comes."""
    started, told, rest = time.monotonic(), False, total

    def done(size: int, known: str) -> None:
        nonlocal told, rest
        rest -= size
        if not told and known and rest > 0 and time.monotonic() - started > PATIENCE:
            told = True
            print(f"ibidem: {what}, so far: {one_line(known)}", file=sys.stderr, flush=True)

    return done
