"""Anthropic Messages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...billing.usage import Usage
from ...formats.anthropic_marks import CARRIERS, FIELD
from ...formats.evidence import names
from ...model import string
from ...recordings.recording import Json
from .provider import MAX_OUTPUT, ModelReply, StopReason, TrialProvider, UsedTool, called, each_dict, number_in

VERSION = "2023-06-01"
FIELDS = names("system tools tool_choice thinking temperature top_p top_k stop_sequences max_tokens")
THINKING_BLOCKS = ("thinking", "redacted_thinking")
CLIENT_TOOLS = ("bash_", "text_editor_")
"""Type prefixes of the provider's predefined tools that run at the client."""
STOPS: dict[str, StopReason] = {
    **dict.fromkeys(("end_turn", "tool_use", "stop_sequence"), "ok"),
    **dict.fromkeys(("max_tokens", "model_context_window_exceeded"), "truncated"),
    "refusal": "refused",
}


def _head(kept: Json, model: str, _: str) -> Json:
    kept = {key: _unmarked(value) for key, value in kept.items()}
    return {**kept, "model": model, "max_tokens": limit(kept), "stream": True}


def limit(head: Mapping[str, Any]) -> int:
    thinking = head.get("thinking")
    most = MAX_OUTPUT + number_in(thinking, "budget_tokens")
    return min(most, number_in(head, "max_tokens") or most)


def _thinks(head: Mapping[str, Any]) -> bool:
    thinking = head.get("thinking")
    return isinstance(thinking, dict) and thinking.get("type") != "disabled"


def _unmarked(value: Any) -> Any:
    if isinstance(value, list):
        return [_unmarked(each) for each in value]
    return {key: each for key, each in value.items() if key != FIELD} if isinstance(value, dict) else value


def _own_tools(head: Mapping[str, Any]) -> list[Any]:
    return [
        tool
        for tool in each_dict(head.get("tools"))
        if tool.get("type") in (None, "custom") or string(tool.get("type")).startswith(CLIENT_TOOLS)
    ]


def _declared(tools: Sequence[UsedTool]) -> list[Any]:
    return [{"name": each.name, "input_schema": each.schema or {"type": "object"}} for each in tools]


def _without_thinking(entry: Json) -> Json | None:
    content = entry.get("content")
    if not isinstance(content, list):
        return entry
    left = [block for block in content if not (isinstance(block, dict) and block.get("type") in THINKING_BLOCKS)]
    if len(left) == len(content):
        return entry
    return {**entry, "content": left} if left else None


def _marked(body: Json, ends: Sequence[int]) -> Json:
    """Add cache breakpoints: at most two in the history, and one before it.

    The provider allows four, and its lookback window has 20 blocks. So the end of the point before gets its own.
    """
    mark = {FIELD: {"type": "ephemeral"}}
    messages, body = list(body["messages"]), dict(body)
    for end in ends:
        _mark_last(messages, end, mark)
    body["messages"] = messages
    system, tools = body.get("system"), body.get("tools")
    if isinstance(system, str) and system.strip():
        body["system"] = [{"type": "text", "text": system, **mark}]
    elif isinstance(system, list) and system and isinstance(system[-1], dict):
        body["system"] = [*system[:-1], {**system[-1], **mark}]
    elif tools:
        body["tools"] = [*tools[:-1], {**tools[-1], **mark}]
    return body


def _mark_last(messages: list[Json], end: int, mark: Json) -> None:
    """Add a cache breakpoint to the last block before `end` that supports one."""
    for at in range(min(end, len(messages)) - 1, -1, -1):
        content = messages[at].get("content")
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else list(content or ())
        for place in range(len(blocks) - 1, -1, -1):
            if _carries(blocks[place]):
                blocks[place] = {**blocks[place], **mark}
                messages[at] = {**messages[at], "content": blocks}
                return


def _carries(block: Any) -> bool:
    if not isinstance(block, dict) or block.get("type") not in CARRIERS:
        return False
    said = {"text": block.get("text"), "tool_result": block.get("content")}.get(str(block["type"]), True)
    return bool(said.strip() if isinstance(said, str) else said)


def reply(events: Sequence[Json]) -> ModelReply:
    blocks: dict[int, Json] = {}
    inputs: dict[int, list[str]] = {}
    counted: Json = {}
    stop: StopReason = "failed"
    for event in events:
        at = number_in(event, "index")
        match event.get("type"):
            case "message_start":
                counted |= _counts(event.get("message"))
            case "content_block_start" if isinstance(event.get("content_block"), dict):
                blocks[at] = event["content_block"]
            case "content_block_delta" if isinstance(event.get("delta"), dict):
                delta = event["delta"]
                inputs.setdefault(at, []).append(string(delta.get("partial_json")) or string(delta.get("text")))
            case "message_delta":
                counted |= _counts(event)
                delta = event.get("delta")
                stop = STOPS.get(string(delta.get("stop_reason")) if isinstance(delta, dict) else "", "failed")
    calls = [
        called(block.get("name"), "".join(inputs.get(at, ())) or "{}", at)
        for at, block in blocks.items()
        if block.get("type") == "tool_use"
    ]
    text = "".join("".join(inputs.get(at, ())) for at, block in blocks.items() if block.get("type") == "text")
    return ModelReply(tuple(calls), text, stop, _usage(counted) if counted else None)


def _counts(place: Any) -> Json:
    usage = place.get("usage") if isinstance(place, dict) else None
    return {key: value for key, value in usage.items() if value is not None} if isinstance(usage, dict) else {}


def _usage(found: Json) -> Usage:
    long = number_in(found, "cache_creation", "ephemeral_1h_input_tokens")
    written = max(0, number_in(found, "cache_creation_input_tokens") - long)
    read = number_in(found, "cache_read_input_tokens")
    return Usage(number_in(found, "input_tokens"), read, written, long, number_in(found, "output_tokens"))


PROVIDER = TrialProvider(
    format="anthropic",
    house="anthropic",
    base="https://api.anthropic.com",
    clients=("claude-code",),
    base_variables=("ANTHROPIC_BASE_URL",),
    key_variables=("ANTHROPIC_API_KEY",),
    token_variables=("ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN"),
    subscription=lambda key: "sk-ant-oat" in key.lower(),
    address=lambda model: "/v1/messages",
    headers=lambda key: {"x-api-key": key, "anthropic-version": VERSION},
    fields=FIELDS,
    head=_head,
    limit=limit,
    thinks=_thinks,
    quiet=lambda head: {key: value for key, value in head.items() if key != "thinking"},
    own_tools=_own_tools,
    declared=_declared,
    without_thinking=_without_thinking,
    marked=_marked,
    reply=reply,
)
