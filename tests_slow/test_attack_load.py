"""One client's load is not another's wait: bodies that hold the interpreter, and eight clients that never pause."""

from __future__ import annotations

import asyncio
import http.client
import json
import multiprocessing
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Any
from urllib.parse import urlsplit

import pytest

from ibidem.proxy.edge.server import BackgroundServer
from ibidem.proxy.settings import Settings
from ibidem.store import MemoryStore

REQUESTS, CLIENTS = 4310, 8
ANSWER = json.dumps(
    {
        **{"id": "msg_1", "type": "message", "role": "assistant", "model": "claude-sonnet-4-5"},
        **{"content": [{"type": "text", "text": "fine"}], "stop_reason": "end_turn"},
        "usage": {"input_tokens": 9, "output_tokens": 1},
    }
).encode()
WAIT = 0.3
"""Seconds that others may wait more than they do without the load, on a machine that has nothing else to do."""


# ── each in a process of its own ────────────────────────────────────────────────────────────────────────────────────


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
            left = int(head.partition(b"content-length:")[2].split(b"\r\n")[0])
            while left:
                left -= len(await reader.read(min(left, 2**20)))
            start = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
            writer.write(start % len(ANSWER) + ANSWER)
            await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError):
        writer.close()


def _upstream(told: Connection) -> None:
    async def main() -> None:
        server = await asyncio.start_server(_answer, "127.0.0.1", 0, limit=2**20, backlog=256)
        told.send(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
        await asyncio.Event().wait()

    asyncio.run(main())


def _proxy(told: Connection, upstream: str, settings: dict[str, Any]) -> None:
    upstreams = dict.fromkeys(("anthropic", "openai", "gemini"), upstream)
    with BackgroundServer(Settings(port=0, upstreams=upstreams, **settings), MemoryStore()) as proxy:
        told.send(proxy.url)
        told.recv()


@contextmanager
def served(**settings: Any) -> Iterator[str]:
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    upstream = context.Process(target=_upstream, args=(there,), daemon=True)
    upstream.start()
    mine, its = context.Pipe()
    proxy = context.Process(target=_proxy, args=(its, here.recv(), settings), daemon=True)
    proxy.start()
    try:
        yield mine.recv()
        mine.send(None)
        proxy.join(30)
    finally:
        for process in (proxy, upstream):
            process.terminate()
            process.join(30)
        for end in (here, there, mine, its):
            end.close()


class Client:
    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=120)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *exception: object) -> None:
        self._connection.close()

    def post(self, body: bytes) -> float:
        """Seconds that it took."""
        start = time.perf_counter()
        self._connection.request("POST", "/v1/messages", body, {"content-type": "application/json"})
        with self._connection.getresponse() as answer:
            assert answer.status == 200
            answer.read()
        return time.perf_counter() - start

    def state(self) -> Any:
        self._connection.request("GET", "/ibidem/api/state")
        with self._connection.getresponse() as answer:
            return json.loads(answer.read())


# ── bodies ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def request(*messages: Any) -> bytes:
    return json.dumps({"model": "claude-sonnet-4-5", "max_tokens": 9, "messages": list(messages)}).encode()


def read(number: int, output: str, given: Any = None) -> list[Any]:
    call = {"type": "tool_use", "id": f"t{number}", "name": "Read", "input": given or {"file_path": f"/{number}.py"}}
    result = {"type": "tool_result", "tool_use_id": f"t{number}", "content": output}
    return [{"role": "assistant", "content": [call]}, {"role": "user", "content": [result]}]


def lines(count: int, seed: int = 0) -> str:
    return "\n".join(f"value_{number} = compute({number * 31 + seed}, 'name {number % 97}')" for number in range(count))


BODIES: dict[str, Callable[[str], bytes]] = {
    "a million keys": lambda first: request(
        _said(first), *read(1, "ok", {f"key_{number:07}": number for number in range(1_000_000)})
    ),
    "as many keys as are read": lambda first: request(
        _said(first), *read(1, "ok", {f"key_{number:07}": number for number in range(48_000)})
    ),
    "as many messages as are read": lambda first: request(*_chat(first, 12_001)),
    "as many numbers as are read": lambda first: request(_said(first), *read(1, "ok", {"all": [7] * 290_000})),
    "a long text": lambda first: request(_said(first), *read(1, lines(250_000))),
    "a long conversation": lambda first: request(
        _said(first), *(part for number in range(700) for part in read(number, lines(400, number)))
    ),
}


