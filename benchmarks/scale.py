"""What a team of agents needs: `python -m benchmarks.scale`. Unit figures are measured here, and then multiplied.

What is assumed of an agent stands in flags, and is printed with the table. `--quick` measures less, in about a minute.
Figures of the store are those of the profile `recoverable`; `lossless` notes nothing of a request that goes well.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from itertools import pairwise
from typing import NamedTuple

from ibidem.store.retention import DEFAULT_BYTES

from .units import LIVE_BYTES, SIZES, Units, units
from .warm import redis_server

TEAMS = (10, 1_000, 100_000)
BUSY = 0.6
"""Of a core that is used at a peak: above that, requests wait for each other."""
SECONDS_PER_HOUR = 3600.0


class Assumed(NamedTuple):
    """Of one agent, and of where it runs."""

    requests: int
    """A day."""
    hours: float
    """In which they are made."""
    peak: float
    """Times the mean rate of these hours."""
    body: float
    """Bytes of a request, on average."""
    live: float
    """Conversations that go on at once."""
    log: float
    """Bytes that a request adds to a log."""
    days: float
    """For which a store keeps a conversation."""
    redis_bytes: float
    """Memory of a Redis server."""
    core_hour: float
    """Dollars."""


class Needs(NamedTuple):
    """Of a team."""

    rate: float
    """Requests per second at the peak."""
    cores: float
    """Of proxies."""
    memory: float
    """Bytes of proxies: idle processes, and conversations that go on."""
    store: float
    """Bytes in SQLite, or in Redis."""
    redis_store: float
    days: float
    """For which the store's own limit has room."""
    redis_rate: float
    """Commands per second at the peak."""
    redis_cores: float
    redis_servers: int
    ledger: float
    """Bytes a day."""
    logs: float
    """Bytes a day."""
    report_hours: float
    """Core-hours that a report on the logs of a day takes."""


def seconds_of(found: Units, body: float) -> float:
    """Processor time of a request of that size: on the lines between the sizes that were measured."""
    points = sorted(found.requests.items())
    pairs = list(pairwise(points))
    (small, least), (large, most) = next((pair for pair in pairs if body <= pair[1][0]), pairs[-1])
    return least + (most - least) * (body - small) / (large - small)


def needs(found: Units, assumed: Assumed, agents: int) -> Needs:
    requests = agents * assumed.requests
    rate = requests / (assumed.hours * SECONDS_PER_HOUR) * assumed.peak
    cores = rate * seconds_of(found, assumed.body) / BUSY
    conversations = requests / found.turns * assumed.days
    live = agents * assumed.live * found.live * assumed.body / LIVE_BYTES
    redis, use = found.redis or found.sqlite, found.redis_use
    redis_store = conversations * redis.conversation
    redis_cores = rate * use.seconds / BUSY if use else math.nan
    servers = max(math.ceil(redis_store / assumed.redis_bytes), math.ceil(redis_cores)) if use else 0
    logs = requests * assumed.log
    return Needs(
        rate=rate,
        cores=cores,
        memory=math.ceil(cores) * found.idle + live,
        store=conversations * found.sqlite.conversation,
        redis_store=redis_store,
        days=DEFAULT_BYTES / (found.sqlite.notes + found.sqlite.originals) / (requests / found.turns),
        redis_rate=rate * use.commands if use else math.nan,
        redis_cores=redis_cores,
        redis_servers=servers,
        ledger=requests * found.ledger,
        logs=logs,
        report_hours=logs / found.report / SECONDS_PER_HOUR,
    )


def largest(found: Units, assumed: Assumed) -> tuple[float, float]:
    """Agents for whom one Redis server is enough: by its core, and by its memory."""
    one = needs(found, assumed, 1)
    return 1 / one.redis_cores, assumed.redis_bytes / one.redis_store


def amount(size: float) -> str:
    for unit, name in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "KB")):
        if size >= unit:
            return f"{size / unit:.1f} {name}"
    return f"{size:.0f} B"


ROWS: tuple[tuple[str, Callable[[Needs], str]], ...] = (
    ("requests/s at the peak", lambda each: f"{each.rate:,.1f}"),
    ("cores for proxies", lambda each: f"{each.cores:,.1f}"),
    ("processes (--reuse-port)", lambda each: f"{math.ceil(each.cores):,}"),
    ("memory of proxies", lambda each: amount(each.memory)),
    ("store, in SQLite", lambda each: amount(each.store)),
    ("store, in Redis", lambda each: amount(each.redis_store)),
    (f"days in {DEFAULT_BYTES / 1e9:g} GB (--store-bytes)", lambda each: f"{each.days:,.1f}"),
    ("Redis, commands/s at the peak", lambda each: f"{each.redis_rate:,.0f}"),
    ("Redis, cores", lambda each: f"{each.redis_cores:,.2f}"),
    ("Redis servers", lambda each: f"{each.redis_servers:,}"),
    ("ledger, a day", lambda each: amount(each.ledger)),
    ("logs of agents, a day", lambda each: amount(each.logs)),
    ("report on a day, core-hours", lambda each: f"{each.report_hours:,.1f}"),
)


