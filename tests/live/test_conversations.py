"""Conversations: told apart, remembered over restarts and among replicas, and left alone when a provider minds."""

import json
import random
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from itertools import chain, pairwise, zip_longest
from pathlib import Path
from typing import Any

import pytest

import ibidem
from ibidem.live.live import Rewriter
from ibidem.live.recognition import Conversations
from ibidem.live.types import LiveRequest
from ibidem.proxy.edge.server import BackgroundServer
from ibidem.proxy.settings import Settings
from ibidem.store import MemoryStore, RedisStore, SqliteStore, Store, reference
from ibidem.store.store import JournalPage
from ibidem.testing.prompt_cache import PromptCache
from ibidem.testing.scripts import Turn, build
from tests.support.evict import COLD_PROFILE, EAGER_PROFILE
from tests.support.proxied import PATHS, Clock, Talk, dumped, growing, requests, stale, talk, text, turns, waited_for

FORMATS = list(PATHS)
COLD = 4000.0
"""Seconds after which no provider here remembers."""


class Counted:
    """A store that counts what is saved, so that a test can wait for it."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.where = store.where
        self.saves = 0

    def note(self, *given: Any) -> JournalPage:
        found = self._store.note(*given)
        self.saves += found.added
        return found

    def close(self) -> None:
        """It is the test that closes it."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


Step = tuple[float, bytes]
"""Seconds that pass before a request, and the request."""


def sent(
    steps: Sequence[Step], proxies: list[Talk], store: Counted, clock: Clock, format: str = "anthropic"
) -> list[bytes]:
    """What upstream got of each; the proxies take turns."""
    found = []
    for number, (passed, body) in enumerate(steps):
        clock.now += passed
        proxy = proxies[number % len(proxies)]
        before = store.saves
        assert proxy.send(format, body)[0] == 200
        waited_for(lambda: store.saves >= before + 2)  # noqa: B023  # when it was sent, and when it was answered
        found.append(proxy.upstream.seen[-1].body)
    return found


def straight(steps: Sequence[Step], format: str = "anthropic") -> list[bytes]:
    """The same from one proxy that is never stopped."""
    store, clock = Counted(MemoryStore()), Clock()
    with talk(profile=EAGER_PROFILE, store=store, clock=clock) as proxy:
        return sent(steps, [proxy], store, clock, format)


def steps_of(format: str, gaps: dict[int, float], seed: int = 1, **more: Any) -> list[Step]:
    bodies = requests(format, *stale(5, seed=seed, after=8, **more), marks=format == "anthropic")
    return [(gaps.get(number, 10.0), dumped(body)) for number, body in enumerate(bodies)]


@pytest.mark.slow
@pytest.mark.parametrize("format", FORMATS)
def test_a_restart_goes_on_to_the_byte(format: str, tmp_path: Path) -> None:
    steps = steps_of(format, {13: COLD, 20: COLD})
    expected = straight(steps, format)
    found, clock, cache = [], Clock(), PromptCache()
    for start in range(0, len(steps), 3):
        with SqliteStore(tmp_path / "store.sqlite") as file:
            store = Counted(file)
            with talk(profile=EAGER_PROFILE, store=store, clock=clock, cache=cache) as proxy:
                found += sent(steps[start : start + 3], [proxy], store, clock, format)
    assert found == expected
    assert sum(map(len, found)) < 0.7 * sum(len(body) for _, body in steps)
    with SqliteStore(tmp_path / "store.sqlite") as file:
        assert file.stats().originals > 3
        for (_, body), got in zip(steps, found, strict=True):
            assert ibidem.expand(got, store=file, format=format) == body


def test_replicas_on_one_redis_decide_alike(redis_url: str) -> None:
    steps = steps_of("anthropic", {13: COLD, 20: COLD})
    expected = straight(steps)
    with RedisStore(redis_url, prefix="replicas:") as server, ExitStack() as stack:
        store, clock = Counted(server), Clock()
        opened = [talk(profile=EAGER_PROFILE, store=store, clock=clock) for _ in range(2)]
        found = sent(steps, [stack.enter_context(one) for one in opened], store, clock)
        assert found == expected
        for (_, body), got in zip(steps, found, strict=True):
            assert ibidem.expand(got, store=server) == body


