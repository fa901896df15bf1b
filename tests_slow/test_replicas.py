"""Replicas of the proxy behind nginx send what one proxy would, while one of them is killed and another one joins.

A conversation stays on one replica while that replica is up.

python -m pytest tests_slow/test_replicas.py     needs: apt-get install nginx-light redis-server
"""

from __future__ import annotations

import asyncio
import http.client
import json
import shutil
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
import pytest

import ibidem
from ibidem.engine.pipeline import Compacted
from ibidem.live.recognition import Conversations
from ibidem.providers.routes import SESSION_HEADERS
from ibidem.providers.usage_reader import UsageReader
from ibidem.store import MemoryStore, RedisStore
from ibidem.testing import Answer, Says, Seen, Slow, Upstream
from tests_slow.replicas import PATIENCE, Cluster, Replica, cluster, nginx, redis_server, waited_for
from tests_slow.talks import LABEL, AgentTalk, label

pytestmark = pytest.mark.skipif(
    not nginx() or shutil.which("redis-server") is None, reason="needs: apt-get install nginx-light redis-server"
)

CONVERSATIONS, TURNS, REPLICAS = 200, 30, 3
AT_ONCE = 24
"""Requests that are under way at any moment."""
REQUESTS = CONVERSATIONS * TURNS
KILL_AT, JOIN_AT = REQUESTS // 3, REQUESTS // 2
NOW = 1_750_000_000.0
"""The provider's clock stands still: what it has in its cache does not depend on how busy the machine is."""
FORGETS = 300.0
"""Seconds after which a provider may have forgotten what it was sent: no pause here is as long."""
TRIES = 5

Turn = tuple[int, int]
"""A conversation, and a turn of it."""


# ── the provider ────────────────────────────────────────────────────────────────────────────────────────────────────


class Provider:
    """Names in each answer the conversation and the turn that it is for. Says when it has seen so many requests."""

    def __init__(self) -> None:
        self.requests = 0
        self._waiting: list[tuple[int, Callable[[], object]]] = []

    def at(self, requests: int, call: Callable[[], object]) -> None:
        self._waiting.append((requests, call))

    def __call__(self, seen: Seen) -> Answer:
        self.requests += 1
        for number, call in self._waiting:
            if number == self.requests:
                call()
        answer = Says(label(*turn_of(seen)))
        near = KILL_AT - AT_ONCE <= self.requests <= KILL_AT
        return Slow(answer, wait=0.5, chunk_delay=0.05) if near else answer  # the kill is to meet some under way


def turn_of(seen: Seen) -> Turn:
    messages = seen.json["messages"]
    first = messages[0]["content"]
    text = first if isinstance(first, str) else first[0]["text"]
    number = int(text.partition("conversation ")[2].partition(":")[0])
    return number, 1 + sum(message["role"] == "assistant" for message in messages)


# ── the clients ─────────────────────────────────────────────────────────────────────────────────────────────────────


class Told(NamedTuple):
    """What an answer told about its request: input tokens, and those of them that were read from the cache."""

    context: int
    cached: int


class Again(NamedTuple):
    """A request that a client sent once more."""

    turn: Turn
    why: str
    at: int
    """Requests that the provider had seen by then."""


