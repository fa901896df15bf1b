"""The laws on recorded sessions: `python -m benchmarks.laws CORPUS`.

Every request of every session, for every profile. Prints what fails, and how many requests were looked at.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import ibidem
from ibidem import testing
from ibidem.billing.cache_ttl import CacheMode
from ibidem.formats import FORMATS
from ibidem.store import MemoryStore
from ibidem.testing.laws import without_breakpoints

from .corpus import Recorded, sessions

FINAL = {"lossless", "devboy"}
"""Profiles of arrival edits only: what was sent stays as it was sent (law 2)."""

Failure = tuple[str, str]


def failures(session: Recorded, profile: str, stride: int) -> tuple[int, list[Failure]]:
    """How many requests were looked at, and law and place of each failure. The last request is always among them."""
    key = FORMATS[session.format].history_key
    found: list[Failure] = []
    sent: list[Any] = []
    looked = 0
    for number, cut in enumerate(session.cuts):
        if number % stride and cut != session.cuts[-1]:
            continue
        looked += 1
        request = {key: session.history[:cut]}
        run = testing.runner(ibidem.PROFILES[profile], session.format)
        result = run(request)
        if profile in FINAL and result.request[key][: len(sent)] != sent:
            found.append(("2 arrival is final", f"{session.name} request {number}"))
        sent = result.request[key]
        if result.stats.failures:
            found.append(("12 fail open", f"{session.name} request {number}: {result.reason}"))
        for law, check in checks(profile, result):
            try:
                check(run, request, session.format)
            except AssertionError as error:
                found.append((law, f"{session.name} request {number}: {str(error)[:200]}"))
    return looked, found


def every_request(session: Recorded) -> tuple[int, list[Failure]]:
    """Laws 2 and 6 on each request of a session, in the order they were sent."""
    key = FORMATS[session.format].history_key
    growing = ibidem.Session(format=session.format)
    found: list[Failure] = []
    sent: list[Any] = []
    for number, cut in enumerate(session.cuts):
        request = {key: session.history[:cut]}
        result = growing.compact(request).request
        if result[key][: len(sent)] != sent:
            found.append(("2 arrival is final", f"{session.name} request {number}"))
        sent = result[key]
        if ibidem.expand(result, format=session.format) != request:
            found.append(("6 lossless", f"{session.name} request {number}"))
    if session.cuts and result != ibidem.compact(request, format=session.format).request:
        found.append(("a session gives what compact gives", session.name))
    return len(session.cuts), found


FREE = ibidem.CachePricing(read=1.0, write=1.0)
"""Without a cache everything goes as soon as it may."""
EAGER = ibidem.Evict(economy=FREE, mask=5, working_set=(0, 0), pending=(0, 0), edit_arguments=(0, 0))
PAUSE = 4000.0
"""Seconds after which every cache has forgotten."""


def looking_back(session: Recorded, strategies: tuple[ibidem.Strategy, ...]) -> tuple[int, list[Failure]]:
    """Laws 1, 3, 6 and 10 on the requests of a session, with a pause now and then."""
    key, store = FORMATS[session.format].history_key, MemoryStore()
    growing = ibidem.Session(strategies=strategies, format=session.format, store=store)
    found: list[Failure] = []
    sent: list[Any] = []
    points = 0
    for number, cut in enumerate(session.cuts):
        request = {key: session.history[:cut]}
        result = growing.compact(request, idle=PAUSE if number % 9 == 8 else 3)
        where = f"{session.name} request {number}"
        found += [("12 fail open", f"{where}: {each}") for each in result.stats.failures]
        first = min([len(sent), *(point.first for point in result.plan.points[points:])])
        if number and result.request[key][:first] != sent[:first]:
            found.append(("3 revisions are declared", where))
        sent, points = result.request[key], len(result.plan.points)
        if number % 7 and cut != session.cuts[-1]:
            continue
        if ibidem.expand(result.request, format=session.format, store=store) != request:
            found.append(("6 lossless, with the store", where))
        if testing.runner((ibidem.Evict(store=store),), session.format)(result.request).request != result.request:
            found.append(("10 idempotent", where))
        if len(ibidem.validate(result.request, format=session.format)) > len(
            ibidem.validate(request, format=session.format)
        ):
            found.append(("1 valid stays valid", where))
    return len(session.cuts), found


HEAD: dict[str, dict[str, Any]] = {
    "anthropic": {
        "model": "claude-sonnet-4-5",
        "system": "Be exact. " * 600,
        "tools": [{"name": "Read", "description": "Reads. " * 900, "input_schema": {"type": "object"}}],
    },
    "gemini": {"model": "gemini-2.5-pro"},
}
"""Beside recorded messages, as an agent sends them; a model of OpenAI's where there is none."""


