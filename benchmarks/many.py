"""Several processes of the proxy on one port: `python -m benchmarks.proxy --processes 1,2,4`.

Against as many plain pass-throughs that share a port in the same way (SO_REUSEPORT): the system chooses a process for
each connection. The provider and the load have a process each, and so take cores of their own: where there are fewer
cores than processes, more of them bring little.
"""

from __future__ import annotations

import asyncio
import gc
import json
import multiprocessing
import os
import re
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
from urllib.parse import urlsplit

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
    processes, ends, url = [], [], ""
    for _ in range(count):
        mine, theirs = context.Pipe()
        port = urlsplit(url).port or 0
        process = context.Process(target=run, args=(plain, theirs, plain_loop, base, port), daemon=True)
        process.start()
        theirs.close()
        processes.append(process)
        ends.append(mine)
        url = mine.recv()
    try:
        yield Several(url, [process.pid or 0 for process in processes])
    finally:
        for end in ends:
            end.close()
        for process in processes:
            process.terminate()
            process.join(10)


@contextmanager
def proxies(count: int, *options: str) -> Iterator[Several]:
    """`ibidem proxy` as users start it: so many processes on one port, with one store in a file."""
    started: list[subprocess.Popen[str]] = []
    with tempfile.TemporaryDirectory() as home:
        store, url = str(Path(home, "store.sqlite3")), ""
        env = {**os.environ, "HOME": home, "XDG_DATA_HOME": home, "XDG_CONFIG_HOME": home, "PYTHONUNBUFFERED": "1"}
        try:
            for _ in range(count):
                shared = ["--reuse-port", "--port", str(urlsplit(url).port or 0), "--store", store]
                command = [sys.executable, "-m", "ibidem.cli", "proxy", *shared, *options]
                started.append(process := subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True))
                assert process.stdout is not None
                found = re.search(r"http://127\.0\.0\.1:\d+", process.stdout.readline())
                assert found is not None
                url = found[0]
            yield Several(url, [process.pid for process in started])
        finally:
            for process in started:
                process.terminate()
            for process in started:
                process.communicate(timeout=60)


def states(several: Several) -> list[Any]:
    """The state of each process. A new connection reaches any of them."""
    found: dict[int, Any] = {}
    while len(found) < len(several.pids):
        with urllib.request.urlopen(f"{several.url}/ibidem/api/state", timeout=30) as answer:
            state = json.load(answer)
            found[state["process"]] = state
    return [found[pid] for pid in several.pids]


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


def busiest(found: Sequence[Any]) -> float:
    """The share of requests that the busiest process served."""
    served: list[int] = [state["totals"]["requests"] for state in found]
    return max(served) / sum(served)


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
            proxies(count, "--profile", profile, "--no-ledger", "--upstream", f"anthropic={provider.url}") as two,
        ):
            best = {"plain": Load(), "ours": Load()}
            for turn in range(rounds + 1):  # the first is for what is loaded once
                for name, url in (("plain", one.url), ("ours", two.url))[:: -1 if turn % 2 else 1]:
                    found = asyncio.run(load(url, each, 100_000 * turn))
                    best[name] = max(best[name], found if turn else Load(), key=lambda load: load.rate)
            told, memory = states(two), (one.resident / 1e6, two.resident / 1e6)
        rows = zip(best.values(), memory, strict=True)
        columns = [(r.rate, 1e3 * median(r.times), 1e3 * tail(list(r.times)), size) for r, size in rows]
        cells = (f"{value:10.{digits}f}" for some in columns for value, digits in zip(some, (0, 1, 1, 0), strict=True))
        lookups = sum((Counter(state["lookups"]) for state in told), Counter[str]())
        warm = lookups["warm"] / lookups.total()
        ratio = columns[1][0] / columns[0][0]
        print(f"{count:<10}", *cells, f"{ratio:7.2f} {busiest(told):8.0%} {warm:6.0%}", flush=True)
        first = first or columns[1][0]
        if count != counts[0]:
            print(f"{'':10} {columns[1][0] / first:.2f} times the requests/s of ours with {counts[0]}", end="")
            print(f" (aim {SCALE_AIM} for 2 with 4 cores)" if (counts[0], count) == (1, 2) else "", flush=True)
