"""Run the proxy: read settings, listen, print start and summary lines. Used by `ibidem proxy` and `ibidem wrap`."""

from __future__ import annotations

import asyncio
import errno
import signal
import socket
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ... import environment
from ...billing.idle_times import load_idle_times
from ...errors import IbidemError, one_line
from ...proxy.settings import LoadedSettings, Settings, read_settings
from ...store import StoreError, open_store
from ...store.store import MEMORY_TARGET
from ...strategies.profiles import profile_strategies
from ..clients.catalog import start_lines
from ..command_errors import InputError, describe_os_error, error_location, print_error, print_warnings_once

if TYPE_CHECKING:
    from ...proxy.accounting.usage_writer import UsageWriter
    from ...proxy.listen_address import ListenAddress, RunSummary


def run_proxy(flags: Mapping[str, Any]) -> int:
    """Run the proxy until it is stopped. Prints the start lines and the summary line."""
    loaded_settings = load_settings(flags, environment.environment_variables())
    settings = loaded_settings.settings
    if line := loaded_settings.source_line():
        print_error(line)
    is_log_on_stdout = settings.json_log == "-"  # standard output then has only the JSON log

    def print_start(address: ListenAddress) -> None:
        printed_messages.add(address.trouble)
        try:
            click.echo("\n".join(_start_lines(address, settings)), err=is_log_on_stdout)
        except OSError as error:
            raise InputError(
                "standard error" if is_log_on_stdout else "standard output", describe_os_error(error)
            ) from None

    if settings.reuse_port:
        _check_reuse_port(settings)
    _check_store(settings)
    with print_warnings_once() as printed_messages:
        summary = select_loop_runner()(_serve_until_signal(settings, print_start))
    click.echo(summary.line(), err=is_log_on_stdout)
    return 0


def _check_reuse_port(settings: Settings) -> None:
    """Raise InputError if processes cannot share the port, or would not share the store."""
    if not hasattr(socket, "SO_REUSEPORT"):
        raise InputError("--reuse-port", "this system cannot share a port: use one process, or a port for each")
    if (settings.store or environment.store_target()) == MEMORY_TARGET:
        raise InputError(
            "--reuse-port",
            "processes cannot share a store in memory: pass a file or a redis:// URL with --store",
        )


def _check_store(settings: Settings) -> None:
    """Raise InputError if the profile evicts text and the store cannot be used: then it would never evict any."""
    if settings.observe or not any(each.revises for each in profile_strategies(settings.profile)):
        return
    try:
        with open_store(settings.store or environment.store_target()) as store:
            store.load("")
    except StoreError as error:
        remedy = f"Profile {settings.profile} stores evicted texts there: pass another store with --store"
        raise InputError(one_line(error.where), f"{one_line(error.what)}. {remedy}") from None


def select_loop_runner() -> Callable[[Coroutine[Any, Any, Any]], Any]:
    """Return the function that runs the event loop: uvloop's if installed.

    A missing package is reported later, by `serve_until_stopped`.
    """
    try:
        from ...proxy.edge.server import run_loop as run_loop
    except ModuleNotFoundError:
        return asyncio.run
    return run_loop


def load_settings(flags: Mapping[str, Any], environment: Mapping[str, str]) -> LoadedSettings:
    """Load the settings from options, environment and files. Raises InputError."""
    try:
        return read_settings(flags, environment, current_folder(), _config_folder())
    except IbidemError as error:
        raise to_input_error(error) from None


def current_folder() -> Path | None:
    """Return the current folder; None if it was deleted or is not accessible."""
    try:
        return Path.cwd()
    except OSError:
        return None


def _config_folder() -> Path | None:
    """Return the user's configuration folder; None without a home. Raises IbidemError if its path is relative.

    A relative path would depend on the current folder, so it could be another user's file.
    """
    try:
        folder = environment.config_folder()
    except IbidemError:
        return None
    if not folder.is_absolute():
        raise IbidemError(f"{one_line(str(folder))}: HOME or XDG_CONFIG_HOME is not an absolute path: start it with /")
    return folder


def to_input_error(error: IbidemError) -> InputError:
    """Convert an error with the message "where: what" to an InputError."""
    where, _, what = str(error).partition(": ")
    return InputError(where, what)


