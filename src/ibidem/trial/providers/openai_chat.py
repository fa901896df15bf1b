"""OpenAI Chat Completions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...formats.evidence import field_names
from ...model import string_or_empty
from ...recordings.recording import Json
from .provider import (
    MAX_OUTPUT,
    ModelReply,
    StopReason,
    TrialProvider,
    UsedTool,
    iter_dicts,
    parse_openai_usage,
    read_count,
    to_tool_call,
)

FIELDS = field_names(
    "tools tool_choice parallel_tool_calls reasoning_effort verbosity temperature top_p stop response_format "
    "max_tokens max_completion_tokens"
)
LIMITS = ("max_completion_tokens", "max_tokens")
THINKING_FIELDS = ("reasoning_content", "reasoning", "reasoning_details")
STOPS: dict[str, StopReason] = {
    **dict.fromkeys(("stop", "tool_calls", "function_call"), "ok"),
    "length": "truncated",
    "content_filter": "refused",
}


def is_subscription(key: str) -> bool:
    """Return whether a key is a JSON web token, as from a ChatGPT login. API keys have another form."""
    return key.startswith("eyJ") and key.count(".") == 2


def _build_fields(recorded_fields: Json, model: str, name: str) -> Json:
    field = LIMITS[1] if LIMITS[1] in recorded_fields and LIMITS[0] not in recorded_fields else LIMITS[0]
    cache_fields = {"prompt_cache_key": name} if name else {}
    return {
        **recorded_fields,
        "model": model,
        field: output_limit(recorded_fields),
        "stream": True,
        "stream_options": {"include_usage": True},
        **cache_fields,
    }


def output_limit(head: Mapping[str, Any]) -> int:
    limits = [value for field in LIMITS if (value := read_count(head, field))]
    return min([MAX_OUTPUT, *limits])


def _declare_tools(tools: Sequence[UsedTool]) -> list[Any]:
    return [
        {"type": "function", "function": {"name": tool.name, "parameters": tool.schema or {"type": "object"}}}
        for tool in tools
    ]


def _remove_thinking(entry: Json) -> Json | None:
    if not any(field in entry for field in THINKING_FIELDS):
        return entry
    return {key: value for key, value in entry.items() if key not in THINKING_FIELDS}


def parse_reply(events: Sequence[Json]) -> ModelReply:
    calls: dict[int, tuple[list[str], list[str]]] = {}
    texts: list[str] = []
    stop: StopReason = "failed"
    usage, is_refused = None, False
    for event in events:
        usage = parse_openai_usage(event.get("usage"), "prompt", "completion") or usage
        for choice in iter_dicts(event.get("choices")):
            delta = choice.get("delta")
            delta = delta if isinstance(delta, dict) else {}
            texts.append(string_or_empty(delta.get("content")))
            is_refused = is_refused or bool(delta.get("refusal"))
            for call in iter_dicts(delta.get("tool_calls")):
                function = call.get("function")
                names, arguments = calls.setdefault(read_count(call, "index"), ([], []))
                if isinstance(function, dict):
                    names.append(string_or_empty(function.get("name")))
                    arguments.append(string_or_empty(function.get("arguments")))
            if choice.get("finish_reason"):
                stop = STOPS.get(string_or_empty(choice["finish_reason"]), "failed")
    tool_calls = [to_tool_call("".join(names), "".join(given) or "{}", at) for at, (names, given) in calls.items()]
    return ModelReply(tuple(tool_calls), "".join(texts), "refused" if is_refused else stop, usage)


PROVIDER = TrialProvider(
    format="openai-chat",
    price_list_name="openai",
    base_url="https://api.openai.com/v1",
    base_variables=("OPENAI_BASE_URL",),
    key_variables=("OPENAI_API_KEY",),
    is_subscription=is_subscription,
    path_for=lambda model: "/chat/completions",
    auth_headers=lambda key: {"authorization": f"Bearer {key}"},
    forwarded_fields=FIELDS,
    build_fields=_build_fields,
    output_limit=output_limit,
    has_thinking=lambda head: "reasoning_effort" in head,
    disable_thinking=lambda head: {key: value for key, value in head.items() if key != "reasoning_effort"},
    client_tools=lambda head: [tool for tool in iter_dicts(head.get("tools")) if tool.get("type") == "function"],
    declare_tools=_declare_tools,
    remove_thinking=_remove_thinking,
    parse_reply=parse_reply,
)
