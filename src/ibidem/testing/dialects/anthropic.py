"""Responses of Anthropic Messages."""

from __future__ import annotations

import json
import struct
from base64 import b64encode
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any
from zlib import crc32

from ...billing.cache_rules import CACHING
from ...billing.usage import Usage
from ..answers import AnswerPart, CallPart, TextPart, ThinkingPart
from ..prompt_cache import Unit
from .dialect import Reply, UpstreamDialect, as_list, compact_json, named_event, split_text

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
LIFETIMES = {"5m": CACHING["anthropic"].lifetime, "1h": CACHING["anthropic"].lifetime_1h}
SIGNATURE = "RXZlbiBhIHNjcmlwdGVkIHRob3VnaHQgaXMgc2lnbmVkLg=="
DANGEROUS_TOOL_USE = "dangerous_tool_use"

MAX_MARKS = 4
TOO_MANY = "A maximum of 4 blocks with cache_control may be provided. Found {}."
WRONG_ORDER = (
    "cache_control.ttl: a ttl='1h' cache_control block must not come after a ttl='5m' cache_control block. "
    "Note that blocks are processed in the following order: `tools`, `system`, `messages`."
)
WRONG_LIFETIME = "cache_control.ephemeral.ttl: Input should be '5m' or '1h'"
TWO_LIFETIMES = "cache_control: the last block is marked with another ttl already"
ON_THINKING = "thinking.cache_control: Extra inputs are not permitted"
ON_EMPTY = "cache_control cannot be set for empty text blocks"


def cache_units(body: Mapping[str, Any]) -> list[Unit]:
    """Return the units of a request for the prompt cache."""
    all_units = [unit for name in ("tools", "system") for unit in _block_units(name, body.get(name))]
    for message in as_list(body.get("messages")):
        if isinstance(message, dict):
            all_units += _block_units(str(message.get("role")), message.get("content"))
    mark, last = _ttl_seconds(body.get("cache_control")), _last_markable_block(all_units)
    if mark is not None and last is not None:  # a breakpoint on the request counts on its last block
        all_units[last] = Unit(all_units[last].value, mark)
    return all_units


def _last_markable_block(all_units: list[Unit]) -> int | None:
    """Return the index of the last block that may have a breakpoint."""
    return next(
        (place for place in reversed(range(len(all_units))) if not _breakpoint_error(all_units[place].value)), None
    )


def _breakpoint_error(value: Any) -> str:
    """Return why a block may not have a breakpoint; empty if it may."""
    block = value[1] if isinstance(value[1], dict) else {}
    if block.get("type") in ("thinking", "redacted_thinking"):
        return ON_THINKING
    return ON_EMPTY if block.get("type") == "text" and not block.get("text") else ""


def find_rejection(body: Mapping[str, Any]) -> str:
    """Return the error message for invalid cache breakpoints; empty if all are valid."""
    own = {name: value for name, value in body.items() if name != "cache_control"}
    own_units, all_units = cache_units(own), cache_units(body)
    with_breakpoints = [unit for unit in all_units if unit.ttl is not None]
    for unit in own_units:
        if unit.ttl is not None and (wrong := _breakpoint_error(unit.value)):
            return wrong
    last = _last_markable_block(own_units)
    automatic = last is not None and body.get("cache_control") is not None
    if automatic and last is not None and own_units[last].ttl not in (None, all_units[last].ttl):
        return TWO_LIFETIMES
    if len(with_breakpoints) > MAX_MARKS:
        return TOO_MANY.format(len(with_breakpoints))
    if any(unit.ttl not in LIFETIMES.values() for unit in with_breakpoints):
        return WRONG_LIFETIME
    lifetimes = [unit.ttl or 0.0 for unit in with_breakpoints]
    return WRONG_ORDER if lifetimes != sorted(lifetimes, reverse=True) else ""


def _block_units(role: str, content: Any) -> Iterator[Unit]:
    if isinstance(content, str):
        content = [{"type": "text", "text": content}] if content else []
    for block in as_list(content):
        if isinstance(block, dict):
            bare = {key: value for key, value in block.items() if key != "cache_control"}
            yield Unit([role, bare], _ttl_seconds(block.get("cache_control")))
        else:
            yield Unit([role, block])


def _ttl_seconds(mark: Any) -> float | None:
    if not isinstance(mark, dict):
        return None
    return LIFETIMES.get(str(mark.get("ttl", "5m")), -1.0)


def full_response(reply: Reply) -> Any:
    """Return a response as one JSON value."""
    about = {"content": _content_blocks(reply), "stop_reason": _stop_reason(reply), "usage": _total_usage(reply)}
    return {**_message_fields(reply), **about, **_applied_edits(reply), **_safeguard_results(reply)}


def stream_events(reply: Reply) -> Iterator[bytes]:
    """Yield a response as a stream of events."""
    usage = {**_usage_fields(reply.usage), "output_tokens": 1}
    yield named_event("message_start", {"message": {**_message_fields(reply), "usage": usage}})
    deltas = [*([_compaction_deltas(reply.summary)] if reply.summary else []), *map(_part_deltas, reply.parts)]
    for index, (block, pieces_of_block) in enumerate(zip(_content_blocks(reply), deltas, strict=True)):
        empty = {key: _EMPTY.get(key, value) for key, value in block.items()}
        yield named_event("content_block_start", {"index": index, "content_block": empty})
        if index == 0:
            yield PING
        for delta in pieces_of_block:
            yield named_event("content_block_delta", {"index": index, "delta": delta})
        yield named_event("content_block_stop", {"index": index})
    end = {"stop_reason": _stop_reason(reply), "stop_sequence": None, **_safeguard_results(reply)}
    yield named_event("message_delta", {"delta": end, "usage": _total_usage(reply), **_applied_edits(reply)})
    yield named_event("message_stop", {})


