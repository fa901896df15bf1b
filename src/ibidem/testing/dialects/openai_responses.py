"""Responses of OpenAI Responses."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator, Mapping
from itertools import count
from typing import Any

from ...billing.usage import Usage
from ..answers import Called, Spoken, Thought
from ..prompt_cache import Unit
from . import openai_chat
from .dialect import CREATED, Reply, UpstreamDialect, dumps, event, listed, named, pieces

ENCRYPTED = "RXZlbiBhIHNjcmlwdGVkIHRob3VnaHQgaXMgZW5jcnlwdGVkLg=="
ResponsesEvent = tuple[str, dict[str, Any]]


def units(body: Mapping[str, Any]) -> list[Unit]:
    given = body.get("input")
    items = [{"role": "user", "content": given}] if isinstance(given, str) else listed(given)
    head = named(("tools", body.get("tools")), ("instructions", body.get("instructions")))
    return openai_chat.kept(body, head + [Unit(item) for item in items])


def whole(reply: Reply) -> Any:
    return _response(reply, "completed", _output(reply))


def events(reply: Reply) -> Iterator[bytes]:
    numbers = count()
    for kind, value in _events(reply):
        yield event(kind, {**value, "sequence_number": next(numbers)})


def _events(reply: Reply) -> Iterator[ResponsesEvent]:
    for kind in ("response.created", "response.in_progress"):
        yield kind, {"response": _response(reply, "in_progress", [])}
    output = _output(reply)
    for index, item in enumerate(output):
        yield "response.output_item.added", {"output_index": index, "item": _begun(item)}
        yield from _SPOKEN[item["type"]]({"item_id": item["id"], "output_index": index}, item)
        yield "response.output_item.done", {"output_index": index, "item": item}
    yield "response.completed", {"response": _response(reply, "completed", output)}


def _begun(item: Mapping[str, Any]) -> dict[str, Any]:
    empty: dict[str, Any] = {"content": [], "summary": [], "arguments": "", "input": "", "status": "in_progress"}
    return {key: empty.get(key, value) for key, value in item.items()}


def _message(place: dict[str, Any], item: Mapping[str, Any]) -> Iterator[ResponsesEvent]:
    place = {**place, "content_index": 0}
    part = item["content"][0]
    yield "response.content_part.added", {**place, "part": {**part, "text": ""}}
    for piece in pieces(part["text"]):
        yield "response.output_text.delta", {**place, "delta": piece, "logprobs": []}
    yield "response.output_text.done", {**place, "text": part["text"], "logprobs": []}
    yield "response.content_part.done", {**place, "part": part}


def _reasoning(place: dict[str, Any], item: Mapping[str, Any]) -> Iterator[ResponsesEvent]:
    place = {**place, "summary_index": 0}
    part = item["summary"][0]
    yield "response.reasoning_summary_part.added", {**place, "part": {**part, "text": ""}}
    for piece in pieces(part["text"]):
        yield "response.reasoning_summary_text.delta", {**place, "delta": piece}
    yield "response.reasoning_summary_text.done", {**place, "text": part["text"]}
    yield "response.reasoning_summary_part.done", {**place, "part": part}


def _function_call(place: dict[str, Any], item: Mapping[str, Any]) -> Iterator[ResponsesEvent]:
    for piece in pieces(item["arguments"]):
        yield "response.function_call_arguments.delta", {**place, "delta": piece}
    done = {"name": item["name"], "arguments": item["arguments"]}
    yield "response.function_call_arguments.done", {**place, **done}


def _custom_call(place: dict[str, Any], item: Mapping[str, Any]) -> Iterator[ResponsesEvent]:
    for piece in pieces(item["input"]):
        yield "response.custom_tool_call_input.delta", {**place, "delta": piece}
    yield "response.custom_tool_call_input.done", {**place, "input": item["input"]}


def _compaction(place: dict[str, Any], item: Mapping[str, Any]) -> Iterator[ResponsesEvent]:
    """Yield no events: the item is sent whole when it is added and when it is done."""
    yield from ()


_SPOKEN = {
    "message": _message,
    "reasoning": _reasoning,
    "function_call": _function_call,
    "custom_tool_call": _custom_call,
    "compaction": _compaction,
}


def compaction_item(summary: str) -> dict[str, Any]:
    """A compaction item without its id. Real ones are encrypted; this one is Base64, so that a test can read it."""
    return {"type": "compaction", "encrypted_content": b64encode(summary.encode("utf-8", "surrogatepass")).decode()}


def _output(reply: Reply) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = []
    if reply.summary:
        items.append({"id": f"cmp_{reply.number:06}", **compaction_item(reply.summary)})
    for place, part in enumerate(reply.parts):
        name = f"{reply.number:06}_{place}"
        match part:
            case Spoken(text):
                content = [{"type": "output_text", "annotations": [], "logprobs": [], "text": text}]
                about = {"status": "completed", "role": "assistant"}
                items.append({"id": f"msg_{name}", "type": "message", **about, "content": content})
            case Thought(text):
                summary = [{"type": "summary_text", "text": text}]
                about = {"encrypted_content": ENCRYPTED}
                items.append({"id": f"rs_{name}", "type": "reasoning", **about, "summary": summary})
            case Called(tool, _, given) if given:
                call = {"call_id": f"call_{name}", "name": tool, "input": given}
                items.append({"id": f"ctc_{name}", "type": "custom_tool_call", "status": "completed", **call})
            case Called(tool, arguments):
                call = {"call_id": f"call_{name}", "name": tool, "arguments": dumps(dict(arguments))}
                items.append({"id": f"fc_{name}", "type": "function_call", "status": "completed", **call})
    return items


_ECHOED: dict[str, Any] = {
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


def _response(reply: Reply, status: str, output: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "id": f"resp_{reply.number:06}",
        "object": "response",
        "created_at": CREATED,
        "status": status,
        "error": None,
        "incomplete_details": None,
        "model": reply.model,
        "output": output,
        **{key: reply.request.get(key, value) for key, value in _ECHOED.items()},
        "usage": _usage(reply.usage + (reply.compaction or Usage())) if status == "completed" else None,
    }


def _usage(usage: Usage) -> dict[str, Any]:
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
    units=units,
    whole=whole,
    events=events,
    ping=b": ping\n\n",
    error=openai_chat.error,
    counted=lambda usage: {"object": "response.input_tokens", "input_tokens": usage.input},
    headers=openai_chat.DIALECT.headers,
    cache_key=openai_chat.cache_key,
)
