"""A conversation on a model that signs thinking is never rejected for good, whatever the proxy forgot."""

from __future__ import annotations

import http.client
import json
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from ibidem.adapters.httpx import Transport
from ibidem.live.fallback import BINDING_BETA
from ibidem.proxy.compact_endpoint import COMPACT_PATH, REJECTED_HEADER
from ibidem.store import MemoryStore
from ibidem.store.store import JOURNAL_START, JournalPage, JournalPosition
from ibidem.testing import Answer, Fails, Seen, Signing, Upstream
from tests.support.proxied import Clock, Talk, talk, waited_for
from tests.support.signed import Agent, history, thinks

CLEARING = {"edits": [{"type": "clear_tool_uses_20250919"}]}
ADAPTIVE: dict[str, Any] = {"thinking": {"type": "adaptive"}}
FORGETFUL = "devboy"
"""A profile that finds nothing to do here: it sends as it came what `lossless` had rewritten."""


class LongAgent(Agent):
    """An agent that talks to several mock providers in turn, which number their calls from 1."""

    def hear(self, content: list[Any]) -> None:
        length = len(self.body["messages"])
        super().hear([{**block, "id": f"toolu_{length}"} if "id" in block else block for block in content])


def thinking_blocks(body: bytes) -> int:
    contents = [message["content"] for message in history(body) if isinstance(message["content"], list)]
    return sum(block["type"] == "thinking" for blocks in contents for block in blocks)


def talk_first(agent: Agent, script: Signing, requests: int = 8) -> None:
    """Send requests through a proxy that rewrites them, and stop it."""
    with talk(script, profile="lossless", store=MemoryStore()) as found:
        assert [agent.ask(found) for _ in range(requests)] == [200] * requests
        assert b"[ibidem " in found.upstream.seen[-1].body


@pytest.mark.parametrize("fields", [{}, ADAPTIVE], ids=["thinking not mentioned", "thinking enabled"])
def test_conversation_continues_although_what_was_sent_is_forgotten(fields: dict[str, Any]) -> None:
    script, agent = Signing(thinks), LongAgent(**fields)
    talk_first(agent, script)
    with talk(script, profile=FORGETFUL, store=MemoryStore()) as found:
        assert [agent.ask(found) for _ in range(6)] == [200] * 6
        assert len(found.upstream.seen) == 7, "one request was sent twice, and later ones continue that way"
        assert thinking_blocks(agent.came[-1]) == 13
        assert thinking_blocks(found.upstream.seen[-1].body) == 5
        assert any(event["kind"] == "thinking" for event in found.state["events"])
        assert found.settled(6)["totals"]["without_thinking"] == 1
        assert b"ibidem_without_thinking_total 1\n" in found.ask("GET", "/ibidem/metrics")[1]


def test_conversation_continues_after_its_store_was_deleted() -> None:
    script, clock = Signing(thinks), Clock()
    agent = LongAgent(outputs=30, lines=90)
    statuses = []
    for _ in range(2):  # the second proxy finds an empty store
        with talk(script, profile="recoverable", clock=clock, store=MemoryStore()) as found:
            for turn in range(12):
                clock.now += 4000 if turn in (5, 9) else 10
                statuses.append(agent.ask(found))
                found.settled(turn + 1)
            assert len(found.upstream.seen) <= 12 + 6
    assert statuses == [200] * 24


@pytest.mark.parametrize("profile", ["lossless", "recoverable"])
def test_client_that_switches_clearing_on_gets_no_rejection(profile: str) -> None:
    script, agent = Signing(thinks), Agent()
    with talk(script, profile=profile) as found:
        assert [agent.ask(found) for _ in range(8)] == [200] * 8
        agent.body["context_management"] = CLEARING
        assert [agent.ask(found) for _ in range(4)] == [200] * 4


def test_provider_is_asked_to_drop_thinking_of_an_active_tool_loop() -> None:
    script, agent = Signing(thinks), LongAgent(**ADAPTIVE)
    talk_first(agent, script)
    with talk(script, profile=FORGETFUL, store=MemoryStore()) as found:
        assert agent.ask(found, anthropic_beta="something-else") == 200
        first, last = found.upstream.seen
        assert json.loads(last.body)["thinking"] == {
            "type": "adaptive",
            "block_binding": {"prefix_mismatch_behavior": "drop_block"},
        }
        assert first.header("anthropic-beta") == "something-else"
        assert last.header("anthropic-beta") == f"something-else,{BINDING_BETA}"


