"""Repair calls without results and results without calls. Providers reject both."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from ..markers import codetether
from ..model import INSERTED_INDEX, Conversation, Kind, Message, Path, Text, ToolCall
from ..plan import Edit
from ..rules.pairing import OrphanResult, Pairing, is_answer_to, pair_calls
from .ported.id_pairing import repair_by_id
from .ported.ported_strategy import Ported
from .strategy import ProviderDemands


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairPairing(Ported):
    """Add a result to each call without one, and remove results without a call.

    A result at the wrong position is moved. A call at the end of the history may still be running, so it is left
    unchanged. An added result depends only on its call, so it is the same in every request.
    """

    name: ClassVar[str] = "pairing"
    touches: ClassVar[frozenset[Kind]] = frozenset({"messages"})
    reads: ClassVar[frozenset[Kind]] = frozenset({"messages"})

    by_place: bool = True
    """Pair by id and by the position that the provider demands. False: pair by id only, as codetether does."""

    @property
    def exact(self) -> bool:  # type: ignore[override]  # it depends on a setting
        return not self.by_place

    def edits(self, conv: Conversation, demands: ProviderDemands) -> Iterator[Edit]:
        return self._repair_by_position(conv) if self.by_place else repair_by_id(conv, demands)

    def _repair_by_position(self, conv: Conversation) -> Iterator[Edit]:
        pairing = pair_calls(conv)
        misplaced_results = [stray for stray in pairing.strays if stray.reason == "misplaced"]
        blocks_by_position: dict[int, list[tuple[ToolCall, Any]]] = {}
        moved_results: list[OrphanResult] = []
        # If one of the last calls has a result, the others are no longer running.
        may_be_running = not any(
            missing.is_running and is_answer_to(missing.call, stray.result)
            for missing in pairing.unanswered
            for stray in misplaced_results
        )
        for missing in pairing.unanswered:
            stray = next((stray for stray in misplaced_results if is_answer_to(missing.call, stray.result)), None)
            if stray is not None:
                misplaced_results.remove(stray)
                moved_results.append(stray)
                block = _wire_value(conv.messages[stray.position], stray.result.path)
            elif missing.is_running and may_be_running:
                continue
            else:
                block = conv.dialect.result_block(missing.call, codetether.UNAVAILABLE)
            blocks_by_position.setdefault(missing.position, []).append((missing.call, block))
        receiving_positions: set[int] = set()
        for position, blocks in blocks_by_position.items():
            yield from self._add_results(conv, position, blocks, pairing, receiving_positions)
        yield from self._remove_orphans(conv, pairing.strays, moved_results, receiving_positions)

    def _add_results(
        self,
        conv: Conversation,
        position: int,
        blocks: list[tuple[ToolCall, Any]],
        pairing: Pairing,
        receiving_positions: set[int],
    ) -> Iterator[Edit]:
        """Insert result blocks where the format expects them: in the next message, or in a new one."""
        following = conv.messages[position + 1] if position + 1 < len(conv.messages) else None
        if following is not None and self._can_take_results(conv, following):
            receiving_positions.add(position + 1)
            yield from self._merge_results(conv, conv.messages[position], following, blocks, pairing)
            return
        for wire in conv.dialect.results_message([block for _, block in blocks]):
            yield self._insertion("after", conv.messages[position].index, (), wire, hits=_count_results(conv, wire))

    @staticmethod
    def _can_take_results(conv: Conversation, message: Message) -> bool:
        if conv.dialect.answers != "next" or message.speaker != "user" or message.index == INSERTED_INDEX:
            return False
        if not message.results and not conv.dialect.alternating:
            return False
        return conv.dialect.parts_path(message) is not None or (
            len(message.parts) == 1 and isinstance(message.parts[0], Text)
        )

    def _merge_results(
        self,
        conv: Conversation,
        caller: Message,
        message: Message,
        blocks: list[tuple[ToolCall, Any]],
        pairing: Pairing,
    ) -> Iterator[Edit]:
        parts = conv.dialect.parts_path(message)
        if parts is None:  # a content string becomes a list that ends with the same text
            text = next(part for part in message.parts if isinstance(part, Text))
            value = [*(block for _, block in blocks), conv.dialect.text_block(text.text)]
            yield self._insertion("set", message.index, text.path, value, hits=len(blocks), text=text.text)
            return
        # In the order of the calls: results without ids are matched by order.
        order = {id(call): place for place, call in enumerate(caller.calls)}
        answered_calls = [
            (order[id(answer.call)], answer.result.path[-1])
            for answer in pairing.answers
            if id(answer.call) in order and answer.result.path
        ]
        for call, block in blocks:
            earlier_places = [int(place) + 1 for call_order, place in answered_calls if call_order < order[id(call)]]
            yield self._insertion("before", message.index, (*parts, max(earlier_places, default=0)), block)

    def _remove_orphans(
        self,
        conv: Conversation,
        strays: Sequence[OrphanResult],
        moved_results: list[OrphanResult],
        receiving_positions: set[int],
    ) -> Iterator[Edit]:
        by_position: dict[int, list[OrphanResult]] = {}
        for stray in strays:
            by_position.setdefault(stray.position, []).append(stray)
        whole = {
            position
            for position, group in by_position.items()
            if len(group) == len(conv.messages[position].parts) and position not in receiving_positions
        }
        for position, group in by_position.items():
            message = conv.messages[position]
            hits = [int(stray not in moved_results) for stray in group]
            if position in whole and not _separates_assistants(conv, position, whole):
                yield self._removal(message, (), sum(hits))
                continue
            parts = conv.dialect.parts_path(message)
            if position in whole and parts is not None:
                whole.discard(position)
                text = conv.dialect.text_block(codetether.UNCALLED)
                yield self._insertion("before", message.index, (*parts, 0), text, hits=0)
            for stray, count in zip(group, hits, strict=True):
                yield self._removal(message, stray.result.path, count)

    def _insertion(self, op: Any, index: int, path: Path, value: Any, *, hits: int = 1, text: str = "") -> Edit:
        return Edit(
            strategy=self.name,
            op=op,
            message=index,
            path=path,
            added=text,
            value=value,
            hits=hits,
            reason="a call without its result",
        )

    def _removal(self, message: Message, path: Path, hits: int) -> Edit:
        return Edit(
            strategy=self.name,
            op="drop",
            message=message.index,
            path=path,
            hits=hits,
            reason="a result without its call",
        )


def _separates_assistants(conv: Conversation, position: int, removed_positions: set[int]) -> bool:
    """Return True if two assistant messages would be adjacent without this one, in a format whose turns alternate.

    The start and the end of the history count as an assistant message here.
    """
    if not conv.dialect.alternating:
        return False
    before = [m for n, m in enumerate(conv.messages[:position]) if n not in removed_positions][-1:]
    after = [m for n, m in enumerate(conv.messages[position + 1 :], position + 1) if n not in removed_positions][:1]
    around = before + after
    return bool(around) and all(message.role == "assistant" for message in around)


def _count_results(conv: Conversation, wire: Any) -> int:
    return len(conv.dialect.read_message(INSERTED_INDEX, wire).results)


def _wire_value(message: Message, path: Path) -> Any:
    wire = message.wire
    for step in path:
        wire = wire[step]
    return wire
