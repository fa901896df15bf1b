"""Gemini generateContent: contents of parts; n calls are answered by one content with n responses.

Calls often have no id. Then tool, content and count give one (`read@4.0`). It is the same on both sides, because the
response must be in the very next content.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from ..model import (
    MALFORMED_KIND,
    NO_OBJECT_KIND,
    Answers,
    LoopThinking,
    Message,
    Opaque,
    Part,
    Path,
    Segment,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    string_or_empty,
)
from .cache_control import CacheControl
from .evidence import Evidence, field_names
from .wire_format import WireFormat

_CALL = ("functionCall", "function_call")
_RESPONSE = ("functionResponse", "function_response")
_SIGNATURE = ("thoughtSignature", "thought_signature")
_ROLES = {"model": "assistant", "function": "user"}

EVIDENCE = Evidence(
    fields=field_names(
        "contents generationConfig generation_config systemInstruction system_instruction safetySettings "
        "safety_settings toolConfig tool_config cachedContent cached_content"
    ),
    roles=field_names("model"),
    message_fields=field_names("parts"),
    never=field_names("content"),
    tool_fields=field_names("functionDeclarations function_declarations"),
)


class Gemini(WireFormat):
    """Gemini's generateContent API."""

    name = "gemini"
    history_key = "contents"
    answers: Answers = "next"
    tells_failures = True
    object_arguments = True
    loop_thinking: LoopThinking = "all"
    evidence = EVIDENCE
    cache_control = CacheControl()
    parts_key = "parts"
    single = (str, dict)  # its SDK converts these to a list

    def read_message(self, index: int, wire: Any) -> Message:
        if not isinstance(wire, dict):
            return self.malformed_message(index, wire)
        parts_value = wire.get("parts")
        parts: tuple[Part, ...]
        if isinstance(parts_value, list):
            count: Counter[str] = Counter()
            parts = tuple([_part(part, ("parts", at), index, count) for at, part in enumerate(parts_value)])
        else:
            parts = () if parts_value is None else (Opaque(MALFORMED_KIND, ("parts",)),)
        role = wire.get("role", "user")
        role = _ROLES.get(role, role) if isinstance(role, str) else MALFORMED_KIND
        if role == "user" and parts and all(type(part) is ToolResult for part in parts):
            role = "tool"
        return Message(index, role, parts, wire)

    def server_history(self, head: Mapping[str, Any]) -> bool:
        return bool(head.get("cachedContent") or head.get("cached_content"))

    def user_message(self, text: str) -> Any:
        return {"role": "user", "parts": [self.text_block(text)]}

    def text_block(self, text: str) -> Any:
        return {"text": text}

    def result_block(self, call: ToolCall, text: str) -> Any:
        response: dict[str, Any] = {"name": call.name, "response": {"output": text}}
        if not call.nameless:
            response["id"] = call.id
        return {"functionResponse": response}

    def results_message(self, blocks: Sequence[Any]) -> list[Any]:
        return [{"role": "user", "parts": list(blocks)}]


def _part(part: Any, path: Path, index: int, count: Counter[str]) -> Part:
    if not isinstance(part, dict):
        return Opaque(MALFORMED_KIND, path)
    is_signed = any(part.get(key) for key in _SIGNATURE)
    text = part.get("text")
    if isinstance(text, str):
        if part.get("thought"):
            # A signed part must keep its position; an unsigned summary may be removed.
            return Thinking(text, path, is_signed, removable=not is_signed)
        return Text(text, (*path, "text"), is_signed)
    for key in _CALL:
        call = part.get(key)
        if isinstance(call, dict):
            name, own = string_or_empty(call.get("name")), string_or_empty(call.get("id"))
            ident, is_bound = own or _make_call_id(name, index, count), is_signed or "args" not in call
            return ToolCall(ident, name, call.get("args", {}), path, (*path, key, "args"), is_bound, not own)
    for key in _RESPONSE:
        response = part.get(key)
        if isinstance(response, dict):
            name, own = string_or_empty(response.get("name")), string_or_empty(response.get("id"))
            ident = own or _make_call_id(name, index - 1, count)
            response_value = response.get("response")
            is_error = isinstance(response_value, dict) and "error" in response_value
            return ToolResult(ident, _segments(response_value, (*path, key, "response")), path, is_error, name, not own)
    if is_signed and len(part) == 1:  # the end of a stream
        return Opaque("signature", path)
    return Opaque(next((str(key) for key in part if key not in _SIGNATURE), MALFORMED_KIND), path)


def _make_call_id(name: str, index: int, count: Counter[str]) -> str:
    count[name] += 1
    return f"{name}@{index}.{count[name] - 1}"


def _segments(response: Any, path: Path) -> tuple[Segment, ...]:
    """Return every string directly in the response object, and the texts of an MCP `content` list."""
    if not isinstance(response, dict):
        return (Opaque(NO_OBJECT_KIND, path),)
    segments: list[Segment] = []
    for key, value in response.items():
        if isinstance(value, str):
            segments.append(Text(value, (*path, key)))
        elif key == "content" and isinstance(value, list):
            segments.extend(_block(block, (*path, key, at)) for at, block in enumerate(value))
        else:
            segments.append(Opaque("structured", (*path, key)))
    return tuple(segments)


def _block(block: Any, path: Path) -> Segment:
    if isinstance(block, dict) and isinstance(block.get("text"), str):
        return Text(block["text"], (*path, "text"))
    return Opaque("structured", path)
