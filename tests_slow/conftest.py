"""Tests say what they did: `tally("strays", requests=5000, crossed=0)` prints a row at the end of the run.

Agents that are run for real come from npm: set IBIDEM_TEST_CLIENTS to a folder to keep them.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from .logs import installed_pi

NODE = "node@22"
"""Installed first and put into PATH: with an older Node, npm silently takes an older release of a client."""
PACKAGES = {"claude": "@anthropic-ai/claude-code", "codex": "@openai/codex"}
MORE_PACKAGES = {"opencode": "opencode-ai", "gemini": "@google/gemini-cli", "qwen": "@qwen-code/qwen-code"}
OTHER_PACKAGES = {"copilot": "@github/copilot", "cline": "cline", "cn": "@continuedev/cli"}
"""Packages by the name of their program. The last ones have a folder of their own: dependencies differ."""

Tally = Callable[..., None]

ROWS: list[tuple[str, dict[str, Any]]] = []


@pytest.fixture
def tally() -> Tally:
    def add(name: str, **counts: Any) -> None:
        ROWS.append((name, counts))

    return add


@pytest.fixture(scope="session")
def client_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder that clients are installed in."""
    kept = os.environ.get("IBIDEM_TEST_CLIENTS")
    folder = Path(kept) if kept else tmp_path_factory.mktemp("npm")
    yield folder
    if not kept:
        shutil.rmtree(folder)


@pytest.fixture(scope="session")
def programs(client_folder: Path) -> Path:
    """The folder of the programs of Claude Code and Codex."""
    return install(client_folder, PACKAGES)


@pytest.fixture(scope="session")
def clients(client_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the programs of all clients, and the Node that runs them."""
    everything = tmp_path_factory.mktemp("programs")
    first = install(client_folder, {**PACKAGES, **MORE_PACKAGES})
    for folder in (first, installed_pi(client_folder), install(client_folder / "more", OTHER_PACKAGES, node=first)):
        for program in folder.iterdir():
            if not (everything / program.name).exists():
                (everything / program.name).symlink_to(program)
    return everything


def install(folder: Path, packages: Mapping[str, str], node: Path | None = None) -> Path:
    """Install the newest release of each package that is not there, and return the folder of the programs.

    `node` is the folder of a Node that is there already.
    """
    found = folder / "node_modules" / ".bin"
    missing = [f"{package}@latest" for name, package in packages.items() if not (found / name).exists()]
    if missing:
        npm = shutil.which("npm")
        assert npm, "these tests need npm"
        folder.mkdir(parents=True, exist_ok=True)
        path = os.pathsep.join([str(node or found), os.environ.get("PATH", os.defpath)])
        for wanted in [missing] if node else [[NODE], missing]:
            command = [npm, "install", "--prefix", str(folder), "--no-fund", "--no-audit", *wanted]
            subprocess.run(command, check=True, timeout=1800, env={**os.environ, "PATH": path})
    return found


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> None:
    """In one process: what is timed here wants the machine to itself, and what is counted is counted together."""
    config.option.numprocesses, config.option.dist = 0, "no"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if ROWS:
        terminalreporter.section("counted")
    for name, counts in ROWS:
        shown = ", ".join(f"{key.replace('_', ' ')} {value}" for key, value in counts.items())
        terminalreporter.write_line(f"{name}: {shown}")
