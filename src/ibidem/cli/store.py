"""`ibidem store`"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from datetime import datetime
from typing import TYPE_CHECKING

import click

from .. import machine
from ..model import one_line
from .errors import InputError
from .options import echo_json, json_option, without_password

if TYPE_CHECKING:
    from ..store import Store, StoreStats

DAY = 86_400

store_option = click.option(
    "--store",
    "target",
    metavar="STORE",
    default=machine.store_target,
    callback=without_password,
    help="A file or a redis:// URL; with a password, in IBIDEM_STORE. Otherwise the store in your data folder.",
)


@contextmanager
def opened(target: str) -> Iterator[Store]:
    """The store, for a look at what is there. One that is not there is empty, and is not made by looking."""
    from ..store import (
        MemoryStore,
        StoreError,
        is_missing,
        open_store,
    )  # SQLite takes longer to import than the rest of us

    try:
        with MemoryStore(where=target) if is_missing(target) else open_store(target) as found:
            yield found
    except StoreError as error:
        raise InputError(error.where, error.what) from None


@click.group(short_help="Look after what was removed from conversations.", invoke_without_command=True)
@click.pass_context
def store(context: click.Context) -> int:
    """Look after the originals of texts that were removed from conversations."""
    if context.invoked_subcommand is None:
        click.echo(context.get_help())
    return 0


@store.command(short_help="Show how much is kept.")
@store_option
@json_option
def stats(target: str, as_json: bool) -> int:
    """Show how many originals are kept, and what they take."""
    with opened(target) as found:
        figures = found.stats()
        where = found.where
    if as_json:
        echo_json({"store": where, **asdict(figures)})
    else:
        click.echo("\n".join(_lines(where, figures)))
    return 0


def _lines(where: str, figures: StoreStats) -> Iterator[str]:
    yield one_line(where)
    yield ""
    yield f"originals  {figures.originals:,}"
    yield f"sessions   {figures.sessions:,}"
    yield f"bytes      {figures.bytes_original:,}, kept in {figures.bytes_stored:,}"
    for name, moment in (("oldest", figures.oldest), ("newest", figures.newest)):
        if moment is not None:
            yield f"{name}     {datetime.fromtimestamp(moment):%Y-%m-%d %H:%M:%S}"


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
            count = found.forget_older(days * DAY)
        else:
            count = found.forget_all()
    if as_json:
        echo_json({"forgotten": count})
    else:
        click.echo(f"{count:,} original{'' if count == 1 else 's'} forgotten")
    return 0
