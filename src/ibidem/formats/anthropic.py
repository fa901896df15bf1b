"""Anthropic Messages: results are in user messages, first, directly after the calls they answer."""

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
    Segment,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    string_or_empty,
)
from ..wire.request_params import RequestParams
from .anthropic_cache import BlockCacheControl
from .evidence import Evidence, field_names
from .wire_format import WireFormat

EVIDENCE = Evidence(
    fields=field_names(
        "system anthropic_version anthropic_beta stop_sequences context_management mcp_servers container output_config"
    ),
    blocks=field_names(
        "tool_use tool_result thinking redacted_thinking server_tool_use compaction container_upload "
        "web_search_tool_result search_result document image"
    ),
    tool_fields=field_names("input_schema"),
    models=("claude-",),
)

BILLING_LINE, CHECKSUM_FIELD = "x-anthropic-billing-header:", "cch="
"""Start of a line that Claude Code puts before its system prompt, and the field in it that covers the body."""

EMPTY_SIGNATURE_LENGTH = 290
"""Characters of a signature without content, as seen in recordings."""


class Anthropic(WireFormat):
    """Anthropic's Messages API."""

    name = "anthropic"
    history_key = "messages"
    answers: Answers = "next"
    alternating = True
    tells_failures = True
    object_arguments = True
    blank_is_empty = True
    loop_thinking: LoopThinking = "all"
    evidence = EVIDENCE
    cache_control = BlockCacheControl()

    def read_message(self, index: int, wire: Any) -> Message:
        if not isinstance(wire, dict):
            return self.malformed_message(index, wire)
        content = wire.get("content")
        parts: tuple[Part, ...]
        if isinstance(content, str):
            parts = (Text(content, ("content",)),)
        elif isinstance(content, list):
            parts = tuple([_part(block, ("content", at)) for at, block in enumerate(content)])
        else:
            parts = (Opaque(MALFORMED_KIND, ("content",)),)
        role = wire.get("role")
        if role == "user" and parts and all(type(part) is ToolResult for part in parts):
            role = "tool"
        return Message(index, role if isinstance(role, str) else MALFORMED_KIND, parts, wire)

    def server_history(self, head: Mapping[str, Any]) -> bool:
        """Return True for a thread, whose history the provider stores. The request only has new messages then."""
        thread = head.get("thread")
        return isinstance(thread, Mapping) and thread.get("type") != "create"

    def clears_history(self, head: Mapping[str, Any]) -> bool:
        """Return True for a thread: its results that are not in the request count too."""
        return self.server_history(head)

    def manages_context(self, head: Mapping[str, Any]) -> bool:
        """Return True unless all context edits only clear thinking. Other edits may remove results."""
        return not all(map(_clears_thinking, _context_edits(head)))

    def clears_thinking(self, head: Mapping[str, Any]) -> bool:
        """Return True if an edit clears thinking. Some clients send an edit that keeps all of it, which clears none."""
        edits = [edit for edit in _context_edits(head) if _clears_thinking(edit)]
        return any(edit.get("keep") not in ("all", {"type": "all"}) for edit in edits)

    def drops_unfit_thinking(self, head: Mapping[str, Any]) -> bool:
        value: Any = head
        for key in ("thinking", "block_binding", "prefix_mismatch_behavior"):
            value = value.get(key) if isinstance(value, Mapping) else None
        return bool(value == "drop_block")

    def cache_settings(self, head: Mapping[str, Any]) -> str:
        """Return model, thinking and effort: each model has its own cache, and a change of the others loses cached
        messages (documented for thinking; for effort, 8 of 8 recorded changes)."""
        config = head.get("output_config")
        effort = config.get("effort") if isinstance(config, dict) else None
        return repr((head.get("model"), head.get("thinking"), effort))

    def has_checksum(self, head: Mapping[str, Any]) -> bool:
        """Return True if the first system block is Claude Code's billing line and has a checksum (`cch`) in it."""
        if isinstance(head, RequestParams) and CHECKSUM_FIELD.encode() not in head.raw("system"):
            return False  # a search, because this runs for every request and parsing takes longer
        system = head.get("system")
        first = system[0] if isinstance(system, list) and system else system
        text = first.get("text") if isinstance(first, dict) else first
        if not isinstance(text, str) or not text.startswith(BILLING_LINE):
            return False
        fields = text.partition("\n")[0].removeprefix(BILLING_LINE).split(";")
        return any(field.strip().startswith(CHECKSUM_FIELD) for field in fields)

    def user_message(self, text: str) -> Any:
        return {"role": "user", "content": text}

    def result_block(self, call: ToolCall, text: str) -> Any:
        return {"type": "tool_result", "tool_use_id": call.id, "content": text}

    def results_message(self, blocks: Sequence[Any]) -> list[Any]:
        return [{"role": "user", "content": list(blocks)}]


def _context_edits(head: Mapping[str, Any]) -> list[Any]:
    management = head.get("context_management")
    edits = management.get("edits") if isinstance(management, dict) else None
    return edits if isinstance(edits, list) else []


def _clears_thinking(edit: Any) -> bool:
    return isinstance(edit, dict) and string_or_empty(edit.get("type")).startswith("clear_thinking")


def _part(block: Any, path: Path) -> Part:
    if not isinstance(block, dict):
        return Opaque(MALFORMED_KIND, path)
    kind = block.get("type")
    if kind == "tool_result":
        segments = _segments(block.get("content"), path)
        return ToolResult(string_or_empty(block.get("tool_use_id")), segments, path, block.get("is_error") is True)
    if kind == "tool_use":
        input_path = (*path, "input")
        return ToolCall(
            string_or_empty(block.get("id")), string_or_empty(block.get("name")), block.get("input"), path, input_path
        )
    if kind == "text" and isinstance(block.get("text"), str):
        return Text(block["text"], (*path, "text"), bool(block.get("citations")))
    if kind == "thinking":
        signature = string_or_empty(block.get("signature"))
        hidden_length = max(0, len(signature) - EMPTY_SIGNATURE_LENGTH)
        return Thinking(
            string_or_empty(block.get("thinking")), path, bool(block.get("signature")), sealed=hidden_length
        )
    if kind == "redacted_thinking":
        return Thinking(
            "", path, signed=True, sealed=max(0, len(string_or_empty(block.get("data"))) - EMPTY_SIGNATURE_LENGTH)
        )
    return Opaque(string_or_empty(kind) or MALFORMED_KIND, path)


def _segments(content: Any, path: Path) -> tuple[Segment, ...]:
    if isinstance(content, str):
        return (Text(content, (*path, "content")),)
    if not isinstance(content, list):
        return ()
    return tuple([_segment(block, (*path, "content", at)) for at, block in enumerate(content)])


def _segment(block: Any, path: Path) -> Segment:
    if isinstance(block, dict) and block.get("type") == "text" and isinstance(block.get("text"), str):
        return Text(block["text"], (*path, "text"), bool(block.get("citations")))
    return Opaque(string_or_empty(block.get("type")) if isinstance(block, dict) else MALFORMED_KIND, path)
