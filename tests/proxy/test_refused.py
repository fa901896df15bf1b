"""A rewritten request that its provider refuses is sent once more without new edits, and then as it came."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import ibidem
from ibidem.providers import rejections
from ibidem.store import MemoryStore, SqliteStore
from ibidem.testing import Answer, Fails, Seen, Signing, Slow
from ibidem.wire.content_encoding import encode_body
from tests.support.evict import EAGER_PROFILE
from tests.support.proxied import Clock, Talk, talk, waited_for
from tests.support.signed import Agent, history, thinks

SECRET = "with a secret of the client in it"


class Choosy:
    """Refuses what it is told to, and counts that."""

    def __init__(self, refuses: Callable[[list[Any]], bool], status: int = 400) -> None:
        self.refuses = refuses
        self.status = status
        self.refused: list[bytes] = []

    def __call__(self, seen: Seen) -> Answer:
        if self.refuses(seen.json["messages"]):
            self.refused.append(seen.text)
            return Fails(self.status, message=SECRET)
        return thinks(seen)


def marked(messages: list[Any], first: int = 0) -> bool:
    """A marker of ours stands in one of the messages."""
    return "[ibidem " in json.dumps(messages[first:])


def newest_marked(messages: list[Any]) -> bool:
    return marked(messages, len(messages) - 1)


def totals(found: Talk) -> tuple[int, int]:
    state = found.state["totals"]
    return state["refused"], state["resent"]


def test_a_revision_that_is_refused_is_undone_and_nobody_notices() -> None:
    """The provider signs thinking against what it was sent, which we are not told: only its refusal tells."""
    script, clock, store = Signing(thinks), Clock(), MemoryStore()
    agent = Agent(outputs=30, lines=90)
    with talk(script, profile=EAGER_PROFILE, clock=clock, store=store) as found:
        for turn in range(20):
            clock.now += 4000 if turn in (9, 14) else 10
            assert agent.ask(found) == 200, turn
            found.settled(turn + 1)
        assert script.refused == 1, "it is not tried again"
        assert totals(found) == (1, 1)
        state = found.state
        assert not state["totals"]["breaks"]
        assert state["failures"] == [{"reason": "refused by the provider: invalid_request_error", "count": 1}]
        assert state["conversations"][0]["breaks"] == 0
        assert ibidem.expand(found.upstream.seen[-1].body, store=store) == agent.came[-1]


@pytest.mark.parametrize("status", [400, 422])
@pytest.mark.parametrize("profile", ["lossless", "recoverable"])
def test_what_is_new_goes_as_it_came_and_stays_so(profile: str, status: int) -> None:
    choosy, agent = Choosy(lambda messages: len(messages) == 13 and newest_marked(messages), status), Agent()
    with talk(choosy, profile=profile) as found:
        for _ in range(12):
            assert agent.ask(found) == 200
        found.settled(12)
        first, second = found.upstream.seen[6:8]
        assert len(choosy.refused) == 1
        before = history(found.upstream.seen[5].body)
        assert history(second.body) == [*before, *history(agent.came[6])[len(before) :]]
        assert len(second.body) > len(first.body)
        for seen in found.upstream.seen[8:]:
            assert history(seen.body)[:13] == history(second.body)
        assert marked(history(found.upstream.seen[-1].body), 13), "what comes later is rewritten again"
        assert totals(found) == (1, 1)


def test_where_that_is_refused_too_the_request_goes_as_it_came() -> None:
    choosy, agent = Choosy(lambda messages: len(messages) == 13 and marked(messages)), Agent()
    with talk(choosy) as found:
        for _ in range(12):
            assert agent.ask(found) == 200
        assert len(choosy.refused) == 2
        assert found.upstream.seen[8].body == agent.came[6]
        for seen in found.upstream.seen[9:]:
            assert history(seen.body)[:13] == history(agent.came[6])
        assert marked(history(found.upstream.seen[-1].body), 13)
        assert found.settled(12)["totals"]["refused"] == 1


def test_after_the_second_refusal_nothing_new_is_rewritten() -> None:
    choosy, agent = Choosy(newest_marked), Agent()
    with talk(choosy) as found:
        for _ in range(14):
            assert agent.ask(found) == 200
        assert len(choosy.refused) == 2
        assert totals(found) == (2, 2)
        assert found.settled(14)["totals"]["requests"] == 14


def test_the_client_gets_the_first_refusal() -> None:
    choosy, agent = Choosy(lambda messages: len(messages) >= 13), Agent()
    with talk(choosy) as found:
        for _ in range(6):
            assert agent.ask(found) == 200
        assert agent.ask(found) == 400
        assert [len(history(body)) for body in choosy.refused] == [13, 13, 13]
        assert choosy.refused[-1] == agent.came[-1]
        assert totals(found) == (1, 0)


@pytest.mark.parametrize("message", ["prompt is too long: 9 tokens > 8", "Your credit balance is too low"])
def test_what_is_refused_for_another_reason_is_not_sent_again(message: str) -> None:
    agent = Agent()

    def script(seen: Seen) -> Answer:
        return Fails(400, message=message) if len(seen.json["messages"]) == 13 else thinks(seen)

    with talk(script) as found:
        for _ in range(6):
            agent.ask(found)
        assert agent.ask(found) == 400
        assert len(found.upstream.seen) == 7
        assert totals(found) == (0, 0)


@pytest.mark.parametrize("encoding", ["gzip", "zstd"])
def test_a_refusal_that_unpacks_to_much_is_not_read(encoding: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its 60 KB would be 60 MB of JSON, read while everybody waits."""
    body = encode_body(b"[" + b"[]," * 20_000_000 + b"[]]", encoding)
    refusal = rejections.Rejection(400, "", [("Content-Encoding", encoding)], bytearray(body))
    assert len(body) < rejections.MAX_HELD_BYTES
    read: list[int] = []
    monkeypatch.setattr("ibidem.providers.rejections.json.loads", lambda data: read.append(len(data)))
    assert (refusal.error_kind, read) == ("unknown", [])


