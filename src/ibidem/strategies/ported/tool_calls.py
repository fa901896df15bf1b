"""Arguments of old calls that were made before."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from ...markers import codetether
from ...model import Conversation, Kind, ToolCall, size, to_json
from ...plan import Edit
from ..strategy import Strategy


@dataclass(frozen=True, slots=True, kw_only=True)
class DedupToolCalls(Strategy):
    """Point the arguments of repeated old calls at the first call."""

    name: ClassVar[str] = "tool_calls"
    touches: ClassVar[frozenset[Kind]] = frozenset({"arguments"})

    window: int = 8
    """Calls in the last so many messages stay."""
    min_bytes: int = 64
    """Shorter arguments stay."""
    key: str = "repeat"
    """Where a provider demands an object, the marker stands under this key."""

    def plan(self, conv: Conversation) -> Iterator[Edit]:
        first: dict[tuple[str, str], str] = {}
        for message in conv.older_than(self.window):
            for call in message.calls:
                arguments = call.arguments
                if call.bound or size(arguments) < self.min_bytes or self._is_marker(call):
                    continue
                seen = (call.name, arguments)
                if seen not in first:
                    first[seen] = call.id
                    continue
                marker = codetether.same_call(first[seen], size(arguments))
                value: Any = {self.key: marker} if conv.dialect.object_arguments else marker
                written = marker if isinstance(value, str) else to_json(value)
                if size(written) < size(arguments):
                    yield Edit(
                        strategy=self.name,
                        op="set",
                        message=message.index,
                        path=call.input_path,
                        removed=(arguments,),
                        added=written,
                        value=value,
                        reason=f"same arguments as call {first[seen]}",
                    )

    def _is_marker(self, call: ToolCall) -> bool:
        given = call.input
        if isinstance(given, dict):
            given = given.get(self.key) if len(given) == 1 else None
        return isinstance(given, str) and codetether.is_same_call(given)
