"""A provider that signs thinking for the request before it, and rejects later requests with another history.

>>> with Upstream(Signing(lambda _: Thinks("hm", Calls(("Read", {"file_path": "a.py"}))))) as provider:
...     client = anthropic.Anthropic(base_url=provider.url, api_key="any")

Newer models of Anthropic do this. Cache breakpoints are not compared. Thinking may be missing from the start of the
conversation on, without a gap. A request may ask to have thinking that does not fit dropped instead
(`thinking.block_binding`), with the beta header for that. A compaction block starts a new history: the provider ignores
messages before it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from .answers import Answer, Fails, ThinkingPart
from .clearing import THINKING, since_compaction
from .requests_seen import Seen

REFUSAL = "thinking blocks were made for another beginning of this conversation"


class Signing:
    """A script around another one. `refused` counts rejected requests."""

    def __init__(self, script: Callable[[Seen], Answer]) -> None:
        self._script = script
        self.refused = 0

    def __call__(self, seen: Seen) -> Answer:
        body = seen.json
        body = {**body, "messages": since_compaction(body["messages"])}
        if drops_mismatches(body):
            if BINDING_BETA not in (seen.header("anthropic-beta") or ""):
                return Fails(400, message="thinking.block_binding: Extra inputs are not permitted")
            body = without_mismatches(body)
        if not has_valid_thinking(body):
            self.refused += 1
            return Fails(400, message=REFUSAL)
        answer = self._script(seen)
        management = answer.context_management
        compacts = management is not None and bool(management.summary)  # the block is then first, before the thinking
        signature = signature_of({**body, "messages": []} if compacts else body)
        parts = [
            part._replace(signature=signature) if isinstance(part, ThinkingPart) else part for part in answer.parts
        ]
        return replace(answer, parts=tuple(parts))


BINDING_BETA = "thinking-binding-controls-2026-08-01"


def drops_mismatches(body: Mapping[str, Any]) -> bool:
    """Return True if a request asks to drop thinking that does not fit."""
    thinking = body.get("thinking")
    binding = thinking.get("block_binding") if isinstance(thinking, dict) else None
    return isinstance(binding, dict) and binding.get("prefix_mismatch_behavior") == "drop_block"


def without_mismatches(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return the request without thinking up to the last block that does not fit."""
    messages = list(body["messages"])
    for place in range(len(messages) - 1, -1, -1):
        if not has_valid_thinking({**body, "messages": messages[: place + 1]}) and has_valid_thinking(
            {**body, "messages": messages[:place]}
        ):
            messages[: place + 1] = [_without_thinking(message) for message in messages[: place + 1]]
            return without_mismatches({**body, "messages": messages})
    return {**body, "messages": messages}


def signature_of(body: Mapping[str, Any]) -> str:
    """Return the signature for the response to a request: a digest of everything except thinking, and one per thinking
    block."""
    return _make_signature(body, body["messages"])


def has_valid_thinking(body: Mapping[str, Any]) -> bool:
    """Return True if the history before each thinking block is the one that it was signed for."""
    messages = body["messages"]
    return all(
        _is_same_history(str(block.get("signature")), _make_signature(body, messages[:place]))
        for place, message in enumerate(messages)
        for block in _content_blocks(message)
        if block.get("type") == "thinking"
    )


def _is_same_history(signature: str, expected_signature: str) -> bool:
    """Return True if a history matches a signature. Thinking at its start may be missing, without a gap."""
    (digest, *thoughts), (expected_digest, *thoughts_left) = signature.split("."), expected_signature.split(".")
    return (
        digest == expected_digest
        and thoughts[len(thoughts) - len(thoughts_left) :] == thoughts_left
        and len(thoughts_left) <= len(thoughts)
    )


def _make_signature(body: Mapping[str, Any], before: list[Any]) -> str:
    thoughts = [block for message in before for block in _content_blocks(message) if block.get("type") in THINKING]
    rest = [_with_plain_text(_without_breakpoints(_without_thinking(message))) for message in before]
    signed_content = [_without_breakpoints(body.get("tools")), _without_breakpoints(body.get("system")), rest]
    return ".".join(map(_hash_value, [signed_content, *thoughts]))


def _hash_value(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]


def _content_blocks(message: Mapping[str, Any]) -> list[Any]:
    content = message.get("content")
    return content if isinstance(content, list) else []


def _without_thinking(message: Mapping[str, Any]) -> Mapping[str, Any]:
    blocks = [block for block in _content_blocks(message) if block.get("type") not in THINKING]
    return {**message, "content": blocks} if isinstance(message.get("content"), list) else message


def _with_plain_text(message: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the message with its text as a string, if it has one text block. Clients send the same text in both
    forms."""
    match message:
        case {"content": [{"type": "text", "text": str() as text, **others}]} if not others:
            return {**message, "content": text}
    return message


def _without_breakpoints(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_breakpoints(inside) for key, inside in value.items() if key != "cache_control"}
    return [_without_breakpoints(each) for each in value] if isinstance(value, list) else value
