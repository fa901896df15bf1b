"""Memory of the proxy under load, by minute: `python -m benchmarks.memory`, or `--minutes 3`.

Starts `ibidem proxy` as users do, in front of a mock provider in a process of its own, and sends mixed requests at a
fixed rate: conversations of 10 KB to 4 MB, few of them large, that grow turn by turn and read files again; new ones all
the time, some of them branches of others and some that begin with the same prompt; some are abandoned. Some bodies are
packed with gzip, half of the answers are streams, and some clients leave before the answer. What the system counts
for each process is printed each minute, with
how many conversations the proxy has in memory and what it believes they take. The last lines compare the second half of
the run with the documented limit.
"""

from __future__ import annotations

import argparse
import asyncio
import gzip
import random
import re
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import mean
from typing import Any, NamedTuple

import orjson
from aiohttp import web

from .many import Several, proxies, states
from .proxy import PATH, Client, _output, listen, serving

MINUTES, RATE, CLIENTS, ACTIVE = 10.0, 10.0, 6, 16
"""Of a run: its length, requests per second, connections, and conversations that go on at the same time."""
SMALLEST, LARGEST, TAIL = 10_000, 4_000_000, 0.5
"""Bytes of a conversation at its end, and the exponent of their distribution: less than 1 is a long tail."""
FORKS, SAME_PROMPT, RESUMED, ABANDONED = 0.15, 0.15, 0.2, 0.02
"""Shares: of new conversations that branch off another, that begin with a prompt of others, and that are large already
in their first request; and of requests after which a conversation does not go on."""
PACKED, STREAMED, BROKEN_OFF = 0.15, 0.5, 0.03
"""Shares of requests: compressed with gzip, answered by a stream, and abandoned by their client."""
PROMPTS = 5
"""That many conversations begin with."""
LEAVES_AFTER = 0.01
"""Seconds."""
CHUNKS = 12
"""Of a stream."""
LINE_BYTES = 70
"""Of a file, on average."""
BASE_MB, FACTOR = 130.0, 1.25
"""The documented limit of a process: so much for itself, and so many times its memory setting."""
GROWTH = 0.05
"""Share by which memory may grow from the third quarter of a run to the last."""


# ── the provider ────────────────────────────────────────────────────────────────────────────────────────────────────


