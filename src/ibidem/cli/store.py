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
    help="A file or a redis:// URL; with a password, in IBIDEM_STORE. Otherwise the store in your data folder.",
)


days_option = click.option(
    "--days", metavar="DAYS", type=float, help="Forget what was not used for so long; IBIDEM_STORE_DAYS does the same."
)
bytes_option = click.option(
    "--bytes", "size", metavar="BYTES", type=int, help="Keep so much at most; IBIDEM_STORE_BYTES does the same."
)


@contextmanager
def opened(target: str, limits: Limits | None = None) -> Iterator[Store]:
    """The store, for a look at what is there. One that is not there is empty, and is not made by looking."""
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
    """As the options say, and where they say nothing as the environment does."""
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


@click.group(short_help="Look after what was removed from conversations.", invoke_without_command=True)
@click.pass_context
def store(context: click.Context) -> int:
    """Look after the originals of texts that were removed from conversations."""
    if context.invoked_subcommand is None:
        click.echo(context.get_help())
    return 0


@store.command(short_help="Show how much is kept.")
@days_option
@bytes_option
@store_option
@json_option
def stats(days: float | None, size: int | None, target: str, as_json: bool) -> int:
    """Show how many originals are kept, what they take, and the limits."""
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
    yield f"sessions   {figures.sessions:,}, their states take {figures.bytes_states:,}"
    yield f"bytes      {figures.bytes_original:,}, kept in {figures.bytes_stored:,}"
    for name, moment in (("oldest", figures.oldest), ("newest", figures.newest)):
        if moment is not None:
            yield f"{name}     {datetime.fromtimestamp(moment):%Y-%m-%d %H:%M:%S}"
    age = "no number of days" if limits.max_age is None else f"{limits.max_age / DAY_SECONDS:g} days without use"
    size = "no number of bytes" if limits.max_bytes is None else f"{limits.max_bytes:,} bytes"
    live = f"{limits.live_for / HOUR_SECONDS:g} hours"
    yield f"limits     {age}, {size}; what was used in the last {live} stays in any case"
    if over := limits.excess(figures.bytes_kept):
        way_out = f"`ibidem store prune` drops what may go, conversations of the last {live} stay"
        yield f"over       {over:,} bytes: {way_out}"


@store.command(short_help="Drop what is over the limits.")
@days_option
@bytes_option
@store_option
@json_option
def prune(days: float | None, size: int | None, target: str, as_json: bool) -> int:
    """Drop what was not used for so long, and what is too much, the oldest conversations first.

    What is written to the store does the same by and by. Conversations of the last 24 hours lose nothing.
    """
    with opened(target, limits_of(days, size)) as found:
        _tell(found.prune(), as_json)
    return 0


@store.command(short_help="Drop originals.")
@click.argument("session", required=False)
@click.option("--all", "everything", is_flag=True, help="Drop everything.")
@click.option("--older-than", "days", metavar="DAYS", type=click.FloatRange(min=0), help="Drop what is as old as that.")
@store_option
@json_option
def forget(session: str | None, everything: bool, days: float | None, target: str, as_json: bool) -> int:
    """Drop the originals of SESSION, of sessions that were not used for DAYS days, or of all.

    Originals that another session refers to are kept. What is dropped cannot be recalled, also where a conversation
    still refers to it.
    """
    if [session is not None, everything, days is not None].count(True) != 1:
        raise click.UsageError("Say what to drop: SESSION, --all or --older-than DAYS")
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
        click.echo(f"{count:,} original{'' if count == 1 else 's'} forgotten")
