"""The promise of profiles that look back, kept on generated sessions: cut anywhere, hit or miss, at any price."""

from __future__ import annotations

from dataclasses import replace
from itertools import accumulate
from math import inf
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ibidem.billing.cache_rules import CacheRules
from ibidem.billing.cache_ttl import NOTHING_LONG, IdleTimes
from ibidem.billing.calibration import WEIGHTS, weigh_message
from ibidem.billing.prices import Price, Prices, Rates, cache_pricing_for
from ibidem.billing.usage import Usage
from ibidem.formats import format_named
from ibidem.recordings import RecordedRequest, RecordedSegment, Recording
from ibidem.replay.caching_replay import CachePolicyRun, CachingName, bill_with_caching
from ibidem.replay.replay_bill import AfterBreak, Replay, parse_histories
from ibidem.replay.simulate import Simulation
from ibidem.report.measure import SCENARIOS
from ibidem.strategies import profiles
from ibidem.tokens import counter_for
from tests.strategies.test_evict import file_of

ECONOMIES = {
    "5 min": (300.0, 0.1, 1.25),
    "1 h": (3600.0, 0.1, 2.0),
    "read .025": (300.0, 0.025, 1.25),
    "free writes": (600.0, 0.1, 1.0),
    "no cache": (0.0, 1.0, 1.0),
}
TIERS = {"tiers": 5.0, "cheap tiers": 1.5}
"""How many times as much a request above 30,000 tokens costs, at the prices of five minutes."""
CREDITS = (0.0, 0.03, 0.2)
RATES = {
    "list": Rates(1.0, 0.1, 1.25, 2.0),
    "cheap reads": Rates(1.0, 0.025, 1.25, 2.0),
    "dear hour": Rates(1.0, 0.5, 1.1, 3.0),
}
"""Of providers that are told for how long to keep."""


def recorded(turns: int, seed: int, density: float, head: int) -> Recording:
    """Files are read, changed and read again, commands run, pauses, and the user speaks now and then. Sizes are
    what a replay takes them for: else what stands before the history would shrink while that grows, which none does."""
    random, anthropic, count, weights = Random(seed), format_named("anthropic"), counter_for(), WEIGHTS["anthropic"]
    history: list[dict[str, Any]] = [{"role": "user", "content": f"Look around, {seed}"}]
    versions: dict[int, int] = {}
    now, requests = 0.0, []
    sizes: list[float] = []

    def send(at: float) -> None:
        sizes.extend(
            weigh_message(anthropic.read_message(0, each), weights, count).total for each in history[len(sizes) :]
        )
        usage = Usage(written=round(head + density * sum(sizes)))
        requests.append(RecordedRequest(len(history), "m", at, at + 1, usage))

    for number in range(turns):
        now += random.choice([3.0, 5.0, 20.0, 20.0, 400.0, 4000.0] if random.random() < 0.3 else [5.0])
        send(now)
        name = random.randrange(6)
        writes = random.random() < 0.3
        versions[name] = versions.get(name, 0) + writes
        given = {"file_path": f"{name}.py"} | ({"content": "x = 1\n" * random.randrange(60)} if writes else {})
        call = {"type": "tool_use", "id": f"c{number}", "name": "Write" if writes else "Read", "input": given}
        text = "written" if writes else file_of(random.choice([30, 120, 400]), 10 * name + versions[name])
        if random.random() < 0.4:
            call |= {"name": "Bash", "input": {"command": f"make step-{number}"}}
            text = file_of(random.choice([30, 120, 400]), 1000 + number)
        result = {"type": "tool_result", "tool_use_id": f"c{number}", "content": text}
        history += [{"role": "assistant", "content": [call]}, {"role": "user", "content": [result]}]
        if random.random() < 0.15:
            now += 2.0
            send(now)
            history += [{"role": "assistant", "content": "Done."}, {"role": "user", "content": f"And now {number}?"}]
    return Recording("test", "anthropic", [RecordedSegment(history, requests)])


