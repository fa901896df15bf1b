"""`ibidem proxy --reuse-port`: real processes that share one port and one store."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from ibidem.store import open_store
from ibidem.testing.answers import Answer, Says
from ibidem.testing.requests_seen import Seen
from tests.support.processes import COMMAND, Connection, RunningProxy, running_proxies
from tests.support.proxied import PATHS, PATIENCE, dumped, growing, requests, stale, talk, waited_for

pytestmark = [
    pytest.mark.slow,  # each starts processes
    pytest.mark.skipif(not hasattr(socket, "SO_REUSEPORT"), reason="processes cannot share a port here"),
]


def connections(proxies: Sequence[RunningProxy]) -> list[Connection]:
    """A connection to each of these. The system chooses a process for each new one."""

    def to(pid: int) -> Connection:
        while True:
            connection = proxies[0].connection()
            if connection.state()["process"] == pid:
                return connection

    return [to(each.process.pid) for each in proxies]


def first_request(title: str) -> bytes:
    return dumped(next(growing("anthropic", 1, first=title)))


def ibidem(proxy: RunningProxy, home: Path, *words: str) -> str:
    own = {**os.environ, "HOME": str(home), "XDG_DATA_HOME": str(home / ".local/share"), "IBIDEM_STORE": ""}
    port = str(urlsplit(proxy.url).port)
    command = [sys.executable, "-m", "ibidem.cli", *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, env=own | {"IBIDEM_PORT": port})
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_requests_are_answered_while_one_process_is_killed(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with running_proxies(tmp_path, "--json-log", str(log), count=2) as proxies:
        for number in range(40):
            assert proxies[0].asked("POST", PATHS["anthropic"], first_request(f"before {number}"))
        rows = waited_for(lambda: (lines := log.read_text().splitlines())[39:] and lines)
        owners = {json.loads(row)["id"].partition("-")[0] for row in rows}
        assert owners == {f"p{each.process.pid}" for each in proxies}, "both get connections"
        assert len({json.loads(row)["id"] for row in rows}) == 40, "no two requests have one id"
        waited_for(lambda: json.loads(ibidem(proxies[0], tmp_path, "gain", "--json"))["total"]["requests"] == 40)

        dead, alive = proxies
        answered, stop = [0], threading.Event()

        def ask() -> None:
            """As an SDK does: a connection that breaks is tried again."""
            while not stop.is_set():
                for _ in range(3):
                    try:
                        alive.asked("POST", PATHS["anthropic"], first_request(f"during {answered[0]}"))
                        answered[0] += 1
                        break
                    except (OSError, http.client.HTTPException):
                        continue
                else:
                    return

        asking = threading.Thread(target=ask)
        asking.start()
        waited_for(lambda: answered[0] > 5)
        os.kill(dead.process.pid, signal.SIGKILL)
        dead.process.wait()
        now = answered[0]
        waited_for(lambda: answered[0] > now + 20 or not asking.is_alive())
        assert asking.is_alive(), "a request was lost"
        stop.set()
        asking.join(PATIENCE)
        for number in range(20):  # the first try of each
            assert alive.asked("POST", PATHS["anthropic"], first_request(f"after {number}"))
        assert alive.end(signal.SIGTERM)[0] == 0


class HeldProvider:
    """Answers requests with certain words only when it is told to."""

    def __init__(self) -> None:
        self.asked, self.go = threading.Event(), threading.Event()

    def __call__(self, seen: Seen) -> Answer:
        if b"in the middle" in seen.body:
            self.asked.set()
            assert self.go.wait(PATIENCE)
        return Says("ok")


def process_of(connection: Connection) -> int:
    """The process that answers; 0 if it closed the connection, and the next request opens another."""
    try:
        process: int = connection.state()["process"]
        return process
    except (OSError, http.client.HTTPException):
        connection.close()
        return 0


def test_drained_process_finishes_its_responses_and_others_serve(tmp_path: Path) -> None:
    held, answers = HeldProvider(), list[bytes]()
    with running_proxies(tmp_path, count=2, script=held) as proxies:
        drained, idle = connections([proxies[0], proxies[0]])
        going = threading.Thread(
            target=lambda: answers.append(drained.ask("POST", PATHS["anthropic"], first_request("in the middle")))
        )
        going.start()
        assert held.asked.wait(PATIENCE)
        proxies[0].process.send_signal(signal.SIGUSR1)
        other = proxies[1].process.pid
        waited_for(lambda: all(proxies[0].page("state")["process"] == other for _ in range(20)))
        waited_for(lambda: process_of(idle) == other)
        assert proxies[0].process.poll() is None, "it has a response to finish"
        held.go.set()
        going.join(PATIENCE)
        assert len(answers) == 1
        assert proxies[0].process.wait(PATIENCE) == 0


def test_pause_reaches_every_process_and_a_new_one(tmp_path: Path) -> None:
    with running_proxies(tmp_path, count=2) as proxies:
        both = connections(proxies)
        for number, connection in enumerate(both):
            connection.send(next(growing("anthropic", 1, first=f"own {number}")))
        ids = [connection.state()["conversations"][0]["id"] for connection in both]
        assert [each.partition("-")[0] for each in ids] == [f"p{each.process.pid}" for each in proxies]
        for id, connection in zip(ids, both, strict=True):  # whichever process the command reaches first
            assert ibidem(proxies[0], tmp_path, "off", id).startswith(f"{id}: off")
            assert connection.state()["off"] == [id]
            assert ibidem(proxies[0], tmp_path, "on", id).startswith(f"{id}: on")
        ibidem(proxies[0], tmp_path, "off", "--all")

        def all_paused() -> bool:
            for number, connection in enumerate(both):  # pauses are read with requests
                connection.send(next(growing("anthropic", 1, first=f"more {number}")))
            return all(connection.state()["all_off"] for connection in both)

        waited_for(all_paused)
        port = str(urlsplit(proxies[0].url).port)
        late = RunningProxy(tmp_path, proxies[0].provider, "--port", port, "--reuse-port")
        try:
            (connection,) = connections([late])
            waited_for(lambda: connection.state()["all_off"])
        finally:
            late.close()


def wait_for_notes(file: Path, requests: int) -> None:
    """Each request adds a row when it is sent, and one when its response came; the second is written later."""
    with closing(sqlite3.connect(file, timeout=PATIENCE)) as store:
        waited_for(lambda: store.execute("SELECT count(*) FROM notes").fetchone()[0] >= 2 * requests)


def test_conversation_that_changes_process_is_sent_as_by_one(tmp_path: Path) -> None:
    bodies = [dumped(body) for body in requests("anthropic", *stale(10, after=8))]
    mine, theirs = tmp_path / "mine.sqlite3", tmp_path / "theirs.sqlite3"
    with talk(profile="aggressive", store=open_store(mine)) as alone:
        for number, body in enumerate(bodies, 1):
            alone.send("anthropic", body)
            wait_for_notes(mine, number)
        expected = [seen.body for seen in alone.upstream.seen]
    with running_proxies(tmp_path, "--profile", "aggressive", "--store", str(theirs), count=2) as proxies:
        both = connections(proxies)
        for number, body in enumerate(bodies, 1):
            both[number % 2].ask("POST", PATHS["anthropic"], body)
            wait_for_notes(theirs, number)
        assert [seen.body for seen in proxies[0].provider.seen] == expected
        assert b"left out" in expected[-1]
        assert sum(connection.state()["lookups"]["store"] for connection in both) == 1


WITHOUT = "import socket; del socket.SO_REUSEPORT; from ibidem.cli import launch; launch()"


def error_line(home: Path, *options: str, command: Sequence[str] = COMMAND, **variables: str) -> str:
    own = {**os.environ, "HOME": str(home), "IBIDEM_STORE": "", **variables}
    done = subprocess.run([*command, *options], capture_output=True, text=True, timeout=PATIENCE, env=own)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1), done
    return done.stderr


def test_errors_name_the_option(tmp_path: Path) -> None:
    shared = ("--reuse-port", "--port", "0")
    assert error_line(tmp_path, *shared, "--store", "memory:").startswith(
        "ibidem: --reuse-port: processes cannot share a store in memory: pass a file or a redis:// URL"
    )
    assert error_line(tmp_path, *shared, IBIDEM_STORE="memory:").startswith("ibidem: --reuse-port: processes cannot")
    assert error_line(tmp_path, *shared, command=(sys.executable, "-c", WITHOUT, "proxy")).startswith(
        "ibidem: --reuse-port: this system cannot share a port"
    )
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        assert "this port is in use" in error_line(tmp_path, "--reuse-port", "--port", port)
    assert error_line(tmp_path, "--workers", "2").startswith(
        "ibidem: --workers: this setting was removed: start one process per core, each with --reuse-port"
    )


def state_keys(options: dict[str, Any]) -> Any:
    with talk(**options) as found:
        return found.settled(0)


def test_state_names_its_process_only_if_the_port_may_be_shared(tmp_path: Path) -> None:
    store = open_store(tmp_path / "store.sqlite3")
    assert state_keys({"reuse_port": True, "store": store})["process"] == os.getpid()
    assert "process" not in state_keys({})
