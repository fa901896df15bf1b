"""What was paid by day, or by month where that is long, as a chart; and how much of it would have been saved."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, timedelta
from math import ceil, floor, log10

from .charts import money_cell, table, text
from .figures import NOTHING_DONE
from .numbers import NO_NUMBER, dollars, plural
from .tally import Tally
from .totals import Report

MOST_DAYS = 120
"""Days that are shown one by one, and months in their place."""
MOST_TICKS = 5
MOST_LABELS = 5
"""Below a chart: so many have room on a phone."""
WIDEST_BAR = 4.0
"""Percent of a chart's width."""


@dataclass(slots=True)
class TimeSlot:
    """A day or a month."""

    name: str
    requests: int = 0
    amount: float = 0.0
    """Dollars that were paid; for input with nothing done, where no log says what was paid."""
    saved: dict[str, float] = field(default_factory=dict)

    def add(self, tally: Tally, counted: bool, profiles: Sequence[str]) -> None:
        self.requests += tally.requests or tally.measured
        self.amount += tally.total if counted else tally.costs.get(NOTHING_DONE, 0.0)
        for name in profiles:
            self.saved[name] = self.saved.get(name, 0.0) + tally.saved(name)


@dataclass(slots=True)
class TimeSlots:
    unit: str
    shown: list[TimeSlot]
    earlier: int = 0
    """Months that are too many to be shown: a log may tell any time."""
    untold: float = 0.0
    """Dollars of requests whose time is not told."""


def time_slots(report: Report, profiles: Sequence[str]) -> TimeSlots:
    """From the first to the last, those in between included in which nothing was paid."""
    counted = bool(report.tally.counted)
    days: dict[date, TimeSlot] = {}
    untold = TimeSlot("")
    for (name, *_), tally in report.table("day"):
        when = _date(name)
        slot = untold if when is None else days.setdefault(when, TimeSlot(name))
        slot.add(tally, counted, profiles)
    if not days:
        return TimeSlots("day", [], untold=untold.amount)
    first, last = min(days), max(days)
    if (last - first).days < MOST_DAYS:
        every = (first + timedelta(number) for number in range((last - first).days + 1))
        return TimeSlots("day", [days.get(each) or TimeSlot(each.isoformat()) for each in every], 0, untold.amount)
    months = _by_month(days)
    return TimeSlots("month", months[-MOST_DAYS:], max(0, len(months) - MOST_DAYS), untold.amount)


def _date(name: str) -> date | None:
    try:
        return date.fromisoformat(name)
    except ValueError:
        return None


def _by_month(days: Mapping[date, TimeSlot]) -> list[TimeSlot]:
    months: dict[str, TimeSlot] = {}
    for when in sorted(days):
        day = days[when]
        month = months.setdefault(f"{when.year:04}-{when.month:02}", TimeSlot(f"{when.year:04}-{when.month:02}"))
        month.requests += day.requests
        month.amount += day.amount
        for name, saved in day.saved.items():
            month.saved[name] = month.saved.get(name, 0.0) + saved
    first, last = min(days), max(days)
    if (last.year - first.year) * 12 >= MOST_DAYS:
        return list(months.values())  # too long a time for its gaps to be shown
    numbers = range(first.year * 12 + first.month - 1, last.year * 12 + last.month)
    names = (f"{number // 12:04}-{number % 12 + 1:02}" for number in numbers)
    return [months.get(name) or TimeSlot(name) for name in names]


def timeline(found: TimeSlots, looks: Mapping[str, str], counted: bool) -> str:
    """The chart, what its colours mean, and the same as a table; empty where there is but one day."""
    if len(found.shown) < 2:
        return ""
    what = "Paid" if counted else "Input, by our replay,"
    most = max(found.shown, key=lambda slot: slot.amount)
    span = f"{found.shown[0].name} to {found.shown[-1].name}"
    label = f"{what} by {found.unit}, {span}. Most: {dollars(most.amount)}, {most.name}."
    notes = []
    if found.untold:
        notes.append(f"{dollars(found.untold)} at times that the logs do not tell are left out.")
    if found.earlier:
        notes.append(f"{plural(found.earlier, 'earlier month')} left out.")
    if not counted:
        notes.append("No log recorded what was paid.")
    note = f'<p class="soft">{" ".join(notes)}</p>' if notes else ""
    return (
        f'<figure class="days">{_legend(what, looks)}<svg class="timeline" role="img" aria-label="{label}">'
        f"{''.join(_drawn(found.shown, looks))}</svg></figure>{note}{_as_table(found, looks, counted)}"
    )


