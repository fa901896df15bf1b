"""The optimum in hindsight: equal to the best of all choices, never above the profile's own, and of the same edits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, chain, combinations
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ibidem import recordings
from ibidem.billing.cache_rules import CacheRules
from ibidem.billing.prices import Price, Prices, Rates
from ibidem.billing.revision_budget import CachePricing
from ibidem.billing.usage import Usage
from ibidem.plan import Edit
from ibidem.recordings import RecordedSegment, Recording
from ibidem.replay import offline_optimum
from ibidem.replay.eviction_windows import EvictionWindow, TextChange, TextStages
from ibidem.replay.replay_bill import Replay, parse_histories
from ibidem.replay.sent_views import MessageChange, SentView
from ibidem.replay.simulate import Simulation
from ibidem.report.measure import SCENARIOS
from ibidem.strategies import profiles
from ibidem.strategies.revision import Evict
from ibidem.strategies.revision.entry import InventoryEntry
from tests.replay.test_billing import PRICE, message, replay, sent, words
from tests.report.test_report import content, log
from tests.support.evict import NO_CLOCKS

EDIT = Edit(strategy="mask", op="set", message=0, path=(), removed=(), added="", reason="")


@dataclass(frozen=True)
class Candidate:
    """A change of a message that may be made from a request on, and takes so many tokens out."""

    message: int
    first: int
    tokens: float


def view_after(candidates: Sequence[Candidate], point: int) -> SentView:
    gone: dict[int, list[Candidate]] = {}
    for each in sorted(candidates, key=lambda each: each.message):
        if each.first <= point:
            gone.setdefault(each.message, []).append(each)
    return SentView(
        [MessageChange(place, hash(tuple(some)), sum(each.tokens for each in some)) for place, some in gone.items()]
    )


def phase(first: int, last: int, candidates: Sequence[Candidate]) -> EvictionWindow:
    staged_texts = [
        TextStages(InventoryEntry(each.message, (), "result", "", 0), None, [TextChange(each.first, last, EDIT)])
        for each in candidates
    ]
    return EvictionWindow(first, last, staged_texts, [], lambda point: view_after(candidates, point))


def by_trying(
    found: Replay, parts: Sequence[tuple[int, int, Sequence[Candidate]]], **world: Any
) -> tuple[float, set[tuple[int, ...]]]:
    """The lowest bill over all choices of requests, and the choices that have it."""
    numbers = range(len(found.steps))
    bills: dict[tuple[int, ...], float] = {}
    for points in chain.from_iterable(combinations(numbers, size) for size in range(len(numbers) + 1)):
        views = []
        for first, last, candidates in parts:
            for number in range(first, last):
                before = [point for point in points if first <= point <= number]
                views.append(view_after(candidates, before[-1] if before else -1))
        bills[points] = found.bill(views, **world).cost
    least = min(bills.values())
    return least, {points for points, cost in bills.items() if cost == least}


@st.composite
def cases(draw: st.DrawFn) -> tuple[Replay, list[tuple[int, int, list[Candidate]]]]:
    """A session of one or two segments, pauses, misses that were recorded, and changes of any message at any time."""
    count = draw(st.integers(1, 7))
    cut = draw(st.integers(1, count))
    pauses = draw(st.lists(st.sampled_from([10.0, 400.0]), min_size=count, max_size=count))
    times = list(accumulate(pauses))
    sizes = draw(st.lists(st.integers(1, 60), min_size=2 * count, max_size=2 * count))
    used = draw(st.lists(st.none() | st.sampled_from([0.0, 0.6, 1.0]), min_size=count, max_size=count))
    history = [message("assistant" if place % 2 else "user", size) for place, size in enumerate(sizes)]
    requests = []
    for number in range(count):
        length = 2 * number + 1
        whole = 900 + sum(size + 19 for size in sizes[:length])
        hit = used[number]
        usage = None if hit is None else Usage(read=int(hit * whole), written=whole - int(hit * whole))
        requests.append(sent(length, times[number], usage))
    segments = [RecordedSegment(history, requests[:cut])]
    if cut < count:
        kept = draw(st.integers(0, 2 * cut))
        other = [*history[:kept], *(message("user", size) for size in sizes[kept:])]
        segments.append(RecordedSegment(other, requests[cut:], kept, "rewind"))
    head = draw(st.sampled_from([{}, {"instructions": "word " * 50}]))
    caching = CacheRules(minimum=draw(st.sampled_from([0, 120])), step=draw(st.sampled_from([1, 16])), lifetime=300)
    session = Recording("test", "openai-chat", segments, head=head)
    parts = []
    for first, last in ((0, cut), (cut, count)):
        if first < last:
            some = st.builds(
                Candidate,
                st.integers(0, 2 * last - 2),
                st.integers(first, last),  # the last one comes too late
                st.floats(0, 15),
            )
            parts.append((first, last, draw(st.lists(some, max_size=6, unique_by=lambda each: each))))
    return replay(session, Prices({"toy": replace(PRICE, caching=caching)})), parts


@settings(max_examples=150, deadline=None)
@given(cases(), st.sampled_from(SCENARIOS), st.booleans())
def test_it_is_the_best_of_all_choices(
    case: tuple[Replay, list[tuple[int, int, list[Candidate]]]], world: Any, by_rule: bool
) -> None:
    found, parts = case
    phases = [phase(*part) for part in parts]
    best = offline_optimum.find_optimum(found, phases, after_break=world, by_rule=by_rule)
    least, choices = by_trying(found, parts, after_break=world, by_rule=by_rule)
    assert best.cost == least
    assert best.points in choices
    views = offline_optimum.views_for(phases, best.points)
    assert found.bill(views, after_break=world, by_rule=by_rule).cost == best.cost


def test_a_change_that_pays_is_made_and_one_that_does_not_is_left() -> None:
    """60 tokens less to read in each request, for 40 + 200 that are written again, once."""
    lengths = [3, *range(5, 205, 2)]
    found = replay(
        Recording(
            "test", "openai-chat", [RecordedSegment([message("user", 81)] * 210, [sent(each) for each in lengths])]
        )
    )
    one = [Candidate(0, 1, 60.0)]
    best = offline_optimum.find_optimum(found, [phase(0, len(lengths), one)])
    assert best.points == (1,)
    assert found.bill().cost - best.cost > 0
    few = replay(
        Recording("test", "openai-chat", [RecordedSegment([message("user", 81)] * 9, [sent(3), sent(5), sent(7)])])
    )
    assert offline_optimum.find_optimum(few, [phase(0, 3, one)]) == (few.bill().cost, ())


def test_a_cold_moment_is_free() -> None:
    requests = [sent(3, 0.0), sent(5, 10.0), sent(7, 1000.0)]
    found = replay(Recording("test", "openai-chat", [RecordedSegment([message("user", 81)] * 9, requests)]))
    one = [Candidate(0, 1, 60.0)]
    for world in SCENARIOS:
        best = offline_optimum.find_optimum(found, [phase(0, 3, one)], after_break=world)
        assert best.points == (2,)
        assert best.cost == found.bill().cost - 60 * PRICE.rates(0).write


def test_nothing_to_choose_from_is_nothing_done() -> None:
    found = replay(Recording("test", "openai-chat", [RecordedSegment([message("user", 81)] * 4, [sent(1), sent(3)])]))
    assert offline_optimum.find_optimum(found, [phase(0, 2, [])]) == (found.bill().cost, ())
    empty = replay(Recording("test", "openai-chat", []))
    assert offline_optimum.find_optimum(empty, []) == (0.0, ())


# ── the edits of a profile ──────────────────────────────────────────────────────────────────────────────────────────

FILES = ("a.py", "b.py", "a.py", "c.py", "d.py", "b.py", "e.py", "f.py", "g.py", "a.py", "h.py", "i.py", "k.py", "l.py")
ECONOMIES = {"dear": (0.1, 2.0), "usual": (0.1, 1.25), "free": (1.0, 1.0)}


@pytest.mark.parametrize("thinking", [False, True], ids=["without thinking", "with thinking"])
@pytest.mark.parametrize("prompts", [0, 30])
@pytest.mark.parametrize("economy", ECONOMIES)
@pytest.mark.parametrize("profile", ["recoverable", "aggressive"])
def test_the_moments_of_a_profile_are_one_of_the_choices(
    profile: str, economy: str, prompts: int, thinking: bool
) -> None:
    """With them the bill is that of the profile, to the last digit; and no choice is dearer than the best."""
    read, write = ECONOMIES[economy]
    [found] = recordings.read("some.jsonl", log(*FILES, prompts=prompts, thinking=thinking))
    price = Price("m", ((0, Rates(1.0, read, write, write)),), CacheRules(0), "anthropic")
    messages = parse_histories(found)
    model = found.models[0]
    measured = Replay(found, Prices({model: price}), words, messages)
    simulation = Simulation(
        found,
        messages,
        profiles.profile_strategies(profile),
        measured.weights,
        words,
        CachePricing(read=read, write=write),
    )
    own = [point for each in simulation.phases for point in each.points]
    assert len(own) == len(simulation.points)
    assert bool(own) == (economy == "free") or prompts
    for world in SCENARIOS:
        bill = measured.bill(simulation.views, after_break=world)
        again = measured.bill(offline_optimum.views_for(simulation.phases, own), after_break=world)
        best = offline_optimum.find_optimum(measured, simulation.phases, after_break=world)
        assert again == bill
        assert best.cost <= bill.cost
        if economy == "free":  # waiting gains nothing where writing costs what reading does
            assert best.cost == bill.cost


def test_what_still_waits_at_the_end_is_among_the_choices() -> None:
    """In a short session a profile may never find its moment; in hindsight there may be one."""
    [found] = recordings.read("some.jsonl", log(*FILES, prompts=60))
    messages = parse_histories(found)
    never = CachePricing(read=0.1, write=1e6)
    strategies = [Evict(**NO_CLOCKS, mask=2)]
    simulation = Simulation(found, messages, strategies, replay(found).weights, words, never)
    assert simulation.points == []
    last = simulation.phases[0].last
    stages = [stage for staged in simulation.phases[0].staged_texts for stage in staged.stages]
    assert sum(stage.first < last for stage in stages) >= 4
    assert all(stage.first <= last == stage.made for stage in stages)


def reads(*texts: str) -> Recording:
    """A session that reads files, with a request before each and one at the end."""
    history: list[dict[str, Any]] = [{"role": "user", "content": "Look around"}]
    for number, text in enumerate(texts):
        call = {"type": "tool_use", "id": f"c{number}", "name": "Read", "input": {"file_path": f"{number}.py"}}
        result = {"type": "tool_result", "tool_use_id": f"c{number}", "content": text}
        history += [{"role": "assistant", "content": [call]}, {"role": "user", "content": [result]}]
    return Recording(
        "test", "anthropic", [RecordedSegment(history, [sent(each) for each in range(1, len(history) + 1, 2)])]
    )


def test_a_text_does_not_go_before_what_refers_to_it_can() -> None:
    """The last part of what is read later stands in the first reading, which is old enough to go long before that."""
    texts = [content(f"{n}.py") for n in range(40)]
    texts[9] += "\n" + "\n".join(texts[0].split("\n")[40:])
    found = reads(*texts)
    strategies, never = profiles.profile_strategies("aggressive"), CachePricing(read=0.1, write=1e6)
    simulation = Simulation(found, parse_histories(found), strategies, replay(found).weights, words, never)
    results = [staged for staged in simulation.phases[0].staged_texts if staged.entry.kind == "result"]
    first, other, again = results[0], results[1], results[9]
    assert "of result 1" in (again.arrival.added if again.arrival else "")
    assert [len(staged.stages) for staged in (first, other, again)] == [1, 1, 1]
    assert first.stages[0].first == again.stages[0].first > other.stages[0].first
