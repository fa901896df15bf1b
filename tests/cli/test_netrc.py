"""No command sends the credentials in ~/.netrc to any server."""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest

from ibidem.cli.clients.codex import _fetch
from tests.support.proxied import PATHS, PATIENCE, dumped, growing, waited_for

pytestmark = pytest.mark.slow  # each starts processes

ROOT = Path(__file__).parents[2]
IBIDEM = (sys.executable, "-m", "ibidem.cli")
MACHINES = ("machine 127.0.0.1", "machine localhost", "default")
SECRET = base64.b64encode(b"somebody:netrc-secret").decode()
MESSAGE = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
CLIENT = """
import os, sys, urllib.request
url = os.environ["ANTHROPIC_BASE_URL"] + "/v1/messages"
headers = {"content-type": "application/json", "x-api-key": "k"}
urllib.request.urlopen(urllib.request.Request(url, sys.argv[1].encode(), headers), timeout=60).read()
"""


class Recorder(ThreadingHTTPServer):
    """Answers every request with the same JSON and records its path and headers."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, str]] = []
        super().__init__(("127.0.0.1", 0), _Handler)
        self.url = f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    def _answer(self) -> None:
        assert isinstance(self.server, Recorder)
        self.rfile.read(int(self.headers.get("content-length") or 0))
        self.server.requests.append((self.path, str(self.headers)))
        body = b'{"all_off": false, "off": [], "conversations": [], "status": "ok", "version": "0"}'
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_POST = do_HEAD = _answer

    def log_message(self, *_: object) -> None:
        """Print nothing."""


@pytest.fixture
def server() -> Iterator[Recorder]:
    with Recorder() as found:
        thread = threading.Thread(target=found.serve_forever, daemon=True)
        thread.start()
        yield found
        found.shutdown()


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    netrc = tmp_path / ".netrc"
    netrc.write_text("".join(f"{machine} login somebody password netrc-secret\n" for machine in MACHINES))
    netrc.chmod(0o600)
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("IBIDEM_", "XDG_"))}
    return {**kept, "HOME": str(tmp_path), "NETRC": str(netrc), "PYTHONUNBUFFERED": "1"}


def run(command: Sequence[str], environment: dict[str, str], given: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*command],
        env=environment,
        cwd=environment["HOME"],
        input=given,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )


def while_serving(
    command: Sequence[str], environment: dict[str, str], work: Callable[[str], object], stream: str = "stdout"
) -> None:
    """Run a command that prints its address, and `work` with that address."""
    pipes: dict[str, Any] = {stream: subprocess.PIPE}
    with subprocess.Popen([*command], env=environment, cwd=environment["HOME"], text=True, **pipes) as process:
        try:
            # The gateway names the address of the server first, and its own address last.
            *_, address = re.findall(r"http://127\.0\.0\.1:[0-9]+", getattr(process, stream).readline())
            work(address)
        finally:
            process.kill()


def post(url: str, body: Any) -> bytes:
    headers = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
    with urlopen(Request(url, dumped(body), {**headers, "x-api-key": "k"}), timeout=PATIENCE) as response:
        return bytes(response.read())


def send_proxy(server: Recorder, environment: dict[str, str]) -> None:
    command = (*IBIDEM, "proxy", "--port", "0", "--upstream", f"anthropic={server.url}")
    while_serving(command, environment, lambda url: post(url + PATHS["anthropic"], next(growing("anthropic", 1))))


def send_gateway(server: Recorder, environment: dict[str, str]) -> None:
    command = (*IBIDEM, "mcp", "--url", f"{server.url}/mcp", "--port", "0")
    while_serving(command, environment, lambda url: post(f"{url}/mcp", MESSAGE), stream="stderr")


def send_off(server: Recorder, environment: dict[str, str]) -> None:
    run((*IBIDEM, "off", "--all", "--url", server.url), environment)


def send_on(server: Recorder, environment: dict[str, str]) -> None:
    run((*IBIDEM, "on", "--url", server.url), environment)


def send_doctor(server: Recorder, environment: dict[str, str]) -> None:
    run((*IBIDEM, "doctor"), {**environment, "ANTHROPIC_BASE_URL": server.url, "OPENAI_BASE_URL": f"{server.url}/v1"})


def send_wrap(server: Recorder, environment: dict[str, str]) -> None:
    body = dumped(next(growing("anthropic", 1))).decode()
    run(
        (*IBIDEM, "wrap", "--upstream", f"anthropic={server.url}", "--", sys.executable, "-c", CLIENT, body),
        environment,
    )


def send_report(server: Recorder, environment: dict[str, str]) -> None:
    pytest.importorskip("fsspec")
    run((*IBIDEM, "report", "--no-cache", f"{server.url}/log.jsonl"), environment)


def send_hook(server: Recorder, environment: dict[str, str]) -> None:
    if shutil.which("curl") is None:
        pytest.skip("needs curl")
    script = ROOT / "plugins" / "claude-code" / "hooks" / "post.sh"
    run(("sh", str(script), "answer"), {**environment, "IBIDEM_HOOKS_URL": server.url}, "{}")


SENDERS = (send_proxy, send_gateway, send_off, send_on, send_doctor, send_wrap, send_hook, send_report)


@pytest.mark.parametrize("send", SENDERS, ids=[each.__name__.removeprefix("send_") for each in SENDERS])
def test_credentials_in_netrc_are_not_sent(
    send: Callable[[Recorder, dict[str, str]], None], server: Recorder, environment: dict[str, str]
) -> None:
    send(server, environment)
    waited_for(lambda: server.requests)
    for path, headers in server.requests:
        assert SECRET not in headers, path
        assert "authorization: basic" not in headers.lower(), path


def test_login_check_of_codex_sends_only_its_own_credential(
    server: Recorder, environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HOME", "NETRC"):
        monkeypatch.setenv(name, environment[name])
    assert json.loads(_fetch(f"{server.url}/accounts", {"authorization": "Bearer own"}, PATIENCE, 1000))
    assert [("Bearer own" in headers, SECRET in headers) for _, headers in server.requests] == [(True, False)]


@pytest.mark.parametrize("command", [("statusline",), ("recall", "012345678901"), ("gain",), ("report",)])
def test_other_commands_send_nothing(command: tuple[str, ...], server: Recorder, environment: dict[str, str]) -> None:
    proxies = dict.fromkeys(("http_proxy", "https_proxy", "ALL_PROXY"), server.url)
    base = {"ANTHROPIC_BASE_URL": server.url, "OPENAI_BASE_URL": server.url}
    run((*IBIDEM, *command), {**environment, **proxies, **base}, "{}")
    assert server.requests == []
