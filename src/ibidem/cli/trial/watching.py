"""Progress of a running trial on standard error, and its interrupt handler."""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ...render.number_format import dollars
from ...trial.ledger import TrialLedger
from ..errors import say
from ..waiting import ERASED

TOLD_SECONDS = 15.0
"""Seconds between progress lines if standard error is not a terminal."""


@contextmanager
def interrupted(stop: Callable[[], None]) -> Iterator[None]:
    """On the first interrupt, call `stop` and wait for responses, which are paid for already. The second ends all."""
    loop = asyncio.get_running_loop()

    def first() -> None:
        say("stopping: waiting for responses that are already paid for (Ctrl-C again to quit now)")
        stop()
        loop.remove_signal_handler(signal.SIGINT)

    try:
        loop.add_signal_handler(signal.SIGINT, first)
    except (NotImplementedError, RuntimeError, ValueError):  # on Windows or in a thread, an interrupt ends it at once
        yield
        return
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGINT)


class TrialWatch:
    """Prints the progress of a trial: samples, money spent and left, and elapsed time."""

    def __init__(self, ledger: TrialLedger, points: int, probes: int) -> None:
        self._ledger, self._points, self._probes = ledger, points, probes
        self._begun = self._last = time.monotonic()
        self._live = sys.stderr is not None and sys.stderr.isatty()

    def __call__(self) -> None:
        now = time.monotonic()
        if self._live:
            sys.stderr.write(f"{ERASED}{self._words(now)}")
            sys.stderr.flush()
        elif now - self._last > TOLD_SECONDS:
            self._last = now
            say(self._words(now))

    def _words(self, now: float) -> str:
        ledger = self._ledger
        planned = min(self._points, ledger.planned or self._points)
        wanted = 2 * planned * ledger.setup.samples + self._probes * planned // max(1, self._points)
        money = f"{dollars(ledger.spent)} spent, {dollars(max(0.0, ledger.budget - ledger.spent))} left"
        return f"{len(ledger.answers):,} of {wanted:,} samples, {money}, {now - self._begun:.0f} s"

    def say(self, words: str) -> None:
        """Erase the progress line, and print a message."""
        self.end()
        say(words)

    def end(self) -> None:
        """Erase the progress line."""
        if self._live:
            sys.stderr.write(ERASED)
            sys.stderr.flush()