def test_client_gets_the_first_rejection_if_the_provider_does_not_know_the_option() -> None:
    script, agent = Signing(thinks), LongAgent(**ADAPTIVE)
    talk_first(agent, script)

    def refuses_option(seen: Seen) -> Answer:
        if "block_binding" in seen.json["thinking"]:
            return Fails(400, message="thinking.block_binding: unknown")
        return script(seen)

    with talk(refuses_option, profile=FORGETFUL, store=MemoryStore()) as found:
        status, answer = found.send("anthropic", agent.request)
        assert status == 400
        assert b"another beginning" in answer
        assert len(found.upstream.seen) == 2


def test_redacted_thinking_alone_is_dropped_too() -> None:
    agent = LongAgent(**ADAPTIVE)
    talk_first(agent, Signing(thinks))
    for message in agent.body["messages"][1::2]:
        message["content"][0] = {"type": "redacted_thinking", "data": message["content"][0]["signature"]}

    def script(seen: Seen) -> Answer:
        drops = "block_binding" in seen.json["thinking"]
        return thinks(seen) if drops else Fails(400, message="thinking blocks do not fit")

    with talk(script, profile=FORGETFUL, store=MemoryStore()) as found:
        assert agent.ask(found) == 200
        assert len(found.upstream.seen) == 2


def test_thinking_is_removed_if_the_client_has_disabled_it() -> None:
    """The option is a part of enabled thinking. A provider that does not think demands no thinking in a tool loop."""
    script, agent = Signing(thinks), LongAgent(**ADAPTIVE)
    talk_first(agent, script)
    agent.body["thinking"] = {"type": "disabled"}
    with talk(script, profile=FORGETFUL, store=MemoryStore()) as found:
        assert agent.ask(found) == 200
        last = found.upstream.seen[-1]
        assert (json.loads(last.body)["thinking"], thinking_blocks(last.body)) == ({"type": "disabled"}, 0)


@pytest.mark.parametrize("betas", [{}, {"anthropic_beta": ["something-else"]}])
def test_beta_of_the_option_is_in_the_body_on_bedrock(betas: dict[str, Any]) -> None:
    script, agent = Signing(thinks), LongAgent(**ADAPTIVE)
    talk_first(agent, script)
    agent.body |= {"anthropic_version": "bedrock-2023-05-31", **betas}

    def bedrock(seen: Seen) -> Answer:
        if BINDING_BETA in seen.json.get("anthropic_beta", ()):
            return thinks(seen)
        return script(seen)

    with talk(bedrock, profile=FORGETFUL, store=MemoryStore(), strict=False) as found:
        assert agent.ask(found) == 200
        last = found.upstream.seen[-1]
        assert json.loads(last.body)["anthropic_beta"] == [*betas.get("anthropic_beta", ()), BINDING_BETA]
        assert last.header("anthropic-beta") is None


def test_rejection_for_another_reason_is_not_retried() -> None:
    agent = Agent()

    def script(seen: Seen) -> Answer:
        return Fails(400, message="max_tokens: too small") if len(seen.json["messages"]) == 5 else thinks(seen)

    with talk(script) as found:
        assert [agent.ask(found) for _ in range(3)] == [200, 200, 400]
        assert len(found.upstream.seen) == 3


def test_at_most_four_bodies_are_sent_and_the_client_gets_the_first_rejection() -> None:
    agent = Agent()
    rejected: list[bytes] = []

    def script(seen: Seen) -> Answer:
        if len(seen.json["messages"]) < 13:
            return thinks(seen)
        rejected.append(seen.body)
        return Fails(400, message=f"thinking: rejection {len(rejected)}")

    with talk(script) as found:
        assert [agent.ask(found) for _ in range(6)] == [200] * 6
        status, answer = found.send("anthropic", agent.request)
        assert status == 400
        assert b"rejection 1" in answer
        assert 2 < len(rejected) <= 4
        assert len(set(rejected)) == len(rejected)
        assert thinking_blocks(rejected[-1]) == 0


class TwoReplicas:
    """An agent whose requests go to two proxies on one store in turn. Both are paused after some rewritten requests."""

    def __init__(self, stack: ExitStack, script: Callable[[Seen], Answer], *stores: MemoryStore) -> None:
        self.agent = LongAgent()
        self.proxies = [stack.enter_context(talk(script, profile="lossless", store=store)) for store in stores]
        assert self.ask(8) == [200] * 8
        assert any(b"[ibidem " in seen.body for each in self.proxies for seen in each.upstream.seen)
        for each in self.proxies:
            assert each.ask("POST", "/ibidem/api/off", b'{"all": true}')[0] == 200
        assert self.ask(4) == [200] * 4

    def ask(self, requests: int) -> list[int]:
        return [self._ask(self.proxies[number % 2]) for number in range(requests)]

    def _ask(self, proxy: Talk) -> int:
        status = self.agent.ask(proxy)
        waited_for(lambda: not proxy.service._background)
        return status

    @property
    def sent(self) -> int:
        return sum(len(each.upstream.seen) for each in self.proxies)

    @property
    def without_thinking(self) -> int:
        return sum(each.state["totals"]["without_thinking"] for each in self.proxies)


