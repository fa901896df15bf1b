"""Cache directives in calls of LiteLLM: `cache_control` on messages and tools, and a cache key."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ._marks import SYSTEM, TOOLS, spots
from ._seat import Turn

FIELD = "cache_control"
SETTINGS = ("prompt_cache_key", "prompt_cache_retention", "cache_control_injection_points", FIELD)
"""Cache settings of a call. If the user sets one, nothing is added."""
HEAD = ("system", "instructions", "tools", "tool_choice", *SETTINGS[:2], FIELD)
"""Arguments of a call that are request parameters and matter for the cache."""


def asks(call: Mapping[str, Any], key: str) -> bool:
    """Return True if a call has its own cache directives."""
    return any(call.get(name) for name in SETTINGS) or _has_marks([call.get("tools"), call.get(key)])


def _has_marks(value: Any) -> bool:
    if isinstance(value, dict):
        return bool(value.get(FIELD)) or _has_marks(value.get("content")) or _has_marks(value.get("function"))
    return isinstance(value, list) and any(map(_has_marks, value))


def marked_for_claude(call: dict[str, Any], turn: Turn, model: str) -> dict[str, Any]:
    """Add cache breakpoints to a chat completion that LiteLLM translates to Anthropic's or Bedrock's format."""
    messages, tools = list(call["messages"]), list(call.get("tools") or ())
    system = [place for place, message in enumerate(messages) if _role(message) == "system"]
    others = [place for place, message in enumerate(messages) if _role(message) != "system"]
    head = {
        "system": [block for place in system for block in _blocks(messages[place])],
        "tools": [{"name": "", **(tool.get("function") or tool)} for tool in tools if isinstance(tool, Mapping)],
        "tool_choice": call.get("tool_choice"),
    }
    for spot in spots(turn.kept, model, head, [_told(messages[place]) for place in others]):
        mark = {"type": "ephemeral", "ttl": "1h"} if spot.long else {"type": "ephemeral"}
        if spot.message == TOOLS:
            tools[spot.block] = {**tools[spot.block], FIELD: mark}
            continue
        place, block = (system[-1], -1) if spot.message == SYSTEM else (others[spot.message], spot.block)
        messages[place] = _marked(messages[place], block, mark)
    return {**call, "messages": messages, **({"tools": tools} if tools else {})}


def _marked(message: Any, block: int, mark: dict[str, Any]) -> Any:
    """Return a message with a breakpoint. A response of the model is an object of LiteLLM and stays unchanged."""
    if not isinstance(message, dict) or _role(message) == "assistant":
        return message
    content = message.get("content")
    if _role(message) == "tool" or not isinstance(content, list):
        return {**message, FIELD: mark}
    parts = list(content)
    parts[block] = {**parts[block], FIELD: mark}
    return {**message, "content": parts}


def _told(message: Any) -> dict[str, Any]:
    """Return a message with blocks for `breakpoint_positions`, as LiteLLM translates it."""
    return {"role": "assistant" if _role(message) == "assistant" else "user", "content": _blocks(message)}


def _blocks(message: Any) -> list[dict[str, Any]]:
    content = _get(message, "content")
    parts = content if isinstance(content, list) else [{"type": "text", "text": content or ""}]
    told = [{"type": "text", "text": part["text"]} if part.get("text") else {"type": "other"} for part in parts]
    if _role(message) == "tool":
        return [{"type": "tool_result", "content": "".join(each.get("text", "") for each in told)}]
    return [*told, *({"type": "tool_use", "size": str(call)} for call in _get(message, "tool_calls") or ())]


def _role(message: Any) -> str:
    return str(_get(message, "role"))


def _get(message: Any, name: str) -> Any:
    return message.get(name) if isinstance(message, Mapping) else getattr(message, name, None)
