"""Attacks say what they did: `tally("strays", requests=5000, crossed=0)` prints a row at the end of the run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

ROWS: list[tuple[str, dict[str, Any]]] = []


@pytest.fixture
def tally() -> Callable[..., None]:
    def add(name: str, **counts: Any) -> None:
        ROWS.append((name, counts))

    return add


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> None:
    """In one process: what is timed here wants the machine to itself, and what is counted is counted together."""
    config.option.numprocesses, config.option.dist = 0, "no"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if ROWS:
        terminalreporter.section("attacks, counted")
    for name, counts in ROWS:
        shown = ", ".join(f"{key.replace('_', ' ')} {value}" for key, value in counts.items())
        terminalreporter.write_line(f"{name}: {shown}")
