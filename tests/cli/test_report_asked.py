"""`ibidem report` about a part of what there is: by time, agent, project, model and session; and in tables."""

from __future__ import annotations

import csv
import gzip
import io
import json
import os
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from ibidem.cli import main
from ibidem.cli.report.command import BY, ORDERS
from ibidem.report import executors
from ibidem.report.aggregate import ORDERS as KNOWN_ORDERS
from ibidem.report.terminal_tables import BYS
from tests.cli import test_report as prompt
from tests.cli.test_report import empty_home, put, the_error
from tests.recordings.codex import EXAMPLES as CODEX
from tests.report.logs import timed
from tests.report.test_report import TWICE, log

NOW = datetime.now(UTC)
DAY = timedelta(days=1)
NEW, OLD, SIDE = (f"{front}-1111-2222-3333-444444444444" for front in ("0badcafe", "0badcafd", "5eed5eed"))


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return empty_home(tmp_path, monkeypatch)


def run(*args: str) -> Result:
    """By one process: so little is done sooner than two are started."""
    return prompt.run("--jobs", "1", *args)


def figures(*args: str) -> dict[str, Any]:
    return prompt.figures("--jobs", "1", *args)


def session(home: Path, id: str, days: float, project: str = "/home/me/shop", **fields: Any) -> Path:
    """A log of Claude Code, of so many days ago, last written to then."""
    start = NOW - days * DAY
    data = timed(log(*TWICE, id=id[:8], project=project, **fields), start, sessionId=id)
    path = put(home / f".claude/projects/x/{id}.jsonl", data)
    os.utime(path, ((start + DAY / 24).timestamp(),) * 2)
    return path


@pytest.fixture
def three(home: Path) -> Path:
    """Sessions of today, of last month, and of last year."""
    session(home, NEW, 0.5)
    session(home, SIDE, 20, "/home/me/bank", model="claude-haiku-4-5")
    session(home, OLD, 300, prompts=2)
    return home


def ids(*args: str) -> list[str]:
    return sorted(each["id"] for each in figures(*args, "--paid")["sessions"])


# --- which requests -----------------------------------------------------------------------------


@pytest.mark.usefixtures("three")
def test_without_a_word_it_is_the_last_thirty_days_and_says_so() -> None:
    said = run("--paid").stdout.splitlines()
    assert re.fullmatch(r"The last 30 days, since \d+ \w+ \d{4}\. For all dates: --all", said[0])
    assert said[1].startswith("Paid $")
    assert "for 2 sessions, 8 requests" in said[1]
    assert ids() == sorted([NEW, SIDE])


@pytest.mark.usefixtures("three")
def test_all_there_is() -> None:
    assert ids("--all") == sorted([NEW, SIDE, OLD])
    assert run("--all", "--paid").stdout.startswith("Paid $")


def test_if_the_last_days_are_empty_it_is_the_newest_month(home: Path) -> None:
    session(home, OLD, 300)
    session(home, SIDE, 500)
    said = run("--paid").stdout.splitlines()
    month = (NOW - 300 * DAY).strftime("%B %Y")
    assert said[0] == f"No requests in the last 30 days. Showing {month}. For all dates: --all"
    assert ids() == [OLD]


def test_logs_without_times_are_told_where_there_is_nothing_else(home: Path) -> None:
    rows = [json.loads(line) for line in log(*TWICE).splitlines()]
    for row in rows:
        del row["timestamp"]
    put(home / ".claude/projects/x/a.jsonl", b"".join(json.dumps(row).encode() + b"\n" for row in rows))
    assert figures("--paid")["paid"]["requests"] == 4
    result = run("--since", "2020-01-01", "--paid")
    assert (result.exit_code, "No session was found" in result.stdout) == (2, True)
    [day] = figures("--paid", "--by", "day")["by"]["day"]
    assert day["name"] == "(not told)"


SELECTED = {
    "since some time": (["--since", "7d"], [NEW]),
    "until some time": (["--until", "7d"], [SIDE, OLD]),
    "between two": (["--since", "100d", "--until", "7d"], [SIDE]),
    "an agent": (["--agent", "Claude-Code"], [NEW, SIDE, OLD]),
    "a project": (["--project", "BANK"], [SIDE]),
    "two projects": (["--project", "bank", "--project", "shop"], [NEW, SIDE, OLD]),
    "a model": (["--model", "haiku"], [SIDE]),
    "a session": (["--session", "5eed"], [SIDE]),
    "a session of last year": (["--session", OLD.upper()], [OLD]),
    "a project in some time": (["--project", "shop", "--since", "7d"], [NEW]),
}


@pytest.mark.usefixtures("three")
@pytest.mark.parametrize("case", SELECTED)
def test_what_can_be_selected(case: str) -> None:
    args, expected = SELECTED[case]
    assert ids(*args) == sorted(expected)