def _said(text: str) -> Any:
    return {"role": "user", "content": text}


def _chat(first: str, count: int) -> list[Any]:
    spoken = [{"role": "assistant" if number % 2 else "user", "content": "yes"} for number in range(1, count)]
    return [_said(first), *spoken]


# ── what others notice of it ────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("shape", BODIES)
def test_others_do_not_wait_for_who_posts_large_bodies(shape: str, tally: Callable[..., None]) -> None:
    waits: dict[str, list[float]] = {"before": [], "while": []}
    phase, over = "before", threading.Event()
    with served() as url:
        small = request(_said("something small"), *read(1, lines(20)))
        large = [BODIES[shape](f"number {number}") for number in range(3)]
        with Client(url) as client:
            for _ in range(20):  # what is loaded when it is first needed
                client.post(small)

        def others() -> None:
            with Client(url) as client:
                while not over.is_set():
                    waits[phase].append(client.post(small))

        other = threading.Thread(target=others)
        other.start()
        time.sleep(1)
        phase = "while"
        with Client(url) as client:
            took = [client.post(body) for body in large]
            over.set()
            other.join()
            failed = {each["reason"].partition(":")[0]: each["count"] for each in client.state()["failures"]}
    longest = {name: max(found) for name, found in waits.items()}
    tally(
        f"others, while somebody posts {shape}",
        megabytes=round(len(large[0]) / 1e6, 1),
        large_took=f"{max(took):.2f} s",
        others=len(waits["while"]),
        longest_wait=f"{longest['while']:.3f} s",
        before=f"{longest['before']:.3f} s",
        not_rewritten=sum(failed.values()),
    )
    assert longest["while"] <= WAIT + 10 * longest["before"], "10 times: what a busy machine does to both"


def test_eight_clients_and_thousands_of_requests(tally: Callable[..., None]) -> None:
    """Conversations that grow to some hundred kilobytes, all of them at once."""

    def converse(url: str, number: int, count: int) -> list[float]:
        found = []
        with Client(url) as client:
            for run in range(count // 60 + 1):
                messages = [_said(f"client {number}, run {run}")]
                for turn in range(min(60, count - 60 * run)):
                    found.append(client.post(request(*messages)))
                    messages += read(turn, lines(60 + turn, turn // 3))
        return found

    with served() as url, ThreadPoolExecutor(CLIENTS) as pool:
        share = [REQUESTS // CLIENTS + (number < REQUESTS % CLIENTS) for number in range(CLIENTS)]
        took = list(pool.map(lambda number: converse(url, number, share[number]), range(CLIENTS)))
        with Client(url) as client:
            state = client.state()
    sent = sum(map(len, took))
    tally("eight clients at once", requests=sent, failed_open=state["totals"]["failed_open"], busy=_busy(state))
    assert sent == state["totals"]["requests"] == REQUESTS
    assert _busy(state) == 0


def test_beyond_that_load_what_is_not_rewritten_is_counted(tally: Callable[..., None]) -> None:
    """So little time for each that many are not done in time: every one of them is answered, and counted."""
    with served(budget_ms=3) as url, ThreadPoolExecutor(32) as pool:

        def converse(number: int) -> int:
            messages = [_said(f"client {number}")]
            with Client(url) as client:
                for turn in range(12):
                    client.post(request(*messages))
                    messages += read(turn, lines(1500, turn // 3))
            return 12

        sent = sum(pool.map(converse, range(32)))
        with Client(url) as client:
            state = client.state()
    failures = {each["reason"]: each["count"] for each in state["failures"]}
    tally(
        "thirty-two clients and no time", requests=sent, **{name.partition(":")[0]: n for name, n in failures.items()}
    )
    assert state["totals"]["requests"] == sent
    assert sum(failures.values()) == state["totals"]["failed_open"] > 0


def _busy(state: Any) -> int:
    return sum(each["count"] for each in state["failures"] if each["reason"].startswith("busy"))
