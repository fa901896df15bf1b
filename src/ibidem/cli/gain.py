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

    from ..usage_db import UsageDatabase, UsageTotals
    from .report.filters import TimeRange

BY = ("day", "week", "month", "model", "project", "client")
MAX_ROWS = 30
"""Largest number of rows in a table. `--json` has all rows."""
UNNAMED = "(not told)"
PERIOD_DAYS = {"day": 1, "week": 7, "month": 32}
"""By period: days to add to its first day to reach a day of the next period."""
MAX_TIMESTAMP = 4e9
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
    from ..usage_db import UsageDatabase, database_path

    if forgets and (since or until):
        raise click.UsageError("--forget deletes all recorded usage: omit --since and --until")
    file = database_path()
    if forgets:
        return _delete_usage(file, as_json)
    from .report.filters import find_zone, parse_time_range

    zone = find_zone(timezone)
    period = parse_time_range(since, until, datetime.now(zone), use_default=False)
    with UsageDatabase(file) as database:
        if tried:
            from .gain_experiment import print_experiment

            return print_experiment(database, period, zone, as_json)
        groups = _group_usage(database, by, period, zone)
        total = database.total_usage(period.since, period.until)
    if as_json:
        group_rows = [{"name": name, **_totals_row(each)} for name, each in _sort_groups(groups, by)]
        query = {"by": by, "since": period.since, "until": period.until}
        echo_json({"schema": 1, "ledger": str(file), **query, "total": _totals_row(total), "groups": group_rows})
    elif total:
        _print_tables(by, groups, total, period.description)
    else:
        click.echo(_no_usage_message(file, period.description))
    return 0


def _delete_usage(file: Path, as_json: bool) -> int:
    from ..errors import one_line
    from ..render.number_format import plural
    from ..usage_db import delete_usage

    is_present, deleted_totals = file.exists(), delete_usage(file)
    if as_json:
        echo_json({"ledger": str(file), "deleted": is_present, "forgotten": _totals_row(deleted_totals)})
    elif not is_present:
        click.echo(f"{one_line(str(file))}: no usage recorded")
    else:
        click.echo(f"{one_line(str(file))} deleted: usage of {plural(deleted_totals.requests, 'request')}")
    return 0


def _no_usage_message(file: Path, period_text: str) -> str:
    from ..usage_db import UsageDatabase

    with UsageDatabase(file) as database:
        if period_text and database.total_usage():
            return f"{period_text} No usage recorded: omit --since and --until to see all."
    return "No usage recorded yet. Run a command through ibidem first: ibidem wrap -- claude"


def _group_usage(database: UsageDatabase, by: str, period: TimeRange, zone: tzinfo) -> dict[str, UsageTotals]:
    if by not in PERIOD_DAYS:
        totals_by_name = database.totals_by_name(by, period.since, period.until)  # type: ignore[arg-type]
        return {name or UNNAMED: each for name, each in totals_by_name.items()}
    first, last = database.time_range() or (0.0, -1.0)
    start = max(first, period.since or 0.0, 0.0)
    until = MAX_TIMESTAMP if period.until is None else period.until
    sums: dict[str, UsageTotals] = {}
    for name, period_start, period_end in _calendar_periods(by, start, min(last, until, MAX_TIMESTAMP), zone):
        if each := database.total_usage(max(period_start, start), min(period_end, until)):
            sums[name] = each
    return sums


def _calendar_periods(by: str, first: float, last: float, zone: tzinfo) -> Iterator[tuple[str, float, float]]:
    """Yield name, start and end of each calendar period. A day with a clock change has 23 or 25 hours."""
    start = datetime.fromtimestamp(first, zone).replace(hour=0, minute=0, second=0, microsecond=0)
    start = start.replace(day=1) if by == "month" else start - timedelta(days=start.weekday() * (by == "week"))
    while start.timestamp() <= last:
        end = start + timedelta(days=PERIOD_DAYS[by])
        end = end.replace(day=1) if by == "month" else end
        yield f"{start:%Y-%m}" if by == "month" else f"{start:%Y-%m-%d}", start.timestamp(), end.timestamp()
        start = end


def _sort_groups(groups: Mapping[str, UsageTotals], by: str) -> list[tuple[str, UsageTotals]]:
    """Sort periods with the newest first, other groups with the most expensive first."""
    if by in PERIOD_DAYS:
        return sorted(groups.items(), reverse=True)
    return sorted(groups.items(), key=lambda each: (-each[1].paid, each[0]))


