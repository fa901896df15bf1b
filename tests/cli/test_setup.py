"""`ibidem setup`: what it prints can be put where it says, and nothing is written."""

from __future__ import annotations

import configparser
import json
import os
import plistlib
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from ibidem.cli import main
from ibidem.cli.clients.catalog import prepare_client
from ibidem.cli.clients.client_setup import TOOL_SEARCH, ClientContext, start_command
from ibidem.cli.setup.snippets import CLAUDE_VARIABLES, systemd_unit
from ibidem.proxy.settings import Settings, load_settings

URL = f"http://127.0.0.1:{Settings().port}"
OTHER = "http://localhost:9000"


def run(*args: str) -> Result:
    return CliRunner().invoke(main, ["setup", *args], catch_exceptions=False)


def printed(*args: str) -> str:
    result = run(*args)
    assert result.exit_code == 0, result.stderr
    return result.stdout


def parsed_json(*args: str) -> dict[str, Any]:
    found = json.loads(printed(*args))
    assert isinstance(found, dict)
    return found


def wrapped(program: str, url: str) -> tuple[list[str], dict[str, str]]:
    """The command and variables that `ibidem wrap` would use."""
    context = ClientContext((program,), {"HOME": "/nowhere"}, Path("/nowhere"))
    return start_command(context, prepare_client(context), url, "", Settings().upstreams)


@pytest.mark.parametrize("url", [URL, OTHER])
def test_claude_code_gets_what_wrap_would_give_it(url: str) -> None:
    options = [] if url == URL else ["--url", f"{url}/"]
    variables = {name: text for name, text in wrapped("claude", url)[1].items() if name in CLAUDE_VARIABLES}
    assert parsed_json("claude", *options) == {"env": variables}
    assert variables[TOOL_SEARCH] == "true"
    rows = parsed_json("ide", *options)["claudeCode.environmentVariables"]
    assert {row["name"]: row["value"] for row in rows} == variables


def test_codex_gets_what_wrap_would_give_it() -> None:
    command, _ = wrapped("codex", URL)
    assert tomllib.loads(printed("codex")) == tomllib.loads(command[2])


def test_opencode_gets_what_wrap_would_give_it() -> None:
    _, ready = wrapped("opencode", URL)
    (found,) = [json.loads(text) for name, text in ready.items() if name.startswith("OPENCODE")]
    assert parsed_json("opencode")["provider"] == found["provider"]


def test_the_status_line_is_a_command_that_is_there() -> None:
    found = parsed_json("statusline")["statusLine"]
    assert found["type"] == "command"
    words = shlex.split(found["command"])
    assert words[-1] == "statusline"
    assert shutil.which(words[0])


def proxy_options(command: list[str]) -> Settings:
    """What the proxy of a service runs with."""
    assert command[:4] == [sys.executable, "-m", "ibidem.cli", "proxy"]
    host, port = command[5], int(command[7])
    assert (command[4], command[6], command[8:]) == ("--host", "--port", ["--no-websockets"])
    return load_settings({"host": host, "port": port, "websockets": False})


@pytest.mark.parametrize("url", [URL, OTHER])
def test_a_unit_starts_the_proxy_at_this_address(url: str) -> None:
    unit = configparser.RawConfigParser()
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read_string(printed("service", "--systemd", "--url", url))
    settings = proxy_options(shlex.split(unit["Service"]["ExecStart"]))
    assert f"http://{settings.host}:{settings.port}" == url
    assert unit["Service"]["Restart"] == "always"
    assert unit["Install"]["WantedBy"] == "default.target"


def test_a_unit_is_one_that_systemd_takes(tmp_path: Path) -> None:
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("no systemd here")
    path = tmp_path / "ibidem.service"
    path.write_text(printed("service", "--systemd"))
    done = subprocess.run([analyze, "verify", str(path)], capture_output=True, text=True, timeout=60, check=False)
    if "Failed to initialize manager" in done.stderr:
        pytest.skip("systemd cannot look at units here")
    assert "ibidem.service" not in done.stderr


def test_a_unit_quotes_what_systemd_would_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", '/opt/50% off/$HOME "x"/python')
    assert 'ExecStart="/opt/50%% off/$$HOME \\"x\\"/python" -m' in systemd_unit(URL)


def test_a_property_list_starts_the_proxy_at_this_address() -> None:
    agent = plistlib.loads(printed("service", "--launchd", "--url", OTHER).encode())
    settings = proxy_options(agent["ProgramArguments"])
    assert (settings.host, settings.port) == ("localhost", 9000)
    assert agent["RunAtLoad"] is agent["KeepAlive"] is True


@pytest.mark.parametrize("client", ["claude", "codex", "opencode", "ide", "service"])
def test_the_risk_is_told_first_and_the_way_back_last(client: str) -> None:
    said = run(client, *(["--systemd"] if client == "service" else [])).stderr.splitlines()
    assert "fails while the proxy is not running" in said[0]
    assert said[-1].startswith("- To undo it: ")


@pytest.mark.parametrize("client", ["claude", "codex", "opencode"])
def test_the_first_choice_is_an_alias(client: str) -> None:
    said = run(client).stderr.splitlines()
    alias = said.index(f"  alias {client}='ibidem wrap -- {client}'")
    assert alias < next(
        number for number, text in enumerate(said) if text.startswith("For clients that ignore aliases")
    )


def test_figures_need_no_proxy() -> None:
    assert "fails" not in run("statusline").stderr


@pytest.mark.parametrize(
    ("args", "words"),
    [
        pytest.param(["vim"], "'vim' is not one of 'claude'", id="an unknown client"),
        pytest.param(["claude", "--url", "8123"], "--url: invalid URL", id="an address that is none"),
        pytest.param(["claude", "--url", "https://proxy.example"], "of this machine", id="another machine"),
        pytest.param(["service", "--systemd", "--url", f"{URL}/x"], "without a path", id="a service with a path"),
        pytest.param(["claude", "--systemd"], "needs the client service", id="a client with a service's option"),
    ],
)
def test_mistakes_are_one_line(args: list[str], words: str) -> None:
    result = run(*args)
    assert (result.exit_code, result.stdout) == (2, "")
    (said,) = result.stderr.splitlines()
    assert words in said


def test_nothing_is_written(tmp_path: Path) -> None:
    kept = {name: text for name, text in os.environ.items() if not name.startswith(("IBIDEM_", "XDG_"))}
    env = {**kept, "HOME": str(tmp_path)}
    for client in ("claude", "codex", "opencode", "ide", "statusline"):
        command = [sys.executable, "-m", "ibidem.cli", "setup", client]
        subprocess.run(command, env=env, cwd=tmp_path, capture_output=True, check=True)
    assert not list(tmp_path.rglob("*"))


def test_setup_without_a_client_lists_them_in_one_line() -> None:
    result = run()
    assert result.exit_code == 2
    assert "Choose from: claude, codex, opencode, ide, service, statusline (see " in result.stderr
