"""What was paid and would have been, by day, week, month, model, project, agent and session: every table adds up."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, tzinfo
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ibidem.billing.prices import Prices
from ibidem.billing.usage import Usage
from ibidem.report.aggregate import (
    NOT_TOLD,
    ORDERS,
    By,
    Order,
    ReportRow,
    group_rows,
    local_time,
    period_of,
    sort_rows,
    total_row,
)
from ibidem.report.log_summary import PaidRequest, SessionFacts, paid_requests, read_facts
from ibidem.report.measure import ReportSettings, measure_log
from ibidem.report.session_result import NOTHING_DONE, SessionResult
from ibidem.report.terminal_tables import BYS
from tests.report.logs import DAY, NOON, timed
from tests.report.test_report import TWICE, log

BERLIN, AUCKLAND = ZoneInfo("Europe/Berlin"), ZoneInfo("Pacific/Auckland")


def request(
    at: float | None = 0.0,
    model: str = "claude-opus-4-6",
    cost: float | None = 1.0,
    output: float | None = 0.25,
    name: str = "",
    project: str = "/shop",
    agent: str = "pi",
) -> PaidRequest:
    session = SessionFacts("a.jsonl", agent, "anthropic", name, project=project)
    usage = None if cost is None else Usage(1, 2, 3, 4, 5)
    return PaidRequest(session, 0, at, model, usage, cost, output if cost is not None else None)


# ── periods ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("by", "when", "zone", "expected"),
    [
        pytest.param("day", "2026-05-06T23:30+00:00", UTC, "2026-05-06", id="a day in one zone"),
        pytest.param("day", "2026-05-06T23:30+00:00", BERLIN, "2026-05-07", id="is another one elsewhere"),
        pytest.param("day", "2026-05-06T12:30+00:00", AUCKLAND, "2026-05-07", id="far away earlier still"),
        pytest.param("day", "2026-03-28T22:59+00:00", BERLIN, "2026-03-28", id="the last minute of a day in winter"),
        pytest.param("day", "2026-03-29T21:59+00:00", BERLIN, "2026-03-29", id="the last minute of a short day"),
        pytest.param("day", "2026-03-29T22:00+00:00", BERLIN, "2026-03-30", id="the first minute after a short day"),
        pytest.param("day", "2026-10-25T22:59+00:00", BERLIN, "2026-10-25", id="the last minute of a long day"),
        pytest.param("day", "2026-10-25T23:00+00:00", BERLIN, "2026-10-26", id="the first minute after a long day"),
        pytest.param("week", "2026-05-06T12:00+00:00", UTC, "2026-05-04", id="a week is called by its Monday"),
        pytest.param("week", "2026-05-04T00:00+00:00", UTC, "2026-05-04", id="which belongs to it"),
        pytest.param("week", "2026-05-10T23:59+00:00", UTC, "2026-05-04", id="and so does its Sunday"),
        pytest.param("week", "2026-05-10T23:59+00:00", BERLIN, "2026-05-11", id="which ends earlier elsewhere"),
        pytest.param("week", "2027-01-02T12:00+00:00", UTC, "2026-12-28", id="a week in two years"),
        pytest.param("month", "2026-05-31T23:30+00:00", UTC, "2026-05", id="a month"),
        pytest.param("month", "2026-05-31T23:30+00:00", BERLIN, "2026-06", id="is over earlier elsewhere"),
    ],
)
def test_periods(by: By, when: str, zone: tzinfo, expected: str) -> None:
    assert period_of(by, datetime.fromisoformat(when).timestamp(), zone) == expected


@pytest.mark.parametrize("at", [None, float("nan"), float("inf"), -float("inf"), 1e300, -1e15, 4e11])
@pytest.mark.parametrize("by", ["day", "week", "month"])
def test_a_moment_that_no_calendar_has_is_in_a_row_of_its_own(by: By, at: float | None) -> None:
    assert local_time(at, BERLIN) is None
    assert period_of(by, at, BERLIN) == NOT_TOLD


@given(st.integers(-(5 * 10**10), 2 * 10**11), st.sampled_from([UTC, BERLIN, AUCKLAND, ZoneInfo("Asia/Kathmandu")]))
def test_a_day_is_that_of_the_calendar(at: float, zone: tzinfo) -> None:
    when = datetime.fromtimestamp(at, zone)
    if when.year >= 1950:  # before, clocks were set by the sun
        assert period_of("day", at, zone) == when.date().isoformat()
        assert period_of("week", at, zone) == (when.date() - timedelta(days=when.weekday())).isoformat()


# ── sums ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def measured() -> tuple[list[PaidRequest], list[SessionResult]]:
    """Three sessions of two agents' kinds, over days and with models of their own; one that logs nothing."""
    logs = {
        "one": timed(log(*TWICE, prompts=3), NOON, timedelta(hours=7)),
        "two": timed(log(*TWICE, id="b", model="claude-haiku-4-5", project="/bank"), NOON + 40 * DAY),
        "three": log("a.py", "a.py", id="c", usage="no", model="", project=""),
    }
    paid: list[PaidRequest] = []
    sessions: list[SessionResult] = []
    for name, data in logs.items():
        settings = ReportSettings(("lossless", "recoverable"))
        figures = measure_log(name, data, settings).sessions
        sessions += figures
        for facts in read_facts(name, data).sessions:
            paid += paid_requests(facts, Prices())
    return paid, sessions


