"""Run an MCP server on standard input and output, with the gateway between it and its client.

Two threads, one for each direction, read and write bytes. A side that does not read blocks only the side that writes
to it, as on a direct connection. The server inherits our standard error. If one side closes a stream, the same stream
is closed for the other side. When the server ends, the gateway ends with its exit code after the client has read all
output. Signals are forwarded to the server. After it has ended, they end the gateway, unless the client still reads.
"""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from io import FileIO
from typing import cast

from .line_framing import MAX_MESSAGE_BYTES, Frame, LineFraming
from .mcp_session import McpSession

CHUNK_BYTES = 2**16
DRAIN_SECONDS = 1.0
"""An ended server may leave a process that holds its output open. After this time without output, stop reading."""
POLL_SECONDS = 0.05
PATIENCE_SECONDS = 2.0
"""A client that has read nothing for this long does not read. After a signal, the gateway no longer waits for it."""

POSIX = os.name == "posix"
FORWARDED_SIGNALS = ("INT", "QUIT", "TERM", "HUP", "USR1", "USR2")
_DEATH_SIGNAL = 1
"""PR_SET_PDEATHSIG, on Linux."""
_IN, _OUT = 0, 1
SignalNumbers = frozenset[int]


class StdioBridge:
    """Gateway for one server process and the client at our standard input and output."""

    def __init__(self, session: McpSession, most: int = MAX_MESSAGE_BYTES) -> None:
        self._session = session
        self._most = most
        self._session_lock = threading.Lock()
        self._write_lock = threading.Lock()
        """Held while a message to the client is written, so that our own responses do not split it."""
        self._is_waiting = False
        """True if all output of the server is forwarded and the gateway waits for more."""
        self._read_at = 0.0
        """When the client last read something."""

    def run(self, command: Sequence[str], program: str) -> int:
        """Run the server and return its exit code, negative for a signal. Raises OSError if it cannot be started."""
        signals = _block_signals()
        server = _start_server(command, program, signals)
        request_thread = threading.Thread(
            target=self._forward_to_server, args=(cast(FileIO, server.stdin),), daemon=True
        )
        response_thread = threading.Thread(
            target=self._forward_to_client, args=(cast(FileIO, server.stdout),), daemon=True
        )
        request_thread.start()
        response_thread.start()
        code = _wait_for_server(server, signals)
        self._wait_for_reader(response_thread, signals)
        return code

    def _wait_for_reader(self, answers: threading.Thread, watched: SignalNumbers) -> None:
        """Wait until the client has read all output of the ended server, unless a signal ends the gateway."""
        last_output, signal_time = time.monotonic(), 0.0
        while answers.is_alive():
            answers.join(POLL_SECONDS)
            now = time.monotonic()
            if not self._is_waiting:
                last_output = now
            elif now - last_output > DRAIN_SECONDS:
                return
            signal_time = signal_time or (now if _has_pending_signal(watched) else 0.0)
            if signal_time and now - max(signal_time, self._read_at) > PATIENCE_SECONDS:
                return

    def _forward_to_server(self, server: FileIO) -> None:
        framing = LineFraming(self._most)
        with suppress(OSError):  # the server has closed its input
            while data := os.read(_IN, CHUNK_BYTES):
                self._forward_requests(framing.feed(data), server.fileno())
            self._forward_requests(framing.flush(), server.fileno())
        with suppress(OSError):
            server.close()
        _close_stream(_IN)

    def _forward_requests(self, pieces: Iterable[Frame], server: int) -> None:
        forwarded, own_responses = [], []
        with self._session_lock:
            for data, whole in pieces:
                if whole:
                    targets = self._session.from_client(data, time.monotonic())
                    forwarded.append(targets.to_server)
                    own_responses.append(targets.to_client)
                else:
                    self._session.clear_memory()
                    forwarded.append(data)
        if any(own_responses):
            with self._write_lock:
                self._write_out(b"".join(own_responses))
        _write_all(server, b"".join(forwarded))

    def _forward_to_client(self, server: FileIO) -> None:
        framing, is_inside_message = LineFraming(self._most), False
        with suppress(OSError):  # the client has closed its input
            while data := self._read_server(server.fileno()):
                is_inside_message = self._forward_responses(framing.feed(data), is_inside_message)
            is_inside_message = self._forward_responses(framing.flush(), is_inside_message)
        if is_inside_message:
            self._write_lock.release()
        self._is_waiting = False
        with suppress(OSError):
            server.close()
        _close_stream(_OUT)

    def _read_server(self, server: int) -> bytes:
        self._is_waiting = True
        data = os.read(server, CHUNK_BYTES)
        self._is_waiting = False
        return data

    def _forward_responses(self, pieces: Iterable[Frame], amid: bool) -> bool:
        """Forward messages to the client. Return whether the output ends inside a message.

        Then this thread keeps the lock `_write_lock`, so that no other response is written into the message.
        """
        forwarded = []
        with self._session_lock:
            for data, whole in pieces:
                if not whole:
                    self._session.clear_memory()
                forwarded.append(self._session.from_server(data, time.monotonic()) if whole else data)
        out = b"".join(forwarded)
        if not out:
            return amid
        if not amid:
            self._write_lock.acquire()
        try:
            self._write_out(out)
        finally:
            amid = not out.endswith(b"\n")
            if not amid:
                self._write_lock.release()
        return amid

    def _write_out(self, data: bytes) -> None:
        """Write in chunks, so that `_read_at` shows whether the client reads."""
        for start in range(0, len(data), CHUNK_BYTES):
            _write_all(_OUT, data[start : start + CHUNK_BYTES])
            self._read_at = time.monotonic()


