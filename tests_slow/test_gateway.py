"""`ibidem mcp` between real clients and real servers, and servers that mean no good.

The reference servers are installed from npm and PyPI, which takes a minute: set IBIDEM_TEST_MCP_SERVERS to a folder to
keep them. Claude Code is found as in `test_clients`.

    python -m pytest tests_slow/test_gateway.py
"""

from __future__ import annotations

import asyncio
import hashlib
import io
import json
import os
import shutil
import socket
import subprocess
import sys
import time
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from ibidem.testing import Calls, Says, Upstream, by_turn

from .conftest import Tally
from .mcp_checks import fifteen
from .test_clients import QUIET

pytestmark = [
    pytest.mark.filterwarnings("ignore:The .* capability is deprecated"),
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="memory is measured as Linux tells it"),
]

NPM = ("@modelcontextprotocol/server-everything", "@modelcontextprotocol/server-filesystem")
PYPI = ("mcp-server-git", "mcp-server-time")
PLAIN_GATEWAY = (sys.executable, "-m", "ibidem.cli", "mcp")
GATEWAY = (*PLAIN_GATEWAY, "--no-subagents")
"""With hints, which are for clients of which somebody says that they have one context."""
MODES = ("legacy", "auto")
INITIALIZE = (
    b'{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"clientInfo":{"name":"an-agent","version":"1"}}}\n'
)


class McpServers(NamedTuple):
    node: Path
    python: Path


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> McpServers:
    kept = os.environ.get("IBIDEM_TEST_MCP_SERVERS")
    folder = Path(kept) if kept else tmp_path_factory.mktemp("mcp-servers")
    found = McpServers(folder / "node_modules" / ".bin", folder / "py" / "bin")
    if not (found.node / "mcp-server-everything").exists():
        npm = shutil.which("npm")
        assert npm, "these tests need npm"
        subprocess.run([npm, "install", "--prefix", str(folder), "--no-fund", "--no-audit", *NPM], check=True)
    if not (found.python / "mcp-server-git").exists():
        venv.create(folder / "py", with_pip=True)
        subprocess.run([str(found.python / "pip"), "install", "-q", *PYPI], check=True)
    return found


def stdio(*command: str, ours: bool = True, options: tuple[str, ...] = (), gateway: tuple[str, ...] = GATEWAY) -> Any:
    from mcp import StdioServerParameters

    whole = [*gateway, *options, "--", *command] if ours else [*command]
    return StdioServerParameters(command=whole[0], args=whole[1:], env={**os.environ})


def said(target: Any, mode: str, *calls: tuple[str, dict[str, Any]]) -> list[str]:
    """The text of each result."""
    from mcp import Client
    from mcp_types import Implementation

    agent = Implementation(name="an-agent", version="1")

    async def run() -> list[str]:
        async with Client(target, mode=mode, read_timeout_seconds=60, client_info=agent) as client:
            await client.list_tools()
            results: list[Any] = [await client.call_tool(tool, arguments) for tool, arguments in calls]
        assert not any(result.is_error for result in results), results
        return ["".join(block.text for block in result.content) for result in results]

    return asyncio.run(run())


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


@contextmanager
def running(*command: str, port: int, **variables: str) -> Iterator[None]:
    """Until its port is open; ended by its id."""
    quiet = subprocess.DEVNULL
    with subprocess.Popen(command, env={**os.environ, **variables}, stdout=quiet, stderr=quiet) as process:
        try:
            for _ in range(300):
                with socket.socket() as tried:
                    if tried.connect_ex(("127.0.0.1", port)) == 0:
                        break
                assert process.poll() is None, "it ended"
                time.sleep(0.1)
            yield
        finally:
            process.terminate()


# --- as on a direct connection ---------------------------------------------------------------------


def compared(direct: Any, ours: Any, mode: str, tally: Tally, name: str) -> None:
    wanted, found = (asyncio.run(fifteen(target, mode)) for target in (direct, ours))
    same = [check for check in wanted if wanted[check] == found[check]]
    tally(name, checks=len(wanted), same=len(same))
    assert [*wanted] == same
    assert len(same) == 15


