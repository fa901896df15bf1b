"""Pairs of calls and results, for the rules and for repair."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Literal, NamedTuple

import msgspec

from ..model import Conversation, Message, Thinking, ToolCall, ToolResult


class UnansweredCall(NamedTuple):
    """A call without a result."""

    position: int
    """Index of the message."""
    call: ToolCall
    is_running: bool
    """Only further calls follow: the tool may still be running."""


class OrphanResult(NamedTuple):
    """A result without its call: see `reason`."""

    position: int
    result: ToolResult
    reason: Literal["unknown", "misplaced", "duplicate"]
    """The call is not in the request; the result is not at the position the format demands; the call has a result."""


class AnsweredCall(msgspec.Struct, frozen=True):
    """A call and the result that answers it, each with the position of its message."""

    call_position: int
    call: ToolCall
    position: int
    result: ToolResult


class Pairing(NamedTuple):
    """Calls and results of a conversation: the pairs, and those without a partner."""

    unanswered: list[UnansweredCall]
    strays: list[OrphanResult]
    answers: list[AnsweredCall]


def is_answer_to(call: ToolCall, result: ToolResult) -> bool:
    """Return True if ids match, or the tool names if the call or the result has no id."""
    if call.nameless or result.nameless:
        return call.name == result.name
    return call.id == result.call_id


class _Scope:
    """Calls that may be answered at this point, in order, and the ids that were answered."""

    def __init__(self) -> None:
        self.open_calls: dict[int, tuple[int, ToolCall]] = {}
        self.by_id: dict[str, deque[int]] = {}
        self.by_name: dict[str, deque[int]] = {}
        self.answered_ids: set[str] = set()
        self._count = 0

    @property
    def has_calls(self) -> bool:
        return self._count > 0

    def pop_repeated(self, call: ToolCall, turn: int) -> tuple[int, ToolCall] | None:
        """Remove and return an open call with the same id from before `turn`. A repeated call replaces it."""
        earlier = self._first_open(self.by_id.get(call.id))
        return self.open_calls.pop(earlier) if earlier is not None and self.open_calls[earlier][0] < turn else None

    def add_call(self, position: int, call: ToolCall) -> None:
        self._count += 1
        self.open_calls[self._count] = (position, call)
        if not call.nameless:
            self.by_id.setdefault(call.id, deque()).append(self._count)
        self.by_name.setdefault(call.name, deque()).append(self._count)
        self.answered_ids.discard(call.id)

    def match_result(self, result: ToolResult) -> tuple[int, ToolCall] | None:
        """Remove and return the first open call that this result answers; None if there is no such call."""
        number = None if result.nameless else self._first_open(self.by_id.get(result.call_id))
        if number is None:
            number = self._first_open(self.by_name.get(result.name))
            if number is None or not is_answer_to(self.open_calls[number][1], result):
                return None
        self.answered_ids.add(result.call_id)
        return self.open_calls.pop(number)

    def _first_open(self, queue: deque[int] | None) -> int | None:
        while queue and queue[0] not in self.open_calls:
            queue.popleft()
        return queue[0] if queue else None


def pair_calls(conv: Conversation) -> Pairing:
    """Match calls and results as the format does, by id and by position, in linear time."""
    pairing, scope = Pairing([], [], []), _Scope()
    calls = [part for message in conv.messages for part in message.parts if type(part) is ToolCall]
    call_ids, call_names = {call.id for call in calls}, {call.name for call in calls}
    last_other = _last_other(conv.messages)
    turn = 0
    for position, message in enumerate(conv.messages):
        has_calls = False
        has_only_thinking = True
        for part in message.parts:
            if type(part) is ToolResult:
                has_only_thinking = False
                if (open_call := scope.match_result(part)) is not None:
                    pairing.answers.append(AnsweredCall(*open_call, position, part))
                elif part.call_id in scope.answered_ids:
                    pairing.strays.append(OrphanResult(position, part, "duplicate"))
                else:
                    elsewhere = part.name in call_names if part.nameless else part.call_id in call_ids
                    pairing.strays.append(OrphanResult(position, part, "misplaced" if elsewhere else "unknown"))
            elif type(part) is ToolCall:
                has_calls = True
            elif type(part) is not Thinking:
                has_only_thinking = False
        turn = turn if has_calls or has_only_thinking else position
        if scope.has_calls and _ends_scope(conv, message):
            if scope.open_calls:
                pairing.unanswered.extend(_unanswered_calls(scope, last_other))
            scope = _Scope()
        for call in message.calls if has_calls else ():
            while (unanswered_call := scope.pop_repeated(call, turn)) is not None:
                pairing.unanswered.append(UnansweredCall(*unanswered_call, is_running=False))
            scope.add_call(position, call)
    pairing.unanswered.extend(_unanswered_calls(scope, last_other))
    if conv.server_history:
        return pairing._replace(strays=[stray for stray in pairing.strays if stray.reason != "unknown"])
    return pairing


def _ends_scope(conv: Conversation, message: Message) -> bool:
    """Return True if earlier calls cannot be answered after this message."""
    match conv.dialect.answers:
        case "next":
            return True
        case "following":
            return message.role != "tool"
        case "later":
            return False


def _unanswered_calls(scope: _Scope, last_other: int) -> Iterator[UnansweredCall]:
    for position, call in scope.open_calls.values():
        yield UnansweredCall(position, call, is_running=position > last_other)


def _last_other(messages: tuple[Message, ...]) -> int:
    """Position of the last message that is neither a call nor thinking of the turn that makes it."""
    for position in range(len(messages) - 1, -1, -1):
        message = messages[position]
        if message.role != "assistant" or not (message.calls or _has_only_thinking(message)):
            return position
    return -1


def _has_only_thinking(message: Message) -> bool:
    return all(isinstance(part, Thinking) for part in message.parts)
