"""Check versions of Ibidem and Python, optional packages, and installed agents."""

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
from .check_runner import CheckContext, CheckResult


class KnownClient(NamedTuple):
    """A client whose version is checked."""

    command: str
    name: str
    tested_version: str
    """Version that was tested with Ibidem; "" if none was."""
    setting: str
    """Setting that points the client at the proxy."""


KNOWN_CLIENTS = (
    KnownClient("claude", "Claude Code", "2.1.327", "ANTHROPIC_BASE_URL; env in its settings.json takes precedence"),
    KnownClient("codex", "Codex", "0.169.0", "openai_base_url in its config.toml, or after -c; it reads no variable"),
    KnownClient("opencode", "opencode", "1.18.33", "OPENCODE_CONFIG_CONTENT, or baseURL in its configuration"),
    KnownClient("gemini", "Gemini CLI", "0.61.0", "GOOGLE_GEMINI_BASE_URL, with an API key"),
    KnownClient("pi", "pi", "1.5.2", "an extension that ibidem wrap passes; it reads no variable"),
    KnownClient("aider", "aider", "", "ANTHROPIC_API_BASE, OPENAI_API_BASE, GEMINI_API_BASE"),
    KnownClient("goose", "goose", "", "ANTHROPIC_HOST, OPENAI_HOST, GOOGLE_HOST"),
)

NODE_TESTED = 22
"""Node version that newer Claude Code packages require. On an older Node, npm silently installs one from June 2026."""

NO_UPDATE_CHECKS = {
    "AIDER_CHECK_UPDATE": "false",
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    "DISABLE_AUTOUPDATER": "1",
    "DO_NOT_TRACK": "1",
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "NO_UPDATE_NOTIFIER": "1",
    "OPENCODE_DISABLE_AUTOUPDATE": "true",
}
"""Variables that disable update checks, which `--version` of some programs would start."""


VERSION_SECONDS = 6.0
MAX_VERSION_BYTES = 4096
"""Time limit of `--version`, and how much of its output is read."""
_VERSION = re.compile(r"\d{1,5}(?:\.\d{1,6}){1,3}")


class OptionalPart(NamedTuple):
    """A package of an extra, and what needs it."""

    extra: str
    module: str
    purpose: str


PROXY_PART = OptionalPart("proxy", "aiohttp", "ibidem wrap, ibidem proxy and ibidem mcp --url")
OTHER_PARTS = (
    OptionalPart("proxy", "brotli", "responses compressed with brotli"),
    OptionalPart("redis", "redis", "a store on a Redis server"),
    OptionalPart("dask", "distributed", "reports on several machines"),
    OptionalPart("socks", "python_socks", "SOCKS proxies"),
    OptionalPart("speed", "uvloop", "a faster event loop"),
)


def check_versions(machine: CheckContext) -> Iterator[CheckResult]:
    """Report the versions of Ibidem, Python and the system."""
    system = f"{platform.system()} {platform.release()} {platform.machine()}"
    yield CheckResult("ok", f"ibidem {__version__}, Python {platform.python_version()}, {system}")


def check_optional_parts(machine: CheckContext) -> Iterator[CheckResult]:
    """Report which optional packages are installed."""
    if find_spec(PROXY_PART.module) is None:
        remedy = install_command(PROXY_PART.extra)
        yield CheckResult("note", f"{PROXY_PART.module} is not installed. {PROXY_PART.purpose} need it", remedy)
    installed_parts = [part.module for part in (PROXY_PART, *OTHER_PARTS) if find_spec(part.module) is not None]
    if installed_parts:
        yield CheckResult("ok", f"installed: {', '.join(installed_parts)}")
    missing_parts = [part for part in OTHER_PARTS if find_spec(part.module) is None]
    if missing_parts:
        extras = ",".join(dict.fromkeys(part.extra for part in missing_parts))
        part_names = ", ".join(f"{part.module} ({part.purpose})" for part in missing_parts)
        yield CheckResult("note", f"not installed: {part_names}", f"if you need one: {install_command(extras)}")


# --- agents -------------------------------------------------------------------------------------


def check_agents(machine: CheckContext) -> Iterator[CheckResult]:
    """Check the versions of installed agents, all in parallel: some take seconds to print theirs."""
    path = machine.variables.get("PATH", "")
    programs = [(client, program) for client in KNOWN_CLIENTS if (program := shutil.which(client.command, path=path))]
    if not programs:
        names = ", ".join(client.command for client in KNOWN_CLIENTS)
        yield CheckResult(
            "note", f"no known agent is on PATH: {names}", "ibidem wrap -- COMMAND works with other programs too"
        )
    queries = [(client, _VersionQuery(program, machine)) for client, program in programs]
    for client, version in queries:
        yield _agent_result(client, version.wait_for_version())


def check_node(machine: CheckContext) -> Iterator[CheckResult]:
    """Check the version of Node."""
    program = shutil.which("node", path=machine.variables.get("PATH", ""))
    if program is None:
        yield CheckResult("ok", "not on PATH; only clients installed with npm need it")
        return
    version = _VersionQuery(program, machine).wait_for_version()
    if version and int(version.split(".")[0]) < NODE_TESTED:
        text = f"Node {version}: npm silently installs an old Claude Code with it"
        yield CheckResult("note", text, f"install Node {NODE_TESTED} or newer, or pass npm a version number")
    elif version:
        yield CheckResult("ok", f"Node {version}")
    else:
        yield CheckResult("note", "node does not print its version", "run node --version")


def _agent_result(client: KnownClient, version: str) -> CheckResult:
    if not version:
        text = f"{client.name} does not print its version; reads {client.setting}"
        return CheckResult("note", text, f"run {client.command} --version")
    text = f"{client.name} {version}"
    if client.tested_version and version.split(".")[0] != client.tested_version.split(".")[0]:
        text += f", not tested with ibidem (tested: {client.tested_version}); reads {client.setting}"
        return CheckResult("note", text, "if it does not work, run it without ibidem, and report it")
    tested_note = f" (tested with {client.tested_version})" if client.tested_version else ""
    return CheckResult("ok", f"{text}{tested_note}; reads {client.setting}")


class _VersionQuery:
    """Run `PROGRAM --version` in a thread, with limits on time and output. Kills child processes of the program."""

    def __init__(self, program: str, machine: CheckContext) -> None:
        self._version = ""
        self._program = program
        self._variables = {**machine.variables, **NO_UPDATE_CHECKS}
        self._thread = threading.Thread(target=self._run_program, daemon=True)
        self._thread.start()

    def wait_for_version(self) -> str:
        """Return the version; "" if the program printed none in time."""
        self._thread.join(VERSION_SECONDS + 1)
        return self._version

    def _run_program(self) -> None:
        with suppress(OSError, ValueError):
            process = subprocess.Popen(
                [self._program, "--version"],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=self._variables,
                start_new_session=os.name == "posix",
            )
            timer = threading.Timer(VERSION_SECONDS, _kill_process, [process])
            timer.daemon = True
            timer.start()
            with process:
                output = process.stdout.read(MAX_VERSION_BYTES) if process.stdout else b""
            timer.cancel()
            match = _VERSION.search(output.decode("utf-8", "replace"))
            self._version = match[0] if match else ""


def _kill_process(process: subprocess.Popen[bytes]) -> None:
    """Kill a running process, on POSIX with its process group."""
    if process.poll() is None:
        with suppress(OSError):
            if os.name == "posix":
                os.killpg(process.pid, signal.SIGKILL)
            else:
                process.kill()
