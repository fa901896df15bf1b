"""pi. It ignores base URL variables; an extension that is loaded for one run sets the base URLs of its providers."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from ...errors import IbidemError, one_line
from .client_setup import WHAT_TO_DO, ClientContext, ClientSetup, first_argument, read_settings, split_base_url

EXTENSION = Path(__file__).with_name("pi_extension.js")
BASE_URLS = "IBIDEM_PI_BASE_URLS"
PROVIDERS_BY_NAME = {
    "anthropic": ("anthropic", ""),
    "openai": ("openai", "/v1"),
    "google": ("gemini", "/v1beta"),
    "openrouter": ("openrouter", "/v1"),
    "moonshotai": ("moonshot", "/v1"),
}
"""By pi's name: our provider, and the path that pi expects in the base URL."""
SUBCOMMANDS = frozenset({"install", "remove", "uninstall", "update", "list", "config", "auth"})


def prepare_setup(setup: ClientSetup, context: ClientContext) -> ClientSetup:
    """Return the setup for pi with our extension."""
    if first_argument(context.command[1:]) in SUBCOMMANDS:
        return setup
    own, urls, upstreams = _own_base_urls(context), {}, {}
    for name, (provider, path) in PROVIDERS_BY_NAME.items():
        if name in own and provider not in context.explicit_providers:
            parts = split_base_url(own[name], path)
            if parts is None:
                continue
            upstreams[provider], path = parts
        urls[name] = f"{{url}}/{provider}{path}"
    setup = setup.without_providers({provider for provider, _ in PROVIDERS_BY_NAME.values()})
    setup = setup.with_routes(upstreams=upstreams, variables={BASE_URLS: json.dumps(urls)})
    if others := sorted(own.keys() - urls.keys()):
        names = one_line(", ".join(others))
        setup = setup.with_notices(f"pi's models of {names} connect directly, so there are no savings for them.")
    return replace(setup, arguments=("--extension", str(EXTENSION)))


def _own_base_urls(context: ClientContext) -> dict[str, str]:
    """Read base URLs by provider from pi's models.json. Raises IbidemError if it is not JSON: pi may find one in it."""
    folder = Path(context.environment.get("PI_CODING_AGENT_DIR") or context.home / ".pi" / "agent")
    path = folder / "models.json"
    try:
        providers: Any = json.loads(read_settings(path) or b"{}").get("providers", {})
        rows = {name: row.get("baseUrl") for name, row in providers.items()}
    except (ValueError, RecursionError, AttributeError):
        raise IbidemError(f"{one_line(str(path))}: not valid JSON: {WHAT_TO_DO}") from None
    return {name: url for name, url in rows.items() if isinstance(url, str)}
