"""Cline's command line. It reads base URLs from providers.json, so `wrap` gives it a copy of that file.

Only runs with a prompt are routed. Every other run uses Cline's hub, a background process that outlives the command: a
later session would use the address of a proxy that has ended.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ...errors import IbidemError, one_line
from .client_setup import WHAT_TO_DO, ClientContext, ClientSetup, read_settings, split_base_url

SETTINGS_PATH, BACKEND = "CLINE_PROVIDER_SETTINGS_PATH", "CLINE_SESSION_BACKEND_MODE"
LOCAL = "local"
"""Value of `BACKEND` for a session without the hub."""
COPY = "providers.json"
PROVIDERS_BY_NAME = {"anthropic": ("anthropic", "/v1"), "openrouter": ("openrouter", "/v1")}
"""By Cline's name: our provider, and the path that Cline expects in the base URL."""
SUBCOMMANDS = frozenset(
    [
        "auth",
        "config",
        "plugin",
        "skill",
        "connect",
        "mcp",
        "doctor",
        "history",
        "h",
        "hook",
        "schedule",
        "hub",
        "dashboard",
        "update",
        "version",
        "kanban",
    ]
)
VALUE_OPTIONS = frozenset(
    [
        "--auto-approve",
        "-c",
        "--cwd",
        "--compaction",
        "--id",
        "-P",
        "--provider",
        "-k",
        "--key",
        "-m",
        "--model",
        "-s",
        "--system",
        "-t",
        "--timeout",
        "--hooks-dir",
        "--thinking",
        "--retries",
    ]
)
OTHER_RUNS = frozenset(
    ["-i", "--tui", "-z", "--zen", "--acp", "--kanban", "--config", "--data-dir", "--worktree", "--update"]
)
"""Options that start the hub or select other settings."""
INSTEAD = (
    "Start `ibidem proxy`, and set baseUrl in ~/.cline/data/settings/providers.json to its address and /anthropic/v1"
)


def prepare_setup(setup: ClientSetup, context: ClientContext) -> ClientSetup:
    """Return the setup for Cline with a copy of its providers.json."""
    prompts, options = parse_arguments(context.command[1:])
    if not prompts or prompts[0] in SUBCOMMANDS or not OTHER_RUNS.isdisjoint(options):
        return _direct_setup("only runs with a prompt on the command line can be routed", INSTEAD)
    if context.environment.get(BACKEND, LOCAL) != LOCAL or context.is_on("CLINE_SANDBOX"):
        return _direct_setup("a variable selects its hub or its sandbox", INSTEAD)
    path = settings_path(context)
    text = read_settings(path)
    if any(word in text for word in (b"{url}", b"{folder}")):
        return _direct_setup(f"{path} has the text {{url}} or {{folder}}", INSTEAD)
    settings = _parse_settings(path, text)
    entries = settings["providers"]
    if any(entry["settings"].get("auth") or entry.get("tokenSource") == "oauth" for entry in entries.values()):
        return _direct_setup(f"{path} has a login, which Cline renews in that file", "Use an API key")
    provider_name = options.get("-P") or options.get("--provider") or settings.get("lastUsedProvider") or "cline"
    if provider_name not in PROVIDERS_BY_NAME:
        return _direct_setup(
            f"the provider {one_line(str(provider_name))[:100]} is served only directly", "Use -P anthropic"
        )
    entry = entries.setdefault(provider_name, {"settings": {"provider": provider_name}, "tokenSource": "manual"})
    provider, version = PROVIDERS_BY_NAME[provider_name]
    setup = setup.without_providers({each for each, _ in PROVIDERS_BY_NAME.values()})
    if (own := entry["settings"].get("baseUrl")) and provider not in context.explicit_providers:
        parts = split_base_url(own, version) if isinstance(own, str) else None
        if parts is None:
            return _direct_setup(f"{path} has a baseUrl that is not a URL", "Correct it")
        upstream, version = parts
        setup = setup.with_routes(upstreams={provider: upstream})
    entry["settings"]["baseUrl"] = f"{{url}}/{provider}{version}"
    entry.setdefault("updatedAt", "2026-01-01T00:00:00.000Z")
    setup = setup.with_routes(variables={SETTINGS_PATH: f"{{folder}}/{COPY}", BACKEND: LOCAL})
    return replace(setup, files={**setup.files, COPY: json.dumps(settings)})


def settings_path(context: ClientContext) -> Path:
    """Return the path of Cline's providers.json."""
    environment = context.environment
    if own := environment.get(SETTINGS_PATH, "").strip():
        return context.folder / own
    home = Path(environment.get("CLINE_DIR", "").strip() or context.home / ".cline")
    data = Path(environment.get("CLINE_DATA_DIR", "").strip() or home / "data")
    return context.folder / data / "settings" / COPY


def parse_arguments(arguments: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """Arguments that are not options, and options with their values."""
    prompts, options, words = list[str](), dict[str, str](), iter(arguments)
    for word in words:
        if word == "--":
            prompts += words
        elif not word.startswith("-") or word == "-":
            prompts.append(word)
        elif word in VALUE_OPTIONS:
            options[word] = next(words, "")
        else:
            name, _, value = word.partition("=")
            if not word.startswith("--") and len(word) > 2:  # a value, or more options, may follow the letter
                name, value = word[:2], word[2:]
                if name not in VALUE_OPTIONS:
                    options.update(dict.fromkeys((f"-{letter}" for letter in value), ""))
            options[name] = value
    return prompts, options


def _parse_settings(path: Path, text: bytes) -> dict[str, Any]:
    """Parse Cline's providers.json. Raises IbidemError if it has another structure."""
    try:
        settings: Any = json.loads(text or b'{"version": 1, "providers": {}}')
        if all(isinstance(entry["settings"], dict) for entry in settings["providers"].values()):
            return dict(settings)
    except (ValueError, RecursionError, AttributeError, KeyError, TypeError):
        pass
    raise IbidemError(f"{one_line(str(path))}: not Cline's providers: {WHAT_TO_DO}")


def _direct_setup(why: str, instead: str) -> ClientSetup:
    """Return a setup without variables, which Cline's hub would store, and a notice."""
    return ClientSetup(notices=(f"Cline connects directly, so there are no savings: {why}. {instead}.",))
