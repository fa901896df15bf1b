"""A session in the shape of Claude Code 2.1.326: one conversation each, and the money of a direct run."""

from __future__ import annotations

import http.client
import json
from collections import Counter
from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import pytest

from ibidem.billing.prices import Prices
from ibidem.billing.usage import Usage
from ibidem.proxy.accounting.bill import input_cost
from ibidem.testing.answers import Says
from ibidem.testing.prompt_cache import PromptCache
from ibidem.testing.upstream import Upstream
from tests.support.claude_session import ClientRequest, session
from tests.support.proxied import PATIENCE, Clock, dumped, talk

MAX_ERROR = 0.03
"""How far "instead of" may be from the bill of a direct run."""
CONVERSATIONS = 4
"""Title, main conversation, and two subagents."""


class ScaledCache(PromptCache):
    """A provider whose tokens are smaller than ours, as Claude's are."""

    def __init__(self, scale: float) -> None:
        super().__init__()
        self._scale = scale

    def _unit_tokens(self, name: bytes, value: Any) -> int:
        return round(self._scale * super()._unit_tokens(name, value))


class ProxiedRun(NamedTuple):
    state: dict[str, Any]
    exchanges: list[dict[str, Any]]
    """Of all conversations, in the order of the requests."""
    requests: list[ClientRequest]


def post(url: str, request: ClientRequest) -> Usage:
    """The usage that the provider reports in the stream."""
    address = urlsplit(url)
    connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=PATIENCE)
    try:
        headers = {"content-type": "application/json", **request.headers}
        connection.request("POST", "/v1/messages", dumped(request.body), headers)
        with connection.getresponse() as response:
            assert response.status == 200, response.read()
            lines = response.read().decode().split("\n")
    finally:
        connection.close()
    events = [json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: ")]
    (usage,) = (event["usage"] for event in events if event["type"] == "message_delta")
    written = usage["cache_creation"]
    return Usage(
        fresh=usage["input_tokens"],
        read=usage["cache_read_input_tokens"],
        written=written["ephemeral_5m_input_tokens"],
        written_1h=written["ephemeral_1h_input_tokens"],
    )


def direct_bill(requests: Sequence[ClientRequest], scale: float) -> float:
    clock, total = Clock(), 0.0
    with Upstream(lambda _: Says("ok"), clock=clock.time, strict=True, cache=ScaledCache(scale)) as provider:
        for request in requests:
            clock.now += request.after
            total += input_cost(post(provider.url, request), Prices().of(request.body["model"], "anthropic"))
    return total


def run_proxied(requests: Sequence[ClientRequest], scale: float = 1.0, **settings: Any) -> ProxiedRun:
    clock = Clock()
    with talk(clock=clock, cache=ScaledCache(scale), **settings) as proxied:
        for count, request in enumerate(requests, 1):
            clock.now += request.after
            post(proxied.proxy.url, request)
            state = proxied.settled(count)
        rows = [proxied.page(f"conversation/{row['id']}") for row in state["conversations"]]
        exchanges = [exchange for row in rows for exchange in row["exchanges"]]
    return ProxiedRun(state, sorted(exchanges, key=lambda exchange: int(exchange["id"][1:])), list(requests))


@cache
def revised_session() -> ProxiedRun:
    """The user comes back after the provider's cache expired."""
    return run_proxied(list(session(pause=600.0, lines=200)), profile="recoverable")


@pytest.mark.parametrize("profile", ["lossless", "recoverable"])
def test_session_of_claude_code_has_one_conversation_per_agent(profile: str) -> None:
    requests = list(session(turns=2))
    run = run_proxied(requests, profile=profile)
    sizes = Counter(request.headers.get("x-claude-code-agent-id", request.body["model"]) for request in requests)
    assert sorted(row["requests"] for row in run.state["conversations"]) == sorted(sizes.values())
    assert len(run.state["conversations"]) == CONVERSATIONS
    assert run.state["totals"]["failed_open"] == 0


SCENES = [
    pytest.param({}, id="warm"),
    pytest.param({"flips_is_error": False}, id="without is_error"),
    pytest.param({"ttl": "1h"}, id="cached for an hour"),
    pytest.param({"pause": 600.0}, id="cold when the user speaks"),
    pytest.param({"lines": 300, "turns": 3}, id="large files"),
]


@pytest.mark.slow
@pytest.mark.parametrize("scale", [1.0, 1.6])
@pytest.mark.parametrize("profile", ["lossless", "recoverable"])
@pytest.mark.parametrize("scene", SCENES)
def test_cost_without_ibidem_is_the_bill_of_a_direct_run(scene: dict[str, Any], profile: str, scale: float) -> None:
    requests = list(session(**scene))
    totals = run_proxied(requests, scale, profile=profile).state["totals"]
    bill = direct_bill(requests, scale)
    assert totals["paid"] < 0.75 * bill
    assert totals["would_have_paid"] == pytest.approx(bill, rel=MAX_ERROR)


def test_recoverable_revises_when_the_user_speaks_again() -> None:
    run = revised_session()
    speaks = [
        number
        for number, request in enumerate(run.requests)
        if "x-claude-code-agent-id" not in request.headers and request.after == 600.0
    ]
    revised = [number for number, exchange in enumerate(run.exchanges) if exchange["revision"]]
    assert revised == speaks[1:]  # at the first one there is nothing to revise


def test_new_tool_right_after_a_revision_does_not_stop_revisions() -> None:
    """The provider reads nothing from its cache then, and a direct run would not either."""
    run = revised_session()
    tools = [len(request.body["tools"]) if request.body.get("tools") else 0 for request in run.requests]
    (grown,) = (number for number in range(2, len(tools)) if tools[number] == max(tools) > max(tools[:number]))
    assert run.exchanges[grown - 1]["revision"]
    assert run.exchanges[grown]["read"] == 0
    assert run.exchanges[grown]["would_have_paid"] > run.exchanges[grown]["paid"]
    assert not any(row["stopped"] for row in run.state["conversations"])
