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
"""Rows of a table; `--json` has all."""
UNNAMED = "(not told)"
TIMES = {"day": 1, "week": 7, "month": 32}
"""Days after the beginning of each, on which the next begins, or will have begun."""
LAST_MOMENT = 4e9
"""In Unix seconds: what is later has the wrong clock."""


@click.command(short_help="Show cost and savings so far.")
@click.option("--by", type=click.Choice(BY), default="day", help="How it is added up; by day if not given.")
@click.option("--since", metavar="WHEN", help="Requests from then on: 2026-11-01, 7d, 24h, today, this-month.")
@click.option("--until", metavar="WHEN", help="Requests up to then; a day counts whole.")
@click.option("--timezone", metavar="ZONE", help="Whose days: Europe/Berlin, UTC. This machine's if not given.")
@click.option("--forget", "forgets", is_flag=True, help="Delete all that is kept, at once.")
@click.option("--trial", "tried", is_flag=True, help="Compare what `--trial` rewrote with what it only measured.")
@json_option
def gain(
    by: str, since: str | None, until: str | None, timezone: str | None, forgets: bool, tried: bool, as_json: bool
) -> int:
    """Show the cost and the savings of requests that went through `ibidem wrap` and `ibidem proxy`.

    Requests on a subscription are listed apart, with their value at list prices. Figures of each request are kept in
    your data folder, no texts: see --no-ledger of these commands.
    """
    from ..gains import Gains, path

    if forgets and (since or until):
        raise click.UsageError("--forget deletes all that is kept: leave --since and --until out")
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
        click.echo(f"{one_line(str(file))}: nothing was kept")
    else:
        click.echo(f"{one_line(str(file))} deleted: figures of {was.requests:,} request{'s' * (was.requests != 1)}")
    return 0


def _nothing(file: Path, told: str) -> str:
    from ..gains import Gains

    with Gains(file) as found:
        if told and found.total():
            return f"{told} There are none: leave --since and --until out to see all that is kept."
    return "Nothing is kept yet. Run a command through ibidem, and ask again: ibidem wrap -- claude"


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
    """Its name, and when each begins and ends, by the calendar: where clocks are changed, a day is as long as it is."""
    start = datetime.fromtimestamp(first, zone).replace(hour=0, minute=0, second=0, microsecond=0)
    start = start.replace(day=1) if by == "month" else start - timedelta(days=start.weekday() * (by == "week"))
    while start.timestamp() <= last:
        end = start + timedelta(days=TIMES[by])
        end = end.replace(day=1) if by == "month" else end
        yield f"{start:%Y-%m}" if by == "month" else f"{start:%Y-%m-%d}", start.timestamp(), end.timestamp()
        start = end


def _ordered(groups: Mapping[str, Sum], by: str) -> list[tuple[str, Sum]]:
    """The newest first, or that for which most was paid."""
    if by in TIMES:
        return sorted(groups.items(), reverse=True)
    return sorted(groups.items(), key=lambda each: (-each[1].paid, each[0]))


def _figures(found: Sum) -> dict[str, Any]:
    shares = {"saved_share": found.share, "removed_share": found.removed_share}
    return {**found._asdict(), "input": found.input, "saved": found.saved, **shares}


HEAD = ("paid", "without ibidem", "saved", "share", "requests", "conversations")
PLAN_HEAD = ("value", "without ibidem", "saved", "share", "tokens saved", "requests", "conversations")
PLAN_TITLE = "On a subscription (values at list prices, no bill):"
WRONG = {"failures": "failed", "refusals": "refused", "misses": "cache misses"}
"""Columns that are shown where there is something in them: what they are called."""


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
        yield f"{more:,} more rows: --json has all of them."
    if total.by_use:
        yield f"Dollars for input, at list prices; the output cost {dollars(total.by_use.output_paid)} besides."
    if total.plan:
        yield f"Subscription: value of the input; the output is worth {dollars(total.plan.output_paid)} besides."
    if total.observed:
        could = f"ibidem would have saved {dollars(total.could_save)}" if total.could_save else "nothing was saved"
        yield f"{plural(total.observed, 'request')} only observed (--observe, --trial): {could} there."
    if total.unpriced:
        yield f"What {plural(total.unpriced, 'request')} cost is not known, and in no sum."
    if not (total.failures or total.refusals or total.misses):
        yield "No failures, no refusals by a provider, and no cache misses after changes of ours."
    if total.failures:
        yield "failed: sent without new edits, because something was in the way; the request itself went through."
    if total.refusals:
        yield "refused: the provider did not take it as rewritten, and got it again in another way."
    if total.misses:
        yield "cache misses: read less from the provider's cache after ibidem had changed what was sent before."