async def provider(told: Any) -> None:
    """Counts tokens by bytes, and answers as a stream if the client asks for one."""

    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        size = 0
        async for data in request.content.iter_any():
            size += len(data)
        tokens = size // (1 if request.headers.get("content-encoding") else 4)
        usage = {"input_tokens": tokens // 20, "cache_read_input_tokens": tokens - tokens // 10}
        usage |= {"cache_creation_input_tokens": tokens // 20, "output_tokens": CHUNKS}
        message: dict[str, Any] = {"id": "msg_1", "type": "message", "role": "assistant", "model": "claude-sonnet-4-5"}
        message |= {"content": [], "stop_reason": None, "usage": usage}
        if "text/event-stream" not in request.headers.get("accept", ""):
            said = {"content": [{"type": "text", "text": "Next."}], "stop_reason": "end_turn"}
            return web.Response(body=orjson.dumps(message | said), content_type="application/json")
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for kind, fields in _events(message):
            await response.write(b"event: %s\ndata: %s\n\n" % (kind, orjson.dumps({"type": kind.decode(), **fields})))
            await asyncio.sleep(0.002)
        return response

    await listen(answer, told)


def _events(message: dict[str, Any]) -> Iterator[tuple[bytes, dict[str, Any]]]:
    yield b"message_start", {"message": message}
    yield b"content_block_start", {"index": 0, "content_block": {"type": "text", "text": ""}}
    for _ in range(CHUNKS):
        yield b"content_block_delta", {"index": 0, "delta": {"type": "text_delta", "text": " word"}}
    yield b"content_block_stop", {"index": 0}
    yield b"message_delta", {"delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": CHUNKS}}
    yield b"message_stop", {}


# ── the load ────────────────────────────────────────────────────────────────────────────────────────────────────────


class Talk:
    """A conversation that grows, as the bytes of its messages."""

    def __init__(self, prompt: str, size: int, rng: random.Random, shared: Sequence[bytes] = ()) -> None:
        """`shared` are the messages of another that it branches off."""
        self.goal = size
        self._rng = rng
        self._files: dict[str, str] = {}
        self._calls = 0
        self.messages = [*shared] or [orjson.dumps({"role": "user", "content": prompt})]
        self.size = sum(map(len, self.messages))

    @property
    def body(self) -> bytes:
        head = {"model": "claude-sonnet-4-5", "max_tokens": 4096, "system": "You are an agent. " * 40}
        return orjson.dumps(head)[:-1] + b',"messages":[' + b",".join(self.messages) + b"]}"

    @property
    def is_over(self) -> bool:
        return self.size >= self.goal

    def grow(self, least: int = 0) -> None:
        """By a turn, or by as many as it takes to have so many bytes."""
        self._turn()
        while self.size < least:
            self._turn()

    def _turn(self) -> None:
        uses, results = [], []
        for _ in range(self._rng.choice((1, 1, 1, 2, 3))):
            self._calls += 1
            name, text = self._read()
            ident = f"toolu_{self._rng.getrandbits(64):020d}"
            uses.append({"type": "tool_use", "id": ident, "name": "Read", "input": {"file_path": name}})
            results.append({"type": "tool_result", "tool_use_id": ident, "content": text})
        said = {"type": "text", "text": f"I look at {len(uses)} of them, number {self._calls}."}
        for message in ({"role": "assistant", "content": [said, *uses]}, {"role": "user", "content": results}):
            self.messages.append(orjson.dumps(message))
            self.size += len(self.messages[-1]) + 1

    def _read(self) -> tuple[str, str]:
        """A file: one in three was read before, and some of those were changed since."""
        rng = self._rng
        if self._files and rng.random() < 0.35:
            name = rng.choice(list(self._files))
            if rng.random() < 0.5:
                lines = self._files[name].split("\n")
                lines[rng.randrange(len(lines))] = f"    changed = {rng.random()}"
                self._files[name] = "\n".join(lines)
        else:
            name = f"/src/part_{self._calls}_{rng.getrandbits(24)}.py"
            most = max(10, min(400, self.goal // 20 // LINE_BYTES))
            self._files[name] = _output(rng, rng.randint(most // 4, most))
        lines = self._files[name].split("\n")
        return name, "\n".join([f"{number:6}→{line}" for number, line in enumerate(lines, 1)])


class Load:
    """What is sent, decided by a seed."""

    def __init__(self, seed: int) -> None:
        self._rng = random.Random(seed)
        self._made = 0
        self._idle: list[Talk] = []
        self.requests = self.sent = 0

    def _new(self) -> Talk:
        rng = self._rng
        self._made += 1
        size = min(LARGEST, int(SMALLEST * rng.paretovariate(TAIL)))
        prompt = f"Make the tests of part {self._made} pass."
        shared: Sequence[bytes] = ()
        if rng.random() < SAME_PROMPT:
            prompt = f"Make the tests of common part {rng.randrange(PROMPTS)} pass."
        elif self._idle and rng.random() < FORKS:
            other = rng.choice(self._idle).messages
            shared = other[: 1 + 2 * rng.randrange(1 + len(other) // 2)]
            size = max(size, 2 * sum(map(len, shared)))
        found = Talk(prompt, min(size, LARGEST), random.Random(rng.getrandbits(64)), shared)
        found.grow(size // 2 if rng.random() < RESUMED else 0)
        return found

    def next(self) -> tuple[Talk, bytes]:
        """The conversation that goes on, and all bytes of its request."""
        rng = self._rng
        talk = self._idle.pop(rng.randrange(len(self._idle))) if len(self._idle) >= ACTIVE else self._new()
        body, about = talk.body, ["Content-Type: application/json", "User-Agent: benchmark", "x-api-key: none"]
        self.requests, self.sent = self.requests + 1, self.sent + len(body)
        if rng.random() < PACKED:
            body = gzip.compress(body, 1)
            about.append("Content-Encoding: gzip")
        if rng.random() < STREAMED:
            about.append("Accept: text/event-stream")
        head = "\r\n".join([f"POST {PATH} HTTP/1.1", "Host: 127.0.0.1", *about, f"Content-Length: {len(body)}"])
        return talk, f"{head}\r\n\r\n".encode() + body

    def breaks_off(self) -> bool:
        return self._rng.random() < BROKEN_OFF

    def answered(self, talk: Talk) -> None:
        if not talk.is_over and self._rng.random() >= ABANDONED:
            talk.grow()
            self._idle.append(talk)


class LeavingClient(Client):
    async def leave(self, request: bytes) -> None:
        """As soon as the request is sent."""
        self._writer.write(request)
        await self._writer.drain()
        await asyncio.sleep(LEAVES_AFTER)
        self._writer.transport.abort()


async def _send(url: str, load: Load, rate: float, until: float) -> None:
    """By one client, at its share of the rate."""
    client = await LeavingClient.of(url)
    due = time.monotonic()
    while (now := time.monotonic()) < until:
        await asyncio.sleep(max(0.0, due - now))
        due = max(due, now) + CLIENTS / rate
        talk, request = load.next()
        if load.breaks_off():
            await client.leave(request)
            client = await LeavingClient.of(url)
        else:
            await client.ask(request)
        load.answered(talk)
    client.close()


# ── the proxy, and what is measured of it ───────────────────────────────────────────────────────────────────────────


class Sizes(NamedTuple):
    """Of one process, in MB."""

    rss: float
    pss: float


def sizes(pid: int) -> Sizes:
    found = re.findall(r"^(Rss|Pss):\s+(\d+)", Path(f"/proc/{pid}/smaps_rollup").read_text(), re.MULTILINE)
    named = {name: int(count) * 1024 / 1e6 for name, count in found}
    return Sizes(named["Rss"], named["Pss"])


async def watched(running: Several, load: Load, rate: float, minutes: float, step: float) -> list[list[Sizes]]:
    """What each process has, at each step."""
    start, rows = time.monotonic(), list[list[Sizes]]()
    until = start + 60 * minutes
    async with asyncio.TaskGroup() as group:
        for _ in range(CLIENTS):
            group.create_task(_send(running.url, load, rate, until))
        while (due := start + (len(rows) + 1) * step) < until + step / 2:
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            rows.append([sizes(pid) for pid in running.pids])
            told = await asyncio.to_thread(states, running)
            print_row(time.monotonic() - start, rows[-1], told, load)
    return rows


def print_row(seconds: float, found: Sequence[Sizes], told: Sequence[Any], load: Load) -> None:
    columns = " ".join(f"{each.rss:8.1f} {each.pss:8.1f}" for each in found)
    known, size = (sum(state["memory"][name] for state in told) for name in ("conversations", "bytes"))
    counts = f"{known:6} {size / 1e6:8.1f} {load.requests:8} {load.sent / 1e6:9.0f}"
    print(f"{seconds / 60:6.1f} {columns} {counts}", flush=True)


def print_verdict(rows: Sequence[Sequence[Sizes]], memory: int) -> bool:
    """Of the second half of a run, process by process. Returns whether all is as documented."""
    limit, good = BASE_MB + FACTOR * memory, True
    for number, column in enumerate(zip(*rows[len(rows) // 2 :], strict=True), 1):
        found = [each.rss for each in column]
        middle = len(found) // 2
        grown = mean(found[middle:]) / mean(found[: middle or 1]) - 1
        good = good and max(found) <= limit and grown <= GROWTH
        print(f"process {number}, second half: {min(found):.0f} to {max(found):.0f} MB, ", end="")
        print(f"limit {BASE_MB:.0f} + {FACTOR} x {memory} = {limit:.0f}; grown by {grown:+.1%}, at most {GROWTH:.0%}")
    print("within the limit, and flat" if good else "NOT within the limit, or not flat")
    return good


def measure(profile: str, memory: int, processes: int, minutes: float, step: float, rate: float, seed: int) -> bool:
    options = ("--profile", profile, "--memory-mb", str(memory))
    with serving(provider) as base, proxies(processes, *options, "--upstream", f"anthropic={base.url}") as running:
        heads = " ".join(f"{'RSS':>8} {'PSS':>8}" for _ in running.pids)
        print(f"{profile}, --memory-mb {memory}, {processes} processes; MB", flush=True)
        print(f"minute {heads} {'known':>6} {'believed':>8} {'requests':>8} {'MB sent':>9}")
        print_row(0.0, [sizes(pid) for pid in running.pids], states(running), load := Load(seed))
        rows = asyncio.run(watched(running, load, rate, minutes, step))
    return print_verdict(rows, memory)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--profile", default="recoverable")
    parser.add_argument("--memory-mb", type=int, default=256)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=MINUTES)
    parser.add_argument("--step", type=float, default=60.0, help="seconds between two rows")
    parser.add_argument("--rate", type=float, default=RATE, help="requests per second")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    args = (given.profile, given.memory_mb, given.processes, given.minutes, given.step, given.rate, given.seed)
    sys.exit(not measure(*args))


if __name__ == "__main__":
    main()
