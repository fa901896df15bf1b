"""What time it is: the one place in the proxy that asks, so that a test can pass a clock of its own."""

from __future__ import annotations

from time import perf_counter
from time import time as time_of_day


class Clock:
    """The real one."""

    time = staticmethod(time_of_day)
    """Seconds since 1970."""
    monotonic = staticmethod(perf_counter)
    """Seconds since some moment, which never jump: what took how long."""


SYSTEM_CLOCK = Clock()
