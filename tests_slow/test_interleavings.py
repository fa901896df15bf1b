"""The interleaving checker at length: 20,000 requests, and a fault of the store at each of its calls."""

from __future__ import annotations

from collections import Counter
from typing import get_args

import pytest

from tests.support.world_oracle import FAILURES
from tests.support.world_proxies import PROFILES
from tests.support.world_store import Fault, FaultKind
from tests.support.worlds import LATE_SECONDS, Result, World
from tests_slow.conftest import Tally

REQUESTS = 20_000
SCRIPT = (
    *("turn", "turn", "turn", "turn", "turn", "pause", "off", "rewind", "turn", "restart", "fork", "failure"),
    *("model", "native", "pause", "turn"),
)
"""Steps of the world whose store fails at each of its calls."""
REPORTED = (
    *("worlds", "requests", "sent upstream", "step: fork", "step: rewind", "kills", "restarts", "store faults"),
    "rejections",
    *("without thinking", "without thinking, later", "without thinking, nothing lost", "rejected first, nothing lost"),
    *("prefix changed, declared", "prefix changed with the model", "originals lost with the store"),
)
"""Counts that are no failures."""


def report(tally: Tally, name: str, counts: Counter[str]) -> None:
    tally(
        f"interleavings, {name}",
        **{each.replace(",", "").removeprefix("step: "): counts[each] for each in (*REPORTED, *FAILURES)},
    )


def failing(counts: Counter[str]) -> dict[str, int]:
    return {name: counts[name] for name in FAILURES if counts[name]}


@pytest.mark.parametrize("profile", PROFILES)
def test_twenty_thousand_requests(profile: str, tally: Tally) -> None:
    counts: Counter[str] = Counter()
    failed: list[Result] = []
    seed = 100_000
    while counts["requests"] < REQUESTS / len(PROFILES):
        seed += 1
        found = World(profile, seed).run()
        counts.update(found.counts)
        failed += [found] if found.failures else []
    report(tally, profile, counts)
    assert not failing(counts), "\n\n".join(each.told for each in failed)


def fixed_world(profile: str, fault: Fault) -> World:
    """One small world, in which the n-th call of the store is nearly always the same."""
    return World(profile, 7, script=SCRIPT, fault=fault, replicas=2, hurried=fault.kind == "hang")


@pytest.mark.parametrize("kind", get_args(FaultKind))
@pytest.mark.parametrize("profile", ["lossless", "recoverable", "eager"])
def test_fault_at_each_store_call(profile: str, kind: FaultKind, tally: Tally) -> None:
    """A call that hangs takes longer than the budget. With `die`, the process is killed at the call."""
    counted = fixed_world(profile, Fault(kind, first=10**9))
    counted.run()
    calls = counted.calls.calls
    assert calls > 20, "the store is hardly asked"
    counts: Counter[str] = Counter()
    failed: list[Result] = []
    for call in range(1, calls + 1):
        world = fixed_world(profile, Fault(kind, call, seconds=LATE_SECONDS))
        found = world.run()
        counts.update(found.counts)
        counts["store faults"] += world.calls.hits
        failed += [found] if found.failures else []
    report(tally, f"{profile}, {kind} at each of {calls} store calls", counts)
    assert counts["store faults"] >= 0.9 * calls, "the calls are not the same each time"
    assert not failing(counts), "\n\n".join(each.told for each in failed)
