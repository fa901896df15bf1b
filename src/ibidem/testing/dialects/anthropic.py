"""Responses of Anthropic Messages."""

from __future__ import annotations

import json
import struct
from base64 import b64encode
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any
from zlib import crc32

from ...billing.caching import CACHING
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


def units(body: Mapping[str, Any]) -> list[Unit]:
    """Return the units of a request for the prompt cache."""
    found = [unit for name in ("tools", "system") for unit in _blocks(name, body.get(name))]
    for message in listed(body.get("messages")):
        if isinstance(message, dict):
            found += _blocks(str(message.get("role")), message.get("content"))
    mark, last = _lifetime(body.get("cache_control")), _last_that_can(found)
    if mark is not None and last is not None:  # a breakpoint on the request counts on its last block
        found[last] = Unit(found[last].value, mark)
    return found


def _last_that_can(found: list[Unit]) -> int | None:
    """Return the index of the last block that may have a breakpoint."""
    return next((place for place in reversed(range(len(found))) if not _unmarkable(found[place].value)), None)


def _unmarkable(value: Any) -> str:
    """Return why a block may not have a breakpoint; empty if it may."""
    block = value[1] if isinstance(value[1], dict) else {}
    if block.get("type") in ("thinking", "redacted_thinking"):
        return ON_THINKING
    return ON_EMPTY if block.get("type") == "text" and not block.get("text") else ""


def refusal(body: Mapping[str, Any]) -> str:
    """Return the error message for invalid cache breakpoints; empty if all are valid."""
    own = {name: value for name, value in body.items() if name != "cache_control"}
    found, whole = units(own), units(body)
    marks = [unit for unit in whole if unit.mark is not None]
    for unit in found:
        if unit.mark is not None and (wrong := _unmarkable(unit.value)):
            return wrong
    last = _last_that_can(found)
    automatic = last is not None and body.get("cache_control") is not None
    if automatic and last is not None and found[last].mark not in (None, whole[last].mark):
        return TWO_LIFETIMES
    if len(marks) > MAX_MARKS:
        return TOO_MANY.format(len(marks))
    if any(unit.mark not in LIFETIMES.values() for unit in marks):
        return WRONG_LIFETIME
    lifetimes = [unit.mark or 0.0 for unit in marks]
    return WRONG_ORDER if lifetimes != sorted(lifetimes, reverse=True) else ""


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
    return LIFETIMES.get(str(mark.get("ttl", "5m")), -1.0)


def whole(reply: Reply) -> Any:
    """Return a response as one JSON value."""
    about = {"content": _content(reply), "stop_reason": _stop(reply), "usage": _all_usage(reply)}
    return {**_message(reply), **about, **_applied_edits(reply), **_safeguard_results(reply)}


def events(reply: Reply) -> Iterator[bytes]:
    """Yield a response as a stream of events."""
    usage = {**_usage(reply.usage), "output_tokens": 1}
    yield event("message_start", {"message": {**_message(reply), "usage": usage}})
    deltas = [*([_compaction_deltas(reply.summary)] if reply.summary else []), *map(_deltas, reply.parts)]
    for index, (block, pieces_of_block) in enumerate(zip(_content(reply), deltas, strict=True)):
        empty = {key: _EMPTY.get(key, value) for key, value in block.items()}
        yield event("content_block_start", {"index": index, "content_block": empty})
        if index == 0:
            yield PING
        for delta in pieces_of_block:
            yield event("content_block_delta", {"index": index, "delta": delta})
        yield event("content_block_stop", {"index": index})
    end = {"stop_reason": _stop(reply), "stop_sequence": None, **_safeguard_results(reply)}
    yield event("message_delta", {"delta": end, "usage": _all_usage(reply), **_applied_edits(reply)})
    yield event("message_stop", {})


_EMPTY: dict[str, Any] = {"text": "", "thinking": "", "signature": "", "input": {}, "content": None}
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


def _compaction_deltas(summary: str) -> Iterator[dict[str, str]]:
    yield {"type": "compaction_delta", "content": summary}


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
    blocks: list[dict[str, Any]] = [{"type": "compaction", "content": reply.summary}] if reply.summary else []
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
    if reply.summary and not reply.parts:
        return "compaction"
    return "tool_use" if any(isinstance(part, Called) for part in reply.parts) else "end_turn"


def _applied_edits(reply: Reply) -> dict[str, Any]:
    managed = reply.context_management
    if managed is None or managed.applied_edits is None:
        return {}
    return {"context_management": {"applied_edits": [*managed.applied_edits]}}


def _safeguard_results(reply: Reply) -> dict[str, Any]:
    """Return the verdict on each tool call (none is dangerous), if the request asks for it, as Claude Code's auto mode
    does."""
    kinds = [each.get("type") for each in listed(reply.request.get("safeguards")) if isinstance(each, dict)]
    if DANGEROUS_TOOL_USE not in kinds:
        return {}
    calls = [block["id"] for block in _content(reply) if block["type"] == "tool_use"]
    verdicts = {ident: {"type": "evaluated", "outcome": "not_flagged"} for ident in calls}
    status = {"type": "available", "tool_uses": verdicts}
    return {"safeguard_results": [{"type": DANGEROUS_TOOL_USE, "status": status}]}


def _all_usage(reply: Reply) -> dict[str, Any]:
    """Return the usage at the end. Top-level counts do not include the compaction, as in real responses."""
    if reply.compaction is None:
        return _usage(reply.usage)
    iterations = [("compaction", reply.compaction), *([("message", reply.usage)] if reply.parts else [])]
    listed_usage = [{"type": kind, **_counts(usage)} for kind, usage in iterations]
    return {**_usage(reply.usage), "iterations": listed_usage}


def _usage(usage: Usage) -> dict[str, Any]:
    return {**_counts(usage), "service_tier": "standard"}


def _counts(usage: Usage) -> dict[str, Any]:
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
    units=units,
    whole=whole,
    events=events,
    ping=PING,
    error=lambda status, text: {"type": "error", "error": {"type": ERRORS.get(status, "api_error"), "message": text}},
    counted=lambda usage: {"input_tokens": usage.input},
    headers=lambda number: (("request-id", f"req_{number:06}"),),
    refusal=refusal,
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
    return map(frame_event, events(reply))


BEDROCK_DIALECT = replace(
    DIALECT,
    events=bedrock_events,
    ping=frame_event(PING),
    stream_type="application/vnd.amazon.eventstream",
)
