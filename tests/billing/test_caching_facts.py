"""What is known of providers' caches: rows that hang together, found by the names that models go by."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ibidem.billing.cache_rules import (
    CACHING,
    MINIMUMS,
    MODELS,
    USUAL_CACHING,
    CacheRules,
    bare_name,
    cache_rules_for,
    conservative_rules,
)
from ibidem.billing.prices import Prices

EVERY_ROW = [*CACHING.values(), *(row for _, row in MODELS), USUAL_CACHING]

BARE = {
    "claude-opus-5": "claude-opus-5",
    "us.anthropic.claude-opus-5": "claude-opus-5",
    "us-gov.anthropic.claude-opus-5": "claude-opus-5",
    "anthropic.claude-opus-5": "claude-opus-5",
    "regional.anthropic.claude-opus-4-6-v1:0": "claude-opus-4-6-v1:0",
    "bedrock/converse/eu.anthropic.claude-opus-5": "claude-opus-5",
    "openrouter/anthropic/claude-opus-5": "claude-opus-5",
    "global.openai.gpt-6-sol": "gpt-6-sol",
    "gpt-5.4": "gpt-5.4",
    "us.anthropic.": "us.anthropic.",
    "": "",
    "/": "",
}


@pytest.mark.parametrize("model", BARE)
def test_a_name_is_read_without_who_serves_it(model: str) -> None:
    assert bare_name(model) == BARE[model]


@given(st.text(max_size=60))
def test_any_name_is_read(model: str) -> None:
    assert model.endswith(bare_name(model))
    assert cache_rules_for("", model).minimum > 0


def test_a_long_name_takes_no_time() -> None:
    start = time.perf_counter()
    for model in ("a" * 200_000, "a." * 100_000, "/" * 200_000, "a-/" * 70_000):
        cache_rules_for("", model)
    assert time.perf_counter() - start < 1


@pytest.mark.parametrize("row", EVERY_ROW)
def test_rows_hang_together(row: CacheRules) -> None:
    assert min(row.minimum, row.step) > 0
    assert row.lifetime < (row.forgotten or row.lifetime + 1)
    assert row.marks or not row.hour, "an hour is asked for by a mark"
    assert not (row.key and row.marks), "told by marks or by a key"


def test_no_row_is_hidden_by_one_before_it() -> None:
    """The first that fits counts."""
    for starts in ([start for start, _ in MINIMUMS], [start for start, _ in MODELS]):
        for place, start in enumerate(starts):
            assert not any(start.startswith(before) for before in starts[:place]), start


@pytest.mark.parametrize(("start", "tokens"), MINIMUMS)
def test_a_models_minimum_is_its_own_whoever_serves_it(start: str, tokens: int) -> None:
    for provider in ("anthropic", "aws", "google", "", "somebody"):
        assert cache_rules_for(provider, start).minimum == tokens
        assert cache_rules_for(provider, f"us.anthropic.{start}").minimum == tokens


def test_a_later_model_is_not_taken_for_the_one_before() -> None:
    """What was not measured is not thought shorter than what was."""
    for before, later in (("claude-opus-5", "claude-opus-5-5"), ("claude-fable-5", "claude-fable-5-2")):
        assert cache_rules_for("anthropic", before).minimum < cache_rules_for("anthropic", later).minimum


@pytest.mark.parametrize(
    "model", ["deepseek-chat", "gemini-2.5-pro", "kimi-k2", "gpt-oss-120b", "claude-opus-5", "mine"]
)
def test_a_key_is_given_only_to_who_takes_one(model: str) -> None:
    assert not Prices().of(model, "openai-chat").caching.key


def test_an_hour_is_asked_for_where_it_is_documented() -> None:
    hours = {
        model: Prices().of(model, "anthropic").caching.hour
        for model in ("claude-opus-4-8", "us.anthropic.claude-opus-4-8-v1:0", "us.anthropic.claude-opus-4-5-v1:0")
    }
    assert list(hours.values()) == [True, False, True]


def test_of_an_unlisted_model_nothing_is_asked_that_its_server_may_refuse() -> None:
    assert conservative_rules(replace(USUAL_CACHING, key=True), "") == USUAL_CACHING
    assert conservative_rules(CACHING["openai"], "big-pickle") == USUAL_CACHING
    assert conservative_rules(CACHING["openai"], "gpt-9") == replace(USUAL_CACHING, forgotten=3600)
