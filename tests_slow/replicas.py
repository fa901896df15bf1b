"""Several `ibidem proxy` on one Redis server behind nginx, as `deploy/nginx/ibidem.conf` sets that up."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parent.parent
CONFIGURATION = ROOT / "deploy" / "nginx" / "ibidem.conf"
PATIENCE = 180.0
"""Seconds for what must happen; on a busy machine it may take a while."""
BUDGET_MS = 120_000
"""No request is given up on because the machine is busy: that would be another test."""

MAIN = """
daemon off;
worker_processes 2;
pid {folder}/nginx.pid;
error_log {folder}/error.log notice;
events {{ worker_connections 1024; }}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    include {folder}/ibidem.conf;
}}
"""
"""Around the file that is documented: what nginx needs to run for somebody who is not root."""


def waited_for(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, f"{what} did not happen"
        time.sleep(0.02)


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


def listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


@contextmanager
def redis_server(folder: Path) -> Iterator[str]:
    """The address of a Redis server with nothing in it."""
    port = free_port()
    options = ["--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", str(folder)]
    with subprocess.Popen(["redis-server", *options], stdout=subprocess.DEVNULL) as process:
        try:
            waited_for(lambda: listens(port), "a Redis server that listens")
            yield f"redis://127.0.0.1:{port}/0"
        finally:
            process.kill()


@dataclass
class Replica:
    """One `ibidem proxy`, in a process of its own."""

    process: subprocess.Popen[bytes]
    port: int
    log: Path
    """One JSON object for each request."""
    seconds: float = 0.0
    """Of processor time, once it has ended."""

    def kill(self) -> None:
        self.end(signal.SIGKILL)

    def end(self, number: int = signal.SIGTERM) -> None:
        if self.process.returncode is not None:
            return
        os.kill(self.process.pid, number)
        _, status, used = os.wait4(self.process.pid, 0)
        self.process.returncode = os.waitstatus_to_exitcode(status)
        self.seconds = used.ru_utime + used.ru_stime


@dataclass
class Cluster:
    folder: Path
    profile: str
    store: str
    upstream: str
    port: int = field(default_factory=free_port)
    """Where nginx listens."""
    replicas: list[Replica] = field(default_factory=list)
    """All that ever were."""
    _nginx: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> Replica:
        """One more, which nginx does not know yet."""
        port, log = free_port(), self.folder / f"replica-{len(self.replicas)}.jsonl"
        given = {"port": port, "profile": self.profile, "store": self.store, "json-log": log, "budget-ms": BUDGET_MS}
        options = [part for name, value in given.items() for part in (f"--{name}", str(value))]
        options += [part for name in ("anthropic", "openai") for part in ("--upstream", f"{name}={self.upstream}")]
        with (self.folder / f"replica-{len(self.replicas)}.log").open("wb") as told:
            command = [sys.executable, "-m", "ibidem.cli", "proxy", "--no-ledger", *options]
            process = subprocess.Popen(command, stdout=told, stderr=told, env=os.environ | {"HOME": str(self.folder)})
        self.replicas.append(Replica(process, port, log))
        waited_for(lambda: listens(port), "a replica that listens")
        return self.replicas[-1]

    def serve(self, replicas: Sequence[Replica]) -> None:
        """Requests go to these from now on."""
        (self.folder / "ibidem.conf").write_text(configuration(self.port, [each.port for each in replicas]))
        if self._nginx is not None:
            workers = self._workers()
            self._nginx.send_signal(signal.SIGHUP)
            waited_for(lambda: bool(self._workers() - workers), "nginx that has read its file again")
            return
        main = self.folder / "nginx.conf"
        main.write_text(MAIN.format(folder=self.folder))
        command = [nginx(), "-p", str(self.folder), "-e", str(self.folder / "error.log"), "-c", str(main)]
        self._nginx = subprocess.Popen(command)
        waited_for(lambda: listens(self.port), "nginx that listens")

    def _workers(self) -> set[str]:
        assert self._nginx is not None
        found = Path(f"/proc/{self._nginx.pid}/task/{self._nginx.pid}/children").read_text()
        return set(found.split())

    def end(self) -> None:
        if self._nginx is not None:
            self._nginx.terminate()
            self._nginx.wait()
        for each in self.replicas:
            each.end()


def nginx() -> str:
    return shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin:/usr/local/sbin") or ""


def configuration(port: int, replicas: Sequence[int]) -> str:
    """The documented file, with other addresses in it."""
    servers = "".join(f"    server 127.0.0.1:{each};\n" for each in replicas)
    text, changed = re.subn(r"(?:^    server .*;\n)+", servers, CONFIGURATION.read_text(), count=1, flags=re.MULTILINE)
    text, listening = re.subn(r"listen .*;", f"listen 127.0.0.1:{port};", text)
    assert (changed, listening) == (1, 1), CONFIGURATION
    return text


@contextmanager
def cluster(folder: Path, profile: str, store: str, upstream: str, replicas: int) -> Iterator[Cluster]:
    found = Cluster(folder, profile, store, upstream)
    try:
        found.serve([found.start() for _ in range(replicas)])
        yield found
    finally:
        found.end()
