"""Responses in awkward pieces: SSE split at every byte, and a hostile MCP server behind `ibidem mcp --url`."""

from __future__ import annotations

import json
import re
import resource
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ibidem.proxy.edge.server import BackgroundServer
from ibidem.store import MemoryStore
from ibidem.testing import Calls, Upstream, conv
from tests.proxy.test_streams import HEAD, PROVIDERS, chunk, post
from tests.support.raw import Peer, Server, asked, connect, to

from .conftest import Tally
from .proxy_process import MEMORY_BYTES, PATIENCE

USAGE = ("input", "read", "written", "output")
GAP_SECONDS = 0.001
"""Time between the two halves, so that they are read separately."""


@pytest.mark.parametrize("format", PROVIDERS)
def test_sse_split_at_every_byte(format: str, tmp_path: Path, tally: Tally) -> None:
    request = conv("u:hello there", "a:hi", "u:go on", format=format) | {"stream": True}
    if format == "openai-chat":
        request["stream_options"] = {"include_usage": True}
    sent = post(PROVIDERS[format], json.dumps(request).encode())
    with Upstream([Calls(("Read", {"file_path": "/é.py"}), says="ünïcode")]) as upstream:
        _, payload = asked(Address(upstream.url), sent, "POST")  # type: ignore[arg-type]

    def script(peer: Peer) -> None:
        peer.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for split in range(1, len(payload)):
            peer.message()
            peer.send(HEAD + chunk(payload[:split]))
            time.sleep(GAP_SECONDS)
            peer.send(chunk(payload[split:]) + b"0\r\n\r\n")

    log, equal = tmp_path / "log.jsonl", 0
    with (
        Server(script) as server,
        BackgroundServer(to(server.url, json_log=str(log)), MemoryStore()) as proxy,
        connect(proxy.url) as client,
    ):
        for _ in range(1, len(payload)):
            client.send(sent)
            equal += client.message("POST")[1] == payload
    rows = [json.loads(line) for line in log.read_bytes().splitlines()]
    usages = {tuple(row[name] for name in USAGE) for row in rows}
    tally(f"SSE split at every byte, {format}", splits=len(payload) - 1, equal=equal, usages=len(usages))
    assert equal == len(rows) == len(payload) - 1
    assert len(usages) == 1
    assert all(value is not None for value in (usages.copy().pop()[0], usages.copy().pop()[3]))


class Address:
    """An address that `asked` accepts."""

    def __init__(self, url: str) -> None:
        self.url = url


# ── MCP ─────────────────────────────────────────────────────────────────────────────────────────────────────────────

CALL = json.dumps(
    {"jsonrpc": "2.0", "id": 5, "method": "tools/call", "params": {"name": "read", "arguments": {}}}
).encode()


def result(text: str) -> bytes:
    content = {"content": [{"type": "text", "text": text}]}
    return json.dumps({"jsonrpc": "2.0", "id": 5, "result": content}).encode()


def plain(body: bytes, kind: str = "application/json", length: int | None = None) -> bytes:
    size = len(body) if length is None else length
    return f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Length: {size}\r\n\r\n".encode() + body


def event(body: bytes) -> bytes:
    return b"event: message\ndata: " + body + b"\n\n"


SSE = "text/event-stream"
WHOLE: dict[str, tuple[bytes, str]] = {
    "invalid JSON": (b'{"jsonrpc": "2.0", "id": 5, "result": ', "application/json"),
    "bytes that are not UTF-8": (b'{"id": 5, "result": "\xff\xfe"}', "application/json"),
    "deep nesting": (b"[" * 200_000 + b"]" * 200_000, "application/json"),
    "20 MB of text": (result("x" * 20_000_000), "application/json"),
    "a million parts": (b'{"id": 5, "result": [' + b"1," * 1_000_000 + b"1]}", "application/json"),
    "a lone surrogate": (result("\ud800 text " * 400), "application/json"),
    "another id": (result("text " * 400).replace(b'"id": 5', b'"id": {"a": [5]}'), "application/json"),
    "not an object": (b"null", "application/json"),
    "20 MB in one SSE line": (event(result("y" * 20_000_000)), SSE),
    "an SSE line without an end": (b"data: " + b"z" * 9_000_000, SSE),
    "SSE with invalid JSON": (event(b"{") * 1000, SSE),
    "SSE without data": (b":\n\n" * 100_000, SSE),
}
BROKEN: dict[str, bytes] = {
    "not HTTP": b"\x00\x01garbage" * 100,
    "no response": b"",
    "half a body": plain(result("text"), length=10_000),
    "gzip that is not gzip": plain(b"not gzip").replace(b"\r\n\r\n", b"\r\nContent-Encoding: gzip\r\n\r\n", 1),
    "a bad chunk size": HEAD + b"zz\r\nhello\r\n",
    "100,000 headers": b"HTTP/1.1 200 OK\r\n" + b"X-A: b\r\n" * 100_000 + b"\r\n",
}
SPLIT = event(result("a result of some length, é\n" * 8))


def test_hostile_mcp_server(tmp_path: Path, tally: Tally) -> None:
    answer: list[Callable[[Peer], Any]] = []

    def script(peer: Peer) -> None:
        peer.message()
        answer[0](peer)

    counts = dict.fromkeys(("requests", "unchanged", "errors", "connection_closed"), 0)
    with Server(script) as server:
        command = [sys.executable, "-u", "-m", "ibidem.cli", "mcp", "--no-subagents", "--port", "0"]
        with subprocess.Popen(
            [*command, "--url", f"{server.url}/mcp"],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            text=True,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES)),
        ) as process:
            try:
                assert process.stdout is not None
                match = re.search(r"(http://127\.0\.0\.1:\d+)\S* forwards to", process.stdout.readline())
                assert match, "the gateway did not start"
                url = match[1]

                def call(reply: Callable[[Peer], Any]) -> bytes | None:
                    answer[:] = [reply]
                    counts["requests"] += 1
                    with connect(url) as client:
                        headers = "Content-Type: application/json\r\nConnection: close\r\n"
                        client.send(post("/mcp", CALL, headers).replace(b"localhost", url[7:].encode()))
                        try:
                            head, body = client.message("POST")
                        except (EOFError, ConnectionError):
                            counts["connection_closed"] += 1
                            return None
                    counts["errors"] += not head.startswith(b"HTTP/1.1 200")
                    return body if head.startswith(b"HTTP/1.1 200") else None

                for name, (body, kind) in WHOLE.items():
                    response = plain(body, kind)
                    got = call(lambda peer, data=response: peer.send(data))  # type: ignore[misc]
                    assert got == body, name
                    counts["unchanged"] += 1
                for data in BROKEN.values():
                    call(lambda peer, data=data: peer.send(data))  # type: ignore[misc]
                    number = counts["requests"]
                    assert call(lambda peer, n=number: peer.send(plain(result(f"{n}")))) == result(f"{number}")  # type: ignore[misc]
                    counts["unchanged"] += 1
                for split in range(1, len(SPLIT)):

                    def in_two(peer: Peer, split: int = split) -> None:
                        peer.send(HEAD + chunk(SPLIT[:split]))
                        time.sleep(GAP_SECONDS)
                        peer.send(chunk(SPLIT[split:]) + b"0\r\n\r\n")

                    assert call(in_two) == SPLIT
                    counts["unchanged"] += 1
                assert process.poll() is None
            finally:
                process.send_signal(signal.SIGTERM)
                output, _ = process.communicate(timeout=PATIENCE)
        assert "Traceback" not in output, output[-2000:]
    tally("a hostile MCP server behind `mcp --url`", **counts)
