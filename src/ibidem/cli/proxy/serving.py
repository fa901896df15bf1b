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
from ...billing.pauses import load_pauses
from ...errors import IbidemError, one_line
from ...proxy.settings import Loaded, Settings, read
from ...store.store import MEMORY_TARGET
from ..clients.catalog import start_lines
from ..errors import InputError, place, reason, say, warnings_said

if TYPE_CHECKING:
    from ...proxy.address import Address, Summary
    from ...proxy.books.gains import GainsWriter


def run(flags: Mapping[str, Any]) -> int:
    """Run the proxy until it is stopped. Prints the start lines and the summary line."""
    found = loaded(flags, environment.variables())
    settings = found.settings
    if line := found.line():
        say(line)
    aside = settings.json_log == "-"  # standard output then has only the JSON log

    def announce(address: Address) -> None:
        said.add(address.trouble)
        try:
            click.echo("\n".join(_announced(address, settings)), err=aside)
        except OSError as error:
            raise InputError("standard error" if aside else "standard output", reason(error)) from None

    if settings.reuse_port:
        _refuse_lone_processes(settings)
    with warnings_said() as said:
        summary = loop_runner()(_until_stopped(settings, announce))
    click.echo(summary.line(), err=aside)
    return 0


def _refuse_lone_processes(settings: Settings) -> None:
    """Raise InputError if processes cannot share the port, or would not share the store."""
    if not hasattr(socket, "SO_REUSEPORT"):
        raise InputError("--reuse-port", "this system cannot share a port: use one process, or a port for each")
    if (settings.store or environment.store_target()) == MEMORY_TARGET:
        raise InputError(
            "--reuse-port",
            "processes cannot share a store in memory: pass a file or a redis:// URL with --store",
        )


def loop_runner() -> Callable[[Coroutine[Any, Any, Any]], Any]:
    """Return the function that runs the event loop: uvloop's if installed.

    A missing package is reported later, by `serve_until_stopped`.
    """
    try:
        from ...proxy.edge.server import run as run_loop
    except ModuleNotFoundError:
        return asyncio.run
    return run_loop


def loaded(flags: Mapping[str, Any], environment: Mapping[str, str]) -> Loaded:
    """Load the settings from options, environment and files. Raises InputError."""
    try:
        return read(flags, environment, current_folder(), _own_folder())
    except IbidemError as error:
        raise as_input_error(error) from None


def current_folder() -> Path | None:
    """Return the current folder; None if it was deleted or is not accessible."""
    try:
        return Path.cwd()
    except OSError:
        return None


def _own_folder() -> Path | None:
    """Return the user's configuration folder; None without a home. Raises IbidemError if its path is relative.

    A relative path would depend on the current folder, so it could be another user's file.
    """
    try:
        found = environment.config_folder()
    except IbidemError:
        return None
    if not found.is_absolute():
        raise IbidemError(f"{one_line(str(found))}: HOME or XDG_CONFIG_HOME is not an absolute path: start it with /")
    return found


def as_input_error(error: IbidemError) -> InputError:
    """Convert an error with the message "where: what" to an InputError."""
    where, _, what = str(error).partition(": ")
    return InputError(where, what)


async def served(
    settings: Settings, ready: Callable[[Address], None], stop: asyncio.Event, project: str = "", **more: Any
) -> Summary:
    """Serve until `stop` is set. Raises InputError if that is impossible.

    `project` is recorded with the usage of requests. `more` is passed to the server.
    """
    try:
        from ...proxy.edge.server import serve  # needs packages of the extra `proxy`
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("ibidem"):
            raise
        raise InputError(
            error.name or "aiohttp", f"not installed. Run: {environment.install_command('proxy')}"
        ) from None
    except ImportError as error:  # installed, but broken
        way_out = environment.install_command("proxy", "--force-reinstall")
        raise InputError(error.name or "aiohttp", f"cannot be loaded ({one_line(str(error))}): {way_out}") from None
    try:
        gains = _gains(settings, project)
        return await serve(settings, ready=ready, stop=stop, pauses=load_pauses(), gains=gains, **more)
    except OSError as error:
        raise not_served(error, settings) from None
    except IbidemError as error:
        raise as_input_error(error) from None


def not_served(error: OSError, settings: Settings) -> InputError:
    """Convert an error of opening the port or a file to an InputError."""
    if error.filename is not None:
        return InputError(one_line(place(error)), reason(error))
    return InputError(f"{one_line(settings.host)} port {settings.port}", _cannot_listen(error))


def _gains(settings: Settings, project: str) -> GainsWriter | None:
    """Open the usage database for writing; None if it is turned off or the user has no home."""
    from ...gains import path
    from ...proxy.books.gains import GainsWriter

    try:
        return GainsWriter(path(), project) if settings.ledger else None
    except IbidemError:
        return None


async def _until_stopped(settings: Settings, announce: Callable[[Address], None]) -> Summary:
    stop, drain = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    def asked(number: int) -> None:
        stop.set()
        loop.remove_signal_handler(number)  # a second signal ends the process at once

    with suppress(NotImplementedError):  # on Windows, an interrupt ends the process at once
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # a closed terminal sends the last one
            loop.add_signal_handler(number, asked, number)
        loop.add_signal_handler(signal.SIGUSR1, drain.set)
    return await served(settings, announce, stop, drain=drain)


_LISTENING = {
    errno.EADDRINUSE: "this port is in use: use another with --port, or 0 for a free one",
    errno.EACCES: "no permission for this port: use one above 1023 with --port",
    errno.EADDRNOTAVAIL: "this machine has no such address: use --host 127.0.0.1",
}


def _cannot_listen(error: OSError) -> str:
    if isinstance(error, socket.gaierror):
        return _LISTENING[errno.EADDRNOTAVAIL]
    return _LISTENING.get(error.errno or 0) or f"{one_line(error.strerror or str(error))}: use another with --port"


_TEXTS = {
    "token": "To see texts, send x-ibidem-page-token too, or open the page with page_token= in its URL.",
    "none": "The page does not show texts.",
}


def _tried(share: float) -> str:
    said = f"Trial: a random {100 * share:g}% of conversations are rewritten, the others are only measured."
    return f"{said} `ibidem gain --trial` compares them."


def _announced(address: Address, settings: Settings) -> list[str]:
    url = address.url
    does = "Observing" if settings.observe else f"Rewriting with profile {settings.profile}"
    marks = f", cache {settings.asks_to_keep}" if settings.asks_to_keep != "off" else ""
    return [
        f"{does}{marks}, on {url}",
        f"Requests, cost and savings: {url}/ibidem",
        "",
        *(f"  {line}" for line in start_lines(url)),
        "",
        *([_tried(settings.trial)] if settings.trial is not None else []),
        *([f"Requests are sent through {', '.join(address.egress)}."] if address.egress else []),
        *([address.trouble] if address.trouble else []),
        *([f"All texts are recorded in {one_line(settings.record)}"] if settings.record else []),
        *(["Clients must send the header x-ibidem-token."] if settings.token else []),
        *([_TEXTS[settings.text_access]] if settings.text_access in _TEXTS else []),
        "Stop with Ctrl-C.",
    ]