@pytest.mark.usefixtures("three")
@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["--agent", "codex"], "--agent: no match for 'codex': choose from claude-code"),
        (["--project", "zoo"], "--project: no match for 'zoo': choose from /home/me/bank, /home/me/shop"),
        (["--model", "llama"], "--model: no match for 'llama': choose from claude-haiku-4-5, claude-opus-4-6"),
        (["--session", "0bad"], f"--session: several ids start with '0bad': {OLD}, {NEW}"),
        (["--session", "beef"], "--session: no id starts with 'beef': `ibidem report --all --by session` lists them"),
        (["--since", "soon"], "--since: invalid date 'soon': use a date"),
        (["--since", "today", "--until", "yesterday"], "--since today is not before --until yesterday"),
        (["--all", "--since", "7d"], "--all and --since or --until exclude each other"),
        (["--timezone", "Mars"], "--timezone: unknown time zone 'Mars'"),
        (["--by", "colour"], "'colour' is not one of 'day'"),
        (["--sort", "colour"], "'colour' is not one of 'paid'"),
        (["--top", "0"], "--top"),
        (["--paid", "--html", "a.html"], "--html needs the replay that --paid skips"),
        (["--paid", "--by", "tool"], "--by tool needs the replay that --paid skips"),
        (["--open"], "--open needs a page: add --html FILE"),
    ],
)
def test_what_cannot_be_asked_for_is_one_line(args: list[str], words: str) -> None:
    assert words in the_error(run(*args))


@pytest.mark.usefixtures("three")
def test_in_the_future_there_is_nothing() -> None:
    result = run("--since", "2199-01-01")
    assert (result.exit_code, result.stderr) == (2, "")
    assert result.stdout.splitlines()[0] == "Requests since 1 Jan 2199."
    assert "No session was found" in result.stdout


def test_logs_that_cannot_hold_it_are_not_read(home: Path) -> None:
    """They are broken, and nobody complains."""
    session(home, NEW, 0.5)
    old = put(home / f".claude/projects/x/{OLD}.jsonl", b"rubbish")
    os.utime(old, (5, 5))
    codex = put(home / ".codex/sessions/2026/rollout-1.jsonl", b"rubbish")
    os.utime(codex, (5, 5))
    assert figures("--since", "7d", "--paid")["unread"] == []
    assert figures("--session", NEW, "--agent", "claude-code", "--paid")["unread"] == []
    assert len(figures("--all", "--paid")["unread"]) == 2
    assert "Not read" not in run("--paid").stdout
    assert "Not read" in run("--all", "--paid").stdout


def test_parts_of_a_session_add_up_to_it(home: Path) -> None:
    """Figures of yesterday and of today are those of both days."""
    start = datetime(2026, 3, 4, 22, tzinfo=UTC)
    data = timed(log(*TWICE, prompts=6), start, timedelta(minutes=20))
    path = put(home.parent / "a.jsonl", data)
    where = [str(path), "--timezone", "UTC"]
    whole = figures(*where)
    parts = [figures(*where, "--until", "2026-03-04"), figures(*where, "--since", "2026-03-05")]
    assert whole["totals"]["requests"] == sum(each["totals"]["requests"] for each in parts)
    for name in ("input", "output", "total"):
        assert whole["paid"][name] == pytest.approx(sum(each["paid"][name] for each in parts))
    for profile in ("lossless", "recoverable"):
        found = [each["totals"]["profiles"][profile] for each in (whole, *parts)]
        for name in ("cost", "saved", "tokens", "breaks"):
            assert found[0][name] == pytest.approx(found[1][name] + found[2][name])
    assert all(each["totals"]["requests"] for each in parts)
    days = figures(*where, "--by", "day")["by"]["day"]
    assert [day["name"] for day in days] == ["2026-03-04", "2026-03-05"]
    for day, part in zip(days, parts, strict=True):
        assert day["total"] == pytest.approx(part["paid"]["total"])
        assert day["profiles"]["lossless"]["saved"] == pytest.approx(part["totals"]["profiles"]["lossless"]["saved"])


def test_a_resumed_session_is_paid_once(home: Path) -> None:
    first = session(home, OLD, 3)
    known = [json.loads(line) for line in first.read_bytes().splitlines()]
    more = [json.loads(line) for line in timed(log(*TWICE, prompts=2), NOW - 2 * DAY).splitlines()][len(known) :]
    copied = [{**row, "sessionId": NEW} for row in (*known, *more)]
    put(home / f".claude/projects/x/{NEW}.jsonl", b"".join(json.dumps(row).encode() + b"\n" for row in copied))
    value = figures()
    assert value["paid"]["requests"] == value["totals"]["requests"] == 4 + 2
    assert value["paid"]["input"] == pytest.approx(value["totals"]["recorded"]["cost"])


