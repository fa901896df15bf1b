"""Table of clients by program name, clients that cannot be routed, and the lists that `wrap` and `proxy` print."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import NamedTuple

from . import by_login, claude_code, cline, codex, continue_dev, opencode, pi
from .client_setup import VARIABLES, ClientContext, ClientSetup, inherit_base_urls

Prepare = Callable[[ClientSetup, ClientContext], ClientSetup]

PREPARE: Mapping[str, Prepare] = {
    "claude": claude_code.prepare_setup,
    "codex": codex.prepare_setup,
    "opencode": opencode.prepare_setup,
    "gemini": by_login.gemini_cli,
    "qwen": by_login.qwen_code,
    "copilot": by_login.copilot_cli,
    "kimi": by_login.kimi_code,
    "pi": pi.prepare_setup,
    "cn": continue_dev.prepare_setup,
    "cline": cline.prepare_setup,
}
"""By program: function that adds settings beyond the base URL variables."""

_SERVERS = "its own servers make the requests"
UNROUTABLE = {
    "cursor-agent": (
        "Cursor",
        _SERVERS,
        "Use an agent that takes a base URL, such as Claude Code in Cursor's terminal",
    ),
    "cursor": ("Cursor", _SERVERS, "Use an agent that takes a base URL, such as Claude Code in Cursor's terminal"),
    "windsurf": ("Windsurf", _SERVERS, "Use an agent that takes a base URL, in its terminal"),
    "amp": ("Amp", _SERVERS, "Use an agent that takes a base URL"),
    "devin": ("Devin", _SERVERS, "Use an agent that runs on this machine"),
    "jules": ("Jules", _SERVERS, "Use an agent that runs on this machine"),
}
"""By program: name of a client that cannot be routed, the reason, and an alternative."""


class ClientRow(NamedTuple):
    """A client in the tables of `wrap --list` and `ibidem proxy`."""

    name: str
    line: str
    """Command that starts it with a running proxy; `{url}` is the proxy's address."""
    reads: str
    """Variable, option or file that `wrap` sets for it."""
    note: str = ""


CLIENTS = (
    ClientRow("Claude Code", "ANTHROPIC_BASE_URL={url} claude", "ANTHROPIC_BASE_URL"),
    ClientRow(
        "Claude Code on Vertex",
        "CLAUDE_CODE_USE_VERTEX=1 ANTHROPIC_VERTEX_BASE_URL={url}/v1 claude",
        "ANTHROPIC_VERTEX_BASE_URL",
        "requests carry a checksum and are forwarded unchanged",
    ),
    *(
        ClientRow(
            f"Claude Code on {cloud.name}",
            f"{cloud.switch}=1 {cloud.variable}={{url}}/{cloud.provider} claude",
            cloud.variable,
            f"with {cloud.tokens[0]}, not with AWS credentials" if cloud.tokens else "",
        )
        for cloud in claude_code.CLOUDS
    ),
    ClientRow(
        "Codex", """codex -c 'openai_base_url="{url}/v1"'""", "-c openai_base_url", "over HTTP, not over a WebSocket"
    ),
    ClientRow(
        "OpenCode",
        """OPENCODE_CONFIG_CONTENT='{{"provider":{{"anthropic":{{"options":{{"baseURL":"{url}/v1"}}}}}}}}' opencode""",
        opencode.CONFIG_CONTENT,
        "not if its own configuration has a baseURL",
    ),
    ClientRow("pi", "", "--extension", "a base URL in its models.json becomes the upstream"),
    ClientRow(
        "Continue (cn)",
        "",
        "--config",
        "a copy of its configuration, for Anthropic and OpenRouter; Gemini by variable; not OpenAI",
    ),
    ClientRow(
        "Cline",
        "",
        cline.SETTINGS_PATH,
        "a copy of its providers.json, for a run with a prompt and an API key of Anthropic or OpenRouter",
    ),
    ClientRow(
        "Gemini CLI",
        "GOOGLE_GEMINI_BASE_URL={url} gemini",
        f"{by_login.GEMINI} or {by_login.GOOGLE_VERTEX}",
        "with an API key or Vertex selected in it, not with a Google login",
    ),
    ClientRow("Qwen Code", "OPENAI_BASE_URL={url}/v1 qwen", "OPENAI_BASE_URL", "only if you have set it"),
    ClientRow(
        "Copilot CLI",
        "COPILOT_PROVIDER_BASE_URL={url}/v1 copilot",
        "COPILOT_PROVIDER_BASE_URL",
        "with your own provider, not with a GitHub login",
    ),
    ClientRow("Kimi Code", "KIMI_MODEL_BASE_URL={url}/moonshot/v1 kimi", "KIMI_MODEL_BASE_URL", "with an API key"),
    ClientRow(
        "aider",
        "ANTHROPIC_API_BASE={url} OPENAI_API_BASE={url}/v1 aider",
        "ANTHROPIC_API_BASE, OPENAI_API_BASE, GEMINI_API_BASE",
        "aider sends no tool results, so there is little to save",
    ),
    ClientRow("goose", "ANTHROPIC_HOST={url} OPENAI_HOST={url} goose", "ANTHROPIC_HOST, OPENAI_HOST, GOOGLE_HOST"),
    ClientRow("Anthropic SDKs", "ANTHROPIC_BASE_URL={url} …", "ANTHROPIC_BASE_URL"),
    ClientRow("OpenAI SDKs", "OPENAI_BASE_URL={url}/v1 …", "OPENAI_BASE_URL", "older ones: OPENAI_API_BASE"),
    ClientRow("Google Gen AI SDKs", "GOOGLE_GEMINI_BASE_URL={url} …", by_login.GEMINI),
)


def prepare_client(context: ClientContext) -> ClientSetup:
    """Return how to start the command. Raises IbidemError if the client's own settings cannot be read."""
    if unroutable := UNROUTABLE.get(context.program):
        name, why, instead = unroutable
        return ClientSetup(
            notices=(f"{name} cannot be routed through ibidem, so there are no savings: {why}. {instead}.",)
        )
    if context.program == "claude":
        context = claude_code.effective_context(context)
    setup = claude_code.route_to_clouds(inherit_base_urls(context), context)
    prepare = PREPARE.get(context.program)
    return prepare(setup, context) if prepare else replace(setup, notices=())


def start_lines(url: str) -> list[str]:
    """Return a line per client with the command that starts it with a proxy at `url`."""
    rows = [client for client in CLIENTS if client.line]
    width = max(len(client.name) for client in rows)
    return [f"{client.name:{width}}  {client.line.format(url=url)}" for client in rows]


def client_table(setup: ClientSetup, upstreams: Mapping[str, str]) -> list[str]:
    """Return the table of `wrap --list`: the settings of each client, and the upstream of each variable."""
    clients = [("client", "gets", "note"), *((row.name, row.reads, row.note) for row in CLIENTS)]
    others = {name: f"{why}. {instead}" for name, why, instead in UNROUTABLE.values()}
    clients += [(name, "(cannot be routed)", note) for name, note in others.items()]
    variables = [("variable", "provider", "upstream")]
    for each in VARIABLES:
        upstream = upstreams[each.provider] if each.name in setup.variables else "left as it is"
        variables.append((each.name, each.provider, upstream))
    return [*_align_columns(clients), "", *_align_columns(variables)]


def _align_columns(rows: list[tuple[str, str, str]]) -> list[str]:
    first, second = (max(len(row[column]) for row in rows) for column in (0, 1))
    return [f"{row[0]:{first}}  {row[1]:{second}}  {row[2]}".rstrip() for row in rows]
