"""Which runs of Cline are routed by a copy of its providers.json, and which are left alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ibidem import IbidemError
from ibidem.cli.clients.cline import BACKEND, COPY, SETTINGS_PATH, parse_arguments

from .test_setup import changed, prepare

FILE = ".cline/data/settings/providers.json"
KEY = {"provider": "anthropic", "apiKey": "secret", "model": "claude-sonnet-4-5"}


def write(folder: Path, name: str = FILE, last: str = "anthropic", **entries: dict[str, Any]) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    providers = {name: {"settings": settings} for name, settings in entries.items()}
    path.write_text(json.dumps({"version": 1, "lastUsedProvider": last, "providers": providers}))
    return path


def test_a_run_with_a_prompt_gets_a_copy_with_the_base_url(tmp_path: Path) -> None:
    path = write(tmp_path, anthropic=KEY)
    before = path.read_bytes()
    setup = prepare("cline hello", {}, tmp_path)
    copy = json.loads(setup.files[COPY])
    assert copy["providers"]["anthropic"]["settings"] == {**KEY, "baseUrl": "{url}/anthropic/v1"}
    assert path.read_bytes() == before
    variables = changed("cline hello", {}, tmp_path)
    assert (variables[SETTINGS_PATH], variables[BACKEND]) == (f"/temporary/{COPY}", "local")
    assert "ANTHROPIC_BASE_URL" not in variables
    assert setup.notices == ()


@pytest.mark.parametrize("command", ["cline -P anthropic -k x hello", "cline --provider=anthropic -kx -- hello"])
def test_the_provider_of_the_command_line_needs_no_file(tmp_path: Path, command: str) -> None:
    copy = json.loads(prepare(command, {}, tmp_path).files[COPY])
    assert copy["providers"]["anthropic"]["settings"] == {"provider": "anthropic", "baseUrl": "{url}/anthropic/v1"}


@pytest.mark.parametrize(
    ("variables", "name"),
    [
        ({"CLINE_DIR": "other"}, "other/data/settings/providers.json"),
        ({"CLINE_DATA_DIR": "data"}, "data/settings/providers.json"),
        ({SETTINGS_PATH: "mine.json"}, "mine.json"),
    ],
)
def test_the_file_is_the_one_that_cline_would_read(tmp_path: Path, variables: dict[str, str], name: str) -> None:
    write(tmp_path, name, anthropic=KEY)
    assert "secret" in prepare("cline hello", variables, tmp_path).files[COPY]


@pytest.mark.parametrize(
    ("own", "upstream", "url"),
    [
        ("https://gw.example/v1", "https://gw.example", "{url}/anthropic/v1"),
        ("https://gw.example/x/", "https://gw.example/x", "{url}/anthropic"),
    ],
)
def test_a_base_url_of_the_user_becomes_the_upstream(tmp_path: Path, own: str, upstream: str, url: str) -> None:
    write(tmp_path, anthropic={**KEY, "baseUrl": own})
    setup = prepare("cline hello", {"ANTHROPIC_BASE_URL": "https://ignored.example"}, tmp_path)
    assert setup.upstreams["anthropic"] == upstream
    assert json.loads(setup.files[COPY])["providers"]["anthropic"]["settings"]["baseUrl"] == url
    named = prepare("cline hello", {}, tmp_path, ("anthropic",))
    assert "anthropic" not in named.upstreams


@pytest.mark.parametrize(
    "command",
    [
        "cline",
        "cline -i hello",
        "cline -pi hello",
        "cline --tui hello",
        "cline --data-dir=x hello",
        "cline --zen hello",
        "cline hub start",
        "cline auth anthropic",
        "cline -m model",
        "cline --acp",
        "cline -P cline hello",
    ],
)
def test_other_runs_get_no_variable(tmp_path: Path, command: str) -> None:
    """The hub keeps the variables of the session that started it."""
    write(tmp_path, anthropic=KEY)
    setup = prepare(command, {"OPENAI_BASE_URL": "https://gw/v1"}, tmp_path)
    assert (setup.variables, setup.files, setup.arguments) == ({}, {}, ())
    assert "Cline connects directly, so there are no savings" in setup.notices[0]


@pytest.mark.parametrize("variables", [{BACKEND: "hub"}, {"CLINE_SANDBOX": "1"}], ids=str)
def test_variables_for_the_hub_or_the_sandbox_stay(tmp_path: Path, variables: dict[str, str]) -> None:
    write(tmp_path, anthropic=KEY)
    assert prepare("cline hello", variables, tmp_path).variables == {}


def test_a_login_is_not_copied(tmp_path: Path) -> None:
    """Cline writes renewed tokens to the file: a copy would take them with it."""
    write(tmp_path, anthropic=KEY, cline={"auth": {"refreshToken": "x"}})
    setup = prepare("cline hello", {}, tmp_path)
    assert (setup.variables, setup.files) == ({}, {})
    assert "has a login" in setup.notices[0]


@pytest.mark.parametrize("text", ["{", "[]", '{"providers": {"anthropic": {}}}', '{"providers": {"anthropic": 1}}'])
def test_a_file_that_cannot_be_read_is_an_error(tmp_path: Path, text: str) -> None:
    write(tmp_path).write_text(text)
    with pytest.raises(IbidemError, match=r"providers\.json"):
        prepare("cline hello", {}, tmp_path)


def test_values_of_options_are_not_prompts() -> None:
    assert parse_arguments(["-m", "model", "--thinking", "high", "-p", "do", "it"]) == (
        ["do", "it"],
        {"-m": "model", "--thinking": "high", "-p": ""},
    )
