"""What caching itself is worth on recorded sessions: `python -m benchmarks.caching FOLDER...`.

Bills of no marks, five minutes, an hour, and of lifetimes as they would have been decided (`auto`) for a client that
asks for each of the three; alone and under profiles. All are multiples of five minutes alone. `worst` is the largest
share by which a session was ever dearer than what its client asked for with nothing done, `dearer` the number of
sessions that are at their end, `best` the better of five minutes and an hour for each session in hindsight, `reached`
the share of what that saves on what the client asked for (for one that asks for nothing: on five minutes). Only
sessions whose provider keeps what is marked are counted. What is known of a user's pauses when a session begins is
taken from sessions below the same folder that had ended by then, never from the session itself.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple

from ibidem.billing.cache_ttl import CREDIT, IdleTimes
from ibidem.billing.prices import Prices, cache_pricing_for
from ibidem.recordings import LogError, Recording
from ibidem.recordings.discovery import find_logs, load_log
from ibidem.replay.caching_replay import CachePolicyRun, CachingName, count_idle_times
from ibidem.replay.replay_bill import Bill, Replay, parse_histories
from ibidem.replay.simulate import Simulation
from ibidem.strategies import profiles
from ibidem.strategies.strategy import Strategy
from ibidem.tokens import cached_counter, counter_for

from .readers import read

STARTS: tuple[CachingName, ...] = ("none", "5m", "1h")
CREDITS = (0.0, CREDIT, 0.1, 0.3, 1e9)
ALONE = "alone"


class Line(NamedTuple):
    """One session with one caching under one profile."""

    profile: str
    start: CachingName
    """What the client asks for."""
    caching: CachingName
    credit: float
    prior: str
    cost: float
    worst: float


class Measured(NamedTuple):
    agent: str
    lines: list[Line]


def bill_of(replay: Replay, strategies: Sequence[Strategy], keeping: CachePolicyRun) -> Bill:
    """The session as a profile sends it, with the lifetimes in force and from the same bank."""
    if not strategies:
        return keeping.serve_rest([])
    hour = keeping.start == "1h"
    economy = replace(cache_pricing_for(replay.steps[0].price, hour), keeps_thinking=replay.keeps_thinking)
    count = cached_counter(counter_for(replay.session.models[0] if replay.session.models else None))
    simulation = Simulation(
        replay.session, replay.messages, strategies, replay.weights, count, economy, keeping.reported_usage()
    )
    return keeping.serve_rest(simulation.views)


def measure(task: tuple[Recording, IdleTimes], names: Sequence[str], credits: Sequence[float]) -> Measured | None:
    session, past = task
    count = cached_counter(counter_for(session.models[0] if session.models else None))
    replay = Replay(session, Prices(), count, parse_histories(session))
    if not replay.steps[0].price.caching.marks:
        return None
    lines: list[Line] = []
    bare: dict[CachingName, Bill] = {}
    for name in (ALONE, *names):
        strategies = profiles.profile_strategies(name) if name != ALONE else ()
        fixed = {start: bill_of(replay, strategies, CachePolicyRun(replay, start, start=start)) for start in STARTS}
        bare = bare or fixed
        lines += [Line(name, start, start, 0.0, "", bill.cost, 0.0) for start, bill in fixed.items()]
        settings = [(credit, "own", past) for credit in (credits if name == ALONE else (CREDIT,))]
        if name == ALONE:
            settings.append((CREDIT, "usual", IdleTimes()))
        for credit, label, prior in settings:
            for start in STARTS:
                keeping = CachePolicyRun(replay, "auto", prior, start=start)
                keeping.credit = credit
                bill = bill_of(replay, strategies, keeping)
                lines.append(Line(name, start, "auto", credit, label, bill.cost, _worst(bill, bare[start])))
    return Measured(session.agent, lines)


def _worst(ours: Bill, theirs: Bill) -> float:
    pairs = zip(accumulate(ours.costs), accumulate(theirs.costs), strict=True)
    return max([0.0, *(mine / bare - 1 for mine, bare in pairs if bare)])


def pasts(sessions: Sequence[Recording]) -> list[IdleTimes]:
    """What was known of pauses when each session began."""
    spans = [_span(session) for session in sessions]
    known = [count_idle_times(session) for session in sessions]
    return [
        sum((each for each, (_, end) in zip(known, spans, strict=True) if end <= start), IdleTimes())
        for start, _ in spans
    ]


def _span(session: Recording) -> tuple[float, float]:
    """Without times it began before all others, and ended after all."""
    times = [sent.at for segment in session.segments for sent in segment.requests if sent.at is not None]
    return min(times, default=float("-inf")), max(times, default=float("inf"))


def read_folder(folder: Path) -> list[Recording]:
    found: list[Recording] = []
    for path in find_logs(folder):
        try:
            found += read(str(path), load_log(path))
        except LogError:
            continue
    return found


def table(found: Sequence[Measured], names: Iterable[str]) -> list[str]:
    rows = []
    bare = {start: _costs(found, ALONE, start) for start in STARTS}
    base = sum(bare["5m"])
    for name in (ALONE, *names):
        fixed = {start: _costs(found, name, start) for start in STARTS}
        best = sum(map(min, fixed["5m"], fixed["1h"]))
        cells = [f"{start} {sum(fixed[start]) / base:.3f}" for start in STARTS]
        rows.append(f"  {name}: {'  '.join(cells)}  best {best / base:.3f}")
        auto = (line for line in found[0].lines if line.profile == name and line.caching == "auto")
        for key in auto:
            lines = [_line(each, key) for each in found]
            cost, least = sum(line.cost for line in lines), sum(fixed["5m" if key.start == "none" else key.start])
            pairs = zip(lines, bare[key.start], strict=True)
            dearer = sum(line.cost > theirs * (1 + 1e-9) for line, theirs in pairs)
            reached = f"{(least - cost) / (least - best):5.0%}" if least - best > 1e-9 else "    -"
            credit = f"{key.credit:.0%}" if key.credit < 1 else "unlimited"
            rows.append(
                f"    {key.start:>4} -> auto, credit {credit:>9}, {key.prior:5} pauses: {cost / base:.3f}"
                f"  reached {reached}  worst {max(line.worst for line in lines):6.1%}  dearer {dearer}"
            )
    return rows


def _line(each: Measured, key: Line) -> Line:
    return next(line for line in each.lines if line[:5] == key[:5])


def _costs(found: Sequence[Measured], name: str, start: CachingName) -> list[float]:
    return [_line(each, Line(name, start, start, 0.0, "", 0.0, 0.0)).cost for each in found]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folders", type=Path, nargs="+")
    parser.add_argument("--profile", action="append", help="beside none; lossless and recoverable if none is named")
    parser.add_argument("--curve", action="store_true", help="with several credits: what the promise costs")
    args = parser.parse_args()
    names = tuple(args.profile or ("lossless", "recoverable"))
    tasks: list[tuple[Recording, IdleTimes]] = []
    for folder in args.folders:
        sessions = read_folder(folder)
        tasks += zip(sessions, pasts(sessions), strict=True)
    work = partial(measure, names=names, credits=CREDITS if args.curve else (CREDIT,))
    with ProcessPoolExecutor() as pool:
        found = [each for each in pool.map(work, tasks) if each is not None]
    print(f"{len(found)} of {len(tasks)} sessions have a provider that keeps what is marked")
    for agent in sorted({each.agent for each in found}):
        some = [each for each in found if each.agent == agent]
        print(f"\n{agent}: {len(some)} sessions", *table(some, names), sep="\n")
    print(f"\nall: {len(found)} sessions", *table(found, names), sep="\n")


if __name__ == "__main__":
    main()
