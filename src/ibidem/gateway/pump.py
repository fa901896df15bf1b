"""A server on standard input and output, and us between it and its client.

Two threads, one for each direction, read and write bytes and wait where a direct connection would: who does not read
holds up who writes to him, and nobody else. The server has our standard error. When either side closes its end, the
other learns of it on the same end; when the server ends, so do we once its client has read all, and the caller ends as
it did. Signals are the server's; once it has ended, they end us, unless its client goes on reading.
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

from .lines import MAX_MESSAGE_BYTES, Framed, LineFraming
from .session import McpSession

CHUNK_BYTES = 2**16
DRAIN_SECONDS = 1.0
"""A server that has ended may have left a process that holds its output open: silence for so long is the end."""
POLL_SECONDS = 0.05
PATIENCE_SECONDS = 2.0
"""What a client that reads has read something in. One that does not is waited for, but not where we are told to end."""

POSIX = os.name == "posix"
HANDED_ON = ("INT", "QUIT", "TERM", "HUP", "USR1", "USR2")
_DEATH_SIGNAL = 1
"""PR_SET_PDEATHSIG, on Linux."""
_IN, _OUT = 0, 1
Watched = frozenset[int]


class StdioPump:
    """One server that is run for one client, who has our standard input and output."""

    def __init__(self, session: McpSession, most: int = MAX_MESSAGE_BYTES) -> None:
        self._session = session
        self._most = most
        self._deciding = threading.Lock()
        self._writing = threading.Lock()
        """Held while a message to the client is written: an answer of our own goes between two of them."""
        self._waits = False
        """Nothing is left to pass on of what the server said."""
        self._read_at = 0.0
        """When the client last took something."""

    def run(self, command: Sequence[str], program: str) -> int:
        """The server's exit code, negative for a signal. OSError if it cannot be started."""
        watched = _take_signals()
        server = _started(command, program, watched)
        asks = threading.Thread(target=self._to_server, args=(cast(FileIO, server.stdin),), daemon=True)
        answers = threading.Thread(target=self._to_client, args=(cast(FileIO, server.stdout),), daemon=True)
        asks.start()
        answers.start()
        code = _wait(server, watched)
        self._drain(answers, watched)
        return code

    def _drain(self, answers: threading.Thread, watched: Watched) -> None:
        """All that the server said before it ended, however slowly the client reads, unless we are told to end."""
        quiet, told = time.monotonic(), 0.0
        while answers.is_alive():
            answers.join(POLL_SECONDS)
            now = time.monotonic()
            if not self._waits:
                quiet = now
            elif now - quiet > DRAIN_SECONDS:
                return
            told = told or (now if _is_told(watched) else 0.0)
            if told and now - max(told, self._read_at) > PATIENCE_SECONDS:
                return

    def _to_server(self, server: FileIO) -> None:
        framing = LineFraming(self._most)
        with suppress(OSError):  # the server reads no more
            while data := os.read(_IN, CHUNK_BYTES):
                self._ask(framing.feed(data), server.fileno())
            self._ask(framing.flush(), server.fileno())
        with suppress(OSError):
            server.close()
        _give_up(_IN)

    def _ask(self, pieces: Iterable[Framed], server: int) -> None:
        passed, own = [], []
        with self._deciding:
            for data, whole in pieces:
                if whole:
                    done = self._session.from_client(data, time.monotonic())
                    passed.append(done.to_server)
                    own.append(done.to_client)
                else:
                    self._session.unseen()
                    passed.append(data)
        if any(own):
            with self._writing:
                self._write_out(b"".join(own))
        _write(server, b"".join(passed))

    def _to_client(self, server: FileIO) -> None:
        framing, amid = LineFraming(self._most), False
        with suppress(OSError):  # the client reads no more
            while data := self._read(server.fileno()):
                amid = self._answer(framing.feed(data), amid)
            amid = self._answer(framing.flush(), amid)
        if amid:
            self._writing.release()
        self._waits = False
        with suppress(OSError):
            server.close()
        _give_up(_OUT)

    def _read(self, server: int) -> bytes:
        self._waits = True
        data = os.read(server, CHUNK_BYTES)
        self._waits = False
        return data

    def _answer(self, pieces: Iterable[Framed], amid: bool) -> bool:
        """Whether that ends in the middle of a message. Then nobody else writes to the client."""
        passed = []
        with self._deciding:
            for data, whole in pieces:
                if not whole:
                    self._session.unseen()
                passed.append(self._session.from_server(data, time.monotonic()) if whole else data)
        out = b"".join(passed)
        if not out:
            return amid
        if not amid:
            self._writing.acquire()
        try:
            self._write_out(out)
        finally:
            amid = not out.endswith(b"\n")
            if not amid:
                self._writing.release()
        return amid

    def _write_out(self, data: bytes) -> None:
        """Piece by piece, so that it is seen whether the client reads."""
        for start in range(0, len(data), CHUNK_BYTES):
            _write(_OUT, data[start : start + CHUNK_BYTES])
            self._read_at = time.monotonic()


def _write(to: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(to, view) :]


def _give_up(end: int) -> None:
    """Close one of our own ends, so that the client learns of it; its number stays taken."""
    with open(os.devnull, "r+b", buffering=0) as nowhere, suppress(OSError):
        os.dup2(nowhere.fileno(), end)


# --- the server ---------------------------------------------------------------------------------


def _take_signals() -> Watched:
    """From now on signals wait for us to ask, in every thread that starts later."""
    if not POSIX:
        return frozenset()
    watched = frozenset(getattr(signal, f"SIG{name}") for name in HANDED_ON)
    signal.pthread_sigmask(signal.SIG_BLOCK, {*watched, signal.SIGCHLD})
    return watched


def _started(command: Sequence[str], program: str, watched: Watched) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [program, *command[1:]],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        bufsize=0,
        preexec_fn=_as_without_us(watched) if POSIX else None,  # no thread runs yet
    )


def _as_without_us(watched: Watched) -> Callable[[], None]:
    """It gets its signals; and who kills us by force has killed it, where that can be had."""
    prctl = _prctl()

    def prepare() -> None:
        if prctl is not None:
            prctl(_DEATH_SIGNAL, int(signal.SIGKILL))
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {*watched, signal.SIGCHLD})

    return prepare


def _prctl() -> Callable[[int, int], int] | None:
    try:
        import ctypes

        return cast("Callable[[int, int], int]", ctypes.CDLL(None).prctl)
    except (ImportError, OSError, AttributeError):
        return None


def _wait(server: subprocess.Popen[bytes], watched: Watched) -> int:
    """Until it ends; signals to us go on to it."""
    while not POSIX:
        with suppress(KeyboardInterrupt):  # the server got it too
            return server.wait()
    while server.poll() is None:
        number, ours_alone = _next_signal(watched)
        if number != signal.SIGCHLD and ours_alone:
            server.send_signal(number)
    return server.returncode


def _is_told(watched: Watched) -> bool:
    """Whether a signal waits for us, now that there is no server to hand it on to."""
    return bool(watched) and not watched.isdisjoint(signal.sigpending())


def _next_signal(watched: Watched) -> tuple[int, bool]:
    """The next signal, and whether it was for us alone, rather than from a terminal to the whole group."""
    awaited: set[int] = {*watched, signal.SIGCHLD}
    if hasattr(signal, "sigwaitinfo"):
        info = signal.sigwaitinfo(awaited)
        return info.si_signo, info.si_code <= 0
    number = signal.sigwait(awaited)  # macOS does not tell who sent it
    return number, number in (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
