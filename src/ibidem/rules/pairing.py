"""Which result answers which call. Rules and repair ask here; nobody else works it out again."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple

from ..model import Conversation, Message, Thinking, ToolCall, ToolResult


class Unanswered(NamedTuple):
    position: int
    """In the conversation's messages."""
    call: ToolCall
    running: bool
    """Nothing but further calls comes after it: the tool may still be at work."""


class Stray(NamedTuple):
    position: int
    result: ToolResult
    why: Literal["unknown", "misplaced", "duplicate"]
    """Its call is nowhere; it stands elsewhere than the format demands; another result answered before."""


class Pairing(NamedTuple):
    unanswered: list[Unanswered]
    strays: list[Stray]


class _Scope(NamedTuple):
    open: dict[str, tuple[int, ToolCall]]
    """Calls that may be answered here."""
    answered: set[str]


def pair(conv: Conversation) -> Pairing:
    """Match calls and results as the format does: by id, and by where they stand. Linear."""
    found, scope = Pairing([], []), _Scope({}, set())
    known = {call.id for message in conv.messages for call in message.calls}
    last_other = _last_other(conv.messages)
    for position, message in enumerate(conv.messages):
        found.strays.extend(_take(message, position, scope, known))
        if _closes(conv, message):
            _close(scope, found, last_other)
        for call in message.calls:
            if call.id in scope.open:  # the same id twice before any answer: the first goes without
                found.unanswered.append(Unanswered(*scope.open.pop(call.id), running=False))
            scope.open[call.id] = (position, call)
            scope.answered.discard(call.id)
    _close(scope, found, last_other)
    found.unanswered.sort(key=lambda missing: missing.position)
    if conv.server_history:
        return Pairing(found.unanswered, [stray for stray in found.strays if stray.why != "unknown"])
    return found


def _take(message: Message, position: int, scope: _Scope, known: set[str]) -> Iterator[Stray]:
    for result in message.results:
        if scope.open.pop(result.call_id, None) is not None:
            scope.answered.add(result.call_id)
        elif result.call_id in scope.answered:
            yield Stray(position, result, "duplicate")
        else:
            yield Stray(position, result, "misplaced" if result.call_id in known else "unknown")


def _closes(conv: Conversation, message: Message) -> bool:
    """Whether calls made before this message can no longer be answered after it."""
    match conv.dialect.answers:
        case "next":
            return True
        case "following":
            return message.role != "tool"
        case "later":
            return False


def _close(scope: _Scope, found: Pairing, last_other: int) -> None:
    for position, call in scope.open.values():
        found.unanswered.append(Unanswered(position, call, running=position > last_other))
    scope.open.clear()
    scope.answered.clear()


def _last_other(messages: tuple[Message, ...]) -> int:
    """Position of the last message that is neither a call nor thinking of the turn that makes it."""
    for position in range(len(messages) - 1, -1, -1):
        message = messages[position]
        if message.role != "assistant" or not (message.calls or _only_thinks(message)):
            return position
    return -1


def _only_thinks(message: Message) -> bool:
    return all(isinstance(part, Thinking) for part in message.parts)
