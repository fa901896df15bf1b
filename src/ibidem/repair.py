"""Calls without results and results without calls: providers refuse both."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from . import markers
from .model import INSERTED, Conversation, Message, Path, Text
from .plan import Edit, Kind
from .rules.pairing import Stray, pair


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairPairing:
    """Answer what was left unanswered, take away what answers nothing.

    A result that stands in the wrong place is moved, not lost. A call at the very end may still be running and is
    left alone. What is put in derives from the call alone, so it never changes between requests.
    """

    name: ClassVar[str] = "pairing"
    touches: ClassVar[frozenset[Kind]] = frozenset({"messages"})

    by_place: bool = True
    """Pair by id and by where the provider looks; False pairs by id alone, as the codetether profile does."""

    def plan(self, conv: Conversation) -> Iterator[Edit]:
        return self._by_place(conv) if self.by_place else self._by_id(conv)

    def _by_place(self, conv: Conversation) -> Iterator[Edit]:
        found = pair(conv)
        movable: dict[str, list[Stray]] = {}
        for stray in found.strays:
            if stray.why == "misplaced":
                movable.setdefault(stray.result.call_id, []).append(stray)
        answers: dict[int, list[Any]] = {}
        moved: set[int] = set()
        for missing in found.unanswered:
            if missing.running:
                continue
            if candidates := movable.get(missing.call.id):
                stray = candidates.pop(0)
                moved.add(id(stray))
                block = _wire_of(conv.messages[stray.position], stray.result.path)
            else:
                block = conv.dialect.result_block(missing.call, markers.UNAVAILABLE)
            answers.setdefault(missing.position, []).append(block)
        receiving: set[int] = set()
        for position, blocks in answers.items():
            yield from self._answer(conv, position, blocks, receiving)
        yield from self._remove(conv, found.strays, moved, receiving)

    def _answer(self, conv: Conversation, position: int, blocks: list[Any], receiving: set[int]) -> Iterator[Edit]:
        """Put result blocks where the format looks for them: into the next message if that is the place."""
        following = conv.messages[position + 1] if position + 1 < len(conv.messages) else None
        if following is not None and self._takes_results(conv, following):
            receiving.add(position + 1)
            yield from self._join(conv, following, blocks)
            return
        for wire in conv.dialect.results_message(blocks):
            yield self._insert("after", conv.messages[position].index, (), wire, hits=_results_in(conv, wire))

    @staticmethod
    def _takes_results(conv: Conversation, message: Message) -> bool:
        if conv.dialect.answers != "next" or message.speaker != "user" or message.index == INSERTED:
            return False
        return bool(message.results) or conv.dialect.alternating

    def _join(self, conv: Conversation, message: Message, blocks: list[Any]) -> Iterator[Edit]:
        parts = conv.dialect.parts_path(message)
        if parts is not None:
            for block in blocks:
                yield self._insert("before", message.index, (*parts, 0), block)
            return
        text = message.parts[0]
        if isinstance(text, Text):  # a content string becomes a list that ends in that very text
            value = [*blocks, conv.dialect.text_block(text.text)]
            yield self._insert("set", message.index, text.path, value, hits=len(blocks), text=text.text)

    def _remove(
        self, conv: Conversation, strays: Sequence[Stray], moved: set[int], receiving: set[int]
    ) -> Iterator[Edit]:
        by_position: dict[int, list[Stray]] = {}
        for stray in strays:
            by_position.setdefault(stray.position, []).append(stray)
        for position, group in by_position.items():
            message = conv.messages[position]
            repairs = sum(id(stray) not in moved for stray in group)
            everything = len(group) == len(message.parts) and position not in receiving
            if everything and not _parts_assistants(conv, position):
                yield self._drop(message, (), repairs)
                continue
            parts = conv.dialect.parts_path(message)
            if everything and parts is not None:
                yield self._insert(
                    "before", message.index, (*parts, 0), conv.dialect.text_block(markers.UNCALLED), hits=0
                )
            for stray in group:
                yield self._drop(message, stray.result.path, int(id(stray) not in moved))

    def _by_id(self, conv: Conversation) -> Iterator[Edit]:
        calls = {call.id for message in conv.messages for call in message.calls}
        results = {result.call_id for message in conv.messages for result in message.results}
        for message in conv.messages:
            missing = [call for call in message.calls if call.id not in results]
            blocks = [conv.dialect.result_block(call, markers.UNAVAILABLE) for call in missing]
            for wire in conv.dialect.results_message(blocks) if blocks else ():
                yield self._insert("after", message.index, (), wire, hits=_results_in(conv, wire))
            known = any(result.call_id in calls for result in message.results)
            if message.role == "tool" and not known and not conv.server_history:
                yield self._drop(message, (), 1)

    def _insert(self, op: Any, index: int, path: Path, value: Any, *, hits: int = 1, text: str = "") -> Edit:
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

    def _drop(self, message: Message, path: Path, hits: int) -> Edit:
        return Edit(
            strategy=self.name,
            op="drop",
            message=message.index,
            path=path,
            hits=hits,
            reason="a result without its call",
        )


def _parts_assistants(conv: Conversation, position: int) -> bool:
    """Whether, where turns alternate, two assistant messages (or an assistant and an end) would meet without it."""
    if not conv.dialect.alternating:
        return False
    around = conv.messages[position - 1 : position] + conv.messages[position + 1 : position + 2]
    return bool(around) and all(message.role == "assistant" for message in around)


def _results_in(conv: Conversation, wire: Any) -> int:
    return len(conv.dialect.read(INSERTED, wire).results)


def _wire_of(message: Message, path: Path) -> Any:
    wire = message.wire
    for step in path:
        wire = wire[step]
    return wire
