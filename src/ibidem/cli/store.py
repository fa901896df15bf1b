"""`ibidem store`"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from datetime import datetime
from typing import TYPE_CHECKING

import click

from .. import environment
from ..errors import IbidemError, one_line
from .command_errors import InputError
from .options import echo_json, json_option, reject_password

if TYPE_CHECKING:
    from ..store import Limits, Store, StoreStats

DAY_SECONDS = 86_400
HOUR_SECONDS = 3_600

store_option = click.option(
    "--store",
    "target",
    metavar="STORE",
    default=environment.store_target,
    callback=reject_password,
    help="File or redis:// URL (default: store in your data folder). Put a URL with a password in IBIDEM_STORE.",
)


days_option = click.option(
    "--days", metavar="DAYS", type=float, help="Delete originals not used for this long; same as IBIDEM_STORE_DAYS."
)
bytes_option = click.option(
    "--bytes", "size", metavar="BYTES", type=int, help="Largest size of the store; same as IBIDEM_STORE_BYTES."
)


@contextmanager
def open_for_inspection(target: str, limits: Limits | None = None) -> Iterator[Store]:
    """Open a store for inspection. A missing store is treated as empty and is not created."""
    from ..store import Limits, MemoryStore, StoreError, is_missing, open_store

    limits = limits or Limits()
    try:
        with (
            MemoryStore(where=target, limits=limits)
            if is_missing(target)
            else open_store(target, limits=limits) as database
        ):
            yield database
    except StoreError as error:
        raise InputError(error.where, error.what) from None


def read_limits(days: float | None, size: int | None) -> Limits:
    """Return the limits from the options, with defaults from the environment. Raises InputError or BadParameter."""
    from ..store.retention import USE_BYTES, USE_DAYS, Limits, is_valid_days

    if days is not None and not is_valid_days(days):
        raise click.BadParameter(USE_DAYS, param_hint="--days")
    if size is not None and size < 0:
        raise click.BadParameter(USE_BYTES, param_hint="--bytes")
    try:
        limits = Limits.usual()
    except IbidemError as error:
        where, _, what = str(error).partition(": ")
        raise InputError(where, what) from None
    option_limits = Limits.of(days, size)
    return replace(
        limits,
        max_age=limits.max_age if days is None else option_limits.max_age,
        max_bytes=limits.max_bytes if size is None else option_limits.max_bytes,
    )


@click.group(short_help="Inspect and clean up the store of evicted texts.", invoke_without_command=True)
@click.pass_context
def store(context: click.Context) -> int:
    """Inspect and clean up the store with the originals of evicted texts."""
    if context.invoked_subcommand is None:
        click.echo(context.get_help())
    return 0


@store.command(short_help="Show size and limits of the store.")
@days_option
@bytes_option
@store_option
@json_option
def stats(days: float | None, size: int | None, target: str, as_json: bool) -> int:
    """Show how many originals are stored, their size, and the limits."""
    with open_for_inspection(target, read_limits(days, size)) as database:
        statistics = database.stats()
        where, limits = database.where, database.limits
    if as_json:
        over = limits.excess(statistics.bytes_kept)
        echo_json({"store": where, **asdict(statistics), "limits": asdict(limits), "bytes_over": over})
    else:
        click.echo("\n".join(_stats_lines(where, statistics, limits)))
    return 0


def _stats_lines(where: str, statistics: StoreStats, limits: Limits) -> Iterator[str]:
    yield one_line(where)
    yield ""
    yield f"originals  {statistics.originals:,}"
    yield f"sessions   {statistics.sessions:,}, with {statistics.bytes_states:,} bytes of state"
    yield f"bytes      {statistics.bytes_original:,}, stored as {statistics.bytes_stored:,}"
    for name, timestamp in (("oldest", statistics.oldest), ("newest", statistics.newest)):
        if timestamp is not None:
            yield f"{name}     {datetime.fromtimestamp(timestamp):%Y-%m-%d %H:%M:%S}"
    age = "no age limit" if limits.max_age is None else f"{limits.max_age / DAY_SECONDS:g} days without use"
    size = "no size limit" if limits.max_bytes is None else f"{limits.max_bytes:,} bytes"
    live = f"{limits.live_for / HOUR_SECONDS:g} hours"
    yield f"limits     {age}, {size}; conversations used in the last {live} are never deleted"
    if over := limits.excess(statistics.bytes_kept):
        remedy = f"`ibidem store prune` deletes old ones, but none used in the last {live}"
        yield f"over       {over:,} bytes: {remedy}"


@store.command(short_help="Delete originals over the limits.")
@days_option
@bytes_option
@store_option
@json_option
def prune(days: float | None, size: int | None, target: str, as_json: bool) -> int:
    """Delete originals that exceed the age or size limit, the oldest conversations first.

    Writing to the store does the same gradually. Conversations used in the last 24 hours are never deleted.
    """
    with open_for_inspection(target, read_limits(days, size)) as database:
        _print_deleted(database.prune(), as_json)
    return 0


@store.command(short_help="Delete originals.")
@click.argument("session", required=False)
@click.option("--all", "everything", is_flag=True, help="Delete everything.")
@click.option(
    "--older-than", "days", metavar="DAYS", type=click.FloatRange(min=0), help="Delete sessions older than this."
)
@store_option
@json_option
def forget(session: str | None, everything: bool, days: float | None, target: str, as_json: bool) -> int:
    """Delete the originals of SESSION, of sessions not used for DAYS days, or of all sessions.

    Originals that another session uses are not deleted. A deleted original cannot be recalled, even if a conversation
    still refers to it.
    """
    if [session is not None, everything, days is not None].count(True) != 1:
        raise click.UsageError("Pass one of SESSION, --all and --older-than DAYS")
    with open_for_inspection(target) as database:
        if session is not None:
            count = database.forget(session)
        elif days is not None:
            count = database.forget_older(days * DAY_SECONDS)
        else:
            count = database.forget_all()
    _print_deleted(count, as_json)
    return 0


def _print_deleted(count: int, as_json: bool) -> None:
    if as_json:
        echo_json({"forgotten": count})
    else:
        click.echo(f"{count:,} original{'' if count == 1 else 's'} deleted")
