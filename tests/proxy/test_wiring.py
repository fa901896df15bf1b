"""Which variables and arguments lead a client to the proxy, and to whom its requests went before."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ibidem import IbidemError
from ibidem.proxy.settings import PROVIDERS
from ibidem.proxy.wiring import (
    BEDROCK,
    CODEX_LOG,
    CODEX_QUIET,
    FIRST_PARTY,
    HOOKS_OFF,
    HOOKS_URL,
    OPENCODE,
    VARIABLES,
    Wiring,
    inherit,
    leads_to,
    prepared,
)

URL = "http://127.0.0.1:4711"
VERTEX = "ANTHROPIC_VERTEX_BASE_URL"


def wired(command: str, environment: dict[str, str], folder: Path, said: tuple[str, ...] = ()) -> Wiring:
    return inherit(command.split(), {"HOME": str(folder), **environment}, folder, said)


def led(command: str, environment: dict[str, str], folder: Path, said: tuple[str, ...] = ()) -> dict[str, str]:
    """The variables that are new or changed."""
    before = {"HOME": str(folder), **environment}
    wiring = inherit(command.split(), before, folder, said)
    _, after = prepared(command.split(), before, wiring, URL, {**PROVIDERS, **wiring.upstreams})
    return {name: value for name, value in after.items() if before.get(name) != value}


def test_every_variable_leads_to_its_provider_and_the_version_stands_where_clients_want_it(tmp_path: Path) -> None:
    assert led("agent", {}, tmp_path) == {
        "IBIDEM_URL": URL,
        "ANTHROPIC_BASE_URL": f"{URL}/anthropic",
        "ANTHROPIC_API_BASE": f"{URL}/anthropic",
        "ANTHROPIC_HOST": f"{URL}/anthropic",
        "OPENAI_BASE_URL": f"{URL}/openai/v1",
        "OPENAI_API_BASE": f"{URL}/openai/v1",
        "OPENAI_HOST": f"{URL}/openai",
        "GOOGLE_GEMINI_BASE_URL": f"{URL}/gemini",
        "GEMINI_API_BASE": f"{URL}/gemini/v1beta",
        "GOOGLE_HOST": f"{URL}/gemini",
        "ANTHROPIC_VERTEX_BASE_URL": f"{URL}/vertex/v1",
        FIRST_PARTY: "1",
        HOOKS_URL: HOOKS_OFF,
    }


@pytest.mark.parametrize(
    ("before", "upstreams", "after"),
    [
        pytest.param(
            {"ANTHROPIC_BASE_URL": "https://gw/a/"},
            {"anthropic": "https://gw/a"},
            {"ANTHROPIC_BASE_URL": "/anthropic", "ANTHROPIC_API_BASE": "/anthropic", "ANTHROPIC_HOST": "/anthropic"},
            id="what was set becomes the upstream, path included",
        ),
        pytest.param(
            {"OPENAI_BASE_URL": "https://gw/v1"},
            {"openai": "https://gw"},
            {"OPENAI_BASE_URL": "/openai/v1", "OPENAI_API_BASE": "/openai/v1", "OPENAI_HOST": "/openai"},
            id="the version is the client's to send",
        ),
        pytest.param(
            {"OPENAI_API_BASE": "http://localhost:11434/v1"},
            {"openai": "http://localhost:11434"},
            {"OPENAI_BASE_URL": "/openai/v1", "OPENAI_API_BASE": "/openai/v1", "OPENAI_HOST": "/openai"},
            id="an older name counts as well",
        ),
        pytest.param(
            {"OPENAI_BASE_URL": "https://gw/openai"},
            {"openai": "https://gw/openai"},
            {"OPENAI_BASE_URL": "/openai"},
            id="without a version the other names cannot be derived",
        ),
        pytest.param(
            {"ANTHROPIC_BASE_URL": "https://gw", "ANTHROPIC_HOST": "https://other"},
            {"anthropic": "https://gw"},
            {"ANTHROPIC_BASE_URL": "/anthropic", "ANTHROPIC_API_BASE": "/anthropic"},
            id="one that leads elsewhere is left",
        ),
        pytest.param(
            {"OPENAI_BASE_URL": "https://gw/v1", "OPENAI_HOST": "https://gw"},
            {"openai": "https://gw"},
            {"OPENAI_BASE_URL": "/openai/v1", "OPENAI_API_BASE": "/openai/v1", "OPENAI_HOST": "/openai"},
            id="two names for one place",
        ),
        pytest.param({"ANTHROPIC_BASE_URL": "nonsense"}, {}, {}, id="what is no address is left, and all its names"),
        pytest.param({"ANTHROPIC_BASE_URL": "https://me:pw@gw"}, {}, {}, id="a password in it is not ours to send"),
    ],
)
def test_what_was_set_before(
    tmp_path: Path, before: dict[str, str], upstreams: dict[str, str], after: dict[str, str]
) -> None:
    assert wired("agent", before, tmp_path).upstreams == upstreams
    provider = next(each.provider for each in VARIABLES if each.name in before)
    names = {each.name for each in VARIABLES if each.provider == provider}
    found = {name: value for name, value in led("agent", before, tmp_path).items() if name in names}
    assert found == {name: URL + path for name, path in after.items()}


def test_an_upstream_that_is_told_replaces_what_was_set(tmp_path: Path) -> None:
    before = {"ANTHROPIC_BASE_URL": "https://gw", "ANTHROPIC_HOST": "https://other"}
    assert wired("agent", before, tmp_path, ("anthropic",)).upstreams == {}
    found = led("agent", before, tmp_path, ("anthropic",))
    assert found["ANTHROPIC_BASE_URL"] == found["ANTHROPIC_HOST"] == f"{URL}/anthropic"


def test_claude_code_is_told_that_the_address_is_anthropics_only_where_it_is(tmp_path: Path) -> None:
    assert led("claude", {}, tmp_path)[FIRST_PARTY] == "1"
    assert FIRST_PARTY not in led("claude", {"ANTHROPIC_BASE_URL": "https://gw"}, tmp_path)
    assert FIRST_PARTY not in led("claude", {FIRST_PARTY: "0"}, tmp_path)


@pytest.mark.parametrize(
    ("before", "upstream", "address"),
    [
        ({}, None, "/vertex/v1"),
        (
            {VERTEX: "https://europe-west1-aiplatform.googleapis.com/v1"},
            "https://europe-west1-aiplatform.googleapis.com",
            "/vertex/v1",
        ),
        ({VERTEX: "https://gw/vertex_ai/v1/"}, "https://gw/vertex_ai", "/vertex/v1"),
        ({VERTEX: "https://gw/vertex"}, "https://gw/vertex", "/vertex"),
    ],
)
def test_on_vertex_what_was_set_becomes_the_upstream(
    tmp_path: Path, before: dict[str, str], upstream: str | None, address: str
) -> None:
    before = {"CLAUDE_CODE_USE_VERTEX": "1", "CLOUD_ML_REGION": "us-east5", **before}
    assert wired("claude", before, tmp_path).upstreams.get("vertex") == upstream
    assert led("claude", before, tmp_path)[VERTEX] == URL + address


TOKEN, SKIP = {"AWS_BEARER_TOKEN_BEDROCK": "x"}, {"CLAUDE_CODE_SKIP_BEDROCK_AUTH": "1"}
SET = {BEDROCK: "https://bedrock-runtime.eu-west-1.amazonaws.com"}


@pytest.mark.parametrize(
    ("before", "said", "leads"),
    [
        ({**TOKEN, **SET}, False, True),
        ({**SKIP, **SET}, False, True),
        ({**TOKEN, "AWS_ACCESS_KEY_ID": "x", **SET}, False, True),
        (TOKEN, True, True),
        (TOKEN, False, False),
        (SET, False, False),
        (SET, True, False),
        ({"CLAUDE_CODE_SKIP_BEDROCK_AUTH": "0", **SET}, False, False),
        ({}, True, False),
    ],
)
def test_on_bedrock_only_who_signs_nothing_is_led_and_only_where_the_place_is_known(
    tmp_path: Path, before: dict[str, str], said: bool, leads: bool
) -> None:
    told = ("bedrock",) if said else ()
    found = led("claude", {"CLAUDE_CODE_USE_BEDROCK": "1", "AWS_REGION": "x", **before}, tmp_path, told)
    assert found.get(BEDROCK) == (f"{URL}/bedrock" if leads else None)
    if leads and not said:
        assert wired("claude", before, tmp_path).upstreams["bedrock"] == SET[BEDROCK]


@pytest.mark.parametrize(
    ("before", "value"),
    [
        ({}, None),
        ({"HTTPS_PROXY": "http://proxy"}, None),
        ({"HTTP_PROXY": "http://proxy"}, "127.0.0.1,localhost"),
        ({"Http_Proxy": "http://proxy"}, "127.0.0.1,localhost"),
        ({"all_proxy": "socks5://proxy", "NO_PROXY": "corp.example, 127.0.0.1"}, "corp.example,127.0.0.1,localhost"),
    ],
)
def test_another_proxy_does_not_stand_in_the_way(tmp_path: Path, before: dict[str, str], value: str | None) -> None:
    found = led("agent", before, tmp_path)
    assert (found.get("no_proxy"), found.get("NO_PROXY")) == (value, value)


# --- clients that need more ---------------------------------------------------------------------


def arguments(command: str, environment: dict[str, str], folder: Path, said: tuple[str, ...] = ()) -> list[str]:
    before = {"HOME": str(folder), **environment}
    wiring = inherit(command.split(), before, folder, said)
    return prepared(command.split(), before, wiring, URL, {**PROVIDERS, **wiring.upstreams})[0]


def test_codex_is_told_on_its_command_line(tmp_path: Path) -> None:
    told = ["-c", f'openai_base_url="{URL}/openai/v1"']
    assert arguments("/usr/bin/codex -c model=x hi", {}, tmp_path) == ["/usr/bin/codex", *told, "-c", "model=x", "hi"]
    assert arguments("codex.exe", {}, tmp_path) == ["codex.exe", *told]
    assert arguments("my-codex exec", {}, tmp_path) == ["my-codex", "exec"]


def test_codex_does_not_print_that_it_had_to_use_http(tmp_path: Path) -> None:
    """Its own commands do not see what it is told for that; and whatever is set already stays."""
    told = ["-c", f'openai_base_url="{URL}/openai/v1"']
    quiet = [*told, "-c", 'shell_environment_policy.exclude=["RUST_LOG"]']
    assert arguments("codex exec hi", {}, tmp_path) == ["codex", *quiet, "exec", "hi"]
    assert led("codex exec hi", {}, tmp_path)[CODEX_LOG] == CODEX_QUIET
    assert CODEX_LOG not in led("codex", {}, tmp_path), "its full-screen self prints no log"
    assert arguments("codex exec hi", {"RUST_LOG": "info"}, tmp_path) == ["codex", *told, "exec", "hi"]
    assert CODEX_LOG not in led("codex exec hi", {"RUST_LOG": ""}, tmp_path)
    assert CODEX_LOG not in led("agent exec", {}, tmp_path)
    for folder in (tmp_path, tmp_path / "project"):
        config = folder / ".codex" / "config.toml"
        config.parent.mkdir(parents=True)
        config.write_text('[shell_environment_policy]\nexclude = ["AWS_*"]\n')
        before = {"HOME": str(tmp_path)}
        wiring = inherit(["codex", "exec"], before, tmp_path / "project", ())
        command, after = prepared(["codex", "exec"], before, wiring, URL, PROVIDERS)
        assert (command, CODEX_LOG in after) == (["codex", *told, "exec"], False)
        config.unlink()


def test_codex_keeps_the_upstream_of_its_own_settings_and_ignores_variables_as_it_does(tmp_path: Path) -> None:
    config = tmp_path / ".codex" / "config.toml"
    config.parent.mkdir()
    config.write_text('model = "x"\nopenai_base_url = "https://gw/x/v1"\n')
    variables = {"OPENAI_BASE_URL": "https://variable/v1"}
    assert wired("codex", variables, tmp_path).upstreams == {"openai": "https://gw/x", "chatgpt": "https://gw/x/v1"}
    assert not any(name.startswith("OPENAI") for name in led("codex", variables, tmp_path))
    assert wired("codex", {"CODEX_HOME": str(tmp_path / "other")}, tmp_path).upstreams == {}
    assert wired("codex", variables, tmp_path, ("openai",)).upstreams == {}
    config.write_text('openai_base_url = "nonsense"\n')
    assert arguments("codex", {}, tmp_path) == ["codex"]
    config.write_text("not TOML")
    with pytest.raises(IbidemError, match=r"config\.toml: not valid TOML"):
        wired("codex", {}, tmp_path)  # to us: Codex may read an address in it


def addresses(environment: dict[str, str], folder: Path) -> dict[str, str]:
    content = json.loads(led("opencode", environment, folder).get(OPENCODE, "{}"))
    return {name: each["options"]["baseURL"] for name, each in content.get("provider", {}).items()}


def test_opencode_is_told_in_settings_of_this_run(tmp_path: Path) -> None:
    everything = {
        "anthropic": f"{URL}/anthropic/v1",
        "openai": f"{URL}/openai/v1",
        "google": f"{URL}/gemini/v1beta",
    }
    assert addresses({}, tmp_path) == everything
    before = {OPENCODE: '{"model": "x", "provider": {"openai": {"options": {"timeout": 1}}}}'}
    found = json.loads(led("opencode", before, tmp_path)[OPENCODE])
    assert found["model"] == "x"
    assert found["provider"]["openai"]["options"] == {"timeout": 1, "baseURL": f"{URL}/openai/v1"}


def test_opencode_keeps_what_its_variables_said(tmp_path: Path) -> None:
    found = addresses({"ANTHROPIC_BASE_URL": "https://gw/v1", "GOOGLE_GEMINI_BASE_URL": "https://gw"}, tmp_path)
    assert found == {"anthropic": f"{URL}/anthropic", "openai": f"{URL}/openai/v1"}


@pytest.mark.parametrize(
    "place",
    [".config/opencode/opencode.jsonc", "opencode.json", ".opencode/opencode.json", "variable", "unknown shape"],
)
def test_opencode_is_left_alone_where_it_has_an_address_of_its_own(tmp_path: Path, place: str) -> None:
    folder = tmp_path / "project" / "deep"
    folder.mkdir(parents=True)
    settings = '{"provider": {"openai": {"options": {"baseURL": "https://gw"}}}} // mine'
    environment = {"HOME": str(tmp_path)}
    if place in ("variable", "unknown shape"):
        environment[OPENCODE] = settings if place == "variable" else '["a list"]'
    else:
        path = (tmp_path if place.startswith(".config") else folder.parent) / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(settings)
    found = led("opencode", environment, folder)
    assert OPENCODE not in found
    assert ("ANTHROPIC_BASE_URL" in found) == (place == "unknown shape")


def test_gemini_is_led_only_where_it_knows_how_to_log_in(tmp_path: Path) -> None:
    """Otherwise an address makes it end with "Invalid auth method selected"."""
    assert "GOOGLE_GEMINI_BASE_URL" not in led("gemini", {}, tmp_path)
    assert "GOOGLE_GEMINI_BASE_URL" in led("gemini", {"GOOGLE_GEMINI_BASE_URL": "https://gw"}, tmp_path)
    settings = tmp_path / ".gemini" / "settings.json"
    settings.parent.mkdir()
    settings.write_text('{"security": {"auth": {"selectedType": "gemini-api-key"}}} // mine')
    assert "GOOGLE_GEMINI_BASE_URL" in led("gemini", {}, tmp_path)
    assert "GOOGLE_GEMINI_BASE_URL" not in led("gemini", {"GEMINI_CLI_HOME": str(tmp_path / "x")}, tmp_path / "y")


def test_an_upstream_that_is_the_proxy_itself_is_known() -> None:
    assert leads_to("http://localhost:80/x", 80)
    assert leads_to("http://[::1]:80", 80)
    assert not leads_to("http://localhost:81", 80)
    assert not leads_to("http://example.com:80", 80)