async def serve_until_stopped(
    settings: Settings,
    ready: Callable[[ListenAddress], None],
    stop: asyncio.Event,
    project: str = "",
    **server_options: Any,
) -> RunSummary:
    """Serve until `stop` is set. Raises InputError if that is impossible.

    `project` is recorded with the usage of requests. `server_options` is passed to the server.
    """
    try:
        from ...proxy.edge.server import serve_proxy  # needs packages of the extra `proxy`
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("ibidem"):
            raise
        raise InputError(
            error.name or "aiohttp", f"not installed. Run: {environment.install_command('proxy')}"
        ) from None
    except ImportError as error:  # installed, but broken
        remedy = environment.install_command("proxy", "--force-reinstall")
        raise InputError(error.name or "aiohttp", f"cannot be loaded ({one_line(str(error))}): {remedy}") from None
    try:
        usage_writer = _open_usage_writer(settings, project)
        return await serve_proxy(
            settings, ready=ready, stop=stop, pauses=load_idle_times(), gains=usage_writer, **server_options
        )
    except OSError as error:
        raise listen_error(error, settings) from None
    except IbidemError as error:
        raise to_input_error(error) from None


def listen_error(error: OSError, settings: Settings) -> InputError:
    """Convert an error of opening the port or a file to an InputError."""
    if error.filename is not None:
        return InputError(one_line(error_location(error)), describe_os_error(error))
    return InputError(f"{one_line(settings.host)} port {settings.port}", _describe_listen_error(error))


def _open_usage_writer(settings: Settings, project: str) -> UsageWriter | None:
    """Open the usage database for writing; None if it is turned off or the user has no home."""
    from ...proxy.accounting.usage_writer import UsageWriter
    from ...usage_db import database_path

    try:
        return UsageWriter(database_path(), project) if settings.ledger else None
    except IbidemError:
        return None


async def _serve_until_signal(settings: Settings, announce: Callable[[ListenAddress], None]) -> RunSummary:
    stop, drain = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    def stop_on_signal(number: int) -> None:
        stop.set()
        loop.remove_signal_handler(number)  # a second signal ends the process at once

    with suppress(NotImplementedError):  # on Windows, an interrupt ends the process at once
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # a closed terminal sends the last one
            loop.add_signal_handler(number, stop_on_signal, number)
        loop.add_signal_handler(signal.SIGUSR1, drain.set)
    return await serve_until_stopped(settings, announce, stop, drain=drain)


_LISTEN_ERRORS = {
    errno.EADDRINUSE: "this port is in use: use another with --port, or 0 for a free one",
    errno.EACCES: "no permission for this port: use one above 1023 with --port",
    errno.EADDRNOTAVAIL: "this machine has no such address: use --host 127.0.0.1",
}


def _describe_listen_error(error: OSError) -> str:
    if isinstance(error, socket.gaierror):
        return _LISTEN_ERRORS[errno.EADDRNOTAVAIL]
    return _LISTEN_ERRORS.get(error.errno or 0) or f"{one_line(error.strerror or str(error))}: use another with --port"


_TEXT_ACCESS_NOTES = {
    "token": "To see texts, send x-ibidem-page-token too, or open the page with page_token= in its URL.",
    "none": "The page does not show texts.",
}


def _trial_line(share: float) -> str:
    sentence = f"Trial: a random {100 * share:g}% of conversations are rewritten, the others are only measured."
    return f"{sentence} `ibidem gain --trial` compares them."


def _start_lines(address: ListenAddress, settings: Settings) -> list[str]:
    url = address.url
    activity = "Observing" if settings.observe else f"Rewriting with profile {settings.profile}"
    cache_note = f", cache {settings.cache_mode}" if settings.cache_mode != "off" else ""
    return [
        f"{activity}{cache_note}, on {url}",
        f"Requests, cost and savings: {url}/ibidem",
        "",
        *(f"  {line}" for line in start_lines(url)),
        "",
        *([_trial_line(settings.trial)] if settings.trial is not None else []),
        *([f"Requests are sent through {', '.join(address.egress)}."] if address.egress else []),
        *([address.trouble] if address.trouble else []),
        *([f"All texts are recorded in {one_line(settings.record)}"] if settings.record else []),
        *(["Clients must send the header x-ibidem-token."] if settings.token else []),
        *([_TEXT_ACCESS_NOTES[settings.text_access]] if settings.text_access in _TEXT_ACCESS_NOTES else []),
        "Stop with Ctrl-C.",
    ]
