"""OpenAI Responses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...formats.evidence import field_names
from ...formats.openai_responses import CALLS
from ...model import ToolCall, string_or_empty
from ...recordings.recording import Json
from . import openai_chat
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
    "instructions tools tool_choice parallel_tool_calls reasoning text temperature top_p max_output_tokens"
)
CLIENT_TOOLS = frozenset({"function", "custom", "local_shell", "shell", "apply_patch"})
"""Types of tools that run at the client."""
ENDS: dict[str, StopReason] = {"response.completed": "ok", "response.incomplete": "truncated"}


def _build_fields(recorded_fields: Json, model: str, name: str) -> Json:
    cache_fields = {"prompt_cache_key": name} if name else {}
    return {
        **recorded_fields,
        "model": model,
        "max_output_tokens": output_limit(recorded_fields),
        "stream": True,
        "store": False,
        **cache_fields,
    }


def output_limit(head: Mapping[str, Any]) -> int:
    return min(MAX_OUTPUT, read_count(head, "max_output_tokens") or MAX_OUTPUT)


def _declare_tools(tools: Sequence[UsedTool]) -> list[Any]:
    return [
        {"type": "custom", "name": tool.name}
        if tool.schema is None
        else {"type": "function", "name": tool.name, "parameters": tool.schema, "strict": False}
        for tool in tools
    ]


def _remove_thinking(entry: Json) -> Json | None:
    """Return an entry without reasoning, or None for reasoning. Ids are removed too: with an id, the provider requires
    the reasoning before it."""
    if entry.get("type") == "reasoning":
        return None
    has_id = isinstance(entry.get("id"), str) and (entry.get("call_id") or entry.get("type") == "message")
    return {key: value for key, value in entry.items() if key != "id"} if has_id else entry


def parse_reply(events: Sequence[Json]) -> ModelReply:
    for event in reversed(events):
        response = event.get("response")
        if isinstance(response, dict) and string_or_empty(event.get("type")) in (*ENDS, "response.failed"):
            break
    else:
        return ModelReply()
    stop = ENDS.get(string_or_empty(event["type"]), "failed")
    details = response.get("incomplete_details")
    if isinstance(details, dict) and details.get("reason") == "content_filter":
        stop = "refused"
    calls: list[ToolCall] = []
    texts: list[str] = []
    for item in iter_dicts(response.get("output") or _output_items(events)):
        if (kind := string_or_empty(item.get("type"))) in CALLS:
            name, arguments_key = CALLS[kind]
            calls.append(
                to_tool_call(
                    item.get(name) if name else kind.removesuffix("_call"), item.get(arguments_key), len(calls)
                )
            )
        for block in iter_dicts(item.get("content")):
            texts.append(string_or_empty(block.get("text")))
            stop = "refused" if block.get("type") == "refusal" else stop
    usage = parse_openai_usage(response.get("usage"), "input", "output")
    return ModelReply(tuple(calls), "".join(texts), stop, usage)


def _output_items(events: Sequence[Json]) -> list[Any]:
    """Return the output items of single events, for streams whose last event does not repeat them."""
    return [event.get("item") for event in events if event.get("type") == "response.output_item.done"]


PROVIDER = TrialProvider(
    format="openai-responses",
    price_list_name="openai",
    base_url=openai_chat.PROVIDER.base_url,
    exclusive_agents=("codex",),
    base_variables=openai_chat.PROVIDER.base_variables,
    key_variables=openai_chat.PROVIDER.key_variables,
    is_subscription=openai_chat.is_subscription,
    path_for=lambda model: "/responses",
    auth_headers=openai_chat.PROVIDER.auth_headers,
    forwarded_fields=FIELDS,
    build_fields=_build_fields,
    output_limit=output_limit,
    has_thinking=lambda head: "reasoning" in head,
    disable_thinking=lambda head: {key: value for key, value in head.items() if key != "reasoning"},
    client_tools=lambda head: [tool for tool in iter_dicts(head.get("tools")) if tool.get("type") in CLIENT_TOOLS],
    declare_tools=_declare_tools,
    remove_thinking=_remove_thinking,
    parse_reply=parse_reply,
)
