"""How much dearer than the unavoidable: `python -m benchmarks.floor [--recorded FOLDER] [--where]`.

The floor is what any program has to do that reads a request, tells its tool results apart and passes it on: the
fastest JSON parse, SHA-256 of every tool result, the fastest JSON dump. Everything is timed in this one run on the
same bytes, best of several, and stated as a multiple of the floor. Times are of this process alone, and what is
compared is run in turns, so that other work on the machine slows both sides of a ratio or neither.

What is read for the first time is `cold`. Histories of the worst kind are in `ibidem.testing.adversarial`; a history of
an agent at work is in `rereads`; with `--recorded`, the last request of every recorded session is taken, by agent.
`--where` tells what the time goes to.
"""

from __future__ import annotations

import argparse
import cProfile
import gc
import hashlib
import pstats
import random
import time
import tracemalloc
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import orjson

import ibidem
from ibidem import formats
from ibidem.model import Text
from ibidem.store import MemoryStore
from ibidem.testing import conv
from ibidem.testing.adversarial import HARD

from .corpus import sessions
from .history import history, text
from .rereads import rereads

PROFILES = {"Dedup": ((ibidem.Dedup(),), 1.5), "codetether": (ibidem.PROFILES["codetether"], 3.0)}
PROFILES["lossless, cold"] = (ibidem.PROFILES["lossless"], 8.0)
REREADS_AIM = 10.0
REAL_AIMS = {"claude-code": 20.0, "codex": 20.0}
GROWTH_AIM, TURN_AIM, MEMORY_AIM = 2.2, 1.3, 2.0


Work = Callable[[], Any]


def timed(work: Work) -> float:
    """Seconds of this process that a run takes, with the garbage of the one before out of the way."""
    gc.collect()
    start = time.process_time()
    work()
    return time.process_time() - start


def in_turns(works: dict[str, Work], rounds: int) -> dict[str, float]:
    """Seconds of the fastest of several runs of each: noise only ever adds."""
    turns = [{name: timed(work) for name, work in works.items()} for _ in range(rounds)]
    return {name: min(turn[name] for turn in turns) for name in works}


def floor(body: bytes, format: str = "anthropic") -> dict[str, Work]:
    """The steps of the floor, some in two ways, of which the faster counts."""
    value = orjson.loads(body)
    conv = formats.parse_request(value, formats.format_named(format))
    results = [
        segment.text.encode("utf-8", "surrogatepass")
        for message in conv.messages
        for result in message.results
        for segment in result.segments
        if isinstance(segment, Text)
    ]
    return {
        "parse orjson": lambda: orjson.loads(body),
        "parse msgspec": lambda: msgspec.json.decode(body),
        "digest": lambda: [hashlib.sha256(result).digest() for result in results],
        "dump orjson": lambda: orjson.dumps(value),
        "dump msgspec": lambda: msgspec.json.encode(value),
    }


def fastest(times: dict[str, float], prefix: str = "") -> float:
    """Seconds of the floor, of its steps' times."""
    steps = [prefix + step for step in ("parse", "digest", "dump")]
    return sum(min(times[name] for name in times if name.startswith(step)) for step in steps)


class Cold(NamedTuple):
    """Requests that are seen for the first time."""

    name: str
    bodies: list[tuple[str, bytes]]
    """Format and request."""
    aim: float | None = None

    def times(self, rounds: int) -> tuple[float, float]:
        """Seconds of the floor and of `lossless`, for all of them."""
        base = whole = 0.0
        for format, body in self.bodies:
            works = floor(body, format)
            works["lossless"] = partial(ibidem.compact, body, format=format)
            times = in_turns(works, rounds)
            base += fastest(times)
            whole += times["lossless"]
        return base, whole


def recorded(root: Path) -> Iterator[Cold]:
    """The last request of every session, by agent."""
    found: dict[str, list[tuple[str, bytes]]] = {}
    for session in sessions(root):
        if session.cuts:
            key = formats.format_named(session.format).history_key
            body = orjson.dumps({key: session.history[: session.cuts[-1]]})
            found.setdefault(session.folder, []).append((session.format, body))
    for agent, bodies in found.items():
        yield Cold(f"{agent}, {len(bodies)} requests", bodies, REAL_AIMS.get(agent))


