"""`ibidem proxy`: what it prints, what it listens on, and how it ends."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import IO, Any

import pytest
from click.testing import CliRunner

from ibidem.cli import main
from ibidem.cli.clients.catalog import CLIENTS
from ibidem.environment import install_command
from ibidem.proxy.settings import FIELDS, PROVIDERS

pytestmark = pytest.mark.slow  # each starts processes

DEADLINE = 60.0


class Started:
    """`ibidem proxy` as a process."""

    def __init__(self, home: Path, *options: str, **variables: str) -> None:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("IBIDEM_", "XDG_"))}
        usual = {"HOME": str(home), "IBIDEM_STORE": "memory:", "IBIDEM_BUDGET_MS": "60000", "PYTHONUNBUFFERED": "1"}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "ibidem.cli", "proxy", *options],
            env={**kept, **usual, **variables},
            cwd=home,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def announced(self, stream: str = "stdout") -> list[str]:
        """All that it prints when it is ready."""
        lines: list[str] = []
        source: IO[str] = getattr(self.process, stream)
        watch = threading.Timer(DEADLINE, self.process.kill)
        watch.start()
        while not lines or lines[-1] != "Stop with Ctrl-C.":
            if not (line := source.readline()):
                pytest.fail(f"it did not start: {lines}, {self.process.poll()}")
            lines.append(line.rstrip("\n"))
        watch.cancel()
        return lines

    def end(self, number: int = signal.SIGTERM) -> tuple[int, str, str]:
        """Exit code, and what else it printed."""
        self.process.send_signal(number)
        out, err = self.process.communicate(timeout=DEADLINE)
        return self.process.returncode, out, err


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Any]:
    started: list[Started] = []

    def begin(*options: str, **variables: str) -> Started:
        started.append(Started(tmp_path, *options, **variables))
        return started[-1]

    yield begin
    for each in started:
        if each.process.poll() is None:
            each.process.kill()
        each.process.communicate()


def address(lines: list[str]) -> str:
    found = re.search(r"http://127\.0\.0\.1:[0-9]+", "\n".join(lines))
    assert found is not None, lines
    return found[0]


def health(url: str) -> Any:
    with urllib.request.urlopen(f"{url}/ibidem/health", timeout=DEADLINE) as answer:
        return json.load(answer)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_it_says_where_it_listens_and_runs_until_it_is_stopped(start: Any, number: int) -> None:
    proxy = start("--port", "0")
    lines = proxy.announced()
    url = address(lines)
    assert lines[0] == f"Rewriting with profile lossless, on {url}"
    assert lines[1] == f"Requests, cost and savings: {url}/ibidem"
    for client in (row for row in CLIENTS if row.line):
        (line,) = (line for line in lines if line.strip().startswith(f"{client.name}  "))
        assert url in line
    assert health(url)["status"] == "ok"
    code, out, err = proxy.end(number)
    assert (code, err) == (0, "")
    assert re.fullmatch(r"no requests seen\n", out)


@pytest.mark.parametrize(
    ("options", "variables", "line"),
    [
        (["--cache", "auto"], {"IBIDEM_CACHE": "off"}, "Rewriting with profile lossless, cache auto, on "),
        ([], {"IBIDEM_CACHE": "lifetime"}, "Rewriting with profile lossless, cache lifetime, on "),
        (["--cache", "auto", "--observe"], {}, "Observing, on "),
    ],
    ids=["an option", "a variable", "nothing is marked while observing"],
)
def test_the_first_line_says_what_providers_are_asked_to_keep(
    start: Any, options: list[str], variables: dict[str, str], line: str
) -> None:
    assert start("--port", "0", *options, **variables).announced()[0].startswith(line)


def test_settings_come_from_everywhere(start: Any, tmp_path: Path) -> None:
    (tmp_path / "ibidem").mkdir()
    mine = tmp_path / "ibidem" / "ibidem.toml"
    mine.write_text('[proxy]\nport = 0\nprofile = "aggressive"\nobserve = true\n')
    config = {"XDG_CONFIG_HOME": str(tmp_path)}
    proxy = start("--profile", "recoverable", "--no-observe", **config)
    assert proxy.announced()[0].startswith("Rewriting with profile recoverable, on ")

    assert proxy.end()[2] == f"ibidem: settings: port from {mine}\n"
    assert start(IBIDEM_PROFILE="recoverable", **config).announced()[0].startswith("Observing, on ")


FOLDERS = {
    "what may not come from there": (
        "[proxy]\nport = 1\nprofile = 'recoverable'\nobserve = true\n",
        "port, observe in ",
    ),
    "broken": ("[proxy", "{} ignored: not valid TOML"),
}


@pytest.mark.parametrize(("text", "words"), FOLDERS.values(), ids=FOLDERS)
def test_a_file_in_the_current_folder_is_told_and_decides_nothing(
    start: Any, tmp_path: Path, text: str, words: str
) -> None:
    path = tmp_path / "ibidem.toml"
    path.write_text(text)
    proxy = start("--port", "0")
    profile = "lossless" if text == "[proxy" else "recoverable"
    assert proxy.announced()[0].startswith(f"Rewriting with profile {profile}, on ")
    code, _, err = proxy.end()
    assert (code, err.count("\n")) == (0, 1)
    assert err.startswith("ibidem: settings: ")
    assert words.format(path) in err
    assert ("profile from" in err) == (profile == "recoverable")


def test_it_says_who_sees_texts(start: Any) -> None:
    shared = {"IBIDEM_HOST": "0.0.0.0", "IBIDEM_TOKEN": "a-secret"}
    assert "The page does not show texts." in start("--port", "0", **shared).announced()
    assert "The page does not show texts." in start("--port", "0", "--no-texts").announced()
    proxy = start("--port", "0", IBIDEM_PAGE_TOKEN="b-secret", **shared)
    lines = proxy.announced()
    assert "To see texts, send x-ibidem-page-token too, or open the page with page_token= in its URL." in lines
    assert "-secret" not in "\n".join([*lines, *proxy.end()[1:]])


def test_it_says_through_which_proxy_requests_leave_and_no_password(start: Any) -> None:
    proxy = start("--port", "0", https_proxy="http://me:a-secret@proxy.example:3128", no_proxy="")
    lines = proxy.announced()
    assert "Requests are sent through http://proxy.example:3128 (https_proxy)." in lines
    assert "-secret" not in "\n".join([*lines, *proxy.end()[1:]])


def test_a_log_on_standard_output_stands_alone(start: Any) -> None:
    proxy = start("--port", "0", "--json-log", "-")
    address(proxy.announced("stderr"))
    code, out, err = proxy.end()
    assert (code, out) == (0, "")
    assert err.startswith("no requests seen")


def test_what_it_warns_of_is_said_once(start: Any, tmp_path: Path) -> None:
    options = ("--max-rewrite", "1", "--upstream", "anthropic=http://127.0.0.1:9")
    proxy = start("--port", "0", "--store", str(tmp_path / "store"), *options)
    url = address(proxy.announced())
    body = json.dumps({"messages": [{"role": "user", "content": "text " * 60_000}]}).encode()
    for _ in range(3):
        request = urllib.request.Request(f"{url}/v1/messages", body, {"Content-Type": "application/json"})
        with pytest.raises(urllib.error.HTTPError) as unreached:
            urllib.request.urlopen(request, timeout=DEADLINE)
        unreached.value.close()
    warned = [line for line in proxy.end()[2].splitlines() if "without new edits" in line]
    assert warned == [
        "ibidem: request sent without new edits: "
        "the new part of the request is too large: raise the limit with --max-rewrite"
    ]


def test_a_token_is_not_shown_and_is_asked_for(start: Any) -> None:
    proxy = start("--port", "0", IBIDEM_TOKEN="a-secret")
    lines = proxy.announced()
    assert "Clients must send the header x-ibidem-token." in lines
    with pytest.raises(urllib.error.HTTPError) as refused:
        health(address(lines))
    refused.value.close()
    assert refused.value.code in (401, 403)
    _, out, err = proxy.end()
    assert "a-secret" not in "\n".join([*lines, out, err])


def test_a_port_that_is_taken_is_one_line(start: Any) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        out, err = start("--port", str(port)).process.communicate(timeout=DEADLINE)
    assert out == ""
    assert err == f"ibidem: 127.0.0.1 port {port}: this port is in use: use another with --port, or 0 for a free one\n"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        pytest.param(["--port", "70000"], "--port: '70000' cannot be used: use 1 to 65535", id="a port out of range"),
        pytest.param(
            ["--host", "0.0.0.0"], "host 0.0.0.0: other machines can reach this address: set a token", id="no token"
        ),
        pytest.param(["--upstream", "x"], "--upstream: expected NAME=URL", id="no upstream"),
        pytest.param(["--config", "missing.toml"], "missing.toml: No such file or directory", id="no such file"),
        pytest.param(
            ["--host", "192.0.2.1", "--token", "t"], "192.0.2.1 port 8123: this machine has no", id="no address"
        ),
        pytest.param(["--store", "x://y"], "x: no such kind of store", id="a store of no kind"),
        pytest.param(
            ["--store", "redis://:hidden@localhost"],
            "--store: others can see a password on a command line: put the address in IBIDEM_STORE",
            id="a password that others can see",
        ),
        pytest.param(
            ["--port", "0", "--profile", "recoverable", "--store", "/dev/null/store"],
            "/dev/null/store: ",
            id="a store that cannot be used, with a profile that needs it",
        ),
        pytest.param(["--json-log", "/no/such/folder/log"], "/no/such/folder/log", id="a log that cannot be written"),
    ],
)
def test_what_is_wrong_is_one_line(start: Any, options: list[str], words: str) -> None:
    proxy = start(*options)
    out, err = proxy.process.communicate(timeout=DEADLINE)
    assert (proxy.process.returncode, out) == (2, "")
    assert err.startswith(f"ibidem: {words}")
    assert err.count("\n") == 1
    assert "hidden" not in err


def test_a_settings_file_that_cannot_be_read_is_named(start: Any, tmp_path: Path) -> None:
    path = tmp_path / "ibidem" / "ibidem.toml"
    path.parent.mkdir()
    for remove, make, words in (
        (path.parent.exists, path.mkdir, "not a regular file"),
        (path.rmdir, partial(path.symlink_to, path), "Too many levels of symbolic links"),
        (path.unlink, partial(os.mkfifo, path), "not a regular file"),
    ):
        remove()
        make()
        proxy = start("--port", "0", XDG_CONFIG_HOME=str(tmp_path))
        out, err = proxy.process.communicate(timeout=DEADLINE)
        assert (proxy.process.returncode, out) == (2, "")
        assert err == f"ibidem: {path}: {words}: name another with --config\n"


def test_without_its_packages_it_says_what_to_install() -> None:
    code = "import sys; sys.modules['aiohttp'] = None; from ibidem.cli import main; main(['proxy'])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=DEADLINE, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"ibidem: aiohttp: not installed. Run: {install_command('proxy')}\n"


def test_every_setting_has_an_option() -> None:
    shown = CliRunner().invoke(main, ["proxy", "--help"]).stdout
    assert all(f"--{name.replace('_', '-')}" in shown for name in (*FIELDS, "upstream", "config"))


@pytest.mark.parametrize("command", ["proxy", "wrap", "recall-server"])
def test_the_documentation_shows_the_help_as_it_is(command: str) -> None:
    shown = CliRunner().invoke(main, [command, "--help"], prog_name="ibidem", terminal_width=100).stdout
    documented = (Path(__file__).parents[2] / "docs" / "proxy.md").read_text()
    assert shown.rstrip() in documented


def test_the_documentation_names_every_setting_as_it_is() -> None:
    documented = (Path(__file__).parents[2] / "docs" / "proxy.md").read_text()
    for name in FIELDS:
        assert f"`{name}`" in documented
        assert f"`IBIDEM_{name.upper()}`" in documented
    for name, base in PROVIDERS.items():
        variable = f"`IBIDEM_UPSTREAM_{name.upper().replace('-', '_')}`"
        assert f"| `upstreams.{name}` | {variable} | {f'`{base}`' if base else ''}".rstrip() in documented


def test_the_help_names_every_provider() -> None:
    shown = CliRunner().invoke(main, ["proxy", "--help"], terminal_width=200).stdout
    assert all(name in shown for name in PROVIDERS)
