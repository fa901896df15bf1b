"""Cost of the ported profiles against a plain implementation: `python -m benchmarks.seeds [--recorded FOLDER]`.

The plain implementation is the one of `tests/seeds`, straightforward Python on codetether's message form. Both sides
run in turns on the same histories; a figure is the smallest processor time of several rounds, summed over the
histories. Generated histories are small and need many edits. With `--recorded`, the last request of every recorded
session is measured too: in codetether's form, and in the provider's format, where the plain side first reads that
format. Text and counts are compared as well.
"""

from __future__ import annotations

import argparse
import copy
import gc
import random
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import ibidem
from ibidem import codetether, devboy
from tests.seeds import generate, plain_codetether, plain_devboy
from tests.seeds.compare import KINDS, counts_of
from tests.seeds.provider_forms import from_anthropic, from_chat

from .corpus import sessions

PROFILES = {"codetether": "seed", "codetether-all": "4.6.0"}
READERS: dict[str, Callable[[list[Any]], list[Any]]] = {"openai-chat": from_chat, "anthropic": from_anthropic}
GENERATED = 1000
AIM = 2.0


class Case(NamedTuple):
    """One history, and both ways to work on it: each takes a copy and returns messages and counts."""

    history: list[Any]
    ours: Callable[[list[Any]], Any]
    plain: Callable[[list[Any]], Any]


def own_form(history: list[Any], order: str) -> Case:
    return Case(
        history,
        lambda messages: (counts_of(codetether.apply_all(messages, order=order)), messages),  # type: ignore[arg-type]
        lambda messages: (plain_codetether.apply_all(messages, order), messages),
    )


def provider_form(history: list[Any], format: str, profile: str) -> Case:
    read = READERS[format]

    def ours(messages: list[Any]) -> Any:
        result = ibidem.compact(messages, profile=profile, format=format)
        return counts_of(result.stats), result

    def plain(messages: list[Any]) -> Any:
        own = read(messages)
        return plain_codetether.apply_all(own, PROFILES[profile]), own

    return Case(history, ours, plain)


def seconds(work: Callable[[list[Any]], Any], history: list[Any]) -> tuple[float, Any]:
    given = copy.deepcopy(history)
    start = time.process_time()
    result = work(given)
    return time.process_time() - start, result


def print_row(label: str, cases: Iterable[Case], rounds: int, same: Callable[[Any, Any], bool]) -> None:
    total_ours = total_plain = 0.0
    number = exact = 0
    for case in cases:
        runs = [(seconds(case.ours, case.history), seconds(case.plain, case.history)) for _ in range(rounds)]
        total_ours += min(ours for (ours, _), _ in runs)
        total_plain += min(plain for _, (plain, _) in runs)
        number += 1
        (_, ours), (_, plain) = runs[-1]
        exact += same(ours, plain)
    times = f"{total_plain * 1e3:8.0f} ms {total_ours * 1e3:8.0f} ms {total_ours / total_plain:6.2f} {AIM:5.1f}"
    print(f"{label:44} {number:6} {times} {exact:7}", flush=True)


def generated() -> list[list[Any]]:
    return [generate.history(random.Random(number)) for number in range(GENERATED)]


def recorded(root: Path) -> Iterator[tuple[str, list[Any]]]:
    """Format and messages of the last request of every session whose format has a plain reader."""
    for session in sessions(root):
        if session.cuts and session.format in READERS:
            history = copy.deepcopy(session.history[: session.cuts[-1]])
            try:
                READERS[session.format](_with_result_strings(history))
            except (KeyError, TypeError, AttributeError):  # a block that the plain reader does not know
                continue
            yield session.format, history


def _with_result_strings(history: list[Any]) -> list[Any]:
    """Join the blocks of results: a result of several blocks has no counterpart in codetether's form."""
    for message in history:
        for block in message["content"] if isinstance(message.get("content"), list) else ():
            if block.get("type") == "tool_result" and not isinstance(block.get("content"), str):
                blocks = block.get("content") or ()
                block["content"] = "\n".join(inner.get("text", "") for inner in blocks)
    return history


def cache_times(rounds: int) -> tuple[float, float]:
    """Seconds of `check` plus `insert` of 5,000 outputs, ours and plain."""
    rng = random.Random(1)
    hashes = [devboy.content_hash(str(rng.randrange(40)).encode()) for _ in range(5_000)]

    def ours() -> None:
        cache = devboy.DedupCache.with_capacity(5)
        for hash in hashes:
            if isinstance(cache.check(hash), devboy.Fresh):
                cache.insert(hash, "id", KINDS["Other"], None, "Bash")

    def plain() -> None:
        cache = plain_devboy.PlainCache(5)
        for hash in hashes:
            if cache.check(hash) is None:
                cache.insert(hash, "id", "Other", None, "Bash")

    def timed(work: Callable[[], None]) -> float:
        start = time.process_time()
        work()
        return time.process_time() - start

    runs = [(timed(ours), timed(plain)) for _ in range(rounds)]
    return min(ours for ours, _ in runs), min(plain for _, plain in runs)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--recorded", type=Path, help="folder of recorded sessions")
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    print(f"{'':44} {'count':>6} {'plain':>11} {'ours':>11} {'ratio':>6} {'aim':>5} {'exact':>7}")
    histories = generated()
    requests = list(recorded(args.recorded)) if args.recorded else []
    gc.collect()
    gc.freeze()
    for profile, order in PROFILES.items():
        print_row(f"{profile}, generated", (own_form(history, order) for history in histories), args.rounds, _equal)
    for profile, order in PROFILES.items() if requests else ():
        own = (own_form(READERS[format](history), order) for format, history in requests)
        print_row(f"{profile}, recorded, codetether's form", own, args.rounds, _equal)
    for format in READERS if requests else ():
        for profile in PROFILES:
            cases = (provider_form(history, format, profile) for each, history in requests if each == format)
            print_row(f"{profile}, recorded, {format}", cases, args.rounds, _equal_in(format))
    ours, plain = cache_times(max(args.rounds, 5))
    print(f"DedupCache, 5,000 outputs, check and insert: plain {plain * 1e3:.1f} ms, ours {ours * 1e3:.1f} ms")


def _equal(ours: Any, plain: Any) -> bool:
    return bool(ours == plain)


def _equal_in(format: str) -> Callable[[Any, Any], bool]:
    return lambda ours, plain: (ours[0], READERS[format](ours[1].request)) == plain


if __name__ == "__main__":
    main()
