"""How much dearer than the unavoidable: `python -m benchmarks.floor`.

The floor is what any program has to do that reads a request, tells its tool results apart and passes it on: the
fastest JSON parse, SHA-256 of every tool result, the fastest JSON dump. Everything is timed in this one run on the
same bytes, best of several, and stated as a multiple of the floor.
"""

from __future__ import annotations

import argparse
import hashlib
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec
import orjson

import ibidem

from .history import history

AIMS = {"Dedup": 1.5, "codetether": 3.0}
GROWTH_AIM = 2.2


def best(work: Callable[[], Any], rounds: int) -> float:
    """Seconds of the fastest of several runs: noise only ever adds."""
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)


def floor(body: bytes, rounds: int) -> float:
    value = orjson.loads(body)
    results = [
        block["content"].encode()
        for message in value["messages"]
        if isinstance(message["content"], list)
        for block in message["content"]
        if block["type"] == "tool_result"
    ]
    parse = min(best(lambda: orjson.loads(body), rounds), best(lambda: msgspec.json.decode(body), rounds))
    digest = best(lambda: [hashlib.sha256(result).digest() for result in results], rounds)
    dump = min(best(lambda: orjson.dumps(value), rounds), best(lambda: msgspec.json.encode(value), rounds))
    return parse + digest + dump


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=2000)
    parser.add_argument("--megabytes", type=float, default=20)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    size = int(args.megabytes * 1e6)
    once = orjson.dumps(history(args.messages, size))
    twice = orjson.dumps(history(2 * args.messages, 2 * size))
    base, base_doubled = floor(once, args.rounds), floor(twice, args.rounds)
    print(f"{args.messages} messages, {len(once) / 1e6:.1f} MB; floor {base * 1e3:.1f} ms, ", end="")
    print(f"2n / n of the floor itself {base_doubled / base:.2f}")
    print(f"{'':12} {'ms':>8} {'x floor':>8} {'aim':>6} {'2n / n':>8} {'aim':>6}")
    for label, strategies in (("Dedup", (ibidem.Dedup(),)), ("codetether", ibidem.PROFILES["codetether"])):
        taken = best(partial(ibidem.compact, once, strategies=strategies), args.rounds)
        doubled = best(partial(ibidem.compact, twice, strategies=strategies), args.rounds)
        row = f"{label:12} {taken * 1e3:8.1f} {taken / base:8.2f} {AIMS[label]:6.1f} {doubled / taken:8.2f}"
        print(f"{row} {GROWTH_AIM:6.1f}")


if __name__ == "__main__":
    main()
