"""Which variables and arguments lead a client to the proxy, and to whom its requests went before."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ibidem import IbidemError
from ibidem.cli.clients import codex, pi
from ibidem.cli.clients.catalog import UNROUTABLE, prepare_client
from ibidem.cli.clients.claude_code import VERTEX_CHECKSUM
from ibidem.cli.clients.client_setup import (
    HOOKS_OFF,
    HOOKS_URL,
    TOOL_SEARCH,
    VARIABLES,
    ClientContext,
    ClientSetup,
    is_own_address,
    start_command,
)
from ibidem.cli.clients.codex import LOG_VARIABLE, QUIET_LOG
from ibidem.cli.clients.opencode import CONFIG_CONTENT
from ibidem.proxy.settings import PROVIDERS

URL = "http://127.0.0.1:4711"
VERTEX = "ANTHROPIC_VERTEX_BASE_URL"


def context_for(command: str, environment: dict[str, str], folder: Path, named: tuple[str, ...] = ()) -> ClientContext:
    return ClientContext(tuple(command.split()), {"HOME": str(folder), **environment}, folder, named)


def prepare(command: str, environment: dict[str, str], folder: Path, named: tuple[str, ...] = ()) -> ClientSetup:
    return prepare_client(context_for(command, environment, folder, named))


def start(
    command: str, environment: dict[str, str], folder: Path, named: tuple[str, ...] = ()
) -> tuple[list[str], dict[str, str]]:
    context = context_for(command, environment, folder, named)
    setup = prepare_client(context)
    return start_command(context, setup, URL, "/temporary", {**PROVIDERS, **setup.upstreams})


def changed(command: str, environment: dict[str, str], folder: Path, named: tuple[str, ...] = ()) -> dict[str, str]:
    """Variables that are new or different."""
    before = {"HOME": str(folder), **environment}
    after = start(command, environment, folder, named)[1]
    return {name: value for name, value in after.items() if before.get(name) != value}


def test_every_variable_leads_to_its_provider_and_the_version_stands_where_clients_want_it(tmp_path: Path) -> None:
    assert changed("agent", {}, tmp_path) == {
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
        TOOL_SEARCH: "true",
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
    assert prepare("agent", before, tmp_path).upstreams == upstreams
    provider = next(each.provider for each in VARIABLES if each.name in before)
    names = {each.name for each in VARIABLES if each.provider == provider}
    found = {name: value for name, value in changed("agent", before, tmp_path).items() if name in names}
    assert found == {name: URL + path for name, path in after.items()}


def test_an_upstream_that_is_told_replaces_what_was_set(tmp_path: Path) -> None:
    before = {"ANTHROPIC_BASE_URL": "https://gw", "ANTHROPIC_HOST": "https://other"}
    assert prepare("agent", before, tmp_path, ("anthropic",)).upstreams == {}
    found = changed("agent", before, tmp_path, ("anthropic",))
    assert found["ANTHROPIC_BASE_URL"] == found["ANTHROPIC_HOST"] == f"{URL}/anthropic"


def test_tool_search_stays_on_unless_the_user_says_otherwise(tmp_path: Path) -> None:
    assert changed("claude", {}, tmp_path)[TOOL_SEARCH] == "true"
    assert TOOL_SEARCH not in changed("claude", {"ANTHROPIC_BASE_URL": "https://gw"}, tmp_path)
    assert TOOL_SEARCH not in changed("claude", {TOOL_SEARCH: "false"}, tmp_path)
    assert TOOL_SEARCH not in changed("claude", {TOOL_SEARCH: "auto:5"}, tmp_path)


@pytest.mark.parametrize("command", ["claude", "codex", "agent"])
def test_no_private_variable_is_set(tmp_path: Path, command: str) -> None:
    assert not [name for name in changed(command, {}, tmp_path) if name.startswith("_")]


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
    assert prepare("claude", before, tmp_path).upstreams.get("vertex") == upstream
    assert changed("claude", before, tmp_path)[VERTEX] == URL + address


TOKEN = {"AWS_BEARER_TOKEN_BEDROCK": "x"}
REGION = {"AWS_REGION": "eu-west-1"}


@pytest.mark.parametrize(
    ("switch", "before", "variable", "upstream"),
    [
        pytest.param(
            "BEDROCK",
            {**TOKEN, **REGION},
            "ANTHROPIC_BEDROCK_BASE_URL",
            ("bedrock", "https://bedrock-runtime.eu-west-1.amazonaws.com"),
            id="Bedrock with a token, in the region of the variable",
        ),
        pytest.param(
            "BEDROCK",
            {"CLAUDE_CODE_SKIP_BEDROCK_AUTH": "1", "ANTHROPIC_BEDROCK_BASE_URL": "https://gw/bedrock"},
            "ANTHROPIC_BEDROCK_BASE_URL",
            ("bedrock", "https://gw/bedrock"),
            id="Bedrock behind a gateway, without authentication",
        ),
        pytest.param(
            "MANTLE",
            {**TOKEN, "AWS_DEFAULT_REGION": "us-east-2"},
            "ANTHROPIC_BEDROCK_MANTLE_BASE_URL",
            ("mantle", "https://bedrock-mantle.us-east-2.api.aws/anthropic"),
            id="Mantle",
        ),
        pytest.param(
            "ANTHROPIC_AWS",
            {"ANTHROPIC_AWS_API_KEY": "x", **REGION},
            "ANTHROPIC_AWS_BASE_URL",
            ("anthropic-aws", "https://aws-external-anthropic.eu-west-1.api.aws"),
            id="Anthropic on AWS with an API key",
        ),
        pytest.param(
            "FOUNDRY",
            {"ANTHROPIC_FOUNDRY_RESOURCE": "my-resource"},
            "ANTHROPIC_FOUNDRY_BASE_URL",
            ("foundry", "https://my-resource.services.ai.azure.com/anthropic"),
            id="Foundry by its resource",
        ),
        pytest.param(
            "FOUNDRY",
            {"ANTHROPIC_FOUNDRY_BASE_URL": "https://gw/foundry/"},
            "ANTHROPIC_FOUNDRY_BASE_URL",
            ("foundry", "https://gw/foundry"),
            id="Foundry behind a gateway",
        ),
        pytest.param(
            "ANTHROPIC_GOOGLE_CLOUD",
            {"ANTHROPIC_GOOGLE_CLOUD_BASE_URL": "https://claude.example/x/invoke"},
            "ANTHROPIC_GOOGLE_CLOUD_BASE_URL",
            ("anthropic-google", "https://claude.example/x/invoke"),
            id="Google Cloud with a base URL",
        ),
    ],
)
def test_claude_code_on_a_cloud_is_led(
    tmp_path: Path, switch: str, before: dict[str, str], variable: str, upstream: tuple[str, str]
) -> None:
    before = {f"CLAUDE_CODE_USE_{switch}": "1", **before}
    setup = prepare("claude", before, tmp_path)
    assert (dict(setup.upstreams), setup.notices) == (dict([upstream]), ())
    assert changed("claude", before, tmp_path)[variable] == f"{URL}/{upstream[0]}"
    assert changed("run-claude.sh", before, tmp_path)[variable] == f"{URL}/{upstream[0]}"
    after = start("claude", before, tmp_path)[1]
    assert "ANTHROPIC_FOUNDRY_RESOURCE" not in after, "the client rejects it together with a base URL"


@pytest.mark.parametrize(
    ("switch", "before", "why"),
    [
        ("BEDROCK", REGION, "AWS credentials sign host and body"),
        ("BEDROCK", {**REGION, "CLAUDE_CODE_SKIP_BEDROCK_AUTH": "0"}, "AWS credentials sign host and body"),
        ("BEDROCK", TOKEN, "name the upstream: --upstream bedrock=URL"),
        ("BEDROCK", {**TOKEN, "AWS_REGION": "evil.example/x"}, "name the upstream: --upstream bedrock=URL"),
        ("BEDROCK", {**TOKEN, **REGION, "ANTHROPIC_SMALL_FAST_MODEL_AWS_REGION": "us-east-1"}, "another region"),
        ("MANTLE", REGION, "AWS credentials sign host and body"),
        ("ANTHROPIC_AWS", REGION, "Set ANTHROPIC_AWS_API_KEY instead"),
        ("FOUNDRY", {"ANTHROPIC_FOUNDRY_RESOURCE": "evil.example#"}, "--upstream foundry=URL"),
        ("ANTHROPIC_GOOGLE_CLOUD", {}, "set ANTHROPIC_GOOGLE_CLOUD_BASE_URL"),
        ("VERTEX", {}, VERTEX_CHECKSUM),
    ],
)
def test_claude_code_on_a_cloud_that_cannot_be_led_is_told_before_it_starts(
    tmp_path: Path, switch: str, before: dict[str, str], why: str
) -> None:
    before = {f"CLAUDE_CODE_USE_{switch}": "1", **before}
    (notice,) = prepare("claude", before, tmp_path).notices
    assert why in notice
    assert "there are no savings" in notice
    variable = "ANTHROPIC_BEDROCK_BASE_URL"
    assert variable not in changed("claude", before, tmp_path)


def test_an_upstream_that_the_user_names_counts_for_a_cloud_too(tmp_path: Path) -> None:
    before = {"CLAUDE_CODE_USE_BEDROCK": "1", **TOKEN}
    assert prepare("claude", before, tmp_path, ("bedrock",)).upstreams == {}
    assert changed("claude", before, tmp_path, ("bedrock",))["ANTHROPIC_BEDROCK_BASE_URL"] == f"{URL}/bedrock"


def test_switches_of_claude_code_count_in_its_settings_too(tmp_path: Path) -> None:
    settings = tmp_path / ".claude" / "settings.json"
    settings.parent.mkdir()
    settings.write_text(json.dumps({"env": {"CLAUDE_CODE_USE_BEDROCK": "1", **REGION}}))
    setup = prepare("claude", TOKEN, tmp_path)
    assert setup.upstreams == {"bedrock": "https://bedrock-runtime.eu-west-1.amazonaws.com"}
    settings.write_text(json.dumps({"env": {"ANTHROPIC_BASE_URL": "https://gw"}}))
    (notice,) = prepare("claude", {}, tmp_path).notices
    assert f"{settings} sets ANTHROPIC_BASE_URL" in notice
    assert prepare("agent", {}, tmp_path).notices == ()
    settings.write_text("{ not JSON")
    assert prepare("claude", {}, tmp_path).notices == ()


def test_claude_code_with_a_foundry_resource_in_its_settings_gets_no_base_url(tmp_path: Path) -> None:
    """Its settings are stronger than what `wrap` unsets, and it ends with an error if it reads both."""
    settings = tmp_path / ".claude" / "settings.json"
    settings.parent.mkdir()
    settings.write_text(json.dumps({"env": {"CLAUDE_CODE_USE_FOUNDRY": "1", "ANTHROPIC_FOUNDRY_RESOURCE": "mine"}}))
    assert "ANTHROPIC_FOUNDRY_BASE_URL" not in changed("claude", {}, tmp_path)
    (notice,) = prepare("claude", {}, tmp_path).notices
    assert f"{settings} sets ANTHROPIC_FOUNDRY_RESOURCE, which excludes a base URL" in notice


@pytest.mark.parametrize(
    ("before", "value"),
    [
        ({}, None),
        ({"HTTPS_PROXY": "http://proxy"}, "127.0.0.1,localhost"),
        ({"HTTP_PROXY": "http://proxy"}, "127.0.0.1,localhost"),
        ({"Http_Proxy": "http://proxy"}, "127.0.0.1,localhost"),
        ({"all_proxy": "socks5://proxy", "NO_PROXY": "corp.example, 127.0.0.1"}, "corp.example,127.0.0.1,localhost"),
    ],
)
def test_another_proxy_does_not_stand_in_the_way(tmp_path: Path, before: dict[str, str], value: str | None) -> None:
    found = changed("agent", before, tmp_path)
    assert (found.get("no_proxy"), found.get("NO_PROXY")) == (value, value)


def test_both_spellings_of_no_proxy_keep_their_own_entries(tmp_path: Path) -> None:
    before = {"HTTPS_PROXY": "http://proxy", "no_proxy": "a.example", "NO_PROXY": "b.example"}
    found = changed("agent", before, tmp_path)
    assert found["no_proxy"] == "a.example,127.0.0.1,localhost"
    assert found["NO_PROXY"] == "b.example,127.0.0.1,localhost"


# --- clients that need more ---------------------------------------------------------------------


def claude_settings(folder: Path, **variables: str) -> Path:
    path = folder / ".claude" / "settings.json"
    path.parent.mkdir()
    path.write_text(json.dumps({"env": variables}))
    return path


def test_a_proxy_in_the_settings_of_claude_code_does_not_get_its_requests(tmp_path: Path) -> None:
    claude_settings(tmp_path, HTTPS_PROXY="http://proxy", NO_PROXY="a.example")
    found = changed("claude", {"NO_PROXY": "b.example"}, tmp_path)
    assert found["no_proxy"] == found["NO_PROXY"] == "a.example,127.0.0.1,localhost"
    assert "NO_PROXY" not in changed("agent", {}, tmp_path)


@pytest.mark.parametrize("place", ["settings", "variable"])
def test_claude_code_is_left_alone_if_its_settings_exclude_loopback_from_no_proxy(tmp_path: Path, place: str) -> None:
    """Its settings are stronger than variables, so the proxy would see the key in clear."""
    proxy, hosts = {"HTTPS_PROXY": "http://proxy"}, {"NO_PROXY": "a.example", "no_proxy": "a.example"}
    settings = claude_settings(tmp_path, **hosts, **(proxy if place == "settings" else {}))
    setup = prepare("claude", {} if place == "settings" else proxy, tmp_path)
    assert setup.variables == {}
    assert f"Add 127.0.0.1 to NO_PROXY in {settings}." in setup.notices[0]


@pytest.mark.parametrize(
    ("program", "name", "text"),
    [
        ("gemini", ".env", 'HTTPS_PROXY=http://proxy\nNO_PROXY="a.example"\n'),
        ("gemini", ".gemini/.env", "export https_proxy=http://proxy\nexport no_proxy=a.example\n"),
        ("qwen", ".qwen/.env", "HTTPS_PROXY=http://proxy\nNO_PROXY=a.example # mine\n"),
        ("qwen", ".qwen/settings.json", '{"proxy": "http://proxy", "env": {"NO_PROXY": "a.example"}}'),
    ],
)
def test_a_proxy_in_a_file_of_gemini_cli_or_qwen_code_is_bypassed(
    tmp_path: Path, program: str, name: str, text: str
) -> None:
    (tmp_path / f".{program}").mkdir()
    settings = {"security": {"auth": {"selectedType": "gemini-api-key"}}}
    if program == "gemini":
        (tmp_path / ".gemini" / "settings.json").write_text(json.dumps(settings))
    own = {"OPENAI_BASE_URL": "https://gw/v1"} if program == "qwen" else {}
    assert "NO_PROXY" not in changed(program, own, tmp_path)
    (tmp_path / name).write_text(text)
    found = changed(program, own, tmp_path)
    assert found["NO_PROXY"] == found["no_proxy"] == "a.example,127.0.0.1,localhost"


def arguments(command: str, environment: dict[str, str], folder: Path, named: tuple[str, ...] = ()) -> list[str]:
    return start(command, environment, folder, named)[0]


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
    assert changed("codex exec hi", {}, tmp_path)[LOG_VARIABLE] == QUIET_LOG
    assert LOG_VARIABLE not in changed("codex", {}, tmp_path), "its full-screen self prints no log"
    assert arguments("codex exec hi", {"RUST_LOG": "info"}, tmp_path) == ["codex", *told, "exec", "hi"]
    assert LOG_VARIABLE not in changed("codex exec hi", {"RUST_LOG": ""}, tmp_path)
    assert LOG_VARIABLE not in changed("agent exec", {}, tmp_path)
    for folder in (tmp_path, tmp_path / "project"):
        config = folder / ".codex" / "config.toml"
        config.parent.mkdir(parents=True)
        config.write_text('[shell_environment_policy]\nexclude = ["AWS_*"]\n')
        command, after = start("codex exec", {"HOME": str(tmp_path)}, tmp_path / "project")
        assert (command, LOG_VARIABLE in after) == (["codex", *told, "exec"], False)
        config.unlink()


def test_codex_keeps_the_upstream_of_its_own_settings_and_ignores_variables_as_it_does(tmp_path: Path) -> None:
    config = tmp_path / ".codex" / "config.toml"
    config.parent.mkdir()
    config.write_text('model = "x"\nopenai_base_url = "https://gw/x/v1"\n')
    variables = {"OPENAI_BASE_URL": "https://variable/v1"}
    assert prepare("codex", variables, tmp_path).upstreams == {"openai": "https://gw/x", "chatgpt": "https://gw/x/v1"}
    assert not any(name.startswith("OPENAI") for name in changed("codex", variables, tmp_path))
    assert prepare("codex", {"CODEX_HOME": str(tmp_path / "other")}, tmp_path).upstreams == {}
    assert prepare("codex", variables, tmp_path, ("openai",)).upstreams == {}
    config.write_text('openai_base_url = "nonsense"\n')
    assert arguments("codex", {}, tmp_path) == ["codex"]
    config.write_text("not TOML")
    with pytest.raises(IbidemError, match=r"config\.toml: not valid TOML"):
        prepare("codex", {}, tmp_path)  # to us: Codex may read an address in it


def addresses(environment: dict[str, str], folder: Path) -> dict[str, str]:
    content = json.loads(changed("opencode", environment, folder).get(CONFIG_CONTENT, "{}"))
    return {name: each["options"]["baseURL"] for name, each in content.get("provider", {}).items()}


def test_opencode_is_told_in_settings_of_this_run(tmp_path: Path) -> None:
    everything = {
        "anthropic": f"{URL}/anthropic/v1",
        "openai": f"{URL}/openai/v1",
        "google": f"{URL}/gemini/v1beta",
    }
    assert addresses({}, tmp_path) == everything
    before = {CONFIG_CONTENT: '{"model": "x", "provider": {"openai": {"options": {"timeout": 1}}}}'}
    found = json.loads(changed("opencode", before, tmp_path)[CONFIG_CONTENT])
    assert found["model"] == "x"
    assert found["provider"]["openai"]["options"] == {"timeout": 1, "baseURL": f"{URL}/openai/v1"}


def test_opencode_keeps_what_its_variables_said(tmp_path: Path) -> None:
    found = addresses({"ANTHROPIC_BASE_URL": "https://gw/v1", "GOOGLE_GEMINI_BASE_URL": "https://gw"}, tmp_path)
    assert found == {"anthropic": f"{URL}/anthropic", "openai": f"{URL}/openai/v1"}


def test_opencode_gets_openrouter_only_with_a_key(tmp_path: Path) -> None:
    found = addresses({"OPENROUTER_API_KEY": "x"}, tmp_path)
    assert (found["openrouter"], "moonshotai" in found) == (f"{URL}/openrouter/v1", False)
    keys = tmp_path / ".local" / "share" / "opencode" / "auth.json"
    keys.parent.mkdir(parents=True)
    keys.write_text('{"moonshotai": {"type": "api", "key": "x"}}')
    assert addresses({}, tmp_path)["moonshotai"] == f"{URL}/moonshot/v1"


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
        environment[CONFIG_CONTENT] = settings if place == "variable" else '["a list"]'
    else:
        path = (tmp_path if place.startswith(".config") else folder.parent) / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(settings)
    found = changed("opencode", environment, folder)
    assert CONFIG_CONTENT not in found
    assert ("ANTHROPIC_BASE_URL" in found) == (place == "unknown shape")


def test_gemini_is_led_only_where_it_knows_how_to_log_in(tmp_path: Path) -> None:
    """Otherwise an address makes it end with "Invalid auth method selected"."""
    assert "GOOGLE_GEMINI_BASE_URL" not in changed("gemini", {}, tmp_path)
    assert "GOOGLE_GEMINI_BASE_URL" in changed("gemini", {"GOOGLE_GEMINI_BASE_URL": "https://gw"}, tmp_path)
    settings = tmp_path / ".gemini" / "settings.json"
    settings.parent.mkdir()
    settings.write_text('{"security": {"auth": {"selectedType": "gemini-api-key"}}} // mine')
    assert "GOOGLE_GEMINI_BASE_URL" in changed("gemini", {}, tmp_path)
    assert "GOOGLE_GEMINI_BASE_URL" not in changed("gemini", {"GEMINI_CLI_HOME": str(tmp_path / "x")}, tmp_path / "y")


def test_an_upstream_that_is_the_proxy_itself_is_known() -> None:
    assert is_own_address("http://localhost:80/x", 80)
    assert is_own_address("http://[::1]:80", 80)
    assert not is_own_address("http://localhost:81", 80)
    assert not is_own_address("http://example.com:80", 80)


def test_gemini_cli_on_vertex_has_a_variable_of_its_own(tmp_path: Path) -> None:
    settings = tmp_path / ".gemini" / "settings.json"
    settings.parent.mkdir()
    settings.write_text('{"security": {"auth": {"selectedType": "vertex-ai"}}}')
    assert changed("gemini", {}, tmp_path)["GOOGLE_VERTEX_BASE_URL"] == f"{URL}/vertex"
    before = {"GOOGLE_VERTEX_BASE_URL": "https://gw/x"}
    assert prepare("gemini", before, tmp_path).upstreams == {"vertex": "https://gw/x"}
    for login, why in (("oauth-personal", "Google login"), ("", "no login type is selected")):
        settings.write_text(json.dumps({"security": {"auth": {"selectedType": login}}}))
        (notice,) = prepare("gemini", {}, tmp_path).notices
        assert why in notice
        assert "Select an API key or Vertex with /auth" in notice


def test_qwen_code_is_led_only_with_a_base_url_of_the_users(tmp_path: Path) -> None:
    """Its default is DashScope, where it also asks for another kind of caching."""
    before = {"OPENAI_BASE_URL": "https://gw/v1"}
    assert prepare("qwen", before, tmp_path).upstreams == {"openai": "https://gw"}
    assert changed("qwen", before, tmp_path)["OPENAI_BASE_URL"] == f"{URL}/openai/v1"
    assert not [name for name in changed("qwen", {}, tmp_path) if name.startswith("OPENAI")]
    (notice,) = prepare("qwen", {}, tmp_path).notices
    assert "OPENAI_BASE_URL is not set" in notice


COPILOT = "COPILOT_PROVIDER_BASE_URL"


@pytest.mark.parametrize(
    ("kind", "url", "upstream", "path"),
    [
        ({}, "https://gw/v1", ("openai", "https://gw"), "/openai/v1"),
        ({"COPILOT_PROVIDER_TYPE": "anthropic"}, "https://gw/a", ("anthropic", "https://gw/a"), "/anthropic"),
    ],
)
def test_copilot_cli_with_a_provider_of_its_own(
    tmp_path: Path, kind: dict[str, str], url: str, upstream: tuple[str, str], path: str
) -> None:
    before = {**kind, COPILOT: url, "OPENAI_BASE_URL": "https://other/v1", "ANTHROPIC_BASE_URL": "https://other"}
    assert prepare("copilot", before, tmp_path).upstreams[upstream[0]] == upstream[1]
    found = changed("copilot", before, tmp_path)
    assert found[COPILOT] == URL + path
    assert f"{upstream[0].upper()}_BASE_URL" not in found, "it led elsewhere, and one provider has one upstream"


def test_copilot_cli_with_a_github_login_is_told(tmp_path: Path) -> None:
    (notice,) = prepare("copilot", {}, tmp_path).notices
    assert "GitHub login" in notice
    (notice,) = prepare("copilot", {COPILOT: "https://x", "COPILOT_PROVIDER_TYPE": "azure"}, tmp_path).notices
    assert "neither openai nor anthropic" in notice


def test_kimi_code_with_a_key(tmp_path: Path) -> None:
    key = {"KIMI_MODEL_API_KEY": "x", "KIMI_MODEL_NAME": "k"}
    assert changed("kimi", key, tmp_path)["KIMI_MODEL_BASE_URL"] == f"{URL}/moonshot/v1"
    own = {**key, "KIMI_BASE_URL": "https://gw/v1"}
    assert prepare("kimi", own, tmp_path).upstreams == {"moonshot": "https://gw"}
    assert changed("kimi", own, tmp_path)["KIMI_MODEL_BASE_URL"] == f"{URL}/moonshot/v1"
    (notice,) = prepare("kimi", {}, tmp_path).notices
    assert "Kimi login" in notice


def test_pi_gets_base_urls_through_an_extension(tmp_path: Path) -> None:
    command, after = start("pi -p hi", {"ANTHROPIC_BASE_URL": "https://ignored"}, tmp_path)
    assert command == ["pi", "--extension", str(pi.EXTENSION), "-p", "hi"]
    assert pi.EXTENSION.is_file()
    urls = json.loads(after[pi.BASE_URLS])
    assert (urls["anthropic"], urls["openai"]) == (f"{URL}/anthropic", f"{URL}/openai/v1")
    assert prepare("pi", {"ANTHROPIC_BASE_URL": "https://ignored"}, tmp_path).upstreams == {}
    assert arguments("pi install x", {}, tmp_path) == ["pi", "install", "x"]


def test_a_base_url_in_the_models_of_pi_becomes_the_upstream(tmp_path: Path) -> None:
    models = tmp_path / ".pi" / "agent" / "models.json"
    models.parent.mkdir(parents=True)
    models.write_text(json.dumps({"providers": {"openai": {"baseUrl": "https://gw/v1"}, "mine": {"baseUrl": "x"}}}))
    assert prepare("pi", {}, tmp_path).upstreams == {"openai": "https://gw"}
    assert prepare("pi", {}, tmp_path).notices == (
        "pi's models of mine connect directly, so there are no savings for them.",
    )
    models.write_text("{ not JSON")
    with pytest.raises(IbidemError, match=r"models\.json: not valid JSON"):
        prepare("pi", {}, tmp_path)


@pytest.mark.parametrize("program", UNROUTABLE)
def test_a_client_that_cannot_be_led_is_told_before_it_starts(tmp_path: Path, program: str) -> None:
    setup = prepare(program, {}, tmp_path)
    assert setup.variables == {}
    (notice,) = setup.notices
    assert "there are no savings" in notice
    assert UNROUTABLE[program][2] in notice


# --- Codex with a ChatGPT login -----------------------------------------------------------------

LOGIN = {"auth_mode": "chatgpt", "tokens": {"access_token": "secret", "account_id": "account"}}


def chatgpt(folder: Path, monkeypatch: pytest.MonkeyPatch, answer: object) -> list[tuple[str, dict[str, str]]]:
    """Log Codex in, and answer the question for its workspace. Returns the questions."""
    home, asked = folder / ".codex", list[tuple[str, dict[str, str]]]()
    home.mkdir(exist_ok=True)
    (home / "auth.json").write_text(json.dumps(LOGIN))

    def fetch(url: str, headers: dict[str, str], *_: float) -> bytes:
        asked.append((url, headers))
        if isinstance(answer, OSError):
            raise answer
        return json.dumps(answer).encode()

    monkeypatch.setattr(codex, "_fetch", fetch)
    return asked


def workspace(origin: str | None, override: str | None = None, account: str = "account") -> dict[str, object]:
    row = {"id": account, "workspace_backend_origin": origin, "account_routing_override": override}
    return {"accounts": [row]}


@pytest.mark.parametrize("origin", ["https://chatgpt.com", "https://chatgpt.com/", "NO_CONSTRAINT", None])
def test_codex_with_a_workspace_on_chatgpt_com_is_led(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, origin: str | None
) -> None:
    asked = chatgpt(tmp_path, monkeypatch, workspace(origin, "NO_CONSTRAINT"))
    assert arguments("codex", {}, tmp_path) == ["codex", "-c", f'openai_base_url="{URL}/openai/v1"']
    ((url, headers),) = asked
    assert url == "https://chatgpt.com/backend-api/wham/accounts/check"
    assert headers["authorization"] == "Bearer secret"


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (workspace("https://gov.example"), "routed to https://gov.example"),
        (workspace("https://gov.example", account="another"), "routed to https://gov.example"),
        (workspace("https://chatgpt.com", "us_cr"), "routed to us_cr"),
        ({"accounts": {"account": {"account_id": "account", "workspace_backend_origin": "https://x"}}}, "https://x"),
        (OSError("no network"), "did not return the routing"),
        (["not an object"], "did not return the routing"),
    ],
)
def test_codex_with_another_or_an_unknown_workspace_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: object, why: str
) -> None:
    chatgpt(tmp_path, monkeypatch, answer)
    assert arguments("codex exec hi", {}, tmp_path) == ["codex", "exec", "hi"]
    (notice,) = prepare("codex", {}, tmp_path).notices
    assert why in notice
    assert "secret" not in notice


def test_codex_with_a_key_asks_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = chatgpt(tmp_path, monkeypatch, OSError())
    assert "-c" in arguments("codex", {"CODEX_API_KEY": "x"}, tmp_path)
    (tmp_path / ".codex" / "auth.json").write_text('{"auth_mode": "apikey", "OPENAI_API_KEY": "x"}')
    assert "-c" in arguments("codex", {}, tmp_path)
    assert asked == []


def test_codex_with_a_provider_of_its_own_is_told(tmp_path: Path) -> None:
    config = tmp_path / ".codex" / "config.toml"
    config.parent.mkdir()
    config.write_text('model_provider = "mine"\n[model_providers.mine]\nbase_url = "https://gw/v1"\n')
    assert arguments("codex", {}, tmp_path) == ["codex"]
    (notice,) = prepare("codex", {}, tmp_path).notices
    assert "selects the provider mine" in notice
