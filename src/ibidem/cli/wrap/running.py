"""Run a proxy in a thread, and the wrapped command as a child process that behaves as without us.

The child is in our process group, so the terminal belongs to both: input, window sizes, Ctrl-C and Ctrl-Z reach it from
the kernel. We get the same signals and ignore them. Signals that another process sent only to us are forwarded to the
child. If the child stops, we stop too, so the shell sees a stopped job. At its end, we return its exit code or signal.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import replace
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any
from urllib.parse import urlsplit

import click
import msgspec

from ... import environment
from ...errors import IbidemError, one_line
from ...proxy.books.closing import NO_REQUESTS
from ...proxy.settings import Settings, check, inherited, told
from ...render.number_format import plural
from ..clients.catalog import client_table, prepare_client
from ..clients.setup import VARIABLES, ClientContext, ClientSetup, is_own_address, start_command
from ..detach import detach_advice
from ..errors import InputError, our_fault, place, reason, say
from ..programs import end_as, exit_code_of, found_program, why_not_run
from ..proxy.serving import as_input_error, current_folder, loaded, served

if TYPE_CHECKING:
    from ...proxy.edge.server import Address, Summary

START_SECONDS = 30.0
STOP_SECONDS = 10.0
"""Seconds that the proxy may take to start and to stop."""


WHY_NO_REQUESTS = "the command made no model calls, or uses its own base URL or login (see ibidem wrap --list)"

PROXY_ONLY_SETTINGS = {"host", "port", "reuse_port", "token", "websockets"}
"""Settings that apply only to `ibidem proxy`. The proxy of `wrap` serves one command and selects its own port."""


def show(command: Sequence[str], flags: Mapping[str, Any]) -> int:
    """Print the clients and upstreams of `wrap --list`."""
    _refuse(flags)
    settings, _, setup, line = _settings(command, flags, environment.variables())
    click.echo("\n".join(client_table(setup, settings.upstreams)))
    _say(line, *setup.notices)
    return 0


def run(command: Sequence[str], flags: Mapping[str, Any]) -> int:
    """Run a command with its own proxy. Returns its exit code."""
    _refuse(flags)
    try:
        program = found_program(command[0])
    except OSError as error:
        _say(f"{one_line(command[0])}: {why_not_run(error)}")
        return exit_code_of(error)
    watched = _take_signals()
    given = environment.variables()
    try:
        settings, context, setup, line = _settings(command, flags, given)
        if not setup.variables:  # the client cannot be routed, so a proxy would be useless
            _say(*setup.notices)
            return end_as(_run(program, command, given, watched))
        proxy, ready, variables = _led(settings, context, setup)
    except Exception as error:  # fail open: running the command matters more than the proxy
        _say(f"the proxy could not start, the command runs without it: {_why(error)}")
        return end_as(_run(program, command, given, watched))
    try:
        _say(line, *setup.notices)
        code = _run(program, ready, variables, watched)
    finally:
        line = proxy.stop()
    _say(line, proxy.advice)
    return end_as(code)


def _refuse(flags: Mapping[str, Any]) -> None:
    """Raise for invalid options, before the command runs."""
    if flags.get("json_log") == "-":
        raise click.UsageError("--json-log - would mix with the output of the command: pass a file")
    try:
        check(flags)
    except IbidemError as error:
        raise as_input_error(error) from None


def _led(
    settings: Settings, context: ClientContext, setup: ClientSetup
) -> tuple[Background, list[str], dict[str, str]]:
    """Start the proxy. Return it with the command and the environment that route the client through it."""
    _log_aside()
    proxy, url = _started(settings)
    try:
        proxy.folder = _temporary_folder(setup, url)
        return proxy, *start_command(context, setup, url, proxy.folder, settings.upstreams)
    except BaseException:
        proxy.stop()
        raise


def _temporary_folder(setup: ClientSetup, url: str) -> str:
    """Create a folder with the configuration files for this run; return "" if there are none.

    Only this user can read the files: they may be copies of files with API keys.
    """
    if not setup.files:
        return ""
    import tempfile

    folder = tempfile.mkdtemp(prefix="ibidem-")
    try:
        for name, text in setup.files.items():
            opened = os.open(Path(folder) / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with open(opened, "w", encoding="utf-8", newline="") as file:
                file.write(text.replace("{url}", url).replace("{folder}", folder))
    except BaseException:
        _delete(folder)
        raise
    return folder


def _delete(folder: str) -> None:
    import shutil

    shutil.rmtree(folder, ignore_errors=True)


def _why(error: Exception) -> str:
    if isinstance(error, click.ClickException):
        return error.format_message()
    if isinstance(error, OSError):
        return f"{place(error) if error.filename is not None else 'proxy'}: {reason(error)}"
    return str(error) if isinstance(error, IbidemError) else our_fault(error)


def _say(*lines: str) -> None:
    with suppress(OSError, ValueError):  # standard error may be closed
        for line in filter(None, lines):
            say(line)


def _settings(
    command: Sequence[str], flags: Mapping[str, Any], environment: Mapping[str, str]
) -> tuple[Settings, ClientContext, ClientSetup, str]:
    port = flags.get("port") or 0
    known = {each.name for each in VARIABLES}
    before = {name: text for name, text in environment.items() if name not in known or not _is_own_address(text, port)}
    context = ClientContext(tuple(command), before, current_folder() or Path(os.sep), told(flags, environment))
    try:
        setup = prepare_client(context)
    except IbidemError as error:
        raise as_input_error(error) from None
    flags = {**flags, "host": "127.0.0.1", "port": port, "websockets": bool(flags.get("websockets"))}
    found = loaded(flags, inherited(before, setup.upstreams))
    context = replace(context, environment=environment)
    settings = msgspec.structs.replace(found.settings, token=None, reuse_port=False)
    return settings, context, setup, found.line(PROXY_ONLY_SETTINGS)


def _is_own_address(text: str, port: int) -> bool:
    try:
        return port != 0 and is_own_address(text, port)
    except ValueError:
        return False


def _log_aside() -> None:
    """Write warnings to `wrap.log`, because standard error belongs to the command. The first warning creates it."""
    logging.raiseExceptions = False
    logging.captureWarnings(True)
    try:
        handler: logging.Handler = _Log(
            environment.cache_folder() / "wrap.log", maxBytes=2**20, backupCount=1, delay=True
        )
    except (IbidemError, OSError):
        handler = logging.NullHandler()  # the proxy works without a log
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    logging.getLogger().addHandler(handler)
    sys.unraisablehook = _aside


def _aside(found: sys.UnraisableHookArgs) -> None:
    """Log an exception that Python cannot raise, such as in a finalizer. Python would print it on standard error."""
    logging.getLogger("ibidem").warning("ignored: %s in %r", found.exc_type.__name__, found.object)


class _Log(RotatingFileHandler):
    def _open(self) -> IO[str]:  # type: ignore[override]
        Path(self.baseFilename).parent.mkdir(parents=True, exist_ok=True)
        # O_NONBLOCK: if the path is a named pipe, do not wait for a reader.
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | getattr(os, "O_NONBLOCK", 0)
        return os.fdopen(os.open(self.baseFilename, flags, 0o600), "a", encoding="utf-8", errors="backslashreplace")


# --- the proxy ----------------------------------------------------------------------------------


class Background:
    """A proxy in a thread of this process. It stops when the process is stopped or ends."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._started = time.time()
        self.folder = ""
        """Temporary folder to delete when it stops; "" if there is none."""
        self.advice = ""
        """How to continue the conversation without Ibidem. Set by `stop`; "" if no step is needed."""
        self._up: Future[str] = Future()
        self._end: Future[Summary] = Future()
        self._thread = threading.Thread(target=self._run, name="ibidem proxy", daemon=True)

    def start(self) -> str:
        """Start the proxy and return its address. Raises the error that prevents it."""
        self._thread.start()
        try:
            return self._up.result(START_SECONDS)
        except InputError:
            raise
        except Exception as error:
            logging.getLogger("ibidem").warning("the proxy did not start", exc_info=error)
            raise

    def stop(self) -> str:
        """Stop the proxy and return its summary line."""
        if self.folder:
            _delete(self.folder)
        with suppress(RuntimeError):  # the event loop has already ended
            self._loop.call_soon_threadsafe(self._stop.set)
        try:
            summary = self._end.result(STOP_SECONDS)
            self.advice = detach_advice(summary.state, self._started)
            return _summed(summary)
        except TimeoutError as error:
            logging.getLogger("ibidem").warning("the proxy did not end", exc_info=error)
            return (
                f"the proxy did not stop within {STOP_SECONDS:.0f} s, "
                "so its savings are unknown: the store may be locked"
            )
        except Exception as error:
            logging.getLogger("ibidem").warning("the proxy did not end well", exc_info=error)
            return our_fault(error)

    def _run(self) -> None:
        try:
            self._end.set_result(asyncio.run(self._serve()))
        except BaseException as error:
            if not self._up.done():
                self._up.set_exception(error)
            self._end.set_exception(error)

    async def _serve(self) -> Summary:
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()

        def ready(address: Address) -> None:
            from ...proxy.warmup import load  # imports all strategies

            self._up.set_result(address.url)
            threading.Thread(target=load, daemon=True).start()  # warm up while the command starts

        return await served(self._settings, ready, self._stop, str(current_folder() or ""))


