"""OpenAI Responses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...formats.evidence import names
from ...formats.openai_responses import CALLS
from ...model import ToolCall, string
from ...recordings.recording import Json
from . import openai_chat
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

FIELDS = names("instructions tools tool_choice parallel_tool_calls reasoning text temperature top_p max_output_tokens")
CLIENT_TOOLS = frozenset({"function", "custom", "local_shell", "shell", "apply_patch"})
"""Types of tools that run at the client."""
ENDS: dict[str, StopReason] = {"response.completed": "ok", "response.incomplete": "truncated"}


def _head(kept: Json, model: str, name: str) -> Json:
    told = {"prompt_cache_key": name} if name else {}
    return {**kept, "model": model, "max_output_tokens": limit(kept), "stream": True, "store": False, **told}


def limit(head: Mapping[str, Any]) -> int:
    return min(MAX_OUTPUT, number_in(head, "max_output_tokens") or MAX_OUTPUT)


def _declared(tools: Sequence[UsedTool]) -> list[Any]:
    return [
        {"type": "custom", "name": each.name}
        if each.schema is None
        else {"type": "function", "name": each.name, "parameters": each.schema, "strict": False}
        for each in tools
    ]


def _without_thinking(entry: Json) -> Json | None:
    """Return an entry without reasoning, or None for reasoning. Ids are removed too: with an id, the provider requires
    the reasoning before it."""
    if entry.get("type") == "reasoning":
        return None
    known = isinstance(entry.get("id"), str) and (entry.get("call_id") or entry.get("type") == "message")
    return {key: value for key, value in entry.items() if key != "id"} if known else entry


def reply(events: Sequence[Json]) -> ModelReply:
    for event in reversed(events):
        response = event.get("response")
        if isinstance(response, dict) and string(event.get("type")) in (*ENDS, "response.failed"):
            break
    else:
        return ModelReply()
    stop = ENDS.get(string(event["type"]), "failed")
    details = response.get("incomplete_details")
    if isinstance(details, dict) and details.get("reason") == "content_filter":
        stop = "refused"
    calls: list[ToolCall] = []
    said: list[str] = []
    for item in each_dict(response.get("output") or _items(events)):
        if (kind := string(item.get("type"))) in CALLS:
            name, given = CALLS[kind]
            calls.append(called(item.get(name) if name else kind.removesuffix("_call"), item.get(given), len(calls)))
        for block in each_dict(item.get("content")):
            said.append(string(block.get("text")))
            stop = "refused" if block.get("type") == "refusal" else stop
    usage = openai_usage(response.get("usage"), "input", "output")
    return ModelReply(tuple(calls), "".join(said), stop, usage)


def _items(events: Sequence[Json]) -> list[Any]:
    """Return the output items of single events, for streams whose last event does not repeat them."""
    return [event.get("item") for event in events if event.get("type") == "response.output_item.done"]


PROVIDER = TrialProvider(
    format="openai-responses",
    house="openai",
    base=openai_chat.PROVIDER.base,
    clients=("codex",),
    base_variables=openai_chat.PROVIDER.base_variables,
    key_variables=openai_chat.PROVIDER.key_variables,
    subscription=openai_chat.is_subscription,
    address=lambda model: "/responses",
    headers=openai_chat.PROVIDER.headers,
    fields=FIELDS,
    head=_head,
    limit=limit,
    thinks=lambda head: "reasoning" in head,
    quiet=lambda head: {key: value for key, value in head.items() if key != "reasoning"},
    own_tools=lambda head: [tool for tool in each_dict(head.get("tools")) if tool.get("type") in CLIENT_TOOLS],
    declared=_declared,
    without_thinking=_without_thinking,
    reply=reply,
)
