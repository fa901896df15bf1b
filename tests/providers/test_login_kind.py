"""Requests on a subscription: recognized by their credential, which is not kept, and never called paid."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ibidem.providers.headers import login_kind
from ibidem.proxy.accounting.usage_writer import UsageWriter
from ibidem.testing.prompt_cache import PromptCache
from ibidem.usage_db import UsageDatabase
from tests.proxy.test_claude_session import post
from tests.support.claude_session import KEY_HEADERS, PLAN_HEADERS, session
from tests.support.proxied import Clock, talk, waited_for

TOKEN = PLAN_HEADERS["authorization"].removeprefix("Bearer ")


@pytest.mark.parametrize(
    ("headers", "kind"),
    [
        (KEY_HEADERS, "key"),
        (PLAN_HEADERS, "plan"),
        ({"Authorization": "Bearer sk-ant-oat01-abc"}, "plan"),
        ({"Authorization": "Bearer other", "anthropic-beta": "a, oauth-2025-04-20"}, "plan"),
        ({"x-api-key": "sk-ant-api03-abc", "anthropic-beta": "oauth-2025-04-20"}, "key"),
        ({"Authorization": "Bearer ey.jwt", "ChatGPT-Account-ID": "acc"}, "plan"),
        ({"Authorization": "Bearer sk-proj-abc"}, "key"),
        ({}, "key"),
    ],
)
def test_kind_of_login(headers: dict[str, str], kind: str) -> None:
    assert login_kind(list(headers.items())) == kind


def run(file: Path, *headers: dict[str, str]) -> tuple[dict[str, Any], str, str]:
    """The state, the summary line, and all that the page has, after one session for each set of headers."""
    clock, count = Clock(), 0
    with talk(clock=clock, cache=PromptCache(), gains=UsageWriter(file)) as proxied:
        for one in headers:
            for request in session(turns=1, agents=0, headers=one):
                clock.now += request.after
                post(proxied.proxy.url, request)
                count += 1
                state = proxied.settled(count)
        pages = [state, *(proxied.page(f"conversation/{row['id']}") for row in state["conversations"])]
        line = proxied.service.stats.summary_line
        waited_for(lambda: file.exists() and UsageDatabase(file).total_usage().requests == count)
    return state, line, json.dumps(pages)


def test_session_on_a_subscription_is_worth_something_and_not_paid(tmp_path: Path) -> None:
    file = tmp_path / "gains.sqlite3"
    state, line, pages = run(file, PLAN_HEADERS)
    totals = state["totals"]
    assert all(row["plan"] for row in state["conversations"])
    assert totals["plan"] == {
        name: totals[name] for name in ("requests", "paid", "would_have_paid", "input", "removed")
    }
    assert " on a subscription. Input worth $" in line
    assert "at list prices instead of $" in line
    assert line.endswith("of input tokens saved")
    assert "paid" not in line
    with UsageDatabase(file) as gains:
        total = gains.total_usage()
    assert total.plan_totals.requests == total.requests
    assert total.plan_totals.paid == pytest.approx(totals["paid"])
    assert total.plan_totals.removed == totals["removed"] > 0
    assert not total.pay_per_use_totals
    kept = b"".join(each.read_bytes() for each in tmp_path.iterdir())
    assert TOKEN not in pages
    assert TOKEN.encode() not in kept


def test_key_and_subscription_are_shown_apart(tmp_path: Path) -> None:
    file = tmp_path / "gains.sqlite3"
    state, line, _ = run(file, KEY_HEADERS, PLAN_HEADERS)
    assert state["totals"]["plan"]["requests"] == state["totals"]["requests"] / 2
    assert ". With an API key: input cost $" in line
    assert ". On a subscription: input worth $" in line
    with UsageDatabase(file) as gains:
        total = gains.total_usage()
    assert total.pay_per_use_totals.requests == total.plan_totals.requests
    assert total.pay_per_use_totals.paid + total.plan_totals.paid == pytest.approx(total.paid)
    assert total.pay_per_use_totals.input_tokens + total.plan_totals.input_tokens == total.input_tokens
