"""A real `ibidem proxy` without free file descriptors: it serves again afterwards, and its statistics are complete."""

from __future__ import annotations

import errno
import json
import os
import resource
import socket
import sqlite3
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from ibidem.proxy.accounting.live_stats import LiveStats
from ibidem.proxy.accounting.usage_writer import UsageWriter
from tests.support.processes import Connection, RunningProxy, running_proxies
from tests.support.proxied import PATHS, dumped, growing, talk, waited_for

pytestmark = [
    pytest.mark.slow,  # each starts processes
    pytest.mark.skipif(not hasattr(resource, "prlimit"), reason="limits of another process cannot be set here"),
]

LIMIT, CLIENTS = 60, 300
"""Descriptors of the process, and idle clients."""
USAGE_FILE = ".local/share/ibidem/gains.sqlite3"
WATCHED_SECONDS = 2.0
MAX_LOG_LINES = 20
STARTS = {
    "asyncio": "import sys; sys.modules['uvloop'] = None; from ibidem.cli import launch; launch()",
    "uvloop": "from ibidem.cli import launch; launch()",
}


def cpu_seconds(pid: int) -> float:
    ticks = sum(map(int, Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]))
    return ticks / os.sysconf("SC_CLK_TCK")


def set_limit(pid: int, limit: int) -> None:
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (limit, resource.prlimit(pid, resource.RLIMIT_NOFILE)[1]))


@contextmanager
def idle_clients(url: str) -> Iterator[list[socket.socket]]:
    parts = urlsplit(url)
    opened = [socket.socket() for _ in range(CLIENTS)]
    for each in opened:
        each.setblocking(False)
        each.connect_ex((parts.hostname, parts.port))
    try:
        yield opened
    finally:
        for each in opened:
            each.close()


def status(connection: Connection, body: Any, target: str = PATHS["anthropic"]) -> int:
    """HTTP status of the response, which must be JSON."""
    headers = {"content-type": "application/json", "x-api-key": "k"}
    connection._open.request("POST", target, dumped(body), headers)
    with connection._open.getresponse() as response:
        json.loads(response.read())
        return response.status


def usage_rows(file: Path) -> list[tuple[int, int, int]]:
    """Status, input tokens and whether there is a cost, of each request in the usage database."""
    with closing(sqlite3.connect(file)) as database:
        query = "SELECT status, fresh + read + written, paid IS NOT NULL FROM exchanges"
        return database.execute(query).fetchall()


def watch_log(found: RunningProxy) -> list[str]:
    """Lines of standard error, as they come."""
    lines: list[str] = []
    stream = found.process.stderr
    assert stream is not None
    threading.Thread(target=lambda: lines.extend(iter(stream.readline, "")), daemon=True).start()
    return lines


@contextmanager
def proxy(home: Path, loop: str) -> Iterator[tuple[RunningProxy, list[str]]]:
    with running_proxies(home, command=(sys.executable, "-c", STARTS[loop], "proxy")) as [found]:
        log = watch_log(found)
        yield found, log


@pytest.mark.parametrize("loop", STARTS)
def test_proxy_without_free_descriptors_recovers_and_counts_every_response(tmp_path: Path, loop: str) -> None:
    bodies = list(growing("anthropic", 20))
    with proxy(tmp_path, loop) as (found, log):
        pid = found.process.pid
        kept, other, page = found.connection(), found.connection(), found.connection()
        statuses = [status(kept, body) for body in bodies[:4]]
        page.ask("GET", "/ibidem/api/state")
        set_limit(pid, LIMIT)
        with idle_clients(found.url):
            late = found.connection()  # accepted after the others are gone
            waited_for(lambda: len(os.listdir(f"/proc/{pid}/fd")) > LIMIT // 2)
            spent = cpu_seconds(pid)
            time.sleep(WATCHED_SECONDS)
            assert cpu_seconds(pid) - spent < WATCHED_SECONDS / 4
            statuses += [status(kept, body) for body in bodies[4:8]]
            set_limit(pid, 3)  # now nothing can be opened: no upstream connection, no database
            with_one_connection = [status(kept, body) for body in bodies[8:12]]
            spent = cpu_seconds(pid)
            time.sleep(WATCHED_SECONDS)
            assert cpu_seconds(pid) - spent < WATCHED_SECONDS / 4
            assert json.loads(page.ask("GET", "/ibidem/api/state"))
            assert len(log) < MAX_LOG_LINES, log[:50]
            answered = threading.Thread(target=lambda: statuses.append(status(late, bodies[12])))
            answered.start()
            set_limit(pid, LIMIT)
        answered.join()
        statuses += [status(each, body) for each, body in zip((kept, other, page), bodies[13:16], strict=True)]
        assert statuses == [200] * len(statuses)
        assert set(with_one_connection) <= {200, 502}
        assert with_one_connection[0] == 200, "its upstream connection is open"
        assert b"[ibidem" in found.provider.seen[-1].body, "requests are rewritten"
        assert found.process.poll() is None
        responses = len(statuses) + with_one_connection.count(200)
        assert len(found.provider.seen) == responses
        waited_for(lambda: sum(row[0] == 200 for row in usage_rows(tmp_path / USAGE_FILE)) >= responses)
        rows = [row for row in usage_rows(tmp_path / USAGE_FILE) if row[0] == 200]
        assert len(rows) == responses
        assert all(tokens and has_cost for _, tokens, has_cost in rows)
        state = found.settled(len(statuses) + len(with_one_connection))
        assert state["totals"]["input"] == sum(tokens for _, tokens, _ in rows)
        assert state["ledger"]["trouble"] == ""
        assert len(log) < MAX_LOG_LINES, log[:50]


def test_request_whose_price_cannot_be_read_counts_with_its_tokens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    bodies, file = list(growing("anthropic", 2)), tmp_path / "gains.sqlite3"
    with talk(gains=UsageWriter(file)) as found:
        with monkeypatch.context() as patch:
            patch.setattr(LiveStats, "_initial_fit", fail)
            assert found.send("anthropic", bodies[0])[0] == 200
            assert found.settled(1)["totals"]["unpriced"] == 1
        assert found.send("anthropic", bodies[1])[0] == 200
        assert found.settled(2)["totals"]["unpriced"] == 1
    rows = usage_rows(file)
    assert [has_cost for _, _, has_cost in rows] == [0, 1]
    assert all(tokens for _, tokens, _ in rows)
