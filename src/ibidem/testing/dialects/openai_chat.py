"""Responses of OpenAI Chat Completions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ...billing.usage import Usage
from ..answers import CallPart, TextPart, ThinkingPart
from ..prompt_cache import Unit
from .dialect import CREATED, Reply, UpstreamDialect, as_list, compact_json, data_event, present_units, split_text

ERRORS = {
    400: ("invalid_request_error", None),
    401: ("invalid_request_error", "invalid_api_key"),
    429: ("requests", "rate_limit_exceeded"),
    500: ("server_error", None),
}
RETENTION_SECONDS = 24 * 3600.0


def cache_units(body: Mapping[str, Any]) -> list[Unit]:
    messages = [Unit(message) for message in as_list(body.get("messages"))]
    return extended_units(body, present_units(("tools", body.get("tools"))) + messages)


def extended_units(body: Mapping[str, Any], units_of_request: list[Unit]) -> list[Unit]:
    """Return the units with the longer retention, if the request asks for it."""
    if body.get("prompt_cache_retention") != "24h":
        return units_of_request
    return [unit._replace(ttl=RETENTION_SECONDS) for unit in units_of_request]


def cache_key(body: Mapping[str, Any]) -> str:
    return str(body.get("prompt_cache_key") or "")


def full_response(reply: Reply) -> Any:
    text = "".join(part.text for part in reply.parts if isinstance(part, TextPart))
    thinking = "".join(part.text for part in reply.parts if isinstance(part, ThinkingPart))
    calls = [{key: value for key, value in call.items() if key != "index"} for call in _tool_calls(reply)]
    message: dict[str, Any] = {"role": "assistant", "content": text or None, "refusal": None}
    if thinking:
        message["reasoning_content"] = thinking
    if calls:
        message["tool_calls"] = calls
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": _finish_reason(reply)}
    return {**_common_fields(reply, "chat.completion"), "choices": [choice], "usage": _usage_fields(reply.usage)}


def stream_events(reply: Reply) -> Iterator[bytes]:
    about = _common_fields(reply, "chat.completion.chunk")
    options = reply.request.get("stream_options")
    includes_usage = isinstance(options, dict) and options.get("include_usage") is True
    usage = {"usage": None} if includes_usage else {}

    def make_chunk(delta: Mapping[str, Any], finish: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        return data_event({**about, "choices": [choice], **usage})

    yield make_chunk({"role": "assistant", "content": "", "refusal": None})
    for part in reply.parts:
        if isinstance(part, CallPart):
            continue
        key = "content" if isinstance(part, TextPart) else "reasoning_content"
        for piece in split_text(part.text):
            yield make_chunk({key: piece})
    for call in _tool_calls(reply):
        arguments = call["function"]["arguments"]
        yield make_chunk({"tool_calls": [{**call, "function": {**call["function"], "arguments": ""}}]})
        for piece in split_text(arguments):
            yield make_chunk({"tool_calls": [{"index": call["index"], "function": {"arguments": piece}}]})
    yield make_chunk({}, _finish_reason(reply))
    if includes_usage:
        yield data_event({**about, "choices": [], "usage": _usage_fields(reply.usage)})
    yield b"data: [DONE]\n\n"


def _common_fields(reply: Reply, kind: str) -> dict[str, Any]:
    return {
        "id": f"chatcmpl-{reply.number:06}",
        "object": kind,
        "created": CREATED,
        "model": reply.model,
        "service_tier": "default",
        "system_fingerprint": None,
    }


def _tool_calls(reply: Reply) -> list[dict[str, Any]]:
    calls = [part for part in reply.parts if isinstance(part, CallPart)]
    return [
        {
            "index": index,
            "id": f"call_{reply.number:06}_{index}",
            "type": "function",
            "function": {"name": call.tool, "arguments": compact_json(dict(call.arguments))},
        }
        for index, call in enumerate(calls)
    ]


def _finish_reason(reply: Reply) -> str:
    return "tool_calls" if any(isinstance(part, CallPart) for part in reply.parts) else "stop"


def _usage_fields(usage: Usage) -> dict[str, Any]:
    write_field = {"cache_write_tokens": usage.written} if usage.written else {}
    return {
        "prompt_tokens": usage.input,
        "completion_tokens": usage.output,
        "total_tokens": usage.input + usage.output,
        "prompt_tokens_details": {"cached_tokens": usage.read, "audio_tokens": 0, **write_field},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning, "audio_tokens": 0},
    }


def error_body(status: int, text: str) -> Any:
    kind, code = ERRORS.get(status, ERRORS[500])
    return {"error": {"message": text, "type": kind, "param": None, "code": code}}


DIALECT = UpstreamDialect(
    provider="openai",
    format="openai-chat",
    units=cache_units,
    whole=full_response,
    events=stream_events,
    ping=b": ping\n\n",
    error=error_body,
    count_response=lambda usage: {"input_tokens": usage.input},
    headers=lambda number: (("x-request-id", f"req_{number:06}"), ("openai-processing-ms", "1")),
    cache_key=cache_key,
)
