"""Whether evicted text was used later: `python -m benchmarks.need FOLDER` (definition: `ibidem.replay.need`).

For every profile and price model: input cost saved; requests that need evicted text; edits that lost their old text;
and what is saved net of one more request for each need. That request reads its context from the cache once more and
writes the text that is fetched again. `--details` adds need by class, tool, age and purpose, and the worst sessions.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from ibidem.billing.cache_rules import CacheRules
from ibidem.billing.prices import Price, Prices, Rates
from ibidem.billing.revision_budget import CachePricing
from ibidem.recordings import LogError, read
from ibidem.recordings.discovery import find_logs, load_log
from ibidem.replay.replay_bill import Replay, parse_histories
from ibidem.replay.shared_arrival import SharedArrival
from ibidem.replay.simulate import Simulation
from ibidem.strategies import profiles
from ibidem.strategies.revision.evict import Evict
from ibidem.strategies.strategy import Strategy
from ibidem.tokens import cached_counter, counter_for

from .families import family
from .revisions import MODELS

AGES = (5, 10, 25, 50, 100)
"""Upper ends of classes of ages, in requests."""


@dataclass(slots=True)
class Tally:
    """Sessions under a profile and a price model."""

    sessions: int = 0
    requests: int = 0
    base: float = 0.0
    cost: float = 0.0
    needs: int = 0
    again: float = 0.0
    """What one more request for each need costs."""
    edits: int = 0
    impossible: int = 0
    evictions: int = 0
    needed: int = 0
    """Evictions that were needed later."""
    details: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    worst: list[tuple[float, str]] = field(default_factory=list)

    def add(self, other: Tally) -> None:
        for name in ("sessions", "requests", "base", "cost", "needs", "again", "edits", "impossible", "evictions"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.needed += other.needed
        for kind, counts in other.details.items():
            self.details[kind].update(counts)
        self.worst = sorted([*self.worst, *other.worst], reverse=True)[:3]

    @property
    def saved(self) -> float:
        return 1 - self.cost / self.base if self.base else 0.0

    @property
    def net(self) -> float:
        return self.saved - self.again / self.base if self.base else 0.0


Key = tuple[str, str, str, str]
"""Agent, model family, price model, profile."""


def strategies_of(name: str, overrides: dict[str, Any]) -> Sequence[Strategy]:
    """A profile, or settings of `Evict` as `Evict(...)`."""
    if name.startswith("Evict("):
        return (eval(name, {"Evict": Evict}),)
    found = profiles.profile_strategies(name)
    return (replace(found[0], **overrides),) if overrides and isinstance(found[0], Evict) else found


def age_class(age: int) -> str:
    return next((f"up to {most} requests" for most in AGES if age <= most), f"more than {AGES[-1]} requests")


def measure(path: Path, names: Sequence[str], labels: Sequence[str], overrides: dict[str, Any]) -> dict[Key, Tally]:
    found: dict[Key, Tally] = defaultdict(Tally)
    try:
        sessions = read(str(path), load_log(path))
    except LogError:
        return {}
    for session in sessions:
        if not session.length:
            continue
        model = family(session.models[0] if session.models else "")
        for segment in session.segments:
            segment.requests = [replace(sent, model="m") for sent in segment.requests]
        messages, count = parse_histories(session), cached_counter(counter_for())
        shared = SharedArrival(messages)
        for label in labels:
            lifetime, read_, write = MODELS[label]
            price = Price(
                "m", ((0, Rates(1.0, read_, write, write)),), CacheRules(0, 1, lifetime, lifetime), "anthropic"
            )
            replay = Replay(session, Prices({"m": price}), count, messages)
            base = replay.bill(by_rule=True)
            economy = CachePricing(read=read_, write=write, lifetime=lifetime)
            told = replay.reported_usage("hit", by_rule=True)
            for name in names:
                simulation = Simulation(
                    *(session, messages, strategies_of(name, overrides), replay.weights, count, economy, told, shared),
                    need=True,
                )
                bill = replay.bill(simulation.views, by_rule=True)
                tally = Tally(1, session.length, base.cost, bill.cost, len(simulation.needs))
                tally.edits, tally.evictions = simulation.edits, simulation.evictions
                tally.needed = len(set().union(*(need.evictions for need in simulation.needs)))
                for need in simulation.needs:
                    scale = replay.steps[need.request].scale
                    tally.again += read_ * bill.charges[need.request].size + write * scale * need.tokens
                    tally.impossible += need.impossible
                    tally.details["class"][need.label] += 1
                    tally.details["tool"][need.tool or "(text)"] += 1
                    tally.details["age"][age_class(need.age)] += 1
                    tally.details["used for"][need.purpose] += 1
                tally.worst = [(tally.needs / tally.requests, path.name)]
                found[session.agent, model, label, name].add(tally)
    return found


def line(name: str, tally: Tally) -> str:
    shares = (tally.needs / (tally.requests or 1), tally.needed / (tally.evictions or 1))
    impossible = tally.impossible / (tally.edits or 1)
    return (
        f"{name:44} {100 * tally.saved:5.1f} @ {100 * shares[0]:5.2f} -> {100 * tally.net:5.1f}"
        f"   {100 * shares[1]:5.2f}  {100 * impossible:5.1f} of {tally.edits}"
    )


WIDTH, HEIGHT, LEFT, TOP = 330, 260, 46, 34
"""Pixels of a panel, and of its margins."""


def picture(panels: dict[str, list[tuple[str, Tally]]]) -> str:
    """What is saved net of need, over the share of requests that need evicted text, as SVG."""
    parts = []
    for place, (title, rows) in enumerate(panels.items()):
        most = max(100 * tally.net for _, tally in rows) * 1.15
        far = max(100 * tally.needs / tally.requests for _, tally in rows) * 1.25 or 1.0
        left, width, height = place * WIDTH + LEFT, WIDTH - LEFT - 24, HEIGHT - 2 * TOP
        parts.append(f'<text x="{left}" y="16" font-weight="bold">{title}</text>')
        parts.append(f'<path d="M{left} {TOP}v{height}h{width}" fill="none" stroke="#888"/>')
        parts.append(f'<text x="{left}" y="{HEIGHT - 6}">need, % of requests (right end {far:.1f})</text>')
        parts.append(f'<text x="{left - 42}" y="{TOP - 4}">net saved, % (top {most:.0f})</text>')
        for name, tally in rows:
            x = left + width * 100 * tally.needs / tally.requests / far
            y = TOP + height * (1 - 100 * tally.net / most)
            named = name in profiles.PROFILES
            parts.append(
                f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{4 if named else 2.5}" fill="{"#06c" if named else "#999"}"/>'
            )
            parts.append(f'<text x="{x + 6:.1f}" y="{y + 4:.1f}">{name} {100 * tally.net:.1f}</text>' if named else "")
    size = f'width="{WIDTH * len(panels)}" height="{HEIGHT}"'
    style = 'font-family="sans-serif" font-size="11" fill="#444"'
    body = "\n".join(filter(None, parts))
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size} {style}>\n<rect {size} fill="#fff"/>\n{body}\n</svg>\n'


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="+")
    parser.add_argument("--profile", action="append", help="a profile, or settings as Evict(...)")
    parser.add_argument("--prices", action="append", choices=MODELS, help="a price model (default: 5 min and 1 h)")
    parser.add_argument("--set", action="append", default=[], help="a setting of Evict, such as mask=20")
    parser.add_argument("--details", action="store_true", help="by class, tool, age and purpose; worst sessions")
    parser.add_argument("--by-model", action="store_true", help="a table for every agent and model family")
    parser.add_argument("--picture", type=Path, help="write the frontier to this SVG file")
    args = parser.parse_args()
    names = args.profile or ["lossless", "balanced", "recoverable", "aggressive"]
    labels = args.prices or ["5 min", "1 h"]
    overrides = {key: eval(value) for key, _, value in (each.partition("=") for each in args.set)}
    table: dict[tuple[str, ...], Tally] = defaultdict(Tally)
    began = time.perf_counter()
    work = partial(measure, names=names, labels=labels, overrides=overrides)
    with ProcessPoolExecutor() as pool:
        for found in pool.map(work, [path for folder in args.folder for path in find_logs(folder)]):
            for (agent, model, label, name), tally in found.items():
                table[agent, "", label, name].add(tally)
                if args.by_model:
                    table[agent, model, label, name].add(tally)
    seconds = time.perf_counter() - began
    if args.picture:
        groups = sorted({(key[0], key[2]) for key in table})
        args.picture.write_text(
            picture(
                {
                    f"{agent}, {label}": [(name, table[agent, "", label, name]) for name in names]
                    for agent, label in groups
                }
            )
        )
    print(f"saved % @ need % of requests -> net %   need % of evictions   impossible edits %   ({seconds:.0f} s)")
    for agent, model, label in sorted({key[:3] for key in table}):
        rows = [(name, table[agent, model, label, name]) for name in names]
        first = rows[0][1]
        group = f"{agent} {model}".strip()
        print(f"\n{group}, {label}: {first.sessions} sessions, {first.requests} requests")
        for name, tally in rows:
            print(line(name, tally))
            if args.details and tally.needs:
                for kind, counts in tally.details.items():
                    print(f"    {kind}:", ", ".join(f"{each} {number}" for each, number in counts.most_common(8)))
                print(
                    "    worst sessions:",
                    ", ".join(f"{share:.1%} {session}" for share, session in tally.worst if share),
                )


if __name__ == "__main__":
    main()
