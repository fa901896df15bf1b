"""Clients of the endpoint in other languages, and several processes on one port.

    python -m pytest tests_slow/test_compact_clients.py

The example in Go needs `go` (Debian: golang-go); it is skipped where there is none.
"""

from __future__ import annotations

import http.client
import json
import os
import shutil
import socket
import subprocess
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

import ibidem
from benchmarks.cluster import free_port
from tests.support.proxied import dumped, growing

from .conftest import Tally
from .endpoint import PATIENT, ROOT, served


@pytest.mark.skipif(shutil.which("go") is None, reason="needs go: apt-get install golang-go")
def test_the_example_in_go(tmp_path: Path, tally: Tally) -> None:
    program = tmp_path / "client"
    variables = {**os.environ, "GOCACHE": str(tmp_path / "cache"), "GO111MODULE": "off", "HOME": str(tmp_path)}
    source = str(ROOT / "examples" / "compact_client.go")
    subprocess.run(["go", "build", "-o", str(program), source], env=variables, check=True, timeout=600)

    def run(url: str, body: bytes) -> bytes:
        given = {"IBIDEM_URL": url, **PATIENT}
        return subprocess.run([program, "anthropic", "one"], input=body, env=given, stdout=-1, check=True).stdout

    body = dumped([*growing("anthropic", 8)][-1])
    with served(tmp_path / "ibidem") as proxy:
        found = run(proxy.url, body)
        assert found == ibidem.compact(body).request != body
        tally("endpoint, the client in Go", bytes=len(body), given_back=len(found))
        assert run(proxy.url, b"hello") == b"hello"
    assert run(proxy.url, body) == body, "it is gone"


@pytest.mark.skipif(not hasattr(socket, "SO_REUSEPORT"), reason="there can be only one process")
def test_every_process_of_a_proxy_gives_requests_back(tmp_path: Path) -> None:
    """Also what one profile needs to know of a conversation, whichever of them has it."""
    bodies = [dumped(each) for each in growing("anthropic", 12)]
    port, folder = str(free_port()), tmp_path / "ibidem"
    options = ("--reuse-port", "--port", port)
    with served(folder, "", *options) as proxy, served(folder, "", *options) as other:
        parts = urlsplit(proxy.url)
        for body in bodies:
            connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=60)
            connection.request("POST", "/ibidem/v1/compact", body, {"x-ibidem-conversation": "one"})
            assert connection.getresponse().read() == ibidem.compact(body).request
            connection.close()
        states: dict[int, Any] = {}
        while len(states) < 2:
            state = json.loads(_page(proxy.url, "/ibidem/api/state"))
            states[state["process"]] = state
        assert {*states} == {proxy.process.pid, other.process.pid}
    counts = [state["totals"]["compacted"]["requests"] for state in states.values()]
    assert sum(counts) == len(bodies)
    assert all(counts), "both were asked"


def _page(url: str, path: str) -> bytes:
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=60)
    connection.request("GET", path)
    found = connection.getresponse().read()
    connection.close()
    return found
