"""More clients through `ibidem wrap`, against a mock provider on loopback: one short session each.

    python -m pytest tests_slow/test_more_clients.py

Set IBIDEM_TEST_CLIENTS to a folder to keep the clients. Programs that are not in it are installed from npm.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from ibidem.testing import Answer, Calls, Says, Seen, Upstream, by_turn

from .conftest import Tally
from .endpoint import served
from .test_clients import END, FILE, QUIET, SHOWN, rewritten

PATIENCE = 120
PROMPT = "Look at a.py, three times."
PACKAGES = {
    "claude": "@anthropic-ai/claude-code",
    "cline": "cline",
    "cn": "@continuedev/cli",
    "copilot": "@github/copilot",
    "gemini": "@google/gemini-cli",
    "pi": "@earendil-works/pi-coding-agent@0.87.1",  # dependencies of newer versions are missing in the registry
    "qwen": "@qwen-code/qwen-code",
}
KEY = "opens-nothing"


@dataclass(frozen=True)
class Client:
    """A client, how it is started, and what the provider should see. `{up}` is the provider's address."""

    command: tuple[str, ...]
    variables: Mapping[str, str]
    path: str
    """Pattern of the path that the provider sees."""
    format: str = "anthropic"
    credential: tuple[str, str | None] = ("x-api-key", KEY)
    tool: str = "Bash"
    arguments: Mapping[str, Any] = field(default_factory=dict)
    """Arguments of the tool beside `command`."""
    upstreams: tuple[str, ...] = ()
    """Providers to name with `--upstream`. Without it, the client's own base URL is inherited."""
    files: Mapping[str, str] = field(default_factory=dict)
    """By path in the home folder: text of a settings file."""


def claude_code(path: str, credential: tuple[str, str | None], *upstreams: str, **variables: str) -> Client:
    command = ("claude", "-p", PROMPT, "--allowedTools", "Bash")
    return Client(command, {**QUIET, **variables}, path, credential=credential, upstreams=upstreams)


def copilot(kind: str, path: str, base: str, format: str, credential: tuple[str, str]) -> Client:
    own = {"COPILOT_PROVIDER_TYPE": kind, "COPILOT_PROVIDER_BASE_URL": base, "COPILOT_PROVIDER_API_KEY": KEY}
    command, more = ("copilot", "-p", PROMPT, "--allow-all-tools"), {"description": "Show the file"}
    variables = {**own, "COPILOT_MODEL": "claude-sonnet-4-5", "COPILOT_AUTO_UPDATE": "false"}
    return Client(command, variables, path, format, credential, "bash", more)


def pi(provider: str, model: str, path: str, format: str, credential: tuple[str, str], upstream: str) -> Client:
    command = ("pi", "--provider", provider, "--model", model, "-p", PROMPT)
    quiet = {"PI_OFFLINE": "1", "PI_SKIP_VERSION_CHECK": "1", "PI_TELEMETRY": "0"}
    key = {f"{provider.upper()}_API_KEY": KEY}
    return Client(command, {**quiet, **key}, path, format, credential, "bash", upstreams=(upstream,))


def gemini(login: str, path: str, upstream: str, **variables: str) -> Client:
    settings = {"security": {"auth": {"selectedType": login}, "folderTrust": {"enabled": False}}}
    return Client(
        ("gemini", "--yolo", "-m", "gemini-2.5-pro", "-p", PROMPT),
        {"GEMINI_CLI_TRUST_WORKSPACE": "true", **variables},
        path,
        "gemini",
        ("x-goog-api-key", KEY),
        "run_shell_command",
        upstreams=(upstream,),
        files={".gemini/settings.json": json.dumps(settings)},
    )


def continue_dev(provider: str, model: str, path: str, format: str, credential: tuple[str, str]) -> Client:
    entry = f"  - name: Mine\n    provider: {provider}\n    model: {model}\n    apiKey: {KEY}\n    roles: [chat]\n"
    config = f"name: Mine\nversion: 1.0.0\nschema: v1\nmodels:\n{entry}"
    return Client(
        ("cn", "-p", PROMPT, "--allow", "Bash"),
        {"CONTINUE_TELEMETRY_ENABLED": "0"},
        path,
        format,
        credential,
        upstreams=(provider,),
        files={".continue/config.yaml": config},
    )


