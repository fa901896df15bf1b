"""Run checks in parallel with a time limit, and return their results in the order of the list."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

import click

from ...errors import IbidemError, one_line
from ..command_errors import bug_message

Verdict = Literal["ok", "note", "problem"]

CHECK_SECONDS = 10.0
"""Time limit of a check. All checks run in parallel, so it also limits the whole run."""


@dataclass(frozen=True, slots=True)
class CheckContext:
    """Environment of the checks. Checks read it from here, so that tests can replace it."""

    variables: Mapping[str, str]
    home: Path
    folder: Path
    """Current folder."""
    platform: str


class CheckResult(NamedTuple):
    """Result of a check."""

    status: Verdict
    text: str
    remedy: str = ""


class Check(NamedTuple):
    """A check with its name in the output."""

    name: str
    run: Callable[[CheckContext], Iterable[CheckResult]]


class CheckLine(NamedTuple):
    """One line of the output. The fields are those of `--json`, which are stable."""

    check: str
    status: Verdict
    text: str
    remedy: str


class _CheckThread:
    """A check in its own thread. `lines` waits for it until the deadline."""

    def __init__(self, check: Check, machine: CheckContext) -> None:
        self.check = check
        self.results: list[CheckResult] = []
        self._machine = machine
        self._thread = threading.Thread(target=self._run, name=f"doctor: {check.name}", daemon=True)
        self._thread.start()

    def wait_for_lines(self, deadline: float) -> list[CheckLine]:
        """Return the results found before the deadline, as output lines."""
        self._thread.join(max(0.0, deadline - time.monotonic()))
        results = list(self.results)
        if self._thread.is_alive():
            results.append(
                CheckResult("problem", f"not finished after {CHECK_SECONDS:.0f} s", "run it again on an idle machine")
            )
        return [CheckLine(self.check.name, it.status, one_line(it.text), one_line(it.remedy)) for it in results]

    def _run(self) -> None:
        try:
            for result in self.check.run(self._machine):
                self.results.append(result)
        except (IbidemError, click.ClickException) as error:
            self.results.append(problem_from_error(error))
        except Exception as error:
            self.results.append(CheckResult("problem", f"the check itself failed: {bug_message(error)}"))


def problem_from_error(error: Exception) -> CheckResult:
    """Convert an error of ours to a result. The last sentence of its message, or the text after the last colon, is the
    remedy."""
    text = error.format_message() if isinstance(error, click.ClickException) else str(error)
    what, separator, remedy = text.rpartition(". ")
    if not separator:
        what, separator, remedy = text.rpartition(": ")
    return CheckResult("problem", what, remedy) if separator else CheckResult("problem", text)


def run_checks(checks: Sequence[Check], machine: CheckContext) -> list[CheckLine]:
    """Run all checks and return their results, in order."""
    deadline = time.monotonic() + CHECK_SECONDS
    threads = [_CheckThread(check, machine) for check in checks]
    return [line for each in threads for line in each.wait_for_lines(deadline)]