# --- tables -------------------------------------------------------------------------------------


def test_the_command_line_knows_all_tables_and_orders() -> None:
    assert {*BYS} | {"tool", "file", "window"} == {*BY}
    assert KNOWN_ORDERS == ORDERS


@pytest.mark.sampled(5)
@pytest.mark.usefixtures("three")
@pytest.mark.parametrize("paid", [[], ["--paid"]], ids=["with what would have been", "only what was paid"])
@pytest.mark.parametrize("by", BY)
def test_every_table(by: str, paid: list[str]) -> None:
    if paid and by in ("tool", "file"):
        return
    result = run("--all", "--by", by, *paid)
    assert (result.exit_code, result.stderr) == (0, "")
    head = "window from" if by == "window" else by
    assert re.search(rf"^{head} +(sessions +)?(requests|results) ", result.stdout, re.MULTILINE), result.stdout
    rows = figures("--all", "--by", by, *paid)["by"][by]
    assert rows
    if by not in ("tool", "file"):
        assert sum(row["requests"] for row in rows) == 14
        assert sum(row["total"] for row in rows) == pytest.approx(figures("--all", "--paid")["paid"]["total"])
        assert all(bool(row["profiles"]) is not bool(paid) for row in rows)


@pytest.mark.usefixtures("three")
def test_windows_have_room_where_something_was_replayed() -> None:
    assert re.search(r"^window from +requests +paid \$$", run("--by", "window", "--paid").stdout, re.MULTILINE)
    assert "lossless  recoverable  room for more" in run("--by", "window").stdout


@pytest.mark.usefixtures("three")
def test_several_tables_stand_in_the_order_in_which_they_were_asked_for() -> None:
    said = run("--all", "--by", "model", "--by", "agent", "--paid").stdout
    assert 0 < said.index("\nmodel ") < said.index("\nagent ")
    assert [*figures("--all", "--by", "model", "--by", "agent", "--paid")["by"]] == ["model", "agent"]


@pytest.mark.usefixtures("three")
@pytest.mark.parametrize(
    ("order", "expected"),
    [
        ("paid", [OLD, NEW, SIDE]),
        ("requests", [OLD, NEW, SIDE]),
        ("tokens", [OLD, NEW, SIDE]),
        ("saved", [OLD, NEW, SIDE]),
        ("time", [OLD, SIDE, NEW]),
        ("name", [OLD, NEW, SIDE]),
    ],
)
def test_tables_are_sorted_as_asked_for(order: str, expected: list[str]) -> None:
    args = ["--all", "--by", "session", "--sort", order]
    assert [row["id"] for row in figures(*args)["by"]["session"]] == expected
    said = run(*args).stdout
    places = [said.index(id[:8]) for id in expected]
    assert places == sorted(places)


@pytest.mark.usefixtures("three")
def test_as_many_rows_as_asked_for() -> None:
    args = ["--all", "--paid", "--by", "session", "--by", "window", "--top", "1"]
    value = figures(*args)["by"]
    assert [row["id"] for row in value["session"]] == [OLD]
    assert [datetime.fromtimestamp(row["start"], UTC).date() for row in value["window"]] == [(NOW - DAY / 2).date()]
    said = run(*args).stdout
    assert "2 more: --top 3, --html and --json have them all." in said
    assert said.count("claude-opus-4-6 shop") == 1


@pytest.mark.usefixtures("three")
def test_days_are_those_of_the_zone() -> None:
    for zone in ("UTC", "Pacific/Kiritimati", "Pacific/Pago_Pago"):
        rows = figures("--all", "--paid", "--by", "day", "--timezone", zone)["by"]["day"]
        assert sum(row["requests"] for row in rows) == 14
        assert [row["name"] for row in rows] == sorted(row["name"] for row in rows)


# --- what other programs read -------------------------------------------------------------------


@pytest.mark.usefixtures("three")
def test_json_tells_what_was_paid_and_which_sessions_there_are() -> None:
    value = figures("--since", "7d")
    assert (value["partial"], value["until"]) == (False, None)
    assert value["since"] == pytest.approx((NOW - 7 * DAY).timestamp(), abs=3600)
    assert value["paid"].keys() == {"input", "output", "total", "requests", "tokens"}
    assert value["paid"]["total"] == value["paid"]["input"] + value["paid"]["output"] > 0
    assert value["paid"]["tokens"] == {"fresh": 12, "read": 42000, "written": 23988, "written_1h": 0, "output": 36}
    [one] = value["sessions"]
    assert (one["id"], one["title"], one["model"], one["project"]) == (NEW, "Begin", "claude-opus-4-6", "/home/me/shop")
    assert one["started"] == pytest.approx((NOW - DAY / 2).timestamp(), abs=120)
    assert one["paid"]["total"] == value["paid"]["total"]


