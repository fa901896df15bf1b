"""What a proxy keeps of its requests for later, what its page shows of that, and what is said at the end."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from ibidem.billing.prices import Prices
from ibidem.live.types import SYSTEM_CLOCK
from ibidem.live.types import Clock as ProxyClock
from ibidem.proxy.accounting.exchange_rows import ExchangeRow
from ibidem.proxy.accounting.summary_line import (
    NO_COST,
    InputCost,
    SummaryLine,
    format_dollars,
    format_reduction,
    format_summary,
)
from ibidem.proxy.accounting.usage_writer import UsageWriter
from ibidem.testing.answers import Answer, Fails, Says
from ibidem.testing.requests_seen import Seen
from ibidem.usage_db import UsageDatabase, UsageTotals
from tests.support.proxied import PATHS, Clock, Talk, dumped, growing, talk, waited_for

FORMATS = ("anthropic", "openai-chat", "openai-responses", "gemini")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "gains.sqlite3"


@contextmanager
def keeping(file: Path, project: str = "", clock: ProxyClock = SYSTEM_CLOCK, **more: Any) -> Iterator[Talk]:
    """When this is over, all is written."""
    with talk(gains=UsageWriter(file, project, clock.time), clock=clock, **more) as found:
        yield found


def total(file: Path) -> UsageTotals:
    with UsageDatabase(file) as found:
        return found.total_usage()


@pytest.mark.parametrize("format", FORMATS)
def test_what_is_kept_is_what_the_page_showed(file: Path, format: str) -> None:
    bodies = list(growing(format, 6))
    with keeping(file, "/src/app", clock=Clock()) as found:
        for body in bodies:
            assert found.send(format, body, user_agent="claude-cli/2.1 (x)")[0] == 200
        totals = found.settled(len(bodies))["totals"]
    with UsageDatabase(file) as kept:
        [(model, whole)] = kept.totals_by_name("model").items()
        assert [*kept.totals_by_name("project")] == ["/src/app"]
        assert [*kept.totals_by_name("client")] == ["claude-cli/2.1"]
        assert kept.session_totals("any") is None
    assert (whole.requests, whole.conversations) == (len(bodies), 1)
    assert whole.rewritten == totals["rewritten"] > 0
    assert whole.paid == pytest.approx(totals["paid"])
    assert whole.would_have_paid == pytest.approx(totals["would_have_paid"])
    assert (whole.read, whole.written) == (totals["read"], totals["written"])
    assert whole.output_paid == pytest.approx(whole.output * Prices().of(model, format).rates(1).output)
    assert whole.output > 0


@pytest.mark.parametrize("header", ["x-claude-code-session-id", "session_id", "session-id"])
def test_a_session_is_found_by_what_its_client_calls_it(file: Path, header: str) -> None:
    """Claude Code, and Codex of two ages."""
    with keeping(file) as found:
        for name in ("one", "two"):
            for body in growing("anthropic", 3, first=name):
                found.ask("POST", PATHS["anthropic"], dumped(body), **{header.replace("-", "_"): name})
        found.settled(8)
    with UsageDatabase(file) as kept:
        sums = [kept.session_totals(name) for name in ("one", "two", "three")]
    assert [each and (each.requests, each.conversations) for each in sums] == [(4, 1), (4, 1), None]


def test_only_what_asks_a_model_is_kept(file: Path) -> None:
    body = dumped(next(growing("anthropic", 1)))
    with keeping(file, strict=False) as found:
        found.send("anthropic", body)
        found.ask("POST", "/v1/messages/count_tokens", body)
        found.ask("GET", "/v1/models")
        found.ask("POST", "/api/event_logging/batch", b"{}")
        found.ask("GET", "/ibidem/health")
        found.send("anthropic", body, x_amz_date="20260101T000000Z")  # signed: nothing in it can be changed
        found.settled(5)
        summary = found.proxy.stop()
    kept = total(file)
    assert (kept.requests, kept.unpriced) == (2, 1)
    assert summary.line().startswith("2 requests. Input cost $0.0")


def test_what_is_observed_is_marked(file: Path) -> None:
    bodies = list(growing("anthropic", 6, marks=True))
    with keeping(file, observe=True, clock=Clock()) as found:
        for body in bodies:
            found.send("anthropic", body)
        totals = found.settled(len(bodies))["totals"]
        line = found.proxy.stop().line()
    kept = total(file)
    assert (kept.observed, kept.rewritten, kept.saved_dollars) == (len(bodies), 0, 0.0)
    assert kept.could_save == pytest.approx(totals["paid"] - totals["would_have_paid"])
    assert "; with Ibidem it would have been $0.0" in line
    assert line.endswith("% less")


def test_refusals_and_failures_are_kept(file: Path) -> None:
    def script(seen: Seen) -> Answer:
        return Fails(400) if b"[ibidem " in seen.body else Says("ok")

    bodies = list(growing("anthropic", 6))
    with keeping(file, script=script) as found:
        for body in bodies:
            assert found.send("anthropic", body)[0] == 200
        totals = found.settled(len(bodies))["totals"]
    kept = total(file)
    assert kept.requests == len(bodies)
    assert kept.refusals == totals["refused"] > 0
    assert kept.failures == totals["failed_open"] > 0


def test_no_text_is_kept(file: Path) -> None:
    bodies = list(growing("anthropic", 6, first="a secret plan"))
    with keeping(file) as found:
        for body in bodies:
            found.send("anthropic", body, x_api_key="sk-hidden")
        found.settled(len(bodies))
        beside = file.with_name(f"{file.name}-wal")
        data = (beside.read_bytes() if beside.exists() else b"") + file.read_bytes() if file.exists() else b""
    data += file.read_bytes()
    for text in (b"secret", b"sk-hidden", b"buffer", b"handler", b"I look at it"):
        assert text not in data


@pytest.mark.parametrize("what", ["damaged", "a folder"])
def test_a_file_that_cannot_be_used_disturbs_no_exchange(file: Path, what: str) -> None:
    if what == "a folder":
        file.mkdir()
    else:
        file.write_bytes(b"this is no database, however long it is " * 99)
    with keeping(file) as found:
        for body in growing("anthropic", 4):
            assert found.send("anthropic", body)[0] == 200
        waited_for(lambda: found.state["ledger"]["trouble"])
        assert found.page("days")["trouble"].startswith(str(file))
        assert found.state["events"] == []
        line = found.proxy.stop().line()
    assert line.startswith("5 requests. Input cost $")


def test_the_page_has_days_of_proxies_before_this_one(file: Path) -> None:
    body = dumped(next(growing("anthropic", 1)))
    clock = Clock()
    today, before = (f"{datetime.fromtimestamp(clock.now - days * 86400):%Y-%m-%d}" for days in (0, 3))
    for days in (30, 3, 0):
        with keeping(file, clock=Clock(clock.now - days * 86400)) as found:
            found.send("anthropic", body)
            found.settled(1)
    with keeping(file, clock=clock) as found:
        assert found.state["totals"]["requests"] == 0
        page = found.page("days")
    assert [(each["day"], each["requests"]) for each in page["days"]] == [(today, 1), (before, 1)]
    assert page["all"]["requests"] == 3
    assert page["all"]["paid"] == pytest.approx(sum(each["paid"] for each in page["days"]) * 1.5)
    assert "make it work" not in json.dumps(page)


def test_without_a_file_there_are_no_days() -> None:
    with talk() as found:
        assert found.page("days") == {"days": [], "all": None, "trouble": ""}
        assert found.state["ledger"] == {"kept": False, "trouble": ""}


@pytest.mark.skipif(os.name != "posix", reason="modes of another kind")
def test_the_file_is_for_its_owner_alone_while_it_is_written(file: Path) -> None:
    with keeping(file) as found:
        for body in growing("anthropic", 3):
            found.send("anthropic", body)
        waited_for(lambda: file.exists() and total(file).requests == 4)
        assert {each.stat().st_mode & 0o777 for each in file.parent.iterdir()} == {0o600}


# --- what is said at the end --------------------------------------------------------------------------------------


def said(paid: float, other: float, *rows: tuple[str, str, int], observe: bool = False) -> str:
    """`rows` are kinds, outcomes and statuses."""
    closing = SummaryLine(observe)
    for kind, outcome, status in rows:
        closing.count_exchange(ExchangeRow("e1", 0.0, "/", outcome, kind=kind, status=status))
    return closing.format_line(InputCost(paid, other))


REWRITTEN, UNCHANGED = ("model", "rewritten", 200), ("model", "unchanged", 200)
FAILED, SIGNED, COUNT = ("model", "failed open", 200), ("signed", "passed", 200), ("count", "passed", 200)
ENDS = [
    pytest.param(
        (0.0382, 0.0441, REWRITTEN, COUNT),
        "1 request. Input cost $0.0382 instead of $0.0441 (13% less; output not included)",
    ),
    pytest.param(
        (1.204, 1.2101, REWRITTEN), "1 request. Input cost $1.2040 instead of $1.2101 (0.5% less; output not included)"
    ),
    pytest.param(
        (123.4, 200.0, REWRITTEN), "1 request. Input cost $123.40 instead of $200.00 (38% less; output not included)"
    ),
    pytest.param(
        (0.02, 0.01, REWRITTEN), "1 request. Input cost $0.0200 instead of $0.0100 (100% more; output not included)"
    ),
    pytest.param((0.5, 0.5, REWRITTEN), "1 request. Input cost $0.5000 (output not included), nothing saved"),
    pytest.param(
        (0.5, 0.5, UNCHANGED, UNCHANGED, FAILED),
        "3 requests. Input cost $0.5000 (output not included), nothing saved: nothing in them had been sent before",
    ),
    pytest.param(
        (0.5, 0.5, FAILED),
        "1 request. Input cost $0.5000 (output not included), nothing saved: it could not be rewritten",
    ),
    pytest.param(
        (0.5, 0.5, ("model", "off", 200)),
        "1 request. Input cost $0.5000 (output not included), nothing saved: rewriting was paused",
    ),
    pytest.param(
        (0.0, 0.0, SIGNED, SIGNED),
        "2 requests, nothing saved: the client signs them, so they cannot be changed",
    ),
    pytest.param(
        (0.0, 0.0, ("model", "unchanged", 401), ("model", "unchanged", 401)),
        "2 requests, no cost: all responses were errors (401)",
    ),
    pytest.param((0.0, 0.0, ("model", "unchanged", 0)), "1 request, no cost: no response arrived"),
    pytest.param(
        (0.0, 0.0, COUNT, ("other", "passed", 404)),
        "no model calls in 2 requests (token counts, model lists, or a format that Ibidem does not know)",
    ),
    pytest.param((0.0, 0.0), "no requests seen"),
]


@pytest.mark.parametrize(("found", "line"), ENDS)
def test_what_is_said_at_the_end(found: Any, line: str) -> None:
    assert said(*found) == line


def test_summary_says_that_thinking_was_dropped_and_what_to_do() -> None:
    closing = SummaryLine(observe=False)
    closing.count_exchange(ExchangeRow("e1", 0.0, "/", "failed open", kind="model", status=200))
    line = format_summary(closing, {"paid": 1.0, "would_have_paid": 1.0, "input": 9, "without_thinking": 2})
    assert "; 2 requests sent without earlier thinking, because the provider rejected it: " in line
    assert line.endswith("A new conversation keeps its thinking")


def test_what_is_said_after_observing() -> None:
    observed = ("model", "observed", 200)
    assert said(1.0, 0.75, observed, observe=True) == (
        "1 request. Input cost $1.0000 (output not included); with Ibidem it would have been $0.7500, 25% less"
    )
    assert said(1.0, 1.0, observed, observe=True).endswith("; with Ibidem it would have been the same")


PLAN = InputCost(0.5, 1.0, 6000, 2000)
ON_A_PLAN = "worth $0.5000 at list prices instead of $1.0000 (50% less; output not included)"


@pytest.mark.parametrize(
    ("key", "plan", "line"),
    [
        (NO_COST, PLAN, f"1 request on a subscription. Input {ON_A_PLAN}; 25.0% of input tokens saved"),
        (
            InputCost(0.2, 0.4, 100, 100),
            PLAN,
            "1 request. With an API key: input cost $0.2000 instead of $0.4000 (50% less; output not included). "
            f"On a subscription: input {ON_A_PLAN}; 25.0% of input tokens saved",
        ),
        (
            NO_COST,
            InputCost(0.5, 0.5, 6000, 0),
            "1 request on a subscription. Input worth $0.5000 at list prices (output not included), nothing saved",
        ),
    ],
)
def test_summary_of_requests_on_a_subscription(key: InputCost, plan: InputCost, line: str) -> None:
    closing = SummaryLine(observe=False)
    closing.count_exchange(ExchangeRow("e1", 0.0, "/", "rewritten", kind="model", status=200))
    assert closing.format_line(key, plan) == line
    assert "paid" not in line


def test_what_differs_looks_different() -> None:
    for paid, other in ((0.01, 0.0101), (0.999, 1.0), (9.0, 9.01), (50.0, 50.1)):
        assert format_dollars(paid) != format_dollars(other)
        assert not format_reduction(paid, other).startswith("0 ")
