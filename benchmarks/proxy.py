"""What the proxy adds to a plain pass-through: `python -m benchmarks.proxy`, or `--quick`.

The pass-through is aiohttp on both sides with the settings of ours, copies headers, and neither reads nor rewrites
anything. It, ours, and the upstream run in a process each; this one makes the load. Everything goes over loopback, and
what is compared is run in turns (ours first and last alike), so that other work on the machine slows both sides of a
ratio or neither. With fewer cores than processes they wait for each other: ratios are then those of the work done, and
times are above what a machine of one's own shows.

Bodies are those of growing conversations, made before the clock runs: each request says all that the one before did,
and one exchange more. `warm` requests go on a conversation that the proxy has seen; the first of each is `cold`.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import multiprocessing
import os
import platform
import random
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median, quantiles
from typing import Any, NamedTuple, Self
from urllib.parse import urlsplit

import aiohttp
import orjson
from aiohttp import web
from multidict import CIMultiDict
from yarl import URL

from ibidem.proxy.edge.server import run_loop as run_loop
from ibidem.proxy.edge.server import serve_proxy
from ibidem.proxy.settings import Settings
from ibidem.store import MemoryStore

from .history import text

MEDIAN_AIM, CHUNK_AIM, IDLE_AIM = 1.3, 1.2, 100.0
RATE_AIM = 0.5
WARM_REQUESTS = 16
"""Requests that go on a conversation where many are asked at once, so that bodies stay at about 10 KB."""
ANSWER = orjson.dumps(
    {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "claude-sonnet-4-5",
        "content": [{"type": "text", "text": "Next I look at another file."}],
        "stop_reason": "end_turn",
        "usage": {"input_tokens": 12, "cache_read_input_tokens": 9000, "cache_creation_input_tokens": 800}
        | {"output_tokens": 9},
    }
)
EVENT = b'event: content_block_delta\ndata: {"type":"content_block_delta","index":0,"delta":{"text":" word"}}\n\n'
PATH = "/v1/messages"
HOP_BY_HOP = frozenset({"connection", "host", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade"})
LINES = text(random.Random(7), 200_000).split("\n")
LINE = 200_000 // len(LINES) + 14


# ── the three servers ───────────────────────────────────────────────────────────────────────────────────────────────


async def listen(
    handler: Callable[[web.BaseRequest], Awaitable[web.StreamResponse]],
    told: Connection,
    port: int | None = None,
) -> None:
    """With a `port`, other processes listen there too (0: a free one)."""
    server = web.Server(handler, handler_cancellation=True, auto_decompress=False, access_log=None)
    runner = web.ServerRunner(server)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", port or 0, backlog=1024, reuse_port=port is not None or None)
    await site.start()
    told.send(f"http://127.0.0.1:{runner.addresses[0][1]}")
    await asyncio.Event().wait()


async def upstream(told: Connection) -> None:
    """Drains the body, and answers with a fixed document, or with so many events as the path asks for."""

    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        async for _ in request.content.iter_any():
            pass
        chunks = int(request.rel_url.query.get("chunks", 0))
        if not chunks:
            return web.Response(body=ANSWER, content_type="application/json")
        pause = float(request.rel_url.query["pause"])
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for _ in range(chunks):
            await response.write(EVENT)
            await asyncio.sleep(pause)  # so that each chunk arrives alone
        return response

    await listen(answer, told)


async def plain(told: Connection, base: str, port: int | None = None) -> None:
    """The pass-through."""
    client = aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, ttl_dns_cache=300),
        cookie_jar=aiohttp.DummyCookieJar(),
        auto_decompress=False,
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=60),
        read_bufsize=2**18,
        skip_auto_headers=("Accept", "Accept-Encoding", "Content-Type", "User-Agent"),
    )

    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        url = URL(base + request.raw_path, encoded=True)
        body = b"".join([data async for data in request.content.iter_any()])
        async with client.request(request.method, url, headers=passed_on(request.raw_headers), data=body) as answer:
            headers = passed_on(answer.raw_headers)
            response = web.StreamResponse(status=answer.status, reason=answer.reason, headers=headers)
            await response.prepare(request)
            async for data in answer.content.iter_any():
                await response.write(data)
            await response.write_eof()
            return response

    await listen(handle, told, port)


def passed_on(headers: Sequence[tuple[bytes, bytes]]) -> CIMultiDict[str]:
    named = ((name.decode("latin-1"), value.decode("latin-1")) for name, value in headers)
    return CIMultiDict([(name, value) for name, value in named if name.lower() not in HOP_BY_HOP])


async def ours(told: Connection, base: str, options: dict[str, Any]) -> None:
    settings = Settings(port=0, upstreams={"anthropic": base}, **options)
    await serve_proxy(settings, ready=lambda address: told.send(address.url), store=MemoryStore())


def run(server: Callable[..., Any], told: Connection, plain_loop: bool, *args: Any) -> None:
    threading.Thread(target=_tell, args=(told,), daemon=True).start()
    (asyncio.run if plain_loop else run_loop)(server(told, *args))  # the loop that the proxy runs on, for all of them


def _tell(told: Connection) -> None:
    """Answers what the benchmark asks of this process, until it goes away."""
    answers: dict[str, Callable[[], float]] = {"cpu": time.process_time, "rss": _resident}
    try:
        while True:
            told.send(answers[told.recv()]())
    except (EOFError, OSError):
        os._exit(0)


def _resident() -> float:
    """Bytes of memory that this process has now; those that only wait to be given back are not counted."""
    gc.collect()
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return 1024.0 * int(line.split()[1])
    return 0.0


class Server:
    """A process that serves."""

    plain_loop = False
    """Whether it does without the faster loop, also where that is installed."""

    def __init__(self, server: Callable[..., Any], *args: Any) -> None:
        context = multiprocessing.get_context("spawn")
        self._told, other = context.Pipe()
        self._process = context.Process(target=run, args=(server, other, self.plain_loop, *args), daemon=True)
        self._process.start()
        other.close()
        if not self._told.poll(60):
            raise TimeoutError(f"{server.__name__} did not start")
        self.url: str = self._told.recv()

    def ask(self, what: str) -> float:
        self._told.send(what)
        return float(self._told.recv())

    def stop(self) -> None:
        self._told.close()
        self._process.terminate()
        self._process.join(10)


@contextmanager
def serving(server: Callable[..., Any], *args: Any) -> Iterator[Server]:
    found = Server(server, *args)
    try:
        yield found
    finally:
        found.stop()


# ── the load ────────────────────────────────────────────────────────────────────────────────────────────────────────


def _output(rng: random.Random, lines: int) -> str:
    """Lines like those of code: one in four stands elsewhere too."""
    known = rng.choices(LINES, k=lines)
    return "\n".join(line if index % 4 == 0 else f"{line}  {rng.random()}" for index, line in enumerate(known))


class Growing:
    """A conversation of about that many bytes in the end, as the bodies of its requests."""

    def __init__(self, size: int, requests: int, seed: int, begin: float = 0.8) -> None:
        rng = random.Random(seed)
        each = max(300, min(10_000, size // 20)) // LINE
        seen: list[str] = []
        head = {"model": "claude-sonnet-4-5", "max_tokens": 4096, "system": "You are an agent."}
        first = {"role": "user", "content": f"Make the tests of part {seed} pass."}
        self._pieces = [orjson.dumps(head)[:-1] + b',"messages":[' + orjson.dumps(first)]
        self._ends: list[int] = []
        length = 0
        while len(self._ends) < requests:
            step = self._exchange(len(self._pieces), rng, seen, each)
            self._pieces.append(step)
            length += len(step)
            if length >= begin * size:
                self._ends.append(len(self._pieces))

    @staticmethod
    def _exchange(number: int, rng: random.Random, seen: list[str], each: int) -> bytes:
        """A call and its result: one in five is a file that was read before, with another line."""
        call = f"toolu_{number:020d}"
        if seen and rng.random() < 0.2:
            output = f"{rng.choice(seen)}\n# {number}"
        else:
            output = _output(rng, rng.randint(each // 2, each * 3 // 2))
            seen.append(output)
        use = {"type": "tool_use", "id": call, "name": "Read", "input": {"file_path": f"/src/part_{number}.py"}}
        result = {"type": "tool_result", "tool_use_id": call, "content": output}
        said = [{"role": "assistant", "content": [use]}, {"role": "user", "content": [result]}]
        return b"," + b",".join(map(orjson.dumps, said))

    def __len__(self) -> int:
        return len(self._ends)

    def request(self, number: int, query: str = "") -> bytes:
        """All bytes of an HTTP request."""
        body = b"".join([*self._pieces[: self._ends[number]], b"]}"])
        head = f"POST {PATH}{query} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        return f"{head}User-Agent: benchmark\r\nx-api-key: none\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


class Client:
    """One connection. As little of HTTP as it takes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def of(cls, url: str) -> Self:
        parts = urlsplit(url)
        return cls(*await asyncio.open_connection(parts.hostname, parts.port, limit=2**20))

    async def ask(self, request: bytes) -> float:
        """Seconds from the first byte out to the last byte in."""
        start = time.perf_counter()
        self._writer.write(request)
        head = (await self._reader.readuntil(b"\r\n\r\n")).lower()
        if not head.startswith(b"http/1.1 200"):
            raise RuntimeError(head.decode("latin-1"))
        if b"\r\ntransfer-encoding: chunked" in head:
            while size := int(await self._reader.readuntil(b"\r\n"), 16):
                await self._reader.readexactly(size + 2)
            await self._reader.readexactly(2)
        else:
            length = head.partition(b"\r\ncontent-length:")[2].partition(b"\r\n")[0]
            await self._reader.readexactly(int(length))
        return time.perf_counter() - start

    def close(self) -> None:
        self._writer.close()


