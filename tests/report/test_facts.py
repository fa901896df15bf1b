"""What logs say by themselves: sessions, tokens and dollars; copies in resumed logs count once."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ibidem.billing.prices import Prices, own_prices
from ibidem.billing.usage import Usage
from ibidem.report.gather import group_logs
from ibidem.report.log_summary import PROXY_LOG, FileFacts, PaidRequest, SessionFacts, paid_requests, read_facts
from ibidem.report.measure import ReportSettings
from ibidem.report.report_cache import ReportCache
from ibidem.report.selection import SessionFilter
from tests.recordings.claude_code import OPUS
from tests.recordings.examples import lines
from tests.report.logs import NOON, alone, put, read, related, timed
from tests.report.test_report import EXAMPLES, TWICE, log


def facts(data: bytes) -> SessionFacts:
    [found] = read_facts("a.jsonl", data).sessions
    return found


def test_a_session_is_told_by_request() -> None:
    found = facts(timed(log("a.py"), NOON, sessionId="0badcafe"))
    start = NOON.timestamp()
    assert (found.path, found.agent, found.format, found.id, found.title) == (
        "a.jsonl",
        "claude-code",
        "anthropic",
        "0badcafe",
        "Begin",
    )
    assert (found.project, found.models, found.asked) == ("/home/me/shop", [OPUS], [0, 0])
    assert found.times == [start + 60, start + 180]
    assert found.counted == [(3, 0, 8997, 0, 9), (3, 9000, 4997, 0, 9)]
    assert found.answers == ["msg_a00000000", "msg_a00000001"]
    assert (found.started, found.last_request_time, found.is_replayable) == (start + 60, start + 180, True)


def test_what_was_paid_is_added_up_by_hand() -> None:
    first, second = paid_requests(facts(log("a.py")), Prices())
    assert first.input == pytest.approx((3 * 5 + 8997 * 6.25) / 1e6)
    assert second.input == pytest.approx((3 * 5 + 9000 * 0.5 + 4997 * 6.25) / 1e6)
    assert first.output == second.output == pytest.approx(9 * 25 / 1e6)
    assert first.usage == Usage(3, 0, 8997, 0, 9)


def test_hours_in_the_cache_and_requests_that_are_long_have_prices_of_their_own() -> None:
    own = own_prices(
        '{"m": {"input": 1, "write": 2, "write_1h": 3, "output": 4, "tiers": [{"from": 100, "output": 40}]}}', "p"
    )
    session = SessionFacts("a", "pi", "anthropic", models=["m"], asked=[0, 0], times=[1.0, None])
    session.counted = [(1, 0, 10, 20, 1_000_000), (101, 0, 0, 0, 1_000_000)]
    session.answers = ["", ""]
    short, long = paid_requests(session, Prices(own))
    assert short.input == pytest.approx((1 + 20 + 60) / 1e6)
    assert short.output == pytest.approx(4.0)
    assert long.output == pytest.approx(40.0)


@pytest.mark.parametrize("usage", ["some", "no"])
def test_a_request_without_usage_is_one_of_which_nothing_is_known(usage: str) -> None:
    found = list(paid_requests(facts(log(*TWICE, usage=usage)), Prices()))
    assert [one.input is None for one in found] == [usage == "no" or bool(n % 2) for n in range(4)]
    assert all((one.usage is None) == (one.input is None) == (one.output is None) for one in found)


def test_everything_can_be_priced_as_one_model() -> None:
    dear, cheap = (
        sum(one.input or 0.0 for one in paid_requests(facts(log(*TWICE)), Prices(model=model)))
        for model in (OPUS, "claude-haiku-4-5")
    )
    assert dear == pytest.approx(5 * cheap)


def test_a_session_of_several_models_is_priced_by_request() -> None:
    rows = [json.loads(line) for line in log("a.py", "b.py").splitlines()]
    answers = [row["message"] for row in rows if row["type"] == "assistant"]
    answers[1]["model"], answers[2]["model"] = "claude-haiku-4-5", ""
    found = facts(lines(*rows))
    assert (found.models, found.asked) == ([OPUS, "claude-haiku-4-5"], [0, 1, -1])
    assert [found.model_of(number) for number in range(3)] == [OPUS, "claude-haiku-4-5", ""]
    assert all(one.input for one in paid_requests(found, Prices()))


@pytest.mark.parametrize("at", [-1e13, -9.9e10, -6.3e10, -1.0, 0.0, 9e10, 1e300, None])
def test_whatever_the_time_there_is_a_price(at: float | None) -> None:
    session = SessionFacts("a", "pi", "anthropic", models=[OPUS], asked=[0], times=[at], counted=[(1, 0, 0, 0, 1)])
    session.answers = [""]
    [found] = paid_requests(session, Prices())
    assert found.input == pytest.approx(5 / 1e6)
    assert session.last_request_time == (at or 0.0)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: f"{example.agent}: {example.name}")
def test_every_log_that_can_be_read_says_something(example: object) -> None:
    data: bytes = example.data  # type: ignore[attr-defined]
    found = read_facts("some.log", data)
    assert (found.unread, found.size) == ([], len(data))
    for session in found.sessions:
        lists = (session.times, session.counted, session.answers, session.asked)
        assert len({len(each) for each in lists}) == 1
        assert len(list(paid_requests(session, Prices()))) == len(session.times) > 0


def test_what_is_no_log_is_named() -> None:
    found = read_facts("notes.json", b'{"a": 1}')
    assert found == FileFacts(unread=found.unread, size=8)
    assert found.unread[0].why == "not a log of an agent that is known here"


def test_facts_that_were_stored_are_the_same_facts(tmp_path: Path) -> None:
    memory = ReportCache(tmp_path, ReportSettings())
    kept = {example.name: read_facts("a", example.data) for example in EXAMPLES}
    memory.store_facts(kept)
    assert memory.find_facts(kept) == kept


# ── copies ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("number", [1, 2, 5], ids=["resumed once", "resumed twice", "resumed five times"])
def test_copies_count_once_in_what_was_paid_and_in_what_would_have_been(tmp_path: Path, number: int) -> None:
    """A chain of sessions, each of which begins with all that was before."""
    logs = {"log0": log(*TWICE)}
    for n in range(1, number + 1):
        logs[f"log{n}"] = log(*TWICE, *(f"{k}.py" for k in range(n)), id=f"x{n}", known=3)
    paths = put(tmp_path, **logs)
    [family] = related(paths)
    paid = [one for each in family.sessions for one in requests(each.session, each.numbers)]
    figures = [session for one in alone(family) for session in one.sessions]
    assert len(paid) == sum(session.requests for session in figures) == 4 + sum(range(2, number + 2))
    recorded = sum(session.recorded.cost for session in figures if session.recorded)
    assert sum(one.input or 0.0 for one in paid) == pytest.approx(recorded)


def requests(session: SessionFacts, numbers: list[int]) -> list[PaidRequest]:
    every = list(paid_requests(session, Prices()))
    return [every[number] for number in numbers]


def test_what_was_paid_by_request_is_what_the_replay_calls_recorded(tmp_path: Path) -> None:
    [family] = related(put(tmp_path, one=log(*TWICE, usage="some", prompts=3)))
    [figures] = [session for one in alone(family) for session in one.sessions]
    paid = [one.input for one in requests(family.sessions[0].session, family.sessions[0].numbers)]
    assert figures.recorded is not None
    assert sum(one or 0.0 for one in paid) == pytest.approx(figures.recorded.cost)
    assert figures.times == family.sessions[0].session.times


# ── the log of our own proxy ────────────────────────────────────────────────────────────────────────────────────────


def exchange(conversation: int, paid: float | None, otherwise: float | None, **fields: object) -> dict[str, object]:
    return {
        **{"id": 1, "at": NOON.timestamp(), "path": "/v1/messages", "outcome": "edited", "status": 200},
        **{"bytes_in": 1, "bytes_out": 1, "took_ms": 1, "format": "anthropic", "model": OPUS},
        **{"conversation": str(conversation), "paid": paid, "would_have_paid": otherwise, **fields},
    }


def test_what_our_own_proxy_logged_is_paid_and_nothing_is_replayed(tmp_path: Path) -> None:
    rows = [exchange(1, 1.0, 3.0), exchange(1, 0.5, 0.5), exchange(2, 2.0, 2.0), exchange(3, None, None, status=500)]
    found = read(put(tmp_path, proxy=lines(*rows)))
    [family] = group_logs(found, SessionFilter())
    assert [each.session.agent for each in family.sessions] == [PROXY_LOG, PROXY_LOG]
    assert not any(each.session.is_replayable for each in family.sessions)
    paid = [one for each in family.sessions for one in requests(each.session, each.numbers)]
    assert [one.input for one in paid] == [1.0, 0.5, 2.0]
    assert [one.otherwise for one in paid] == [3.0, 0.5, 2.0]


@pytest.mark.parametrize(
    "fields",
    [
        {"format": "\x1b[31m", "model": "house-model-7"},
        {"format": None, "model": None},
        {"at": -6.3e10, "model": OPUS},
        {"conversation": None, "started": "never", "title": "\x1b]0;x\x07\n"},
        {"usage": "much", "fresh": 10**30},
    ],
    ids=json.dumps,
)
def test_whatever_such_a_log_holds_is_harmless(fields: dict[str, object]) -> None:
    rows = [exchange(1, 1.0, 3.0) | {"fresh": 5, "output": 7, **fields}, exchange(2, 2.0, 2.0)]
    found = read_facts("proxy.jsonl", lines(*rows))
    paid = [one for session in found.sessions for one in paid_requests(session, Prices())]
    assert [one.input for one in paid] == [1.0, 2.0]
    assert all(session.title.isprintable() for session in found.sessions)
