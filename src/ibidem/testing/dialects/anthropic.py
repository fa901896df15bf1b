"""Anthropic Messages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ...billing.prices import CACHING
from ...billing.usage import Usage
from ..answers import AnswerPart, Called, Spoken, Thought
from ..prompt_cache import Unit
from .dialect import Reply, UpstreamDialect, dumps, event, listed, pieces

ERRORS = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    500: "api_error",
    529: "overloaded_error",
}
SIGNATURE = "RXZlbiBhIHNjcmlwdGVkIHRob3VnaHQgaXMgc2lnbmVkLg=="


def units(body: Mapping[str, Any]) -> list[Unit]:
    found = [unit for name in ("tools", "system") for unit in _blocks(name, body.get(name))]
    for message in listed(body.get("messages")):
        if isinstance(message, dict):
            found += _blocks(str(message.get("role")), message.get("content"))
    mark = _lifetime(body.get("cache_control"))
    if mark is not None and found:  # a mark on the request is one on its last block
        found[-1] = Unit(found[-1].value, mark)
    return found


def _blocks(role: str, content: Any) -> Iterator[Unit]:
    if isinstance(content, str):
        content = [{"type": "text", "text": content}] if content else []
    for block in listed(content):
        if isinstance(block, dict):
            bare = {key: value for key, value in block.items() if key != "cache_control"}
            yield Unit([role, bare], _lifetime(block.get("cache_control")))
        else:
            yield Unit([role, block])


def _lifetime(mark: Any) -> float | None:
    if not isinstance(mark, dict):
        return None
    caching = CACHING["anthropic"]
    return caching.lifetime_1h if mark.get("ttl") == "1h" else caching.lifetime


def whole(reply: Reply) -> Any:
    return {**_message(reply), "content": _content(reply), "stop_reason": _stop(reply)}


def events(reply: Reply) -> Iterator[bytes]:
    usage = {**_usage(reply.usage), "output_tokens": 1}
    yield event("message_start", {"message": {**_message(reply), "usage": usage}})
    for index, (part, block) in enumerate(zip(reply.parts, _content(reply), strict=True)):
        empty = {key: _EMPTY.get(key, value) for key, value in block.items()}
        yield event("content_block_start", {"index": index, "content_block": empty})
        if index == 0:
            yield PING
        for delta in _deltas(part):
            yield event("content_block_delta", {"index": index, "delta": delta})
        yield event("content_block_stop", {"index": index})
    end = {"stop_reason": _stop(reply), "stop_sequence": None}
    yield event("message_delta", {"delta": end, "usage": _usage(reply.usage)})
    yield event("message_stop", {})


_EMPTY = {"text": "", "thinking": "", "signature": "", "input": {}}
PING = event("ping", {})


def _deltas(part: AnswerPart) -> Iterator[dict[str, str]]:
    match part:
        case Spoken(text):
            for piece in pieces(text):
                yield {"type": "text_delta", "text": piece}
        case Thought(text, signature):
            for piece in pieces(text):
                yield {"type": "thinking_delta", "thinking": piece}
            yield {"type": "signature_delta", "signature": signature or SIGNATURE}
        case Called(_, arguments):
            for piece in ("", *pieces(dumps(dict(arguments)))):
                yield {"type": "input_json_delta", "partial_json": piece}


def _message(reply: Reply) -> dict[str, Any]:
    return {
        "model": reply.model,
        "id": f"msg_{reply.number:06}",
        "type": "message",
        "role": "assistant",
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": _usage(reply.usage),
    }


def _content(reply: Reply) -> list[dict[str, Any]]:
    blocks: list[dict[str, Any]] = []
    for place, part in enumerate(reply.parts):
        match part:
            case Spoken(text):
                blocks.append({"type": "text", "text": text})
            case Thought(text, signature):
                blocks.append({"type": "thinking", "thinking": text, "signature": signature or SIGNATURE})
            case Called(tool, arguments):
                ident = f"toolu_{reply.number:06}_{place}"
                blocks.append({"type": "tool_use", "id": ident, "name": tool, "input": dict(arguments)})
    return blocks


def _stop(reply: Reply) -> str:
    return "tool_use" if any(isinstance(part, Called) for part in reply.parts) else "end_turn"


def _usage(usage: Usage) -> dict[str, Any]:
    return {
        "input_tokens": usage.fresh,
        "cache_creation_input_tokens": usage.written + usage.written_1h,
        "cache_read_input_tokens": usage.read,
        "cache_creation": {
            "ephemeral_5m_input_tokens": usage.written,
            "ephemeral_1h_input_tokens": usage.written_1h,
        },
        "output_tokens": usage.output,
        "service_tier": "standard",
    }


DIALECT = UpstreamDialect(
    provider="anthropic",
    format="anthropic",
    units=units,
    whole=whole,
    events=events,
    ping=PING,
    error=lambda status, text: {"type": "error", "error": {"type": ERRORS.get(status, "api_error"), "message": text}},
    counted=lambda usage: {"input_tokens": usage.input},
    headers=lambda number: (("request-id", f"req_{number:06}"),),
)