Both = dict[str, Server]
"""The pass-through and ours."""


class Times(NamedTuple):
    warm: list[float]
    cold: list[float]
    spent: list[float]
    """Processor time of the warm ones of each conversation, per request."""


async def latencies(both: Both, size: int, conversations: int, requests: int, seed: int) -> dict[str, Times]:
    """Of requests one after the other, by turns through the one and the other."""
    clients = {name: await Client.of(server.url) for name, server in both.items()}
    found = {name: Times([], [], []) for name in both}
    for number in range(conversations):
        conversation = Growing(size, requests, seed + number)
        before: dict[str, float] = {}
        for step in range(len(conversation)):
            request = conversation.request(step)
            for name in sorted(clients, reverse=step % 2 == 1):
                took = await clients[name].ask(request)
                (found[name].warm if step else found[name].cold).append(took)
                if not step:
                    before[name] = both[name].ask("cpu")
        for name, server in both.items():
            found[name].spent.append((server.ask("cpu") - before[name]) / (len(conversation) - 1))
    for client in clients.values():
        client.close()
    return found


class Rate(NamedTuple):
    requests: float = 0.0
    """Per second."""
    spent: float = float("inf")
    """Processor time of one, in seconds."""


async def throughput(both: Both, clients: int, total: int, rounds: int) -> dict[str, Rate]:
    """Of so many clients at once, each with conversations of its own; the best of several rounds."""
    each = max(1, total // clients // WARM_REQUESTS)
    best = dict.fromkeys(both, Rate())
    for turn in range(rounds):
        for name in sorted(both, reverse=turn % 2 == 1):
            found, before = await _rate(both[name], clients, each, 10_000 * (turn + 1)), best[name]
            best[name] = Rate(max(before.requests, found.requests), min(before.spent, found.spent))
    return best


async def _rate(server: Server, clients: int, each: int, seed: int) -> Rate:
    seeds = [range(seed + number * each, seed + number * each + each) for number in range(clients)]
    work = [[Growing(10_000, WARM_REQUESTS + 1, one) for one in some] for some in seeds]
    open_ones = [await Client.of(server.url) for _ in work]
    for client, conversations in zip(open_ones, work, strict=True):
        for conversation in conversations:
            await client.ask(conversation.request(0))

    async def talk(client: Client, conversations: list[Growing]) -> None:
        for conversation in conversations:
            for step in range(1, len(conversation)):
                await client.ask(conversation.request(step))

    gc.collect()
    before, start = server.ask("cpu"), time.perf_counter()
    await asyncio.gather(*map(talk, open_ones, work))
    took, spent = time.perf_counter() - start, server.ask("cpu") - before
    for client in open_ones:
        client.close()
    asked = clients * each * WARM_REQUESTS
    return Rate(asked / took, spent / asked)


async def per_chunk(both: Both, chunks: int, rounds: int) -> dict[str, float]:
    """Seconds of processor time per chunk of a stream; chunks come one at a time. The least of several rounds."""
    best = dict.fromkeys(both, float("inf"))
    for turn in range(rounds):
        request = Growing(10_000, 1, 77_000 + turn).request(0, f"?chunks={chunks}&pause=0.001")
        for name in sorted(both, reverse=turn % 2 == 1):
            server = both[name]
            client = await Client.of(server.url)
            before = server.ask("cpu")
            await client.ask(request)
            best[name] = min(best[name], (server.ask("cpu") - before) / chunks)
            client.close()
    return best


def settled(server: Server) -> float:
    """Bytes of memory of a server that has nothing to do, once that is all that it loads by itself."""
    before = 0.0
    for _ in range(20):
        time.sleep(0.5)
        now = server.ask("rss")
        if now == before:
            break
        before = now
    return before


async def resident(server: Server, conversations: int, size: int, seed: int) -> float:
    """Bytes of memory after so many conversations of three requests."""
    client = await Client.of(server.url)
    for number in range(conversations):
        conversation = Growing(size, 3, seed + number, begin=0.6)
        for step in range(len(conversation)):
            await client.ask(conversation.request(step))
    client.close()
    return server.ask("rss")


# ── what is told ────────────────────────────────────────────────────────────────────────────────────────────────────


def row(label: str, plainly: float, mine: float, digits: int = 2, aim: float | None = None) -> None:
    wanted = "" if aim is None else f"{aim:6.1f}"
    columns = f"{plainly:10.{digits}f} {mine:10.{digits}f} {mine - plainly:+10.{digits}f}"
    print(f"{label:34} {columns} {mine / plainly:7.2f} {wanted:>6}", flush=True)


def tail(times: list[float]) -> float:
    return quantiles(times, n=100, method="inclusive")[98] if len(times) > 1 else times[0]


class Amounts(NamedTuple):
    latency: tuple[tuple[str, int, int, int], ...]
    """Name, bytes, conversations, requests of each."""
    requests: int
    chunks: int
    rounds: int
    conversations: int


FULL = Amounts((("10 KB", 10_000, 20, 21), ("500 KB", 500_000, 8, 41), ("5 MB", 5_000_000, 2, 41)), 2048, 4000, 3, 1000)
QUICK = Amounts((("10 KB", 10_000, 5, 11), ("500 KB", 500_000, 3, 16), ("5 MB", 5_000_000, 1, 6)), 512, 500, 2, 100)


async def compare(both: Both, amounts: Amounts) -> None:
    print(f"{'':34} {'plain':>10} {'ours':>10} {'added':>10} {'ratio':>7} {'aim':>6}")
    await latencies(both, 10_000, 2, 10, 1)  # what is loaded once
    for name, size, conversations, requests in amounts.latency:
        times = await latencies(both, size, conversations, requests, 100 * size)
        aim = MEDIAN_AIM if name == "500 KB" else None
        before, after = times["plain"], times["ours"]
        row(f"{name}, warm, p50, ms", 1e3 * median(before.warm), 1e3 * median(after.warm), aim=aim)
        row(f"{name}, warm, p99, ms", 1e3 * tail(before.warm), 1e3 * tail(after.warm))
        row(f"{name}, warm, processor time, ms", 1e3 * min(before.spent), 1e3 * min(after.spent))
        row(f"{name}, first request, p50, ms", 1e3 * median(before.cold), 1e3 * median(after.cold))
    for clients in (1, 32, 256):
        rates = await throughput(both, clients, amounts.requests, amounts.rounds)
        one, two = rates["plain"], rates["ours"]
        asked, aim = f"{clients} client{'s' * (clients > 1)}, 10 KB", RATE_AIM if clients == 32 else None
        row(f"requests/s, {asked}", one.requests, two.requests, 0, aim)
        row("    processor time of each, µs", 1e6 * one.spent, 1e6 * two.spent, 0)
    spent = await per_chunk(both, amounts.chunks, amounts.rounds)
    row("processor time of a chunk, µs", 1e6 * spent["plain"], 1e6 * spent["ours"], 1, CHUNK_AIM)


async def weigh(base: str, amounts: Amounts) -> None:
    """Memory, by itself: in processes that did nothing else."""
    count = amounts.conversations
    columns = ("idle", "aim", "in use", f"{count:,}", f"{2 * count:,}")
    print(f"\n{'memory in MB, conversations of 30 KB':34}", *(f"{each:>8}" for each in columns))
    bounded = {"conversations": max(1, count // 20), "memory_mb": 8}
    for name, options in (("ours", {}), (f"at most {bounded['conversations']}, and 8 MB", bounded)):
        with serving(ours, base, options) as server:
            found = [settled(server), 1e6 * IDLE_AIM]
            for begin, conversations in ((0, 1), (1, count), (1 + count, count)):
                found.append(await resident(server, conversations, 30_000, begin))
            print(f"{name:34}", *(f"{each / 1e6:8.0f}" for each in found), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="about twenty seconds")
    parser.add_argument("--profile", default="lossless")
    parser.add_argument("--plain-loop", action="store_true", help="without uvloop, also where it is installed")
    parser.add_argument("--processes", metavar="N,N", help="only what several processes on one port bring: 1,2,4")
    args = parser.parse_args()
    amounts = QUICK if args.quick else FULL
    python, cores = platform.python_version(), len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else "?"
    Server.plain_loop = args.plain_loop
    loop = "asyncio" if args.plain_loop or find_spec("uvloop") is None else "uvloop"
    made_of = f"Python {python}, aiohttp {aiohttp.__version__} on {loop}"
    if args.processes:
        from .many import compare as compare_many

        print(f"{made_of}, {cores} cores, of which provider and load take two; profile {args.profile}")
        counts = [int(count) for count in args.processes.split(",")]
        compare_many(counts, args.profile, 2 * amounts.requests, amounts.rounds, args.plain_loop)
        return
    print(f"{made_of}, {cores} cores for 4 processes; profile {args.profile}")
    with serving(upstream) as provider:
        with serving(plain, provider.url) as one, serving(ours, provider.url, {"profile": args.profile}) as two:
            asyncio.run(compare({"plain": one, "ours": two}, amounts))
        asyncio.run(weigh(provider.url, amounts))


if __name__ == "__main__":
    main()