def _totals_row(totals: UsageTotals) -> dict[str, Any]:
    shares = {name: getattr(totals, name) for name in ("saved_share", "saved_share_of_total", "removed_share")}
    return {**totals._asdict(), "input": totals.input_tokens, "saved": totals.saved_dollars, **shares}


HEAD = ("paid", "without ibidem", "saved", "share", "requests", "conversations")
PLAN_HEAD = ("value", "without ibidem", "saved", "share", "tokens saved", "requests", "conversations")
PLAN_TITLE = "On a subscription (values at list prices, no bill):"
PROBLEM_COLUMNS = {"failures": "failed", "refusals": "rejected", "misses": "cache misses"}
"""Columns that are shown only if a row has a value in them, with their titles."""


def _print_tables(by: str, groups: Mapping[str, UsageTotals], total: UsageTotals, period_text: str) -> None:
    from rich.console import Console

    from ..render.terminal_layout import print_table, print_text

    console = Console(file=sys.stdout, markup=False, emoji=False, highlight=False)
    if period_text:
        print_text(console, period_text)
    problem_columns = [name for name in PROBLEM_COLUMNS if getattr(total, name)]
    paid_groups = [
        (name, each.pay_per_use_totals) for name, each in _sort_groups(groups, by) if each.pay_per_use_totals
    ]
    plan_groups = [(name, each.plan_totals) for name, each in _sort_groups(groups, by) if each.plan_totals]
    if paid_groups:
        rows = [_table_row(name, each, problem_columns) for name, each in paid_groups[:MAX_ROWS]]
        total_rows = [_table_row("all", total.pay_per_use_totals, problem_columns)] if len(paid_groups) > 1 else []
        print_table(console, [by, *HEAD, *(PROBLEM_COLUMNS[name] for name in problem_columns)], [*rows, *total_rows])
        console.print()
    if plan_groups:
        print_text(console, PLAN_TITLE)
        rows = [_plan_row(name, each) for name, each in plan_groups[:MAX_ROWS]]
        print_table(
            console, [by, *PLAN_HEAD], [*rows, *([_plan_row("all", total.plan_totals)] if len(plan_groups) > 1 else [])]
        )
        console.print()
    for line in _footnotes(total, max(0, len(paid_groups) - MAX_ROWS) + max(0, len(plan_groups) - MAX_ROWS)):
        print_text(console, line)


def _plan_row(name: str, totals: UsageTotals) -> Sequence[Any]:
    from ..render.number_format import percent

    row = _table_row(name, totals, ())
    return [*row[:5], percent(totals.removed_share), *row[5:]]


def _table_row(name: str, totals: UsageTotals, problem_columns: Sequence[str]) -> Sequence[Any]:
    from rich.text import Text

    from ..render.number_format import NO_NUMBER, dollars, percent
    from ..render.terminal_layout import saving_color, single_line

    style = saving_color(totals.saved_share)
    money = [
        dollars(totals.paid),
        dollars(totals.would_have_paid),
        dollars(totals.saved_dollars),
        percent(totals.saved_share),
    ]
    if not totals.paid and not totals.would_have_paid:
        money = [NO_NUMBER] * len(money)
    counts = (totals.requests, totals.conversations, *(getattr(totals, name) for name in problem_columns))
    return [
        single_line(name),
        *money[:2],
        *(Text(each, style) for each in money[2:]),
        *(f"{count:,}" for count in counts),
    ]


def _cost_note(totals: UsageTotals, of_input: str, of_output: str) -> str:
    """Describe the base of a table's numbers, and the saved share if output is part of the base."""
    from ..render.number_format import dollars, percent

    output, share = dollars(totals.output_paid), totals.saved_share_of_total
    if share is None:
        return f"{of_input}. {of_output} {output} more, not included."
    return f"{of_input}. With output ({output} more), the saved share is {percent(share)}."


def _footnotes(total: UsageTotals, more: int) -> Iterator[str]:
    from ..render.number_format import dollars, plural

    if more:
        yield f"{more:,} more rows: --json has all rows."
    if total.pay_per_use_totals:
        yield _cost_note(total.pay_per_use_totals, "Input cost at list prices", "Output cost")
    if total.plan_totals:
        yield _cost_note(total.plan_totals, "Subscription: input value", "Output is worth")
    if total.observed:
        savings = f"ibidem would have saved {dollars(total.could_save)}" if total.could_save else "no savings"
        yield f"{plural(total.observed, 'request')} not rewritten, only measured (--observe, --trial): {savings}."
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