def _summed(summary: Summary) -> str:
    """Return the summary line, with the most frequent reason if requests could not be rewritten."""
    line, failures = summary.line(), summary.state["failures"]
    if line == NO_REQUESTS:
        return f"{line}: {WHY_NO_REQUESTS}"
    if failures:
        reason, count = failures[0]["reason"], sum(each["count"] for each in failures)
        line += f"; {plural(count, 'request')} forwarded without new edits: {reason}"
    if trouble := summary.state["ledger"]["trouble"]:
        line += f"; not saved for `ibidem gain`: {trouble}"
    return line


def _started(settings: Settings) -> tuple[Background, str]:
    """Start a proxy. Try again if its free port is the port of an upstream, so that it does not call itself.

    That happens if an upstream was a proxy that has ended.
    """
    for _ in range(3):
        proxy = Background(settings)
        url = proxy.start()
        if not any(is_own_address(upstream, urlsplit(url).port or 0) for upstream in settings.upstreams.values()):
            return proxy, url
        proxy.stop()
    raise InputError("upstream", "this is the proxy's own address: pass another with --upstream")


# --- the command --------------------------------------------------------------------------------

Watched = frozenset[int]

POSIX = os.name == "posix"
HANDED_ON = ("INT", "QUIT", "TERM", "HUP", "TSTP", "TTIN", "TTOU", "CONT", "WINCH", "USR1", "USR2")
FATAL_SIGNALS = {"SIGINT", "SIGQUIT", "SIGTERM", "SIGHUP"}
"""Signals that end us if they arrive before the command has started."""


