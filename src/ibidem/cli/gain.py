"""`ibidem gain`"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta, tzinfo
from typing import TYPE_CHECKING, Any

import click

from .options import echo_json, json_option

if TYPE_CHECKING:
    from pathlib import Path

    from ..gains import Gains, Sum
    from .report.filters import Period

BY = ("day", "week", "month", "model", "project", "client")
SHOWN_ROWS = 30
"""Largest number of rows in a table. `--json` has all rows."""
UNNAMED = "(not told)"
TIMES = {"day": 1, "week": 7, "month": 32}
"""By period: days to add to its first day to reach a day of the next period."""
LAST_MOMENT = 4e9
"""Latest plausible time in Unix seconds. Later requests come from a wrong clock."""


@click.command(short_help="Show cost and savings so far.")
@click.option("--by", type=click.Choice(BY), default="day", help="Group rows by this (default: day).")
@click.option("--since", metavar="WHEN", help="Only requests since: 2026-11-01, 7d, 24h, today, this-month.")
@click.option("--until", metavar="WHEN", help="Only requests until; a date includes the whole day.")
@click.option("--timezone", metavar="ZONE", help="Time zone of dates: Europe/Berlin, UTC (default: this machine's).")
@click.option("--forget", "forgets", is_flag=True, help="Delete all recorded usage.")
@click.option(
    "--trial", "tried", is_flag=True, help="Compare the rewritten and the unchanged conversations of `--trial`."
)
@json_option
def gain(
    by: str, since: str | None, until: str | None, timezone: str | None, forgets: bool, tried: bool, as_json: bool
) -> int:
    """Show cost and savings of the requests sent through `ibidem wrap` and `ibidem proxy`.

    Requests on a subscription are listed separately, with their value at list prices. Both commands record the usage of
    each request in your data folder, without any text; --no-ledger turns this off.
    """
    from ..gains import Gains, path

    if forgets and (since or until):
        raise click.UsageError("--forget deletes all recorded usage: omit --since and --until")
    file = path()
    if forgets:
        return _forget(file, as_json)
    from .report.filters import period_asked, zone_named

    zone = zone_named(timezone)
    period = period_asked(since, until, datetime.now(zone), usual=False)
    with Gains(file) as found:
        if tried:
            from .gain_trial import gain_trial

            return gain_trial(found, period, zone, as_json)
        groups = _groups(found, by, period, zone)
        total = found.total(period.since, period.until)
    if as_json:
        named = [{"name": name, **_figures(each)} for name, each in _ordered(groups, by)]
        asked = {"by": by, "since": period.since, "until": period.until}
        echo_json({"schema": 1, "ledger": str(file), **asked, "total": _figures(total), "groups": named})
    elif total:
        _draw(by, groups, total, period.told)
    else:
        click.echo(_nothing(file, period.told))
    return 0


def _forget(file: Path, as_json: bool) -> int:
    from ..errors import one_line
    from ..gains import forget

    there, was = file.exists(), forget(file)
    if as_json:
        echo_json({"ledger": str(file), "deleted": there, "forgotten": _figures(was)})
    elif not there:
        click.echo(f"{one_line(str(file))}: no usage recorded")
    else:
        click.echo(f"{one_line(str(file))} deleted: usage of {was.requests:,} request{'s' * (was.requests != 1)}")
    return 0


def _nothing(file: Path, told: str) -> str:
    from ..gains import Gains

    with Gains(file) as found:
        if told and found.total():
            return f"{told} No usage recorded: omit --since and --until to see all."
    return "No usage recorded yet. Run a command through ibidem first: ibidem wrap -- claude"


def _groups(found: Gains, by: str, period: Period, zone: tzinfo) -> dict[str, Sum]:
    if by not in TIMES:
        named = found.sums(by, period.since, period.until)  # type: ignore[arg-type]
        return {name or UNNAMED: each for name, each in named.items()}
    first, last = found.span() or (0.0, -1.0)
    start = max(first, period.since or 0.0, 0.0)
    until = LAST_MOMENT if period.until is None else period.until
    sums: dict[str, Sum] = {}
    for name, begins, ends in _periods(by, start, min(last, until, LAST_MOMENT), zone):
        if each := found.total(max(begins, start), min(ends, until)):
            sums[name] = each
    return sums


def _periods(by: str, first: float, last: float, zone: tzinfo) -> Iterator[tuple[str, float, float]]:
    """Yield name, start and end of each calendar period. A day with a clock change has 23 or 25 hours."""
    start = datetime.fromtimestamp(first, zone).replace(hour=0, minute=0, second=0, microsecond=0)
    start = start.replace(day=1) if by == "month" else start - timedelta(days=start.weekday() * (by == "week"))
    while start.timestamp() <= last:
        end = start + timedelta(days=TIMES[by])
        end = end.replace(day=1) if by == "month" else end
        yield f"{start:%Y-%m}" if by == "month" else f"{start:%Y-%m-%d}", start.timestamp(), end.timestamp()
        start = end


def _ordered(groups: Mapping[str, Sum], by: str) -> list[tuple[str, Sum]]:
    """Sort periods with the newest first, other groups with the most expensive first."""
    if by in TIMES:
        return sorted(groups.items(), reverse=True)
    return sorted(groups.items(), key=lambda each: (-each[1].paid, each[0]))


def _figures(found: Sum) -> dict[str, Any]:
    shares = {"saved_share": found.share, "removed_share": found.removed_share}
    return {**found._asdict(), "input": found.input, "saved": found.saved, **shares}


HEAD = ("paid", "without ibidem", "saved", "share", "requests", "conversations")
PLAN_HEAD = ("value", "without ibidem", "saved", "share", "tokens saved", "requests", "conversations")
PLAN_TITLE = "On a subscription (values at list prices, no bill):"
WRONG = {"failures": "failed", "refusals": "rejected", "misses": "cache misses"}
"""Columns that are shown only if a row has a value in them, with their titles."""


def _draw(by: str, groups: Mapping[str, Sum], total: Sum, told: str) -> None:
    from rich.console import Console

    from ..render.terminal_layout import say, table

    console = Console(file=sys.stdout, markup=False, emoji=False, highlight=False)
    if told:
        say(console, told)
    wrong = [name for name in WRONG if getattr(total, name)]
    paid = [(name, each.by_use) for name, each in _ordered(groups, by) if each.by_use]
    plan = [(name, each.plan) for name, each in _ordered(groups, by) if each.plan]
    if paid:
        rows = [_row(name, each, wrong) for name, each in paid[:SHOWN_ROWS]]
        every = [_row("all", total.by_use, wrong)] if len(paid) > 1 else []
        table(console, [by, *HEAD, *(WRONG[name] for name in wrong)], [*rows, *every])
        console.print()
    if plan:
        say(console, PLAN_TITLE)
        rows = [_plan_row(name, each) for name, each in plan[:SHOWN_ROWS]]
        table(console, [by, *PLAN_HEAD], [*rows, *([_plan_row("all", total.plan)] if len(plan) > 1 else [])])
        console.print()
    for line in _notes(total, max(0, len(paid) - SHOWN_ROWS) + max(0, len(plan) - SHOWN_ROWS)):
        say(console, line)


def _plan_row(name: str, found: Sum) -> Sequence[Any]:
    from ..render.number_format import percent

    row = _row(name, found, ())
    return [*row[:5], percent(found.removed_share), *row[5:]]


def _row(name: str, found: Sum, wrong: Sequence[str]) -> Sequence[Any]:
    from rich.text import Text

    from ..render.number_format import NO_NUMBER, dollars, percent
    from ..render.terminal_layout import colour, short

    look = colour(found.share)
    money = [dollars(found.paid), dollars(found.would_have_paid), dollars(found.saved), percent(found.share)]
    if not found.paid and not found.would_have_paid:
        money = [NO_NUMBER] * len(money)
    counts = (found.requests, found.conversations, *(getattr(found, name) for name in wrong))
    return [short(name), *money[:2], *(Text(each, look) for each in money[2:]), *(f"{count:,}" for count in counts)]


def _notes(total: Sum, more: int) -> Iterator[str]:
    from ..render.number_format import dollars, plural

    if more:
        yield f"{more:,} more rows: --json has all rows."
    if total.by_use:
        yield f"Input cost at list prices. Output cost {dollars(total.by_use.output_paid)} more and is not included."
    if total.plan:
        yield f"Subscription: value of the input. Output is worth {dollars(total.plan.output_paid)} more, not included."
    if total.observed:
        could = f"ibidem would have saved {dollars(total.could_save)}" if total.could_save else "no savings"
        yield f"{plural(total.observed, 'request')} not rewritten, only measured (--observe, --trial): {could}."
    if total.unpriced:
        yield f"The cost of {plural(total.unpriced, 'request')} is unknown and not included."
    if not (total.failures or total.refusals or total.misses):
        yield "No failures, no rejected requests, and no cache misses caused by ibidem."
    if total.failures:
        yield "failed: an error prevented new edits. The request was sent without them."
    if total.refusals:
        yield "rejected: the provider rejected the rewritten request. It was sent again with fewer changes."
    if total.misses:
        yield "cache misses: the provider read less from its cache after ibidem changed text that was already sent."