@pytest.mark.parametrize("mode", MODES)
def test_everything_is_as_on_a_direct_connection(servers: McpServers, mode: str, tally: Tally) -> None:
    command = (str(servers.node / "mcp-server-everything"), "stdio")
    direct, ours = stdio(*command, ours=False), stdio(*command, gateway=PLAIN_GATEWAY)
    compared(direct, ours, mode, tally, f"everything, stdio, {mode}")


@pytest.mark.parametrize("mode", MODES)
def test_everything_is_as_on_a_direct_connection_by_http(servers: McpServers, mode: str, tally: Tally) -> None:
    there, here = free_port(), free_port()
    everything = (str(servers.node / "mcp-server-everything"), "streamableHttp")
    url = f"http://127.0.0.1:{there}/mcp"
    gateway = (*PLAIN_GATEWAY, "--url", url, "--port", str(here))
    with running(*everything, port=there, PORT=str(there)), running(*gateway, port=here):
        compared(url, f"http://127.0.0.1:{here}/mcp", mode, tally, f"everything, http, {mode}")


SDK_SERVER = """
import sys
from mcp.server import MCPServer
server = MCPServer("things")
@server.tool(structured_output=False)
def text(n: int) -> str:
    return "a line of a text that is repeated\\n" * 30
if sys.argv[1] == "stdio": server.run("stdio")
else: server.run(sys.argv[1], port=int(sys.argv[2]))
"""
CALLS = [("text", {"n": 1}), ("text", {"n": 2}), ("text", {"n": 2})]


@pytest.mark.parametrize(
    ("transport", "mode", "hints"),
    [
        ("streamable-http", "legacy", [False, True, False]),
        ("streamable-http", "auto", [False, False, False]),  # no session: nothing is remembered
        ("sse", "legacy", [False, True, False]),
        ("stdio", "legacy", [False, True, False]),
        ("stdio", "auto", [False, True, False]),
    ],
)
def test_a_server_of_the_official_sdk(tmp_path: Path, transport: str, mode: str, hints: list[bool]) -> None:
    from mcp.client.sse import sse_client

    (tmp_path / "server.py").write_text(SDK_SERVER)
    server = (sys.executable, str(tmp_path / "server.py"), transport)
    if transport == "stdio":
        found = said(stdio(*server), mode, *CALLS)
    else:
        there, here, path = free_port(), free_port(), "/sse" if transport == "sse" else "/mcp"
        url = f"http://127.0.0.1:{here}{path}"
        gateway = (*GATEWAY, "--url", f"http://127.0.0.1:{there}{path}", "--port", str(here))
        with running(*server, str(there), port=there), running(*gateway, port=here):
            found = said(sse_client(url) if transport == "sse" else url, mode, *CALLS)
    assert [text.startswith("[ibidem: unchanged, same as the result 1 things call ago") for text in found] == hints


GUARDED_SERVER = """
import sys
from mcp.server import MCPServer
from mcp.server.auth.provider import AccessToken, TokenVerifier
from mcp.server.auth.settings import AuthSettings
class Verifier(TokenVerifier):
    async def verify_token(self, token):
        return AccessToken(token=token, client_id="c", scopes=["x"]) if token == "good" else None
url = f"http://127.0.0.1:{sys.argv[1]}"
settings = AuthSettings(issuer_url=url, resource_server_url=f"{url}/mcp", required_scopes=["x"])
server = MCPServer("things", token_verifier=Verifier(), auth=settings)
@server.tool(structured_output=False)
def text(n: int) -> str:
    return "a line of a text that is repeated\\n" * 30
server.run("streamable-http", port=int(sys.argv[1]))
"""


