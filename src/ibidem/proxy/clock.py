"""What time it is: the one place in the proxy that asks, so that a test can pass a clock of its own."""

from __future__ import annotations

import time


class Clock:
    """The real one."""

    def time(self) -> float:
        """Seconds since 1970."""
        return time.time()

    def monotonic(self) -> float:
        """Seconds since some moment, which never jump: what took how long."""
        return time.perf_counter()


SYSTEM_CLOCK = Clock()