def print_units(found: Units) -> None:
    turn = found.turns
    print(f"measured: conversations of {turn} turns that end at {amount(found.body)}, profile recoverable")
    for name, each in (("SQLite", found.sqlite), ("Redis", found.redis)):
        if each is not None:
            parts = f"notes {amount(each.notes)}, originals {amount(each.originals)}"
            whole, one = amount(each.conversation), amount(each.conversation / turn)
            print(f"  {name}: {whole} per conversation, {one} per turn ({parts})")
    if found.redis_use is not None:
        use = found.redis_use
        rate = f"{1 / use.seconds:,.0f} turns/s and {use.commands / use.seconds:,.0f} commands/s per core"
        print(
            f"  Redis: {use.commands:.0f} commands (those in scripts, too), {1e6 * use.seconds:.0f} µs per turn: {rate}"
        )
    for size in SIZES:
        print(f"  proxy: {1e3 * found.requests[size]:.2f} ms per warm request of {amount(size)}")
    print(
        f"  memory: {amount(found.idle)} for a process, {amount(found.live)} for a conversation of {amount(LIVE_BYTES)}"
    )
    print(f"  ledger: {found.ledger:.0f} B per request; report: {amount(found.report)} of logs per core-second")


def print_needs(found: Units, assumed: Assumed) -> None:
    when = f"{assumed.requests} requests per agent and day in {assumed.hours:g} hours"
    print(f"\nassumed: {when}, {assumed.peak:g} times the mean at the peak;")
    kept = f"{assumed.live:g} conversations at once; kept for {assumed.days:g} days"
    print(f"  bodies of {amount(assumed.body)}; {kept}; {amount(assumed.log)} of log per request;")
    server = f"a Redis server has {amount(assumed.redis_bytes)} and one core"
    print(f"  cores at most {BUSY:.0%} busy; {server}; a core-hour costs ${assumed.core_hour:g}")
    print(f"\n{'agents':32}", *(f"{team:>12,}" for team in TEAMS))
    table = [needs(found, assumed, team) for team in TEAMS]
    for name, shown in ROWS:
        print(f"{name:32}", *(f"{shown(each):>12}" for each in table))
    if found.redis_use is not None:
        by_core, by_memory = largest(found, assumed)
        print(f"\none Redis server is enough for {by_core:,.0f} agents by its core, and {by_memory:,.0f} by its memory")
    hours = 1e12 / found.report / SECONDS_PER_HOUR
    print(f"a report on 1 TB of logs: {hours:,.0f} core-hours, ${hours * assumed.core_hour:,.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="about a minute")
    parser.add_argument("--profile", default="recoverable", help="of the requests that are timed")
    parser.add_argument("--requests", type=int, default=600, help="of an agent, a day")
    parser.add_argument("--hours", type=float, default=8, help="in which they are made")
    parser.add_argument("--peak", type=float, default=3, help="times the mean rate of these hours")
    parser.add_argument("--body", type=float, default=200_000, help="bytes of a request")
    parser.add_argument("--live", type=float, default=2, help="conversations of an agent at once")
    parser.add_argument("--log", type=float, default=5_000, help="bytes that a request adds to a log")
    parser.add_argument("--days", type=float, default=30, help="for which a conversation is kept")
    parser.add_argument("--turns", type=int, default=100, help="of a conversation")
    parser.add_argument("--redis-gb", type=float, default=64, help="of memory of a Redis server")
    parser.add_argument("--core-hour", type=float, default=0.05, help="what one costs, in dollars")
    args = parser.parse_args()
    amounts = (3, 2, 8_000_000) if args.quick else (20, 4, 40_000_000)
    with redis_server() as url:
        found = units(args.profile, args.turns, *amounts[:2], url, amounts[2])
    print_units(found)
    assumed = Assumed(
        args.requests,
        args.hours,
        args.peak,
        args.body,
        args.live,
        args.log,
        args.days,
        1e9 * args.redis_gb,
        args.core_hour,
    )
    print_needs(found, assumed)


if __name__ == "__main__":
    main()