def test_a_revision_is_told_by_the_replica_that_made_it() -> None:
    """Nor by one that is started later: to each of them the whole history is new at first."""
    steps, cache = steps_of("anthropic", {7: COLD, 16: COLD}), PromptCache()
    store, clock = Counted(MemoryStore()), Clock()
    with ExitStack() as stack:
        opened = [talk(profile=EAGER_PROFILE, store=store, clock=clock, cache=cache) for _ in range(3)]
        *proxies, later = [stack.enter_context(one) for one in opened]
        sent(steps[:-1], proxies, store, clock)
        sent(steps[-1:], [later], store, clock)
        told = [proxy.state["totals"]["breaks"].get("cold cache", 0) for proxy in (*proxies, later)]
    assert (sum(told), told[-1]) == (2, 0)


# ── told apart ──────────────────────────────────────────────────────────────────────────────────────────────────────


def forked(format: str, branches: int, at: int = 4, count: int = 9) -> list[list[bytes]]:
    """Conversations that begin alike and go on each in its own way."""
    trunk = turns(at)
    found = []
    for number in range(branches):
        own = turns(count - at, seed=100 + number)[1:]
        whole = [*trunk, *own]
        found.append([dumped(build(whole[:length], format)) for length in range(1, len(whole) + 1, 2)])
    return found


def in_turn(many: Sequence[Sequence[Any]]) -> list[Any]:
    return [each for each in chain.from_iterable(zip_longest(*many)) if each is not None]


@pytest.mark.parametrize("format", FORMATS)
def test_forks_that_go_on_in_turn_never_mix(format: str) -> None:
    bodies = in_turn(forked(format, 3))
    with talk() as found:
        for body in bodies:
            found.send(format, body)
            assert found.upstream.seen[-1].body == ibidem.compact(body).request
        state = found.settled(len(bodies))
        assert len(state["conversations"]) == 3
        assert state["totals"]["failed_open"] == 0


def test_a_rewind_is_a_branch_of_its_own() -> None:
    bodies = [dumped(body) for body in growing("anthropic", 9)]
    other = [dumped(build([*turns(4), *turns(5, seed=7)[1:]][:length], "anthropic")) for length in (11, 13, 15)]
    with talk() as found:
        for body in [*bodies, *other, bodies[5], bodies[-1]]:
            found.send("anthropic", body)
            assert found.upstream.seen[-1].body == ibidem.compact(body).request


def test_a_summary_that_takes_the_place_of_the_history() -> None:
    bodies = [dumped(body) for body in growing("anthropic", 6)]
    summary = Turn("user", "This goes on from a conversation that was summed up: all is well.")
    after = [dumped(build([summary, *turns(4, seed=3)[1:]][:length], "anthropic")) for length in (1, 3, 5, 7)]
    with talk() as found:
        for body in [*bodies, *after]:
            found.send("anthropic", body)
            assert found.upstream.seen[-1].body == ibidem.compact(body).request


def test_sub_agents_have_their_own_conversations() -> None:
    main = [dumped(body) for body in growing("anthropic", 6)]
    subs = [[dumped(body) for body in growing("anthropic", 6, seed=seed, first=f"part {seed}")] for seed in (5, 6)]
    with talk() as found:
        for body in in_turn([main, *subs]):
            found.send("anthropic", body, x_claude_code_session_id="one and the same")
            assert found.upstream.seen[-1].body == ibidem.compact(body).request
        state = found.settled(21)
        assert sorted(each["requests"] for each in state["conversations"]) == [7, 7, 7]
        assert {each["title"] for each in state["conversations"]} == {"make it work", "part 5", "part 6"}


def test_what_the_client_calls_a_conversation_tells_it_apart() -> None:
    bodies = [dumped(body) for body in growing("anthropic", 5)]
    with talk() as found:
        for body in bodies:
            for name in ("a", "b"):
                found.send("anthropic", body, x_session_id=name)
        assert [each["requests"] for each in found.settled(12)["conversations"]] == [6, 6]


@pytest.mark.slow
def test_branches_of_a_profile_that_looks_back_never_mix() -> None:
    """Each is sent as it is when it is alone, though they share their beginning, their times and the store."""
    trunk, calls = stale(3, after=2, lines=120)
    branches = []
    for seed in (21, 22, 23):
        more, own = stale(4, after=6, seed=seed)
        whole = [*trunk, *more[1:]]
        bodies = [
            dumped(build(whole[:length], "anthropic", {**calls, **own})) for length in range(1, len(whole) + 1, 2)
        ]
        branches.append(bodies)
    gaps = {18: COLD, 29: COLD}
    shared = len(trunk) // 2 + 1
    alone = [straight([(gaps.get(n, 10.0), body) for n, body in enumerate(bodies)]) for bodies in branches]
    store, clock = Counted(MemoryStore()), Clock()
    with talk(profile=EAGER_PROFILE, store=store, clock=clock) as proxy:
        for number in range(len(branches[0])):
            clock.now += gaps.get(number, 10.0)
            for which in range(1 if number < shared else len(branches)):
                got = sent([(0.0, branches[which][number])], [proxy], store, clock)[0]
                assert got == alone[which][number], (number, which)
        assert len(proxy.state["conversations"]) == 3
        assert proxy.state["totals"]["breaks"]


