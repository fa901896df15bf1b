"""`ibidem gain`: what was kept, added up; and nothing but a line where there is nothing to add up."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from ibidem import usage_db
from ibidem.cli import main
from ibidem.proxy.accounting.usage_writer import UsageWriter
from tests.test_usage_db import exchange

TODAY = datetime.now(UTC).replace(hour=12, minute=0, second=0, microsecond=0)
EMPTY = "No usage recorded yet. Run a command through ibidem first: ibidem wrap -- claude\n"


@pytest.fixture(autouse=True)
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("COLUMNS", "140")
    return usage_db.database_path()


def gain(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["gain", "--timezone", "UTC", *arguments])


def figures(*arguments: str) -> Any:
    return json.loads(gain("--json", *arguments).stdout)


def keep(file: Path, days: int = 0, project: str = "", observed: bool = False, **more: Any) -> None:
    writer = UsageWriter(file, project)
    at = (TODAY - timedelta(days=days)).timestamp()
    writer.note(exchange(at=at, **more), "", is_lost=False, observed=observed)
    writer.close()


def test_an_empty_ledger_says_what_to_type(file: Path) -> None:
    assert gain().stdout == EMPTY
    assert gain("--since", "7d").stdout == EMPTY
    assert figures()["total"]["requests"] == 0
    assert not file.exists()


def test_days_are_added_up_the_newest_first(file: Path) -> None:
    for days in (0, 0, 1):
        keep(file, days)
    told = gain()
    assert told.exit_code == 0
    lines = told.stdout.splitlines()
    head = ["day", "paid", "without", "ibidem", "saved", "share", "requests", "conversations"]
    assert lines[1].split() == head
    assert [line.split() for line in lines[2:5]] == [
        [f"{TODAY:%Y-%m-%d}", "$0.50", "$1.00", "$0.50", "50.0%", "2", "2"],
        [f"{TODAY - timedelta(days=1):%Y-%m-%d}", "$0.25", "$0.50", "$0.25", "50.0%", "1", "1"],
        ["all", "$0.75", "$1.50", "$0.75", "50.0%", "3", "3"],
    ]
    assert lines[6] == "Input cost at list prices. With output ($0.38 more), the saved share is 40.0%."
    assert lines[7] == "No failures, no rejected requests, and no cache misses caused by ibidem."
    assert max(map(len, lines)) <= 82


@pytest.mark.parametrize(
    ("by", "names"),
    [
        ("model", ["big", "small"]),
        ("project", ["/src/app", "(not told)"]),
        ("client", ["codex/1", "(not told)"]),
        ("month", [f"{TODAY:%Y-%m}"]),
    ],
)
def test_it_is_added_up_as_asked(file: Path, by: str, names: list[str]) -> None:
    keep(file, model="small", paid=0.125, client="")
    keep(file, model="big", project="/src/app", client="codex/1", paid=4.0, would_have_paid=5.0)
    found = figures("--by", by)
    assert [each["name"] for each in found["groups"]] == names
    assert sum(each["paid"] for each in found["groups"]) == found["total"]["paid"] == 4.125
    assert found["total"]["saved"] == 5.5 - 4.125
    assert found["total"]["saved_share_of_total"] == 1.375 / (5.5 + found["total"]["output_paid"])
    assert (found["schema"], found["by"], found["ledger"]) == (1, by, str(file))


def test_weeks_begin_on_monday(file: Path) -> None:
    keep(file)
    monday = TODAY - timedelta(days=TODAY.weekday())
    assert [each["name"] for each in figures("--by", "week")["groups"]] == [f"{monday:%Y-%m-%d}"]


def test_a_period_can_be_named(file: Path) -> None:
    for days in (0, 3, 40):
        keep(file, days)
    counts = [
        figures(*asked)["total"]["requests"]
        for asked in ((), ("--since", "7d"), ("--since", "60d", "--until", "30d"), ("--until", "yesterday"))
    ]
    assert counts == [3, 2, 1, 2]
    told = gain("--since", "2d", "--until", "1d")
    assert told.stdout.endswith("No usage recorded: omit --since and --until to see all.\n")
    assert gain("--since", "tomorrow").exit_code == 2
    assert "--since: invalid date 'tomorrow'" in gain("--since", "tomorrow").stderr


def test_what_is_long_ago_has_no_names_but_is_in_the_sum(file: Path) -> None:
    keep(file, 500)
    keep(file)
    names = [each["name"] for each in figures("--by", "model")["groups"]]
    assert names == ["(added up, more than 400 days ago)", "claude-sonnet-4-5"]
    assert figures()["total"]["requests"] == 2


def test_what_went_wrong_is_explained(file: Path) -> None:
    keep(file, outcome="failed open", resent="invalid_request_error")
    keep(file, miss="history: changed by ibidem")
    keep(file, paid=None, would_have_paid=None)
    keep(file, observed=True, paid=2.0, would_have_paid=1.5)
    told = gain().stdout
    assert "1 request not rewritten, only measured (--observe, --trial): ibidem would have saved $0.50." in told
    assert "The cost of 1 request is unknown and not included." in told
    assert told.splitlines()[1].split()[-4:] == ["failed", "rejected", "cache", "misses"]
    assert told.splitlines()[2].split()[-3:] == ["1", "1", "1"]
    for word in ("failed: ", "rejected: ", "cache misses: "):
        assert f"\n{word}" in told


def test_names_cannot_steer_the_terminal_or_break_the_table(file: Path) -> None:
    keep(file, model="m\n[red]x\x1b[2J\u202e" + "y" * 900)
    told = gain("--by", "model").stdout
    assert "\x1b" not in told
    assert "\u202e" not in told
    assert max(map(len, told.splitlines())) <= 140
    assert len(told.splitlines()) == 6


@pytest.mark.parametrize("arguments", [(), ("--json",), ("--by", "model")])
def test_a_file_that_cannot_be_used_is_one_line(file: Path, arguments: tuple[str, ...]) -> None:
    file.parent.mkdir()
    file.write_bytes(b"this is no database, however long it is " * 99)
    told = gain(*arguments)
    assert (told.exit_code, told.stdout) == (2, "")
    assert told.stderr == f"ibidem: {file}: the file is damaged or not a database: `ibidem gain --forget` removes it\n"
    assert gain("--forget").stdout == f"{file} deleted: usage of 0 requests\n"
    assert gain().stdout == EMPTY


def test_forgetting_asks_nothing_and_says_what_went(file: Path) -> None:
    assert gain("--forget").stdout == f"{file}: no usage recorded\n"
    keep(file)
    assert gain("--forget", "--since", "7d").exit_code == 2
    assert gain("--forget").stdout == f"{file} deleted: usage of 1 request\n"
    assert not file.exists()
    keep(file)
    assert json.loads(gain("--forget", "--json").stdout)["forgotten"]["requests"] == 1


def test_requests_on_a_subscription_have_a_table_of_their_own(file: Path) -> None:
    keep(file, model="claude-opus-5-5", plan=True, removed=130)
    lines = gain("--by", "model").stdout.splitlines()
    head = ["model", "value", "without", "ibidem", "saved", "share", "tokens", "saved", "requests", "conversations"]
    assert lines[0] == "On a subscription (values at list prices, no bill):"
    assert [line.split() for line in lines[2:4]] == [
        head,
        ["claude-opus-5-5", "$0.25", "$0.50", "$0.25", "50.0%", "50.0%", "1", "1"],
    ]
    assert "Subscription: input value. With output ($0.13 more), the saved share is 40.0%." in lines
    assert "paid" not in "\n".join(lines)
    keep(file, model="claude-haiku-5-5")
    text = gain("--by", "model").stdout
    first, second = text.split("On a subscription")
    assert "claude-haiku-5-5" in first
    assert "claude-opus-5-5" not in first
    assert "claude-opus-5-5" in second
    assert "claude-haiku-5-5" not in second
    total = figures()["total"]
    assert (total["requests"], total["plan_requests"], total["plan_paid"], total["removed_share"]) == (
        2,
        1,
        0.25,
        1 / 3,
    )
