"""`ibidem report`"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from ...strategies.profiles import profile_strategies
from ..options import PROFILE, json_option

CACHING = ("recorded", "none", "5m", "1h", "auto")
"""Copy of the names in the replay package, which takes too long to import here."""
BY = ("day", "week", "month", "model", "project", "agent", "session", "tool", "file", "window")
REPLAY_GROUPS = ("tool", "file")
"""Groups that need a replay, so they do not work with `--paid`."""
ENGINES = ("local", "dask")
ORDERS = ("paid", "saved", "requests", "tokens", "name", "time")

SELECTION_OPTIONS = (
    click.option("--since", metavar="WHEN", help="Only requests since: 2026-11-01, 7d, 24h, today, this-month."),
    click.option("--until", metavar="WHEN", help="Only requests until; a date includes the whole day."),
    click.option("--all", "everything", is_flag=True, help="Requests of any date."),
    click.option("--agent", "agents", multiple=True, metavar="NAME", help="Only sessions of this agent."),
    click.option("--project", "projects", multiple=True, metavar="WORD", help="Only projects that contain WORD."),
    click.option("--model", "models", multiple=True, metavar="WORD", help="Only models whose name contains WORD."),
    click.option("--session", metavar="ID", help="Only the session whose id starts with ID."),
    click.option(
        "--timezone", metavar="ZONE", help="Time zone of dates: Europe/Berlin, UTC (default: this machine's)."
    ),
)
GROUPING_OPTIONS = (
    click.option("--by", multiple=True, type=click.Choice(BY), help="Group by this, in the first table; repeatable."),
    click.option("--sort", "order", type=click.Choice(ORDERS), help="Sort order of the tables of --by."),
    click.option("--top", type=click.IntRange(1), metavar="N", help="Largest number of rows in each table."),
    click.option("--paid", is_flag=True, help="Show only paid costs, without a replay."),
)
COMPARISON_OPTIONS = (
    click.option(
        "--profile",
        "profiles",
        multiple=True,
        type=PROFILE,
        default=("lossless", "recoverable"),
        show_default=True,
        help="Rewriting profile to compare; repeatable.",
    ),
    click.option(
        "--caching",
        multiple=True,
        type=click.Choice(CACHING),
        default=("recorded",),
        show_default=True,
        help="Caching mode to compare, with its hypothetical cost; repeatable.",
    ),
    click.option("--optimum", is_flag=True, help="Add the largest possible savings of profiles that evict text."),
    click.option("--verify", is_flag=True, help="Check that every request can be restored, not only every sixteenth."),
    click.option("--price-as", metavar="MODEL", help="Price every request as this model."),
    click.option("--prices", "price_file", metavar="FILE", help="JSON file with your own prices."),
)
OUTPUT_OPTIONS = (
    click.option("--html", "page", metavar="OUT", help="Also write an HTML page to OUT; `-` is standard output."),
    click.option("--open", "opened", is_flag=True, help="Open the page in a browser."),
    click.option("--details", metavar="FOLDER", help="Write a page per session with its edits. It contains texts."),
    json_option,
    click.option("--csv", "as_csv", is_flag=True, help="Print a line per session, or the table of --by, as CSV."),
    click.option("--no-color", is_flag=True, help="Disable colors; NO_COLOR=1 does the same."),
)
WORKER_OPTIONS = (
    click.option("--no-cache", is_flag=True, help="Read every log again, and cache no results."),
    click.option("--jobs", type=click.IntRange(1), help="Number of processes (default: number of cores)."),
    click.option("--engine", type=click.Choice(ENGINES), default="local", show_default=True, help="Where to compute."),
    click.option("--scheduler", metavar="ADDRESS", help="Address of the Dask cluster, such as tcp://10.0.0.1:8786."),
)


Command = TypeVar("Command", bound=Callable[..., int])


def _add_options(*groups: tuple[Any, ...]) -> Callable[[Command], Command]:
    def decorate_command(command: Command) -> Command:
        for option in reversed([option for group in groups for option in group]):
            command = option(command)
        return command

    return decorate_command


@click.command(short_help="Report cost and possible savings of recorded sessions.")
@click.argument("paths", metavar="[LOG]...", nargs=-1)
@_add_options(SELECTION_OPTIONS, GROUPING_OPTIONS, COMPARISON_OPTIONS, OUTPUT_OPTIONS, WORKER_OPTIONS)
def report(paths: tuple[str, ...], engine: str, **options: Any) -> int:
    """Report the cost of recorded sessions, and their cost with ibidem.

    LOG is the log of an agent, a folder of logs, a file of request bodies, or a URL; `-` is standard input. The default
    is the last 30 days of the agent logs on this machine, or a bundled sample if there are no logs. Logs are only read,
    and no data is sent anywhere.

    From the logs on this machine, counts of your idle times between requests are saved in the data folder. `wrap` and
    `proxy` use them to choose the TTL of the prompt cache.
    """
    if options["as_json"] and options["as_csv"]:
        raise click.UsageError("--json and --csv exclude each other")
    if (engine == "dask") != (options["scheduler"] is not None):
        raise click.UsageError("--engine dask and --scheduler ADDRESS need each other: pass both")
    if engine == "dask" and "-" in paths:
        raise click.UsageError("--engine dask cannot read standard input: write it to a file")
    if options["optimum"] and not any(
        each.revises for name in options["profiles"] for each in profile_strategies(name)
    ):
        raise click.UsageError("--optimum needs a profile that evicts text: add --profile recoverable")
    if options["everything"] and (options["since"] or options["until"]):
        raise click.UsageError("--all and --since or --until exclude each other")
    if (options["opened"] or options["details"]) and (options["page"] in (None, "-")):
        raise click.UsageError(f"{'--open' if options['opened'] else '--details'} needs a page: add --html FILE")
    if options["paid"] and options["page"] is not None:
        raise click.UsageError("--html needs the replay that --paid skips: omit one")
    if options["paid"] and (replayed_groups := [by for by in options["by"] if by in REPLAY_GROUPS]):
        raise click.UsageError(f"--by {replayed_groups[0]} needs the replay that --paid skips: omit one")
    from .run import (  # slow to import, and other commands do not need it
        ReportOptions,
        run_report,
    )

    return run_report(paths, ReportOptions(**options))
