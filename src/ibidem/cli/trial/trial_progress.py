"""Progress of a running trial on standard error, and its interrupt handler."""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ...render.number_format import dollars
from ...trial.run_log import RunLog
from ..command_errors import print_error
from ..elapsed_time import ERASE_LINE

MESSAGE_SECONDS = 15.0
"""Seconds between progress lines if standard error is not a terminal."""


@contextmanager
def handle_interrupt(stop: Callable[[], None]) -> Iterator[None]:
    """On the first interrupt, call `stop` and wait for responses, which are paid for already. The second ends all."""
    loop = asyncio.get_running_loop()

    def stop_sending() -> None:
        print_error("stopping: waiting for responses that are already paid for (Ctrl-C again to quit now)")
        stop()
        loop.remove_signal_handler(signal.SIGINT)

    try:
        loop.add_signal_handler(signal.SIGINT, stop_sending)
    except (NotImplementedError, RuntimeError, ValueError):  # on Windows or in a thread, an interrupt ends it at once
        yield
        return
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGINT)


class TrialProgress:
    """Prints the progress of a trial: samples, money spent and left, and elapsed time."""

    def __init__(self, ledger: RunLog, points: int, probes: int) -> None:
        self._ledger, self._points, self._probes = ledger, points, probes
        self._begun = self._last = time.monotonic()
        self._live = sys.stderr is not None and sys.stderr.isatty()

    def __call__(self) -> None:
        now = time.monotonic()
        if self._live:
            sys.stderr.write(f"{ERASE_LINE}{self._progress_text(now)}")
            sys.stderr.flush()
        elif now - self._last > MESSAGE_SECONDS:
            self._last = now
            print_error(self._progress_text(now))

    def _progress_text(self, now: float) -> str:
        ledger = self._ledger
        planned_points = min(self._points, ledger.planned_points or self._points)
        planned_samples = 2 * planned_points * ledger.setup.samples + self._probes * planned_points // max(
            1, self._points
        )
        money = f"{dollars(ledger.spent)} spent, {dollars(max(0.0, ledger.budget - ledger.spent))} left"
        return f"{len(ledger.responses):,} of {planned_samples:,} samples, {money}, {now - self._begun:.0f} s"

    def print_message(self, words: str) -> None:
        """Erase the progress line, and print a message."""
        self.erase_line()
        print_error(words)

    def erase_line(self) -> None:
        """Erase the progress line."""
        if self._live:
            sys.stderr.write(ERASE_LINE)
            sys.stderr.flush()
