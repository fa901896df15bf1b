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
from ...proxy.accounting.summary_line import NO_REQUESTS
from ...proxy.settings import Settings, check_flags, explicit_upstreams, inherit_upstreams
from ...render.number_format import plural
from ..clients.catalog import client_table, prepare_client
from ..clients.client_setup import VARIABLES, ClientContext, ClientSetup, is_own_address, start_command
from ..command_errors import InputError, bug_message, describe_os_error, error_location, print_error
from ..detach import detach_advice
from ..proxy.serve import current_folder, load_settings, serve_until_stopped, to_input_error
from ..subprocesses import describe_start_error, exit_code_of, exit_like_program, find_program

if TYPE_CHECKING:
    from ...proxy.edge.server import ListenAddress, RunSummary

START_SECONDS = 30.0
STOP_SECONDS = 10.0
"""Seconds that the proxy may take to start and to stop."""


WHY_NO_REQUESTS = "the command made no model calls, or uses its own base URL or login (see ibidem wrap --list)"

PROXY_ONLY_SETTINGS = {"host", "port", "reuse_port", "token", "websockets"}
"""Settings that apply only to `ibidem proxy`. The proxy of `wrap` serves one command and selects its own port."""


def print_clients(command: Sequence[str], flags: Mapping[str, Any]) -> int:
    """Print the clients and upstreams of `wrap --list`."""
    _check_flags(flags)
    settings, _, setup, line = _load_settings(command, flags, environment.environment_variables())
    click.echo("\n".join(client_table(setup, settings.upstreams)))
    _print_lines(line, *setup.notices)
    return 0


def run_wrapped(command: Sequence[str], flags: Mapping[str, Any]) -> int:
    """Run a command with its own proxy. Returns its exit code."""
    _check_flags(flags)
    try:
        program = find_program(command[0])
    except OSError as error:
        _print_lines(f"{one_line(command[0])}: {describe_start_error(error)}")
        return exit_code_of(error)
    signals = _block_signals()
    variables_before = environment.environment_variables()
    try:
        settings, context, setup, line = _load_settings(command, flags, variables_before)
        if not setup.variables:  # the client cannot be routed, so a proxy would be useless
            _print_lines(*setup.notices)
            return exit_like_program(_run_command(program, command, variables_before, signals))
        proxy, routed_command, variables = _start_routed(settings, context, setup)
    except Exception as error:  # fail open: running the command matters more than the proxy
        _print_lines(f"the proxy could not start, the command runs without it: {_describe_error(error)}")
        return exit_like_program(_run_command(program, command, variables_before, signals))
    try:
        _print_lines(line, *setup.notices)
        code = _run_command(program, routed_command, variables, signals)
    finally:
        line = proxy.stop()
    _print_lines(line, proxy.advice)
    return exit_like_program(code)


def _check_flags(flags: Mapping[str, Any]) -> None:
    """Raise for invalid options, before the command runs."""
    if flags.get("json_log") == "-":
        raise click.UsageError("--json-log - would mix with the output of the command: pass a file")
    try:
        check_flags(flags)
    except IbidemError as error:
        raise to_input_error(error) from None


def _start_routed(
    settings: Settings, context: ClientContext, setup: ClientSetup
) -> tuple[BackgroundProxy, list[str], dict[str, str]]:
    """Start the proxy. Return it with the command and the environment that route the client through it."""
    _log_to_file()
    proxy, url = _start_proxy(settings)
    try:
        proxy.folder = _create_temporary_folder(setup, url)
        return proxy, *start_command(context, setup, url, proxy.folder, settings.upstreams)
    except BaseException:
        proxy.stop()
        raise


