"""Responses of OpenAI Chat Completions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ...billing.usage import Usage
from ..answers import Called, Spoken, Thought
from ..prompt_cache import Unit
from .dialect import CREATED, Reply, UpstreamDialect, data, dumps, listed, named, pieces

ERRORS = {
    400: ("invalid_request_error", None),
    401: ("invalid_request_error", "invalid_api_key"),
    429: ("requests", "rate_limit_exceeded"),
    500: ("server_error", None),
}
RETENTION_SECONDS = 24 * 3600.0


def units(body: Mapping[str, Any]) -> list[Unit]:
    messages = [Unit(message) for message in listed(body.get("messages"))]
    return kept(body, named(("tools", body.get("tools"))) + messages)


def kept(body: Mapping[str, Any], found: list[Unit]) -> list[Unit]:
    """Return the units with the longer retention, if the request asks for it."""
    if body.get("prompt_cache_retention") != "24h":
        return found
    return [unit._replace(mark=RETENTION_SECONDS) for unit in found]


def cache_key(body: Mapping[str, Any]) -> str:
    return str(body.get("prompt_cache_key") or "")


def whole(reply: Reply) -> Any:
    said = "".join(part.text for part in reply.parts if isinstance(part, Spoken))
    thought = "".join(part.text for part in reply.parts if isinstance(part, Thought))
    calls = [{key: value for key, value in call.items() if key != "index"} for call in _calls(reply)]
    message: dict[str, Any] = {"role": "assistant", "content": said or None, "refusal": None}
    if thought:
        message["reasoning_content"] = thought
    if calls:
        message["tool_calls"] = calls
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": _finish(reply)}
    return {**_about(reply, "chat.completion"), "choices": [choice], "usage": _usage(reply.usage)}


def events(reply: Reply) -> Iterator[bytes]:
    about = _about(reply, "chat.completion.chunk")
    options = reply.request.get("stream_options")
    wanted = isinstance(options, dict) and options.get("include_usage") is True
    usage = {"usage": None} if wanted else {}

    def chunk(delta: Mapping[str, Any], finish: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        return data({**about, "choices": [choice], **usage})

    yield chunk({"role": "assistant", "content": "", "refusal": None})
    for part in reply.parts:
        if isinstance(part, Called):
            continue
        key = "content" if isinstance(part, Spoken) else "reasoning_content"
        for piece in pieces(part.text):
            yield chunk({key: piece})
    for call in _calls(reply):
        arguments = call["function"]["arguments"]
        yield chunk({"tool_calls": [{**call, "function": {**call["function"], "arguments": ""}}]})
        for piece in pieces(arguments):
            yield chunk({"tool_calls": [{"index": call["index"], "function": {"arguments": piece}}]})
    yield chunk({}, _finish(reply))
    if wanted:
        yield data({**about, "choices": [], "usage": _usage(reply.usage)})
    yield b"data: [DONE]\n\n"


def _about(reply: Reply, kind: str) -> dict[str, Any]:
    return {
        "id": f"chatcmpl-{reply.number:06}",
        "object": kind,
        "created": CREATED,
        "model": reply.model,
        "service_tier": "default",
        "system_fingerprint": None,
    }


def _calls(reply: Reply) -> list[dict[str, Any]]:
    calls = [part for part in reply.parts if isinstance(part, Called)]
    return [
        {
            "index": index,
            "id": f"call_{reply.number:06}_{index}",
            "type": "function",
            "function": {"name": call.tool, "arguments": dumps(dict(call.arguments))},
        }
        for index, call in enumerate(calls)
    ]


def _finish(reply: Reply) -> str:
    return "tool_calls" if any(isinstance(part, Called) for part in reply.parts) else "stop"


def _usage(usage: Usage) -> dict[str, Any]:
    written = {"cache_write_tokens": usage.written} if usage.written else {}
    return {
        "prompt_tokens": usage.input,
        "completion_tokens": usage.output,
        "total_tokens": usage.input + usage.output,
        "prompt_tokens_details": {"cached_tokens": usage.read, "audio_tokens": 0, **written},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning, "audio_tokens": 0},
    }


def error(status: int, text: str) -> Any:
    kind, code = ERRORS.get(status, ERRORS[500])
    return {"error": {"message": text, "type": kind, "param": None, "code": code}}


DIALECT = UpstreamDialect(
    provider="openai",
    format="openai-chat",
    units=units,
    whole=whole,
    events=events,
    ping=b": ping\n\n",
    error=error,
    counted=lambda usage: {"input_tokens": usage.input},
    headers=lambda number: (("x-request-id", f"req_{number:06}"), ("openai-processing-ms", "1")),
    cache_key=cache_key,
)