def excess(session: Recording, profile: str, credit: float, label: str, world: AfterBreak) -> tuple[float, int]:
    """By what share it is dearer than with nothing done at its worst moment, and the changes that were paid for."""
    lifetime, read, write = ECONOMIES.get(label, ECONOMIES["5 min"])
    factor = TIERS.get(label, 1.0)
    tiers = (
        (0, Rates(1.0, read, write, write)),
        (30_000, Rates(factor, factor * read, factor * write, factor * write)),
    )
    caching = CacheRules(0, 1, lifetime, lifetime, forgotten=inf if label == "unknown TTL" else None)
    price = Price("m", tiers if label in TIERS else tiers[:1], caching, "anthropic")
    messages, count = parse_histories(session), counter_for()
    replay = Replay(session, Prices({"m": price}), count, messages)
    strategies = [replace(each, credit=credit) for each in profiles.profile_strategies(profile)]  # type: ignore[type-var]
    economy = cache_pricing_for(price)
    told = replay.reported_usage(world, by_rule=True)
    simulation = Simulation(session, messages, strategies, replay.weights, count, economy, told)
    assert not simulation.failures
    ours = accumulate(replay.bill(simulation.views, after_break=world, by_rule=True).costs)
    theirs = accumulate(replay.bill(by_rule=True).costs)
    worst = max(mine / bare - 1 for mine, bare in zip(ours, theirs, strict=True))
    return worst, sum(point.reason == "it pays" for point in simulation.points)


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(
    st.integers(2, 60),
    st.integers(0, 10**6),
    st.floats(0.9, 1.5),
    st.sampled_from([0, 20_000]),
    st.sampled_from(["recoverable", "aggressive"]),
    st.sampled_from(CREDITS),
    st.sampled_from([*ECONOMIES, *TIERS, "unknown TTL"]),
    st.sampled_from(SCENARIOS),
)
def test_no_session_is_dearer_by_more_than_the_credit_at_any_moment(
    turns: int, seed: int, density: float, head: int, profile: str, credit: float, label: str, world: AfterBreak
) -> None:
    worst, _ = excess(recorded(turns, seed, density, head), profile, credit, label, world)
    assert worst <= credit + 1e-9


@pytest.mark.parametrize("world", SCENARIOS)
def test_changes_are_paid_for_in_these_sessions(world: AfterBreak) -> None:
    """Where nothing changes, nothing is promised."""
    assert sum(excess(recorded(60, seed, 1.0, 20_000), "aggressive", 0.03, "5 min", world)[1] for seed in range(3))


# ── with other lifetimes than the client's, from the same bank ──────────────────────────────────────────────────────


def excess_kept(
    session: Recording, profile: str, credit: float, label: str, world: AfterBreak, start: CachingName, prior: IdleTimes
) -> tuple[float, set[int]]:
    """By what share it is dearer than with nothing done at its worst moment, and what was decided."""
    price = Price("m", ((0, RATES[label]),), CacheRules(0, marks=True, hour=True), "anthropic", 400_000)
    messages, count = parse_histories(session), counter_for()
    replay = Replay(session, Prices({"m": price}), count, messages)
    keeping = CachePolicyRun(replay, "auto", prior, start=start, after_break=world, by_rule=True)
    keeping.credit = credit
    strategies = [replace(each, credit=credit) for each in profiles.profile_strategies(profile)]  # type: ignore[type-var]
    economy = cache_pricing_for(price, start == "1h")
    simulation = Simulation(session, messages, strategies, replay.weights, count, economy, keeping.reported_usage())
    assert not simulation.failures
    ours = accumulate(keeping.serve_rest(simulation.views).costs)
    theirs = accumulate(bill_with_caching(replay, None, start, by_rule=True).costs)
    worst = max(mine / bare - 1 for mine, bare in zip(ours, theirs, strict=True))
    return worst, {kept.long for kept in keeping.decisions}


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(
    st.integers(2, 60),
    st.integers(0, 10**6),
    st.floats(0.9, 1.5),
    st.sampled_from([0, 20_000]),
    st.sampled_from(["recoverable", "aggressive"]),
    st.sampled_from(CREDITS),
    st.sampled_from(list(RATES)),
    st.sampled_from(SCENARIOS),
    st.sampled_from(["5m", "1h"]),
    st.sampled_from([IdleTimes((0, 4000, 0), (0, 4000, 0), 10), IdleTimes((40_000, 0, 0), (40_000, 0, 0), 10)]),
)
def test_lifetimes_and_changes_together_keep_the_promise(
    turns: int,
    seed: int,
    density: float,
    head: int,
    profile: str,
    credit: float,
    label: str,
    world: AfterBreak,
    start: CachingName,
    prior: IdleTimes,
) -> None:
    worst, _ = excess_kept(recorded(turns, seed, density, head), profile, credit, label, world, start, prior)
    assert worst <= credit + 1e-9


def test_lifetimes_are_decided_in_these_sessions() -> None:
    prior = IdleTimes((0, 4000, 0), (0, 4000, 0), 10)
    found = [
        excess_kept(recorded(60, seed, 1.0, 20_000), "aggressive", 0.2, "list", "hit", "5m", prior)[1]
        for seed in range(3)
    ]
    assert any(long > 0 for some in found for long in some)
    assert any(NOTHING_LONG in some for some in found)
