"""What looking back saves, under several price models: `python -m benchmarks.revisions FOLDER`.

Decisions are made on our own counts; the bill is for recorded sizes. It is made out twice: the provider still finds
what stands before a change, or nothing of the conversation. `worst` is the largest share by which a session was ever
dearer than with nothing done, at its end or at any request before. `--optimum` adds what the same edits would have
saved had their moments been chosen in hindsight, and the share of it that was reached.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

from ibidem.billing.cache_rules import CacheRules
from ibidem.billing.prices import Price, Prices, Rates
from ibidem.billing.revision_budget import CachePricing
from ibidem.recordings import LogError, Recording
from ibidem.recordings.discovery import find_logs, load_log
from ibidem.replay import offline_optimum
from ibidem.replay.replay_bill import AfterBreak, Replay, parse_histories
from ibidem.replay.simulate import Simulation
from ibidem.strategies import profiles
from ibidem.strategies.revision.evict import Evict
from ibidem.tokens import cached_counter, counter_for

from .readers import read

MODELS = {
    "5 min": (300, 0.1, 1.25),
    "1 h": (3600, 0.1, 2.0),
    "read .05": (300, 0.05, 1.25),
    "read .025": (300, 0.025, 1.25),
    "free writes": (600, 0.1, 1.0),
    "no cache": (0, 1.0, 1.0),
}
"""Lifetime in seconds, and the prices of a token read and written, as multiples of a fresh one."""

WORLDS: tuple[AfterBreak, ...] = ("hit", "miss")


class Row(NamedTuple):
    """One session under a price model and a profile, in a world."""

    label: str
    profile: str
    world: AfterBreak
    base: float
    """What nothing done costs."""
    cost: float
    worst: float
    best: float
    """What the best moments would have cost; 0 if not asked for."""


def measure(
    session: Recording, names: tuple[str, ...], labels: Sequence[str], overrides: dict[str, Any], free: bool, hind: bool
) -> list[Row]:
    for segment in session.segments:  # every price model has its own name for the model
        segment.requests = [replace(sent, model="m") for sent in segment.requests]
    messages, count = parse_histories(session), cached_counter(counter_for())
    found = []
    for label in labels:
        lifetime, read_, write = MODELS[label]
        price = Price("m", ((0, Rates(1.0, read_, write, write)),), CacheRules(0, 1, lifetime, lifetime), "anthropic")
        replay = Replay(session, Prices({"m": price}), count, messages)
        base = replay.bill(by_rule=True).costs
        economy = (
            CachePricing(read=1.0, write=1.0) if free else CachePricing(read=read_, write=write, lifetime=lifetime)
        )
        for name in names:
            strategies = profiles.profile_strategies(name)
            if isinstance(strategies[0], Evict):
                strategies = (replace(strategies[0], **overrides),)
            for world in WORLDS:
                told = replay.reported_usage(world, by_rule=True)
                simulation = Simulation(session, messages, strategies, replay.weights, count, economy, told)
                costs = replay.bill(simulation.views, after_break="free" if free else world, by_rule=True).costs
                ratios = [ours / theirs - 1 for ours, theirs in zip(accumulate(costs), accumulate(base), strict=True)]
                best = sum(costs)
                if hind and simulation.phases:
                    best = offline_optimum.find_optimum(replay, simulation.phases, after_break=world, by_rule=True).cost
                found.append(Row(label, name, world, sum(base), sum(costs), max([0.0, *ratios]), best))
    return found


class Total(NamedTuple):
    base: float = 0.0
    cost: float = 0.0
    best: float = 0.0
    worst: float = 0.0
    dearer: int = 0

    def add(self, row: Row) -> Total:
        dearer = row.cost > row.base * (1 + 1e-9)
        sums = (self.base + row.base, self.cost + row.cost, self.best + row.best)
        return Total(*sums, max(self.worst, row.worst), self.dearer + dearer)


def pair(text: str, values: Iterable[float]) -> str:
    return " / ".join(text.format(value) for value in values)


def line(label: str, name: str, both: Sequence[Total], hind: bool) -> str:
    cells = [f"{label:11} {name:11}", pair("{:4.1f}", (100 * (1 - each.cost / each.base) for each in both))]
    if hind:
        saved = [(each.base - each.cost, each.base - each.best) for each in both]
        cells.append(pair("{:4.1f}", (100 * (1 - each.best / each.base) for each in both)))
        cells.append(pair("{:3.0f}", (100 * (ours / best if best else 1.0) for ours, best in saved)))
    worst = pair("{:6.3%}", (each.worst for each in both))
    return "  ".join([*cells, worst, pair("{}", (each.dearer for each in both))])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--profile", action="append")
    parser.add_argument("--free", action="store_true", help="let everything go as soon as it may, at no cost: a bound")
    parser.add_argument("--optimum", action="store_true", help="add what the best moments would have saved")
    parser.add_argument("--prices", action="append", choices=MODELS, help="a price model; all of them if none is named")
    parser.add_argument("--set", action="append", default=[], help="a setting, such as phi=0.5")
    args = parser.parse_args()
    names = tuple(args.profile or ("lossless", "recoverable", "aggressive"))
    overrides = {key: eval(value) for key, _, value in (each.partition("=") for each in args.set)}
    sessions = []
    for path in find_logs(args.folder):
        try:
            sessions += read(str(path), load_log(path))
        except LogError:
            continue
    table: dict[tuple[str, str, str], Total] = {}
    labels = args.prices or list(MODELS)
    work = partial(measure, names=names, labels=labels, overrides=overrides, free=args.free, hind=args.optimum)
    with ProcessPoolExecutor() as pool:
        for found in pool.map(work, sessions):
            for row in found:
                key = (row.label, row.profile, row.world)
                table[key] = table.get(key, Total()).add(row)
    more = "; in hindsight; % of it reached" if args.optimum else ""
    print(f"{len(sessions)} sessions; saved % when the provider hits / misses{more}; worst moment; sessions dearer")
    for label in labels:
        for name in names:
            both = [table[label, name, world] for world in WORLDS]
            print(line(label, name, both, args.optimum), flush=True)


if __name__ == "__main__":
    main()
