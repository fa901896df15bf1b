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
from ...proxy.settings import base_url, is_loopback
from ..clients.claude_code import CLOUDS, settings_files
from ..clients.opencode import CONFIG_CONTENT, config_files
from ..clients.setup import MAX_SETTINGS_BYTES, VARIABLES, WHAT_TO_DO, ClientContext
from .checking import CheckResult, Machine, problem_of

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


class SetAddress(NamedTuple):
    """A base URL in the settings of a client."""

    client: str
    where: str
    """The variable, or the file and the key in it."""
    text: str
    note: str = ""
    """How to use this setting with `ibidem wrap`; empty if `wrap` uses the address as its upstream."""


def addresses(machine: Machine) -> Iterator[CheckResult]:
    """Check every base URL that the settings of agents have."""
    known: list[SetAddress] = []
    for look in (_from_variables, _from_claude, _from_codex, _from_opencode, _from_lines):
        try:
            known += look(machine)
        except IbidemError as error:  # report an unreadable file, and continue with the others
            yield problem_of(error)
    if not known:
        yield CheckResult("ok", "no base URL is set: clients use their providers, and with ibidem wrap the proxy")
    tried: dict[str, CheckResult] = {}
    for each in known[:MAX_ADDRESSES]:
        yield _judged(each, tried)
    yield from _overridden(known)


def _judged(each: SetAddress, tried: dict[str, CheckResult]) -> CheckResult:
    lead = f"{each.client}, {each.where}"
    try:
        parts = urlsplit(base_url(each.text))
    except ValueError as error:
        what, _, remedy = str(error).partition(". ")
        return CheckResult("problem", f"{lead}: {what}", remedy)
    place = f"{parts.scheme}://{parts.netloc}"
    if not is_loopback(parts.hostname or ""):
        return CheckResult("note" if each.note else "ok", f"{lead}: points to {place}", each.note)
    if place not in tried:
        tried[place] = _probed(parts.scheme, parts.hostname or "", parts.port or 80, place)
    found = tried[place]
    remedy = f"{found.remedy}, or remove it ({each.where})" if found.status == "problem" else found.remedy
    return CheckResult(found.status, f"{lead}: {found.text}", remedy)


def _probed(scheme: str, host: str, port: int, place: str) -> CheckResult:
    """Check which server runs at a local address. Only servers with plain HTTP can be identified."""
    connection = http.client.HTTPConnection(host, port, timeout=PROBE_SECONDS)
    try:
        connection.connect()
    except OSError:
        text = f"no server is running at {place}, so the client will fail"
        return CheckResult("problem", text, f"start ibidem proxy --port {port}")
    try:
        if scheme == "http":
            connection.request("GET", "/ibidem/health")
            said = json.loads(connection.getresponse().read(MAX_HEALTH_BYTES))
            if isinstance(said, dict) and said.get("status") == "ok" and isinstance(said.get("version"), str):
                return CheckResult("ok", f"ibidem {one_line(said['version'][:40])} is running at {place}")
    except (OSError, http.client.HTTPException, ValueError, RecursionError):
        pass
    finally:
        connection.close()
    return CheckResult("note", f"a server is running at {place}, but it is not ibidem")


def _overridden(known: list[SetAddress]) -> Iterator[CheckResult]:
    """Report variables of the shell that Claude Code ignores because its settings set them too."""
    variables = {each.where.removeprefix("variable ") for each in known if each.where.startswith("variable ")}
    for each in known:
        name = each.where.rpartition("env.")[2]
        if "env." in each.where and name in variables:
            text = f"{each.client} ignores the variable {name}: {each.where} takes precedence"
            yield CheckResult("note", text, "set it in one place")


# --- where addresses are set --------------------------------------------------------------------


def _from_variables(machine: Machine) -> Iterator[SetAddress]:
    for name in NAMES:
        if text := machine.variables.get(name):
            yield SetAddress("all clients that read it", f"variable {name}", text)
    for address in _OPENCODE_ADDRESS.findall(machine.variables.get(CONFIG_CONTENT, "")[:MAX_SETTINGS_BYTES]):
        yield SetAddress("opencode", f"variable {CONFIG_CONTENT}", address)


def _from_claude(machine: Machine) -> Iterator[SetAddress]:
    note = "it overrides the variable that ibidem wrap sets: remove it, and pass it to wrap with --upstream"
    for path in settings_files(_context(machine)):
        table = _parsed(path, json.loads, "JSON").get("env")
        for name, text in table.items() if isinstance(table, dict) else ():
            if name in NAMES and isinstance(text, str) and text:
                yield SetAddress("Claude Code", f"{path}, env.{name}", text, note)


def _from_codex(machine: Machine) -> Iterator[SetAddress]:
    path = Path(machine.variables.get("CODEX_HOME") or machine.home / ".codex") / "config.toml"
    table = _parsed(path, tomllib.loads, "TOML")
    if isinstance(text := table.get("openai_base_url"), str) and text:
        yield SetAddress("Codex", f"{path}, openai_base_url", text)
    chosen, providers = table.get("model_provider"), table.get("model_providers")
    own = providers.get(chosen) if isinstance(providers, dict) and isinstance(chosen, str) else None
    if isinstance(own, dict) and isinstance(text := own.get("base_url"), str) and text:
        note = "ibidem wrap does not route your own provider: set its base_url to the proxy, and --upstream to this"
        yield SetAddress("Codex", f"{path}, model_providers.{chosen}.base_url", text, note)


def _from_opencode(machine: Machine) -> Iterator[SetAddress]:
    note = "ibidem wrap does not route opencode with this: set baseURL to the proxy, and --upstream to this"
    for path in config_files(_context(machine)):
        for text in _OPENCODE_ADDRESS.findall(_text(path)):
            yield SetAddress("opencode", f"{path}, baseURL", text, note)


def _from_lines(machine: Machine) -> Iterator[SetAddress]:
    config = Path(machine.variables.get("XDG_CONFIG_HOME") or machine.home / ".config")
    files = (
        ("aider", machine.home / ".aider.conf.yml"),
        ("aider", machine.folder / ".aider.conf.yml"),
        ("goose", config / "goose" / "config.yaml"),
        ("Gemini CLI", machine.home / ".gemini" / ".env"),
    )
    for client, path in dict.fromkeys(files):
        for name, text in _LINE.findall(_text(path)):
            yield SetAddress(client, f"{path}, {name}", text)


def _context(machine: Machine) -> ClientContext:
    return ClientContext((), {**machine.variables, "HOME": str(machine.home)}, machine.folder)


def _text(path: Path) -> str:
    return (read_bounded(path, MAX_SETTINGS_BYTES, WHAT_TO_DO) or b"").decode("utf-8", "replace")


def _parsed(path: Path, read: Any, kind: str) -> dict[str, Any]:
    """Parse a settings file; empty if there is none. Raises IbidemError if it is not valid."""
    text = _text(path)
    try:
        found = read(text) if text.strip() else {}
    except (ValueError, RecursionError):
        raise IbidemError(
            f"{one_line(str(path))}: not valid {kind}: correct it, so that its client can use it"
        ) from None
    return found if isinstance(found, dict) else {}