def cold(root: Path | None, scale: int) -> list[Cold]:
    made = [Cold(f"{name}", [("anthropic", orjson.dumps(make(scale * usual)))]) for name, (make, usual) in HARD.items()]
    again = Cold("numbered files read again", [("anthropic", orjson.dumps(rereads()))], REREADS_AIM)
    return [again, *made, *(recorded(root) if root is not None else ())]


def print_cold(every: list[Cold], rounds: int) -> None:
    """The worst first."""
    rows = []
    for each in every:
        base, whole = each.times(rounds)
        megabytes = sum(len(body) for _, body in each.bodies) / 1e6
        rows.append((whole / base, each, megabytes, base))
    print(f"{'seen for the first time, lossless':44} {'MB':>6} {'floor':>9} {'x floor':>8} {'aim':>5}")
    for ratio, each, megabytes, base in sorted(rows, key=lambda row: -row[0]):
        aim = "" if each.aim is None else f"{each.aim:5.1f}"
        print(f"{each.name:44} {megabytes:6.1f} {base * 1e3:6.1f} ms {ratio:8.1f} {aim}", flush=True)


def print_where(every: list[Cold], lines: int = 25) -> None:
    """What the time goes to: a profile of all of them, by function."""
    profile = cProfile.Profile()
    for each in every:
        for format, body in each.bodies:
            profile.runcall(ibidem.compact, body, format=format)
    found = pstats.Stats(profile).stats  # type: ignore[attr-defined]
    total = sum(own for _, _, own, _, _ in found.values())
    print(f"{'own time':>9} {'calls':>9}  function")
    for (file, _, name), (_, calls, own, _, _) in sorted(found.items(), key=lambda row: -row[1][2])[:lines]:
        place = f"{Path(file).parent.name}/{Path(file).name} {name}" if file != "~" else name
        print(f"{100 * own / total:8.1f}% {calls:9,}  {place}")


def profiles(bodies: dict[str, bytes], rounds: int) -> dict[str, dict[str, float]]:
    """Seconds of each profile, and of `the floor`, for each of the bodies, all of them in turns."""
    works: dict[str, Work] = {}
    for size, body in bodies.items():
        works.update({f"{size} {name}": work for name, work in floor(body).items()})
        for name, (strategies, _) in PROFILES.items():
            works[f"{size} {name}"] = partial(ibidem.compact, body, strategies=strategies)
    gc.collect()
    gc.freeze()  # what is kept for the measurement is not ours to walk through
    times = in_turns(works, rounds)
    gc.unfreeze()
    found = {size: {name: times[f"{size} {name}"] for name in PROFILES} for size in bodies}
    for size, seconds in found.items():
        seconds["the floor"] = fastest(times, f"{size} ")
    return found


def turn(request: dict[str, Any], rounds: int) -> float:
    """Seconds of a session's turn that adds one exchange to the history."""
    whole = orjson.dumps(request)
    before = orjson.dumps({**request, "messages": request["messages"][:-2]})
    times = []
    for _ in range(rounds):
        session = ibidem.Session()
        session.compact(before)
        times.append(timed(partial(session.compact, whole)))
    return min(times)


def memory(body: bytes) -> float:
    """What a session keeps of a conversation, as a multiple of its text."""
    session = ibidem.Session()
    session.compact(orjson.dumps(history(20, 50_000)))  # what is loaded once
    gc.collect()
    tracemalloc.start()
    session.compact(body[:] + b" ")
    gc.collect()
    kept = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    return kept / len(body)


