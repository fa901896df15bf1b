"""What is to be put into settings of clients and of the system, as text: JSON, TOML, a unit, a property list."""

from __future__ import annotations

import json
import plistlib
import shlex
import shutil
import sys
from pathlib import Path
from urllib.parse import urlsplit

from ..clients.setup import HOOKS_OFF, HOOKS_URL, TOOL_SEARCH
from ..errors import InputError

CLAUDE_VARIABLES = {"ANTHROPIC_BASE_URL": "{url}/anthropic", TOOL_SEARCH: "true", HOOKS_URL: HOOKS_OFF}
"""The second keeps tool search on, which Claude Code otherwise switches off behind another base URL."""

CODEX_ADDRESS = "{url}/openai/v1"

OPENCODE_ADDRESSES = {
    "anthropic": "{url}/anthropic/v1",
    "openai": "{url}/openai/v1",
    "google": "{url}/gemini/v1beta",
}
"""By what it calls a provider."""

LABEL = "ibidem.proxy"


def claude(url: str) -> str:
    return _json({"env": _claude_variables(url)})


def codex(url: str) -> str:
    return f"openai_base_url = {json.dumps(CODEX_ADDRESS.format(url=url))}\n"


def opencode(url: str) -> str:
    providers = {
        name: {"options": {"baseURL": address.format(url=url)}} for name, address in OPENCODE_ADDRESSES.items()
    }
    return _json({"$schema": "https://opencode.ai/config.json", "provider": providers})


def ide(url: str) -> str:
    rows = [{"name": name, "value": value} for name, value in _claude_variables(url).items()]
    return _json({"claudeCode.environmentVariables": rows})


def statusline(_: str) -> str:
    found = shutil.which("ibidem")
    command = "ibidem statusline" if found else shlex.join([sys.executable, "-m", "ibidem.cli", "statusline"])
    return _json({"statusLine": {"type": "command", "command": command}})


def systemd(url: str) -> str:
    """A unit for `systemctl --user`. It starts again whatever happens: clients fail while it is gone."""
    return "\n".join(
        [
            "[Unit]",
            "Description=Ibidem, a proxy that rewrites requests of LLM agents",
            "StartLimitIntervalSec=0",
            "",
            "[Service]",
            f"ExecStart={' '.join(map(_in_unit, _proxy(url)))}",
            "Restart=always",
            "RestartSec=2",
            "",
            "[Install]",
            "WantedBy=default.target",
            "",
        ]
    )


def launchd(url: str) -> str:
    """A property list for `launchctl`, which starts it at login and again whatever happens."""
    log = str(Path.home() / "Library" / "Logs" / "ibidem.log")
    agent = {
        "Label": LABEL,
        "ProgramArguments": _proxy(url),
        "RunAtLoad": True,
        "KeepAlive": True,
        "StandardOutPath": log,
        "StandardErrorPath": log,
    }
    return plistlib.dumps(agent).decode()


def _proxy(url: str) -> list[str]:
    """The command that listens at this address. Codex is asked for HTTP: in a WebSocket nothing can be rewritten."""
    parts = urlsplit(url)
    if parts.scheme != "http" or parts.path:
        raise InputError("--url", "a service listens at an address like http://127.0.0.1:8123, without a path")
    where = ["--host", parts.hostname or "", "--port", str(parts.port or 80)]
    return [sys.executable, "-m", "ibidem.cli", "proxy", *where, "--no-websockets"]


def _in_unit(word: str) -> str:
    """One word of a command line, as systemd reads it: specifiers, variables and quotes stand for themselves."""
    word = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    return f'"{word}"' if any(char in word for char in " \t'\";\\") else word


def _claude_variables(url: str) -> dict[str, str]:
    return {name: value.format(url=url) for name, value in CLAUDE_VARIABLES.items()}


def _json(value: object) -> str:
    return json.dumps(value, indent=2) + "\n"
