"""Prices: what the list says, what is taken for a model that is not in it, and files of one's own, good and bad."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import UTC, datetime
from typing import Any

import pytest
from genai_prices.data_snapshot import DataSnapshot, set_custom_snapshot
from hypothesis import given
from hypothesis import strategies as st

from ibidem.billing import prices
from ibidem.billing.cache_rules import PAID_CACHING, USUAL_CACHING, CacheRules, cache_rules_for
from ibidem.billing.prices import DEFAULT_MODELS, Price, Prices, Rates, cache_pricing_for, own_prices
from ibidem.errors import IbidemError

M = 1e-6
"""Dollars per million tokens → per token."""


def rates(fresh: float, read: float, write: float, write_1h: float, output: float = 0) -> Rates:
    near: list[Any] = [pytest.approx(each * M) for each in (fresh, read, write, write_1h, output)]
    return Rates(*near)


def day(year: int, month: int, date: int, hour: int = 0) -> float:
    return datetime(year, month, date, hour, tzinfo=UTC).timestamp()


# ── the list ────────────────────────────────────────────────────────────────────────────────────────────────────────

LISTED = {
    "Claude, with surcharges for writes": ("claude-opus-4-5", rates(5, 0.5, 6.25, 10, 25), "anthropic"),
    "OpenAI, where writing costs nothing more": ("gpt-5", rates(1.25, 0.125, 1.25, 1.25, 10), "openai"),
    "a discount of a half": ("gpt-4o", rates(2.5, 1.25, 2.5, 2.5, 10), "openai"),
    "Gemini": ("gemini-2.5-pro", rates(1.25, 0.125, 1.25, 1.25, 10), "google"),
    "no discount in the list: reading costs what fresh input does": (
        "kimi-k2",
        rates(0.57, 0.57, 0.57, 0.57, 2.3),
        "moonshotai",
    ),
}


@pytest.mark.parametrize("case", LISTED)
def test_a_listed_model_has_its_rates_and_its_providers_cache(case: str) -> None:
    model, expected, provider = LISTED[case]
    price = Prices().of(model, "openai-chat", day(2026, 6, 1))  # a newer list may know newer prices
    assert (price.model, price.provider, price.assumed) == (model, provider, False)
    assert price.rates(1000) == expected
    assert price.caching == cache_rules_for(provider, model)


NAMES = {
    "a date behind it": "claude-sonnet-4-5-20250929",
    "its provider before it": "anthropic/claude-sonnet-4-5",
    "a router before that": "openrouter/anthropic/claude-sonnet-4-5",
    "as the router spells it": "openrouter/anthropic/claude-sonnet-4.5",
    "a house of one's own before it": "my-gateway/team-7/claude-sonnet-4-5",
}


@pytest.mark.parametrize("case", NAMES)
def test_a_model_is_known_by_its_other_names(case: str) -> None:
    assert Prices().of(NAMES[case], "openai-chat") == Prices().of("claude-sonnet-4-5", "openai-chat")


REGIONS = {
    "across regions": ("us.anthropic.claude-sonnet-4-5-20250929-v1:0", 1.1),
    "one region": ("anthropic.claude-sonnet-4-5-20250929-v1:0", 1.1),
    "everywhere": ("global.anthropic.claude-sonnet-4-5-20250929-v1:0", 1.0),
    "as LiteLLM says it": ("bedrock/us.anthropic.claude-sonnet-4-5-20250929-v1:0", 1.1),
    "with its route": ("bedrock/converse/us.anthropic.claude-sonnet-4-5-20250929-v1:0", 1.1),
    "an inference profile": (
        "arn:aws:bedrock:us-east-1:1:inference-profile/eu.anthropic.claude-sonnet-4-5-20250929-v1:0",
        1.1,
    ),
}


@pytest.mark.parametrize("case", REGIONS)
def test_a_model_is_known_as_bedrock_names_it_and_a_region_costs_a_tenth_more(case: str) -> None:
    name, more = REGIONS[case]
    found, direct = Prices().of(name, "openai-chat"), Prices().of("claude-sonnet-4-5", "anthropic")
    assert not found.assumed
    assert found.rates(0).write_1h == pytest.approx(direct.rates(0).write_1h * more)
    assert (found.caching.marks, found.caching.minimum) == (True, direct.caching.minimum)


def test_a_larger_request_pays_the_higher_tier_whole() -> None:
    price = Prices().of("claude-sonnet-4-5", "anthropic")
    assert price.rates(200_000) == price.rates(0) == rates(3, 0.3, 3.75, 6, 15)
    assert price.rates(200_000.5) == price.rates(900_000) == rates(6, 0.6, 7.5, 12, 22.5)


def test_the_price_is_that_of_the_day() -> None:
    """The list dropped the surcharge for long requests on 13 March 2026."""
    prices = Prices()
    before = prices.of("claude-opus-4-6", "anthropic", day(2026, 3, 12, 23))
    after = prices.of("claude-opus-4-6", "anthropic", day(2026, 3, 13))
    assert [price.rates(300_000).fresh for price in (before, after)] == pytest.approx([10 * M, 5 * M])
    assert prices.of("claude-opus-4-6", "anthropic") == after  # today


def test_hours_of_one_day_have_one_price() -> None:
    """Some providers are cheaper at night: a day is the finest that is looked at."""
    prices = Prices()
    found = {prices.of("deepseek-chat", "openai-chat", day(2026, 1, 2, hour)).tiers for hour in range(24)}
    assert len(found) == 1


@pytest.mark.parametrize(
    "at",
    [
        pytest.param(0.0, id="the beginning of time"),
        pytest.param(-1e6, id="before it"),
        pytest.param(4e9, id="the next century"),
    ],
)
def test_any_day_has_a_price(at: float) -> None:
    assert Prices().of("claude-opus-4-6", "anthropic", at).model == "claude-opus-4-6"


@pytest.mark.parametrize(
    "at",
    [
        pytest.param(1e17, id="a year of many digits"),
        pytest.param(-1e17, id="one before Christ"),
        pytest.param(float("inf"), id="never"),
        pytest.param(float("nan"), id="no time at all"),
    ],
)
def test_a_time_that_no_calendar_has_is_today(at: float) -> None:
    """Times come from logs, which may hold anything."""
    assert Prices().of("claude-opus-4-6", "anthropic", at) == Prices().of("claude-opus-4-6", "anthropic")


# ── models that are not in it ───────────────────────────────────────────────────────────────────────────────────────

UNKNOWN = {
    "made up": "house-model-7",
    "made up, with a provider": "openrouter/acme/house-model-7",
    "not named": "",
    "a slash alone": "/",
    "a placeholder": "<synthetic>",
    "no model of tokens": "dall-e-3",
    "not a name at all": "\ud800\n\x1b[31m",
    "very long": "x" * 10_000,
}


@pytest.mark.parametrize("format", DEFAULT_MODELS)
@pytest.mark.parametrize("case", UNKNOWN)
def test_an_unknown_model_is_priced_as_another_that_is_named(case: str, format: str) -> None:
    price = Prices().of(UNKNOWN[case], format)
    assert (price.model, price.assumed) == (DEFAULT_MODELS[format], True)
    assert price.tiers == Prices().of(DEFAULT_MODELS[format], format).tiers
    assert not price.caching.key, "its server may refuse such fields"


def test_everything_can_be_priced_as_one_model() -> None:
    prices = Prices(model="gpt-5")
    for name in ("claude-opus-4-5", "house-model-7", ""):
        price = prices.of(name, "anthropic")
        assert (price.model, price.assumed) == ("gpt-5", False)


def test_a_model_that_was_asked_for_must_be_known() -> None:
    with pytest.raises(IbidemError, match=r"'house-model-7' is not in the price list: .*file"):
        Prices(model="house-model-7").of("gpt-5", "openai-chat")


def test_ones_own_prices_come_first() -> None:
    own = own_prices('{"gpt-5": {"input": 7}, "house-model-7": {"input": 1}}', "p.json")
    prices = Prices(own)
    assert prices.of("gpt-5", "openai-chat").rates(1) == rates(7, 7, 7, 7)
    assert prices.of("house-model-7", "anthropic").assumed is False
    assert prices.of("gpt-4o", "openai-chat").provider == "openai"
    assert Prices(own, "house-model-7").of("gpt-5", "openai-chat").model == "house-model-7"


# ── a file of one's own ─────────────────────────────────────────────────────────────────────────────────────────────

GOOD: dict[str, tuple[dict[str, Any], list[tuple[int, Rates]], CacheRules]] = {
    "input alone: no discounts, no surcharges": (
        {"input": 3},
        [(0, rates(3, 3, 3, 3))],
        USUAL_CACHING,
    ),
    "nothing costs anything": ({"input": 0}, [(0, rates(0, 0, 0, 0))], USUAL_CACHING),
    "all of them, and so a cache that is written to": (
        {"input": 3, "read": 0.3, "write": 3.75, "write_1h": 6, "output": 15},
        [(0, rates(3, 0.3, 3.75, 6, 15))],
        PAID_CACHING,
    ),
    "a write for an hour costs what a write does": (
        {"input": 3, "write": 4},
        [(0, rates(3, 3, 4, 4))],
        PAID_CACHING,
    ),
    "tiers in any order take the rest from the base": (
        {"input": 1, "read": 0.5, "tiers": [{"from": 200, "input": 3}, {"from": 100, "input": 2, "read": 0.7}]},
        [(0, rates(1, 0.5, 1, 1)), (100, rates(2, 0.7, 2, 2)), (200, rates(3, 0.5, 3, 3))],
        USUAL_CACHING,
    ),
    "a cache of one's own": (
        {"input": 1, "lifetime": 60.5, "minimum": 10},
        [(0, rates(1, 1, 1, 1))],
        CacheRules(minimum=10, step=128, lifetime=60.5),
    ),
}


@pytest.mark.parametrize("case", GOOD)
def test_a_file_of_ones_own(case: str) -> None:
    fields, tiers, caching = GOOD[case]
    for text in (json.dumps({"m": fields}), json.dumps({"m": fields}).encode("utf-16")):
        assert own_prices(text, "p.json") == {"m": Price("m", tuple(tiers), caching)}


DEEP = b'{"m": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"
BAD: dict[str, tuple[Any, list[str]]] = {
    "nothing": (b"", ["not valid JSON"]),
    "no JSON": (b'{"m": {"input": 3}', ["not valid JSON", "correct it there"]),
    "no text": (b"\xff\xfe\xfd", ["not valid JSON"]),
    "a list": ([], ["an object of models is expected", '{"my-model": {"input": 3}}']),
    "a number": (3, ["an object of models is expected"]),
    "null": (None, ["an object of models is expected"]),
    "no model": ({}, ["an object of models is expected"]),
    "a price alone": ({"m": 3}, ["m: ", "must be an object with a field 'input'", "number"]),
    "null for a model": ({"m": None}, ["m: ", "null"]),
    "a model without fields": ({"m": {}}, ["m: ", "'input' is missing"]),
    "a model with a wrong field": ({"m": {"input": 3, "price": 15}}, ["m: ", "unknown field 'price'", "write_1h"]),
    "no price for input": ({"m": {"read": 3}}, ["m: ", "'input' is missing"]),
    "tiers that are no list": ({"m": {"input": 3, "tiers": {}}}, ["m: ", "'tiers' must be a list", "object"]),
    "a tier that is no object": ({"m": {"input": 3, "tiers": [3]}}, ["m: ", "tier", "'from'"]),
    "a tier that begins nowhere": ({"m": {"input": 3, "tiers": [{"input": 3}]}}, ["m: ", "tier", "'from'"]),
    "a tier that begins with a word": (
        {"m": {"input": 3, "tiers": [{"from": "200k", "input": 3}]}},
        ["m: ", "'from' must be a number"],
    ),
    "a tier with a wrong price": (
        {"m": {"input": 3, "tiers": [{"from": 200, "read": -1}]}},
        ["m: ", "'read' must be a number"],
    ),
    "the second of two models": ({"a": {"input": 3}, "m": {"input": "3"}}, ["m: ", "'input' must be a number"]),
    **{
        f"{word} for {field}": (f'{{"m": {{"input": 3, "{field}": {value}}}}}', ["m: ", f"'{field}' must be a number"])
        for field in ("input", "read", "write", "write_1h", "lifetime", "minimum")
        for word, value in {
            "less than nothing": "-0.1",
            "a word": '"3"',
            "true": "true",
            "null": "null",
            "a list": "[3]",
            "no number": "NaN",
            "infinity": "Infinity",
            "a number beyond all": "1e400",
        }.items()
    },
}


@pytest.mark.parametrize("case", BAD)
def test_a_wrong_file_is_named_with_the_model_and_the_field(case: str) -> None:
    content, words = BAD[case]
    text = content if isinstance(content, str | bytes) else json.dumps(content)
    with pytest.raises(IbidemError) as caught:
        own_prices(text, "my prices.json")
    said = str(caught.value)
    assert said.startswith("my prices.json: ")
    assert all(word in said for word in words), said


@pytest.mark.parametrize(
    ("text", "words"),
    [
        pytest.param(
            DEEP,
            ["nested"],
            id="lists in each other, 100,000 deep",
        ),
        pytest.param(
            b'{"m": {"input": 1' + b"0" * 400 + b"}}",
            ["m: ", "'input' must be a number"],
            id="an integer of 401 digits",
        ),
        pytest.param(
            b'{"m": {"input": 3, "tiers": [{"from": 9, "inputs": 3}]}}',
            ["m: ", "unknown field 'inputs'"],
            id="a tier with a wrong field",
        ),
    ],
)
def test_a_wrong_file_of_a_rarer_kind(text: bytes, words: list[str]) -> None:
    with pytest.raises(IbidemError) as caught:
        own_prices(text, "my prices.json")
    assert all(word in str(caught.value) for word in ["my prices.json: ", *words]), str(caught.value)


SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3)
JSON = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
)
FIELD = st.sampled_from(["input", "read", "write", "write_1h", "tiers", "lifetime", "minimum", "other"])
TIER = st.dictionaries(st.sampled_from(["from", "input", "read"]), SCALARS, max_size=3)
MODEL = st.dictionaries(FIELD, st.integers(0, 9) | JSON | st.lists(TIER, max_size=2), max_size=5)


@given(JSON | st.dictionaries(st.text(max_size=2), MODEL | JSON, max_size=2))
def test_any_json_is_prices_or_a_clear_error(value: Any) -> None:
    try:
        found, said = own_prices(json.dumps(value), "p.json"), "p.json: "
    except IbidemError as error:
        found, said = {}, str(error)
    assert said.startswith("p.json: ")
    for name, price in found.items():
        assert price.model == name
        starts = [start for start, _ in price.tiers]
        assert starts == sorted(starts)
        assert all(0 <= each < float("inf") for _, r in price.tiers for each in (r.fresh, r.read, r.write))


@given(st.binary(max_size=40))
def test_any_bytes_are_prices_or_a_clear_error(data: bytes) -> None:
    with pytest.raises(IbidemError, match=r"^p\.json: "):
        own_prices(data, "p.json")


def test_how_long_a_cache_may_still_know_reaches_who_decides() -> None:
    assert cache_pricing_for(Prices().of("gpt-5", "openai-chat")).forgotten == 3600
    assert cache_pricing_for(Prices().of("claude-sonnet-4-5", "anthropic")).forgotten is None
    own = own_prices('{"m": {"input": 1, "lifetime": 60}}', "prices.json")
    assert cache_pricing_for(own["m"]).forgets(61.0)  # who says how long it is need not be doubted


# ── the package that has the list ───────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("name", ["", " ", "/", "x" * 10_000, "\ud800", "İclaude-opus-4-5", "house-model-7"])
def test_a_name_that_no_list_has_gets_an_assumed_price(name: str) -> None:
    assert Prices().of(name, "anthropic").assumed


def test_package_that_was_given_a_newer_list_is_asked_for_it() -> None:
    set_custom_snapshot(DataSnapshot([], from_auto_update=True))
    try:
        assert prices._find_model.__wrapped__("claude-opus-4-5", None) is None
    finally:
        set_custom_snapshot(None)


def test_package_is_loaded_with_the_first_price() -> None:
    code = (
        "import sys; from ibidem.billing.prices import Prices; before = 'genai_prices' in sys.modules\n"
        "Prices().of('claude-opus-4-5', 'anthropic'); print(before, 'genai_prices' in sys.modules)"
    )
    shown = subprocess.check_output([sys.executable, "-W", "error", "-c", code], text=True, timeout=60)
    assert shown == "False True\n"
