"""`ibidem mcp`: what is on the command line. What it does is in tests/gateway."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path

import pytest
from click.testing import CliRunner

from ibidem.cli.root_group import main
from tests.gateway.servers import GATEWAY


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        ((), 2, "Pass a command or a URL: ibidem mcp -- SERVER, or ibidem mcp --url URL (see ibidem mcp --help)"),
        (
            ("--url", "http://a/", "--", "b"),
            2,
            "Pass a command or a URL: ibidem mcp -- SERVER, or ibidem mcp --url URL",
        ),
        (("--port", "1", "--", "b"), 2, "--port needs --url: a server on standard input and output has no port"),
        (("--url", "nowhere"), 2, "--url: nowhere: invalid URL of a server. Use one like https://host/mcp"),
        (("--rules", "none.toml", "--", "b"), 2, "none.toml: no such file: name another with --rules"),
        (("--", "no-such-server"), 127, "mcp: no-such-server: command not found: check its name and PATH"),
        (("--", "./folder"), 126, "mcp: ./folder: this is a folder: pass a program"),
        (("--", "./plain"), 126, "mcp: ./plain: not executable: change the file's mode"),
        (("--", "./broken"), 127, "mcp: ./broken: command not found: check its name and PATH"),
    ],
)
def test_a_mistake_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], code: int, said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "plain").write_text("")
    (tmp_path / "folder").mkdir()
    (tmp_path / "broken").write_text("#!/no/such/interpreter\n")
    (tmp_path / "broken").chmod(0o755)
    done = subprocess.run([*GATEWAY, *arguments], capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=60)
    assert done.returncode == code
    assert done.stdout == ""
    assert done.stderr.startswith(f"ibidem: {said}")
    assert done.stderr.count("\n") == 1


def test_a_port_that_is_taken_is_told() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        done = CliRunner().invoke(main, ["mcp", "--url", "http://127.0.0.1:1/mcp", "--port", port])
    assert done.exit_code == 2
    assert re.fullmatch(rf"ibidem: port {port}: .*: use another with --port\n", done.stderr)


def test_a_server_that_is_asked_by_http_ends_with_a_line() -> None:
    command = [*GATEWAY, "--url", "http://127.0.0.1:1/mcp", "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        assert process.stderr.readline().startswith("ibidem: mcp: http://127.0.0.1:")
        process.terminate()
        assert process.stderr.readline() == "ibidem: mcp: 0 results, 0 hints, 0 bytes saved\n"
        assert process.wait(60) == 0


@pytest.mark.parametrize(
    ("proxy", "said"),
    [
        ("http://[::1", "http_proxy: invalid proxy URL. Use one like http://proxy.example:3128"),
        ("http://host:port", "http_proxy: invalid proxy URL. Use one like http://proxy.example:3128"),
        ("socks5://127.0.0.1:1", "http_proxy: SOCKS is not supported here. Use a proxy like http://proxy.example:3128"),
    ],
)
def test_a_proxy_that_cannot_be_used_is_told(monkeypatch: pytest.MonkeyPatch, proxy: str, said: str) -> None:
    monkeypatch.setenv("http_proxy", proxy)
    monkeypatch.setenv("no_proxy", "")
    done = CliRunner().invoke(main, ["mcp", "--url", "http://mcp.invalid/mcp", "--port", "0"])
    assert (done.exit_code, done.stderr) == (2, f"ibidem: {said}\n")


ODD_ANSWERS = {
    "control": b"HTTP/1.1 200 OK\r\nX-N: a\x0bb\r\nContent-Length: 2\r\n\r\nok",
    "bytes": b"HTTP/1.1 200 \xff\xfe\r\nX-A: \xff\xfe\r\nContent-Type: ;;=\xff\r\nContent-Length: 2\r\n\r\nok",
    "garbage": b"\0\1\2\r\n\r\n",
    "status": b"HTTP/1.1 999 Odd\r\nContent-Length: 2\r\n\r\nok",
    "chunks": b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\nZZZ\r\n",
    "short": b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 99\r\n\r\n{}",
}
ODD_REQUESTS = (
    b"OPTIONS * HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    b"GET http://[::1 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nHost: 127.0.0.1\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX: \xff\xfe\0\r\n\r\n",
    b"POST /status HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\nZZZ\r\n",
    b"GET /\xff\xfe%zz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    b"GET /status HTTP/1.1\r\nHost: 127.0.0.1\r\nX: a\x0bb\r\n\r\n",
    b"GET /status HTTP/1.1\r\nHost: 127.0.0.1\r\nX: \xff\xfe\r\n\r\n",
    b"GET /status?\x7f HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    b"\x16\x03\x01\r\n\r\n",
    *(b"GET /%s HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n" % name.encode() for name in ODD_ANSWERS),
)


def test_nothing_is_quoted_of_who_speaks_no_http() -> None:
    with socket.create_server(("127.0.0.1", 0)) as upstream:

        def answer() -> None:
            while True:
                connection, _ = upstream.accept()
                with connection:
                    asked = connection.recv(2**16)
                    if not asked:
                        return
                    connection.sendall(ODD_ANSWERS.get(asked.decode("latin-1").split(" ")[1][1:], b""))

        thread = threading.Thread(target=answer)
        thread.start()
        url = f"http://127.0.0.1:{upstream.getsockname()[1]}/mcp"
        with subprocess.Popen([*GATEWAY, "--url", url, "--port", "0"], stderr=subprocess.PIPE, text=True) as ours:
            assert ours.stderr is not None
            port = int(ours.stderr.readline().split("127.0.0.1:")[1].partition("/")[0])
            for asked in ODD_REQUESTS:
                with socket.create_connection(("127.0.0.1", port), 60) as client:
                    client.sendall(asked)
                    client.shutdown(socket.SHUT_WR)
                    with suppress(ConnectionResetError):
                        client.recv(2**16)
            ours.terminate()
            assert ours.stderr.read() == "ibidem: mcp: 0 results, 0 hints, 0 bytes saved\n"
        socket.create_connection(upstream.getsockname()).close()
        thread.join()


def test_no_loop_and_no_sockets_are_loaded_for_a_server_that_is_run() -> None:
    """A client waits for it at each of its starts."""
    code = (
        "import sys; from ibidem.cli.mcp import _run_stdio; from ibidem.gateway.stdio import StdioBridge; "
        "print(*sys.modules)"
    )
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"asyncio", "aiohttp", "ssl", "rich", "splintr", "genai_prices", "ibidem.engine"}.intersection(loaded)
