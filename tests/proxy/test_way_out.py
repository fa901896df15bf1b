"""The way out is the way that was taken (law 12): what was sent stays as it was sent, what is new goes as it came.

Shown with a provider that signs thinking against all before it and refuses whatever differs from that later.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

import ibidem
from ibidem.engine.session import Session
from ibidem.live import fallback
from ibidem.live import live as rewriter
from ibidem.live.live import Rewriter
from ibidem.live.pool import Workers
from ibidem.live.recognition import PER_ENTRY, Conversations
from ibidem.live.types import LiveRequest
from ibidem.proxy.edge.app import WORKERS
from ibidem.store import MemoryStore, SqliteStore, StoreError
from ibidem.testing import Answer, Fails, Seen, Signing, Slow
from tests.support.evict import EAGER_PROFILE
from tests.support.proxied import Clock, Talk, talk, waited_for
from tests.support.signed import Agent, history, thinks

PROFILES = ["lossless", "recoverable"]
SHORT_MS = 400.0
"""The budget of a request that is to time out."""


def begins_as_before(found: Talk, agent: Agent, last: int = -1) -> None:
    """The last request: what was sent before is sent as it was, what is new as it came."""
    before, now = (history(_plain(seen)) for seen in found.upstream.seen[last - 1 :][:2])
    assert now == [*before, *history(agent.came[-1])[len(before) :]]


def _plain(seen: Seen) -> bytes:
    return seen.text if isinstance(seen.text, bytes) else seen.text.encode()


def counted(found: Talk) -> dict[str, int]:
    return {each["reason"]: each["count"] for each in found.state["failures"]}


@contextmanager
def going_wrong(owner: Any, name: str, how: Any) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(owner, name, how)
        yield


def raising(*_: Any, **__: Any) -> Any:
    raise RuntimeError("of ours")


def in_threads() -> Any:
    """Nothing is so soon done that nobody is asked to do it: only who is asked can be late, or busy."""
    return going_wrong(Rewriter, "rewrite_warm", lambda *_: None)


@contextmanager
def held(owner: Any = Session, name: str = "compact") -> Iterator[threading.Event]:
    """Work that does not come to an end before it is told to."""
    go, work = threading.Event(), getattr(owner, name)

    def slowly(*args: Any, **more: Any) -> Any:
        assert go.wait(60)
        return work(*args, **more)

    with in_threads(), going_wrong(owner, name, slowly):
        try:
            yield go
        finally:
            go.set()


@contextmanager
def timing_out(found: Talk) -> Iterator[None]:
    """Let every request time out."""
    proxy = found.service
    with held(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(Workers, "is_exhausted", lambda *_: False)
        patch.setattr(proxy, "settings", replace(proxy.settings, budget_ms=SHORT_MS))
        yield
    waited_for(lambda: not proxy._workers.stuck)


@contextmanager
def busy(found: Talk) -> Iterator[None]:
    with in_threads(), going_wrong(Workers, "is_exhausted", lambda *_: True):
        yield


@contextmanager
def broken(found: Talk) -> Iterator[None]:
    with in_threads(), going_wrong(Rewriter, "_find_and_rewrite", raising):
        yield


def broken_before(found: Talk) -> Any:
    """Also where no thread is asked."""
    return going_wrong(Conversations, "rewrite_request", raising)


def half_done(found: Talk) -> Any:
    """The session has gone on when it goes wrong."""
    return going_wrong(rewriter, "encode_body", raising)


def forgetful(found: Talk) -> Any:
    def fails(*_: Any) -> None:
        raise StoreError("here", "the disk is full")

    return going_wrong(Conversations, "_read_journal", fails)


MISHAPS = {
    "time-out": timing_out,
    "busy": busy,
    "an error of ours": broken,
    "an error before the work": broken_before,
    "an error after the work": half_done,
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("mishap", MISHAPS)
@pytest.mark.parametrize("profile", PROFILES)
def test_whatever_goes_wrong_what_was_sent_stays_as_it_was_sent(mishap: str, profile: str) -> None:
    script, agent = Signing(thinks), Agent()
    with talk(script, profile=profile) as found:
        for turn in range(18):
            if turn in (7, 8, 12):
                with MISHAPS[mishap](found):
                    assert agent.ask(found) == 200, turn
                begins_as_before(found, agent)
            else:
                assert agent.ask(found) == 200, turn
        assert script.refused == 0
        state = found.settled(18)
        assert state["totals"]["failed_open"] == sum(counted(found).values()) == 3
        assert state["totals"]["rewritten"] > 8
        sent = found.upstream.seen[-1].body
        assert len(sent) < 0.7 * len(agent.came[-1])
        assert ibidem.expand(sent, store=found.service.store) == agent.came[-1]


@pytest.mark.slow
@pytest.mark.parametrize("mishap", MISHAPS)
@pytest.mark.parametrize("profile", PROFILES)
def test_a_restart_and_another_replica_go_on_that_way(mishap: str, profile: str, tmp_path: Path) -> None:
    """Two replicas on one store take turns, and are started again and again. The note goes with the history."""
    script, agent = Signing(thinks), Agent()
    for _ in range(2):
        with ExitStack() as stack:
            stores = [stack.enter_context(SqliteStore(tmp_path / "store.sqlite")) for _ in range(2)]
            options: Any = {"profile": profile, "strict": False}  # both number their calls alike
            replicas = [stack.enter_context(talk(script, store=store, **options)) for store in stores]
            for replica in (replicas[0], replicas[1], replicas[0]):
                assert agent.ask(replica) == 200
                waited_for(partial(_noted, replica))
                with MISHAPS[mishap](replica):
                    assert agent.ask(replica) == 200
                waited_for(partial(_noted, replica))
    assert script.refused == 0


def _noted(found: Talk) -> bool:
    """Nobody is at work any more, and nothing is left to be learned."""
    proxy = found.service
    known = list(proxy.conversations._all.values())
    return not proxy._background and all(not each.inbox for each in known)


def test_a_revision_that_was_just_made_is_undone() -> None:
    """A pause makes a revision free; the request with it fails, and goes out without."""
    clock, store = Clock(), MemoryStore()
    agent = Agent(outputs=30, lines=90)
    with talk(thinks, profile=EAGER_PROFILE, clock=clock, store=store) as found:
        for turn in range(14):
            clock.now += 4000 if turn in (10, 12) else 10
            if turn == 10:
                with going_wrong(rewriter, "encode_body", raising):
                    agent.ask(found)
                begins_as_before(found, agent)
            else:
                agent.ask(found)
            found.settled(turn + 1)
            if turn == 11:
                before, now = (history(seen.body) for seen in found.upstream.seen[-2:])
                assert now[: len(before)] == before, "nothing of it is changed later either, but at another such moment"
        assert found.state["totals"]["breaks"] == {"cold cache": 1}
        sizes = [len(seen.body) for seen in found.upstream.seen]
        assert sizes[12] < 0.8 * sizes[11], "there it is made again"


def test_a_store_that_fails_changes_nothing_that_was_sent() -> None:
    script, agent = Signing(thinks), Agent()
    with talk(script, profile="recoverable") as found:
        for turn in range(12):
            if turn in (6, 7, 9):
                with forgetful(found):
                    assert agent.ask(found) == 200
                begins_as_before(found, agent)
            else:
                assert agent.ask(found) == 200
        assert (script.refused, counted(found)) == (0, {"here: the disk is full": 3})


def test_a_compressed_request_finds_the_same_way() -> None:
    script, agent = Signing(thinks), Agent()
    with talk(script) as found:
        for turn in range(10):
            if turn in (5, 6):
                with broken(found):
                    assert agent.ask(found, content_encoding="gzip") == 200
                begins_as_before(found, agent)
            else:
                assert agent.ask(found, content_encoding="gzip") == 200
        assert script.refused == 0


def test_what_stands_before_the_messages_may_change_and_marks_may_move() -> None:
    script, agent = Signing(thinks), Agent()
    with talk(script) as found:
        for turn in range(12):
            agent.body["max_tokens"] = 1000 + turn  # stands before the messages
            for message in agent.body["messages"]:
                if isinstance(message["content"], list):
                    message["content"][-1].pop("cache_control", None)
            if turn:
                agent.body["messages"][-1]["content"][-1]["cache_control"] = {"type": "ephemeral"}
            if turn in (6, 7, 9):
                with broken(found):
                    assert agent.ask(found) == 200
                assert len(found.upstream.seen[-1].body) < len(agent.came[-1])
            else:
                assert agent.ask(found) == 200
        assert script.refused == 0


def test_a_size_is_asked_of_what_would_be_sent() -> None:
    agent = Agent()
    with talk(Signing(thinks)) as found:
        for _ in range(6):
            agent.ask(found)
        with broken(found):
            found.ask("POST", "/v1/messages/count_tokens", agent.request)
            asked = found.upstream.seen[-1].body
            agent.ask(found)
            assert found.upstream.seen[-1].body == asked != agent.came[-1]
        found.ask("POST", "/v1/messages/count_tokens", agent.request)
        asked = found.upstream.seen[-1].body
        agent.ask(found)
        assert found.upstream.seen[-1].body == asked


def test_where_nothing_is_known_the_request_goes_as_it_came() -> None:
    agent, other = Agent(), Agent("something else")
    with talk(Signing(thinks)) as found:
        for _ in range(4):
            agent.ask(found)
        with broken(found):
            other.ask(found)
        assert found.upstream.seen[-1].body == other.came[-1]


@pytest.mark.sampled(1)
@pytest.mark.parametrize("mishap", [busy, broken])
@pytest.mark.parametrize("alike", ["an agent's own words", "the same prompt"])
def test_many_conversations_may_begin_alike(alike: str, mishap: Any) -> None:
    """More than are likely: that of a request is found among them nevertheless."""
    script, system = Signing(thinks), {"system": "You are careful. " * 200}
    agents = [Agent("the same" if alike == "the same prompt" else f"client {number}") for number in range(7)]
    for number, agent in enumerate(agents):
        agent.body = {"model": agent.body["model"], **system, **agent.body}
        agent.outputs = agent.outputs[number % 4 :] + agent.outputs[: number % 4] + [f"{number}\n" * 9]
    with talk(script, strict=False) as found:
        for _ in range(7):
            assert [agent.ask(found) for agent in agents] == [200] * 7
        with mishap(found):
            assert [agent.ask(found) for agent in agents] == [200] * 7
        assert script.refused == 0
        assert all(len(seen.body) < len(agents[0].came[-1]) for seen in found.upstream.seen[-7:])


@pytest.mark.parametrize("profile", PROFILES)
def test_half_a_character_does_not_hide_the_way(profile: str) -> None:
    """Clients cut texts between the two halves of a character, and write what is left as an escape."""
    agent = Agent()
    with talk(thinks, profile=profile, strict=False) as found:
        for _ in range(7):
            assert agent.ask(found) == 200
        known = history(found.upstream.seen[-1].body)
        cut = agent.request.removesuffix(b"]}") + rb',{"role":"user","content":"cut \ud83d"}]}'
        with broken(found):
            assert found.send("anthropic", cut)[0] == 200
        sent = found.upstream.seen[-1].body
        assert history(sent)[: len(known)] == known
        assert sent.endswith(rb'{"role":"user","content":"cut \ud83d"}]}')


def test_the_next_request_may_come_while_the_first_is_still_worked_on() -> None:
    """Nobody has learned yet that the first went as it came, and the next one has no time to wait for that."""
    script, agent = Signing(thinks), Agent()
    with talk(script) as found:
        with timing_out(found):
            for _ in range(4):
                assert agent.ask(found) == 200
                assert found.upstream.seen[-1].body == agent.came[-1]
        for _ in range(6):
            assert agent.ask(found) == 200
        assert script.refused == 0
        assert len(found.upstream.seen[-1].body) < len(agent.came[-1])


def test_a_request_that_was_not_taken_is_no_way() -> None:
    """It was rewritten, and answered with an overload: what failed after it begins as the one before it did."""
    answers: list[Answer] = []

    def script(seen: Seen) -> Answer:
        return answers.pop() if answers else thinks(seen)

    agent = Agent()
    with talk(script) as found:
        for _ in range(6):
            agent.ask(found)
        answers.append(Answer(status=529, message="overloaded"))
        assert agent.ask(found) == 529
        refused = found.upstream.seen[-1].body
        assert agent.ask(found) == 200, "the same again"
        assert found.upstream.seen[-1].body == refused
        answers.append(Answer(status=529, message="overloaded"))
        assert agent.ask(found) == 529
        with broken(found):
            assert agent.ask(found) == 200
        before, now = history(refused), history(found.upstream.seen[-1].body)
        assert now == [*before, *history(agent.came[-1])[len(before) :]]


def test_a_fork_begins_as_the_branch_it_came_from() -> None:
    agent = Agent()
    with talk(Signing(thinks)) as found:
        for _ in range(8):
            agent.ask(found)
        agent.body["messages"] = agent.body["messages"][:-4]
        agent.body["messages"][-1]["content"].append({"type": "text", "text": "stop, something else"})
        with broken(found):
            assert agent.ask(found) == 200
        sent = history(found.upstream.seen[-1].body)
        assert sent[:-1] == history(found.upstream.seen[-2].body)[: len(sent) - 1]
        waited_for(lambda: _noted(found))
        for _ in range(3):
            assert agent.ask(found) == 200
            assert history(found.upstream.seen[-1].body)[: len(sent)] == sent
        assert len(found.state["conversations"]) == 2


def test_a_fork_that_was_taken_bare_goes_on_bare() -> None:
    """The branch that it came from was sent otherwise, which is no way for this one."""
    refusing: list[int] = []

    def script(seen: Seen) -> Answer:
        refused = len(seen.json["messages"]) in refusing and b"[ibidem " in seen.body
        return Fails(400) if refused else thinks(seen)

    agent, fork = Agent(), Agent()
    with talk(script) as found:
        for _ in range(8):
            agent.ask(found)
        fork.body["messages"] = json.loads(agent.request)["messages"][:-4]
        fork.body["messages"][-1]["content"].append({"type": "text", "text": "stop, something else"})
        refusing.append(len(fork.body["messages"]))
        assert fork.ask(found) == 200
        sent = found.upstream.seen[-1].body
        assert sent == fork.came[-1]
        waited_for(lambda: _noted(found))
        agent.ask(found)
        for mishap in (broken, busy):
            with mishap(found):
                assert fork.ask(found) == 200
            assert history(found.upstream.seen[-1].body)[: len(history(sent))] == history(sent)
            waited_for(lambda: _noted(found))


def test_the_later_of_two_requests_is_the_way_whichever_is_answered_first() -> None:
    slow: list[int] = []

    def script(seen: Seen) -> Answer:
        return Slow(thinks(seen), wait=1.5) if len(seen.json["messages"]) in slow else thinks(seen)

    agent = Agent()
    with talk(script) as found, ThreadPoolExecutor(1) as pool:
        for _ in range(6):
            agent.ask(found)
        slow.append(len(agent.body["messages"]))
        asking = pool.submit(found.send, "anthropic", agent.request)
        waited_for(lambda: len(found.upstream.seen) == 7)
        assert not asking.done()
        agent.hear([{"type": "tool_use", "id": "its_own", "name": "Read", "input": {}}])
        assert agent.ask(found) == 200
        sent = history(found.upstream.seen[-1].body)
        assert asking.result()[0] == 200
        with broken(found):
            assert agent.ask(found) == 200
        assert history(found.upstream.seen[-1].body)[: len(sent)] == sent


@pytest.mark.parametrize("profile", PROFILES)
def test_time_out_after_a_restart_is_no_rejection(profile: str, tmp_path: Path) -> None:
    """Nothing is known and time runs out: the request goes as it came and is refused, and another body is found."""
    script, agent = Signing(thinks), Agent()
    for late, statuses in ((False, [200] * 8), (True, [200]), (False, [200] * 3)):
        options: Any = {"profile": profile, "strict": False}
        with ExitStack() as stack:
            store = stack.enter_context(SqliteStore(tmp_path / "s.sqlite"))
            found = stack.enter_context(talk(script, store=store, **options))
            stack.enter_context(timing_out(found) if late else nullcontext())
            assert [agent.ask(found) for _ in statuses] == statuses
            assert len(found.upstream.seen) <= len(statuses) + 3


def test_notes_of_other_runs_are_counted_as_memory() -> None:
    conversations = Conversations("recoverable", MemoryStore(), 1000, 2**18)
    rewriter = Rewriter(conversations, observe=False, max_body=2**20)
    for run in range(60):
        agent = Agent("the same prompt", outputs=1, lines=3)
        for turn in range(4):
            agent.hear([{"type": "tool_use", "id": f"{run} {turn}", "name": "Read", "input": {}}])
            rewriter.rewrite_request(LiveRequest("anthropic", "", "", agent.request, 1e9 + run))
    held = sum(PER_ENTRY * each.session.notes for each in conversations._all.values())
    assert held <= conversations.memory_bytes <= 2**18


# ── too large, and too many ─────────────────────────────────────────────────────────────────────────────────────────


def worked_on(patch: pytest.MonkeyPatch) -> list[int]:
    """Messages of the requests that a session gets to read."""
    compact, found = Session.compact, list[int]()

    def counting(self: Session, request: Any, **more: Any) -> Any:
        found.append(len(request))
        return compact(self, request, **more)

    patch.setattr(Session, "compact", counting)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("encoding", ["", "gzip"])
@pytest.mark.parametrize(
    ("limit", "large"),
    [(40_000, "x" * 50_000), (2**24, {f"key {number}": number for number in range(6000)}), (2**24, [7] * 40_000)],
    ids=["bytes", "keys", "numbers"],
)
def test_what_is_too_large_is_not_read_and_begins_as_before(
    limit: int, large: Any, encoding: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is new counts, and for as long as it is in the conversation; without it all goes on. All limits are smaller
    here by a factor of ten."""
    monkeypatch.setattr(rewriter, "SMALL_BYTES", rewriter.SMALL_BYTES // 10)
    for name in ("MAX_NEW_STRINGS", "MAX_NEW_VALUES"):
        monkeypatch.setattr(fallback, name, getattr(fallback, name) // 10)
    script, agent = Signing(thinks), Agent()
    headers = {"content_encoding": encoding} if encoding else {}
    with talk(script, max_rewrite=limit, budget_ms=30_000) as found, pytest.MonkeyPatch.context() as patch:
        for _ in range(7):
            assert agent.ask(found, **headers) == 200
        read = worked_on(patch)
        kept = list(agent.body["messages"])
        agent.body["messages"][-1]["content"][0]["odd"] = large
        for _ in range(3):
            known = history(_plain(found.upstream.seen[-1]))
            assert agent.ask(found, **headers) == 200
            assert history(_plain(found.upstream.seen[-1]))[: len(known)] == known
        found.ask("POST", "/v1/messages/count_tokens", agent.request)
        assert not read
        assert [each["count"] for each in found.state["failures"]] == [4]
        del kept[-1]["content"][0]["odd"]
        agent.body["messages"] = kept
        assert agent.ask(found, **headers) == 200
        assert read
        assert script.refused == 0


def test_a_long_conversation_is_not_large_where_only_its_end_is_new() -> None:
    agent = Agent(lines=1500)
    with talk(thinks, max_rewrite=200_000, budget_ms=30_000) as found:
        for _ in range(8):
            assert agent.ask(found) == 200
        assert len(agent.came[-1]) > 300_000
        assert found.settled(8)["totals"]["failed_open"] == 0


def test_eight_clients_at_once_are_never_told_that_it_is_busy() -> None:
    with talk(thinks, budget_ms=30_000) as found:
        agents = [Agent(f"client {number}") for number in range(8)]

        def converse(agent: Agent) -> list[int]:
            return [agent.ask(found) for _ in range(12)]

        with ThreadPoolExecutor(8) as pool:
            assert all(status == 200 for statuses in pool.map(converse, agents) for status in statuses)
        assert found.settled(96)["totals"]["failed_open"] == 0


def test_a_request_waits_for_a_thread_that_is_late() -> None:
    """All threads work on what was given up a moment ago. They will be done soon, so nobody is sent away."""
    agents = [Agent(f"late {number}") for number in range(WORKERS)]
    last = Agent()
    with talk(thinks, budget_ms=3000) as found, ThreadPoolExecutor(WORKERS + 1) as pool:
        for _ in range(6):
            assert last.ask(found) == 200
        with held() as go:
            assert list(pool.map(lambda agent: agent.ask(found), agents)) == [200] * WORKERS
            assert len(found.service._workers.stuck) == WORKERS
            asking = pool.submit(last.ask, found)
            waited_for(lambda: found.service._workers.pool._work_queue.qsize())
            go.set()
            assert asking.result() == 200
        assert counted(found) == {"time-out": WORKERS}
        assert len(found.upstream.seen[-1].body) < len(last.came[-1])


@pytest.mark.slow
def test_who_is_stuck_with_large_requests_is_waited_for_by_nobody_else() -> None:
    """As many threads as there are for large requests are held up, and a small one goes on as ever."""
    agents = [Agent(f"large {number}", outputs=1, lines=24_000) for number in range(3)]
    small = Agent()
    with talk(thinks, budget_ms=1000) as found:  # a small one takes less also on a busy machine
        for _ in range(6):
            assert small.ask(found) == 200
        for agent in agents:
            agent.hear([{"type": "tool_use", "id": f"t{len(agent.came)}", "name": "Read", "input": {}}])
        with held_large():
            for agent in agents:
                assert agent.ask(found) == 200
            before = found.state["totals"]["failed_open"]
            assert before == 3
            assert small.ask(found) == 200
            assert found.state["totals"]["failed_open"] == before
        waited_for(lambda: not found.service._large.stuck)


@contextmanager
def held_large() -> Iterator[None]:
    """Sessions of large requests do not come to an end."""
    go, compact = threading.Event(), Session.compact

    def slowly(self: Session, request: Any, **more: Any) -> Any:
        if len(request.original) > 2**20:
            assert go.wait(60)
        return compact(self, request, **more)

    with going_wrong(Session, "compact", slowly):
        try:
            yield
        finally:
            go.set()
