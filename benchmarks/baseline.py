"""How well a replay predicts what was recorded: `python -m benchmarks.baseline FOLDER [FOLDER …]`.

The bill of every session with nothing done against the bill by its recorded usage, as `ibidem report` prints it. Each
request is predicted from the one before it: see `ibidem.replay.sizes`. By agent, model and cache lifetime: sessions,
signed error in the median, its size in the median and at the 90th percentile, and the share of the bill that is
thinking, in the median.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import NamedTuple

from ibidem.billing.prices import Prices
from ibidem.recordings import LogError, Recording
from ibidem.recordings.discovery import find_logs, load_log
from ibidem.replay.replay_bill import Replay, parse_histories
from ibidem.tokens import cached_counter, counter_for

from .readers import read

ALL = "all"


class Row(NamedTuple):
    """One session."""

    name: str
    agent: str
    model: str
    lifetime: str
    requests: int
    error: float
    thinking: float
    """Of the bill."""


def row(session: Recording) -> Row | None:
    """None where nothing was recorded to compare with."""
    count = cached_counter(counter_for(session.models[0] if session.models else None))
    replay = Replay(session, Prices(), count, parse_histories(session))
    recorded = replay.recorded_costs()
    paid = sum(cost for cost in recorded if cost is not None)
    if not paid:
        return None
    bill = replay.bill()
    ours = sum(cost for cost, known in zip(bill.costs, recorded, strict=True) if known is not None)
    hour = any(step.sent.usage and step.sent.usage.written_1h for step in replay.steps)
    model = session.models[0] if session.models else ""
    lifetime = "1 h" if hour else f"{replay.steps[0].price.caching.lifetime / 60:.0f} min"
    name, thinking = f"{session.path} {session.name}", replay.thinking_cost() / bill.cost
    return Row(name, session.agent, model, lifetime, session.length, ours / paid - 1, thinking)


def rows(folders: Sequence[Path]) -> Iterator[Row]:
    for folder in folders:
        for path in find_logs(folder):
            try:
                found = read(str(path), load_log(path))
            except LogError:
                continue
            yield from (each for session in found if session.length and (each := row(session)))


def told(label: str, some: Sequence[Row]) -> str:
    sizes = sorted(abs(each.error) for each in some)
    tail = sizes[max(0, math.ceil(0.9 * len(sizes)) - 1)]
    signed, thinking = median(each.error for each in some), median(each.thinking for each in some)
    return f"{label:58} {len(some):8} {signed:+8.1%} {median(sizes):8.1%} {tail:8.1%} {thinking:8.1%}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folders", type=Path, nargs="+")
    parser.add_argument("--least", type=int, default=1, help="requests that a session must have")
    parser.add_argument("--each", action="store_true", help="print every session too")
    args = parser.parse_args()
    found = [each for each in rows(args.folders) if each.requests >= args.least]
    if args.each:
        for each in sorted(found, key=lambda each: (each.agent, each.model, each.error)):
            print(f"{each.error:+8.1%} {each.requests:6} {each.agent} {each.model} {each.lifetime} {each.name}")
    print(f"{'agent, model, cache lifetime':58} sessions   signed   median     90 % thinking")
    for key in sorted({(each.agent, each.model, each.lifetime) for each in found}):
        print(told(", ".join(key), [each for each in found if (each.agent, each.model, each.lifetime) == key]))
    for agent in sorted({each.agent for each in found}):
        print(told(agent, [each for each in found if each.agent == agent]))
    if found:
        print(told(ALL, found))


if __name__ == "__main__":
    main()