def test_who_does_not_want_that_gets_every_refusal() -> None:
    choosy, agent = Choosy(newest_marked), Agent()
    with talk(choosy, resend=False) as found:
        statuses = [agent.ask(found) for _ in range(8)]
        assert statuses.count(400) == len(choosy.refused) > 1
        assert len(found.upstream.seen) == 8
        assert totals(found) == (0, 0)


def test_a_stream_begins_when_it_is_taken() -> None:
    """Nothing of a refusal reaches who reads a stream, and all events of what is taken do."""
    choosy, agent = Choosy(lambda messages: len(messages) == 13 and marked(messages)), Agent(stream=True)

    def script(seen: Seen) -> Answer:
        return Slow(choosy(seen), wait=0.01, chunk_delay=0.001)

    with talk(script) as found:
        for turn in range(9):
            agent.came.append(agent.request)
            status, answer = found.send("anthropic", agent.request)
            assert status == 200
            theirs = found.upstream.seen[-1].answer.partition(b"\r\n\r\n")[2]
            events = [line for line in answer.split(b"\n") if line.startswith(b"data: ")]
            assert all(event in theirs for event in events)
            assert b"message_stop" in events[-1], turn
            agent.hear(_spoken(events))
        assert len(choosy.refused) == 2
        state = found.settled(9)
        assert state["totals"]["unpriced"] == 0
        assert totals(found) == (1, 1)


def _spoken(events: list[bytes]) -> list[Any]:
    """The content that a client makes of events."""
    blocks: list[Any] = []
    for event in (json.loads(line.removeprefix(b"data: ")) for line in events):
        if event["type"] == "content_block_start":
            blocks.append({**event["content_block"], "json": ""})
        elif event["type"] == "content_block_delta":
            delta = event["delta"]
            for key, name in (
                ("text", "text"),
                ("thinking", "thinking"),
                ("signature", "signature"),
                ("partial_json", "json"),
            ):
                if key in delta:
                    blocks[-1][name] = blocks[-1].get(name, "") + delta[key]
    for block in blocks:
        written = block.pop("json")
        if block["type"] == "tool_use":
            block["input"] = json.loads(written)
    return blocks


@pytest.mark.parametrize("profile", ["lossless", "recoverable"])
def test_a_restart_and_another_replica_know_of_it(profile: str, tmp_path: Path) -> None:
    """A provider that signs, and refuses a marker twice: whoever forgot that would be refused again."""
    signing = Signing(thinks)
    refused = []

    def script(seen: Seen) -> Answer:
        messages = seen.json["messages"]
        if len(messages) in (11, 17) and newest_marked(messages):
            refused.append(len(messages))
            return Fails(400)
        return signing(seen)

    agent = Agent()
    for _ in range(4):
        with ExitStack() as stack:
            stores = [stack.enter_context(SqliteStore(tmp_path / "store.sqlite")) for _ in range(2)]
            options: Any = {"profile": profile, "strict": False}
            replicas = [stack.enter_context(talk(script, store=store, **options)) for store in stores]
            for replica in (replicas[0], replicas[1], replicas[0]):
                assert agent.ask(replica) == 200
                waited_for(partial(_noted, replica))
    assert refused == [11, 17]
    assert signing.refused == 0


def _noted(found: Talk) -> bool:
    known = list(found.service.conversations._all.values())
    return not found.service._background and all(not each.inbox for each in known)


def test_it_is_logged_by_its_type_and_never_by_its_words(caplog: pytest.LogCaptureFixture) -> None:
    choosy, agent = Choosy(newest_marked), Agent()
    with caplog.at_level(logging.DEBUG, "ibidem"), talk(choosy) as found:
        for _ in range(8):
            agent.ask(found)
        told = json.dumps(found.settled(8))
        metrics = found.ask("GET", "/ibidem/metrics")[1].decode()
    assert "the provider rejected a request: invalid_request_error" in caplog.text
    assert SECRET not in caplog.text + told + metrics
    assert "ibidem_refused_total 2" in metrics
    assert "ibidem_resent_total 2" in metrics
    assert [event["kind"] for event in json.loads(told)["events"]] == ["failure"]


def test_only_what_was_taken_is_billed() -> None:
    """The same conversation with and without refusals on the way costs what its provider charged for, once."""
    agents = [Agent(), Agent()]
    scripts: list[Any] = [thinks, Choosy(lambda messages: len(messages) == 13 and newest_marked(messages))]
    billed = []
    for agent, script in zip(agents, scripts, strict=True):
        with talk(script) as found:
            for _ in range(10):
                agent.ask(found)
            state = found.settled(10)
            billed.append(state["totals"])
            shown = found.page("conversation/c1")["exchanges"]
            assert sum(each["input"] for each in shown) == state["totals"]["input"]
            assert [bool(each["resent"]) for each in shown].count(True) == (script is not thinks)
            assert all(each["paid"] is not None for each in shown)
    assert 0 < billed[1]["removed"] < billed[0]["removed"]
    assert billed[0]["paid"] <= billed[1]["paid"] < billed[1]["would_have_paid"]
