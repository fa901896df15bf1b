"""`ibidem report`"""

from __future__ import annotations

import click

from ...strategies.profiles import named
from ..options import PROFILE, json_option

CACHING = ("recorded", "none", "5m", "1h", "auto")
"""As `replay.caching` has them, which takes too long to import here."""


@click.command(short_help="What recorded sessions cost, and would have cost.")
@click.argument("paths", metavar="[LOG]...", nargs=-1)
@click.option(
    "--profile",
    "profiles",
    multiple=True,
    type=PROFILE,
    default=("lossless",),
    show_default=True,
    help="Which strategies run; may be given several times.",
)
@click.option(
    "--caching",
    multiple=True,
    type=click.Choice(CACHING),
    default=("recorded",),
    show_default=True,
    help="What asking for caching so would have cost; may be given several times.",
)
@click.option("--optimum", is_flag=True, help="Add what the edits of a profile that looks back could have saved.")
@click.option("--model", help="Price every request as this model.")
@click.option("--prices", "price_file", metavar="FILE", help="Prices of your own, as JSON.")
@click.option("--html", "page", metavar="OUT", help="Write a page to OUT as well; `-` is standard output.")
@json_option
@click.option("--csv", "as_csv", is_flag=True, help="Print a line per session instead of text.")
@click.option("--no-color", is_flag=True, help="No colours; NO_COLOR=1 does the same.")
@click.option("--no-cache", is_flag=True, help="Read every log again, and keep nothing of them.")
@click.option("--jobs", type=click.IntRange(1), help="Processes; as many as there are cores if not given.")
@click.option("--engine", type=click.Choice(["local", "dask"]), default="local", show_default=True, help="Who works.")
@click.option("--scheduler", metavar="ADDRESS", help="Of the Dask cluster, such as tcp://10.0.0.1:8786.")
def report(
    paths: tuple[str, ...],
    profiles: tuple[str, ...],
    caching: tuple[str, ...],
    optimum: bool,
    model: str | None,
    price_file: str | None,
    page: str | None,
    as_json: bool,
    as_csv: bool,
    no_color: bool,
    no_cache: bool,
    jobs: int | None,
    engine: str,
    scheduler: str | None,
) -> int:
    """What recorded sessions cost, and what they would have cost.

    LOG is a log of an agent, a folder of them, a file of request bodies, or a URL. Without LOG the logs of the agents
    on this machine are read; if there are none, a bundled sample. Logs are only read, and nothing is sent anywhere.

    Of the logs on this machine, counts of how long you paused between requests are kept in the data folder: `wrap` and
    `proxy` decide by them for how long a provider is to keep what it is sent.
    """
    if as_json and as_csv:
        raise click.UsageError("--json and --csv exclude each other")
    if (engine == "dask") != (scheduler is not None):
        raise click.UsageError("--engine dask and --scheduler ADDRESS go together")
    if optimum and not any(each.revises for name in profiles for each in named(name)):
        raise click.UsageError("--optimum needs a profile that looks back: add --profile recoverable")
    from .measuring import Options, run  # prices, processes and tables are nothing that other commands should wait for

    show = (page, as_json, as_csv, no_color)
    options = Options(profiles, caching, optimum, model, price_file, *show, no_cache, jobs, scheduler)
    return run(paths, options)