def hard(lines: int) -> dict[str, tuple[str, str]]:
    """Pairs of results that are made to be hard, of so many lines."""
    rng = random.Random(3)
    half = lines // 2
    same = "the very same line of output\n"
    one, two = text(rng, 400), text(rng, 400)
    return {
        "one line repeated": (same * lines, same * (lines - 1) + "another\n"),
        "all equal but one": (same + "odd\n" + same * lines, same * half + "even\n" + same * half),
        "two alternating blocks": ((one + two) * (lines // 20), (two + one + one) * (lines // 30)),
        "random text": (text(rng, 40 * lines), text(rng, 40 * lines)),
        "a single long line": ("".join(rng.choices("abcdefgh ", k=40 * lines)), "x" * (40 * lines)),
    }


def growth(lines: int, rounds: int) -> dict[str, float]:
    """Time for twice as much of the same hard text, as a multiple."""
    found = {}
    small, large = hard(lines), hard(2 * lines)
    for name in small:
        works: dict[str, Work] = {}
        for label, (first, second) in (("small", small[name]), ("large", large[name])):
            body = orjson.dumps(conv("u:go", "a>1", f"r1:{first}", "a>2", f"r2:{second}"))
            works[label] = partial(ibidem.compact, body)
        times = in_turns(works, rounds)
        found[name] = times["large"] / times["small"]
    return found


def hard_growth(scale: int, rounds: int) -> Iterator[tuple[str, str, float, float]]:
    """Each family of hard histories, by profile: the time as a multiple of its floor, and for twice as much of it."""
    for name, (make, usual) in HARD.items():
        once, twice = (orjson.dumps(make(each * scale * usual)) for each in (1, 2))
        works = floor(once)
        for profile in ("lossless", "recoverable"):
            for label, body in (("once", once), ("twice", twice)):
                works[f"{profile} {label}"] = partial(ibidem.compact, body, profile=profile, store=MemoryStore())
        gc.collect()
        gc.freeze()
        times = in_turns(works, rounds)
        gc.unfreeze()
        base = fastest(times)
        for profile in ("lossless", "recoverable"):
            small = times[f"{profile} once"]
            yield name, profile, small / base, times[f"{profile} twice"] / small


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=2000)
    parser.add_argument("--megabytes", type=float, default=20)
    parser.add_argument("--lines", type=int, default=125_000, help="of hard text")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--scale", type=int, default=4, help="of hard histories: so many times their usual size")
    parser.add_argument("--hard", action="store_true", help="only these")
    parser.add_argument("--cold", action="store_true", help="only what is seen for the first time")
    parser.add_argument("--recorded", type=Path, help="a folder of recorded sessions: the last request of each as well")
    parser.add_argument(
        "--where", action="store_true", help="only what the time goes to, of recorded requests if given"
    )
    args = parser.parse_args()
    every = cold(args.recorded, args.scale)
    if args.where:
        print_where([each for each in every if each.name[0].islower() and "requests" in each.name] or every[:1])
        return
    print_cold(every, args.rounds)
    if args.cold:
        return
    if args.hard:
        _print_hard(args.scale, args.rounds)
        return
    size = int(args.megabytes * 1e6)
    request = history(args.messages, size)
    once = orjson.dumps(request)
    twice = orjson.dumps(history(2 * args.messages, 2 * size))
    times = profiles({"once": once, "twice": twice}, args.rounds)
    small, large = times["once"], times["twice"]
    base, doubled = small["the floor"], large["the floor"]
    print(f"{args.messages} messages, {len(once) / 1e6:.1f} MB; the floor takes {base * 1e3:.0f} ms")
    print(f"{'':24} {'x floor':>8} {'aim':>5} {'2n / n':>8} {'aim':>5}")
    print(f"{'the floor itself':24} {1:8.2f} {'':5} {doubled / base:8.2f}")
    for label, (_, aim) in PROFILES.items():
        grown = large[label] / small[label]
        print(f"{label:24} {small[label] / base:8.2f} {aim:5.1f} {grown:8.2f} {GROWTH_AIM:5.1f}", flush=True)
    print(f"{'a turn of a Session':24} {turn(request, 3) / base:8.2f} {TURN_AIM:5.1f}")
    for label, ratio in growth(args.lines, 3).items():
        print(f"{label:24} {'':8} {'':5} {ratio:8.2f} {GROWTH_AIM:5.1f}", flush=True)
    _print_hard(args.scale, 3)
    print(f"memory of a Session: {memory(once):.2f} times the text (aim {MEMORY_AIM})")


def _print_hard(scale: int, rounds: int) -> None:
    print(f"{'hard histories':44} {'x floor':>8} {'2n / n':>8} {'aim':>5}")
    for name, profile, times, grown in hard_growth(scale, rounds):
        print(f"{name:32} {profile:11} {times:8.1f} {grown:8.2f} {GROWTH_AIM:5.1f}", flush=True)


if __name__ == "__main__":
    main()
