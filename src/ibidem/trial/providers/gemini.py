"""Gemini generateContent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

from ...billing.usage import Usage
from ...formats.evidence import names
from ...model import ToolCall, string
from ...recordings.recording import Json
from .provider import MAX_OUTPUT, ModelReply, StopReason, TrialProvider, UsedTool, called, each_dict, number_in

FIELDS = names(
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


def _config(head: Mapping[str, Any]) -> Json:
    return next((dict(head[name]) for name in CONFIGS if isinstance(head.get(name), dict)), {})


def _head(kept: Json, model: str, _: str) -> Json:
    rest = {key: value for key, value in kept.items() if key not in CONFIGS}
    return {**rest, CONFIGS[0]: {**_config(kept), "maxOutputTokens": limit(kept)}}


def limit(head: Mapping[str, Any]) -> int:
    config = _config(head)
    most = MAX_OUTPUT + number_in(config, "thinkingConfig", "thinkingBudget")
    return min(most, number_in(config, "maxOutputTokens") or most)


def _quiet(head: Json) -> Json:
    config = {key: value for key, value in _config(head).items() if key != "thinkingConfig"}
    rest = {key: value for key, value in head.items() if key not in CONFIGS}
    return {**rest, CONFIGS[0]: config} if config else rest


def _own_tools(head: Mapping[str, Any]) -> list[Any]:
    """Return the declared functions. Tools for search and code execution run at the provider and are omitted."""
    return [{name: tool[name]} for tool in each_dict(head.get("tools")) for name in DECLARATIONS if tool.get(name)]


def _declared(tools: Sequence[UsedTool]) -> list[Any]:
    found = [{"name": each.name, "parametersJsonSchema": each.schema or {"type": "object"}} for each in tools]
    return [{DECLARATIONS[0]: found}] if found else []


def _without_thinking(entry: Json) -> Json | None:
    parts = entry.get("parts")
    if not isinstance(parts, list):
        return entry
    left = [part for part in parts if not (isinstance(part, dict) and part.get("thought") is True)]
    if len(left) == len(parts):
        return entry
    return {**entry, "parts": left} if left else None


def reply(events: Sequence[Json]) -> ModelReply:
    calls: list[ToolCall] = []
    said: list[str] = []
    usage = None
    stop: StopReason = "failed"
    for event in events:
        if isinstance(found := event.get("usageMetadata"), dict):
            usage = _usage(found)
        if isinstance(feedback := event.get("promptFeedback"), dict) and feedback.get("blockReason"):
            stop = "refused"
        for candidate in each_dict(event.get("candidates")):
            content = candidate.get("content")
            for part in each_dict(content.get("parts")) if isinstance(content, dict) else ():
                if isinstance(call := part.get("functionCall"), dict):
                    calls.append(called(call.get("name"), call.get("args") or {}, len(calls)))
                elif not part.get("thought"):
                    said.append(string(part.get("text")))
            if candidate.get("finishReason"):
                stop = STOPS.get(string(candidate["finishReason"]), "failed")
    return ModelReply(tuple(calls), "".join(said), stop, usage)


def _usage(found: Json) -> Usage:
    total, read = number_in(found, "promptTokenCount"), number_in(found, "cachedContentTokenCount")
    thought = number_in(found, "thoughtsTokenCount")
    output = number_in(found, "candidatesTokenCount") + thought
    return Usage(max(0, total - read), read, output=output, reasoning=thought)


PROVIDER = TrialProvider(
    format="gemini",
    house="google",
    base="https://generativelanguage.googleapis.com",
    clients=("gemini-cli",),
    base_variables=("GOOGLE_GEMINI_BASE_URL",),
    key_variables=("GEMINI_API_KEY", "GOOGLE_API_KEY"),
    subscription=lambda key: key.startswith("ya29."),
    address=lambda model: (
        f"/v1beta/models/{quote(model.removeprefix('models/'), safe='')}:streamGenerateContent?alt=sse"
    ),
    headers=lambda key: {"x-goog-api-key": key},
    fields=FIELDS,
    head=_head,
    limit=limit,
    thinks=lambda head: "thinkingConfig" in _config(head),
    quiet=_quiet,
    own_tools=_own_tools,
    declared=_declared,
    without_thinking=_without_thinking,
    reply=reply,
)
