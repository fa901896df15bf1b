"""What `ibidem report` says was paid, and what ccusage says of the same logs: the same tokens, the same dollars.

    python -m pytest tests_slow/test_ccusage.py

ccusage is installed from npm, in one release: set IBIDEM_TEST_CLIENTS to a folder to keep it. Both are offline, with
the prices that each brings along, so the models in the logs are ones that both price alike.

Where the two are not the same, and no log here has it:
- a request so large that it costs more per token (Claude Sonnet 4.5 above 200,000): there only what is above the limit
  does, of each kind of token alone; providers charge it for the whole request, and so does the report;
- a model without a price costs nothing there, and here as much as another one, which is named; prices here are those of
  the day of the request, there those of today;
- Claude's fast mode, and dollars that very old logs have themselves, count there and not here;
- lines without a request id: there, by day, each line of such an answer is paid, while by session the answer is once;
- a sub-agent's answers that stand only as progress in its session's file: there they are paid by day, here not;
- tokens that Codex counted for an answer that is not in the log (a summary that was asked for in words), or only as a
  sum of all: they count there and not here;
- compressed rollouts are not read there;
- what two files of Claude Code hold is put down there to the one whose name comes first, here to the shorter one;
- an answer in which midnight falls is there on the day of the first line that counts all tokens, here of the last line.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from .logs import installed
from .paid_logs import claude_logs, codex_logs

PACKAGE = "ccusage@20.0.24"
PATIENCE = 120
DOLLARS = 1e-6
"""So far apart may sums be: far less than a cent, and more than adding up in another order makes."""
Json = dict[str, Any]


class Paid(NamedTuple):
    """Tokens by kind, and dollars."""

    fresh: int = 0
    read: int = 0
    written: int = 0
    output: int = 0
    dollars: float = 0.0

    def plus(self, other: Paid) -> Paid:
        fresh, read, written, output = (one + another for one, another in zip(self[:4], other[:4], strict=True))
        return Paid(fresh, read, written, output, self.dollars + other.dollars)


Table = dict[str, Paid]


class Logs:
    """Both agents' logs in a home of their own, and both programs' answers about them."""

    def __init__(self, folder: Path, program: Path) -> None:
        self._program = program
        self.claude, self.codex = folder / "claude", folder / "codex"
        self._variables = {
            "PATH": os.environ.get("PATH", ""),
            "PYTHONPATH": os.environ.get("PYTHONPATH", ""),
            "HOME": str(folder / "home"),
            "CLAUDE_CONFIG_DIR": str(self.claude),
            "CODEX_HOME": str(self.codex),
        }
        (folder / "home").mkdir()
        claude_logs(self.claude)
        codex_logs(self.codex)

    def ccusage(self, *words: str) -> Json:
        return self._asked(str(self._program), *words, "--json", "--offline", "--timezone", "UTC")

    def ibidem(self, *words: str) -> Json:
        asked = (sys.executable, "-m", "ibidem.cli", "report", "--json", "--all", "--paid", "--timezone", "UTC")
        return self._asked(*asked, *words)

    def _asked(self, *command: str) -> Json:
        pipes: Any = {"stdin": subprocess.DEVNULL, "capture_output": True, "text": True}
        ended = subprocess.run(command, env=self._variables, timeout=PATIENCE, **pipes)
        assert ended.returncode == 0, (ended.stdout[-2000:], ended.stderr[-2000:])
        found: Json = json.loads(ended.stdout)
        return found


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Logs:
    if not shutil.which("npm") and not os.environ.get("IBIDEM_TEST_CLIENTS"):
        pytest.skip("needs npm")
    try:
        program = installed(PACKAGE, "ccusage", tmp_path_factory.mktemp("npm")) / "ccusage"
    except subprocess.SubprocessError as error:
        pytest.skip(f"npm could not install {PACKAGE}: {error}")
    ended = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=PATIENCE)
    if ended.returncode:  # npm passes over a program for this platform that it cannot find
        pytest.skip(f"{PACKAGE} does not run here: {ended.stderr.strip()}")
    return Logs(tmp_path_factory.mktemp("logs"), program)


def ours(row: Json) -> Paid:
    tokens = row["tokens"]
    written = tokens["written"] + tokens["written_1h"]
    assert row["total"] == pytest.approx(row["input"] + row["output"])
    return Paid(tokens["fresh"], tokens["read"], written, tokens["output"], row["total"])


def theirs(row: Json) -> Paid:
    dollars = next(row[name] for name in ("totalCost", "costUSD", "cost") if name in row)
    counts = row.get("tokenCounts", row)
    written, read = (
        counts.get(f"cache{name}Tokens", counts.get(f"cache{name}InputTokens")) for name in ("Creation", "Read")
    )
    return Paid(counts["inputTokens"], read, written, counts["outputTokens"], dollars)


def summed(rows: Iterable[tuple[str, Paid]]) -> Table:
    found: Table = {}
    for name, paid in rows:
        found[name] = found.get(name, Paid()).plus(paid)
    return found


def same(one: Table, other: Table) -> None:
    assert one.keys() == other.keys()
    assert {name: paid[:4] for name, paid in one.items()} == {name: paid[:4] for name, paid in other.items()}
    for name, paid in one.items():
        assert paid.dollars == pytest.approx(other[name].dollars, abs=DOLLARS), name


def test_in_all(logs: Logs, tally: Callable[..., None]) -> None:
    found, other = ours(logs.ibidem()["paid"]), theirs(logs.ccusage("daily")["totals"])
    same({"all": found}, {"all": other})
    assert found.dollars > 0.5
    tally(f"paid, beside {PACKAGE}", tokens=sum(found[:4]), dollars=round(found.dollars, 4))


@pytest.mark.parametrize(("by", "command"), [("day", "daily"), ("month", "monthly")])
def test_by_calendar(logs: Logs, by: str, command: str) -> None:
    found = {row["name"]: ours(row) for row in logs.ibidem("--by", by)["by"][by]}
    same(found, {row["period"]: theirs(row) for row in logs.ccusage(command)[command]})
    assert len(found) == {"day": 2, "month": 1}[by]


@pytest.mark.parametrize(("agent", "name"), [("claude-code", "claude"), ("codex", "codex")])
def test_by_day_of_one_agent(logs: Logs, agent: str, name: str) -> None:
    found = {row["name"]: ours(row) for row in logs.ibidem("--by", "day", "--agent", agent)["by"]["day"]}
    rows = logs.ccusage(name, "daily")["daily"]
    same(found, {row.get("date") or row["period"]: theirs(row) for row in rows})


def test_by_model(logs: Logs) -> None:
    found = {row["name"]: ours(row) for row in logs.ibidem("--by", "model")["by"]["model"]}
    days = logs.ccusage("daily")["daily"]
    same(found, summed((row["modelName"], theirs(row)) for day in days for row in day["modelBreakdowns"]))


def test_by_session(logs: Logs) -> None:
    """A sub-agent's file lies in a folder with the name of its session; Codex's sessions are named by their files."""

    def named(path: Path) -> str:
        if path.is_relative_to(logs.codex):
            return path.relative_to(logs.codex / "sessions").with_suffix("").as_posix()
        return path.parent.parent.name if path.parent.name == "subagents" else path.stem

    sessions = logs.ibidem("--by", "session")["sessions"]
    rows = logs.ccusage("session")["session"]
    same(
        summed((named(Path(each["path"])), ours(each["paid"])) for each in sessions),
        {row["period"]: theirs(row) for row in rows},
    )


def test_by_window_of_five_hours(logs: Logs) -> None:
    """Only of Claude Code there."""
    found = [ours(row) for row in logs.ibidem("--by", "window", "--agent", "claude-code")["by"]["window"]]
    other = [theirs(row) for row in logs.ccusage("blocks")["blocks"] if not row["isGap"]]
    same(_numbered(found), _numbered(other))


def _numbered(rows: Iterable[Paid]) -> Table:
    """In an order that is theirs alone: dollars."""
    return {str(number): paid for number, paid in enumerate(sorted(rows, key=lambda paid: paid.dollars))}
