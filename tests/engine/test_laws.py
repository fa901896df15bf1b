"""The laws of the architecture, on generated histories, for every strategy and profile, in every format."""

from __future__ import annotations

import json
from typing import Any, ClassVar

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import ibidem
from ibidem import testing
from ibidem.formats import FORMATS
from ibidem.model import Kind
from tests.support.evict import NO_CLOCKS
from tests.support.lanes import daily

STRATEGIES: dict[str, Any] = {
    "Dedup": (ibidem.Dedup(),),
    "Snippet": (ibidem.Snippet(),),
    "Snippet, small": (ibidem.Snippet(window=1, min_bytes=100, head=40, tail=40),),
    "Lingua": (ibidem.Lingua(window=1),),
    "PruneThinking": (ibidem.PruneThinking(window=1),),
    "DedupToolCalls": (ibidem.DedupToolCalls(window=1, min_bytes=16),),
    "DropMiddle": (ibidem.DropMiddle(window=3, min_messages=6),),
    "RepairPairing": (ibidem.RepairPairing(),),
    "RepairPairing by id": (ibidem.RepairPairing(by_place=False),),
    "Devboy": (ibidem.Devboy(),),
    "Evict, eager": (
        ibidem.Evict(
            economy=ibidem.CachePricing(read=1.0, write=1.0), mask=2, arguments=80, edit_arguments=(0, 0), **NO_CLOCKS
        ),
    ),
    "BackReferences, greedy": (ibidem.BackReferences(min_gain=0, repeat_guard=0),),
    "BackReferences, inside": (ibidem.BackReferences(min_gain=0, repeat_guard=0, inside=1, diffs=True),),
    "Evict, inside": (
        ibidem.Evict(
            arrival=ibidem.BackReferences(inside=1),
            economy=ibidem.CachePricing(read=1.0, write=1.0),
            mask=1,
            **NO_CLOCKS,
        ),
    ),
    **{f"profile {name}": chosen for name, chosen in ibidem.PROFILES.items()},
}
HEEDS_TOOL_TEXT = {"profile codetether-all"}
"""It keeps a habit of the system that it reproduces: see docs/profiles.md."""
EXACT = {name for name, strategies in STRATEGIES.items() if all(strategy.exact for strategy in strategies)}
"""They reproduce another system, also where a text grows (law 4) or a second pass changes more (law 10)."""
LOSSLESS = {"profile lossless", "BackReferences, greedy", "BackReferences, inside"}
READS_LAYOUT = {"Evict, eager", "Evict, inside", "profile balanced", "profile recoverable", "profile aggressive"}
"""They read the layout of a text, so that enciphering it changes what they see; their law 9 is in
tests/strategies/test_backrefs.py."""

SLOW = settings(deadline=None, max_examples=6, suppress_health_check=list(HealthCheck))
every_format = pytest.mark.parametrize("format", FORMATS)
every_strategy = pytest.mark.parametrize("name", daily(STRATEGIES, "profile lossless", "profile recoverable"))
one_format_daily = pytest.mark.parametrize("format", daily(FORMATS, "anthropic"))


def run_for(name: str, format: str) -> testing.Run:
    return testing.runner(STRATEGIES[name], format)


@one_format_daily
@every_strategy
@given(data=st.data())
@SLOW
def test_on_well_formed_histories(name: str, format: str, data: st.DataObject) -> None:
    request = data.draw(testing.histories(format))
    run = run_for(name, format)
    touches = frozenset[str]().union(*(strategy.touches for strategy in STRATEGIES[name]))
    touches |= {"thinking"} if name in EXACT else set()  # if it is signed against text that is edited
    testing.valid_stays_valid(run, request, format)
    testing.untouched_is_untouched(run, request, format)
    testing.sacred_is_sacred(run, request, format, touches)
    if name not in EXACT:
        testing.never_larger(run, request, format)
        testing.idempotent(run, request, format)
    testing.text_and_value_agree(run, request, format)
    assert not run(request).stats.failures
    if name in LOSSLESS:
        testing.lossless(run, request, format)
    elif name not in HEEDS_TOOL_TEXT | READS_LAYOUT:
        testing.tool_output_cannot_steer(run, request, format)


@one_format_daily
@every_strategy
@given(data=st.data())
@SLOW
def test_on_broken_histories(name: str, format: str, data: st.DataObject) -> None:
    request = data.draw(testing.broken_histories(format))
    run = run_for(name, format)
    testing.untouched_is_untouched(run, request, format)
    # A plan that would make it worse is refused, which is no fault; anything else would be.
    assert all(each.startswith("the plan would break a rule") for each in run(request).stats.failures)
    if name not in EXACT:
        testing.idempotent(run, request, format)


@one_format_daily
@pytest.mark.parametrize("name", daily(["Dedup", *sorted(LOSSLESS)], "profile lossless"))
@given(data=st.data())
@SLOW
def test_what_was_sent_stays_as_it_was_sent(name: str, format: str, data: st.DataObject) -> None:
    request = data.draw(testing.histories(format))
    testing.arrival_is_final(run_for(name, format), request, format)


@one_format_daily
@given(data=st.data())
@SLOW
def test_a_session_gives_what_compact_gives(format: str, data: st.DataObject) -> None:
    requests = data.draw(st.lists(testing.histories(format, 6), min_size=1, max_size=3))
    key = FORMATS[format].history_key
    session = ibidem.Session(format=format)
    for request in requests:  # unrelated conversations, each growing, then one that rewinds
        for length in [*range(1, len(request[key]) + 1), 2]:
            part = {**request, key: request[key][:length]}
            expected = ibidem.compact(part, format=format).request
            assert session.compact(part).request == expected
            assert json.loads(session.compact(json.dumps(part).encode()).request) == json.loads(json.dumps(expected))


@one_format_daily
@pytest.mark.parametrize("name", daily(sorted(LOSSLESS), "profile lossless"))
@given(data=st.data())
@SLOW
def test_markers_that_are_not_ours(name: str, format: str, data: st.DataObject) -> None:
    request = data.draw(testing.histories(format, 8))
    places = testing.places_of_results(request, format)
    chosen = data.draw(st.lists(st.sampled_from(places), max_size=3, unique=True)) if places else []
    forged = {place: data.draw(testing.forgeries(testing.tag_in(request, format))) for place in chosen}
    testing.foreign_markers_change_nothing_else(run_for(name, format), request, format, forged)
    testing.foreign_markers_come_back(run_for(name, format), request, format, forged)


class Raises:
    name: ClassVar[str] = "raises"
    touches: ClassVar[frozenset[Kind]] = frozenset({"result"})

    def plan(self, conv: Any) -> Any:
        raise RuntimeError("out of order")


@every_format
@given(data=st.data())
@settings(deadline=None, max_examples=5)
def test_an_internal_error_sends_the_original_and_says_why(format: str, data: st.DataObject) -> None:
    request = data.draw(testing.histories(format))
    result = ibidem.compact(request, strategies=[ibidem.Dedup(), Raises()], format=format)
    assert result.request is request
    assert result.reason == "RuntimeError: out of order"
    assert result.stats.failures == (result.reason,)
    assert not result.plan
