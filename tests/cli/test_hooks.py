"""`ibidem hooks`, and the plugin's script that hands events to it."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import threading
from collections.abc import Iterator
from http.client import HTTPException
from pathlib import Path

import pytest
from click.testing import CliRunner

import ibidem
from ibidem.cli import main
from ibidem.cli.hooks import LARGE_EVENT, MAX_CONNECTIONS, MAX_LARGE_EVENTS, HookServer
from ibidem.proxy.settings import Settings
from tests.proxy.test_hooks import BASH, event, posted, told
from tests.support.proxied import waited_for

PLUGIN = Path(__file__).parents[2] / "plugins" / "claude-code"
EVENT = json.dumps(event("Bash", BASH)).encode()
TURN = json.dumps(told("PostToolBatch")).encode()

needs_curl = pytest.mark.skipif(not shutil.which("curl") or os.name == "nt", reason="needs: curl, sh")


@pytest.fixture
def server() -> Iterator[HookServer]:
    with HookServer(Settings(port=0, token="it's-$ecret")) as found:
        thread = threading.Thread(target=found.serve_forever, args=(0.01,))
        thread.start()
        yield found
        found.shutdown()
        thread.join()


def at(server: HookServer) -> str:
    return f"http://127.0.0.1:{server.server_address[1]}"


def script(mode: str, body: bytes = EVENT, /, **variables: str) -> str:
    found = subprocess.run(
        ["sh", PLUGIN / "hooks" / "post.sh", mode],
        input=body,
        env={"PATH": os.environ["PATH"], **variables},
        capture_output=True,
    )
    assert (found.returncode, found.stderr) == (0, b"")
    return found.stdout.decode()


def test_it_answers_who_has_the_token_and_says_at_the_end_what_that_saved(server: HookServer) -> None:
    token = {"x_ibidem_token": "it's-$ecret"}
    assert posted(at(server), EVENT)[0] == 401
    assert posted(at(server), EVENT, host="elsewhere", **token)[0] == 403
    assert posted(at(server), EVENT, "/v1/messages", **token)[0] == 404
    assert posted(at(server), EVENT, **token) == posted(at(server), TURN, **token) == (200, b"{}")
    assert b"[ibidem: unchanged" in posted(at(server), EVENT, **token)[1]
    assert posted(at(server), b"no JSON", **token) == (200, b"{}")
    assert server.summary_line() == f"2 outputs, 1 repeated: {server._hooks.bytes_saved:,} bytes saved"


def test_only_so_many_are_heard_at_once_and_then_what_was_known_is_forgotten(
    server: HookServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that is not heard may be that a context was compacted."""
    monkeypatch.setattr("ibidem.cli.hooks.BODY_SECONDS", 0.05)
    token = {"x_ibidem_token": "it's-$ecret"}
    large = json.dumps(event("Read", {}, padding="x" * LARGE_EVENT)).encode()

    def hint() -> bool:
        assert posted(at(server), TURN, **token)[0] == 200
        return b"[ibidem: unchanged" in posted(at(server), EVENT, **token)[1]

    assert [hint(), hint()] == [False, True]
    for _ in range(MAX_LARGE_EVENTS):
        server._large_events.acquire()
    assert posted(at(server), large, **token) == (200, b"{}")
    assert [hint(), hint()] == [False, True], "small ones are heard all the same"
    for _ in range(MAX_LARGE_EVENTS):
        server._large_events.release()
    waited_for(lambda: server._connections._value == MAX_CONNECTIONS)
    for _ in range(MAX_CONNECTIONS):
        server._connections.acquire()
    with pytest.raises((OSError, HTTPException)):
        posted(at(server), EVENT, **token)
    for _ in range(MAX_CONNECTIONS):
        server._connections.release()
    assert posted(at(server), large, **token) == (200, b"{}")
    assert [hint(), hint()] == [False, True]


@needs_curl
def test_the_script_hands_events_on_and_prints_the_answer(server: HookServer) -> None:
    known = {"IBIDEM_HOOKS_URL": at(server), "IBIDEM_TOKEN": "it's-$ecret"}
    assert script("answer", **known) == "{}"
    assert script("tell", TURN, **known) == "", "what it prints for other events would be read as words for the model"
    assert script("answer", **{**known, "IBIDEM_TOKEN": ""}) == ""
    assert script("answer", **known | {"IBIDEM_HOOKS_URL": "off"}) == ""
    assert "[ibidem: unchanged" in script("answer", **known, ANTHROPIC_BASE_URL="http://127.0.0.1:9/anthropic")


@needs_curl
def test_the_script_says_nothing_where_nobody_listens() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and nobody listens there
        assert script("answer", IBIDEM_HOOKS_URL=f"http://127.0.0.1:{taken.getsockname()[1]}") == ""
    assert script("answer", IBIDEM_HOOKS_URL="no address", PATH="/nowhere:/bin") == ""