def _legend(what: str, looks: Mapping[str, str]) -> str:
    keys = [("recorded", what.rstrip(","))]
    keys += [(look, f"{text(name)} would have saved") for name, look in looks.items()]
    parts = (
        f'<li><svg class="key {look}" aria-hidden="true"><rect class="v" width="100%" height="100%"/></svg>{name}</li>'
        for look, name in keys
    )
    return f'<figcaption><ul class="legend">{"".join(parts)}</ul></figcaption>'


def _drawn(slots: Sequence[TimeSlot], looks: Mapping[str, str]) -> Iterator[str]:
    high = max(slot.amount for slot in slots) or 1.0
    step = _step(high)
    for number in range(1, floor(high / step) + 1):
        top = 100 - 100 * number * step / high
        yield f'<line class="grid" x1="0" x2="100%" y1="{top:.2f}%" y2="{top:.2f}%"/>'
        yield f'<text x="-6" y="{top:.2f}%" dy="4" text-anchor="end">{_tick(number * step, step)}</text>'
    for place, slot in enumerate(slots):
        yield from _slot(slot, place, 100 / len(slots), high, looks)
    yield '<line class="axis" x1="0" x2="100%" y1="100%" y2="100%"/>'
    yield from _labels(slots)


def _slot(slot: TimeSlot, place: int, width: float, high: float, looks: Mapping[str, str]) -> Iterator[str]:
    """The bar with what would have been saved at its top: of two profiles, the one that saves less is in front."""
    bar = min(width * (0.75 if width > 1.5 else 0.9), WIDEST_BAR)
    left = place * width + (width - bar) / 2
    height = 100 * max(slot.amount, 0.0) / high
    yield f'<g><title>{_told(slot, looks)}</title><rect class="hit" x="{place * width:.2f}%" width="{width:.2f}%" '
    yield 'height="100%"/>'
    parts = [("recorded", slot.amount)]
    parts += sorted(((looks[name], saved) for name, saved in slot.saved.items()), key=lambda part: -part[1])
    for look, amount in parts:
        part = min(100 * amount / high, height)
        if part > 0:
            yield (
                f'<rect class="v {look}" x="{left:.2f}%" width="{bar:.2f}%" y="{100 - height:.2f}%" '
                f'height="{part:.2f}%"/>'
            )
    yield "</g>"


def _told(slot: TimeSlot, looks: Mapping[str, str]) -> str:
    saved = "".join(
        f"; {text(name)} would have {'saved' if slot.saved[name] >= 0 else 'cost more:'} "
        f"{dollars(abs(slot.saved[name]))}"
        for name in looks
        if name in slot.saved
    )
    return f"{slot.name}: {dollars(slot.amount)}{saved}"


def _step(high: float) -> float:
    """1, 2 or 5 of something, so that there are a few."""
    unit = 10.0 ** floor(log10(high / MOST_TICKS))
    return next(unit * number for number in (1, 2, 5, 10, 20) if high / (unit * number) <= MOST_TICKS)


def _tick(amount: float, step: float) -> str:
    return f"${amount:,.0f}" if step >= 1 else f"${amount:,.{min(4, ceil(-log10(step)))}f}"


def _labels(slots: Sequence[TimeSlot]) -> Iterator[str]:
    every = ceil(len(slots) / MOST_LABELS)
    for place in range(0, len(slots), every):
        middle = 100 * (place + 0.5) / len(slots)
        anchor, x = ("end", 100.0) if middle > 94 else ("middle", middle)
        yield f'<text x="{x:.2f}%" y="100%" dy="18" text-anchor="{anchor}">{_short(slots[place].name)}</text>'


def _short(name: str) -> str:
    """A day without its year, which the table has."""
    when = _date(name)
    return f"{when:%b} {when.day}" if when else name


def _as_table(found: TimeSlots, looks: Mapping[str, str], counted: bool) -> str:
    rows = "".join(
        f'<tr><th scope="row">{slot.name}</th><td>{slot.requests:,}</td><td>{dollars(slot.amount)}</td>'
        f"{''.join(_saved(slot, name) for name in looks)}</tr>"
        for slot in reversed(found.shown)
        if slot.requests
    )
    profiles = "".join(f"<th>saved with {text(name)}</th>" for name in looks)
    head = f"<tr><th>{found.unit}</th><th>requests</th><th>{'paid' if counted else 'nothing done'}</th>{profiles}</tr>"
    shown = table(head, rows, f"by {found.unit}", "narrow folding")
    return f"<details><summary>As a table</summary>{shown}</details>"


def _saved(slot: TimeSlot, name: str) -> str:
    return money_cell(slot.saved[name]) if name in slot.saved else f"<td>{NO_NUMBER}</td>"
