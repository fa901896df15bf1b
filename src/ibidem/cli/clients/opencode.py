"""OpenCode. A variable holds configuration for one run; its own configuration files are not changed."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from .client_setup import ClientContext, ClientSetup, is_mentioned

CONFIG_CONTENT = "OPENCODE_CONFIG_CONTENT"


class OpenCodeProvider(NamedTuple):
    """A provider by OpenCode's name for it."""

    name: str
    provider: str
    path: str
    """Path that OpenCode expects in `baseURL`."""
    variable: str = ""
    """Base URL variable for the same provider."""
    same_path: bool = True
    """The variable has that path too. If not, OpenCode's URL cannot be derived from an inherited value."""
    key: str = ""
    """Variable with its API key. If it is named, the provider is set only if there is a key: OpenCode offers every
    provider that its configuration mentions."""


PROVIDERS_BY_NAME = (
    OpenCodeProvider("anthropic", "anthropic", "/v1", "ANTHROPIC_BASE_URL"),
    OpenCodeProvider("openai", "openai", "/v1", "OPENAI_BASE_URL"),
    OpenCodeProvider("google", "gemini", "/v1beta", "GOOGLE_GEMINI_BASE_URL", same_path=False),
    OpenCodeProvider("openrouter", "openrouter", "/v1", key="OPENROUTER_API_KEY"),
    OpenCodeProvider("moonshotai", "moonshot", "/v1", key="MOONSHOT_API_KEY"),
)


def prepare_setup(setup: ClientSetup, context: ClientContext) -> ClientSetup:
    """Return the setup for OpenCode: base URLs in `OPENCODE_CONFIG_CONTENT`."""
    content = context.environment.get(CONFIG_CONTENT, "")
    if "baseURL" in content or is_mentioned("baseURL", config_files(context)):
        line = "OpenCode connects directly, so there are no savings: its configuration has a baseURL."
        kept_variables = {name: text for name, text in setup.variables.items() if context.environment.get(name)}
        return replace(setup, variables=kept_variables).with_notices(line)
    urls = _base_urls(setup, context)
    try:
        settings = json.loads(content or "{}")
        providers = settings.setdefault("provider", {})
        for name, url in urls.items():
            providers.setdefault(name, {}).setdefault("options", {})["baseURL"] = url
    except (ValueError, AttributeError, TypeError):
        return setup  # do not change a configuration of unknown structure
    return setup.with_routes(variables={CONFIG_CONTENT: json.dumps(settings)}) if urls else setup


def _base_urls(setup: ClientSetup, context: ClientContext) -> dict[str, str]:
    data = Path(context.environment.get("XDG_DATA_HOME") or context.home / ".local" / "share")
    keys, urls = [data / "opencode" / "auth.json"], {}
    for row in PROVIDERS_BY_NAME:
        if row.key and not context.environment.get(row.key) and not is_mentioned(f'"{row.name}"', keys):
            continue
        if row.provider not in setup.upstreams:
            urls[row.name] = f"{{url}}/{row.provider}{row.path}"
        elif row.same_path and row.variable in setup.variables:
            urls[row.name] = setup.variables[row.variable]
    return urls


def config_files(context: ClientContext) -> list[Path]:
    """Configuration files that OpenCode reads if started in this folder; most do not exist."""
    environment, folder = context.environment, context.folder
    config = Path(environment.get("XDG_CONFIG_HOME") or context.home / ".config") / "opencode"
    folders = [config, *(each / sub for each in (folder, *folder.parents) for sub in ("", ".opencode"))]
    if own := environment.get("OPENCODE_CONFIG_DIR"):
        folders.append(Path(own))
    files = [each / name for each in folders for name in ("opencode.json", "opencode.jsonc", "config.json")]
    if config_file := environment.get("OPENCODE_CONFIG"):
        files.append(Path(config_file))
    return files
