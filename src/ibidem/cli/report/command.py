"""`ibidem report`"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from ...strategies.profiles import named
from ..options import PROFILE, json_option

CACHING = ("recorded", "none", "5m", "1h", "auto")
"""As `replay.caching` has them, which takes too long to import here."""
BY = ("day", "week", "month", "model", "project", "agent", "session", "tool", "file", "window")
REPLAYED = ("tool", "file")
"""Of these, what is known of conversations that were replayed only."""
ENGINES = ("local", "dask")
ORDERS = ("paid", "saved", "requests", "tokens", "name", "time")

SELECTING = (
    click.option("--since", metavar="WHEN", help="Requests from then on: 2026-11-01, 7d, 24h, today, this-month."),
    click.option("--until", metavar="WHEN", help="Requests up to then; a day counts whole."),
    click.option("--all", "everything", is_flag=True, help="All requests, whenever they were."),
    click.option("--agent", "agents", multiple=True, metavar="NAME", help="Sessions of this agent."),
    click.option("--project", "projects", multiple=True, metavar="WORD", help="Sessions whose project has WORD in it."),
    click.option("--model", "models", multiple=True, metavar="WORD", help="Requests whose model has WORD in its name."),
    click.option("--session", metavar="ID", help="The session whose id begins so."),
    click.option("--timezone", metavar="ZONE", help="Whose days: Europe/Berlin, UTC. This machine's if not given."),
)
GROUPING = (
    click.option("--by", multiple=True, type=click.Choice(BY), help="That table first; may be given several times."),
    click.option("--sort", "order", type=click.Choice(ORDERS), help="How these tables are sorted."),
    click.option("--top", type=click.IntRange(1), metavar="N", help="Rows of each table."),
    click.option("--paid", is_flag=True, help="Only what was paid: nothing is replayed."),
)
COMPARING = (
    click.option(
        "--profile",
        "profiles",
        multiple=True,
        type=PROFILE,
        default=("lossless", "recoverable"),
        show_default=True,
        help="Which strategies run; may be given several times.",
    ),
    click.option(
        "--caching",
        multiple=True,
        type=click.Choice(CACHING),
        default=("recorded",),
        show_default=True,
        help="What asking for caching so would have cost; may be given several times.",
    ),
    click.option("--optimum", is_flag=True, help="Add what the edits of a profile that looks back could have saved."),
    click.option("--verify", is_flag=True, help="Put back what was left out of every request, not of every sixteenth."),
    click.option("--price-as", metavar="MODEL", help="Price every request as this model."),
    click.option("--prices", "price_file", metavar="FILE", help="Prices of your own, as JSON."),
)
SHOWING = (
    click.option("--html", "page", metavar="OUT", help="Write a page to OUT as well; `-` is standard output."),
    click.option("--open", "opened", is_flag=True, help="Open the page in a browser."),
    click.option("--details", metavar="FOLDER", help="Write what was rewritten in each session there. Holds texts!"),
    json_option,
    click.option("--csv", "as_csv", is_flag=True, help="Print a line per session, or the table of --by, as CSV."),
    click.option("--no-color", is_flag=True, help="No colours; NO_COLOR=1 does the same."),
)
WORKING = (
    click.option("--no-cache", is_flag=True, help="Read every log again, and keep nothing of them."),
    click.option("--jobs", type=click.IntRange(1), help="Processes; as many as there are cores if not given."),
    click.option("--engine", type=click.Choice(ENGINES), default="local", show_default=True, help="Who works."),
    click.option("--scheduler", metavar="ADDRESS", help="Of the Dask cluster, such as tcp://10.0.0.1:8786."),
)


Command = TypeVar("Command", bound=Callable[..., int])


def _with(*groups: tuple[Any, ...]) -> Callable[[Command], Command]:
    def decorate(command: Command) -> Command:
        for option in reversed([option for group in groups for option in group]):
            command = option(command)
        return command

    return decorate


@click.command(short_help="What recorded sessions cost, and would have cost.")
@click.argument("paths", metavar="[LOG]...", nargs=-1)
@_with(SELECTING, GROUPING, COMPARING, SHOWING, WORKING)
def report(paths: tuple[str, ...], engine: str, **asked: Any) -> int:
    """What recorded sessions cost, and what they would have cost.

    LOG is a log of an agent, a folder of them, a file of request bodies, or a URL; `-` is standard input. Without LOG
    the logs of the agents on this machine are read, of the last 30 days if nothing is selected; if there are none, a
    bundled sample. Logs are only read, and nothing is sent anywhere.

    Of the logs on this machine, counts of how long you paused between requests are kept in the data folder: `wrap` and
    `proxy` decide by them for how long a provider is to keep what it is sent.
    """
    if asked["as_json"] and asked["as_csv"]:
        raise click.UsageError("--json and --csv exclude each other")
    if (engine == "dask") != (asked["scheduler"] is not None):
        raise click.UsageError("--engine dask and --scheduler ADDRESS go together")
    if engine == "dask" and "-" in paths:
        raise click.UsageError("--engine dask reads logs by name, and standard input has none: write it to a file")
    if asked["optimum"] and not any(each.revises for name in asked["profiles"] for each in named(name)):
        raise click.UsageError("--optimum needs a profile that looks back: add --profile recoverable")
    if asked["everything"] and (asked["since"] or asked["until"]):
        raise click.UsageError("--all and --since or --until exclude each other")
    if (asked["opened"] or asked["details"]) and (asked["page"] in (None, "-")):
        raise click.UsageError(f"{'--open' if asked['opened'] else '--details'} needs a page: add --html FILE")
    if asked["paid"] and asked["page"] is not None:
        raise click.UsageError("--paid replays nothing, and --html shows what was replayed: leave one of them out")
    if asked["paid"] and (told := [by for by in asked["by"] if by in REPLAYED]):
        raise click.UsageError(f"--paid replays nothing, and --by {told[0]} shows what was replayed: leave one out")
    from .run import (  # prices, processes and tables are nothing that other commands should wait for
        ReportOptions,
        run,
    )

    return run(paths, ReportOptions(**asked))
