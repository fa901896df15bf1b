"""Geometry of the page's charts. `tables.html` draws them as SVG.

Styles are classes and sizes are attributes: the policy of the pages allows no inline styles.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import ceil, floor
from typing import NamedTuple

from .number_format import sign

MAX_ROWS = 250
"""Maximum number of rows of a list in a page. The page shows how many are left out; `--json` has all."""
MAX_BARS = 600
"""Maximum number of bars that a screen can show. With more values, one bar shows several values."""
MIN_SHARE = -1.0
"""Bars end at a loss of 100%, so that one bad session does not flatten the chart."""
MAX_BAR_PERCENT = 4.0
"""Maximum width of a bar, in percent of the chart."""
MIN_BAR_PERCENT = 0.3
"""Minimum height of a bar, in percent of the chart, so that a mouse can point at it."""
TICKS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.25, 0.5, 1.0)


class ChartPoint(NamedTuple):
    """One session in the chart of all sessions."""

    share: float
    label: str


class GridLine(NamedTuple):
    """A horizontal line with its label."""

    top: float
    label: str
    """Empty for the axis."""
    above: bool
    """The line is above zero. Bars descend from left to right, so its label fits on the right, others on the left."""


class RankedBar(NamedTuple):
    """A bar, with positions and sizes in percent of the chart."""

    look: str
    left: float
    width: float
    top: float
    height: float
    label: str
    share: float


class Ranking(NamedTuple):
    """The laid-out chart of all sessions."""

    grid: list[GridLine]
    bars: list[RankedBar]
    each: int
    """Sessions per bar."""
    is_cut: bool
    """A loss is below `MIN_SHARE`."""


def rank_points(points: Sequence[ChartPoint], low: float, high: float) -> Ranking:
    """Lay out savings by session, best first. `low` and `high` are the limits of all charts on the page."""
    low, high = max(min(low, 0.0), MIN_SHARE), max(high, 0.0) or 0.01
    each = ceil(len(points) / MAX_BARS)
    bar_points = [points[min(start + each, len(points)) - 1] for start in range(0, len(points), each)]
    grid = [
        GridLine((high - tick) / (high - low), "" if abs(tick) < 1e-9 else f"{sign(tick)}{abs(tick):.0%}", tick > 0)
        for tick in _grid_ticks(low, high)
    ]
    return Ranking(
        grid, list(_draw_bars(bar_points, low, high)), each, any(point.share < MIN_SHARE for point in points)
    )


def _grid_ticks(low: float, high: float) -> Iterator[float]:
    tick = next((tick for tick in TICKS if (high - low) / tick <= 5), TICKS[-1])
    yield from (number * tick for number in range(ceil(low / tick), floor(high / tick) + 1))


def _draw_bars(points: Sequence[ChartPoint], low: float, high: float) -> Iterator[RankedBar]:
    step = min(100 / len(points), MAX_BAR_PERCENT)
    width = step * 0.8 if len(points) <= 150 else step + 0.15  # many narrow bars overlap slightly, to hide the seams
    zero = high / (high - low) * 100
    for number, (share, label) in enumerate(points):
        height = max(abs(max(share, MIN_SHARE)) / (high - low) * 100, MIN_BAR_PERCENT)
        look, top = ("neg", zero) if share < 0 else ("v", zero - height)
        yield RankedBar(look, number * step, width, top, height, label, share)


def last_slash(path: str) -> int:
    """Index of the name at the end of a path. A trailing slash is part of the name."""
    end = len(path) - 1
    return max(path.rfind("/", 0, end), path.rfind("\\", 0, end)) + 1 if path else 0
