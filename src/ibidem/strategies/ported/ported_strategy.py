"""The base of the ported strategies, and the history as codetether counts it."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from typing import ClassVar

from ...markers import codetether
from ...model import Conversation, Message, ToolCall, ToolResult
from ...plan import Edit
from ..strategy import ProviderDemands, Strategy

REPEAT_KEY = "repeat"
"""Key of the marker for a repeated call, in formats where arguments are an object."""


class Ported(Strategy):
    """A strategy of another system. It follows only that system's rules, so an edit may save nothing (invariant 4)."""

    exact: ClassVar[bool] = True

    def plan(self, conv: Conversation) -> Iterable[Edit]:
        return self.edits(conv, ProviderDemands())

    @abstractmethod
    def edits(self, conv: Conversation, demands: ProviderDemands) -> Iterable[Edit]:
        """Yield the edits that the original makes, unless `demands` override it."""


def codetether_messages(conv: Conversation) -> Sequence[Message]:
    """The history as codetether counts it: results that share a message with other parts get a separate message.

    Such a message becomes two, with the same index and wire. Only formats that carry results in user messages have it.
    """
    messages = conv.messages
    if conv.dialect.answers != "next" or not any(map(_is_mixed, messages)):
        return messages
    split: list[Message] = []
    for message in messages:
        if _is_mixed(message):
            split.append(Message(message.index, "tool", tuple(message.results), message.wire))
            others = tuple(part for part in message.parts if type(part) is not ToolResult)
            if others:  # none are left if a strategy before this one dropped them
                split.append(Message(message.index, "user", others, message.wire))
        else:
            split.append(message)
    return split


def _is_mixed(message: Message) -> bool:
    return message.role == "user" and any(type(part) is ToolResult for part in message.parts)


def codetether_arguments(call: ToolCall) -> str:
    """The arguments of a call as codetether has them: a marker that an object format wraps is the marker alone."""
    value = call.input
    if type(value) is dict and len(value) == 1 and isinstance(marker := value.get(REPEAT_KEY), str):
        return marker if marker.startswith(codetether.REPEATED) else call.arguments
    return call.arguments


def separates_user_messages(messages: Sequence[Message], position: int) -> bool:
    """Return True if two user messages would meet without this one. System messages take no turn."""
    # No slices: this runs for many messages of a history.
    before = (messages[at] for at in range(position - 1, -1, -1))
    after = (messages[at] for at in range(position + 1, len(messages)))
    speakers = [next((each.speaker for each in side if each.role != "system"), "") for side in (before, after)]
    return speakers == ["user", "user"]


def older_than(messages: Sequence[Message], window: int) -> Sequence[Message]:
    """All but the last `window` messages."""
    return messages[: max(0, len(messages) - window)]