_EMPTY: dict[str, Any] = {"text": "", "thinking": "", "signature": "", "input": {}, "content": None}
PING = named_event("ping", {})


def _part_deltas(part: AnswerPart) -> Iterator[dict[str, str]]:
    match part:
        case TextPart(text):
            for piece in split_text(text):
                yield {"type": "text_delta", "text": piece}
        case ThinkingPart(text, signature):
            for piece in split_text(text):
                yield {"type": "thinking_delta", "thinking": piece}
            yield {"type": "signature_delta", "signature": signature or SIGNATURE}
        case CallPart(_, arguments):
            for piece in ("", *split_text(compact_json(dict(arguments)))):
                yield {"type": "input_json_delta", "partial_json": piece}


def _compaction_deltas(summary: str) -> Iterator[dict[str, str]]:
    yield {"type": "compaction_delta", "content": summary}


def _message_fields(reply: Reply) -> dict[str, Any]:
    return {
        "model": reply.model,
        "id": f"msg_{reply.number:06}",
        "type": "message",
        "role": "assistant",
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": _usage_fields(reply.usage),
    }


def _content_blocks(reply: Reply) -> list[dict[str, Any]]:
    blocks: list[dict[str, Any]] = [{"type": "compaction", "content": reply.summary}] if reply.summary else []
    for place, part in enumerate(reply.parts):
        match part:
            case TextPart(text):
                blocks.append({"type": "text", "text": text})
            case ThinkingPart(text, signature):
                blocks.append({"type": "thinking", "thinking": text, "signature": signature or SIGNATURE})
            case CallPart(tool, arguments):
                ident = f"toolu_{reply.number:06}_{place}"
                blocks.append({"type": "tool_use", "id": ident, "name": tool, "input": dict(arguments)})
    return blocks


def _stop_reason(reply: Reply) -> str:
    if reply.summary and not reply.parts:
        return "compaction"
    return "tool_use" if any(isinstance(part, CallPart) for part in reply.parts) else "end_turn"


def _applied_edits(reply: Reply) -> dict[str, Any]:
    management = reply.context_management
    if management is None or management.applied_edits is None:
        return {}
    return {"context_management": {"applied_edits": [*management.applied_edits]}}


def _safeguard_results(reply: Reply) -> dict[str, Any]:
    """Return the verdict on each tool call (none is dangerous), if the request asks for it, as Claude Code's auto mode
    does."""
    kinds = [each.get("type") for each in as_list(reply.request.get("safeguards")) if isinstance(each, dict)]
    if DANGEROUS_TOOL_USE not in kinds:
        return {}
    calls = [block["id"] for block in _content_blocks(reply) if block["type"] == "tool_use"]
    verdicts = {ident: {"type": "evaluated", "outcome": "not_flagged"} for ident in calls}
    status = {"type": "available", "tool_uses": verdicts}
    return {"safeguard_results": [{"type": DANGEROUS_TOOL_USE, "status": status}]}


def _total_usage(reply: Reply) -> dict[str, Any]:
    """Return the usage at the end. Top-level counts do not include the compaction, as in real responses."""
    if reply.compaction is None:
        return _usage_fields(reply.usage)
    iterations = [("compaction", reply.compaction), *([("message", reply.usage)] if reply.parts else [])]
    listed_usage = [{"type": kind, **_token_counts(usage)} for kind, usage in iterations]
    return {**_usage_fields(reply.usage), "iterations": listed_usage}


def _usage_fields(usage: Usage) -> dict[str, Any]:
    return {**_token_counts(usage), "service_tier": "standard"}


def _token_counts(usage: Usage) -> dict[str, Any]:
    return {
        "input_tokens": usage.fresh,
        "cache_creation_input_tokens": usage.written + usage.written_1h,
        "cache_read_input_tokens": usage.read,
        "cache_creation": {
            "ephemeral_5m_input_tokens": usage.written,
            "ephemeral_1h_input_tokens": usage.written_1h,
        },
        "output_tokens": usage.output,
    }


DIALECT = UpstreamDialect(
    provider="anthropic",
    format="anthropic",
    units=cache_units,
    whole=full_response,
    events=stream_events,
    ping=PING,
    error=lambda status, text: {"type": "error", "error": {"type": ERRORS.get(status, "api_error"), "message": text}},
    count_response=lambda usage: {"input_tokens": usage.input},
    headers=lambda number: (("request-id", f"req_{number:06}"),),
    find_rejection=find_rejection,
)

EVENT_HEADERS = {":event-type": "chunk", ":content-type": "application/json", ":message-type": "event"}
STRING_HEADER = 7
"""Type number of a header value that is a string."""


def frame_event(event: bytes) -> bytes:
    """Wrap a server-sent event in the binary frame of Amazon's streams."""
    data = event.partition(b"data: ")[2].strip()
    content = json.dumps({"bytes": b64encode(data).decode()}).encode()
    headers = b"".join(
        struct.pack(
            f">B{len(name)}sBH{len(value)}s", len(name), name.encode(), STRING_HEADER, len(value), value.encode()
        )
        for name, value in EVENT_HEADERS.items()
    )
    lengths = struct.pack(">II", 16 + len(headers) + len(content), len(headers))
    whole = lengths + struct.pack(">I", crc32(lengths)) + headers + content
    return whole + struct.pack(">I", crc32(whole))


def bedrock_events(reply: Reply) -> Iterator[bytes]:
    return map(frame_event, stream_events(reply))


BEDROCK_DIALECT = replace(
    DIALECT,
    events=bedrock_events,
    ping=frame_event(PING),
    stream_type="application/vnd.amazon.eventstream",
)
