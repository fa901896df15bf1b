"""OpenAI Chat Completions: a `tool` message per result, without a break after the calls they answer."""

from __future__ import annotations

from typing import Any

from ..model import (
    MALFORMED_KIND,
    Answers,
    LoopThinking,
    Message,
    Opaque,
    Part,
    Path,
    Text,
    ToolCall,
    ToolResult,
    string_or_empty,
)
from .cache_control import CacheKeys
from .evidence import Evidence, field_names
from .wire_format import WireFormat

EVIDENCE = Evidence(
    fields=field_names(
        "max_completion_tokens response_format stream_options frequency_penalty presence_penalty logprobs "
        "top_logprobs logit_bias reasoning_effort n seed modalities audio prediction functions function_call "
        "parallel_tool_calls prompt_cache_key store verbosity"
    ),
    roles=field_names("system developer tool function"),
    message_fields=field_names("tool_calls tool_call_id function_call reasoning_content refusal"),
    blocks=field_names("image_url input_audio file refusal"),
    tool_fields=field_names("function custom"),
    models=("gpt-", "chatgpt-", "o1", "o3", "o4", "gemini-"),  # Gemini's compatible endpoint
)


class OpenAIChat(WireFormat):
    """OpenAI's Chat Completions API."""

    name = "openai-chat"
    history_key = "messages"
    answers: Answers = "following"
    silent_results = False
    shows_thinking = False
    loop_thinking: LoopThinking = "calls"
    reasoning_key = "reasoning_content"
    evidence = EVIDENCE
    cache_control = CacheKeys()

    def read_message(self, index: int, wire: Any) -> Message:
        if not isinstance(wire, dict):
            return self.malformed_message(index, wire)
        role = wire.get("role")
        if role == "tool":
            call_id = wire.get("tool_call_id")
            segments = tuple(_texts(wire.get("content")))
            return Message(index, role, (ToolResult(string_or_empty(call_id), segments, ()),), wire)
        # Annotations of a message count the characters of its content.
        parts: list[Part] = list(_texts(wire.get("content"), bool(wire.get("annotations"))))
        calls = wire.get("tool_calls")
        if isinstance(calls, list):
            parts.extend(_call(call, ("tool_calls", at)) for at, call in enumerate(calls))
        return Message(index, role if isinstance(role, str) else MALFORMED_KIND, tuple(parts), wire)

    def user_message(self, text: str) -> Any:
        return {"role": "user", "content": text}

    def result_block(self, call: ToolCall, text: str) -> Any:
        return {"role": "tool", "tool_call_id": call.id, "content": text}


def _texts(content: Any, is_bound: bool = False) -> list[Text | Opaque]:
    if isinstance(content, str):
        return [Text(content, ("content",), is_bound)]
    if isinstance(content, list):
        return [_block(block, ("content", at)) for at, block in enumerate(content)]
    return [] if content is None else [Opaque(MALFORMED_KIND, ("content",))]


def _block(block: Any, path: Path) -> Text | Opaque:
    if not isinstance(block, dict):
        return Opaque(MALFORMED_KIND, path)
    if block.get("type") == "text" and isinstance(block.get("text"), str):
        return Text(block["text"], (*path, "text"), bool(block.get("annotations")))
    return Opaque(string_or_empty(block.get("type")) or MALFORMED_KIND, path)


def _call(call: Any, path: Path) -> Part:
    if not isinstance(call, dict):
        return Opaque(MALFORMED_KIND, path)
    for kind, field in (("function", "arguments"), ("custom", "input")):
        body = call.get(kind)
        if isinstance(body, dict):
            # Gemini's compatible endpoint signs its calls, and the signature covers the arguments.
            is_bound = bool(call.get("extra_content"))
            name, arguments = string_or_empty(body.get("name")), body.get(field)
            return ToolCall(string_or_empty(call.get("id")), name, arguments, path, (*path, kind, field), is_bound)
    return Opaque(string_or_empty(call.get("type")) or MALFORMED_KIND, path)