@pytest.mark.usefixtures("three")
def test_what_is_only_paid_is_told_of_every_session() -> None:
    value = figures("--all", "--paid")
    assert (value["totals"]["sessions"], len(value["sessions"]), value["by"]) == (0, 3, {})
    assert all("baseline" not in each and each["paid"]["total"] > 0 for each in value["sessions"])


def rows(*args: str) -> list[dict[str, str]]:
    result = run(*args, "--csv")
    assert (result.exit_code, result.stderr) == (0, "")
    return list(csv.DictReader(io.StringIO(result.stdout)))


@pytest.mark.usefixtures("three")
@pytest.mark.parametrize("extra", [[], ["--paid"]], ids=["with what would have been", "only what was paid"])
def test_csv_of_sessions(extra: list[str]) -> None:
    found = rows("--all", *extra)
    assert [row["id"] for row in found] == sorted([NEW, SIDE, OLD])
    value = {each["id"]: each for each in figures("--all", *extra)["sessions"]}
    for row in found:
        one = value[row["id"]]
        assert float(row["paid"]) == pytest.approx(one["paid"]["total"])
        assert float(row["paid_input"]) == pytest.approx(one["paid"]["input"])
        assert (row["title"], row["model"], int(row["requests"])) == ("Begin", one["model"], one["requests"])
        assert row["started"] == datetime.fromtimestamp(one["started"], UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        assert (row["lossless_cost"] == "") is bool(extra)


@pytest.mark.usefixtures("three")
def test_csv_of_a_table() -> None:
    found = rows("--all", "--by", "day", "--timezone", "UTC")
    expected = figures("--all", "--by", "day", "--timezone", "UTC")["by"]["day"]
    assert [row["day"] for row in found] == [each["name"] for each in expected]
    assert [float(row["total"]) for row in found] == [each["total"] for each in expected]
    assert [float(row["lossless_saved"]) for row in found] == [
        each["profiles"]["lossless"]["saved"] for each in expected
    ]
    assert [int(row["tokens_read"]) for row in found] == [each["tokens"]["read"] for each in expected]


# --- what is quick ------------------------------------------------------------------------------


@pytest.mark.usefixtures("three")
def test_what_was_paid_needs_no_replay_and_no_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("not for this")

    monkeypatch.setattr(executors, "ProcessPoolExecutor", refuse)
    monkeypatch.setattr("ibidem.report.gather.measure_log", refuse)
    assert run("--all", "--paid", "--jobs", "2", "--by", "day").exit_code == 0


# --- standard input, and packed logs ------------------------------------------------------------


def piped(data: bytes, *args: str) -> Any:
    return CliRunner().invoke(main, ["report", "-", *args], input=data, catch_exceptions=False)


def test_a_log_through_a_pipe() -> None:
    """What it says is all that a file would."""
    result = piped(log(*TWICE))
    assert (result.exit_code, result.stderr) == (0, "")
    assert "lossless would have saved $" in result.stdout
    assert "what it costs" in result.stdout
    value = json.loads(piped(log(*TWICE), "--json").stdout)
    assert [each["path"] for each in value["sessions"]] == ["standard input"]
    assert value["totals"]["requests"] == value["paid"]["requests"] == 4


def test_a_packed_log_through_a_pipe_and_beside_a_file(home: Path) -> None:
    path = put(home.parent / "a.jsonl", log(*TWICE, id="b"))
    result = piped(gzip.compress(log(*TWICE)), str(path), "--json", "--jobs", "1")
    assert [each["path"] for each in json.loads(result.stdout)["sessions"]] == [str(path), "standard input"]


@pytest.mark.parametrize("data", [b"", b"rubbish", b"\n\n"], ids=["nothing", "rubbish", "empty lines"])
def test_a_pipe_without_a_log_is_named(data: bytes) -> None:
    result = piped(data)
    assert result.exit_code == 2
    assert "Not read: standard input: " in result.stdout
    assert "ibidem-" not in result.stdout


def test_packed_logs_are_found_and_read(home: Path) -> None:
    put(home / ".claude/projects/x/a.jsonl.gz", gzip.compress(timed(log(*TWICE), NOW - DAY)))
    assert figures()["paid"]["requests"] == 4


def test_logs_of_several_agents_are_told_apart(home: Path) -> None:
    session(home, NEW, 1)
    put(home / ".codex/sessions/2026/rollout-1.jsonl", CODEX[0].data)
    assert {each["agent"] for each in figures("--all", "--agent", "codex", "--paid")["sessions"]} == {"codex"}
    found = figures("--all", "--paid", "--by", "agent")["by"]["agent"]
    assert sorted(row["name"] for row in found) == ["claude-code", "codex"]
