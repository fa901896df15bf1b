"""Base class of the wire formats."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..model import MALFORMED_KIND, Message, Opaque, Path, to_json


class WireFormat:
    """Defaults of `model.Dialect`: the client sends the whole history, and the provider does not edit it."""

    alternating = False
    tells_failures = False
    object_arguments = False
    blank_is_empty = False
    silent_results = True
    shows_thinking = True
    reasoning_key = ""
    takes_prompt = False
    single: tuple[type, ...] = ()
    """Types that a client may send instead of a list of messages."""
    parts_key = "content"
    """Field of a message that holds its parts."""

    def malformed_message(self, index: int, wire: Any) -> Message:
        return Message(index, MALFORMED_KIND, (Opaque(MALFORMED_KIND, ()),), wire)

    def server_history(self, head: Mapping[str, Any]) -> bool:
        return False

    def clears_history(self, head: Mapping[str, Any]) -> bool:
        return False

    def manages_context(self, head: Mapping[str, Any]) -> bool:
        return False

    def clears_thinking(self, head: Mapping[str, Any]) -> bool:
        return False

    def drops_unfit_thinking(self, head: Mapping[str, Any]) -> bool:
        return False

    def cache_settings(self, head: Mapping[str, Any]) -> str:
        return ""

    def has_checksum(self, head: Mapping[str, Any]) -> bool:
        return False

    def tool_names(self, head: Mapping[str, Any]) -> list[str]:
        """Return the names of the tools, as declared in any format, because gateways mix formats."""
        tools = head.get("tools")
        names: list[str] = []
        for tool in tools if isinstance(tools, list) else ():
            inside = tool if isinstance(tool, dict) else {}
            declarations = inside.get("functionDeclarations") or inside.get("function_declarations")
            definitions = (inside, inside.get("function"), *(declarations if isinstance(declarations, list) else ()))
            names += [one["name"] for one in definitions if isinstance(one, dict) and isinstance(one.get("name"), str)]
        return names

    def has_one_hour_ttl(self, head: Mapping[str, Any], recent: Sequence[Message]) -> bool:
        """Return True if a cache breakpoint has this TTL. Gateways to Anthropic accept breakpoints in other formats
        too."""
        places = [head.get("system"), head.get("cache_control"), [message.wire for message in recent]]
        return '"ttl":"1h"' in to_json(places)

    def text_block(self, text: str) -> Any:
        return {"type": "text", "text": text}

    def results_message(self, blocks: Sequence[Any]) -> list[Any]:
        return list(blocks)

    def parts_path(self, message: Message) -> Path | None:
        wire = message.wire
        return (self.parts_key,) if isinstance(wire, dict) and isinstance(wire.get(self.parts_key), list) else None