def marking(session: Recorded, profile: str, cache: CacheMode, stride: int) -> tuple[int, list[Failure]]:
    """The laws with marks, on the requests of a session as bytes, with pauses now and then, by two seats in a row."""
    key, store = FORMATS[session.format].history_key, MemoryStore()
    growing, behind, plain = (
        ibidem.Session(profile, format=session.format, store=store, cache=mode) for mode in (cache, cache, "off")
    )
    found: list[Failure] = []
    looked = 0
    for number, cut in enumerate(session.cuts):
        head = HEAD.get(session.format, {"model": "gpt-5"})
        body = {**head, key: session.history[:cut]}
        hour = len(session.cuts) % 2 == 0
        data = json.dumps(_marked(body, session.format, hour) if cache == "lifetime" else body).encode()
        idle = PAUSE / 4 if number % 9 == 8 else 3
        result = growing.compact(data, idle=idle)
        bare = plain.compact(data, idle=idle)
        if number % stride and cut != session.cuts[-1]:
            continue
        looked += 1
        where = f"{session.name} request {number}"
        found += [(law, where) for law in broken(data, result, session.format, store)]
        if not growing.revises and without_breakpoints(json.loads(result.request)) != without_breakpoints(
            json.loads(bare.request)
        ):
            found.append(("2 to 5: marks change no text", where))  # changes of what was sent go by lifetimes
        if behind.compact(result.request).request != result.request:
            found.append(("10 idempotent", where))
    return looked, found


def broken(data: bytes, result: ibidem.Compacted, format: str, store: MemoryStore) -> Iterator[str]:
    if len(ibidem.validate(result.request, format=format)) > len(ibidem.validate(data, format=format)):
        yield "1 valid stays valid"
    if ibidem.expand(result.request, format=format, store=store) != data:
        yield "6 lossless, with the store"
    if result.stats.failures:
        yield "12 fail open"


def _marked(body: dict[str, Any], format: str, hour: bool) -> dict[str, Any]:
    """With a mark of the client's own on its system text."""
    if format != "anthropic":
        return body
    mark = {"type": "ephemeral", "ttl": "1h"} if hour else {"type": "ephemeral"}
    return {**body, "system": [{"type": "text", "text": body["system"], "cache_control": mark}]}


def checks(profile: str, result: ibidem.Compacted) -> Iterator[tuple[str, Callable[[testing.Run, Any, str], None]]]:
    touches = frozenset[str]().union(*(strategy.touches for strategy in ibidem.PROFILES[profile]))
    repaired = "pairing" in result.stats.strategies
    yield "1 valid stays valid", testing.valid_stays_valid
    yield "7 untouched is untouched", testing.untouched_is_untouched
    yield "8 sacred", partial(testing.sacred_is_sacred, touches=touches)
    if not repaired:  # repair adds what a provider demands, and moves the windows of a second pass
        yield "4 never larger", testing.never_larger
        yield "10 idempotent", testing.idempotent
    yield "text and value agree", testing.text_and_value_agree
    if profile == "lossless":
        yield "5, 6 lossless", testing.lossless


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--profile", action="append", choices=ibidem.PROFILES)
    parser.add_argument("--folder", action="append", help="only this folder of the corpus")
    parser.add_argument("--stride", type=int, default=1, help="look at every so many-th request")
    parser.add_argument("--cache", action="append", choices=("lifetime", "auto"), help="only the laws with marks")
    parser.add_argument("--show", type=int, default=3, help="failures printed per law and profile")
    args = parser.parse_args()
    recorded = list(sessions(args.corpus, args.folder))
    works: dict[str, Callable[[Recorded], tuple[int, list[Failure]]]] = {
        profile: partial(failures, profile=profile, stride=args.stride) for profile in args.profile or ibidem.PROFILES
    }
    if "lossless" in works:
        works = {"lossless, each request": every_request, **works}
    for name in {"balanced", "recoverable", "aggressive"} & works.keys():
        works = {f"{name}, each request": partial(looking_back, strategies=ibidem.PROFILES[name]), **works}
        works = {"all at once, each request": partial(looking_back, strategies=(EAGER,)), **works}
    if args.cache:
        works = {
            f"{profile}, cache={cache}": partial(marking, profile=profile, cache=cache, stride=args.stride)
            for profile in args.profile or ("lossless", "recoverable")
            for cache in args.cache
        }
    failed = False
    with ProcessPoolExecutor() as pool:
        for name, work in works.items():
            outcomes = list(pool.map(work, recorded, chunksize=4))
            found = [failure for _, some in outcomes for failure in some]
            looked = sum(number for number, _ in outcomes)
            print(f"{name}: {looked} requests of {len(recorded)} histories, {len(found)} failures", flush=True)
            for law, count in Counter(law for law, _ in found).items():
                print(f"  law {law}: {count}")
                for place in [where for name, where in found if name == law][: args.show]:
                    print(f"    {place}")
            failed = failed or bool(found)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
