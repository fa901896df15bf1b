"""What is installed: ibidem and its optional parts, Python, and agents with their versions."""

from __future__ import annotations

import os
import platform
import re
import shutil
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import suppress
from importlib.util import find_spec
from typing import NamedTuple

from ... import __version__
from ...environment import install_command
from .checking import CheckResult, Machine


class KnownClient(NamedTuple):
    command: str
    name: str
    tested: str
    """The version that was run with ibidem; empty where none was."""
    found_by: str
    """How it is led to the proxy."""


KNOWN_CLIENTS = (
    KnownClient("claude", "Claude Code", "2.1.327", "ANTHROPIC_BASE_URL; env in its settings.json is stronger"),
    KnownClient("codex", "Codex", "0.169.0", "openai_base_url in its config.toml, or behind -c; it reads no variable"),
    KnownClient("opencode", "opencode", "1.18.33", "OPENCODE_CONFIG_CONTENT, or baseURL in its configuration"),
    KnownClient("gemini", "Gemini CLI", "0.61.0", "GOOGLE_GEMINI_BASE_URL, with an API key"),
    KnownClient("pi", "pi", "1.5.2", "an extension that ibidem wrap passes; it reads no variable"),
    KnownClient("aider", "aider", "", "ANTHROPIC_API_BASE, OPENAI_API_BASE, GEMINI_API_BASE"),
    KnownClient("goose", "goose", "", "ANTHROPIC_HOST, OPENAI_HOST, GOOGLE_HOST"),
)

NODE_TESTED = 22
"""On an older Node, npm installs a Claude Code of June 2026 without a word: newer packages ask for this one."""

QUIET = {
    "AIDER_CHECK_UPDATE": "false",
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    "DISABLE_AUTOUPDATER": "1",
    "DO_NOT_TRACK": "1",
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "NO_UPDATE_NOTIFIER": "1",
    "OPENCODE_DISABLE_AUTOUPDATE": "true",
}
"""Variables that keep programs from looking for updates while they tell their version."""


VERSION_SECONDS = 6.0
MAX_VERSION_BYTES = 4096
"""How long a program may take to tell its version, and how much of what it says is read."""
_VERSION = re.compile(r"\d{1,5}(?:\.\d{1,6}){1,3}")


class OptionalPart(NamedTuple):
    extra: str
    module: str
    purpose: str


PROXY_PART = OptionalPart("proxy", "aiohttp", "ibidem wrap, ibidem proxy and ibidem mcp --url")
OTHER_PARTS = (
    OptionalPart("proxy", "brotli", "answers packed with brotli"),
    OptionalPart("redis", "redis", "a store on a Redis server"),
    OptionalPart("dask", "distributed", "reports on several machines"),
    OptionalPart("socks", "python_socks", "SOCKS proxies"),
    OptionalPart("speed", "uvloop", "a faster loop"),
)


def versions(machine: Machine) -> Iterator[CheckResult]:
    system = f"{platform.system()} {platform.release()} {platform.machine()}"
    yield CheckResult("ok", f"ibidem {__version__}, Python {platform.python_version()}, {system}")


def optional_parts(machine: Machine) -> Iterator[CheckResult]:
    if find_spec(PROXY_PART.module) is None:
        remedy = install_command(PROXY_PART.extra)
        yield CheckResult("note", f"{PROXY_PART.module} is not installed, which {PROXY_PART.purpose} need", remedy)
    there = [part.module for part in (PROXY_PART, *OTHER_PARTS) if find_spec(part.module) is not None]
    if there:
        yield CheckResult("ok", f"installed: {', '.join(there)}")
    missing = [part for part in OTHER_PARTS if find_spec(part.module) is None]
    if missing:
        extras = ",".join(dict.fromkeys(part.extra for part in missing))
        named = ", ".join(f"{part.module} ({part.purpose})" for part in missing)
        yield CheckResult("note", f"not installed: {named}", f"if you need one: {install_command(extras)}")


# --- agents -------------------------------------------------------------------------------------


def agents(machine: Machine) -> Iterator[CheckResult]:
    """All are asked at once: some take seconds to say their version."""
    path = machine.variables.get("PATH", "")
    found = [(client, program) for client in KNOWN_CLIENTS if (program := shutil.which(client.command, path=path))]
    if not found:
        names = ", ".join(client.command for client in KNOWN_CLIENTS)
        yield CheckResult(
            "note", f"none of these is on PATH: {names}", "ibidem wrap -- COMMAND leads other programs too"
        )
    asked = [(client, _VersionAnswer(program, machine)) for client, program in found]
    for client, version in asked:
        yield _told(client, version.answer())


def node(machine: Machine) -> Iterator[CheckResult]:
    program = shutil.which("node", path=machine.variables.get("PATH", ""))
    if program is None:
        yield CheckResult("ok", "not on PATH; only clients from npm need it")
        return
    version = _VersionAnswer(program, machine).answer()
    if version and int(version.split(".")[0]) < NODE_TESTED:
        text = f"Node {version}: npm installs an old Claude Code with it, without saying so"
        yield CheckResult("note", text, f"install Node {NODE_TESTED} or newer, or ask npm for a version by its number")
    elif version:
        yield CheckResult("ok", f"Node {version}")
    else:
        yield CheckResult("note", "node does not tell its version", "run node --version")


def _told(client: KnownClient, version: str) -> CheckResult:
    if not version:
        text = f"{client.name} does not tell its version; found by {client.found_by}"
        return CheckResult("note", text, f"run {client.command} --version")
    text = f"{client.name} {version}"
    if client.tested and version.split(".")[0] != client.tested.split(".")[0]:
        text += f", not tested with ibidem, which was run with {client.tested}; found by {client.found_by}"
        return CheckResult("note", text, "if it does not work, run it without ibidem, and report it")
    tested = f" (tested with {client.tested})" if client.tested else ""
    return CheckResult("ok", f"{text}{tested}; found by {client.found_by}")


class _VersionAnswer:
    """A program that tells its version. It may neither take long nor say much, and whatever it started ends with it."""

    def __init__(self, program: str, machine: Machine) -> None:
        self._version = ""
        self._program = program
        self._variables = {**machine.variables, **QUIET}
        self._thread = threading.Thread(target=self._ask, daemon=True)
        self._thread.start()

    def answer(self) -> str:
        """Empty where it tells none."""
        self._thread.join(VERSION_SECONDS + 1)
        return self._version

    def _ask(self) -> None:
        with suppress(OSError, ValueError):
            process = subprocess.Popen(
                [self._program, "--version"],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=self._variables,
                start_new_session=os.name == "posix",
            )
            timer = threading.Timer(VERSION_SECONDS, _end, [process])
            timer.daemon = True
            timer.start()
            with process:
                said = process.stdout.read(MAX_VERSION_BYTES) if process.stdout else b""
            timer.cancel()
            found = _VERSION.search(said.decode("utf-8", "replace"))
            self._version = found[0] if found else ""


def _end(process: subprocess.Popen[bytes]) -> None:
    """With all that it started, where systems have groups of processes; one that ended by itself is left in peace."""
    if process.poll() is None:
        with suppress(OSError):
            if os.name == "posix":
                os.killpg(process.pid, signal.SIGKILL)
            else:
                process.kill()