def written_whole(**variables: str) -> bool:
    """Whether somebody reads all of an event that is larger than what a pipe holds."""
    command = [shutil.which("sh") or "", str(PLUGIN / "hooks" / "post.sh"), "answer"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, env={"PATH": os.environ["PATH"], **variables}) as ran:
        assert ran.stdin is not None
        try:
            ran.stdin.write(b" " * 2_000_000)
            ran.stdin.close()
        except BrokenPipeError:
            return False
    return ran.returncode == 0


@needs_curl
def test_an_event_is_read_to_its_end_whatever_becomes_of_it(tmp_path: Path) -> None:
    """Who writes to a program that has ended is told so, as an error of its own."""
    from ibidem.proxy.edge.server import BackgroundServer
    from ibidem.store import MemoryStore
    from tests.support.raw import to

    (tmp_path / "cat").symlink_to(shutil.which("cat") or "")
    for ways in (
        {"IBIDEM_HOOKS_URL": "off"},
        {"IBIDEM_HOOKS_URL": "http://127.0.0.1:9"},  # nobody listens
        {"IBIDEM_HOOKS_URL": "no address"},
        {"PATH": str(tmp_path)},  # without curl
    ):
        assert written_whole(**ways), ways
    with BackgroundServer(to("http://127.0.0.1:9", token="secret"), store=MemoryStore()) as proxy:
        assert written_whole(ANTHROPIC_BASE_URL=proxy.url)


@needs_curl
def test_the_script_takes_an_address_for_nothing_else_and_keeps_the_token_to_itself(server: HookServer) -> None:
    assert script("answer", IBIDEM_HOOKS_URL="file:///etc/passwd#") == ""
    # Were the host behind the sign asked for its health, it would be one of ours, and nothing would be handed on.
    hidden = f"http://localhost:1@{at(server).removeprefix('http://')}"
    known = {"IBIDEM_HOOKS_URL": at(server), "IBIDEM_TOKEN": "it's-$ecret", "ANTHROPIC_BASE_URL": hidden}
    assert script("answer", **known) == "{}"


@needs_curl
def test_who_listens_at_the_address_of_the_model_is_not_told_the_token(server: HookServer) -> None:
    heard: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as other:

        def answer() -> None:
            connection, _ = other.accept()
            with connection:
                heard.append(connection.recv(65536))
                connection.sendall(b"HTTP/1.0 404 Not Found\r\n\r\n")

        thread = threading.Thread(target=answer)
        thread.start()
        known = {"IBIDEM_HOOKS_URL": at(server), "IBIDEM_TOKEN": "it's-$ecret"}
        base = f"http://127.0.0.1:{other.getsockname()[1]}"
        assert script("answer", **known, ANTHROPIC_BASE_URL=base) == "{}", "it is none of ours"
        thread.join()
    assert b"/ibidem/health" in heard[0]
    assert b"ecret" not in heard[0]


def test_the_script_leaves_sessions_alone_whose_requests_go_through_a_proxy_of_ours(server: HookServer) -> None:
    from ibidem.proxy.edge.server import BackgroundServer
    from ibidem.store import MemoryStore
    from tests.support.raw import to

    known = {"IBIDEM_HOOKS_URL": at(server), "IBIDEM_TOKEN": "it's-$ecret"}
    with BackgroundServer(to("http://127.0.0.1:9", token=known["IBIDEM_TOKEN"]), store=MemoryStore()) as proxy:
        assert [script("answer", **known, ANTHROPIC_BASE_URL=f"{proxy.url}/anthropic") for _ in range(2)] == [""] * 2
    assert server._hooks.outputs == 0


def test_a_port_that_is_taken_is_told_in_one_line(server: HookServer, monkeypatch: pytest.MonkeyPatch) -> None:
    port = str(server.server_address[1])
    result = CliRunner().invoke(main, ["hooks", "--port", port])
    assert result.exit_code == 2
    assert (
        result.stderr
        == f"ibidem: 127.0.0.1 port {port}: this port is in use: use another with --port, or 0 for a free one\n"
    )


def test_the_plugin_is_of_this_version_and_its_recall_tool_is_known() -> None:
    from ibidem.strategies.strategy import RECALL_TOOL

    manifest = json.loads((PLUGIN / ".claude-plugin" / "plugin.json").read_text())
    (server_name,) = json.loads((PLUGIN / ".mcp.json").read_text())["mcpServers"]
    assert manifest["version"] == ibidem.__version__
    assert RECALL_TOOL.fullmatch(f"mcp__plugin_{manifest['name']}_{server_name}__recall")
