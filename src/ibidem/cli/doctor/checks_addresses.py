"""Check the base URLs in the settings of agents. If no server runs at a local address, the client fails."""

from __future__ import annotations

import http.client
import json
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from ...environment import read_bounded
from ...errors import IbidemError, one_line
from ...proxy.settings import is_loopback, normalize_base_url
from ..clients.claude_code import CLOUDS, settings_files
from ..clients.client_setup import MAX_SETTINGS_BYTES, VARIABLES, WHAT_TO_DO, ClientContext
from ..clients.opencode import CONFIG_CONTENT, config_files
from .check_runner import CheckContext, CheckResult, problem_from_error

PROBE_SECONDS = 1.0
MAX_HEALTH_BYTES = 4096
MAX_ADDRESSES = 32
"""Largest number of addresses to check. Each may take a second."""

NAMES = (*(variable.name for variable in VARIABLES), *(cloud.variable for cloud in CLOUDS))

_OPENCODE_ADDRESS = re.compile(r'"baseURL"\s*:\s*"([^"\\\n]{1,500})"')
_LINE = re.compile(
    r"^[ \t]*(?:export )?((?:anthropic|openai|google|gemini)[\w-]*?(?:host|base|url))[ \t]*[:=][ \t]*"
    r"['\"]?([^\s'\"#]{1,500})",
    re.IGNORECASE | re.MULTILINE,
)
"""A base URL setting in a line of a YAML or `.env` file."""


class AddressSetting(NamedTuple):
    """A base URL in the settings of a client."""

    client: str
    where: str
    """The variable, or the file and the key in it."""
    text: str
    note: str = ""
    """How to use this setting with `ibidem wrap`; empty if `wrap` uses the address as its upstream."""


def check_addresses(machine: CheckContext) -> Iterator[CheckResult]:
    """Check every base URL that the settings of agents have."""
    settings: list[AddressSetting] = []
    for read_settings in (_from_variables, _from_claude, _from_codex, _from_opencode, _from_lines):
        try:
            settings += read_settings(machine)
        except IbidemError as error:  # report an unreadable file, and continue with the others
            yield problem_from_error(error)
    if not settings:
        yield CheckResult("ok", "no base URL is set: clients use their providers, and with ibidem wrap the proxy")
    results: dict[str, CheckResult] = {}
    for each in settings[:MAX_ADDRESSES]:
        yield _check_address(each, results)
    yield from _find_overridden(settings)


def _check_address(setting: AddressSetting, results: dict[str, CheckResult]) -> CheckResult:
    lead = f"{setting.client}, {setting.where}"
    try:
        parts = urlsplit(normalize_base_url(setting.text))
    except ValueError as error:
        what, _, remedy = str(error).partition(". ")
        return CheckResult("problem", f"{lead}: {what}", remedy)
    origin = f"{parts.scheme}://{parts.netloc}"
    if not is_loopback(parts.hostname or ""):
        return CheckResult("note" if setting.note else "ok", f"{lead}: points to {origin}", setting.note)
    if origin not in results:
        results[origin] = _probe_server(parts.scheme, parts.hostname or "", parts.port or 80, origin)
    result = results[origin]
    remedy = f"{result.remedy}, or remove it ({setting.where})" if result.status == "problem" else result.remedy
    return CheckResult(result.status, f"{lead}: {result.text}", remedy)


def _probe_server(scheme: str, host: str, port: int, origin: str) -> CheckResult:
    """Check which server runs at a local address. Only servers with plain HTTP can be identified."""
    connection = http.client.HTTPConnection(host, port, timeout=PROBE_SECONDS)
    try:
        connection.connect()
    except OSError:
        text = f"no server is running at {origin}, so the client will fail"
        return CheckResult("problem", text, f"start ibidem proxy --port {port}")
    try:
        if scheme == "http":
            connection.request("GET", "/ibidem/health")
            health = json.loads(connection.getresponse().read(MAX_HEALTH_BYTES))
            if isinstance(health, dict) and health.get("status") == "ok" and isinstance(health.get("version"), str):
                return CheckResult("ok", f"ibidem {one_line(health['version'][:40])} is running at {origin}")
    except (OSError, http.client.HTTPException, ValueError, RecursionError):
        pass
    finally:
        connection.close()
    return CheckResult("note", f"a server is running at {origin}, but it is not ibidem")


