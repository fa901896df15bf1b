"""Old thinking goes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from ...model import Conversation, Kind, Message, Thinking
from ...plan import Edit
from ..strategy import Strategy


@dataclass(frozen=True, slots=True, kw_only=True)
class PruneThinking(Strategy):
    """Remove thinking from assistant messages older than the window.

    The thinking of the running tool loop stays, because providers demand it unchanged. So does thinking that cannot
    go alone: a reasoning item of the Responses format belongs to the item that follows it.
    """

    name: ClassVar[str] = "thinking"
    touches: ClassVar[frozenset[Kind]] = frozenset({"thinking", "messages"})

    window: int = 4
    """Thinking in the last so many messages stays."""

    def plan(self, conv: Conversation) -> Iterator[Edit]:
        old = len(conv.older_than(self.window))
        for position, message in enumerate(conv.messages[: min(old, conv.running_loop())]):
            if message.role == "assistant":
                yield from self._prune(message, needed=_parts_two_turns(conv, position))

    def _prune(self, message: Message, needed: bool) -> Iterator[Edit]:
        going = [part for part in message.parts if isinstance(part, Thinking) and part.removable]
        reason = f"thinking older than the last {self.window} messages"
        if going and len(going) == len(message.parts):
            if needed:
                return
            # Nothing would be left, and an empty message is refused everywhere.
            texts = tuple(part.text for part in going)
            yield Edit(
                strategy=self.name, op="drop", message=message.index, removed=texts, hits=len(going), reason=reason
            )
            return
        for part in going:
            yield Edit(
                strategy=self.name,
                op="drop",
                message=message.index,
                path=part.path,
                removed=(part.text,),
                reason=reason,
            )


def _parts_two_turns(conv: Conversation, position: int) -> bool:
    """Whether, where turns alternate, two of the user's would meet without this message."""
    around = conv.messages[position - 1 : position] + conv.messages[position + 1 : position + 2]
    return conv.dialect.alternating and len(around) == 2 and all(each.speaker == "user" for each in around)