def _take_signals() -> Watched:
    """Block the signals that `_next_signal` reads, in this thread and in all threads started later."""
    if not POSIX:
        return frozenset()
    watched = frozenset(getattr(signal, f"SIG{name}") for name in HANDED_ON)
    signal.signal(signal.SIGCHLD, lambda *_: None)  # some systems discard SIGCHLD if it has no handler
    signal.pthread_sigmask(signal.SIG_BLOCK, {*watched, signal.SIGCHLD})
    return watched


def _run(program: str, command: Sequence[str], environment: Mapping[str, str], watched: Watched) -> int:
    """Run the command. Return its exit code, or minus the number of the signal that ended it."""
    if not POSIX:
        return _run_elsewhere(program, command, environment)
    early = [number for number in signal.sigpending() if signal.Signals(number).name in FATAL_SIGNALS]
    if early:
        return -int(early[0])
    try:
        child = _spawned(program, command, environment, watched)
    except OSError as error:
        _say(f"{one_line(command[0])}: {why_not_run(error)}")
        return exit_code_of(error)
    while True:
        number, to_us_alone = _next_signal(watched)
        if number == signal.SIGCHLD:
            pid, status = os.waitpid(child, os.WNOHANG | os.WUNTRACED)
            if pid and os.WIFSTOPPED(status):
                os.kill(os.getpid(), signal.SIGSTOP)
            elif pid:
                return os.waitstatus_to_exitcode(status)
        elif to_us_alone:
            with suppress(ProcessLookupError):
                os.kill(child, number)


def _spawned(program: str, command: Sequence[str], environment: Mapping[str, str], watched: Watched) -> int:
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, ()) - watched - {signal.SIGCHLD}
    ours = [getattr(signal, name) for name in ("SIGPIPE", "SIGXFSZ") if hasattr(signal, name)]  # Python ignores them
    try:
        return os.posix_spawn(program, list(command), environment, setsigmask=mask, setsigdef=ours)
    except OSError as error:
        if error.errno != errno.ENOEXEC:
            raise
    shell = ["/bin/sh", program, *command[1:]]  # a script without a `#!` line
    return os.posix_spawn(shell[0], shell, environment, setsigmask=mask, setsigdef=ours)


def _next_signal(watched: Watched) -> tuple[int, bool]:
    """Wait for a signal. Return it, and whether it was sent only to us and not by the terminal to the whole group."""
    awaited: set[int] = {*watched, signal.SIGCHLD}
    if hasattr(signal, "sigwaitinfo"):
        info = signal.sigwaitinfo(awaited)
        # A closed terminal sends SIGHUP only to the session leader, which may be us.
        led = info.si_signo == signal.SIGHUP and os.getsid(0) == os.getpid()
        return info.si_signo, info.si_code <= 0 or led
    number = signal.sigwait(awaited)  # macOS does not report the sender
    return number, number in (signal.SIGTERM, signal.SIGHUP, signal.SIGCONT, signal.SIGUSR1, signal.SIGUSR2)


def _run_elsewhere(program: str, command: Sequence[str], environment: Mapping[str, str]) -> int:
    with subprocess.Popen([program, *command[1:]], env=dict(environment)) as child:
        while True:
            with suppress(KeyboardInterrupt):  # the command got it too
                return child.wait()
