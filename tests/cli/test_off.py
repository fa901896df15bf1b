"""`ibidem off` and `ibidem on`: what they do to a running proxy, and what they say where there is none."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from ibidem.cli import main
from tests.support.proxied import Talk, dumped, growing, talk


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("IBIDEM_TOKEN", "IBIDEM_PORT", "IBIDEM_HOST", "IBIDEM_CONFIG", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*args: str) -> Result:
    return CliRunner().invoke(main, list(args))


def the_error(result: Result) -> str:
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    return line.removeprefix("ibidem: ")


def conversations(found: Talk, count: int) -> None:
    for number in range(count):
        found.send("anthropic", dumped(next(growing("anthropic", 1, first=f"do it, {number}"))))
    found.settled(count)


def test_one_is_switched_off_and_on_by_its_id() -> None:
    with talk() as found:
        conversations(found, 2)
        result = run("off", "c2", "--url", found.proxy.url)
        assert (result.exit_code, result.output.startswith("c2: off: rewriting paused")) == (0, True)
        assert found.state["off"] == ["c2"]
        assert run("on", "c2", "--url", f"{found.proxy.url}/ibidem").output == "c2: on: rewriting resumed\n"
        assert found.state["off"] == []


def test_all_of_them() -> None:
    with talk() as found:
        conversations(found, 2)
        assert run("off", "--all", "--url", found.proxy.url).output.startswith(
            "all current and future conversations: off"
        )
        assert (found.state["all_off"], found.state["off"]) == (True, ["c1", "c2"])
        assert run("on", "--all", "--url", found.proxy.url).exit_code == 0
        assert (found.state["all_off"], found.state["off"]) == (False, [])


def test_the_only_one_need_not_be_named() -> None:
    with talk() as found:
        assert "there is no conversation yet" in the_error(run("off", "--url", found.proxy.url))
        conversations(found, 1)
        assert run("off", "--url", found.proxy.url).output.startswith("c1: off")
    with talk() as found:
        conversations(found, 7)
        told = the_error(run("off", "--url", found.proxy.url))
        assert "pass a conversation, or --all: there are 7 (c7, c6, c5, c4, c3, …)" in told


def test_what_cannot_be_is_told_in_one_line() -> None:
    with talk() as found:
        conversations(found, 2)
        url = found.proxy.url
        assert the_error(run("off", "c9", "--url", url)) == (
            f"{url}: c9: no live conversation has this id: see the ids on the page at /ibidem"
        )
        assert "2 conversations have ids that start like this: c1, c2. Pass more of the id" in the_error(
            run("off", "c", "--url", url)
        )
        assert "not both" in the_error(run("off", "c1", "--all", "--url", url))
        hostile = the_error(run("off", "\x1b[31mc1\n", "--url", url))
        assert hostile.isprintable()
    with talk(observe=True) as found:
        assert "this proxy only observes" in the_error(run("off", "--all", "--url", found.proxy.url))


def test_the_token_is_found_where_it_is_set(monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
    with talk(token="secret") as found:
        url = found.proxy.url
        assert the_error(run("off", "--all", "--url", url)).endswith(
            "this proxy needs its token: set IBIDEM_TOKEN, or use --token"
        )
        assert run("off", "--all", "--url", url, "--token", "secret").exit_code == 0
        monkeypatch.setenv("IBIDEM_TOKEN", "secret")
        assert run("on", "--all", "--url", url).exit_code == 0
        monkeypatch.delenv("IBIDEM_TOKEN")
        config = home / "mine.toml"
        config.write_text('[proxy]\ntoken = "secret"\n')
        monkeypatch.setenv("IBIDEM_CONFIG", str(config))
        assert run("on", "--all", "--url", url).exit_code == 0


def test_the_address_is_that_of_the_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    with talk() as found:
        monkeypatch.setenv("IBIDEM_PORT", found.proxy.url.rpartition(":")[2])
        assert run("off", "--all").exit_code == 0
        monkeypatch.setenv("IBIDEM_HOST", "0.0.0.0")
        monkeypatch.setenv("IBIDEM_TOKEN", "needed")
        assert run("on", "--all").exit_code == 0
        assert found.state["all_off"] is False


@pytest.fixture
def stranger() -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.send_error(404)

        def log_message(self, *_: object) -> None: ...

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_who_answers_may_be_somebody_else(stranger: str) -> None:
    assert "not an ibidem proxy (status 404)" in the_error(run("off", "--all", "--url", stranger))


@pytest.mark.parametrize(
    "url", ["ftp://x", "127.0.0.1:8123", "http://[", "http://127.0.0.1:port", "", "http://h:99999"]
)
def test_what_is_no_address(url: str) -> None:
    assert "not the address of a proxy" in the_error(run("off", "--all", "--url", url))


def test_where_nobody_answers_one_line_says_so() -> None:
    with socket.socket() as taken:  # bound, and not listening
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        assert the_error(run("off", "--all", "--url", url)) == (
            f"{url}: no proxy is running there: start `ibidem proxy`, or pass its address with --url"
        )
