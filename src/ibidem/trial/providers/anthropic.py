"""Anthropic Messages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...billing.usage import Usage
from ...formats.anthropic_cache import CARRIERS, FIELD
from ...formats.evidence import field_names
from ...model import string_or_empty
from ...recordings.recording import Json
from .provider import MAX_OUTPUT, ModelReply, StopReason, TrialProvider, UsedTool, iter_dicts, read_count, to_tool_call

VERSION = "2023-06-01"
FIELDS = field_names("system tools tool_choice thinking temperature top_p top_k stop_sequences max_tokens")
THINKING_BLOCKS = ("thinking", "redacted_thinking")
CLIENT_TOOLS = ("bash_", "text_editor_")
"""Type prefixes of the provider's predefined tools that run at the client."""
STOPS: dict[str, StopReason] = {
    **dict.fromkeys(("end_turn", "tool_use", "stop_sequence"), "ok"),
    **dict.fromkeys(("max_tokens", "model_context_window_exceeded"), "truncated"),
    "refusal": "refused",
}


def _build_fields(recorded_fields: Json, model: str, _: str) -> Json:
    recorded_fields = {key: _without_breakpoints(value) for key, value in recorded_fields.items()}
    return {**recorded_fields, "model": model, "max_tokens": output_limit(recorded_fields), "stream": True}


def output_limit(head: Mapping[str, Any]) -> int:
    thinking = head.get("thinking")
    most = MAX_OUTPUT + read_count(thinking, "budget_tokens")
    return min(most, read_count(head, "max_tokens") or most)


def _has_thinking(head: Mapping[str, Any]) -> bool:
    thinking = head.get("thinking")
    return isinstance(thinking, dict) and thinking.get("type") != "disabled"


def _without_breakpoints(value: Any) -> Any:
    if isinstance(value, list):
        return [_without_breakpoints(item) for item in value]
    return {key: each for key, each in value.items() if key != FIELD} if isinstance(value, dict) else value


def _client_tools(head: Mapping[str, Any]) -> list[Any]:
    return [
        tool
        for tool in iter_dicts(head.get("tools"))
        if tool.get("type") in (None, "custom") or string_or_empty(tool.get("type")).startswith(CLIENT_TOOLS)
    ]


def _declare_tools(tools: Sequence[UsedTool]) -> list[Any]:
    return [{"name": tool.name, "input_schema": tool.schema or {"type": "object"}} for tool in tools]


def _remove_thinking(entry: Json) -> Json | None:
    content = entry.get("content")
    if not isinstance(content, list):
        return entry
    remaining_blocks = [
        block for block in content if not (isinstance(block, dict) and block.get("type") in THINKING_BLOCKS)
    ]
    if len(remaining_blocks) == len(content):
        return entry
    return {**entry, "content": remaining_blocks} if remaining_blocks else None


def _add_breakpoints(body: Json, ends: Sequence[int]) -> Json:
    """Add cache breakpoints: at most two in the history, and one before it.

    The provider allows four, and its lookback window has 20 blocks. So the end of the point before gets its own.
    """
    mark = {FIELD: {"type": "ephemeral"}}
    messages, body = list(body["messages"]), dict(body)
    for end in ends:
        _add_last_breakpoint(messages, end, mark)
    body["messages"] = messages
    system, tools = body.get("system"), body.get("tools")
    if isinstance(system, str) and system.strip():
        body["system"] = [{"type": "text", "text": system, **mark}]
    elif isinstance(system, list) and system and isinstance(system[-1], dict):
        body["system"] = [*system[:-1], {**system[-1], **mark}]
    elif tools:
        body["tools"] = [*tools[:-1], {**tools[-1], **mark}]
    return body


def _add_last_breakpoint(messages: list[Json], end: int, mark: Json) -> None:
    """Add a cache breakpoint to the last block before `end` that supports one."""
    for at in range(min(end, len(messages)) - 1, -1, -1):
        content = messages[at].get("content")
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else list(content or ())
        for place in range(len(blocks) - 1, -1, -1):
            if _can_carry_breakpoint(blocks[place]):
                blocks[place] = {**blocks[place], **mark}
                messages[at] = {**messages[at], "content": blocks}
                return


def _can_carry_breakpoint(block: Any) -> bool:
    if not isinstance(block, dict) or block.get("type") not in CARRIERS:
        return False
    content = {"text": block.get("text"), "tool_result": block.get("content")}.get(str(block["type"]), True)
    return bool(content.strip() if isinstance(content, str) else content)


def parse_reply(events: Sequence[Json]) -> ModelReply:
    blocks: dict[int, Json] = {}
    inputs: dict[int, list[str]] = {}
    usage_fields: Json = {}
    stop: StopReason = "failed"
    for event in events:
        at = read_count(event, "index")
        match event.get("type"):
            case "message_start":
                usage_fields |= _usage_fields(event.get("message"))
            case "content_block_start" if isinstance(event.get("content_block"), dict):
                blocks[at] = event["content_block"]
            case "content_block_delta" if isinstance(event.get("delta"), dict):
                delta = event["delta"]
                inputs.setdefault(at, []).append(
                    string_or_empty(delta.get("partial_json")) or string_or_empty(delta.get("text"))
                )
            case "message_delta":
                usage_fields |= _usage_fields(event)
                delta = event.get("delta")
                stop = STOPS.get(string_or_empty(delta.get("stop_reason")) if isinstance(delta, dict) else "", "failed")
    calls = [
        to_tool_call(block.get("name"), "".join(inputs.get(at, ())) or "{}", at)
        for at, block in blocks.items()
        if block.get("type") == "tool_use"
    ]
    text = "".join("".join(inputs.get(at, ())) for at, block in blocks.items() if block.get("type") == "text")
    return ModelReply(tuple(calls), text, stop, _parse_usage(usage_fields) if usage_fields else None)


def _usage_fields(place: Any) -> Json:
    usage = place.get("usage") if isinstance(place, dict) else None
    return {key: value for key, value in usage.items() if value is not None} if isinstance(usage, dict) else {}


def _parse_usage(fields: Json) -> Usage:
    long = read_count(fields, "cache_creation", "ephemeral_1h_input_tokens")
    write_tokens = max(0, read_count(fields, "cache_creation_input_tokens") - long)
    read = read_count(fields, "cache_read_input_tokens")
    return Usage(read_count(fields, "input_tokens"), read, write_tokens, long, read_count(fields, "output_tokens"))


PROVIDER = TrialProvider(
    format="anthropic",
    price_list_name="anthropic",
    base_url="https://api.anthropic.com",
    exclusive_agents=("claude-code",),
    base_variables=("ANTHROPIC_BASE_URL",),
    key_variables=("ANTHROPIC_API_KEY",),
    token_variables=("ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN"),
    is_subscription=lambda key: "sk-ant-oat" in key.lower(),
    path_for=lambda model: "/v1/messages",
    auth_headers=lambda key: {"x-api-key": key, "anthropic-version": VERSION},
    forwarded_fields=FIELDS,
    build_fields=_build_fields,
    output_limit=output_limit,
    has_thinking=_has_thinking,
    disable_thinking=lambda head: {key: value for key, value in head.items() if key != "thinking"},
    client_tools=_client_tools,
    declare_tools=_declare_tools,
    remove_thinking=_remove_thinking,
    add_breakpoints=_add_breakpoints,
    parse_reply=parse_reply,
)
