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
from .errors import InputError
from .options import echo_json, json_option, without_password

if TYPE_CHECKING:
    from ..store import Limits, Store, StoreStats

DAY_SECONDS = 86_400
HOUR_SECONDS = 3_600

store_option = click.option(
    "--store",
    "target",
    metavar="STORE",
    default=environment.store_target,
    callback=without_password,
    help="File or redis:// URL (default: store in your data folder). Put a URL with a password in IBIDEM_STORE.",
)


days_option = click.option(
    "--days", metavar="DAYS", type=float, help="Delete originals not used for this long; same as IBIDEM_STORE_DAYS."
)
bytes_option = click.option(
    "--bytes", "size", metavar="BYTES", type=int, help="Largest size of the store; same as IBIDEM_STORE_BYTES."
)


@contextmanager
def opened(target: str, limits: Limits | None = None) -> Iterator[Store]:
    """Open a store for inspection. A missing store is treated as empty and is not created."""
    from ..store import Limits, MemoryStore, StoreError, is_missing, open_store

    limits = limits or Limits()
    try:
        with (
            MemoryStore(where=target, limits=limits)
            if is_missing(target)
            else open_store(target, limits=limits) as found
        ):
            yield found
    except StoreError as error:
        raise InputError(error.where, error.what) from None


def limits_of(days: float | None, size: int | None) -> Limits:
    """Return the limits from the options, with defaults from the environment. Raises InputError or BadParameter."""
    from ..store.limits import USE_BYTES, USE_DAYS, Limits, are_days

    if days is not None and not are_days(days):
        raise click.BadParameter(USE_DAYS, param_hint="--days")
    if size is not None and size < 0:
        raise click.BadParameter(USE_BYTES, param_hint="--bytes")
    try:
        found = Limits.usual()
    except IbidemError as error:
        where, _, what = str(error).partition(": ")
        raise InputError(where, what) from None
    told = Limits.of(days, size)
    return replace(
        found,
        max_age=found.max_age if days is None else told.max_age,
        max_bytes=found.max_bytes if size is None else told.max_bytes,
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
    with opened(target, limits_of(days, size)) as found:
        figures = found.stats()
        where, limits = found.where, found.limits
    if as_json:
        over = limits.excess(figures.bytes_kept)
        echo_json({"store": where, **asdict(figures), "limits": asdict(limits), "bytes_over": over})
    else:
        click.echo("\n".join(_lines(where, figures, limits)))
    return 0


def _lines(where: str, figures: StoreStats, limits: Limits) -> Iterator[str]:
    yield one_line(where)
    yield ""
    yield f"originals  {figures.originals:,}"
    yield f"sessions   {figures.sessions:,}, with {figures.bytes_states:,} bytes of state"
    yield f"bytes      {figures.bytes_original:,}, stored as {figures.bytes_stored:,}"
    for name, moment in (("oldest", figures.oldest), ("newest", figures.newest)):
        if moment is not None:
            yield f"{name}     {datetime.fromtimestamp(moment):%Y-%m-%d %H:%M:%S}"
    age = "no age limit" if limits.max_age is None else f"{limits.max_age / DAY_SECONDS:g} days without use"
    size = "no size limit" if limits.max_bytes is None else f"{limits.max_bytes:,} bytes"
    live = f"{limits.live_for / HOUR_SECONDS:g} hours"
    yield f"limits     {age}, {size}; conversations used in the last {live} are never deleted"
    if over := limits.excess(figures.bytes_kept):
        way_out = f"`ibidem store prune` deletes old ones, but none used in the last {live}"
        yield f"over       {over:,} bytes: {way_out}"


@store.command(short_help="Delete originals over the limits.")
@days_option
@bytes_option
@store_option
@json_option
def prune(days: float | None, size: int | None, target: str, as_json: bool) -> int:
    """Delete originals that exceed the age or size limit, the oldest conversations first.

    Writing to the store does the same gradually. Conversations used in the last 24 hours are never deleted.
    """
    with opened(target, limits_of(days, size)) as found:
        _tell(found.prune(), as_json)
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
    with opened(target) as found:
        if session is not None:
            count = found.forget(session)
        elif days is not None:
            count = found.forget_older(days * DAY_SECONDS)
        else:
            count = found.forget_all()
    _tell(count, as_json)
    return 0


def _tell(count: int, as_json: bool) -> None:
    if as_json:
        echo_json({"forgotten": count})
    else:
        click.echo(f"{count:,} original{'' if count == 1 else 's'} deleted")