BEARER = ("authorization", f"Bearer {KEY}")
AWS = {"AWS_REGION": "us-east-1"}
CLIENTS = {
    "Continue": continue_dev("anthropic", "claude-sonnet-4-5", "/v1/messages", "anthropic", ("x-api-key", KEY)),
    "Continue with Gemini": continue_dev(
        "gemini", "gemini-2.5-pro", "/v1beta/models/.*", "gemini", ("x-goog-api-key", KEY)
    ),
    "Continue with OpenRouter": continue_dev("openrouter", "x/y", "/v1/chat/completions", "openai-chat", BEARER),
    "Copilot CLI with OpenAI": copilot("openai", "/v1/chat/completions", "{up}/v1", "openai-chat", BEARER),
    "Copilot CLI with Anthropic": copilot("anthropic", "/v1/messages", "{up}", "anthropic", ("x-api-key", KEY)),
    "Gemini CLI": gemini("gemini-api-key", "/v1beta/models/.*", "gemini", GEMINI_API_KEY=KEY),
    "Gemini CLI on Vertex": gemini(
        "vertex-ai",
        "/v1beta1/publishers/google/models/.*",
        "vertex",
        GOOGLE_API_KEY=KEY,
        GOOGLE_GENAI_USE_VERTEXAI="true",
    ),
    "Qwen Code": Client(
        ("qwen", "--yolo", "-p", PROMPT, "--auth-type", "openai"),
        {"OPENAI_API_KEY": KEY, "OPENAI_MODEL": "qwen3-coder", "OPENAI_BASE_URL": "{up}/v1"},
        "/v1/chat/completions",
        "openai-chat",
        BEARER,
        "run_shell_command",
        {"is_background": False},
        files={".qwen/settings.json": json.dumps({"privacy": {"usageStatisticsEnabled": False}})},
    ),
    "pi with Anthropic": pi(
        "anthropic", "claude-sonnet-4-5", "/v1/messages", "anthropic", ("x-api-key", KEY), "anthropic"
    ),
    "pi with OpenAI": pi("openai", "gpt-5", "/v1/responses", "openai-responses", BEARER, "openai"),
    "Claude Code on Foundry, by resource": claude_code(
        "/v1/messages",
        ("x-api-key", KEY),
        "foundry",
        CLAUDE_CODE_USE_FOUNDRY="1",
        ANTHROPIC_FOUNDRY_RESOURCE="mine",
        ANTHROPIC_FOUNDRY_API_KEY=KEY,
    ),
    "Claude Code on Foundry, by base URL": claude_code(
        "/anthropic/v1/messages",
        ("x-api-key", KEY),
        CLAUDE_CODE_USE_FOUNDRY="1",
        ANTHROPIC_FOUNDRY_BASE_URL="{up}/anthropic",
        ANTHROPIC_FOUNDRY_API_KEY=KEY,
    ),
    "Claude Code on Mantle": claude_code(
        "/v1/messages", BEARER, "mantle", CLAUDE_CODE_USE_MANTLE="1", AWS_BEARER_TOKEN_BEDROCK=KEY, **AWS
    ),
    "Claude Code on Bedrock": claude_code(
        "/model/[^/]+/invoke-with-response-stream",
        BEARER,
        "bedrock",
        CLAUDE_CODE_USE_BEDROCK="1",
        AWS_BEARER_TOKEN_BEDROCK=KEY,
        **AWS,
    ),
    "Claude Code on AWS": claude_code(
        "/v1/messages",
        ("x-api-key", KEY),
        "anthropic-aws",
        CLAUDE_CODE_USE_ANTHROPIC_AWS="1",
        ANTHROPIC_AWS_API_KEY=KEY,
        ANTHROPIC_AWS_WORKSPACE_ID="wrkspc_1",
        **AWS,
    ),
    "Claude Code on Google Cloud": claude_code(
        "/gateway/v1/messages",
        ("authorization", None),
        CLAUDE_CODE_USE_ANTHROPIC_GOOGLE_CLOUD="1",
        ANTHROPIC_GOOGLE_CLOUD_BASE_URL="{up}/gateway",
        ANTHROPIC_GOOGLE_CLOUD_PROJECT="project",
        ANTHROPIC_GOOGLE_CLOUD_LOCATION="global",
        ANTHROPIC_GOOGLE_CLOUD_WORKSPACE_ID="wrkspc_1",
        CLAUDE_CODE_SKIP_ANTHROPIC_GOOGLE_CLOUD_AUTH="1",  # a Google login cannot be played
    ),
}


