"""Cache directives in calls of LiteLLM: `cache_control` on messages and tools, and a cache key."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ._breakpoints import SYSTEM, TOOLS, breakpoint_positions
from ._request_rewriter import PendingRequest

FIELD = "cache_control"
CACHE_SETTINGS = ("prompt_cache_key", "prompt_cache_retention", "cache_control_injection_points", FIELD)
"""Cache settings of a call. If the user sets one, nothing is added."""
CACHE_PARAMS = ("system", "instructions", "tools", "tool_choice", *CACHE_SETTINGS[:2], FIELD)
"""Arguments of a call that are request parameters and matter for the cache."""


def has_cache_directives(call: Mapping[str, Any], key: str) -> bool:
    """Return True if a call has its own cache directives."""
    return any(call.get(name) for name in CACHE_SETTINGS) or _has_breakpoints([call.get("tools"), call.get(key)])


def _has_breakpoints(value: Any) -> bool:
    if isinstance(value, dict):
        return (
            bool(value.get(FIELD)) or _has_breakpoints(value.get("content")) or _has_breakpoints(value.get("function"))
        )
    return isinstance(value, list) and any(map(_has_breakpoints, value))


def add_breakpoints(call: dict[str, Any], pending: PendingRequest, model: str) -> dict[str, Any]:
    """Add cache breakpoints to a chat completion that LiteLLM translates to Anthropic's or Bedrock's format."""
    messages, tools = list(call["messages"]), list(call.get("tools") or ())
    system = [index for index, message in enumerate(messages) if _message_role(message) == "system"]
    other_indexes = [place for place, message in enumerate(messages) if _message_role(message) != "system"]
    head = {
        "system": [block for place in system for block in _message_blocks(messages[place])],
        "tools": [{"name": "", **(tool.get("function") or tool)} for tool in tools if isinstance(tool, Mapping)],
        "tool_choice": call.get("tool_choice"),
    }
    for position in breakpoint_positions(
        pending.ttl_decision, model, head, [_describe_message(messages[place]) for place in other_indexes]
    ):
        directive = {"type": "ephemeral", "ttl": "1h"} if position.is_one_hour else {"type": "ephemeral"}
        if position.message == TOOLS:
            tools[position.block] = {**tools[position.block], FIELD: directive}
            continue
        place, block = (
            (system[-1], -1) if position.message == SYSTEM else (other_indexes[position.message], position.block)
        )
        messages[place] = _add_breakpoint(messages[place], block, directive)
    return {**call, "messages": messages, **({"tools": tools} if tools else {})}


def _add_breakpoint(message: Any, block: int, directive: dict[str, Any]) -> Any:
    """Return a message with a breakpoint. A response of the model is an object of LiteLLM and stays unchanged."""
    if not isinstance(message, dict) or _message_role(message) == "assistant":
        return message
    content = message.get("content")
    if _message_role(message) == "tool" or not isinstance(content, list):
        return {**message, FIELD: directive}
    parts = list(content)
    parts[block] = {**parts[block], FIELD: directive}
    return {**message, "content": parts}


def _describe_message(message: Any) -> dict[str, Any]:
    """Return a message with blocks for `breakpoint_positions`, as LiteLLM translates it."""
    return {
        "role": "assistant" if _message_role(message) == "assistant" else "user",
        "content": _message_blocks(message),
    }


def _message_blocks(message: Any) -> list[dict[str, Any]]:
    content = _get_field(message, "content")
    parts = content if isinstance(content, list) else [{"type": "text", "text": content or ""}]
    blocks = [{"type": "text", "text": part["text"]} if part.get("text") else {"type": "other"} for part in parts]
    if _message_role(message) == "tool":
        return [{"type": "tool_result", "content": "".join(each.get("text", "") for each in blocks)}]
    return [*blocks, *({"type": "tool_use", "size": str(call)} for call in _get_field(message, "tool_calls") or ())]


def _message_role(message: Any) -> str:
    return str(_get_field(message, "role"))


def _get_field(message: Any, name: str) -> Any:
    return message.get(name) if isinstance(message, Mapping) else getattr(message, name, None)
