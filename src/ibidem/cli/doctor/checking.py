"""Runs checks side by side, each for a bounded time, and keeps what they find in the order of the list."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

import click

from ...errors import IbidemError, one_line
from ..errors import our_fault

Verdict = Literal["ok", "note", "problem"]

CHECK_SECONDS = 10.0
"""A check that takes longer is given up. All run at once, so that this bounds them together."""


@dataclass(frozen=True, slots=True)
class Machine:
    """What checks look at: nothing asks the environment by itself."""

    variables: Mapping[str, str]
    home: Path
    folder: Path
    """The current one."""
    platform: str


class CheckResult(NamedTuple):
    status: Verdict
    text: str
    remedy: str = ""


class Check(NamedTuple):
    name: str
    look: Callable[[Machine], Iterable[CheckResult]]


class CheckLine(NamedTuple):
    """What is printed, and with `--json` promised to other programs."""

    check: str
    status: Verdict
    text: str
    remedy: str


class _Running:
    """One check in a thread that nobody waits for longer than it may take."""

    def __init__(self, check: Check, machine: Machine) -> None:
        self.check = check
        self.found: list[CheckResult] = []
        self._machine = machine
        self._thread = threading.Thread(target=self._run, name=f"doctor: {check.name}", daemon=True)
        self._thread.start()

    def lines(self, deadline: float) -> list[CheckLine]:
        self._thread.join(max(0.0, deadline - time.monotonic()))
        found = list(self.found)
        if self._thread.is_alive():
            found.append(
                CheckResult("problem", f"not over after {CHECK_SECONDS:.0f} s", "run it again on an idle machine")
            )
        return [CheckLine(self.check.name, it.status, one_line(it.text), one_line(it.remedy)) for it in found]

    def _run(self) -> None:
        try:
            for finding in self.check.look(self._machine):
                self.found.append(finding)
        except (IbidemError, click.ClickException) as error:
            self.found.append(problem_of(error))
        except Exception as error:
            self.found.append(CheckResult("problem", f"the check itself failed: {our_fault(error)}"))


def problem_of(error: Exception) -> CheckResult:
    """Our own errors say what is wrong and, behind the last colon, what to do."""
    text = error.format_message() if isinstance(error, click.ClickException) else str(error)
    what, colon, remedy = text.rpartition(": ")
    return CheckResult("problem", what, remedy) if colon else CheckResult("problem", text)


def examine(checks: Sequence[Check], machine: Machine) -> list[CheckLine]:
    """What all checks find, in their order."""
    deadline = time.monotonic() + CHECK_SECONDS
    running = [_Running(check, machine) for check in checks]
    return [line for each in running for line in each.lines(deadline)]