@pytest.mark.parametrize("zone", [UTC, AUCKLAND], ids=str)
@pytest.mark.parametrize("by", BYS)
def test_the_rows_of_every_table_add_up(by: By, zone: tzinfo) -> None:
    paid, sessions = measured()
    rows, total = group_rows(by, paid, sessions, zone), total_row(paid, sessions)
    assert total.requests == total.measured == len(paid) > total.counted > 0
    assert len({row.key for row in rows}) == len(rows) > (by != "agent")
    for name in ("requests", "counted", "measured"):
        assert sum(getattr(row, name) for row in rows) == getattr(total, name)
    for name in ("input", "output", "total"):
        assert sum(getattr(row, name) for row in rows) == pytest.approx(getattr(total, name))
    for name in ("fresh", "read", "written", "written_1h", "output"):
        assert sum(getattr(row.tokens, name) for row in rows) == getattr(total.tokens, name)
    for name in (NOTHING_DONE, "lossless", "recoverable"):
        assert sum(row.costs.get(name, 0.0) for row in rows) == pytest.approx(total.costs[name])
        assert sum(row.saved(name) for row in rows) == pytest.approx(total.saved(name))
    assert {key for row in rows for key in row.sessions} == total.sessions


def test_output_is_in_no_saving() -> None:
    paid, sessions = measured()
    dear = [one._replace(output=1000.0) for one in paid]
    before, after = total_row(paid, sessions), total_row(dear, sessions)
    assert after.total > before.total + 1000
    assert after.saved("lossless") == before.saved("lossless") > 0
    assert after.saved_share("lossless") == before.saved_share("lossless")
    assert before.costs[NOTHING_DONE] == pytest.approx(sum(each.baseline.cost for each in sessions))


def test_what_is_paid_is_what_the_provider_counted() -> None:
    row = total_row([request(), request(cost=None), request(cost=0.0, output=0.0)], [])
    assert (row.requests, row.counted, row.input, row.output, row.total) == (3, 2, 1.0, 0.25, 1.25)
    assert row.tokens == Usage(2, 4, 6, 8, 10)
    assert row.sessions == {("a.jsonl", "")}
    assert (row.saved("lossless"), row.saved_share("lossless")) == (0.0, None)


def test_what_was_saved_in_fact_is_told_of_requests_that_know_both() -> None:
    logged = [request()._replace(otherwise=3.0), request(cost=None)._replace(otherwise=9.0), request()]
    row = total_row(logged, [])
    assert (row.logged, row.otherwise) == (1.0, 3.0)


@pytest.mark.parametrize(
    ("by", "names"),
    [
        ("model", ["claude-opus-4-6", "gpt-5", NOT_TOLD]),
        ("project", ["/shop", "/bank", NOT_TOLD]),
        ("agent", ["pi", "codex"]),
        ("day", ["1970-01-01", "1970-01-03", NOT_TOLD]),
    ],
)
def test_rows_are_called(by: By, names: list[str]) -> None:
    paid = [
        request(),
        request(at=2 * 86400.0, model="gpt-5", project="/bank", agent="codex"),
        request(at=None, model="", project=""),
    ]
    assert sorted(row.key[0] for row in group_rows(by, paid, [])) == sorted(names)


def test_sessions_of_one_file_are_rows_of_their_own() -> None:
    found = group_rows("session", [request(name="x"), request(name="y"), request(name="x")], [])
    assert [(row.key, row.requests) for row in found] == [(("a.jsonl", "x"), 2), (("a.jsonl", "y"), 1)]


# ── order ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def row(name: str, first: float, requests: int, **fields: float) -> ReportRow:
    paid, fresh = fields.get("paid", 0.0), int(fields.get("tokens", 0))
    made = ReportRow((name,), requests=requests, input=paid, fresh=fresh, first=first)
    if "saved" in fields:
        made.costs = {NOTHING_DONE: 10.0, "lossless": 10.0 - fields["saved"]}
    return made


ROWS = [
    row("b", 3.0, 1, paid=5.0, tokens=10, saved=2.0),
    row("c", 1.0, 3, paid=9.0, tokens=20, saved=-1.0),
    row("a", 2.0, 2, paid=7.0, tokens=30, saved=0.5),
]


@pytest.mark.parametrize(
    ("order", "names"),
    [("paid", "cab"), ("saved", "bac"), ("requests", "cab"), ("tokens", "acb"), ("name", "abc"), ("time", "cab")],
)
def test_rows_are_sorted_as_asked_for(order: Order, names: str) -> None:
    assert "".join(row.key[0] for row in sort_rows(ROWS, order, "lossless")) == names
    assert order in ORDERS


def test_where_nothing_was_counted_the_dearest_by_replay_is_first() -> None:
    rows = [row("a", 0, 1), row("b", 0, 1, saved=1.0)]
    assert [row.key for row in sort_rows(rows, "paid", "lossless")] == [("b",), ("a",)]


def test_rows_of_an_unknown_time_come_last() -> None:
    rows = group_rows("day", [request(at=None), request(at=5.0)], [])
    assert [row.key[0] for row in sort_rows(rows, "time", "")] == ["1970-01-01", NOT_TOLD]
