"""How large thinking is by what a request shows of it, and what models make of it by name."""

from __future__ import annotations

import pytest

from ibidem import formats
from ibidem.billing.calibration import usual_scale
from ibidem.billing.prices import Prices, cache_pricing_for
from ibidem.billing.thinking_size import keeps_thinking, signs_thinking, thinking_tokens
from ibidem.model import Message, Thinking


def thinking_in(message: Message) -> Thinking:
    (found,) = (part for part in message.parts if isinstance(part, Thinking))
    return found


def claude(signature: int, text: str = "") -> Thinking:
    block = {"type": "thinking", "thinking": text, "signature": "x" * signature}
    return thinking_in(formats.format_named("anthropic").read_message(0, {"role": "assistant", "content": [block]}))


def test_the_length_of_a_seal_tells_the_size() -> None:
    small, large = (thinking_tokens(claude(length), 0.0) for length in (1000, 10_000))
    assert 0 < small < large
    assert large * 1.6 == pytest.approx((10_000 - 290) / 3.8, rel=0.05)  # as a provider of newer models counts


def test_the_shortest_seals_hold_nothing() -> None:
    assert thinking_tokens(claude(0), 0.0) == thinking_tokens(claude(250), 0.0) == 0.0
    assert thinking_tokens(claude(0), 12.0) == 12.0


def test_a_text_counts_where_it_is_more_than_the_seal_tells() -> None:
    assert thinking_tokens(claude(1000, "text"), 500.0) == 500.0


def test_hidden_thinking_and_reasoning_have_a_seal_too() -> None:
    block = {"type": "redacted_thinking", "data": "x" * 2000}
    redacted = thinking_in(formats.format_named("anthropic").read_message(0, {"role": "assistant", "content": [block]}))
    item = {"type": "reasoning", "summary": [], "encrypted_content": "x" * 3000}
    reasoning = thinking_in(formats.format_named("openai-responses").read_message(0, item))
    assert thinking_tokens(redacted, 0.0) > 200
    assert thinking_tokens(reasoning, 0.0) == pytest.approx((3000 * 3 / 4 - 650) / 4, rel=0.15)


SIGNED = [
    *("claude-fable-5-1", "claude-fable-5.2", "claude-mythos-5-1", "claude-opus-5-5", "claude-sonnet-5-5-20260928"),
    *("claude-haiku-5-5", "anthropic/claude-opus-5.5", "us.anthropic.claude-opus-5-5-v1:0", "claude-opus-6"),
    *("claude-saga-1", "claude-opus", "opus"),
]
UNSIGNED = [
    *("claude-fable-5", "claude-opus-5", "claude-opus-4-8", "claude-opus-4-20250514", "claude-3-7-sonnet-20250219"),
    *("anthropic.claude-opus-4-8-v1:0", "team-7/claude-sonnet-4-5", "claude-instant-1.2", "gpt-5.6", "glm-5.2", ""),
]


@pytest.mark.parametrize("model", SIGNED)
def test_newer_models_sign_thinking(model: str) -> None:
    assert signs_thinking(model)
    assert cache_pricing_for(Prices().of(model, "anthropic")).preserved_thinking


@pytest.mark.parametrize("model", UNSIGNED)
def test_older_and_other_models_do_not(model: str) -> None:
    assert not signs_thinking(model)
    assert not cache_pricing_for(Prices().of(model, "anthropic")).preserved_thinking


def test_what_is_priced_as_another_model_is_still_itself() -> None:
    assert Prices(model="claude-sonnet-4-5").of("claude-opus-5-5", "anthropic").preserved_thinking
    assert not Prices(model="claude-opus-5-5").of("claude-sonnet-4-5", "anthropic").preserved_thinking


KEPT = (
    "claude-opus-4-5",
    "claude-sonnet-4-6",
    "claude-fable-5",
    "claude-haiku-5-5",
    "gpt-5.6-sol",
    "gpt-6",
    "deepseek-v4",
)
UNKEPT = (
    "claude-sonnet-4-5",
    "claude-haiku-4-5",
    "claude-opus-4-1",
    "claude-3-opus-20240229",
    "gpt-5.5",
    "gemini-3-pro",
)


def test_what_becomes_of_thinking_where_no_count_tells() -> None:
    assert [model for model in KEPT if not keeps_thinking(model)] == []
    assert [model for model in UNKEPT if keeps_thinking(model)] == []
    assert cache_pricing_for(Prices().of("claude-opus-4-8", "anthropic")).keeps_thinking
    assert not cache_pricing_for(Prices().of("claude-sonnet-4-5", "anthropic")).keeps_thinking


def test_newer_encodings_have_more_tokens() -> None:
    assert usual_scale("claude-opus-4-8") == usual_scale("claude-sonnet-5") == usual_scale("claude-fable-5") > 1
    assert usual_scale("claude-opus-4-6") == usual_scale("claude-sonnet-4-6") == usual_scale("gpt-5.6") == 1.0