def _find_overridden(settings: list[AddressSetting]) -> Iterator[CheckResult]:
    """Report variables of the shell that Claude Code ignores because its settings set them too."""
    variables = {each.where.removeprefix("variable ") for each in settings if each.where.startswith("variable ")}
    for each in settings:
        name = each.where.rpartition("env.")[2]
        if "env." in each.where and name in variables:
            text = f"{each.client} ignores the variable {name}: {each.where} takes precedence"
            yield CheckResult("note", text, "set it in one place")


# --- where addresses are set --------------------------------------------------------------------


def _from_variables(machine: CheckContext) -> Iterator[AddressSetting]:
    for name in NAMES:
        if text := machine.variables.get(name):
            yield AddressSetting("all clients that read it", f"variable {name}", text)
    for address in _OPENCODE_ADDRESS.findall(machine.variables.get(CONFIG_CONTENT, "")[:MAX_SETTINGS_BYTES]):
        yield AddressSetting("opencode", f"variable {CONFIG_CONTENT}", address)


def _from_claude(machine: CheckContext) -> Iterator[AddressSetting]:
    note = "it overrides the variable that ibidem wrap sets: remove it, and pass it to wrap with --upstream"
    for path in settings_files(_client_context(machine)):
        table = _read_table(path, json.loads, "JSON").get("env")
        for name, text in table.items() if isinstance(table, dict) else ():
            if name in NAMES and isinstance(text, str) and text:
                yield AddressSetting("Claude Code", f"{path}, env.{name}", text, note)


def _from_codex(machine: CheckContext) -> Iterator[AddressSetting]:
    path = Path(machine.variables.get("CODEX_HOME") or machine.home / ".codex") / "config.toml"
    table = _read_table(path, tomllib.loads, "TOML")
    if isinstance(text := table.get("openai_base_url"), str) and text:
        yield AddressSetting("Codex", f"{path}, openai_base_url", text)
    provider_name, providers = table.get("model_provider"), table.get("model_providers")
    provider = providers.get(provider_name) if isinstance(providers, dict) and isinstance(provider_name, str) else None
    if isinstance(provider, dict) and isinstance(text := provider.get("base_url"), str) and text:
        note = "ibidem wrap does not route your own provider: set its base_url to the proxy, and --upstream to this"
        yield AddressSetting("Codex", f"{path}, model_providers.{provider_name}.base_url", text, note)


def _from_opencode(machine: CheckContext) -> Iterator[AddressSetting]:
    note = "ibidem wrap does not route opencode with this: set baseURL to the proxy, and --upstream to this"
    for path in config_files(_client_context(machine)):
        for text in _OPENCODE_ADDRESS.findall(_read_text(path)):
            yield AddressSetting("opencode", f"{path}, baseURL", text, note)


def _from_lines(machine: CheckContext) -> Iterator[AddressSetting]:
    config = Path(machine.variables.get("XDG_CONFIG_HOME") or machine.home / ".config")
    files = (
        ("aider", machine.home / ".aider.conf.yml"),
        ("aider", machine.folder / ".aider.conf.yml"),
        ("goose", config / "goose" / "config.yaml"),
        ("Gemini CLI", machine.home / ".gemini" / ".env"),
    )
    for client, path in dict.fromkeys(files):
        for name, text in _LINE.findall(_read_text(path)):
            yield AddressSetting(client, f"{path}, {name}", text)


def _client_context(machine: CheckContext) -> ClientContext:
    return ClientContext((), {**machine.variables, "HOME": str(machine.home)}, machine.folder)


def _read_text(path: Path) -> str:
    return (read_bounded(path, MAX_SETTINGS_BYTES, WHAT_TO_DO) or b"").decode("utf-8", "replace")


def _read_table(path: Path, parse: Any, kind: str) -> dict[str, Any]:
    """Parse a settings file; empty if there is none. Raises IbidemError if it is not valid."""
    text = _read_text(path)
    try:
        table = parse(text) if text.strip() else {}
    except (ValueError, RecursionError):
        raise IbidemError(
            f"{one_line(str(path))}: not valid {kind}: correct it, so that its client can use it"
        ) from None
    return table if isinstance(table, dict) else {}
