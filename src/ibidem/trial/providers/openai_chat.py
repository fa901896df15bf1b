"""OpenAI Chat Completions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...formats.evidence import names
from ...model import string
from ...recordings.recording import Json
from .provider import (
    MAX_OUTPUT,
    ModelReply,
    StopReason,
    TrialProvider,
    UsedTool,
    called,
    each_dict,
    number_in,
    openai_usage,
)

FIELDS = names(
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


def _head(kept: Json, model: str, name: str) -> Json:
    field = LIMITS[1] if LIMITS[1] in kept and LIMITS[0] not in kept else LIMITS[0]
    told = {"prompt_cache_key": name} if name else {}
    return {
        **kept,
        "model": model,
        field: limit(kept),
        "stream": True,
        "stream_options": {"include_usage": True},
        **told,
    }


def limit(head: Mapping[str, Any]) -> int:
    asked = [found for field in LIMITS if (found := number_in(head, field))]
    return min([MAX_OUTPUT, *asked])


def _declared(tools: Sequence[UsedTool]) -> list[Any]:
    return [
        {"type": "function", "function": {"name": each.name, "parameters": each.schema or {"type": "object"}}}
        for each in tools
    ]


def _without_thinking(entry: Json) -> Json | None:
    if not any(field in entry for field in THINKING_FIELDS):
        return entry
    return {key: value for key, value in entry.items() if key not in THINKING_FIELDS}


def reply(events: Sequence[Json]) -> ModelReply:
    calls: dict[int, tuple[list[str], list[str]]] = {}
    said: list[str] = []
    stop: StopReason = "failed"
    usage, refused = None, False
    for event in events:
        usage = openai_usage(event.get("usage"), "prompt", "completion") or usage
        for choice in each_dict(event.get("choices")):
            delta = choice.get("delta")
            delta = delta if isinstance(delta, dict) else {}
            said.append(string(delta.get("content")))
            refused = refused or bool(delta.get("refusal"))
            for call in each_dict(delta.get("tool_calls")):
                function = call.get("function")
                names, given = calls.setdefault(number_in(call, "index"), ([], []))
                if isinstance(function, dict):
                    names.append(string(function.get("name")))
                    given.append(string(function.get("arguments")))
            if choice.get("finish_reason"):
                stop = STOPS.get(string(choice["finish_reason"]), "failed")
    made = [called("".join(names), "".join(given) or "{}", at) for at, (names, given) in calls.items()]
    return ModelReply(tuple(made), "".join(said), "refused" if refused else stop, usage)


PROVIDER = TrialProvider(
    format="openai-chat",
    house="openai",
    base="https://api.openai.com/v1",
    base_variables=("OPENAI_BASE_URL",),
    key_variables=("OPENAI_API_KEY",),
    subscription=is_subscription,
    address=lambda model: "/chat/completions",
    headers=lambda key: {"authorization": f"Bearer {key}"},
    fields=FIELDS,
    head=_head,
    limit=limit,
    thinks=lambda head: "reasoning_effort" in head,
    quiet=lambda head: {key: value for key, value in head.items() if key != "reasoning_effort"},
    own_tools=lambda head: [tool for tool in each_dict(head.get("tools")) if tool.get("type") == "function"],
    declared=_declared,
    without_thinking=_without_thinking,
    reply=reply,
)
