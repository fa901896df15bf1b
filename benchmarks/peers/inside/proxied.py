"""The door of a peer whose interface is a proxy: started as its documentation says, between us and an upstream of ours.

The upstream gives the recorded answer, as the provider would, with the tokens that it would have counted: as many as
a quarter of the characters, all of them from the cache that stood in the request before. What it received is what the
peer sends. Processor time is that of the peer's processes alone, with what it takes to speak HTTP.
"""

from __future__ import annotations

import gzip
import http.client
import json
import os
import socket
import subprocess
import threading
import time
import zlib
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from .libraries import Door, Json
from .recovery import entroly_stores, from_entroly, from_headroom

PATHS = {"anthropic": "/v1/messages", "openai-chat": "/v1/chat/completions", "openai-responses": "/v1/responses"}
TICKS = os.sysconf("SC_CLK_TCK")
START_SECONDS = 180
ANSWER_SECONDS = 300


class Upstream(ThreadingHTTPServer):
    """Keeps the last request that it got."""

    daemon_threads = True
    received: bytes | None = None
    counted = 0
    """Tokens of the request before, for what is read from the cache."""
    said: list[Any] = []  # noqa: RUF012
    """Entries of the history that are the answer to the request."""


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Upstream

    def do_POST(self) -> None:
        data = self.rfile.read(int(self.headers.get("content-length") or 0))
        packing = self.headers.get("content-encoding", "")
        data = gzip.decompress(data) if packing == "gzip" else zlib.decompress(data) if packing == "deflate" else data
        body = json.loads(data)
        if "count_tokens" in self.path:
            self._answer({"input_tokens": len(data) // 4})
            return
        self.server.received = data
        tokens = len(data) // 4
        cached, self.server.counted = min(self.server.counted, tokens), tokens
        self._answer(answer(self.path, body, self.server.said, tokens, cached))

    def do_GET(self) -> None:
        self._answer({"data": [], "object": "list"})

    def do_HEAD(self) -> None:
        self._answer({})

    def _answer(self, value: Json) -> None:
        data = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:
        pass


def answer(path: str, body: Json, said: list[Any], tokens: int, cached: int) -> Json:
    """What the provider says to a request, in its own format: the entries with which the recorded history goes on."""
    name = body.get("model", "")
    usage: Json
    if path.endswith("/messages"):
        usage = {"input_tokens": 1, "cache_read_input_tokens": cached, "cache_creation_input_tokens": tokens - cached}
        blocks = [block for entry in said for block in as_blocks(entry["content"])] or as_blocks("ok")
        return {
            **{"id": "msg_1", "type": "message", "role": "assistant", "model": name, "content": blocks},
            **{"stop_reason": "end_turn", "stop_sequence": None, "usage": {**usage, "output_tokens": 2}},
        }
    if path.endswith("/responses"):
        details = {"input_tokens_details": {"cached_tokens": cached}, "output_tokens_details": {"reasoning_tokens": 0}}
        usage = {"input_tokens": tokens, "output_tokens": 2, "total_tokens": tokens + 2, **details}
        made = {"id": "resp_1", "object": "response", "created_at": 1, "status": "completed", "model": name}
        return {**made, "output": said, "usage": usage}
    usage = {"prompt_tokens": tokens, "completion_tokens": 2, "total_tokens": tokens + 2}
    usage["prompt_tokens_details"] = {"cached_tokens": cached}
    message = said[0] if said else {"role": "assistant", "content": "ok"}
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls" if "tool_calls" in message else "stop"}
    return {"id": "c", "object": "chat.completion", "created": 1, "model": name, "choices": [choice], "usage": usage}


def as_blocks(content: Any) -> list[Any]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else list(content)


AGENTS = {"claude-code": "claude-cli/2.1.0 (external, cli)", "codex": "codex_cli_rs/0.118.0"}
"""How agents name themselves; others by their names alone."""


class Proxied(Door):
    """`command` starts the proxy, `environment` says where its upstream is: `{port}` and `{upstream}` are filled in.

    `recovery` says whose way there is to ask for what was left out.
    """

    def __init__(self, command: list[str], environment: Json, recovery: str) -> None:
        self.upstream = Upstream(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.upstream.serve_forever, daemon=True).start()
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        filled = {"port": self.port, "upstream": f"http://127.0.0.1:{self.upstream.server_port}"}
        values = {name: value.format(**filled) for name, value in environment.items()}
        words = [word.format(**filled) for word in command]
        self.recovery, self.agent = recovery, ""
        self.process = subprocess.Popen(words, env={**os.environ, **values}, stdin=subprocess.DEVNULL, stdout=2)
        self._wait()

    def _wait(self) -> None:
        end = time.monotonic() + START_SECONDS
        while time.monotonic() < end:
            if self.process.poll() is not None:
                raise RuntimeError(f"the proxy ended with {self.process.returncode}")
            try:
                with socket.create_connection(("127.0.0.1", self.port), 1):
                    return
            except OSError:
                time.sleep(0.2)
        raise RuntimeError(f"the proxy did not listen within {START_SECONDS} s")

    def begin(self, session: Json) -> None:
        self.session = session
        self.upstream.counted = 0
        self.agent = AGENTS.get(session["agent"]) or str(session["agent"])

    def send(self, body: Json, request: Json) -> Json:
        usual = {"max_tokens": 1024} if self.session["format"] == "anthropic" else {}
        self.upstream.received = None
        history = self.session["segments"][request["segment"]]["history"]
        self.upstream.said = history[request["length"] : request["answer"]]
        status, said = self._ask("POST", PATHS[self.session["format"]], {**usual, **body})
        if self.upstream.received is None or status != 200:
            raise RuntimeError(f"the proxy answered {status}: {said[:150]!r}")
        sent: Json = json.loads(self.upstream.received)
        return {name: value for name, value in sent.items() if name not in usual or name in body}

    def _ask(self, method: str, path: str, body: Json | None = None) -> tuple[int, bytes]:
        known = {"authorization": "Bearer none", "x-api-key": "none", "anthropic-version": "2023-06-01"}
        headers = {"content-type": "application/json", "user-agent": self.agent, **known}
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=ANSWER_SECONDS)
        try:
            connection.request(method, path, json.dumps(body) if body is not None else None, headers)
            found = connection.getresponse()
            return found.status, found.read()
        finally:
            connection.close()

    def seconds(self) -> float:
        return sum(map(ticks, tree(self.process.pid))) / TICKS

    def recover(self, text: str) -> list[str] | None:
        if self.recovery == "headroom":
            return from_headroom(text, self._kept)
        if self.recovery == "entroly":
            return from_entroly(text, entroly_stores(Path.home()))
        return None

    def _kept(self, key: str) -> str | None:
        status, said = self._ask("GET", f"/v1/retrieve/{key}")
        return str(json.loads(said).get("original_content", "")) if status == 200 else None

    def close(self) -> None:
        self.process.terminate()


def tree(process: int) -> list[int]:
    """A process and all that it started."""
    found = [process]
    for each in found:
        for listed in Path(f"/proc/{each}/task").glob("*/children"):
            found += [int(child) for child in listed.read_text().split()]
    return found


def ticks(process: int) -> int:
    """Processor time of a process and of those of its children that ended."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0
    return sum(map(int, fields[11:15]))