def test_a_token_passes_and_a_login_is_refused_by_the_client_as_the_resource_has_another_address(
    tmp_path: Path,
) -> None:
    import httpx2
    from mcp import Client
    from mcp.client.auth import OAuthClientProvider
    from mcp.client.streamable_http import streamable_http_client
    from mcp.shared.auth import OAuthClientMetadata
    from pydantic import AnyUrl

    class Forgetful:
        async def get_tokens(self) -> None: ...
        async def set_tokens(self, tokens: Any) -> None: ...
        async def get_client_info(self) -> None: ...
        async def set_client_info(self, client_info: Any) -> None: ...

    async def with_a_token(url: str) -> list[bool]:
        async with (
            httpx2.AsyncClient(headers={"Authorization": "Bearer good"}) as http,
            Client(streamable_http_client(url, http_client=http), mode="legacy") as client,
        ):
            results: list[Any] = [await client.call_tool(tool, arguments) for tool, arguments in CALLS]
            return [result.content[0].text.startswith("[ibidem: ") for result in results]

    async def tried(url: str) -> str:
        metadata = OAuthClientMetadata(redirect_uris=[AnyUrl("http://localhost:1/")], client_name="a client")
        login = OAuthClientProvider(server_url=url, client_metadata=metadata, storage=Forgetful())
        async with httpx2.AsyncClient(auth=login) as http:
            try:
                async with Client(streamable_http_client(url, http_client=http), mode="legacy"):
                    return "it connected"
            except BaseException as error:
                while isinstance(error, BaseExceptionGroup):
                    error = error.exceptions[0]
                return str(error)

    (tmp_path / "server.py").write_text(GUARDED_SERVER)
    there, here = free_port(), free_port()
    url, own = (f"http://127.0.0.1:{port}/mcp" for port in (here, there))
    guarded = (sys.executable, str(tmp_path / "server.py"), str(there))
    with (
        running(*guarded, port=there),
        running(*GATEWAY, "--url", own, "--port", str(here), port=here),
    ):
        assert asyncio.run(with_a_token(url)) == [False, True, False]
        assert asyncio.run(tried(url)) == f"Protected resource {own} does not match expected {url}"


# --- servers that people use -----------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
def test_git(servers: McpServers, tmp_path: Path, mode: str, tally: Tally) -> None:
    git = ("git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@b.example")
    subprocess.run([*git, "init", "-q"], check=True)
    for number in range(5):
        subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", f"the commit with number {number}"], check=True)
    log = ("git_log", {"repo_path": str(tmp_path), "max_count": 5})
    other = ("git_log", {"repo_path": str(tmp_path), "max_count": 9})
    command = (str(servers.python / "mcp-server-git"), "--repository", str(tmp_path))
    direct = said(stdio(*command, ours=False), mode, log, log, other, log)
    found = said(stdio(*command), mode, log, log, other, log)
    kept = [one == two for one, two in zip(direct, found, strict=True)]
    tally(f"git, {mode}", calls=4, hints=kept.count(False), bytes=sum(map(len, direct)), sent=sum(map(len, found)))
    assert kept == [True, False, False, True]
    assert f"2 mcp-git calls ago, git_log(repo_path={tmp_path}"[:60] in found[2]


@pytest.mark.parametrize("mode", MODES)
def test_filesystem_and_time_promise_structure_and_are_left_alone_unless_asked(
    servers: McpServers, tmp_path: Path, mode: str, tally: Tally
) -> None:
    (tmp_path / "a.txt").write_text("a line of a file\n" * 50)
    command = (str(servers.node / "mcp-server-filesystem"), str(tmp_path))
    reads = [("read_text_file", {"path": str(tmp_path / "a.txt")})] * 2
    direct = said(stdio(*command, ours=False), mode, *reads)
    assert said(stdio(*command), mode, *reads) == direct
    first, again = said(stdio(*command, options=("--strip-schema",)), mode, *reads)
    assert first == direct[0]
    assert again.startswith("[ibidem: unchanged, same as the result 1 secure-filesystem-server call ago")
    clock = (str(servers.python / "mcp-server-time"),)
    asked = ("convert_time", {"source_timezone": "UTC", "time": "12:00", "target_timezone": "Asia/Tokyo"})
    assert said(stdio(*clock), mode, asked, asked) == said(stdio(*clock, ours=False), mode, asked, asked)
    tally(f"filesystem, {mode}", structured_left=2, hints_with_strip_schema=1)


# --- Claude Code ----------------------------------------------------------------------------------


