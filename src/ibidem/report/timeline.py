"""Chart of cost and savings by day, or by month if the period is long."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from math import ceil, floor, log10
from typing import NamedTuple

from ..render.number_format import dollars, plural
from .aggregate import Report, ReportRow

MOST_DAYS = 120
"""Maximum number of days in the chart. Longer periods are shown by month."""
MOST_TICKS = 5
MOST_LABELS = 5
"""Maximum number of labels below a chart. More do not fit on a phone."""
WIDEST_BAR = 4.0
"""Maximum width of a bar, in percent of the chart."""


class Slot(NamedTuple):
    """A day or month of the chart. Positions and sizes in percent of the chart."""

    left: float
    width: float
    bar_left: float
    bar_width: float
    height: float
    tip: str
    parts: list[tuple[str, float]]
    """Style and height."""


class TimeChart(NamedTuple):
    """The laid-out chart, in percent of its size."""

    grid: list[tuple[float, str]]
    """Position from the top, and label."""
    slots: list[Slot]
    labels: list[tuple[float, str, str]]
    """Position from the left, anchor, and text."""


@dataclass(slots=True)
class TimeSlots:
    """Rows by day or by month, and the parts of the report that the chart leaves out."""

    unit: str
    recorded: bool
    """Amounts are recorded costs; otherwise replayed costs of input, because no log has usage."""
    shown: list[ReportRow]
    """A row for each day or month from the first to the last, with empty ones in between."""
    earlier: int = 0
    """Number of earlier months that are left out. Wrong times in a log can make the period very long."""
    untold: float = 0.0
    """Dollars of requests without a time."""

    def amount(self, row: ReportRow) -> float:
        return row.amount(self.recorded)

    @property
    def what(self) -> str:
        return "Paid" if self.recorded else "Input, replayed,"

    @property
    def label(self) -> str:
        """The chart in a sentence."""
        most = max(self.shown, key=self.amount)
        span = f"{self.shown[0].key[0]} to {self.shown[-1].key[0]}"
        return f"{self.what} by {self.unit}, {span}. Most: {dollars(self.amount(most))}, {most.key[0]}."

    @property
    def notes(self) -> str:
        """Sentences about costs missing in the chart."""
        notes = []
        if self.untold:
            notes.append(f"{dollars(self.untold)} of requests without a time left out.")
        if self.earlier:
            notes.append(f"{plural(self.earlier, 'earlier month')} left out.")
        if not self.recorded:
            notes.append("No log recorded usage.")
        return " ".join(notes)

    def chart(self, looks: Mapping[str, str]) -> TimeChart:
        """Lay out bars with the savings at their top. If several profiles save, the smallest saving is in front."""
        high = max(map(self.amount, self.shown)) or 1.0
        step, width = _grid_step(high), 100 / len(self.shown)
        ticks = range(1, floor(high / step) + 1)
        grid = [(100 - 100 * number * step / high, _format_tick(number * step, step)) for number in ticks]
        slots = [_draw_slot(row, self.amount(row), place, width, high, looks) for place, row in enumerate(self.shown)]
        return TimeChart(grid, slots, list(_chart_labels(self.shown)))


def time_slots(report: Report) -> TimeSlots:
    """Make the rows of the chart: by day, or by month if the period is long."""
    is_recorded = bool(report.total.counted)
    rows = report.table("day")
    days = {when: row for row in rows if (when := _parse_date(row.key[0]))}
    without_time = sum(row.amount(is_recorded) for row in rows if _parse_date(row.key[0]) is None)
    if not days:
        return TimeSlots("day", is_recorded, [], untold=without_time)
    first, last = min(days), max(days)
    if (last - first).days < MOST_DAYS:
        every = (first + timedelta(number) for number in range((last - first).days + 1))
        day_rows = [days.get(day) or ReportRow((day.isoformat(),)) for day in every]
        return TimeSlots("day", is_recorded, day_rows, untold=without_time)
    months = _month_rows(report, first, last)
    return TimeSlots("month", is_recorded, months[-MOST_DAYS:], max(0, len(months) - MOST_DAYS), without_time)


def _parse_date(name: str) -> date | None:
    try:
        return date.fromisoformat(name)
    except ValueError:
        return None


def _month_rows(report: Report, first: date, last: date) -> list[ReportRow]:
    months = {row.key[0]: row for row in report.table("month") if _parse_date(f"{row.key[0]}-01")}
    if (last.year - first.year) * 12 >= MOST_DAYS:
        return [months[name] for name in sorted(months)]  # too many to show those without requests
    numbers = range(first.year * 12 + first.month - 1, last.year * 12 + last.month)
    names = (f"{number // 12:04}-{number % 12 + 1:02}" for number in numbers)
    return [months.get(name) or ReportRow((name,)) for name in names]


def _draw_slot(row: ReportRow, amount: float, place: int, width: float, high: float, looks: Mapping[str, str]) -> Slot:
    bar = min(width * (0.75 if width > 1.5 else 0.9), WIDEST_BAR)
    height = 100 * max(amount, 0.0) / high
    sizes = [("recorded", amount)]
    sizes += sorted(((look, row.saved(name)) for name, look in looks.items()), key=lambda part: -part[1])
    parts = [(look, part) for look, size in sizes if (part := min(100 * size / high, height)) > 0]
    left = place * width
    return Slot(left, width, left + (width - bar) / 2, bar, height, _tooltip_text(row, amount, looks), parts)


def _tooltip_text(row: ReportRow, amount: float, looks: Mapping[str, str]) -> str:
    savings = "".join(
        f"; {name} would have {'saved' if row.saved(name) >= 0 else 'cost more:'} {dollars(abs(row.saved(name)))}"
        for name in (looks if row.requests or row.measured else ())
    )
    return f"{row.key[0]}: {dollars(amount)}{savings}"


def _grid_step(high: float) -> float:
    """Choose the distance of grid lines: 1, 2 or 5 times a power of ten, for at most `MOST_TICKS` lines."""
    unit = 10.0 ** floor(log10(high / MOST_TICKS))
    return next(unit * number for number in (1, 2, 5, 10, 20) if high / (unit * number) <= MOST_TICKS)


def _format_tick(amount: float, step: float) -> str:
    return f"${amount:,.0f}" if step >= 1 else f"${amount:,.{min(4, ceil(-log10(step)))}f}"


def _chart_labels(rows: Sequence[ReportRow]) -> Iterator[tuple[float, str, str]]:
    every = ceil(len(rows) / MOST_LABELS)
    for place in range(0, len(rows), every):
        middle = 100 * (place + 0.5) / len(rows)
        anchor, x = ("end", 100.0) if middle > 94 else ("middle", middle)
        yield x, anchor, _short_label(rows[place].key[0])


def _short_label(name: str) -> str:
    """Shorten a day to month and day. The table has the year."""
    when = _parse_date(name)
    return f"{when:%b} {when.day}" if when else name
