"""Settings of clients and service managers as text: JSON, TOML, a systemd unit, a launchd property list."""

from __future__ import annotations

import json
import plistlib
import shlex
import shutil
import sys
from pathlib import Path
from urllib.parse import urlsplit

from ..clients.client_setup import HOOKS_OFF, HOOKS_URL, TOOL_SEARCH
from ..command_errors import InputError

CLAUDE_VARIABLES = {"ANTHROPIC_BASE_URL": "{url}/anthropic", TOOL_SEARCH: "true", HOOKS_URL: HOOKS_OFF}
"""Variables for Claude Code. The second enables tool search, which it otherwise disables with a custom base URL."""

CODEX_ADDRESS = "{url}/openai/v1"

OPENCODE_ADDRESSES = {
    "anthropic": "{url}/anthropic/v1",
    "openai": "{url}/openai/v1",
    "google": "{url}/gemini/v1beta",
}
"""Base URLs, by opencode's provider name."""

LABEL = "ibidem.proxy"


def claude_settings(url: str) -> str:
    """Return settings.json for Claude Code."""
    return _to_json({"env": _claude_variables(url)})


def codex_settings(url: str) -> str:
    """Return the line for config.toml of Codex."""
    return f"openai_base_url = {json.dumps(CODEX_ADDRESS.format(url=url))}\n"


def opencode_settings(url: str) -> str:
    """Return opencode.json."""
    providers = {
        name: {"options": {"baseURL": address.format(url=url)}} for name, address in OPENCODE_ADDRESSES.items()
    }
    return _to_json({"$schema": "https://opencode.ai/config.json", "provider": providers})


def vscode_settings(url: str) -> str:
    """Return settings.json of VS Code for the Claude Code extension."""
    rows = [{"name": name, "value": value} for name, value in _claude_variables(url).items()]
    return _to_json({"claudeCode.environmentVariables": rows})


def statusline_settings(_: str) -> str:
    """Return settings.json that enables the status line of Claude Code."""
    program = shutil.which("ibidem")
    command = "ibidem statusline" if program else shlex.join([sys.executable, "-m", "ibidem.cli", "statusline"])
    return _to_json({"statusLine": {"type": "command", "command": command}})


def systemd_unit(url: str) -> str:
    """Return a unit for `systemctl --user`. It always restarts the proxy, because clients fail without it."""
    return "\n".join(
        [
            "[Unit]",
            "Description=Ibidem, a proxy that rewrites requests of LLM agents",
            "StartLimitIntervalSec=0",
            "",
            "[Service]",
            f"ExecStart={' '.join(map(_quote_unit_word, _proxy_command(url)))}",
            "Restart=always",
            "RestartSec=2",
            "",
            "[Install]",
            "WantedBy=default.target",
            "",
        ]
    )


def launchd_plist(url: str) -> str:
    """Return a property list for `launchctl`. It starts the proxy at login and always restarts it."""
    log = str(Path.home() / "Library" / "Logs" / "ibidem.log")
    agent = {
        "Label": LABEL,
        "ProgramArguments": _proxy_command(url),
        "RunAtLoad": True,
        "KeepAlive": True,
        "StandardOutPath": log,
        "StandardErrorPath": log,
    }
    return plistlib.dumps(agent).decode()


def _proxy_command(url: str) -> list[str]:
    """Return the command of a proxy at this address. Without WebSockets, Codex uses HTTP, which can be rewritten."""
    parts = urlsplit(url)
    if parts.scheme != "http" or parts.path:
        raise InputError("--url", "not an address for a service: use one such as http://127.0.0.1:8123, without a path")
    address = ["--host", parts.hostname or "", "--port", str(parts.port or 80)]
    return [sys.executable, "-m", "ibidem.cli", "proxy", *address, "--no-websockets"]


def _quote_unit_word(word: str) -> str:
    """Quote a word of a command line for a systemd unit: escape specifiers, variables and quotes."""
    word = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    return f'"{word}"' if any(char in word for char in " \t'\";\\") else word


def _claude_variables(url: str) -> dict[str, str]:
    return {name: value.format(url=url) for name, value in CLAUDE_VARIABLES.items()}


def _to_json(value: object) -> str:
    return json.dumps(value, indent=2) + "\n"
