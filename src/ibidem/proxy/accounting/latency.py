"""Histogram of the time to rewrite requests, in the cumulative form of Prometheus."""

from __future__ import annotations

from bisect import bisect_left
from itertools import accumulate
from typing import Any

BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
"""Bucket bounds in seconds. A warm request takes a few milliseconds; the default budget is two seconds."""


class LatencyHistogram:
    """Histogram of rewriting times."""

    def __init__(self) -> None:
        self._counts = [0] * (len(BOUNDS) + 1)
        self._seconds = 0.0

    def add_duration(self, seconds: float) -> None:
        """Add a request."""
        self._counts[bisect_left(BOUNDS, seconds)] += 1
        self._seconds += seconds

    @property
    def histogram_json(self) -> dict[str, Any]:
        """Counts as JSON. Those of several processes can be added, name by name."""
        within = accumulate(self._counts)
        return {
            "within": dict(zip(map(str, BOUNDS), within, strict=False)),
            "count": sum(self._counts),
            "seconds": self._seconds,
        }