@pytest.mark.slow
def test_what_was_let_go_from_memory_comes_back_as_it_was() -> None:
    """There is room for one conversation, and three take turns: each is sent as it is when it is alone."""
    gaps = {12: COLD, 19: COLD}
    many = [steps_of("anthropic", gaps, seed=seed) for seed in (31, 32, 33)]
    alone = [straight(steps) for steps in many]
    store, clock = Counted(MemoryStore()), Clock()
    options: Any = {"store": store, "clock": clock, "conversations": 1}
    with talk(profile=EAGER_PROFILE, **options) as proxy:
        for number in range(len(many[0])):
            clock.now += gaps.get(number, 10.0)
            for steps, expected in zip(many, alone, strict=True):
                assert sent([(0.0, steps[number][1])], [proxy], store, clock) == [expected[number]]
    assert all(len(got[-1]) < 0.5 * len(steps[-1][1]) for got, steps in zip(alone, many, strict=True))


def test_conversations_that_begin_alike_at_the_same_time() -> None:
    many = forked("anthropic", 8, at=2, count=10)
    with talk() as found:

        def converse(bodies: list[bytes]) -> int:
            return sum(found.send("anthropic", body)[0] == 200 for body in bodies)

        with ThreadPoolExecutor(8) as pool:
            assert sum(pool.map(converse, many)) == 88
        got = {seen.body for seen in found.upstream.seen}
        assert got == {ibidem.compact(body).request for body in chain.from_iterable(many)}
        assert found.settled(88)["totals"]["failed_open"] == 0


def test_a_request_that_is_sent_many_times_at_once() -> None:
    bodies = [dumped(body) for body in growing("anthropic", 6)]
    with talk() as found, ThreadPoolExecutor(6) as pool:
        for body in bodies:
            assert {status for status, _ in pool.map(lambda body: found.send("anthropic", body), [body] * 6)} == {200}
            assert {seen.body for seen in found.upstream.seen[-6:]} == {ibidem.compact(body).request}
        totals = found.settled(42)["totals"]
        assert totals["failed_open"] == 0


def test_a_conversation_that_moved_on_while_it_was_looked_up() -> None:
    """What was found is of use only as long as nobody else has gone on with it."""
    trunk, known = turns(3), text(random.Random(5), 30)

    def request(*outputs: str) -> bytes:
        more = [
            turn
            for number, output in enumerate(outputs)
            for turn in (Turn("assistant", None, None, [f"x{number}"]), Turn("tool", results=[(f"x{number}", output)]))
        ]
        return dumped(build([*trunk, *more], "anthropic"))

    def job(body: bytes) -> LiveRequest:
        return LiveRequest("anthropic", "", "", body, 1.0)

    one, two, three = request("short"), request(known), request(known, known + "\nand more")
    conversations = Conversations("lossless", MemoryStore(), 10, 2**30)
    rewriter = Rewriter(conversations, False, 2**30)
    rewriter.rewrite_request(job(request()))
    first = conversations.find_conversation(("anthropic", ""), one)
    rewriter.rewrite_request(job(two))
    second = conversations.find_conversation(("anthropic", ""), three)
    assert first is not None
    assert second is not None
    assert first.conversation is second.conversation
    late = {one: first, three: second}
    find = conversations.find_or_create
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(conversations, "find_or_create", lambda *asked: late.pop(asked[1], None) or find(*asked))
        outcomes = [rewriter.rewrite_request(job(body)) for body in (one, three)]
    assert not late
    assert [outcome.body or body for outcome, body in zip(outcomes, (one, three), strict=True)] == [
        ibidem.compact(body).request for body in (one, three)
    ]
    assert outcomes[0].conversation is not outcomes[1].conversation


# ── idle time, and a provider that minds ────────────────────────────────────────────────────────────────────────────


