"""Scripted histories.

A line is `s:` system, `u:` user, `a:` assistant (`a?thinking:text>1,2` has thinking, a text, and calls 1 and 2; each
part is optional), `r1:` the result of call 1. Consecutive results answer one batch of calls.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

_ASSISTANT = re.compile(r"a(?:\?(?P<thinks>[^:>]*))?(?::(?P<says>.*?))?(?:>(?P<calls>[\w,.-]+))?", re.DOTALL)
_RESULT = re.compile(r"r(?P<id>[\w.-]+):(?P<text>.*)", re.DOTALL)


@dataclass
class Turn:
    """What one side sends before the other side's turn."""

    role: str
    says: str | None = None
    thinks: str | None = None
    calls: list[str] = field(default_factory=list)
    results: list[tuple[str, Any]] = field(default_factory=list)
    """Call id and text; or, instead of a text, a list of texts, with None for an image."""


def conv(*lines: str, format: str = "anthropic", calls: Mapping[str, tuple[str, dict[str, Any]]] | None = None) -> Any:
    """Build a request body from a script. `calls` sets the tool and arguments of a call; the default is a Read of
    `file<id>`."""
    turns: list[Turn] = []
    for line in lines:
        if (result := _RESULT.fullmatch(line)) is not None:
            if not turns or turns[-1].role != "tool":
                turns.append(Turn("tool"))
            turns[-1].results.append((result["id"], result["text"]))
        elif line[:2] in ("u:", "s:"):
            turns.append(Turn({"u": "user", "s": "system"}[line[0]], line[2:]))
        elif (assistant := _ASSISTANT.fullmatch(line)) is not None:
            call_ids = assistant["calls"].split(",") if assistant["calls"] else []
            turns.append(Turn("assistant", assistant["says"], assistant["thinks"], call_ids))
        else:
            raise ValueError(f"{line!r}: a line starts with u:, s:, r<id>: or is a[?thinking][:text][>calls]")
    return build(turns, format, calls)


def build(turns: Sequence[Turn], format: str, calls: Mapping[str, tuple[str, dict[str, Any]]] | None = None) -> Any:
    """Build a request body in a format."""
    return _BUILDERS[format](turns, calls or {})


def _call_arguments(ident: str, calls: Mapping[str, tuple[str, dict[str, Any]]]) -> tuple[str, dict[str, Any]]:
    return calls.get(ident, ("Read", {"file_path": f"file{ident}"}))


def _build_anthropic(turns: Sequence[Turn], calls: Mapping[str, tuple[str, dict[str, Any]]]) -> Any:
    body: dict[str, Any] = {"model": "claude-test", "max_tokens": 1024, "system": "", "messages": []}
    for turn in turns:
        if turn.role == "system":
            body["system"] += turn.says or ""
        elif turn.role == "user":
            body["messages"].append({"role": "user", "content": turn.says})
        elif turn.role == "tool":
            blocks = [{"type": "tool_result", "tool_use_id": i, "content": _result_blocks(t)} for i, t in turn.results]
            body["messages"].append({"role": "user", "content": blocks})
        else:
            content: list[Any] = []
            if turn.thinks is not None:
                content.append({"type": "thinking", "thinking": turn.thinks, "signature": "sig=="})
            if turn.says is not None:
                content.append({"type": "text", "text": turn.says})
            for ident in turn.calls:
                name, arguments = _call_arguments(ident, calls)
                content.append({"type": "tool_use", "id": ident, "name": name, "input": arguments})
            body["messages"].append({"role": "assistant", "content": content})
    return body


def _result_blocks(text: Any) -> Any:
    """Return the content of a result: a string, or blocks of text and image."""
    if isinstance(text, str):
        return text
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aW1hZ2U="}}
    return [image if each is None else {"type": "text", "text": each} for each in text]


def _text_blocks(text: Any) -> Any:
    if isinstance(text, str):
        return text
    return [{"type": "text", "text": each} for each in text if each is not None] or "image"


def _build_openai_chat(turns: Sequence[Turn], calls: Mapping[str, tuple[str, dict[str, Any]]]) -> Any:
    messages: list[Any] = []
    for turn in turns:
        if turn.role == "tool":
            messages.extend({"role": "tool", "tool_call_id": i, "content": _text_blocks(t)} for i, t in turn.results)
            continue
        message: dict[str, Any] = {"role": turn.role, "content": turn.says}
        if turn.thinks is not None:
            message["reasoning_content"] = turn.thinks
        tool_calls = [(ident, *_call_arguments(ident, calls)) for ident in turn.calls]
        if tool_calls:
            message["tool_calls"] = [
                {"id": i, "type": "function", "function": {"name": n, "arguments": json.dumps(a)}}
                for i, n, a in tool_calls
            ]
        messages.append(message)
    return {"model": "gpt-test", "max_completion_tokens": 1024, "messages": messages}


def _build_openai_responses(turns: Sequence[Turn], calls: Mapping[str, tuple[str, dict[str, Any]]]) -> Any:
    items: list[Any] = []
    for number, turn in enumerate(turns):
        for ident, text in turn.results:
            output = (
                text if isinstance(text, str) else [{"type": "input_text", "text": t} for t in text if t is not None]
            )
            items.append({"type": "function_call_output", "call_id": ident, "output": output or "image"})
        if turn.thinks is not None and (turn.says is not None or turn.calls):
            summary = [{"type": "summary_text", "text": turn.thinks}]
            items.append({"type": "reasoning", "id": f"rs_{number}", "summary": summary, "encrypted_content": "ZW5j"})
        if turn.says is not None:
            kind = "output_text" if turn.role == "assistant" else "input_text"
            items.append({"type": "message", "role": turn.role, "content": [{"type": kind, "text": turn.says}]})
        for ident in turn.calls:
            name, arguments = _call_arguments(ident, calls)
            items.append({"type": "function_call", "call_id": ident, "name": name, "arguments": json.dumps(arguments)})
    return {"model": "gpt-test", "input": items}


def _build_gemini(turns: Sequence[Turn], calls: Mapping[str, tuple[str, dict[str, Any]]]) -> Any:
    body: dict[str, Any] = {"contents": []}
    for turn in turns:
        if turn.role == "system":
            body["systemInstruction"] = {"parts": [{"text": turn.says}]}
            continue
        parts: list[Any] = []
        for ident, text in turn.results:
            output = text if isinstance(text, str) else "\n".join(t for t in text if t is not None)
            response = {"id": ident, "name": _call_arguments(ident, calls)[0], "response": {"output": output}}
            parts.append({"functionResponse": response})
        if turn.thinks is not None:
            parts.append({"text": turn.thinks, "thought": True})
        if turn.says is not None:
            parts.append({"text": turn.says})
        for ident in turn.calls:
            name, arguments = _call_arguments(ident, calls)
            parts.append({"functionCall": {"id": ident, "name": name, "args": arguments}})
        body["contents"].append({"role": "model" if turn.role == "assistant" else "user", "parts": parts})
    return body


_BUILDERS: dict[str, Callable[[Sequence[Turn], Mapping[str, tuple[str, dict[str, Any]]]], Any]] = {
    "anthropic": _build_anthropic,
    "openai-chat": _build_openai_chat,
    "openai-responses": _build_openai_responses,
    "gemini": _build_gemini,
}