def claude_code(tmp_path: Path, programs: Path, *options: str) -> list[str]:
    """What its model got for the same tool, called three times."""
    (tmp_path / "server.py").write_text(SDK_SERVER)
    server = {
        "command": sys.executable,
        "args": [*PLAIN_GATEWAY[1:], *options, "--", sys.executable, str(tmp_path / "server.py"), "stdio"],
        "env": {"PYTHONPATH": os.environ.get("PYTHONPATH", "")},
    }
    settings = tmp_path / "mcp.json"
    settings.write_text(json.dumps({"mcpServers": {"things": server}}))
    calls = [Calls(("mcp__things__text", {"n": number})) for number in range(3)]
    talk = by_turn([*calls, Says("done")])
    with Upstream(lambda seen: talk(seen) if seen.json.get("tools") else Says("ok")) as upstream:
        own = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "ANTHROPIC_API_KEY": "sk-ant-opens-nothing"}
        asked = [str(programs / "claude"), "-p", "Call it three times.", "--allowedTools", "mcp__things__text"]
        done = subprocess.run(
            [*asked, "--mcp-config", str(settings), "--strict-mcp-config"],
            env={**own, **QUIET, "ANTHROPIC_BASE_URL": upstream.url, "ENABLE_TOOL_SEARCH": "false"},
            cwd=tmp_path,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=300,
        )
        last = [each for each in upstream.seen if each.method == "POST" and each.json.get("tools")][-1].json
    assert done.returncode == 0, done
    blocks = [block for each in last["messages"] if isinstance(each["content"], list) for block in each["content"]]
    found = [block["content"] for block in blocks if block["type"] == "tool_result"]
    return [text if isinstance(text, str) else "".join(part["text"] for part in text) for text in found]


def test_claude_code_gets_no_hints_unless_asked(tmp_path: Path, programs: Path, tally: Tally) -> None:
    full = "a line of a text that is repeated\n" * 30
    plain = claude_code(tmp_path, programs)
    assert [text.strip() for text in plain] == [full.strip()] * 3
    asked = claude_code(tmp_path, programs, "--no-subagents")
    hints = [text.startswith("[ibidem: unchanged, same as the result") for text in asked]
    assert hints == [False, True, True]
    tally("Claude Code", calls=3, hints=0, hints_with_no_subagents=hints.count(True))


# --- servers that mean no good ----------------------------------------------------------------------


class Ended(NamedTuple):
    code: int
    digest: str
    size: int
    peak_mb: float
    err: bytes


MEASURED = """
import resource, subprocess, sys
code = subprocess.call(sys.argv[2:])
open(sys.argv[1], "w").write(f"{code} {resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss}")
"""
"""A program of its own, and small: what a child takes is not told apart from what its parent took before."""


def ended(command: list[str], given: bytes, folder: Path) -> Ended:
    """Its output is read as it comes; its memory at the highest, or its server's."""
    whole = [sys.executable, "-c", MEASURED, str(folder / "measured"), *command]
    digest, size = hashlib.sha256(), 0
    (folder / "given").write_bytes(given)
    with (
        (folder / "given").open("rb") as asks,
        (folder / "err").open("wb") as err,
        subprocess.Popen(whole, stdin=asks, stdout=subprocess.PIPE, stderr=err) as process,
    ):
        assert process.stdout is not None
        while piece := process.stdout.read(2**16):
            digest.update(piece)
            size += len(piece)
    code, peak = map(int, (folder / "measured").read_text().split())
    return Ended(code, digest.hexdigest(), size, peak / 1024, (folder / "err").read_bytes())


