"""Gemini generateContent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

from ...billing.usage import Usage
from ...formats.evidence import field_names
from ...model import ToolCall, string_or_empty
from ...recordings.recording import Json
from .provider import MAX_OUTPUT, ModelReply, StopReason, TrialProvider, UsedTool, iter_dicts, read_count, to_tool_call

FIELDS = field_names(
    "systemInstruction system_instruction tools toolConfig tool_config generationConfig generation_config "
    "safetySettings"
)
CONFIGS = ("generationConfig", "generation_config")
DECLARATIONS = ("functionDeclarations", "function_declarations")
STOPS: dict[str, StopReason] = {
    "STOP": "ok",
    "MAX_TOKENS": "truncated",
    **dict.fromkeys(("SAFETY", "RECITATION", "PROHIBITED_CONTENT", "BLOCKLIST", "SPII", "LANGUAGE"), "refused"),
}


def _generation_config(head: Mapping[str, Any]) -> Json:
    return next((dict(head[name]) for name in CONFIGS if isinstance(head.get(name), dict)), {})


def _build_fields(recorded_fields: Json, model: str, _: str) -> Json:
    rest = {key: value for key, value in recorded_fields.items() if key not in CONFIGS}
    return {
        **rest,
        CONFIGS[0]: {**_generation_config(recorded_fields), "maxOutputTokens": output_limit(recorded_fields)},
    }


def output_limit(head: Mapping[str, Any]) -> int:
    config = _generation_config(head)
    most = MAX_OUTPUT + read_count(config, "thinkingConfig", "thinkingBudget")
    return min(most, read_count(config, "maxOutputTokens") or most)


def _disable_thinking(head: Json) -> Json:
    config = {key: value for key, value in _generation_config(head).items() if key != "thinkingConfig"}
    rest = {key: value for key, value in head.items() if key not in CONFIGS}
    return {**rest, CONFIGS[0]: config} if config else rest


def _client_tools(head: Mapping[str, Any]) -> list[Any]:
    """Return the declared functions. Tools for search and code execution run at the provider and are omitted."""
    return [{name: tool[name]} for tool in iter_dicts(head.get("tools")) for name in DECLARATIONS if tool.get(name)]


def _declare_tools(tools: Sequence[UsedTool]) -> list[Any]:
    declarations = [{"name": tool.name, "parametersJsonSchema": tool.schema or {"type": "object"}} for tool in tools]
    return [{DECLARATIONS[0]: declarations}] if declarations else []


def _remove_thinking(entry: Json) -> Json | None:
    parts = entry.get("parts")
    if not isinstance(parts, list):
        return entry
    remaining_parts = [part for part in parts if not (isinstance(part, dict) and part.get("thought") is True)]
    if len(remaining_parts) == len(parts):
        return entry
    return {**entry, "parts": remaining_parts} if remaining_parts else None


def parse_reply(events: Sequence[Json]) -> ModelReply:
    calls: list[ToolCall] = []
    texts: list[str] = []
    usage = None
    stop: StopReason = "failed"
    for event in events:
        if isinstance(metadata := event.get("usageMetadata"), dict):
            usage = _parse_usage(metadata)
        if isinstance(feedback := event.get("promptFeedback"), dict) and feedback.get("blockReason"):
            stop = "refused"
        for candidate in iter_dicts(event.get("candidates")):
            content = candidate.get("content")
            for part in iter_dicts(content.get("parts")) if isinstance(content, dict) else ():
                if isinstance(call := part.get("functionCall"), dict):
                    calls.append(to_tool_call(call.get("name"), call.get("args") or {}, len(calls)))
                elif not part.get("thought"):
                    texts.append(string_or_empty(part.get("text")))
            if candidate.get("finishReason"):
                stop = STOPS.get(string_or_empty(candidate["finishReason"]), "failed")
    return ModelReply(tuple(calls), "".join(texts), stop, usage)


def _parse_usage(fields: Json) -> Usage:
    total, read = read_count(fields, "promptTokenCount"), read_count(fields, "cachedContentTokenCount")
    thinking_tokens = read_count(fields, "thoughtsTokenCount")
    output = read_count(fields, "candidatesTokenCount") + thinking_tokens
    return Usage(max(0, total - read), read, output=output, reasoning=thinking_tokens)


PROVIDER = TrialProvider(
    format="gemini",
    price_list_name="google",
    base_url="https://generativelanguage.googleapis.com",
    exclusive_agents=("gemini-cli",),
    base_variables=("GOOGLE_GEMINI_BASE_URL",),
    key_variables=("GEMINI_API_KEY", "GOOGLE_API_KEY"),
    is_subscription=lambda key: key.startswith("ya29."),
    path_for=lambda model: (
        f"/v1beta/models/{quote(model.removeprefix('models/'), safe='')}:streamGenerateContent?alt=sse"
    ),
    auth_headers=lambda key: {"x-goog-api-key": key},
    forwarded_fields=FIELDS,
    build_fields=_build_fields,
    output_limit=output_limit,
    has_thinking=lambda head: "thinkingConfig" in _generation_config(head),
    disable_thinking=_disable_thinking,
    client_tools=_client_tools,
    declare_tools=_declare_tools,
    remove_thinking=_remove_thinking,
    parse_reply=parse_reply,
)
