"""A real `ibidem proxy` that gives requests back, and what is asked of a client that uses it."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise
from pathlib import Path
from typing import Any

import ibidem
from ibidem import formats
from ibidem.model import Text, ToolResult
from ibidem.testing import Seen

from .logs import Json, plain

ROOT = Path(__file__).parent.parent
PLUGINS = ROOT / "plugins"
PATIENT = {"IBIDEM_PATIENCE_MS": "60000"}
"""For a busy machine, where it is not the patience that is tested."""


class Served:
    """A proxy of its own, which can be killed."""

    def __init__(self, folder: Path, upstream: str = "", *options: str) -> None:
        command = [sys.executable, "-m", "ibidem.cli", "proxy", "--port", "0", "--store", str(folder / "store.sqlite3")]
        command += ["--upstream", f"anthropic={upstream}"] if upstream else []
        command += options
        variables = {**os.environ, "HOME": str(folder), "XDG_DATA_HOME": str(folder), "XDG_CONFIG_HOME": str(folder)}
        self.process = subprocess.Popen(
            command, env=variables, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        assert self.process.stdout is not None
        self.url = self.process.stdout.readline().split()[-1]

    def metrics(self) -> str:
        with urllib.request.urlopen(f"{self.url}/ibidem/metrics", timeout=60) as answer:
            found: bytes = answer.read()
            return found.decode()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


@contextmanager
def served(folder: Path, upstream: str = "", *options: str) -> Iterator[Served]:
    folder.mkdir(parents=True, exist_ok=True)
    found = Served(folder, upstream, *options)
    try:
        yield found
    finally:
        found.kill()
        if found.process.stdout is not None:
            found.process.stdout.close()


@contextmanager
def silent() -> Iterator[tuple[str, list[float]]]:
    """An address where requests are taken and never answered; and for how many seconds each was waited for."""
    waited = list[float]()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            start = time.monotonic()
            self.rfile.read(int(self.headers["content-length"]))
            self.connection.settimeout(60)
            with suppress(OSError):
                self.connection.recv(1)  # nothing comes but the end
            waited.append(time.monotonic() - start)
            self.close_connection = True

        def log_message(self, *_: Any) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        server.block_on_close = False
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}", waited
        finally:
            server.shutdown()


def history(seen: Seen, format: str) -> list[Json]:
    found: list[Json] = seen.json[formats.format_named(format).history_key]
    return found


def results(body: Any, format: str) -> list[str]:
    """Texts of all results, in order."""
    read = formats.format_named(format).read_message
    messages = [read(index, wire) for index, wire in enumerate(body[formats.format_named(format).history_key])]
    return ["\n".join(_texts(result)) for message in messages for result in message.results]


def _texts(result: ToolResult) -> list[str]:
    return [segment.text for segment in result.segments if isinstance(segment, Text)]


def rewritten(seen: Seen) -> bool:
    return b"[ibidem " in seen.text


def expanded(seen: Seen, format: str) -> Any:
    return ibidem.expand(seen.json, format=format)


def grows(seen: Sequence[Seen], format: str) -> None:
    """Each request begins as the one before it, but for cache marks, which move."""
    for before, after in pairwise(seen):
        one, other = plain(history(before, format)), plain(history(after, format))
        assert other[: len(one)] == one, "what was sent stays as it was sent"
