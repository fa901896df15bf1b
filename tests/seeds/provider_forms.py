"""codetether messages as provider requests and back, by the reading rules for provider formats."""

from __future__ import annotations

import json
from typing import Any

Message = dict[str, Any]


def to_chat(messages: list[Message]) -> list[Message]:
    """Return an OpenAI chat history with the same content, as far as that format has a place for it."""
    history: list[Message] = []
    for message in messages:
        parts = message["content"]
        if message["role"] == "tool":
            history += [
                {"role": "tool", "tool_call_id": part["tool_call_id"], "content": part["content"]}
                for part in parts
                if part["type"] == "tool_result"
            ]
            continue
        new: Message = {"role": message["role"], "content": [block for part in parts for block in _chat_block(part)]}
        if message["role"] == "assistant":
            calls = [
                {
                    "id": part["id"],
                    "type": "function",
                    "function": {"name": part["name"], "arguments": part["arguments"]},
                }
                for part in parts
                if part["type"] == "tool_call"
            ]
            thoughts = [part["text"] for part in parts if part["type"] == "thinking"]
            new |= {"tool_calls": calls} if calls else {}
            new |= {"reasoning_content": "".join(thoughts)} if thoughts else {}
        if len(new["content"]) == 1 and new["content"][0]["type"] == "text":
            new["content"] = new["content"][0]["text"]
        history.append(new)
    return history


def _chat_call(part: dict[str, Any]) -> dict[str, Any]:
    function = {"name": part["name"], "arguments": part["arguments"]}
    return {"id": part["id"], "type": "function", "function": function}


def _chat_block(part: dict[str, Any]) -> list[dict[str, Any]]:
    if part["type"] == "text":
        return [{"type": "text", "text": part["text"]}]
    return [{"type": "image_url", "image_url": {"url": "data:"}}] if part["type"] in ("image", "file") else []


def from_chat(history: list[Message]) -> list[Message]:
    """Return the codetether messages that an OpenAI chat history stands for."""
    return [{"role": message["role"], "content": _chat_parts(message)} for message in history]


def _chat_parts(message: Message) -> list[dict[str, Any]]:
    content = message["content"]
    if message["role"] == "tool":
        return [{"type": "tool_result", "tool_call_id": message["tool_call_id"], "content": content}]
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content or []
    thinking = message.get("reasoning_content")
    return [
        *([] if thinking is None else [{"type": "thinking", "text": thinking}]),
        *(block if block["type"] == "text" else {"type": "image"} for block in blocks),
        *({"type": "tool_call", "id": call["id"], **call["function"]} for call in message.get("tool_calls") or ()),
    ]


def to_anthropic(messages: list[Message]) -> list[Message]:
    """Return an Anthropic history with the same content, as far as that format has a place for it."""
    return [
        {
            "role": "user" if message["role"] in ("tool", "developer") else message["role"],
            "content": [_anthropic_block(part) for part in message["content"]],
        }
        for message in messages
    ]


def to_alternating(messages: list[Message]) -> list[Message]:
    """Return `to_anthropic` with messages of one role in a row joined, results first, as clients send it."""
    history: list[Message] = []
    for message in to_anthropic(messages):
        if history and history[-1]["role"] == message["role"]:
            history[-1]["content"] += message["content"]
        else:
            history.append(message)
    for message in history:
        message["content"].sort(key=lambda block: block["type"] != "tool_result")
    return history


def _anthropic_block(part: dict[str, Any]) -> dict[str, Any]:
    match part["type"]:
        case "tool_call":
            return {"type": "tool_use", "id": part["id"], "name": part["name"], "input": {"a": part["arguments"]}}
        case "tool_result":
            return {"type": "tool_result", "tool_use_id": part["tool_call_id"], "content": part["content"]}
        case "thinking":
            return {"type": "thinking", "thinking": part["text"], "signature": "signed"}
        case "text":
            return {"type": "text", "text": part["text"]}
        case _:
            return {"type": "image", "source": {"type": "url", "url": "https://example.com/a.png"}}


def from_anthropic(history: list[Message]) -> list[Message]:
    """Return the codetether messages that an Anthropic history stands for: results have a message of their own."""
    messages: list[Message] = []
    for message in history:
        content, role = message["content"], message["role"]
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        parts = [_anthropic_part(block) for block in blocks]
        results = [part for part in parts if part["type"] == "tool_result"]
        others = [part for part in parts if part["type"] != "tool_result"]
        if role == "user" and results:
            messages.append({"role": "tool", "content": results})
            parts = others
            if not others:
                continue
        messages.append({"role": role, "content": parts})
    return messages


def _anthropic_part(block: dict[str, Any]) -> dict[str, Any]:
    match block["type"]:
        case "tool_use":
            given = block["input"]
            repeat = given.get("repeat")
            arguments = repeat if repeat else json.dumps(given, separators=(",", ":"), ensure_ascii=False)
            return {"type": "tool_call", "id": block["id"], "name": block["name"], "arguments": arguments}
        case "tool_result":
            return {"type": "tool_result", "tool_call_id": block["tool_use_id"], "content": block["content"]}
        case "thinking":
            return {"type": "thinking", "text": block["thinking"]}
        case "text":
            return {"type": "text", "text": block["text"]}
        case _:
            return {"type": "image"}
