"""Several processes of the proxy on one port: `python -m benchmarks.proxy --workers 1,2,4`.

Against as many plain pass-throughs that share a port in the same way: connections are handed to them in turn.
Ours are `ibidem proxy --workers N` as anybody starts it, with a store in a file. The provider and the load have a
process each, and so take cores of their own: where there are fewer cores than processes, more of them bring little.
"""

from __future__ import annotations

import asyncio
import gc
import json
import multiprocessing
import os
import re
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import mean, median
from typing import Any, NamedTuple

from ibidem.proxy.edge.dealing import Dealer

from .proxy import WARM_REQUESTS, Client, Growing, plain, run, serving, tail, upstream

CLIENTS = 32
SCALE_AIM = 1.6
"""Requests/s of two processes over those of one, where there are cores for them."""


class Several(NamedTuple):
    """Processes on one port."""

    url: str
    pids: Sequence[int]

    @property
    def resident(self) -> float:
        """Bytes of memory that one of them has, on average."""
        return mean(_resident(pid) for pid in self.pids)


class Load(NamedTuple):
    rate: float = 0.0
    """Requests per second."""
    times: Sequence[float] = ()
    """Of each, in seconds."""


def _resident(pid: int) -> float:
    found = re.search(r"^VmRSS:\s+(\d+)", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    return 1024.0 * int(found[1]) if found else 0.0


@contextmanager
def plain_ones(base: str, count: int, plain_loop: bool) -> Iterator[Several]:
    context = multiprocessing.get_context("spawn")
    processes, ends, hands = [], [], []
    for _ in range(count):
        (mine, theirs), (hand, taken) = context.Pipe(), socket.socketpair()
        process = context.Process(target=run, args=(plain, theirs, plain_loop, base, taken), daemon=True)
        process.start()
        theirs.close()
        taken.close()
        processes.append(process)
        ends.append(mine)
        hands.append(hand)
    for end in ends:
        end.recv()
    listening = socket.create_server(("127.0.0.1", 0))
    dealer = context.Process(target=_deal, args=(listening, hands), daemon=True)
    dealer.start()
    try:
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        yield Several(url, [process.pid or 0 for process in processes])
    finally:
        for end in ends:
            end.close()
        for process in (dealer, *processes):
            process.terminate()
            process.join(10)


def _deal(listening: socket.socket, hands: Sequence[socket.socket]) -> None:
    async def deal() -> None:
        dealer = Dealer([listening])
        for hand in hands:
            dealer.add(hand)
        await asyncio.Event().wait()

    asyncio.run(deal())


@contextmanager
def our_ones(base: str, count: int, profile: str) -> Iterator[Several]:
    with tempfile.TemporaryDirectory() as home:
        options = ["--workers", str(count), "--port", "0", "--profile", profile, "--no-ledger"]
        options += ["--store", str(Path(home, "store.sqlite3")), "--upstream", f"anthropic={base}"]
        process = subprocess.Popen(
            [sys.executable, "-m", "ibidem.cli", "proxy", *options],
            env={**os.environ, "HOME": home, "PYTHONUNBUFFERED": "1"},
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None
        try:
            found = re.search(r"http://127\.0\.0\.1:\d+", process.stdout.readline())
            assert found is not None
            pids = state(found[0]).get("workers", {}).get("pids", [process.pid])
            yield Several(found[0], pids)
        finally:
            process.terminate()
            process.communicate(timeout=30)


def state(url: str) -> Any:
    with urllib.request.urlopen(f"{url}/ibidem/api/state", timeout=30) as answer:
        return json.load(answer)


async def load(url: str, each: int, seed: int) -> Load:
    """Of so many clients at once, each with conversations of its own that are known there."""
    work = [[Growing(10_000, WARM_REQUESTS + 1, seed + n * each + k) for k in range(each)] for n in range(CLIENTS)]
    clients = [await Client.of(url) for _ in work]
    await asyncio.gather(*(_asked(client, some, range(1)) for client, some in zip(clients, work, strict=True)))
    gc.collect()
    start = time.perf_counter()
    rest = range(1, WARM_REQUESTS + 1)
    found = await asyncio.gather(*(_asked(client, some, rest) for client, some in zip(clients, work, strict=True)))
    took = time.perf_counter() - start
    for client in clients:
        client.close()
    times = [one for some in found for one in some]
    return Load(len(times) / took, times)


async def _asked(client: Client, conversations: Sequence[Growing], steps: range) -> list[float]:
    return [await client.ask(conversation.request(step)) for conversation in conversations for step in steps]


def busiest(found: Any) -> float:
    """The share of requests that the busiest process served, of the conversations that are listed."""
    served: Counter[str] = Counter()
    for each in found["conversations"]:
        served[each["id"].rpartition("-")[0]] += each["requests"]
    return max(served.values()) / served.total()


def compare(counts: Sequence[int], profile: str, requests: int, rounds: int, plain_loop: bool) -> None:
    each = max(1, requests // CLIENTS // WARM_REQUESTS)
    heads = ("requests/s", "p50, ms", "p99, ms", "MB each", "requests/s", "p50, ms", "p99, ms", "MB each")
    print(f"\n{CLIENTS} clients, 10 KB, warm{'plain':>40}{'ours':>40}")
    print(f"{'processes':10}", *(f"{head:>10}" for head in heads), f"{'ratio':>7} {'busiest':>8} {'warm':>6}")
    first = 0.0
    for count in counts:
        with (
            serving(upstream) as provider,
            plain_ones(provider.url, count, plain_loop) as one,
            our_ones(provider.url, count, profile) as two,
        ):
            best = {"plain": Load(), "ours": Load()}
            for turn in range(rounds + 1):  # the first is for what is loaded once
                for name, url in (("plain", one.url), ("ours", two.url))[:: -1 if turn % 2 else 1]:
                    found = asyncio.run(load(url, each, 100_000 * turn))
                    best[name] = max(best[name], found if turn else Load(), key=lambda load: load.rate)
            told, memory = state(two.url), (one.resident / 1e6, two.resident / 1e6)
        rows = zip(best.values(), memory, strict=True)
        columns = [(r.rate, 1e3 * median(r.times), 1e3 * tail(list(r.times)), size) for r, size in rows]
        cells = (f"{value:10.{digits}f}" for some in columns for value, digits in zip(some, (0, 1, 1, 0), strict=True))
        warm = told["lookups"]["warm"] / sum(told["lookups"].values())
        ratio = columns[1][0] / columns[0][0]
        print(f"{count:<10}", *cells, f"{ratio:7.2f} {busiest(told):8.0%} {warm:6.0%}", flush=True)
        first = first or columns[1][0]
        if count != counts[0]:
            print(f"{'':10} {columns[1][0] / first:.2f} times the requests/s of ours with {counts[0]}", end="")
            print(f" (aim {SCALE_AIM} for 2 with 4 cores)" if (counts[0], count) == (1, 2) else "", flush=True)
