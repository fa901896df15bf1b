"""A conversation on a model that signs thinking is never rejected for good, whatever the proxy forgot."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ibidem.proxy.fallback import BINDING_BETA
from ibidem.store import MemoryStore
from ibidem.testing import Answer, Fails, Seen, Signing
from tests.support.proxied import Clock, talk
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
