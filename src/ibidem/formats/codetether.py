"""codetether-agent's messages: every content is a list of parts, and results have their own part type.

No provider accepts this format. `ibidem.codetether` edits it, so there are no rules for it, and every edit that the
original system makes is allowed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
    Thinking,
    ToolCall,
    ToolResult,
    string_or_empty,
)
from .cache_control import CacheControl
from .evidence import Evidence
from .wire_format import WireFormat

_OWN_KEYS: dict[str, tuple[str | None, str]] = {
    "tool_call": (None, "args"),
    "tool_result": ("tool_call_id", "tool_use_id"),
    "thinking": ("text", "thinking"),
}
"""Part types that prove this format: with the first key, and without the second, which is another format's."""
_SHARED_KEYS: dict[str, tuple[str | None, str]] = {"image": ("url", "source"), "file": ("path", "file")}
"""Part types that other formats also have, with another key. They are no evidence for any format."""


class CodetetherEvidence(Evidence):
    """Other formats use the same part types, so the keys of a part decide."""

    def matches_message(self, message: Any) -> bool:
        return any(_has_keys(part, _OWN_KEYS) for part in _parts(message))

    def excludes_others(self, message: Any) -> bool:
        """Return True if the message must not count as evidence for a look-alike."""
        return any(_has_keys(part, _OWN_KEYS) or _has_keys(part, _SHARED_KEYS) for part in _parts(message))


class Codetether(WireFormat):
    """The format of codetether-agent."""

    name = "codetether"
    history_key = "messages"
    answers: Answers = "following"
    loop_thinking: LoopThinking = ""
    evidence = CodetetherEvidence()
    cache_control = CacheControl()

    def read_message(self, index: int, wire: Any) -> Message:
        content = wire.get("content") if isinstance(wire, dict) else None
        if not isinstance(content, list):
            path: Path = ("content",) if isinstance(wire, dict) else ()
            return Message(index, MALFORMED_KIND, (Opaque(MALFORMED_KIND, path),), wire)
        role = wire.get("role")
        parts = tuple([_part(part, at) for at, part in enumerate(content)])
        return Message(index, role if isinstance(role, str) else MALFORMED_KIND, parts, wire)

    def has_one_hour_ttl(self, head: Mapping[str, Any], recent: Sequence[Message]) -> bool:
        return False

    def user_message(self, text: str) -> Any:
        return {"role": "user", "content": [self.text_block(text)]}

    def result_block(self, call: ToolCall, text: str) -> Any:
        return {"type": "tool_result", "tool_call_id": call.id, "content": text}

    def results_message(self, blocks: Sequence[Any]) -> list[Any]:
        return [{"role": "tool", "content": [block]} for block in blocks]


def _parts(message: Any) -> list[Any]:
    content = message.get("content") if isinstance(message, dict) else None
    return content if isinstance(content, list) else []


def _has_keys(part: Any, kinds: Mapping[str, tuple[str | None, str]]) -> bool:
    if not isinstance(part, dict) or not isinstance(kind := part.get("type"), str) or kind not in kinds:
        return False
    own, other = kinds[kind]
    return (own is None or own in part) and other not in part


def _part(part: Any, at: int) -> Part:
    path: Path = ("content", at)
    if not isinstance(part, dict):
        return Opaque(MALFORMED_KIND, path)
    kind = part.get("type")
    if kind == "text":
        text = part.get("text")
        return Text(text, ("content", at, "text")) if isinstance(text, str) else Opaque(kind, path)
    if kind == "tool_result":
        content = part.get("content")
        segments = (Text(content, ("content", at, "content")),) if isinstance(content, str) else ()
        return ToolResult(string_or_empty(part.get("tool_call_id")), segments, path)
    if kind == "tool_call":
        name, arguments = string_or_empty(part.get("name")), part.get("arguments")
        return ToolCall(string_or_empty(part.get("id")), name, arguments, path, ("content", at, "arguments"))
    if kind == "thinking":
        return Thinking(string_or_empty(part.get("text")), path, bool(part.get("signature")))
    return Opaque(string_or_empty(kind) or MALFORMED_KIND, path)
