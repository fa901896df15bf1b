"""What looking back saves, under several price models: `python -m benchmarks.revisions FOLDER`.

Decisions are made on our own counts; the bill is for recorded sizes. It is made out twice: the provider still finds
what stands before a change, or nothing of the conversation. `worst` is the largest share by which a session was ever
dearer than with nothing done, at its end or at any request before.
"""

from __future__ import annotations

import argparse
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import Any

from ibidem import profiles
from ibidem.prices import Caching, Price, Prices, Rates
from ibidem.replay import AfterBreak, Replay, messages_of
from ibidem.rerun import Rerun
from ibidem.revision.look_back import LookBack
from ibidem.sessions import LogError, Session, read
from ibidem.sessions.places import load, logs_in
from ibidem.timing import Economy
from ibidem.tokens import counter, remembering

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


Row = tuple[str, str, str, float, float, float]


def measure(session: Session, names: tuple[str, ...], overrides: dict[str, Any], free: bool) -> list[Row]:
    """Price model, profile, world, cost with nothing done, cost, worst."""
    for segment in session.segments:  # every price model has its own name for the model
        segment.requests = [replace(sent, model="m") for sent in segment.requests]
    messages, count = messages_of(session), remembering(counter())
    found = []
    for label, (lifetime, read_, write) in MODELS.items():
        price = Price("m", ((0, Rates(1.0, read_, write, write)),), Caching(0, 1, lifetime, lifetime), "anthropic")
        replay = Replay(session, Prices({"m": price}), count, messages)
        base = replay.bill(by_rule=True).costs
        economy = Economy(read=1.0, write=1.0) if free else Economy(read=read_, write=write, lifetime=lifetime)
        for name in names:
            strategies = profiles.named(name)
            if isinstance(strategies[0], LookBack):
                strategies = (replace(strategies[0], **overrides),)
            rerun = Rerun(session, messages, strategies, replay.weights, count, economy)
            for world in WORLDS:
                costs = replay.bill(rerun.views, after_break="free" if free else world, by_rule=True).costs
                ratios = [ours / theirs - 1 for ours, theirs in zip(accumulate(costs), accumulate(base), strict=True)]
                found.append((label, name, world, sum(base), sum(costs), max([0.0, *ratios])))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--profile", action="append")
    parser.add_argument("--free", action="store_true", help="let everything go as soon as it may, at no cost: a bound")
    parser.add_argument("--set", action="append", default=[], help="a setting, such as phi=0.5")
    args = parser.parse_args()
    names = tuple(args.profile or ("lossless", "recoverable", "aggressive"))
    overrides = {key: eval(value) for key, _, value in (each.partition("=") for each in args.set)}
    sessions = []
    for path in logs_in(args.folder):
        try:
            sessions += read(str(path), load(path))
        except LogError:
            continue
    table: dict[tuple[str, str, str], list[float]] = {}
    with ProcessPoolExecutor() as pool:
        for found in pool.map(partial(measure, names=names, overrides=overrides, free=args.free), sessions):
            for label, name, world, base, cost, worst in found:
                row = table.setdefault((label, name, world), [0.0, 0.0, 0.0, 0])
                row[0] += base
                row[1] += cost
                row[2] = max(row[2], worst)
                row[3] += cost > base * (1 + 1e-9)
    print(f"{len(sessions)} sessions; saved % when the provider hits / misses; worst moment; sessions dearer")
    for label in MODELS:
        for name in names:
            hit, miss = (table[label, name, world] for world in WORLDS)
            cells = " / ".join(f"{100 * (1 - row[1] / row[0]):5.1f}" for row in (hit, miss))
            worst = " / ".join(f"{row[2]:6.3%}" for row in (hit, miss))
            print(f"{label:12} {name:12} {cells}   {worst}   {hit[3]} / {miss[3]}", flush=True)


if __name__ == "__main__":
    main()
