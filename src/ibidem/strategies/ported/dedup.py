"""Replace repeated tool results with a reference to the first one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from ...markers import codetether
from ...model import Conversation, Kind, Text, ToolCall, ToolResult, utf8_size
from ...plan import Edit
from ..strategy import ProviderDemands
from .ported_strategy import REPEAT_KEY, Ported, codetether_arguments, codetether_messages, older_than


@dataclass(frozen=True, slots=True, kw_only=True)
class DedupToolCalls(Ported):
    """Replace the arguments of each later copy of an old call with a marker that names the first call."""

    name: ClassVar[str] = "tool_calls"
    touches: ClassVar[frozenset[Kind]] = frozenset({"arguments"})
    reads: ClassVar[frozenset[Kind]] = frozenset({"arguments", "messages"})

    window: int = 8
    """Number of last messages whose calls stay."""
    min_bytes: int = 64
    """Shorter arguments are ignored."""

    def edits(self, conv: Conversation, demands: ProviderDemands) -> Iterator[Edit]:
        first: dict[str, str] = {}
        for message in older_than(codetether_messages(conv), self.window):
            for call in message.parts:
                if type(call) is not ToolCall:
                    continue
                arguments = codetether_arguments(call)
                if 4 * len(arguments) < self.min_bytes or utf8_size(arguments) < self.min_bytes:
                    continue
                if arguments.startswith(codetether.REPEATED):
                    continue
                key = f"{call.name}\0{arguments}"
                if key not in first:
                    first[key] = call.id
                elif not call.bound:
                    marker = codetether.same_call(first[key], utf8_size(arguments))
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Dedup(Ported):
    """Replace each later copy of a tool result with a marker that names the first call."""

    name: ClassVar[str] = "dedup"
    touches: ClassVar[frozenset[Kind]] = frozenset({"result"})
    reads: ClassVar[frozenset[Kind]] = frozenset({"result", "messages"})

    min_bytes: int = 256
    """Shorter results are ignored."""
    window: int = 0
    """Number of last messages whose results are ignored. Releases from 4.6.1 on have 8."""

    @property
    def final(self) -> bool:  # type: ignore[override]  # it depends on a setting
        return self.window == 0

    def edits(self, conv: Conversation, demands: ProviderDemands) -> Iterator[Edit]:
        # Compare whole texts, not hashes: equally exact, and no text needs encoding.
        first: dict[str, str] = {}
        messages = older_than(codetether_messages(conv), self.window) if self.window else conv.messages
        for message in messages:
            for part in message.parts:
                if type(part) is not ToolResult:
                    continue
                for segment in part.segments:
                    if type(segment) is not Text or not self._is_long_enough(segment.text):
                        continue
                    text = segment.text
                    if text not in first:
                        first[text] = part.call_id
                    elif not segment.bound:
                        yield Edit(
                            strategy="dedup",
                            op="set",
                            message=message.index,
                            path=segment.path,
                            removed=(text,),
                            added=codetether.same_result(first[text], utf8_size(text)),
                            reason=f"equal to the result of {first[text]}",
                        )

    def _is_long_enough(self, text: str) -> bool:
        # A character takes one to four bytes, so most texts need no counting.
        return len(text) >= self.min_bytes or (4 * len(text) >= self.min_bytes <= utf8_size(text))
