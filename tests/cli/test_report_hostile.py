"""`ibidem report` on logs that nobody meant to write: odd times, names that are taken, counts that are none."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.test_report import empty_home, figures, put, run
from tests.recordings.claude_code import Script, text
from tests.recordings.examples import lines
from tests.report.test_report import TWICE, log

Rows = list[dict[str, Any]]
TIMES = ["9999-12-31T23:59:59Z", "0001-01-01T00:00:00+14:00", -6.3e10, 1e13, -1e14, 1e300, None, "x", True, [1], {}]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return empty_home(tmp_path, monkeypatch)


def odd_times() -> bytes:
    rows = [json.loads(line) for line in log(*TWICE, prompts=6).splitlines()]
    for place, row in enumerate(rows):
        row["timestamp"] = TIMES[place // 2 % len(TIMES)]
    return lines(*rows)


def no_times() -> bytes:
    rows = [json.loads(line) for line in log(*TWICE).splitlines()]
    return lines(*({key: value for key, value in row.items() if key != "timestamp"} for row in rows))


def names_that_are_taken() -> bytes:
    """A sub-agent that calls itself as another one is called here, and has fewer requests."""
    main, sneaky, nameless = Script(), Script(isSidechain=True, agentId="sidechain 1"), Script(isSidechain=True)
    rows: Rows = [main.user("Begin"), main.answer("msg_1", text("Begun"))]
    for n in range(3):
        rows += [nameless.user("Search", uuid=f"r{n}"), nameless.answer(f"msg_2{n}", text("Found"), uuid=f"s{n}")]
    return lines(*rows, sneaky.user("Search"), sneaky.answer("msg_3", text("Nothing")))


def absurd_counts() -> bytes:
    rows = [json.loads(line) for line in log(*TWICE).splitlines()]
    used: list[Any] = [{"input_tokens": 10**11, "output_tokens": 10**11}, {"input_tokens": -5}, {"input_tokens": "x"}]
    for row, usage in zip((row for row in rows if row["type"] == "assistant"), [*used, None], strict=True):
        row["message"]["usage"] = usage
    return lines(*rows)


def no_names() -> bytes:
    """No title, no model, a project of another machine."""
    rows = [json.loads(line) for line in log(*TWICE, model="", project="C:\\Users\\me\\shop\\").splitlines()]
    rows[0]["message"]["content"] = ""
    return lines(*rows)


def not_a_number() -> bytes:
    return log(*TWICE).replace(b'"output_tokens": 9', b'"output_tokens": NaN').replace(b'"2026-01', b'"NaN')


LOGS = {
    "times that no calendar has": odd_times(),
    "no times": no_times(),
    "names that are taken": names_that_are_taken(),
    "absurd counts": absurd_counts(),
    "no names": no_names(),
    "not a number": not_a_number(),
    "long names": log(*TWICE, model="m" * 5000, project="/" + "p" * 5000),
}
EVERY_TABLE = [part for by in ("day", "week", "month", "model", "session", "window") for part in ("--by", by)]


@pytest.mark.sampled(4)
@pytest.mark.parametrize("zone", ["UTC", "Pacific/Kiritimati"])
@pytest.mark.parametrize("case", LOGS)
def test_whatever_is_in_a_log_it_is_told_without_a_fault(tmp_path: Path, case: str, zone: str) -> None:
    path = put(tmp_path / "a.jsonl", LOGS[case])
    for extra in ([], ["--paid"], ["--csv"], ["--since", "2000-01-01"], ["--until", "2000-01-01"]):
        result = run(path, "--jobs", "1", "--timezone", zone, *EVERY_TABLE, *extra)
        assert result.exit_code in (0, 2), extra
        assert "fault" not in result.output
    value = figures(path, "--jobs", "1", "--timezone", zone, *EVERY_TABLE)
    json.dumps(value, allow_nan=False)
    for by in ("day", "week", "month", "model", "session"):
        assert sum(row["requests"] for row in value["by"][by]) == value["totals"]["requests"] > 0


@pytest.mark.parametrize("case", LOGS)
def test_every_line_fits_the_terminal(tmp_path: Path, case: str) -> None:
    path = put(tmp_path / "a.jsonl", LOGS[case])
    said = run(path, "--by", "session", "--by", "model", "--by", "project", "--jobs", "1").stdout
    tables = said.split("\nwhat it costs")[0].splitlines()
    assert max(map(len, tables)) <= 100


def test_one_such_log_takes_no_other_with_it(home: Path) -> None:
    for number, data in enumerate(LOGS.values()):
        put(home / f".claude/projects/x/{number}.jsonl", data)
    put(home / ".claude/projects/x/good.jsonl", log(*TWICE, id="good"))
    value = figures("--all", "--jobs", "1")
    assert str(home / ".claude/projects/x/good.jsonl") in {each["path"] for each in value["sessions"]}
    assert value["unread"] == []