@dataclass
class Clients:
    url: str
    provider: Provider
    told: dict[Turn, Told] = field(default_factory=dict)
    crossed: int = 0
    again: list[Again] = field(default_factory=list)
    seconds: float = 0.0

    async def converse(self, talks: Sequence[AgentTalk], operator: asyncio.Task[None]) -> None:
        """Half of them go on at once, a few at a time; of the others, which are all there at a time, each waits."""
        start, patience = time.perf_counter(), aiohttp.ClientTimeout(total=PATIENCE)
        hurried, patient = asyncio.Semaphore(AT_ONCE // 2), asyncio.Semaphore(AT_ONCE // 2)
        async with aiohttp.ClientSession(timeout=patience) as http:

            async def hurry(talk: AgentTalk) -> None:
                async with hurried:
                    for turn in range(1, TURNS + 1):
                        self.told[talk.number, turn] = await self._ask(http, talk, turn)

            async def wait(talk: AgentTalk) -> None:
                for turn in range(1, TURNS + 1):
                    async with patient:
                        self.told[talk.number, turn] = await self._ask(http, talk, turn)

            await asyncio.gather(*(hurry(talk) if talk.hurries else wait(talk) for talk in talks))
        self.seconds = time.perf_counter() - start
        await operator

    async def _ask(self, http: aiohttp.ClientSession, talk: AgentTalk, turn: int) -> Told:
        """As the SDKs of providers do: what was not answered is sent again."""
        body, headers = talk.request(turn), {"content-type": "application/json", "x-api-key": "k"}
        for _ in range(TRIES):
            try:
                async with http.post(self.url + talk.way.path, data=body, headers=headers) as answer:
                    data = await answer.read()
            except (aiohttp.ClientError, ConnectionError) as error:
                self._once_more(talk, turn, type(error).__name__)
                continue
            if answer.status == 200:
                return self._heard(talk, turn, data)
            assert answer.status == 502, data
            self._once_more(talk, turn, "502")
        raise AssertionError(f"{label(talk.number, turn)} was not answered: {self.again[-TRIES:]}")

    def _once_more(self, talk: AgentTalk, turn: int, why: str) -> None:
        self.again.append(Again((talk.number, turn), why, self.provider.requests))

    def _heard(self, talk: AgentTalk, turn: int, data: bytes) -> Told:
        named = LABEL.findall("".join(_texts(data)))
        self.crossed += named != [(str(talk.number), str(turn))]
        reader = UsageReader(talk.way.format, "text/event-stream", "")
        reader.feed(data)
        usage = reader.finish()
        assert usage is not None, data
        return Told(usage.input, usage.read)


def _texts(data: bytes) -> Iterator[str]:
    """What an answer says, piece by piece."""
    for line in data.decode().splitlines():
        if line.startswith("data: {"):
            event = json.loads(line[6:])
            choices = event.get("choices") or [{}]
            yield event.get("delta", {}).get("text") or choices[0].get("delta", {}).get("content") or ""


async def operated(found: Cluster, provider: Provider) -> None:
    """One replica is killed in the middle, and another one joins those that are left."""
    loop = asyncio.get_running_loop()
    kill, join = asyncio.Event(), asyncio.Event()
    provider.at(KILL_AT, lambda: loop.call_soon_threadsafe(kill.set))
    provider.at(JOIN_AT, lambda: loop.call_soon_threadsafe(join.set))
    await kill.wait()
    killed = found.replicas[0]
    killed.kill()
    await join.wait()
    await asyncio.to_thread(found.start)
    await asyncio.to_thread(found.serve, [each for each in found.replicas if each is not killed])


# ── what one process would have sent ────────────────────────────────────────────────────────────────────────────────

Known = dict[int, Told | None]
"""By turn: what was known of the answer before when the request was sent. What an answer tells is noted when it is
over, and nobody waits for that: a client that goes on at once may be faster."""


def noted(talk: AgentTalk, store: RedisStore) -> Known:
    """As the store has it: read as another replica would."""
    found = Conversations("recoverable", store, 1, 2**30).find_or_create((talk.way.format, ""), talk.request(TURNS))
    rows = json.loads(found.conversation.session.state())["notes"]
    known: Known = {}
    for length, _digest, (idle, context, refused, cached, *_), as_is, _at, _context, stopped, unwanted, *_ in rows:
        assert not any((refused, stopped, unwanted)), "nobody refused anything"
        assert as_is is None, "nothing went as it came"
        assert idle is None or idle < FORGETS
        known[(length + 1) // 2] = None if context is None else Told(context, cached)
    return known


def one_process(profile: str, talk: AgentTalk, known: Known) -> list[Compacted]:
    """What a session sends that has the conversation from the first turn to the last, and knows that at each."""
    session = ibidem.Session(profile, format=talk.way.format, store=MemoryStore())
    found = []
    for turn in range(1, TURNS + 1):
        context, cached = known.get(turn) or (None, None)
        found.append(session.compact(talk.request(turn), context=context, cached=cached))
    return found


# ── the tests ───────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass
class Ran:
    """What came of it, while the Redis server is still there."""

    profile: str
    clients: Clients
    sent: dict[Turn, list[bytes]]
    cut: int
    """Requests of which the provider saw only the beginning."""
    replicas: list[Replica]
    store: RedisStore
    figures: dict[str, Any]


TALKS = [AgentTalk(number, TURNS) for number in range(CONVERSATIONS)]


@pytest.fixture(params=["lossless", "recoverable"])
def ran(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Ran]:
    profile, provider = request.param, Provider()
    with redis_server(tmp_path) as url, RedisStore(url) as store:
        with Upstream(provider, clock=lambda: NOW) as upstream:
            with cluster(tmp_path, profile, url, upstream.url, REPLICAS) as found:
                empty = figures(url)
                clients = Clients(found.url, provider)
                asyncio.run(_run(clients, found, provider))
            sent = defaultdict(list)
            for seen in upstream.seen:
                if seen.whole:
                    sent[turn_of(seen)].append(seen.body)
            cut = sum(not seen.whole for seen in upstream.seen)
        used = {name: value - empty[name] for name, value in figures(url).items()}
        yield Ran(profile, clients, sent, cut, found.replicas, store, used)


async def _run(clients: Clients, found: Cluster, provider: Provider) -> None:
    operator = asyncio.create_task(operated(found, provider))
    await clients.converse(TALKS, operator)


def figures(url: str) -> dict[str, float]:
    import redis

    with redis.Redis.from_url(url) as server:
        about = server.info()
        calls = server.info("commandstats")
    scripts = calls.get("cmdstat_evalsha", {})
    return {
        "memory": about["used_memory"],
        "received": about["total_net_input_bytes"],
        "sent": about["total_net_output_bytes"],
        "scripts": scripts.get("calls", 0),
        "script microseconds": scripts.get("usec", 0),
    }


def warm(replicas: Sequence[Replica]) -> tuple[int, int]:
    """Requests that found their conversation in the replica that got them, and all of them."""
    found = total = 0
    for replica in replicas:
        known = set()
        for line in replica.log.read_text().splitlines():
            row = json.loads(line)
            total += 1
            found += row["conversation"] in known
            known.add(row["conversation"])
    return found, total


def test_replicas_send_what_one_process_would(ran: Ran, tally: Callable[..., None]) -> None:
    told, counts = ran.clients.told, Counter[str]()
    assert ran.clients.crossed == 0
    assert set(ran.sent) == set(told) == {(talk.number, turn) for talk in TALKS for turn in range(1, TURNS + 1)}
    again = Counter(each.turn for each in ran.clients.again)
    counts["sent twice by nginx"] = sum(max(0, len(sent) - 1 - again[turn]) for turn, sent in ran.sent.items())
    for talk in TALKS:
        before: Known = {turn: told.get((talk.number, turn - 1)) for turn in range(1, TURNS + 1)}
        known = noted(talk, ran.store) if ran.profile == "recoverable" else before
        counts["not noted"] += len(set(before) - set(known))
        counts["noted wrongly"] += sum(found not in (None, before[turn]) for turn, found in known.items())
        counts["noted late"] += sum(known.get(turn) is None for turn in range(2, TURNS + 1))
        expected = one_process(ran.profile, talk, known)
        counts["revisions"] += len(expected[-1].plan.points)
        sent = [(turn, body) for turn in range(1, TURNS + 1) for body in ran.sent[talk.number, turn]]
        counts["otherwise"] += sum(body != expected[turn - 1].request for turn, body in sent)
        in_time = expected if known == before else one_process(ran.profile, talk, before)
        counts["otherwise than if all were noted in time"] += sum(
            body != in_time[turn - 1].request for turn, body in sent
        )
        counts["lost"] += sum(not comes_back(talk, turn, body, ran.store) for turn, body in sent if turn % 5 == 0)
    _tell(ran, tally, **counts)
    assert counts["otherwise"] == counts["lost"] == counts["sent twice by nginx"] == 0
    assert counts["not noted"] == counts["noted wrongly"] == 0
    assert ran.profile == "lossless" or counts["revisions"] > CONVERSATIONS


def comes_back(talk: AgentTalk, turn: int, sent: bytes, store: RedisStore) -> bool:
    return bool(ibidem.expand(sent, store=store, format=talk.way.format) == talk.request(turn))


def _tell(ran: Ran, tally: Callable[..., None], **counts: int) -> None:
    clients, used = ran.clients, ran.figures
    found, total = warm(ran.replicas)
    tally(
        f"replicas, {ran.profile}",
        requests=total,
        seen_by_the_provider=sum(map(len, ran.sent.values())),
        sent_again_by_clients=len(clients.again),
        cut_off=ran.cut,
        crossed=clients.crossed,
        warm=f"{found} ({found / total:.1%})",
        a_second=round(total / clients.seconds, 1),
        processor_ms_each=round(1e3 * sum(each.seconds for each in ran.replicas) / total, 1),
        redis_bytes_a_conversation=round(used["memory"] / CONVERSATIONS),
        redis_bytes_in_a_turn=round(used["received"] / total),
        redis_bytes_out_a_turn=round(used["sent"] / total),
        scripts_a_turn=round(used["scripts"] / total, 2),
        script_us_each=round(used["script microseconds"] / max(1, used["scripts"])),
        originals=ran.store.stats().originals,
        **counts,
    )


# ── which replica gets a request ────────────────────────────────────────────────────────────────────────────────────

SESSIONS = 4
"""Conversations for each header that names one."""
Headers = dict[str, str]


@dataclass
class Router:
    """Sends requests one after the other, and tells which replica got each."""

    found: Cluster
    sent: int = 0

    def connect(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self.found.port, timeout=PATIENCE)

    def replica(
        self, number: int, turn: int, headers: Headers, client: http.client.HTTPConnection | None = None
    ) -> int:
        """The replica that got a request, on a new connection if none is given."""
        talk, connection, before = AgentTalk(number, 5), client or self.connect(), self._counts()
        try:
            connection.request(
                "POST",
                talk.way.path,
                talk.request(turn),
                {"content-type": "application/json", "x-api-key": "k", **headers},
            )
            answer = connection.getresponse()
            data = answer.read()
            assert answer.status == 200, data
        finally:
            if client is None:
                connection.close()
        self.sent += 1
        waited_for(lambda: sum(self._counts()) == self.sent, "a line in the log of a replica")
        [replica] = [place for place, now in enumerate(self._counts()) if now > before[place]]
        return replica

    def _counts(self) -> list[int]:
        return [len(each.log.read_bytes().splitlines()) if each.log.exists() else 0 for each in self.found.replicas]


@pytest.fixture
def router(tmp_path: Path) -> Iterator[tuple[Router, Upstream]]:
    with (
        redis_server(tmp_path) as url,
        Upstream(Provider()) as upstream,
        cluster(tmp_path, "lossless", url, upstream.url, REPLICAS) as found,
    ):
        yield Router(found), upstream


def test_a_conversation_stays_on_one_replica_while_that_is_up(router: tuple[Router, Upstream]) -> None:
    """Each request on a new connection, and the conversations in turn, as several agents send them."""
    route, upstream = router
    sessions = {number: {SESSION_HEADERS[number % 5]: f"session {number}"} for number in range(5 * SESSIONS)}
    homes: dict[int, set[int]] = defaultdict(set)
    for turn in (1, 2, 3):
        for number, headers in sessions.items():
            homes[number].add(route.replica(number, turn, headers))
    assert {number: len(replicas) for number, replicas in homes.items()} == dict.fromkeys(sessions, 1)
    home = {number: replica for number, (replica,) in homes.items()}
    assert {*home.values()} == {*range(REPLICAS)}, "all of them have work"
    arrived = Counter(name.lower() for seen in upstream.seen for name, _ in seen.headers)
    assert [arrived[name] for name in SESSION_HEADERS] == [3 * SESSIONS] * 5, "also those with an underscore"

    stopped = home[0]
    route.found.replicas[stopped].end()
    later: dict[int, set[int]] = defaultdict(set)
    for turn in (4, 5):
        for number, headers in sessions.items():
            later[number].add(route.replica(number, turn, headers))
    for number, replicas in later.items():
        assert len(replicas) == 1, "it has one replica again"
        assert replicas == {home[number]} or home[number] == stopped, "those of other replicas stay where they are"
        assert stopped not in replicas


def test_without_a_session_header_a_connection_stays_on_one_replica(router: tuple[Router, Upstream]) -> None:
    route, _ = router
    clients = [route.connect() for _ in range(12)]
    homes = [{route.replica(number, turn, {}, client) for turn in (1, 2, 3)} for number, client in enumerate(clients)]
    for client in clients:
        client.close()
    assert {len(replicas) for replicas in homes} == {1}
    assert len(set.union(*homes)) > 1, "connections are spread"