@pytest.fixture(scope="session")
def clients(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder in which clients are installed."""
    kept = os.environ.get("IBIDEM_TEST_CLIENTS")
    return Path(kept) if kept else tmp_path_factory.mktemp("npm")


def program_folders(folder: Path, program: str) -> list[Path]:
    """Folders of all programs that are installed, with this one among them."""
    found = [*folder.glob("node_modules/.bin"), *folder.glob("*/node_modules/.bin")]
    if not any((each / program).exists() for each in found):
        npm = shutil.which("npm")
        assert npm, "these tests need npm"
        own = folder / program
        own.mkdir(parents=True)
        command = [npm, "install", "--prefix", str(own), "--no-fund", "--no-audit", "node@22", PACKAGES[program]]
        subprocess.run(command, check=True, timeout=1800)
        found.append(own / "node_modules" / ".bin")
    return found


def environment(folder: Path, clients: Path, program: str) -> dict[str, str]:
    """Variables of a user with an empty home in `folder`."""
    paths = [*map(str, program_folders(clients, program)), os.environ.get("PATH", "")]
    (folder / "tmp").mkdir()
    return {
        "PATH": os.pathsep.join(paths),
        "HOME": str(folder / "home"),
        "TMPDIR": str(folder / "tmp"),
        "PYTHONPATH": os.environ.get("PYTHONPATH", ""),
        "CI": "1",
        "HTTPS_PROXY": "http://127.0.0.1:9",  # nobody listens: some clients wait long for hosts that do not answer
        "NO_PROXY": "127.0.0.1",
    }


def prepare_folders(folder: Path, files: Mapping[str, str]) -> Path:
    """Write settings to the home and a file to read to the project. Returns the project."""
    for name, text in files.items():
        path = folder / "home" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    project = folder / "project"
    project.mkdir()
    (project / "a.py").write_text(FILE)
    return project


def wrapped(*command: str, **upstreams: str) -> list[str]:
    """The command line of `ibidem wrap` for a command."""
    options = [f"--upstream={name}={url}" for name, url in upstreams.items()]
    return [sys.executable, "-m", "ibidem.cli", "wrap", "--store", "memory:", *options, "--", *command]


def finish(command: list[str], folder: Path, variables: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    ended = subprocess.run(
        command,
        cwd=folder,
        env=variables,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert ended.returncode == 0, (ended.stdout[-2000:], ended.stderr[-2000:])
    return ended


@pytest.mark.parametrize("name", CLIENTS)
def test_session_is_rewritten_on_its_way_to_the_right_place(
    name: str, tmp_path: Path, clients: Path, tally: Tally
) -> None:
    client = CLIENTS[name]
    project = prepare_folders(tmp_path, client.files)
    # Qwen Code may lose the output of a command that ends at once.
    commands = [f"{each}; sleep 0.3" if client.tool == "run_shell_command" else each for each in SHOWN]
    calls = [Calls((client.tool, {**client.arguments, "command": command})) for command in commands]
    talk = by_turn([*calls, Says(END)])

    def script(seen: Seen) -> Answer:
        return talk(seen) if seen.json.get("tools") else Says("ok")  # titles and probes have no tools

    with Upstream(script) as upstream:
        own = {key: text.replace("{up}", upstream.url) for key, text in client.variables.items()}
        command = wrapped(*client.command, **dict.fromkeys(client.upstreams, upstream.url))
        ended = finish(command, project, {**environment(tmp_path, clients, client.command[0]), **own})
    assert END in ended.stdout
    turns = [each for each in upstream.seen if each.method == "POST" and each.json.get("tools")]
    turns = [each for each in turns if "count" not in each.path]
    assert len(turns) == len(SHOWN) + 1
    assert all(re.fullmatch(client.path, each.path) for each in turns), turns[0].path
    header, value = client.credential
    assert {each.header(header) for each in upstream.seen} == {value}
    tally(f"{name}, wrap", requests=len(turns), fewer_bytes=f"{rewritten(turns, client.format):.0%}")
    assert not any("127.0.0.1" in (tmp_path / "home" / path).read_text() for path in client.files)
    assert not list((tmp_path / "tmp").glob("ibidem-*")), "temporary files are deleted"


def cline_settings(url: str) -> dict[str, str]:
    own = {"provider": "anthropic", "apiKey": KEY, "model": "claude-sonnet-4-5", "baseUrl": f"{url}/v1"}
    entry = {"settings": own, "updatedAt": "2026-01-01T00:00:00.000Z", "tokenSource": "manual"}
    settings = {"version": 1, "lastUsedProvider": "anthropic", "providers": {"anthropic": entry}}
    return {".cline/data/settings/providers.json": json.dumps(settings)}


@pytest.mark.parametrize("way", ["wrap", "proxy"])
def test_cline_uses_a_copy_of_its_settings_or_a_proxy_in_them(way: str, tmp_path: Path, clients: Path) -> None:
    commands = [*SHOWN, SHOWN[-1]]  # its results are one line of JSON: only a whole one is found again
    talk = by_turn([*(Calls(("run_commands", {"commands": [command]})) for command in commands), Says(END)])
    with Upstream(talk) as upstream, served(tmp_path / "ibidem", upstream.url) as proxy:
        settings = cline_settings(f"{proxy.url}/anthropic" if way == "proxy" else upstream.url)
        project = prepare_folders(tmp_path, settings)
        # Without a hub: it would outlive the test.
        own = {**environment(tmp_path, clients, "cline"), "CLINE_SESSION_BACKEND_MODE": "local"}
        ended = finish(wrapped("cline", PROMPT) if way == "wrap" else ["cline", PROMPT], project, own)
        turns, metrics = [each for each in upstream.seen if each.method == "POST"], proxy.metrics()
    assert END in ended.stdout
    assert {(each.path, each.header("x-api-key")) for each in turns} == {("/v1/messages", KEY)}
    assert len(turns) == len(commands) + 1
    assert b"[ibidem " in turns[-1].text
    counted = re.findall(r"^ibidem_requests_total\{.*\} (\d+)$", metrics, re.MULTILINE)
    assert sum(map(int, counted)) == (len(turns) if way == "proxy" else 0), metrics
    ((path, text),) = settings.items()
    assert way == "proxy" or (tmp_path / "home" / path).read_text() == text
    assert not list((tmp_path / "tmp").glob("ibidem-*"))


def test_agent_client_protocol_passes_through_wrap(tmp_path: Path, clients: Path) -> None:
    """Gemini CLI as an editor starts it: JSON-RPC over standard input and output."""
    client = CLIENTS["Gemini CLI"]
    project = prepare_folders(tmp_path, client.files)
    with Upstream(lambda _: Says(END)) as upstream:
        agent = subprocess.Popen(
            wrapped("gemini", "--acp", "-m", "gemini-2.5-pro", gemini=upstream.url),
            cwd=project,
            env={**environment(tmp_path, clients, "gemini"), **client.variables},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        guard = threading.Timer(PATIENCE, agent.terminate)
        guard.start()
        with agent:
            talk = AgentTalk(agent)
            talk.call("initialize", protocolVersion=1, clientCapabilities={})
            session = talk.call("session/new", cwd=str(project), mcpServers=[])["sessionId"]
            prompt = [{"type": "text", "text": "Hello"}]
            assert talk.call("session/prompt", sessionId=session, prompt=prompt)["stopReason"] == "end_turn"
        guard.cancel()
    assert agent.returncode == 0
    assert [each.path for each in upstream.seen] == ["/v1beta/models/gemini-2.5-pro:streamGenerateContent"]


class AgentTalk:
    """Calls to an agent by the Agent Client Protocol."""

    def __init__(self, agent: subprocess.Popen[str]) -> None:
        assert agent.stdin
        assert agent.stdout
        self._input, self._output, self._number = agent.stdin, agent.stdout, 0

    def call(self, method: str, **parameters: Any) -> Any:
        """Send a request and return its result. Every line in between has to be JSON too."""
        self._number += 1
        request = {"jsonrpc": "2.0", "id": self._number, "method": method, "params": parameters}
        self._input.write(json.dumps(request) + "\n")
        self._input.flush()
        while (message := json.loads(self._output.readline())).get("id") != self._number:
            pass
        return message["result"]
