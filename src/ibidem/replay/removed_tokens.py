"""Tokens that edits remove from a request, weighted but not scaled."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from ..billing.calibration import Count, TokenWeights, weigh_message, weigh_thinking
from ..model import Kind, Message, Thinking
from ..plan import Edit, EditTargets, find_target
from .sent_views import MessageChange


class EditSizes:
    """Sizes of a segment's edits. Each is computed once, because edits stay from one request to the next."""

    def __init__(
        self, weights: TokenWeights, count: Count, thinking_tokens: Callable[[Message], float] | None = None
    ) -> None:
        """`thinking_tokens` estimates the thinking of a message; without it, text and signature give the size."""
        self._weights, self._count = weights, count
        self._thought = thinking_tokens or (lambda message: weigh_message(message, weights, count).thinking)
        self._known: dict[int, tuple[Edit, float]] = {}
        """Identity of an edit → the edit and its removed tokens."""
        self._near: EditTargets | None = None

    def start_segment(self) -> None:
        """Drop the sizes at the start of another segment."""
        self._known, self._near = {}, None

    def message_changes(
        self, edits: Mapping[int, Sequence[Edit]], history: Sequence[Message]
    ) -> tuple[list[MessageChange], dict[int, float]]:
        """List the changed messages, and the tokens that each edit removes (by identity of the edit)."""
        tokens: dict[int, float] = {}
        changes = []
        for message, message_edits in edits.items():
            for edit in message_edits:
                cached_size = self._known.get(id(edit))
                if cached_size is None:
                    size = self._removed_tokens(edit, history[message] if 0 <= message < len(history) else None)
                    cached_size = self._known[id(edit)] = (edit, size)
                tokens[id(edit)] = cached_size[1]
            key = hash(tuple((edit.op, edit.path, edit.added) for edit in message_edits))
            changes.append(MessageChange(message, key, sum(tokens[id(edit)] for edit in message_edits)))
        return changes, tokens

    def _removed_tokens(self, edit: Edit, message: Message | None) -> float:
        """Compute the weighted tokens that an edit removes. Removed thinking includes its signature, not only its
        text."""
        kind = self._edit_kind(message, edit) if message else "messages"
        going = _thinking_in(message, edit) if message else []
        thinking_texts = {part.text for part in going}
        removed_tokens = sum(self._count(text) for text in edit.removed if text not in thinking_texts)
        added_tokens = self._count(edit.added) if edit.added else 0
        return self._weights.for_kind(kind) * (removed_tokens - added_tokens) + (
            self._removed_thinking(message, going) if message else 0.0
        )

    def _edit_kind(self, message: Message, edit: Edit) -> Kind:
        """Determine the kind of text that an edit changes, because weights differ by kind."""
        if not edit.path:
            return "messages"
        if self._near is None or self._near.message is not message:
            self._near = EditTargets(message)
        text_target = self._near.find_target(edit)
        return text_target.kind if text_target else "messages"

    def _removed_thinking(self, message: Message, going: Sequence[Thinking]) -> float:
        if not going:
            return 0.0
        every = [part for part in message.parts if isinstance(part, Thinking)]
        sizes = {id(part): 1.0 + weigh_thinking(part, self._weights, self._count) for part in every}
        return self._thought(message) * sum(sizes[id(part)] for part in going) / sum(sizes.values())


def _thinking_in(message: Message, edit: Edit) -> list[Thinking]:
    """List the thinking parts that an edit drops: one part, or all of a dropped message."""
    if edit.op != "drop":
        return []
    return [part for part in message.parts if isinstance(part, Thinking) and edit.path in ((), part.path)]


def edit_kind(message: Message, edit: Edit) -> Kind:
    """Determine the kind of text that an edit changes, because weights differ by kind."""
    text_target = find_target(message, edit) if edit.path else None
    return text_target.kind if text_target else "messages"
