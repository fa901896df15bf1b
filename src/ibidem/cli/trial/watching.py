"""What is said while a trial runs, and what an interrupt does to it."""

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
"""How often it is said how far it is, where there is no terminal to say it on all the time."""


@contextmanager
def interrupted(stop: Callable[[], None]) -> Iterator[None]:
    """What was sent is paid for, so the first interrupt only ends the sending. The second ends everything."""
    loop = asyncio.get_running_loop()

    def first() -> None:
        say("ending: waiting for answers that are paid for already (Ctrl-C again to leave them)")
        stop()
        loop.remove_signal_handler(signal.SIGINT)

    try:
        loop.add_signal_handler(signal.SIGINT, first)
    except (NotImplementedError, RuntimeError, ValueError):  # on Windows, or in a thread: it ends at once
        yield
        return
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGINT)


class TrialWatch:
    """Says how far it is: what was spent, what is left, and for how long it has been asking."""

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
        return f"{len(ledger.answers):,} of {wanted:,} answers, {money}, {now - self._begun:.0f} s"

    def say(self, words: str) -> None:
        self.end()
        say(words)

    def end(self) -> None:
        if self._live:
            sys.stderr.write(ERASED)
            sys.stderr.flush()