OUT = "import os, sys\nout = sys.stdout.buffer\nsys.stdin.buffer.readline()\n"
HOSTILE = {
    "one line of 100 MB": "for _ in range(1600): out.write(b'x' * 65536)\nout.write(b'\\n')\n",
    "a result of 100 MB": (
        'out.write(b\'{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"\')\n'
        "for _ in range(1600): out.write(b'x' * 65536)\nout.write(b'\"}]}}\\n')\n"
    ),
    "100 MB without an end": "for _ in range(1600): out.write(b'\\xff' * 65536)\nout.flush(); os._exit(4)\n",
    "a million lines": 'for n in range(1000000): out.write(b\'{"method":"notifications/message","n":%d}\\n\' % n)\n',
    "a result of 7 MB, forty times": (
        'for n in range(40): out.write(b\'{"jsonrpc":"2.0","id":%d,"result":{"content":[{"type":"text","text":"\' % n '
        "+ b'y' * 7000000 + b'%d\"}]}}\\n' % n)\n"
    ),
    "100 MB of brackets in lines": "for _ in range(100): out.write(b'[' * 1000000 + b'\\n')\n",
    "a result of 8 MB of little things": (
        'out.write(b\'{"jsonrpc":"2.0","id":1,"result":{"content":[],"x":[\' + b"{}," * 2700000 + b"0]}}\\n")\n'
    ),
    "half a line, killed": "out.write(b'{\"half'); out.flush(); os.kill(os.getpid(), 9)\n",
    "nothing at all": "os._exit(0)\n",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_server_passes_or_ends_as_without_us_in_bounded_memory(
    name: str, tmp_path: Path, tally: Tally
) -> None:
    (tmp_path / "server.py").write_text(OUT + HOSTILE[name])
    calls = b"".join(
        b'{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"t","arguments":{}}}\n' % id
        for id in range(1, 60)
    )
    server = [sys.executable, str(tmp_path / "server.py")]
    direct = ended(server, INITIALIZE + calls, tmp_path)
    ours = ended([*GATEWAY, "--", *server], INITIALIZE + calls, tmp_path)
    assert ours[:3] == direct[:3]
    assert ours.err.startswith(direct.err)
    assert ours.err.decode().endswith(" bytes saved\n")
    tally(f"hostile: {name}", bytes=ours.size, code=ours.code, peak_mb=round(ours.peak_mb))
    assert ours.peak_mb < 80


LARGE_SERVER = """
import sys
from aiohttp import web
async def answer(request):
    await request.read()
    kind = request.path.strip("/").replace("-", "/", 1)
    response = web.StreamResponse(headers={"Content-Type": kind, "Mcp-Session-Id": "s"})
    await response.prepare(request)
    await response.write(b'data: ' if "event" in kind else b"")
    await response.write(b'{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"')
    for _ in range(1600): await response.write(b"x" * 65536)
    await response.write(b'"}]}}\\n\\n')
    return response
app = web.Application(client_max_size=2**30)
app.router.add_route("*", "/{path}", answer)
web.run_app(app, host="127.0.0.1", port=int(sys.argv[1]), print=None)
"""


@pytest.mark.parametrize("kind", ["application-json", "text-event-stream"])
def test_large_bodies_stream_through_by_http_in_bounded_memory(tmp_path: Path, kind: str, tally: Tally) -> None:
    import aiohttp

    (tmp_path / "server.py").write_text(LARGE_SERVER)
    there, here = free_port(), free_port()
    gateway = [*GATEWAY, "--url", f"http://127.0.0.1:{there}/x", "--port", str(here)]

    async def asked(port: int) -> tuple[str, int]:
        digest, size = hashlib.sha256(), 0
        headers = {"Mcp-Session-Id": "s", "Accept-Encoding": "identity"}
        async with aiohttp.ClientSession() as client:
            url, large = f"http://127.0.0.1:{port}/{kind}", io.BytesIO(b"y" * 50_000_000)
            async with client.post(url, data=large, headers=headers) as answer:
                async for piece in answer.content.iter_any():
                    digest.update(piece)
                    size += len(piece)
                    await asyncio.sleep(0)
        return digest.hexdigest(), size

    with (
        running(sys.executable, str(tmp_path / "server.py"), str(there), port=there),
        subprocess.Popen(gateway, stderr=subprocess.PIPE) as ours,
    ):
        try:
            assert ours.stderr is not None
            ours.stderr.readline()
            assert asyncio.run(asked(here)) == asyncio.run(asked(there))
            status = Path(f"/proc/{ours.pid}/status").read_text().splitlines()
        finally:
            ours.terminate()
    peak = next(int(line.split()[1]) / 1024 for line in status if line.startswith("VmHWM"))
    tally(f"hostile by http: 100 MB of {kind}", peak_mb=round(peak))
    assert peak < 120
