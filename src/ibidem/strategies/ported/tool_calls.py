"""Replace the arguments of repeated old calls."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from ...markers import codetether
from ...model import Conversation, Kind, ToolCall, size
from ...plan import Edit
from ..strategy import ProviderDemands
from .exact import REPEAT_KEY, Ported, codetether_arguments, codetether_messages, older_than


@dataclass(frozen=True, slots=True, kw_only=True)
class DedupToolCalls(Ported):
    """Replace the arguments of each later copy of an old call with a marker that names the first call."""

    name: ClassVar[str] = "tool_calls"
    touches: ClassVar[frozenset[Kind]] = frozenset({"arguments"})
    reads: ClassVar[frozenset[Kind]] = frozenset({"arguments", "messages"})

    window: int = 8
    """Number of last messages whose calls stay."""
    min_bytes: int = 64
    """Shorter arguments are neither replaced nor remembered."""

    def edits(self, conv: Conversation, demands: ProviderDemands) -> Iterator[Edit]:
        first: dict[str, str] = {}
        for message in older_than(codetether_messages(conv), self.window):
            for call in message.parts:
                if type(call) is not ToolCall:
                    continue
                arguments = codetether_arguments(call)
                if 4 * len(arguments) < self.min_bytes or size(arguments) < self.min_bytes:
                    continue
                if arguments.startswith(codetether.REPEATED):
                    continue
                key = f"{call.name}\0{arguments}"
                if key not in first:
                    first[key] = call.id
                elif not call.bound:
                    marker = codetether.same_call(first[key], size(arguments))
                    value: Any = {REPEAT_KEY: marker} if conv.dialect.object_arguments else None
                    yield Edit(
                        strategy=self.name,
                        op="set",
                        message=message.index,
                        path=call.input_path,
                        removed=(arguments,),
                        added=marker,
                        value=value,
                        reason=f"same arguments as call {first[key]}",
                        keeps_structure=True,
                    )
