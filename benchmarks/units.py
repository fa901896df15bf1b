"""Unit figures of a deployment, measured here: what one turn, one request, one conversation and one megabyte take.

`benchmarks.scale` multiplies them. Times are processor time; bytes are what a file or a Redis server really grew by.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

import ibidem
from ibidem.engine.journal_store import JournalStore
from ibidem.proxy.accounting.usage_writer import UsageWriter
from ibidem.proxy.edge.server import serve_proxy
from ibidem.proxy.settings import Settings
from ibidem.store import MemoryStore, RedisStore, SqliteStore, Store

from .cluster import alone, made_up
from .proxy import Client, Growing, Server, latencies, resident, serving, settled, upstream
from .warm import Talk

SIZES = (10_000, 100_000, 500_000)
"""Bodies whose requests are timed."""
LIVE_BYTES = 100_000
"""Of the conversations whose memory is measured."""
LINES = 60
"""Of a result that are shown, at most, in conversations that go to a store."""


class Kept(NamedTuple):
    """What a store has of conversations."""

    conversation: float
    """Bytes by which it grew for one."""
    notes: float
    """Of these: what was noted of its turns, as it is kept."""
    originals: float
    """And the texts that were let go."""


class RedisUse(NamedTuple):
    """Of a Redis server, by one turn."""

    commands: float
    seconds: float


class Units(NamedTuple):
    turns: int
    body: float
    """Bytes of the last request of a conversation of so many turns."""
    sqlite: Kept
    redis: Kept | None
    redis_use: RedisUse | None
    requests: dict[int, float]
    """Body → processor seconds of the proxy for a warm request."""
    live: float
    """Bytes of memory of a conversation of `LIVE_BYTES` that is known."""
    idle: float
    """Bytes of memory of a proxy that knows none."""
    ledger: float
    """Bytes of a row."""
    report: float
    """Bytes of logs in a second of processor time."""


def talk_through(store: Store, turns: int, seed: int) -> int:
    """All turns of a conversation, kept as the proxy keeps them; bytes of its last request."""
    talk = Talk(turns, LINES, seed)
    session = ibidem.Session("recoverable", store=store)
    notebook, now, body = JournalStore(session, store, f"conversation {seed}"), 0.0, b""
    for length in talk.lengths:
        body = talk.request(length)
        now += 10.0
        notebook.read()
        found = session.compact(body, at=now)
        notebook.write()
        size = len(found.request) // 4
        session.answered(at=now + 5.0, context=size, cached=max(0, size - 500))
        notebook.write()
    return len(body)


def kept(store: Store, size: Callable[[], float], turns: int, count: int) -> tuple[Kept, float]:
    """The first conversation is what is laid out once; and bytes of a last request, on average."""
    talk_through(store, turns, 0)
    before, was = size(), store.stats()
    bodies = [talk_through(store, turns, number) for number in range(1, count + 1)]
    after, now = size(), store.stats()
    notes, originals = now.bytes_states - was.bytes_states, now.bytes_stored - was.bytes_stored
    return Kept((after - before) / count, notes / count, originals / count), sum(bodies) / count


def in_sqlite(folder: Path, turns: int, count: int) -> tuple[Kept, float]:
    file = folder / "store.sqlite3"
    with SqliteStore(file) as store:
        return kept(store, lambda: _closed_size(store, file), turns, count)


def _closed_size(store: Store, file: Path) -> float:
    """A store that is closed has written all to its file."""
    store.close()
    return float(sum(path.stat().st_size for path in file.parent.glob(f"{file.name}*")))


def in_redis(url: str, turns: int, count: int) -> tuple[Kept, RedisUse]:
    import redis

    asked = redis.Redis.from_url(url)

    def told(what: str) -> dict[str, Any]:
        found: dict[str, Any] = asked.info(what)
        return found

    def seconds() -> float:
        found = told("cpu")
        return float(found["used_cpu_user"] + found["used_cpu_sys"])

    with RedisStore(url) as store:
        talk_through(store, turns, -1)
        commands, spent = told("stats")["total_commands_processed"], seconds()
        found, _ = kept(store, lambda: float(told("memory")["used_memory"]), turns, count)
        done = (count + 1) * turns
        use = RedisUse((told("stats")["total_commands_processed"] - commands) / done, (seconds() - spent) / done)
    asked.close()
    return found, use


async def kept_by_redis(told: Connection, base: str, profile: str, url: str | None, ledger: str) -> None:
    """The proxy as it runs in a team: with a store that others share, and a ledger."""
    settings = Settings(port=0, upstreams={"anthropic": base}, profile=profile)
    store: Store = RedisStore(url, prefix="{proxy}:") if url else MemoryStore()
    gains = UsageWriter(Path(ledger), "")
    await serve_proxy(settings, ready=lambda address: told.send(address.url), store=store, gains=gains)


def of_proxy(profile: str, url: str | None, folder: Path, rounds: int) -> tuple[dict[int, float], float, float, float]:
    """Seconds of a warm request by its size; bytes of a conversation and of an idle process; bytes of a ledger row."""
    ledger = folder / "gains.sqlite3"
    with ExitStack() as stack:
        provider = stack.enter_context(serving(upstream))
        server = stack.enter_context(serving(kept_by_redis, provider.url, profile, url, str(ledger)))
        idle = settled(server)
        requests = asyncio.run(_requests(server, rounds))
        row = _row(server, ledger)
    with serving(upstream) as provider, serving(kept_by_redis, provider.url, profile, url, str(ledger)) as server:
        asyncio.run(resident(server, 5, LIVE_BYTES, 5_000_000))
        before, count = server.ask("rss"), 20 * rounds
        live = (asyncio.run(resident(server, count, LIVE_BYTES, 6_000_000)) - before) / count
    return requests, live, idle, row


async def _requests(server: Server, rounds: int) -> dict[int, float]:
    await latencies({"ours": server}, SIZES[0], 2, 10, 1)  # what is loaded once
    found = {}
    for size in SIZES:
        times = await latencies({"ours": server}, size, rounds, 21, 1000 * size)
        found[size] = min(times["ours"].spent)
    return found


def _row(server: Server, ledger: Path, requests: int = 400) -> float:
    """Bytes by which the ledger grows."""

    async def ask(count: int, seed: int) -> None:
        client, talk = await Client.of(server.url), Growing(10_000, count, seed, begin=0.1)
        for step in range(count):
            await client.ask(talk.request(step))
        client.close()
        await asyncio.sleep(3)  # it is written behind the answers

    asyncio.run(ask(20, 7))
    before = _sizes(ledger)
    asyncio.run(ask(requests, 8))
    return (_sizes(ledger) - before) / requests


def _sizes(file: Path) -> int:
    return sum(path.stat().st_size for path in file.parent.glob(f"{file.name}*"))


def of_report(folder: Path, size: int) -> float:
    logs = made_up(folder, size)
    home = {name: str(folder / name) for name in ("HOME", "XDG_CACHE_HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME")}
    found = sum(path.stat().st_size for path in logs.rglob("*.jsonl"))
    return found / sum(alone(logs, {**os.environ, **home}).seconds)


def units(profile: str, turns: int, count: int, rounds: int, url: str | None, report_bytes: int) -> Units:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        sqlite, body = in_sqlite(folder, turns, count)
        redis, use = in_redis(url, turns, count) if url else (None, None)
        requests, live, idle, row = of_proxy(profile, url, folder, rounds)
        return Units(turns, body, sqlite, redis, use, requests, live, idle, row, of_report(folder / "r", report_bytes))
