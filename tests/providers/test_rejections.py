"""Which refusals of a provider may be due to what was rewritten."""

from __future__ import annotations

import gzip
import json
from typing import Any

import pytest

from ibidem.providers.rejections import Rejection


def anthropic(kind: str, message: str) -> Any:
    return {"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_1"}


def openai(kind: str, message: str, code: str | None = None) -> Any:
    return {"error": {"message": message, "type": kind, "param": None, "code": code}}


def gemini(status: str, message: str) -> Any:
    return {"error": {"code": 400, "message": message, "status": status, "details": []}}


OURS: dict[str, tuple[Any, str]] = {
    "thinking that was signed for something else": (
        anthropic("invalid_request_error", "messages.1.content.0: Invalid `signature` in `thinking` block"),
        "invalid_request_error",
    ),
    "an empty text": (
        anthropic("invalid_request_error", "messages: text content blocks must be non-empty"),
        "invalid_request_error",
    ),
    "a call without a result": (
        openai("invalid_request_error", "No tool output found for function call call_1."),
        "invalid_request_error",
    ),
    "a code beside the type": (
        openai("invalid_request_error", "Invalid value", "invalid_value"),
        "invalid_value",
    ),
    "Gemini": (gemini("INVALID_ARGUMENT", "Please ensure that function call turn comes after"), "INVALID_ARGUMENT"),
    "Gemini, streamed": ([gemini("INVALID_ARGUMENT", "Thought signature is not valid")], "INVALID_ARGUMENT"),
    "a gateway that checks shapes": ({"detail": [{"loc": ["body"], "msg": "field required"}]}, "unknown"),
    "an error that is a text": ({"error": "bad request"}, "unknown"),
    "a name that is none": (openai("see <b>here</b>\n", "x"), "unknown"),
    "a tool that is called like another error": (
        anthropic("invalid_request_error", "tools.0: no result for 'credit_check', 'quota' or `rate-limit`"),
        "invalid_request_error",
    ),
    "a field that is": (
        openai("invalid_request_error", "Invalid value in input.3.billing_address.credit_card"),
        "invalid_request_error",
    ),
    "nothing": (None, "unknown"),
    "numbers": ({"error": {"type": 7, "message": [1]}}, "unknown"),
}
NOT_OURS: dict[str, Any] = {
    "length": anthropic("invalid_request_error", "prompt is too long: 212345 tokens > 200000 maximum"),
    "length with what is asked for": anthropic(
        "invalid_request_error", "input length and `max_tokens` exceed context limit: 188240 + 21333 > 200000"
    ),
    "size": anthropic("request_too_large", "Request exceeds the maximum size"),
    "credit": anthropic("invalid_request_error", "Your credit balance is too low to access the Anthropic API."),
    "credit, in a sentence with apostrophes": openai("x", "You've no credit left, and it's time to buy 'more'."),
    "context": openai("invalid_request_error", "This model's maximum context length is", "context_length_exceeded"),
    "quota": openai("insufficient_quota", "You exceeded your current quota", "insufficient_quota"),
    "rate": openai("requests", "Rate limit reached for gpt-5", "rate_limit_exceeded"),
    "Gemini's count": gemini("INVALID_ARGUMENT", "The input token count (1200000) exceeds the maximum"),
    "Gemini's key": gemini("INVALID_ARGUMENT", "API key not valid. Please pass a valid API key."),
    "Gemini's rate": gemini("RESOURCE_EXHAUSTED", "x"),
    "a local server": openai("exceed_context_size_error", "the request exceeds the available context size"),
}


def refused(found: Any, encoding: str = "") -> str | None:
    body = json.dumps(found).encode() if found is not None else b"<html>"
    headers = [("Content-Encoding", encoding)] if encoding else []
    return Rejection(
        400, "Bad Request", headers, bytearray(gzip.compress(body) if encoding == "gzip" else body)
    ).error_kind


@pytest.mark.parametrize("encoding", ["", "gzip"])
@pytest.mark.parametrize(("found", "kind"), OURS.values(), ids=OURS)
def test_may_be_ours_and_is_told_by_the_providers_name_alone(found: Any, kind: str, encoding: str) -> None:
    assert refused(found, encoding) == kind


@pytest.mark.parametrize("encoding", ["", "gzip"])
@pytest.mark.parametrize("found", NOT_OURS.values(), ids=NOT_OURS)
def test_is_the_same_however_it_is_written(found: Any, encoding: str) -> None:
    assert refused(found, encoding) is None


@pytest.mark.parametrize("encoding", ["br; q=1", "gzip, gzip", "of its own"])
def test_what_cannot_be_read_may_be_anything(encoding: str) -> None:
    assert refused(OURS["an empty text"][0], encoding) == "unknown"