def test_idle_time_counts_over_a_restart() -> None:
    steps = [(10.0, body) for _, body in steps_of("anthropic", {})]
    store, clock = Counted(MemoryStore()), Clock()
    with talk(profile=EAGER_PROFILE, store=store, clock=clock) as proxy:
        sent(steps[:10], [proxy], store, clock)
        assert not proxy.state["totals"]["breaks"]
    with talk(profile=EAGER_PROFILE, store=store, clock=clock) as proxy:
        sent([(COLD, steps[10][1])], [proxy], store, clock)
        assert proxy.state["totals"]["breaks"] == {"cold cache": 1}


def test_when_cache_reads_collapse_after_a_revision_revisions_stop() -> None:
    steps = steps_of("anthropic", {7: COLD, 16: COLD})

    def run(forgets: bool) -> tuple[Any, Any]:
        store, clock = Counted(MemoryStore()), Clock()
        with talk(profile=COLD_PROFILE, store=store, clock=clock) as proxy:
            for number, step in enumerate(steps):
                if forgets and number == 8:  # as if what was changed made the provider lose everything
                    proxy.upstream.forget()
                sent([step], [proxy], store, clock)
            state = proxy.settled(len(steps))
            return state, [seen.body for seen in proxy.upstream.seen]

    well, _ = run(forgets=False)
    assert well["totals"]["breaks"] == {"cold cache": 2}
    assert not well["conversations"][0]["stopped"]
    assert not well["events"]
    badly, seen = run(forgets=True)
    assert badly["totals"]["breaks"] == {"cold cache": 1}
    assert badly["conversations"][0]["stopped"]
    assert [(event["kind"], event["conversation"]) for event in badly["events"]] == [("collapse", "c1")]
    for before, after in pairwise(seen):  # nothing that was sent changes any more
        first = json.loads(before)["messages"][:-2]
        assert _bare(json.loads(after)["messages"][: len(first)]) == _bare(first)


def _bare(messages: list[Any]) -> Any:
    """Without cache marks, which move."""
    return json.loads(json.dumps(messages).replace(', "cache_control": {"type": "ephemeral"}', ""))


def test_a_provider_without_a_cache_collapses_nothing() -> None:
    steps = [(passed, dumped(_unmarked(body))) for passed, body in steps_of("anthropic", {13: COLD, 22: COLD})]
    store, clock = Counted(MemoryStore()), Clock()
    with talk(profile=EAGER_PROFILE, store=store, clock=clock) as proxy:
        sent(steps, [proxy], store, clock)
        state = proxy.settled(len(steps))
        assert state["totals"]["breaks"]
        assert not state["events"]


def _unmarked(body: bytes) -> Any:
    found = json.loads(body)
    found["messages"] = json.loads(
        json.dumps(found["messages"]).replace(', "cache_control": {"type": "ephemeral"}', "")
    )
    return found


# ── who only looks ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_who_only_observes_keeps_no_text() -> None:
    """No marker is sent, so there is nothing that one could point at."""
    steps = steps_of("anthropic", {13: COLD, 20: COLD})
    kept = {}
    for observe in (False, True):
        store, clock = MemoryStore(), Clock()
        with talk(profile=EAGER_PROFILE, store=store, clock=clock, observe=observe) as proxy:
            for number, (passed, body) in enumerate(steps, 1):
                clock.now += passed
                assert proxy.send("anthropic", body)[0] == 200
                proxy.settled(number)
            assert proxy.settled(len(steps))["totals"]["breaks"]
        kept[observe] = store.stats().originals
    assert kept[False] > 3
    assert kept[True] == 0


# ── what is forgotten ───────────────────────────────────────────────────────────────────────────────────────────────


def test_a_proxy_forgets_at_its_start_what_the_limits_say(tmp_path: Path) -> None:
    """Also one that writes nothing to its store."""
    path, ages = tmp_path / "store.db", {"old": 8.0, "new": 6.0}
    for name, days in ages.items():
        with SqliteStore(path, clock=lambda: time.time() - days * 86_400) as store:  # noqa: B023
            store.put(name, {reference(name): name})
            store.save(name, b"state", [reference(name)])
    with SqliteStore(path) as store:
        with BackgroundServer(Settings(port=0, store=str(path), store_days=7)):
            waited_for(lambda: store.stats().originals == 1)
        assert store.get(map(reference, ages)) == {reference("new"): "new"}
        assert store.stats().sessions == 1


def test_a_proxy_makes_no_store_to_forget_in(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "store.db"
    with BackgroundServer(Settings(port=0, store=str(path))):
        pass
    assert not path.parent.exists()
