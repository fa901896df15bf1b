"""What `ibidem report` does: find the logs, have them looked at, show what was found."""

from __future__ import annotations

import io
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import resources
from pathlib import Path
from typing import NamedTuple

import click

from ...billing.pauses import keep_pauses
from ...billing.prices import Price, Prices, own_prices
from ...environment import cache_folder, home, variables
from ...model import IbidemError, one_line
from ...recordings.discovery import discover, logs_in
from ...replay.caching import CACHING_NAMES
from ...report import executors
from ...report.cache import ReportCache
from ...report.export import write_csv, write_json
from ...report.figures import FileFigures
from ...report.measure import ReportSettings, measure_log
from ...report.totals import Report, add_up, pauses_in, unread_notes
from ...strategies.profiles import PROFILES
from ..errors import InputError, at_the_prompt, reason
from ..writing import output

SAMPLE_FILE = "conversation.json"

Done = Callable[[FileFigures], None]


class Options(NamedTuple):
    """What was asked for on the command line."""

    profiles: tuple[str, ...]
    caching: tuple[str, ...]
    optimum: bool
    model: str | None
    price_file: str | None
    page: str | None
    as_json: bool
    as_csv: bool
    no_color: bool
    no_cache: bool
    jobs: int | None
    scheduler: str | None


def run(paths: tuple[str, ...], options: Options) -> int:
    names = tuple(dict.fromkeys(options.profiles))
    caching = tuple(name for name in CACHING_NAMES if name in options.caching)
    settings = ReportSettings(names, options.model, _own(options.price_file), options.optimum, caching)
    own = any(name not in PROFILES for name in settings.profiles)  # whose code may change unseen
    memory = None if options.no_cache or own else ReportCache(cache_folder(), settings)
    try:
        Prices(settings.prices, options.model).check()
        found = _gather(paths, settings, memory, options)
    except IbidemError as error:
        raise InputError("report", at_the_prompt(str(error))) from None
    if not paths and not options.no_cache and not found.sample:
        keep_pauses(pauses_in(found.sessions, time.time()))
    _show(found, options)
    return 0 if found.sessions else 2


def _own(file: str | None) -> dict[str, Price]:
    if file is None:
        return {}
    name = one_line(click.format_filename(file))
    try:
        return own_prices(Path(file).read_bytes(), name)
    except OSError as error:
        raise InputError(name, reason(error)) from None
    except IbidemError as error:
        raise click.UsageError(str(error)) from None


def _gather(paths: tuple[str, ...], settings: ReportSettings, memory: ReportCache | None, options: Options) -> Report:
    files = _listed(paths) if paths else [str(path) for path in discover(variables(), home(), sys.platform)]
    if not files and not paths:
        data = (resources.files("ibidem") / "samples" / SAMPLE_FILE).read_bytes()
        found = add_up(settings.profiles, [measure_log(SAMPLE_FILE, data, settings)], _nobody)
        found.sample = True
        return found
    work = executors.families(files)
    if options.scheduler is None:
        some = executors.on_this_machine(work, settings, memory, options.jobs)
    else:
        some = executors.on_dask(work, settings, options.scheduler)
    with _progress(files) as done:
        return add_up(settings.profiles, (one for family in some for one in family), done)


def _nobody(found: FileFigures) -> None:
    """Is watching."""


def _listed(paths: tuple[str, ...]) -> list[str]:
    found: dict[str, None] = {}
    for path in paths:
        if "://" in path:
            try:
                there = executors.below(path)
            except OSError as error:
                why = error.strerror or str(error) or type(error).__name__
                raise InputError(one_line(path), f"cannot be reached ({one_line(why)}): check the address") from None
            if not there:
                raise InputError(one_line(path), "no logs in this folder: name another")
            found.update(dict.fromkeys(there))
            continue
        if not Path(path).exists():
            raise InputError(one_line(click.format_filename(path)), "no such file or folder: check the path")
        logs_there = logs_in(Path(path))
        if not logs_there:
            raise InputError(one_line(click.format_filename(path)), "no logs in this folder: name another")
        found.update(dict.fromkeys(map(str, logs_there)))
    told: dict[str, str] = {}
    for each in found:
        told.setdefault(each if "://" in each else str(Path(each).resolve()), each)
    return list(told.values())


@contextmanager
def _progress(files: list[str]) -> Iterator[Done]:
    """A bar with rate and time left on standard error, if somebody is watching."""
    if not sys.stderr.isatty():
        yield _nobody
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    columns = (TextColumn("reading logs"), BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    total = sum(Path(file).stat().st_size for file in files if "://" not in file and Path(file).is_file())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=total or None)
        yield lambda found: bar.advance(task, found.size)


def _show(found: Report, options: Options) -> None:
    with output(options.page) as write:
        if options.page is not None:
            from ...report.page import write_page

            text = io.StringIO()
            write_page(found, text)
            write(text.getvalue().encode("utf-8", "replace"))
    stream = sys.stderr if options.page == "-" else sys.stdout
    if options.as_json:
        write_json(found, stream)
    elif options.as_csv:
        write_csv(found, stream)
        for note in unread_notes(found):
            click.echo(one_line(note), err=True)
    else:
        from ...report.terminal import draw  # rich takes a while to import

        draw(found, stream, plain=options.no_color)
