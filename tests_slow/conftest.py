"""Tests say what they did: `tally("strays", requests=5000, crossed=0)` prints a row at the end of the run.

Agents that are run for real come from npm: set IBIDEM_TEST_CLIENTS to a folder to keep them.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

PACKAGES = ("@anthropic-ai/claude-code@2.1.325", "@openai/codex@0.166.0")
"""By number: newer ones of the first want a newer Node than many have, and npm would silently take an old one."""

Tally = Callable[..., None]

ROWS: list[tuple[str, dict[str, Any]]] = []


@pytest.fixture
def tally() -> Tally:
    def add(name: str, **counts: Any) -> None:
        ROWS.append((name, counts))

    return add


@pytest.fixture(scope="session")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder of their programs."""
    kept = os.environ.get("IBIDEM_TEST_CLIENTS")
    folder = Path(kept) if kept else tmp_path_factory.mktemp("npm")
    found = folder / "node_modules" / ".bin"
    if not all((found / name).exists() for name in ("claude", "codex")):
        npm = shutil.which("npm")
        assert npm, "these tests need npm"
        folder.mkdir(parents=True, exist_ok=True)
        command = [npm, "install", "--prefix", str(folder), "--no-fund", "--no-audit", *PACKAGES]
        subprocess.run(command, check=True, timeout=1800)
    yield found
    if not kept:
        shutil.rmtree(folder)


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
