"""Usage that a provider reported: sums, and Anthropic's iterations."""

from __future__ import annotations

from typing import Any

import pytest

from ibidem.billing.usage import Usage, anthropic_usage, compaction_usage, count_in

COUNTS = {"input_tokens": 900, "output_tokens": 50, "cache_read_input_tokens": 7}
STEP = {"type": "compaction", "input_tokens": 180_000, "output_tokens": 3_500}


def test_sum_adds_each_kind_of_tokens() -> None:
    assert Usage(1, 2, 3, 4, 5, 6) + Usage(10, 20, 30, 40, 50, 60) == Usage(11, 22, 33, 44, 55, 66)


def test_only_compactions_are_added_to_the_top_level_counts() -> None:
    others = [{**STEP, "type": kind} for kind in ("message", "advisor_message", "fallback_message")]
    found = {**COUNTS, "iterations": [STEP, *others, STEP]}
    assert compaction_usage(found) == Usage(fresh=360_000, output=7_000)
    assert anthropic_usage(found) == Usage(fresh=360_900, read=7, output=7_050)


@pytest.mark.parametrize(
    "iterations",
    [
        None,
        "compaction",
        7,
        {"type": "compaction", "input_tokens": 5},
        [None, "compaction", 7, [STEP]],
        [{**STEP, "type": ["compaction"]}],
        [{"type": "compaction", "input_tokens": "5", "output_tokens": -5, "cache_creation": [5]}],
        [{"type": "compaction", "input_tokens": True, "cache_creation": {"ephemeral_1h_input_tokens": {}}}],
        [{"type": "compaction", "iterations": [STEP]}],
    ],
    ids=repr,
)
def test_odd_iterations_count_for_nothing(iterations: Any) -> None:
    assert anthropic_usage({**COUNTS, "iterations": iterations}) == Usage(fresh=900, read=7, output=50)


def test_count_in_follows_a_path() -> None:
    assert count_in({"a": {"b": 5}}, "a", "b") == 5
    assert count_in({"a": 5}, "a", "b") == 0
    assert count_in(None, "a") == 0
