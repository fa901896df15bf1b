"""Fields that identify a wire format. Bodies of two formats can be equal; then no format is guessed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any


def field_names(text: str) -> frozenset[str]:
    return frozenset(text.split())


@dataclass(frozen=True, slots=True)
class Evidence:
    """Names that occur in this format and in none of its look-alikes."""

    fields: frozenset[str] = frozenset()
    """Fields of the request body."""
    items: frozenset[str] = frozenset()
    """`type` of an item that is not a message."""
    message_fields: frozenset[str] = frozenset()
    blocks: frozenset[str] = frozenset()
    """`type` of a content block."""
    tool_fields: frozenset[str] = frozenset()
    """Fields of a tool definition."""
    never: frozenset[str] = frozenset()
    """Fields that messages of this format never have."""
    roles: frozenset[str] = frozenset()
    """Weaker than the other fields, because formats adopt each other's roles. Only used without other evidence."""
    models: tuple[str, ...] = ()
    """Prefixes of model names. The weakest evidence, because gateways accept any model in any format. Used last."""

    def matches_body(self, body: Mapping[str, Any]) -> bool:
        if not self.fields.isdisjoint(body):
            return True
        tools = body.get("tools")
        return isinstance(tools, list) and any(
            isinstance(tool, dict) and not self.tool_fields.isdisjoint(tool) for tool in tools
        )

    def matches_message(self, message: Any) -> bool:
        if not isinstance(message, dict):
            return False
        if _string_or_none(message.get("type")) in self.items or not self.message_fields.isdisjoint(message):
            return True
        content = message.get("content")
        return isinstance(content, list) and any(
            isinstance(block, dict) and _string_or_none(block.get("type")) in self.blocks for block in content
        )

    def matches_roles(self, history: Iterable[Any]) -> bool:
        return any(
            isinstance(message, dict) and _string_or_none(message.get("role")) in self.roles for message in history
        )

    def matches_model(self, model: str) -> bool:
        """Return True if the model's name fits. Gateways add a provider (`anthropic/claude-…`), a region
        (`us.anthropic.claude-…`) or a path (`models/gemini-…`) before it."""
        last = model.lower().rpartition("/")[2]
        starts = [last, *(last[at + 1 :] for at, char in enumerate(last) if char in ".:")]
        return any(start.startswith(self.models) for start in starts)

    def ruled_out_by(self, message: Any) -> bool:
        return isinstance(message, dict) and not self.never.isdisjoint(message)


def _string_or_none(value: Any) -> Any:
    return value if isinstance(value, str) else None
