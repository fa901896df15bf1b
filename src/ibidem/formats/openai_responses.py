"""OpenAI Responses: a flat list of items. `call_id` links calls and outputs; reasoning belongs to the items after it.

Each item is one message here, so positions are the same as in the request.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..model import (
    MALFORMED_KIND,
    STORED_KIND,
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
from .cache_control import CacheKeys
from .evidence import Evidence, field_names
from .wire_format import WireFormat

# Item type of a call → (field of its name, field of its arguments). The provider runs the others itself.
CALLS: dict[str, tuple[str, str]] = {
    "function_call": ("name", "arguments"),
    "custom_tool_call": ("name", "input"),
    "local_shell_call": ("", "action"),
    "shell_call": ("", "action"),
    "apply_patch_call": ("", "operation"),
    "computer_call": ("", "action"),
}
OUTPUTS = frozenset(kind + "_output" for kind in CALLS)
_MODELS_OWN = frozenset({"mcp_approval_request", "mcp_list_tools"})
_TEXT_BLOCKS = frozenset({"input_text", "output_text", "text"})

EVIDENCE = Evidence(
    fields=field_names(
        "input previous_response_id conversation instructions max_output_tokens include truncation text "
        "prompt background max_tool_calls"
    ),
    items=frozenset([*CALLS, *OUTPUTS, "reasoning", "message", "item_reference", "compaction", "mcp_call"]),
    blocks=field_names("input_text output_text input_image input_file"),
    roles=field_names("system developer"),
    models=("gpt-", "chatgpt-", "codex-", "o1", "o3", "o4"),
)

EMPTY_CONTENT_LENGTH = 867
"""Characters of encrypted content without text: 650 bytes in base64, as Codex estimates
(codex-rs/core/src/context_manager/history.rs, `estimate_reasoning_length`)."""


class OpenAIResponses(WireFormat):
    """OpenAI's Responses API."""

    name = "openai-responses"
    history_key = "input"
    answers: Answers = "later"
    loop_thinking: LoopThinking = "all"
    evidence = EVIDENCE
    cache_control = CacheKeys()
    takes_prompt = True
    single = (str,)

    def read_message(self, index: int, wire: Any) -> Message:
        if not isinstance(wire, dict):
            return self.malformed_message(index, wire)
        kind = string_or_empty(wire.get("type"))
        if wire.get("type") is None:
            kind = "message" if "role" in wire or "id" not in wire else STORED_KIND
        if kind == "message":
            role = wire.get("role")
            parts = tuple(_texts(wire.get("content"), ("content",), MALFORMED_KIND))
            return Message(index, role if isinstance(role, str) else MALFORMED_KIND, parts, wire)
        if kind in CALLS:
            return Message(index, "assistant", (_call(kind, wire),), wire)
        if kind in OUTPUTS:
            segments = tuple(_texts(wire.get("output"), ("output",)))
            # The output of a local shell names its call by `id` in the provider's schema, by `call_id` in practice.
            ident = string_or_empty(wire.get("call_id")) or (
                string_or_empty(wire.get("id")) if kind == "local_shell_call_output" else ""
            )
            return Message(index, "tool", (ToolResult(ident, segments, ()),), wire)
        if kind == "reasoning":
            summary = "".join(part.text for part in _texts(wire.get("summary"), ()) if isinstance(part, Text))
            hidden_length = max(0, len(string_or_empty(wire.get("encrypted_content"))) - EMPTY_CONTENT_LENGTH)
            return Message(
                index, "assistant", (Thinking(summary, (), True, removable=False, sealed=hidden_length),), wire
            )
        role = "assistant" if kind.endswith("_call") or kind in _MODELS_OWN else kind or MALFORMED_KIND
        return Message(index, role, (Opaque(kind or MALFORMED_KIND, ()),), wire)

    def server_history(self, head: Mapping[str, Any]) -> bool:
        return bool(head.get("previous_response_id") or head.get("conversation") or head.get("prompt"))

    def clears_history(self, head: Mapping[str, Any]) -> bool:
        goes_on = head.get("previous_response_id") or head.get("conversation")  # its stored results count too
        return head.get("truncation") == "auto" or bool(goes_on)

    def manages_context(self, head: Mapping[str, Any]) -> bool:
        return bool(head.get("context_management"))

    def user_message(self, text: str) -> Any:
        return {"type": "message", "role": "user", "content": [self.text_block(text)]}

    def text_block(self, text: str) -> Any:
        return {"type": "input_text", "text": text}

    def result_block(self, call: ToolCall, text: str) -> Any:
        if call.bound and call.name == "shell":
            failure = {"stdout": "", "stderr": text, "outcome": {"type": "exit", "exit_code": 1}}
            return {"type": "shell_call_output", "call_id": call.id, "output": [failure]}
        if call.bound and call.name == "apply_patch":
            return {"type": "apply_patch_call_output", "call_id": call.id, "status": "failed", "output": text}
        if call.bound and call.name == "local_shell":
            return {"type": "local_shell_call_output", "id": call.id, "call_id": call.id, "output": text}
        kind = "custom_tool_call_output" if call.input_path == ("input",) else "function_call_output"
        return {"type": kind, "call_id": call.id, "output": text}


def _call(kind: str, wire: dict[str, Any]) -> Part:
    name_field, input_field = CALLS[kind]
    name = string_or_empty(wire.get(name_field)) if name_field else kind.removesuffix("_call")
    # Strategies may only edit arguments of plain calls. An action of a built-in tool is a typed object.
    return ToolCall(
        string_or_empty(wire.get("call_id")), name, wire.get(input_field), (), (input_field,), bound=not name_field
    )


def _texts(content: Any, path: Path, otherwise: str = "structured") -> list[Segment]:
    if isinstance(content, str):
        return [Text(content, path)]
    if not isinstance(content, list):
        return [] if content is None else [Opaque(otherwise, path)]
    segments: list[Segment] = []
    for at, block in enumerate(content):
        segments.extend(_block(block, (*path, at)))
    return segments


def _block(block: Any, path: Path) -> list[Segment]:
    if not isinstance(block, dict):
        return [Opaque(MALFORMED_KIND, path)]
    kind = string_or_empty(block.get("type"))
    if isinstance(block.get("text"), str) and (kind in _TEXT_BLOCKS or kind == "summary_text"):
        return [Text(block["text"], (*path, "text"), bool(block.get("annotations")))]
    streams = [name for name in ("stdout", "stderr") if isinstance(block.get(name), str)]
    if streams and not kind:  # one command of a shell_call_output
        return [Text(block[name], (*path, name)) for name in streams]
    return [Opaque(kind or MALFORMED_KIND, path)]