def _create_temporary_folder(setup: ClientSetup, url: str) -> str:
    """Create a folder with the configuration files for this run; return "" if there are none.

    Only this user can read the files: they may be copies of files with API keys.
    """
    if not setup.files:
        return ""
    import tempfile

    folder = tempfile.mkdtemp(prefix="ibidem-")
    try:
        for name, text in setup.files.items():
            handle = os.open(Path(folder) / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with open(handle, "w", encoding="utf-8", newline="") as file:
                file.write(text.replace("{url}", url).replace("{folder}", folder))
    except BaseException:
        _delete_folder(folder)
        raise
    return folder


def _delete_folder(folder: str) -> None:
    import shutil

    shutil.rmtree(folder, ignore_errors=True)


def _describe_error(error: Exception) -> str:
    if isinstance(error, click.ClickException):
        return error.format_message()
    if isinstance(error, OSError):
        return f"{error_location(error) if error.filename is not None else 'proxy'}: {describe_os_error(error)}"
    return str(error) if isinstance(error, IbidemError) else bug_message(error)


def _print_lines(*lines: str) -> None:
    with suppress(OSError, ValueError):  # standard error may be closed
        for line in filter(None, lines):
            print_error(line)


def _load_settings(
    command: Sequence[str], flags: Mapping[str, Any], environment: Mapping[str, str]
) -> tuple[Settings, ClientContext, ClientSetup, str]:
    port = flags.get("port") or 0
    variable_names = {each.name for each in VARIABLES}
    inherited_variables = {
        name: text
        for name, text in environment.items()
        if name not in variable_names or not _is_own_address(text, port)
    }
    context = ClientContext(
        tuple(command), inherited_variables, current_folder() or Path(os.sep), explicit_upstreams(flags, environment)
    )
    try:
        setup = prepare_client(context)
    except IbidemError as error:
        raise to_input_error(error) from None
    flags = {**flags, "host": "127.0.0.1", "port": port, "websockets": bool(flags.get("websockets"))}
    loaded_settings = load_settings(flags, inherit_upstreams(inherited_variables, setup.upstreams))
    context = replace(context, environment=environment)
    settings = msgspec.structs.replace(loaded_settings.settings, token=None, reuse_port=False)
    return settings, context, setup, loaded_settings.source_line(PROXY_ONLY_SETTINGS)


def _is_own_address(text: str, port: int) -> bool:
    try:
        return port != 0 and is_own_address(text, port)
    except ValueError:
        return False


def _log_to_file() -> None:
    """Write warnings to `wrap.log`, because standard error belongs to the command. The first warning creates it."""
    logging.raiseExceptions = False
    logging.captureWarnings(True)
    try:
        handler: logging.Handler = _WrapLog(
            environment.cache_folder() / "wrap.log", maxBytes=2**20, backupCount=1, delay=True
        )
    except (IbidemError, OSError):
        handler = logging.NullHandler()  # the proxy works without a log
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    logging.getLogger().addHandler(handler)
    sys.unraisablehook = _log_unraisable


def _log_unraisable(unraisable: sys.UnraisableHookArgs) -> None:
    """Log an exception that Python cannot raise, such as in a finalizer. Python would print it on standard error."""
    logging.getLogger("ibidem").warning("ignored: %s in %r", unraisable.exc_type.__name__, unraisable.object)


class _WrapLog(RotatingFileHandler):
    def _open(self) -> IO[str]:  # type: ignore[override]
        Path(self.baseFilename).parent.mkdir(parents=True, exist_ok=True)
        # O_NONBLOCK: if the path is a named pipe, do not wait for a reader.
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | getattr(os, "O_NONBLOCK", 0)
        return os.fdopen(os.open(self.baseFilename, flags, 0o600), "a", encoding="utf-8", errors="backslashreplace")


# --- the proxy ----------------------------------------------------------------------------------


class BackgroundProxy:
    """A proxy in a thread of this process. It stops when the process is stopped or ends."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._started = time.time()
        self.folder = ""
        """Temporary folder to delete when it stops; "" if there is none."""
        self.advice = ""
        """How to continue the conversation without Ibidem. Set by `stop`; "" if no step is needed."""
        self._up: Future[str] = Future()
        self._end: Future[RunSummary] = Future()
        self._thread = threading.Thread(target=self._run_thread, name="ibidem proxy", daemon=True)

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
            _delete_folder(self.folder)
        with suppress(RuntimeError):  # the event loop has already ended
            self._loop.call_soon_threadsafe(self._stop.set)
        try:
            summary = self._end.result(STOP_SECONDS)
            self.advice = detach_advice(summary.state, self._started)
            return _summary_line(summary)
        except TimeoutError as error:
            logging.getLogger("ibidem").warning("the proxy did not end", exc_info=error)
            return (
                f"the proxy did not stop within {STOP_SECONDS:.0f} s, "
                "so its savings are unknown: the store may be locked"
            )
        except Exception as error:
            logging.getLogger("ibidem").warning("the proxy did not end well", exc_info=error)
            return bug_message(error)

    def _run_thread(self) -> None:
        try:
            self._end.set_result(asyncio.run(self._serve_proxy()))
        except BaseException as error:
            if not self._up.done():
                self._up.set_exception(error)
            self._end.set_exception(error)

    async def _serve_proxy(self) -> RunSummary:
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()

        def report_ready(address: ListenAddress) -> None:
            from ...proxy.warmup import load_data  # imports all strategies

            self._up.set_result(address.url)
            threading.Thread(target=load_data, daemon=True).start()  # warm up while the command starts

        return await serve_until_stopped(self._settings, report_ready, self._stop, str(current_folder() or ""))


def _summary_line(summary: RunSummary) -> str:
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


def _start_proxy(settings: Settings) -> tuple[BackgroundProxy, str]:
    """Start a proxy. Try again if its free port is the port of an upstream, so that it does not call itself.

    That happens if an upstream was a proxy that has ended.
    """
    for _ in range(3):
        proxy = BackgroundProxy(settings)
        url = proxy.start()
        if not any(is_own_address(upstream, urlsplit(url).port or 0) for upstream in settings.upstreams.values()):
            return proxy, url
        proxy.stop()
    raise InputError("upstream", "this is the proxy's own address: pass another with --upstream")


# --- the command --------------------------------------------------------------------------------

SignalSet = frozenset[int]

POSIX = os.name == "posix"
FORWARDED_SIGNALS = ("INT", "QUIT", "TERM", "HUP", "TSTP", "TTIN", "TTOU", "CONT", "WINCH", "USR1", "USR2")
FATAL_SIGNALS = {"SIGINT", "SIGQUIT", "SIGTERM", "SIGHUP"}
"""Signals that end us if they arrive before the command has started."""


def _block_signals() -> SignalSet:
    """Block the signals that `_next_signal` reads, in this thread and in all threads started later."""
    if not POSIX:
        return frozenset()
    signals = frozenset(getattr(signal, f"SIG{name}") for name in FORWARDED_SIGNALS)
    signal.signal(signal.SIGCHLD, lambda *_: None)  # some systems discard SIGCHLD if it has no handler
    signal.pthread_sigmask(signal.SIG_BLOCK, {*signals, signal.SIGCHLD})
    return signals


def _run_command(program: str, command: Sequence[str], environment: Mapping[str, str], signals: SignalSet) -> int:
    """Run the command. Return its exit code, or minus the number of the signal that ended it."""
    if not POSIX:
        return _run_without_signals(program, command, environment)
    early_signals = [number for number in signal.sigpending() if signal.Signals(number).name in FATAL_SIGNALS]
    if early_signals:
        return -int(early_signals[0])
    try:
        child = _spawn_child(program, command, environment, signals)
    except OSError as error:
        _print_lines(f"{one_line(command[0])}: {describe_start_error(error)}")
        return exit_code_of(error)
    while True:
        number, is_only_for_us = _wait_for_signal(signals)
        if number == signal.SIGCHLD:
            pid, status = os.waitpid(child, os.WNOHANG | os.WUNTRACED)
            if pid and os.WIFSTOPPED(status):
                os.kill(os.getpid(), signal.SIGSTOP)
            elif pid:
                return os.waitstatus_to_exitcode(status)
        elif is_only_for_us:
            with suppress(ProcessLookupError):
                os.kill(child, number)


def _spawn_child(program: str, command: Sequence[str], environment: Mapping[str, str], signals: SignalSet) -> int:
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, ()) - signals - {signal.SIGCHLD}
    default_signals = [
        getattr(signal, name) for name in ("SIGPIPE", "SIGXFSZ") if hasattr(signal, name)
    ]  # Python ignores them
    try:
        return os.posix_spawn(program, list(command), environment, setsigmask=mask, setsigdef=default_signals)
    except OSError as error:
        if error.errno != errno.ENOEXEC:
            raise
    shell = ["/bin/sh", program, *command[1:]]  # a script without a `#!` line
    return os.posix_spawn(shell[0], shell, environment, setsigmask=mask, setsigdef=default_signals)


def _wait_for_signal(signals: SignalSet) -> tuple[int, bool]:
    """Wait for a signal. Return it, and whether it was sent only to us and not by the terminal to the whole group."""
    awaited: set[int] = {*signals, signal.SIGCHLD}
    if hasattr(signal, "sigwaitinfo"):
        info = signal.sigwaitinfo(awaited)
        # A closed terminal sends SIGHUP only to the session leader, which may be us.
        is_session_leader = info.si_signo == signal.SIGHUP and os.getsid(0) == os.getpid()
        return info.si_signo, info.si_code <= 0 or is_session_leader
    number = signal.sigwait(awaited)  # macOS does not report the sender
    return number, number in (signal.SIGTERM, signal.SIGHUP, signal.SIGCONT, signal.SIGUSR1, signal.SIGUSR2)


def _run_without_signals(program: str, command: Sequence[str], environment: Mapping[str, str]) -> int:
    with subprocess.Popen([program, *command[1:]], env=dict(environment)) as child:
        while True:
            with suppress(KeyboardInterrupt):  # the command got it too
                return child.wait()
