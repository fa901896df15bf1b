"""Threads that work for requests, and are not waited for without end."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future, ThreadPoolExecutor

from ..clock import Clock
from ..outcome import Outcome


class Workers:
    """Threads that rewrite, and what they are stuck with."""

    def __init__(self, count: int, name: str, clock: Clock) -> None:
        self.pool = ThreadPoolExecutor(count, name)
        self.stuck: dict[Future[Outcome], float] = {}
        """What was given up and is worked on nevertheless, and since when."""
        self._count = count
        self._clock = clock

    def exhausted(self, budget: float) -> bool:
        """Every thread has been working for long on what was given up: who waits for one would wait in vain."""
        now = self._clock.monotonic()
        return len(self.stuck) >= self._count and all(now - since >= budget for since in self.stuck.values())

    def give_up(self, working: Future[Outcome], waiting: asyncio.Future[Outcome]) -> bool:
        """Whether it has begun, and so goes on."""
        if working.done() or working.cancel():
            return working.done() and not working.cancelled()
        self.stuck[working] = self._clock.monotonic()
        waiting.add_done_callback(lambda _: self.stuck.pop(working, None))
        return True
