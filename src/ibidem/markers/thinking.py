"""Thinking that was let go: how it is recorded, and how the record is found again.

It leaves no marker: providers take it as it was or not at all, and a text of ours in its place would be one that the
model never said. So the record is found by the history itself, by what in it never changes: what the user said, what
the model said and called, and which calls were answered, in order. That is the `Spine`. Up to the user's first message
behind one of the model's it names the place in the store where the records of a conversation are; up to the message
that thinking stood in, it says where each block belongs. So a block is put back only into the history that it was taken
from.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from ..model import Message, Path, Text, Thinking, ToolCall, ToolResult, to_json

PLACE_DIGITS = 16
"""Of the digest that says where in a history a message stands."""


class Spine:
    """Reads the messages of a history in order. What goes of them later leaves it as it is, or comes back before."""

    def __init__(self) -> None:
        self.name = ""
        """Where the store keeps what went; empty before the user spoke after the model, since nothing can go before.
        All that the user said before is alike where the same prompt is run again."""
        self.places: list[str] = []
        """A digest of the history up to each message, with it."""
        self._digest = hashlib.sha256()
        self._heard = False
        """The model said something."""

    def read(self, message: Message) -> None:
        for text in _spine(message):
            encoded = text.encode("utf-8", "surrogatepass")
            self._digest.update(b"%d:%b" % (len(encoded), encoded))
        self.places.append(self._digest.hexdigest()[:PLACE_DIGITS])
        if self._heard and not self.name and speaks(message):
            self.name = f"thinking {self.places[-1]}"
        self._heard = self._heard or message.role == "assistant"


def speaks(message: Message) -> bool:
    """Whether it is the user's own: it ends a tool loop."""
    return message.role == "user" and not message.results


def _spine(message: Message) -> Iterator[str]:
    """Cache marks may move, a text may become a list of one, and a client may change its instructions."""
    if message.role not in ("user", "assistant", "tool"):
        return
    yield message.role
    for part in message.parts:
        if isinstance(part, Text):
            yield part.text
        elif isinstance(part, ToolCall):
            yield part.id
            yield part.arguments if part.nameless else part.name
        elif isinstance(part, ToolResult):
            yield part.call_id


class Dropped(NamedTuple):
    """A block of a message that went whole, as all thinking of that message did."""

    message: int
    place: str
    """See `Spine.places`."""
    path: Path
    """Where it stood; it ends in its place among the parts of the message as it was."""
    block: Any
    """As it stood on the wire."""


def blocks_of(message: Message) -> dict[Path, Any]:
    """The thinking of a message, as it stands on the wire."""
    found: dict[Path, Any] = {}
    for part in message.parts:
        if isinstance(part, Thinking):
            value = message.wire
            for step in part.path:
                value = value[step]
            found[part.path] = value
    return found


def record(dropped: Iterable[Dropped]) -> str:
    return to_json({"dropped": [list(each) for each in dropped]})


def recorded(texts: Iterable[str]) -> dict[int, list[Dropped]]:
    """What records say, by message. What is none says nothing."""
    found: dict[int, list[Dropped]] = {}
    for text in texts:
        for each in _parsed(text):
            found.setdefault(each.message, []).append(each)
    return found


def _parsed(text: str) -> list[Dropped]:
    try:
        found = json.loads(text)["dropped"]
        every = [Dropped(int(message), str(place), tuple(path), block) for message, place, path, block in found]
        return [each for each in every if len(each.path) == 2 and isinstance(each.path[-1], int)]
    except (ValueError, TypeError, KeyError, RecursionError):
        return []


def stood(dropped: Iterable[Dropped], place: str) -> dict[Path, Any]:
    """The blocks that stood in the message at a place; none where records say different things of it."""
    found: dict[Path, Any] = {}
    for each in dropped:
        if each.place == place:
            before = found.setdefault(each.path, each.block)
            if before is not each.block and to_json(before) != to_json(each.block):
                return {}
    return found
