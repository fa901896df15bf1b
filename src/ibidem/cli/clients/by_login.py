"""Clients whose login or variables decide whether they can be routed: Gemini CLI, Qwen Code, Copilot CLI, Kimi Code."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from .client_setup import ClientContext, ClientSetup, bypass_other_proxies, read_settings, split_base_url

GEMINI, GOOGLE_VERTEX = "GOOGLE_GEMINI_BASE_URL", "GOOGLE_VERTEX_BASE_URL"
_LOGIN_TYPE = re.compile(rb'"selectedType"\s*:\s*"([\w-]{1,40})"')
_PROXY = re.compile(rb"\b(?:https?_|all_)?proxy\b", re.IGNORECASE)
_NO_PROXY = re.compile(rb"""\bno_proxy["']?\s*[=:]\s*["']?([\w.,:/* -]*)""", re.IGNORECASE)


def gemini_cli(setup: ClientSetup, context: ClientContext) -> ClientSetup:
    """Route Gemini CLI if a login type that supports a base URL is selected.

    Without a selected type, Gemini CLI treats a base URL as a login type and ends with "Invalid auth method".
    """
    setup = _with_bypass(setup, context, ".gemini")
    environment = context.environment
    homes = (Path(environment.get("GEMINI_CLI_HOME") or context.home), context.folder)
    texts = (read_settings(home / ".gemini" / "settings.json") for home in homes)
    login = next((match[1].decode() for text in texts if (match := _LOGIN_TYPE.search(text))), "")
    if login == "gemini-api-key":
        return setup
    if login == "vertex-ai":
        return _inherit_variable(setup, context, GOOGLE_VERTEX, "vertex", "")
    reason = "the Google login has no base URL setting" if login else "no login type is selected in it"
    why = f"{reason}. Select an API key or Vertex with /auth in it"
    kept_variables = {name: text for name, text in setup.variables.items() if environment.get(name)}
    setup = replace(setup, variables=kept_variables)
    return setup if GEMINI in kept_variables else setup.with_notices(_direct_notice("Gemini CLI", why))


def qwen_code(setup: ClientSetup, context: ClientContext) -> ClientSetup:
    """Route Qwen Code if the user has set a base URL.

    Without one, it sends OPENAI_API_KEY to DashScope, with cache breakpoints that it uses only there.
    """
    if context.environment.get("OPENAI_BASE_URL") or "openai" in context.explicit_providers:
        return _with_bypass(setup, context, ".qwen")
    why = "OPENAI_BASE_URL is not set, and its default host is served only directly"
    return setup.without_providers({"openai"}).with_notices(_direct_notice("Qwen Code", why))


def _with_bypass(setup: ClientSetup, context: ClientContext, name: str) -> ClientSetup:
    """Set NO_PROXY if a `.env` or settings file of Gemini CLI or Qwen Code, in its folder `name`, mentions a proxy.

    Both send requests to loopback through that proxy too. A variable of the process is stronger than these files.
    """
    folders = (context.folder, *context.folder.parents, context.home)
    paths = [folder / each for folder in folders for each in (".env", f"{name}/.env", f"{name}/settings.json")]
    texts = [text for path in dict.fromkeys(paths) if _PROXY.search(text := read_settings(path))]
    if not texts:
        return setup
    hosts = [match.decode() for text in texts for match in _NO_PROXY.findall(text)]
    before = context.environment.get("NO_PROXY") or context.environment.get("no_proxy") or ",".join(hosts)
    proxied = {"HTTPS_PROXY": "set in a file", "NO_PROXY": before}
    return setup.with_routes(variables=bypass_other_proxies(proxied))


def copilot_cli(setup: ClientSetup, context: ClientContext) -> ClientSetup:
    """Route Copilot CLI if it uses the user's own provider."""
    kind = context.environment.get("COPILOT_PROVIDER_TYPE", "openai").lower()
    path = {"openai": "/v1", "anthropic": ""}.get(kind)
    if not context.environment.get("COPILOT_PROVIDER_BASE_URL"):
        why = "with a GitHub login, GitHub's servers make the requests. Set COPILOT_PROVIDER_BASE_URL and an API key"
        return setup.with_notices(_direct_notice("Copilot CLI", why))
    if path is None:
        return setup.with_notices(
            _direct_notice("Copilot CLI", "COPILOT_PROVIDER_TYPE is neither openai nor anthropic")
        )
    return _inherit_variable(setup, context, "COPILOT_PROVIDER_BASE_URL", kind, path)


def kimi_code(setup: ClientSetup, context: ClientContext) -> ClientSetup:
    """Route Kimi Code if it uses an API key."""
    variable = "KIMI_MODEL_BASE_URL" if context.environment.get("KIMI_MODEL_BASE_URL") else "KIMI_BASE_URL"
    if not context.environment.get("KIMI_MODEL_API_KEY"):
        why = "with a Kimi login it uses its own base URL. Set KIMI_MODEL_NAME and KIMI_MODEL_API_KEY"
        return setup.with_notices(_direct_notice("Kimi Code", why))
    routed = _inherit_variable(setup, context, variable, "moonshot", "/v1")
    if variable not in routed.variables:
        return routed
    return routed.without_variables({variable}).with_routes(
        variables={"KIMI_MODEL_BASE_URL": routed.variables[variable]}
    )


def _inherit_variable(
    setup: ClientSetup, context: ClientContext, variable: str, provider: str, path: str
) -> ClientSetup:
    """Point one variable of a client at the proxy. Its old value becomes the only upstream of `provider`."""
    before = context.environment.get(variable)
    parts = split_base_url(before, path) if before else None
    if before and parts is None:
        return setup  # not a URL: let the client complain about it
    if parts is not None and provider not in context.explicit_providers:
        upstream, path = parts
        setup = setup.without_providers({provider}).with_routes(upstreams={provider: upstream})
    return setup.with_routes(variables={variable: f"{{url}}/{provider}{path}"})


def _direct_notice(client: str, why: str) -> str:
    return f"{client} connects directly, so there are no savings: {why}."