def test_paused_conversation_continues_without_the_thinking_that_another_replica_dropped() -> None:
    signing, store, rejects = Signing(thinks), MemoryStore(), False

    def script(seen: Seen) -> Answer:
        if rejects and thinking_blocks(seen.body):
            return Fails(400, message="thinking blocks do not fit")
        return signing(seen)

    with ExitStack() as stack:
        found = TwoReplicas(stack, script, store, store)
        rejects = True
        assert found.ask(1) == [200]
        rejects = False
        found.proxies.reverse()
        sent = found.sent
        assert found.ask(8) == [200] * 8
        assert (found.without_thinking, found.sent - sent) == (1, 8)


class StaleStore(MemoryStore):
    """Another connection to a store. A read may miss what was written last."""

    def __init__(self, store: MemoryStore) -> None:
        super().__init__()
        self._shared, self.misses = store, 0

    def notes(self, session: str, since: JournalPosition = JOURNAL_START) -> JournalPage:
        if self.misses:
            self.misses -= 1
            return JournalPage([], since)
        return self._shared.notes(session, since)

    def note(self, session: str, rows: Sequence[bytes], since: JournalPosition) -> JournalPage:
        return self._shared.note(session, rows, since)


def test_notes_that_come_late_are_read_before_thinking_is_dropped() -> None:
    """A replica saves its notes after the response. Another replica may get the next request before that."""
    store = MemoryStore()
    late = StaleStore(store)
    with ExitStack() as stack:
        found = TwoReplicas(stack, Signing(thinks), store, late)
        assert found.ask(1) == [200]
        late.misses, sent = 1, found.sent
        found.proxies.reverse()
        assert found.ask(5) == [200] * 5
        assert late.misses == 0
        assert (found.without_thinking, found.sent - sent) == (0, 6), "one request was rejected once"


# ── clients that send requests themselves ───────────────────────────────────────────────────────────────────────────


class PostingAgent(LongAgent):
    """An agent that posts its request to the compact endpoint, and sends what comes back to its provider."""

    def post(self, found: Talk, rejections: int = 0) -> tuple[int, bytes]:
        named = {REJECTED_HEADER: str(rejections)} if rejections else {}
        status, body = found.ask("POST", COMPACT_PATH, self.request, x_ibidem_format="anthropic", **named)
        assert status == 200
        upstream = urlsplit(found.upstream.url)
        connection = http.client.HTTPConnection(upstream.hostname or "", upstream.port, timeout=60)
        try:
            headers = {"content-type": "application/json", "x-api-key": "k", "anthropic-beta": BINDING_BETA}
            connection.request("POST", "/v1/messages", body, headers)
            with connection.getresponse() as response:
                return response.status, response.read()
        finally:
            connection.close()

    def step(self, found: Talk) -> int:
        """Number of bodies until the provider accepted one."""
        for rejections in range(3):
            status, content = self.post(found, rejections)
            if status == 200:
                self.hear(json.loads(content)["content"])
                return rejections + 1
        raise AssertionError("every body was rejected")


@pytest.mark.parametrize("fields", [{}, ADAPTIVE], ids=["thinking not mentioned", "thinking enabled"])
def test_client_of_the_compact_endpoint_gets_other_bodies(fields: dict[str, Any]) -> None:
    script, agent = Signing(thinks), PostingAgent(**fields)
    with talk(script, profile="lossless", store=MemoryStore()) as found:
        assert [agent.step(found) for _ in range(8)] == [1] * 8
        assert b"[ibidem " in found.upstream.seen[-1].body
    with talk(script, profile=FORGETFUL, store=MemoryStore()) as found:
        bodies = [agent.step(found) for _ in range(6)]
    assert bodies == [3, 1, 1, 1, 1, 1], "later requests continue without that thinking"


def test_transport_of_a_client_goes_down_the_same_ladder() -> None:
    script, agent = Signing(thinks), LongAgent(**ADAPTIVE)
    talk_first(agent, script)
    with Upstream(script) as upstream, httpx.Client(transport=Transport(FORGETFUL)) as client:
        for _ in range(6):
            response = client.post(
                f"{upstream.url}/v1/messages", content=agent.request, headers={"content-type": "application/json"}
            )
            assert response.status_code == 200
            agent.hear(response.json()["content"])
    assert len(upstream.seen) == 7
    assert thinking_blocks(upstream.seen[-1].body) == 5
