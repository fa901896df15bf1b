"""The laws of the architecture, on generated histories, for every strategy and profile, in every format."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import ibidem
from ibidem import testing
from ibidem.formats import FORMATS

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
    **{f"profile {name}": chosen for name, chosen in ibidem.PROFILES.items()},
}
HEEDS_TOOL_TEXT = {"profile codetether-all", "Devboy", "profile devboy"}
"""These keep a habit of the system they reproduce: see docs/profiles.md."""

SLOW = settings(deadline=None, max_examples=12, suppress_health_check=list(HealthCheck))
every_format = pytest.mark.parametrize("format", FORMATS)
every_strategy = pytest.mark.parametrize("name", STRATEGIES)


def run_for(name: str, format: str) -> testing.Run:
    return testing.runner(STRATEGIES[name], format)


@every_format
@every_strategy
@given(data=st.data())
@SLOW
def test_on_well_formed_histories(name: str, format: str, data: st.DataObject) -> None:
    request = data.draw(testing.histories(format))
    run = run_for(name, format)
    touches = frozenset[str]().union(*(strategy.touches for strategy in STRATEGIES[name]))
    testing.valid_stays_valid(run, request, format)
    testing.never_larger(run, request, format)
    testing.untouched_is_untouched(run, request, format)
    testing.sacred_is_sacred(run, request, format, touches)
    testing.idempotent(run, request, format)
    testing.text_and_value_agree(run, request, format)
    assert not run(request).stats.failures
    if name not in HEEDS_TOOL_TEXT:
        testing.tool_output_cannot_steer(run, request, format)


@every_format
@every_strategy
@given(data=st.data())
@SLOW
def test_on_broken_histories(name: str, format: str, data: st.DataObject) -> None:
    request = data.draw(testing.broken_histories(format))
    run = run_for(name, format)
    testing.untouched_is_untouched(run, request, format)
    assert not run(request).stats.failures
    # Repair comes last in codetether and moves the windows that the strategies before it count from the end.
    if not name.startswith("profile codetether"):
        testing.idempotent(run, request, format)


@every_format
@given(data=st.data())
@SLOW
def test_what_was_sent_stays_as_it_was_sent(format: str, data: st.DataObject) -> None:
    request = data.draw(testing.histories(format))
    testing.arrival_is_final(testing.runner((ibidem.Dedup(),), format), request, format)


class Raises:
    name = "raises"
    touches = frozenset({"result"})

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
