"""Requests of all kinds, with faults everywhere: every byte that either side saw is compared. `tests_slow` has more."""

import asyncio
import gc
import gzip
import random
import threading
import zlib
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import pytest

import ibidem
from ibidem.engine.session import Session
from ibidem.proxy.edge.app import FALLBACK_WORKERS, LARGE_WORKERS, NOTE_WORKERS, WORKERS
from ibidem.proxy.edge.exchange_driver import Driver
from ibidem.store import MemoryStore, StoreError, guarded
from ibidem.store.store import JournalPage
from ibidem.testing.answers import Answer, Calls, Fails, Gzips, Halves, Headed, Pings, Resets, Says, Slow, Thinks
from ibidem.testing.requests_seen import Seen
from ibidem.testing.scripts import Turn, build
from ibidem.wire import zstd
from tests.support.proxied import PATHS, Talk, dumped, talk, text, waited_for

CLIENTS = 24
PROFILES = {"lossless": 1200, "recoverable": 600}
"""Requests for each profile."""
ANSWERS: dict[str, Answer] = {
    "says": Says("That is how it is. " * 20),
    "calls": Calls(("Read", {"file_path": "/src/a.py"}), says="I look."),
    "thinks": Thinks("Let me see. " * 9, then=Says("Done.")),
    "gzips": Gzips(Says("packed " * 40)),
    "pings": Pings(3, Says("still here")),
    "headed": Headed(
        ("X-Twice", "one"), ("x-twice", "two"), ("Set-Cookie", "a=b; Path=/"), answer=Says("with headers")
    ),
    "slow": Slow(Says("slowly"), chunk_delay=0.001, wait=0.005),
    "429": Fails(429, retry_after=7),
    "500": Fails(500),
    "529": Fails(529),
    "reset at once": Resets(after_chunks=0),
    "reset later": Resets(Says("never to be heard in full " * 9), after_chunks=3),
    "half": Halves(Says("half of this " * 30)),
}
USUAL = ["says", "calls", "thinks", "gzips", "pings", "headed"]
PACK: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "deflate": zlib.compress,
    "zstd": zstd.compress,
}
SPOIL: tuple[Callable[[bytes], bytes], ...] = (
    lambda data: data[: len(data) // 2],
    lambda data: data[:-1],
    lambda data: b"[" + data,
    lambda data: data.replace(b'"', b"'"),
    lambda data: b"",
    lambda data: b"[1,2,3]",
    lambda data: data.replace(b"role", b"roll"),
)
HOP_BY_HOP = {"transfer-encoding", "connection", "keep-alive", "host", "content-length"}
PREFIX = {"gemini": "/openai"}
"""The upstream of Gemini is down for all of the time, so what is to be answered in its format goes to another."""


class Got(NamedTuple):
    """An answer, as far as it came."""

    status: int
    headers: list[tuple[str, str]]
    payload: bytes
    whole: bool


@dataclass
class Sent:
    number: int
    kind: str
    format: str
    original: bytes
    """As it would be without an encoding."""
    data: bytes
    headers: list[tuple[str, str]]
    got: Got | None = None


# ── a client that sees every byte ───────────────────────────────────────────────────────────────────────────────────


class Reading:
    """HTTP answers, from bytes that come in pieces."""

    def __init__(self, more: Callable[[], Awaitable[bytes]]) -> None:
        self._more = more
        self._data = bytearray()

    async def _fill(self) -> None:
        piece = await self._more()
        if not piece:
            raise EOFError
        self._data += piece

    async def _line(self, end: bytes) -> bytes:
        while (at := self._data.find(end)) < 0:
            await self._fill()
        return self._taken(at + len(end))

    def _taken(self, size: int) -> bytes:
        taken = bytes(self._data[:size])
        del self._data[:size]
        return taken

    async def answer(self) -> Got | None:
        """None if there was none."""
        try:
            head = (await self._line(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        except (EOFError, ConnectionError):
            return None
        headers = [(name, value.strip()) for name, _, value in (line.partition(":") for line in head[1:] if line)]
        known = {name.lower(): value for name, value in headers}
        payload = bytearray()
        try:
            if known.get("transfer-encoding") == "chunked":
                while size := int(await self._line(b"\r\n"), 16):
                    await self._into(payload, size)
                    await self._line(b"\r\n")
                await self._line(b"\r\n")
            else:
                await self._into(payload, int(known["content-length"]))
        except (EOFError, ConnectionError):
            return Got(int(head[0].split()[1]), headers, bytes(payload), False)
        return Got(int(head[0].split()[1]), headers, bytes(payload), True)

    async def _into(self, payload: bytearray, size: int) -> None:
        """So many bytes, or as many as come."""
        while size:
            if not self._data:
                await self._fill()
            taken = self._taken(size)
            payload += taken
            size -= len(taken)


async def heard(seen: Seen) -> Got | None:
    """The answer that upstream gave."""
    pieces = iter([seen.answer, b""])

    async def more() -> bytes:
        return next(pieces)

    return await Reading(more).answer()


class Client:
    """One after the other over one connection, and a new one where that broke."""

    def __init__(self, url: str) -> None:
        self._url = urlsplit(url)
        self._writer: asyncio.StreamWriter | None = None

    async def ask(self, sent: Sent, leave: str = "") -> Got | None:
        if self._writer is None:
            self._reader, self._writer = await asyncio.open_connection(self._url.hostname, self._url.port)
            self._reading = Reading(lambda: self._reader.read(2**16))
        target = f"{PREFIX.get(sent.format, '')}{PATHS[sent.format]}"
        if sent.kind == "outage":
            target = f"/gemini{PATHS[sent.format]}"
        head = [("Host", "localhost"), *sent.headers, ("Content-Length", str(len(sent.data)))]
        lines = "".join(f"{name}: {value}\r\n" for name, value in head)
        data = f"POST {target} HTTP/1.1\r\n{lines}\r\n".encode("latin-1") + sent.data
        self._writer.write(data[: len(data) - len(sent.data) // 2 - 1] if leave == "in the middle" else data)
        if leave:
            await self._writer.drain()
            if leave == "later":
                await self._reader.read(10)
            await self.close()
            return None
        got = await self._reading.answer()
        if got is None or not got.whole or got.status in (413, 502):
            await self.close()
        return got

    async def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
            with suppress(ConnectionError):
                await self._writer.wait_closed()
            self._writer = None


# ── what they send ──────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass
class Agent:
    """Somebody who has conversations: they grow, fork, are taken back, and begin anew."""

    number: int
    format: str
    rng: random.Random
    turns: list[Turn] = field(default_factory=list)
    files: list[str] = field(default_factory=list)
    branches: list[list[Turn]] = field(default_factory=list)

    def next(self) -> bytes:
        chance = self.rng.random()
        if not self.turns or len(self.turns) > 21 or chance < 0.03:
            first = "look into it" if chance < 0.5 else f"job {self.number} {self.rng.random()}"
            self.turns, self.files = [Turn("user", first)], []
        elif chance < 0.06 and self.branches:
            self.turns = list(self.rng.choice(self.branches))
        elif chance < 0.1 and len(self.turns) > 4:
            self.branches = [*self.branches[-3:], list(self.turns)]
            del self.turns[self.rng.randrange(1, len(self.turns), 2) :]
        else:
            self._go_on()
        body = build(self.turns, self.format)
        if self.rng.random() < 0.5 and self.format != "gemini":
            body["stream"] = True
        if self.format == "anthropic" and self.rng.random() < 0.8:
            body["messages"][-1]["mark"] = self.rng.random()  # what is unknown, and moves
        return dumped(body)

    def _go_on(self) -> None:
        rng = self.rng
        output = (
            rng.choice(self.files) + "\nagain" if self.files and rng.random() < 0.5 else text(rng, rng.randint(3, 40))
        )
        self.files.append(output)
        ident = f"c{self.number}_{rng.randrange(10**9)}"
        self.turns += [Turn("assistant", "I look.", None, [ident]), Turn("tool", results=[(ident, output)])]


def kinds(rng: random.Random) -> Iterator[str]:
    table = {"usual": 70, "slow": 2, "429": 4, "500": 2, "529": 2, "reset at once": 2, "reset later": 3, "half": 3}
    table |= {"spoiled": 4, "packed": 4, "badly packed": 1, "leaves": 3, "outage": 2}
    while True:
        yield rng.choices(list(table), list(table.values()))[0]


async def converse(agent: Agent, url: str, count: int, numbers: Iterator[int], log: list[Sent]) -> None:
    rng, client = agent.rng, Client(url)
    body = b""
    for kind in kinds(rng):
        if count <= 0:
            break
        count -= 1
        if not log or not body or log[-1].kind not in ("429", "500", "529") or rng.random() < 0.2:
            body = agent.next()
        sent = made(rng, kind, agent, body, next(numbers))
        log.append(sent)
        sent.got = await client.ask(sent, rng.choice(["in the middle", "at once", "later"]) if kind == "leaves" else "")
    await client.close()


def made(rng: random.Random, kind: str, agent: Agent, body: bytes, number: int) -> Sent:
    if kind == "reset later" and b'"stream":true' not in body:  # there is no later in an answer of one piece
        kind = "reset at once"
    original = rng.choice(SPOIL)(body) if kind == "spoiled" else body
    headers = [("X-Number", str(number)), ("content-type", "application/json"), ("X-Api-Key", f"key {agent.number}")]
    data = original
    if "packed" in kind:
        encoding = rng.choice(list(PACK))
        data = PACK[encoding](original)
        headers.append(("Content-Encoding", encoding))
    if kind == "badly packed":
        data = original = data[:-7]
    answer = rng.choice(USUAL) if kind not in ANSWERS else kind
    return Sent(number, kind, agent.format, original, data, [*headers, ("X-Answer", answer)])


# ── what goes wrong in us ───────────────────────────────────────────────────────────────────────────────────────────


class Wrong(Exception):
    pass


class Faulty(MemoryStore):
    """Refuses every so often."""

    calls = 0

    def _check(self) -> None:
        self.calls += 1
        if self.calls % 71 == 0:
            raise StoreError("here", "not now")
        if self.calls % 173 == 0:
            raise OSError("not at all")

    def put(self, session: str, originals: Mapping[str, str]) -> None:
        self._check()
        super().put(session, originals)

    def note(self, *given: Any) -> JournalPage:
        self._check()
        return super().note(*given)

    def notes(self, *given: Any) -> JournalPage:
        self._check()
        return super().notes(*given)


@pytest.fixture
def stumbling(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every ninety-seventh request goes wrong in the middle of our work."""
    compact, calls = Session.compact, Counter[str]()
    # With the usual second, the share of requests that find the breaker open would depend on the speed of the machine.
    monkeypatch.setattr(guarded, "FIRST_PAUSE", 0.01)
    monkeypatch.setattr(guarded, "LONGEST_PAUSE", 0.01)

    def stumble(self: Session, *args: Any, **more: Any) -> Any:
        calls["all"] += 1
        if calls["all"] % 97 == 0:
            raise Wrong
        return compact(self, *args, **more)

    monkeypatch.setattr(Session, "compact", stumble)


# ── and what came of it ─────────────────────────────────────────────────────────────────────────────────────────────


def script(seen: Seen) -> Answer:
    return ANSWERS[seen.header("x-answer") or ""]


@pytest.mark.slow
@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.usefixtures("stumbling")
def test_mixed_requests_with_faults(profile: str) -> None:
    run_mixed(profile, PROFILES[profile])


def run_mixed(profile: str, count: int) -> None:
    store = Faulty()
    before, others = (open_files(), threading.active_count()), threading.enumerate()
    options: Any = {"down": "gemini", "profile": profile, "conversations": 100, "memory_mb": 16}
    with talk(script, store=store, strict=False, budget_ms=30_000, **options) as found:
        log = asyncio.run(_all(found, count))
        assert found.ask("GET", "/v1/models")[0] == 200
        assert_nothing_is_left(found, others)
        state = found.state
        seen = {int(each.header("x-number") or 0): each for each in found.upstream.seen if each.header("x-number")}
    asyncio.run(_compare(log, seen, store))
    assert_counts_add_up(state, log)
    waited_for(lambda: open_files() <= before[0] + 2 and threading.active_count() <= before[1])


async def _all(found: Talk, count: int) -> list[Sent]:
    numbers = iter(range(1, 10**9))
    formats = list(PATHS)
    logs: list[list[Sent]] = [[] for _ in range(CLIENTS)]
    agents = [Agent(n, formats[n % len(formats)], random.Random(f"agent {n}")) for n in range(CLIENTS)]
    share = -(-count // CLIENTS)
    await asyncio.gather(
        *(converse(agent, found.proxy.url, share, numbers, log) for agent, log in zip(agents, logs, strict=True))
    )
    return [sent for log in logs for sent in log]


async def _compare(log: list[Sent], seen: dict[int, Seen], store: MemoryStore) -> None:
    expanded: dict[bytes, bytes] = {}
    for sent in log:
        theirs = seen.get(sent.number)
        if theirs is None:
            assert sent.kind in ("outage", "leaves"), sent.kind
            assert sent.got is None or sent.got.status == 502
            continue
        assert sent.kind != "outage"
        if theirs.whole:
            same_request(sent, theirs, expanded, store)
        else:
            assert sent.kind == "leaves"
        if sent.kind != "leaves":
            same_answer(sent, await heard(theirs))


def same_request(sent: Sent, theirs: Seen, expanded: dict[bytes, bytes], store: MemoryStore) -> None:
    if theirs.body != sent.data:
        got = theirs.text
        if got not in expanded:
            expanded[got] = ibidem.expand(got, format=sent.format, store=store)
        assert expanded[got] == sent.original
        assert len(got) < len(sent.original)
    kept = [(name, value) for name, value in theirs.headers if name.lower() not in HOP_BY_HOP]
    assert kept == sent.headers


def same_answer(sent: Sent, theirs: Got | None) -> None:
    got = sent.got
    if theirs is None:
        assert sent.kind == "reset at once"
        assert got is not None
        assert got.status == 502
        return
    assert got is not None, sent.kind
    assert got.status == theirs.status
    assert got.whole == theirs.whole, sent.kind
    if "reset" in sent.kind:  # what is on its way then may be lost
        assert theirs.payload.startswith(got.payload)
    else:
        assert got.payload == theirs.payload
    assert _end_to_end(got.headers) == _end_to_end(theirs.headers)


def _end_to_end(headers: list[tuple[str, str]]) -> list[tuple[str, str]]:
    return [(name, value) for name, value in headers if name.lower() not in HOP_BY_HOP - {"content-length"}]


def assert_counts_add_up(state: Any, log: list[Sent]) -> None:
    totals, left = state["totals"], sum(sent.kind == "leaves" for sent in log)
    assert len(log) - left <= totals["requests"] - 1 <= len(log)
    assert totals["rewritten"] + totals["passed"] == totals["requests"]
    assert totals["rewritten"] > 0.4 * len(log)
    assert sum(each["count"] for each in state["failures"]) == totals["failed_open"] > 0.005 * len(log)
    assert len(state["conversations"]) <= 200
    assert totals["paid"] < totals["would_have_paid"]


def assert_nothing_is_left(found: Talk, others: Sequence[threading.Thread]) -> None:
    """No exchange, no task and no thread outlives its request. `others`: threads that earlier tests left idle."""

    def left() -> list[str]:
        gc.collect()
        tasks = [task for task in asyncio.all_tasks(found.proxy._loop) if "Driver" in repr(task)]
        return [*map(repr, tasks), *(repr(each) for each in gc.get_objects() if isinstance(each, Driver))]

    waited_for(lambda: len(left()) == 0 or None)
    new = [thread.name for thread in threading.enumerate() if thread not in others]
    threads = [name for name in new if name.startswith("ibidem")]
    assert len(threads) <= WORKERS + LARGE_WORKERS + FALLBACK_WORKERS + NOTE_WORKERS


def open_files() -> int:
    folder = Path("/proc/self/fd")
    return len(list(folder.iterdir())) if folder.exists() else 0