def _write_all(to: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(to, view) :]


def _close_stream(end: int) -> None:
    """Close one of our standard streams, so that the client notices. The null device keeps the number in use."""
    with open(os.devnull, "r+b", buffering=0) as nowhere, suppress(OSError):
        os.dup2(nowhere.fileno(), end)


# --- the server ---------------------------------------------------------------------------------


def _block_signals() -> SignalNumbers:
    """Block signals in this thread and all later ones. They stay pending until `_next_signal` reads them."""
    if not POSIX:
        return frozenset()
    watched = frozenset(getattr(signal, f"SIG{name}") for name in FORWARDED_SIGNALS)
    signal.pthread_sigmask(signal.SIG_BLOCK, {*watched, signal.SIGCHLD})
    return watched


def _start_server(command: Sequence[str], program: str, watched: SignalNumbers) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [program, *command[1:]],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        bufsize=0,
        preexec_fn=_child_setup(watched) if POSIX else None,  # no thread runs yet
    )


def _child_setup(watched: SignalNumbers) -> Callable[[], None]:
    """Return the setup for the server's process: unblock signals, and on Linux end the server if we are killed."""
    prctl = _load_prctl()

    def prepare_child() -> None:
        if prctl is not None:
            prctl(_DEATH_SIGNAL, int(signal.SIGKILL))
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {*watched, signal.SIGCHLD})

    return prepare_child


def _load_prctl() -> Callable[[int, int], int] | None:
    try:
        import ctypes

        return cast("Callable[[int, int], int]", ctypes.CDLL(None).prctl)
    except (ImportError, OSError, AttributeError):
        return None


def _wait_for_server(server: subprocess.Popen[bytes], watched: SignalNumbers) -> int:
    """Wait until the server ends, and forward our signals to it."""
    while not POSIX:
        with suppress(KeyboardInterrupt):  # the server got it too
            return server.wait()
    while server.poll() is None:
        number, ours_alone = _next_signal(watched)
        if number != signal.SIGCHLD and ours_alone:
            server.send_signal(number)
    return server.returncode


def _has_pending_signal(watched: SignalNumbers) -> bool:
    """Return whether a signal is pending after the server has ended."""
    return bool(watched) and not watched.isdisjoint(signal.sigpending())


def _next_signal(watched: SignalNumbers) -> tuple[int, bool]:
    """Return the next signal, and whether only we got it (a terminal signals the whole process group)."""
    awaited: set[int] = {*watched, signal.SIGCHLD}
    if hasattr(signal, "sigwaitinfo"):
        info = signal.sigwaitinfo(awaited)
        return info.si_signo, info.si_code <= 0
    number = signal.sigwait(awaited)  # macOS does not report the sender
    return number, number in (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
