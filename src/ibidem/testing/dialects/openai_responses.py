"""Responses of OpenAI Responses."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator, Mapping
from itertools import count
from typing import Any

from ...billing.usage import Usage
from ..answers import CallPart, TextPart, ThinkingPart
from ..prompt_cache import Unit
from . import openai_chat
from .dialect import CREATED, Reply, UpstreamDialect, as_list, compact_json, named_event, present_units, split_text

ENCRYPTED = "RXZlbiBhIHNjcmlwdGVkIHRob3VnaHQgaXMgZW5jcnlwdGVkLg=="
ResponsesEvent = tuple[str, dict[str, Any]]


def cache_units(body: Mapping[str, Any]) -> list[Unit]:
    history = body.get("input")
    items = [{"role": "user", "content": history}] if isinstance(history, str) else as_list(history)
    head = present_units(("tools", body.get("tools")), ("instructions", body.get("instructions")))
    return openai_chat.extended_units(body, head + [Unit(item) for item in items])


def full_response(reply: Reply) -> Any:
    return _response_fields(reply, "completed", _output_items(reply))


def stream_events(reply: Reply) -> Iterator[bytes]:
    numbers = count()
    for kind, value in _unnumbered_events(reply):
        yield named_event(kind, {**value, "sequence_number": next(numbers)})


def _unnumbered_events(reply: Reply) -> Iterator[ResponsesEvent]:
    for kind in ("response.created", "response.in_progress"):
        yield kind, {"response": _response_fields(reply, "in_progress", [])}
    output = _output_items(reply)
    for index, item in enumerate(output):
        yield "response.output_item.added", {"output_index": index, "item": _empty_item(item)}
        yield from _EVENTS_BY_TYPE[item["type"]]({"item_id": item["id"], "output_index": index}, item)
        yield "response.output_item.done", {"output_index": index, "item": item}
    yield "response.completed", {"response": _response_fields(reply, "completed", output)}


def _empty_item(item: Mapping[str, Any]) -> dict[str, Any]:
    empty: dict[str, Any] = {"content": [], "summary": [], "arguments": "", "input": "", "status": "in_progress"}
    return {key: empty.get(key, value) for key, value in item.items()}


def _message_events(place: dict[str, Any], item: Mapping[str, Any]) -> Iterator[ResponsesEvent]:
    place = {**place, "content_index": 0}
    part = item["content"][0]
    yield "response.content_part.added", {**place, "part": {**part, "text": ""}}
    for piece in split_text(part["text"]):
        yield "response.output_text.delta", {**place, "delta": piece, "logprobs": []}
    yield "response.output_text.done", {**place, "text": part["text"], "logprobs": []}
    yield "response.content_part.done", {**place, "part": part}


def _reasoning_events(place: dict[str, Any], item: Mapping[str, Any]) -> Iterator[ResponsesEvent]:
    place = {**place, "summary_index": 0}
    part = item["summary"][0]
    yield "response.reasoning_summary_part.added", {**place, "part": {**part, "text": ""}}
    for piece in split_text(part["text"]):
        yield "response.reasoning_summary_text.delta", {**place, "delta": piece}
    yield "response.reasoning_summary_text.done", {**place, "text": part["text"]}
    yield "response.reasoning_summary_part.done", {**place, "part": part}


def _function_call_events(place: dict[str, Any], item: Mapping[str, Any]) -> Iterator[ResponsesEvent]:
    for piece in split_text(item["arguments"]):
        yield "response.function_call_arguments.delta", {**place, "delta": piece}
    arguments_field = {"name": item["name"], "arguments": item["arguments"]}
    yield "response.function_call_arguments.done", {**place, **arguments_field}


def _custom_call_events(place: dict[str, Any], item: Mapping[str, Any]) -> Iterator[ResponsesEvent]:
    for piece in split_text(item["input"]):
        yield "response.custom_tool_call_input.delta", {**place, "delta": piece}
    yield "response.custom_tool_call_input.done", {**place, "input": item["input"]}


def _compaction_events(place: dict[str, Any], item: Mapping[str, Any]) -> Iterator[ResponsesEvent]:
    """Yield no events: the item is sent whole when it is added and when it is done."""
    yield from ()


_EVENTS_BY_TYPE = {
    "message": _message_events,
    "reasoning": _reasoning_events,
    "function_call": _function_call_events,
    "custom_tool_call": _custom_call_events,
    "compaction": _compaction_events,
}


def compaction_item(summary: str) -> dict[str, Any]:
    """A compaction item without its id. Real ones are encrypted; this one is Base64, so that a test can read it."""
    return {"type": "compaction", "encrypted_content": b64encode(summary.encode("utf-8", "surrogatepass")).decode()}


def _output_items(reply: Reply) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = []
    if reply.summary:
        items.append({"id": f"cmp_{reply.number:06}", **compaction_item(reply.summary)})
    for place, part in enumerate(reply.parts):
        name = f"{reply.number:06}_{place}"
        match part:
            case TextPart(text):
                content = [{"type": "output_text", "annotations": [], "logprobs": [], "text": text}]
                about = {"status": "completed", "role": "assistant"}
                items.append({"id": f"msg_{name}", "type": "message", **about, "content": content})
            case ThinkingPart(text):
                summary = [{"type": "summary_text", "text": text}]
                about = {"encrypted_content": ENCRYPTED}
                items.append({"id": f"rs_{name}", "type": "reasoning", **about, "summary": summary})
            case CallPart(tool, _, given) if given:
                call = {"call_id": f"call_{name}", "name": tool, "input": given}
                items.append({"id": f"ctc_{name}", "type": "custom_tool_call", "status": "completed", **call})
            case CallPart(tool, arguments):
                call = {"call_id": f"call_{name}", "name": tool, "arguments": compact_json(dict(arguments))}
                items.append({"id": f"fc_{name}", "type": "function_call", "status": "completed", **call})
    return items


_ECHO_DEFAULTS: dict[str, Any] = {
    "instructions": None,
    "metadata": {},
    "parallel_tool_calls": True,
    "temperature": 1.0,
    "text": {"format": {"type": "text"}},
    "tool_choice": "auto",
    "tools": [],
    "top_p": 1.0,
    "truncation": "disabled",
    "store": True,
    "previous_response_id": None,
}
"""Request fields that a response repeats, with their defaults."""


def _response_fields(reply: Reply, status: str, output: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "id": f"resp_{reply.number:06}",
        "object": "response",
        "created_at": CREATED,
        "status": status,
        "error": None,
        "incomplete_details": None,
        "model": reply.model,
        "output": output,
        **{key: reply.request.get(key, value) for key, value in _ECHO_DEFAULTS.items()},
        "usage": _usage_fields(reply.usage + (reply.compaction or Usage())) if status == "completed" else None,
    }


def _usage_fields(usage: Usage) -> dict[str, Any]:
    return {
        "input_tokens": usage.input,
        "input_tokens_details": {"cached_tokens": usage.read, "cache_write_tokens": usage.written},
        "output_tokens": usage.output,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning},
        "total_tokens": usage.input + usage.output,
    }


DIALECT = UpstreamDialect(
    provider="openai",
    format="openai-responses",
    units=cache_units,
    whole=full_response,
    events=stream_events,
    ping=b": ping\n\n",
    error=openai_chat.error_body,
    count_response=lambda usage: {"object": "response.input_tokens", "input_tokens": usage.input},
    headers=openai_chat.DIALECT.headers,
    cache_key=openai_chat.cache_key,
)
