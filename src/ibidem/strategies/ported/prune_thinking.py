"""Remove old thinking."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

from ...model import Conversation, Kind, Message, Path, Thinking, utf8_size
from ...plan import Edit
from ..strategy import ProviderDemands
from .ported_strategy import Ported, codetether_messages, older_than, separates_user_messages


@dataclass(frozen=True, slots=True, kw_only=True)
class PruneThinking(Ported):
    """Remove thinking from assistant messages older than the window, and such messages without parts.

    Providers outrank it: they demand the thinking of the active tool loop, and thinking that cannot go alone (a
    reasoning item of the Responses format, a signed part of Gemini) stays.
    """

    name: ClassVar[str] = "thinking"
    touches: ClassVar[frozenset[Kind]] = frozenset({"thinking", "messages"})
    reads: ClassVar[frozenset[Kind]] = frozenset({"thinking", "messages"})

    window: int = 4
    """Number of last messages whose thinking stays."""

    def edits(self, conv: Conversation, demands: ProviderDemands) -> Iterator[Edit]:
        messages = codetether_messages(conv)
        loop: int | None = None
        for position, message in enumerate(older_than(messages, self.window)):
            if message.role != "assistant":
                continue
            thoughts = _removable_thinking(conv, message)
            if not thoughts and message.parts:
                continue
            if thoughts and conv.dialect.loop_thinking:
                loop = _loop_index(conv) if loop is None else loop
                is_demanded = conv.dialect.loop_thinking == "all" or message.calls
                if message.index >= loop and is_demanded and demands.override_original():
                    continue
            yield from self._remove_thinking(conv, messages, position, thoughts, demands)

    def _remove_thinking(
        self,
        conv: Conversation,
        messages: Sequence[Message],
        position: int,
        thoughts: list[tuple[Path, str]],
        demands: ProviderDemands,
    ) -> Iterator[Edit]:
        message = messages[position]
        reason = f"thinking older than the last {self.window} messages"
        hits = int(any(utf8_size(text) for _, text in thoughts))
        if all(type(part) is Thinking and part.removable for part in message.parts):
            meets = conv.dialect.alternating and separates_user_messages(messages, position)
            if not (meets and demands.override_original()):
                texts = tuple(text for _, text in thoughts)
                yield Edit(
                    strategy=self.name, op="drop", message=message.index, removed=texts, hits=hits, reason=reason
                )
            return
        for path, text in thoughts:
            yield Edit(
                strategy=self.name,
                op="drop",
                message=message.index,
                path=path,
                removed=(text,),
                hits=hits,
                reason=reason,
                keeps_structure=True,
            )
            hits = 0


def _removable_thinking(conv: Conversation, message: Message) -> list[tuple[Path, str]]:
    thoughts = [(part.path, part.text) for part in message.parts if type(part) is Thinking and part.removable]
    key = conv.dialect.reasoning_key
    if key and isinstance(message.wire, dict) and isinstance(text := message.wire.get(key), str):
        thoughts.append(((key,), text))
    return thoughts


def _loop_index(conv: Conversation) -> int:
    """Index of the first message of the active tool loop; past the end if no loop is active."""
    start = conv.running_loop()
    return conv.messages[start].index if start < len(conv.messages) else len(conv.messages)
