"""Records of removed thinking, and how a record is matched to its history.

Removed thinking leaves no marker: providers accept thinking only unchanged, and a replacement text would be one that
the model never sent. So the record is found by the parts of the history that never change, in order: the user's texts,
the model's texts and calls, and which calls have results. They are the `HistoryFingerprint`. Its start, up to the
user's first message after one of the model, names the records of a conversation in the store. Up to the message that
the thinking was in, it gives the position of each block. So a block is restored only into the history that it was
removed from.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from ..model import Message, Path, Text, Thinking, ToolCall, ToolResult, to_json

PLACE_DIGITS = 16
"""Digits of the digest that gives a message's position in a history."""


class Spine:
    """Reads the messages of a history in order. Later rewrites do not change it, or are undone before it is
    computed."""

    def __init__(self) -> None:
        self.name = ""
        """Name of the records in the store. Empty before the user responds to the model; no thinking is removed before
        that. The user's earlier texts are the same in every run of one prompt."""
        self.places: list[str] = []
        """Digest of the history up to and including each message."""
        self._digest = hashlib.sha256()
        self._heard = False
        """True after the model's first message."""

    def read(self, message: Message) -> None:
        """Add the next message."""
        for text in _spine(message):
            encoded = text.encode("utf-8", "surrogatepass")
            self._digest.update(b"%d:%b" % (len(encoded), encoded))
        self.places.append(self._digest.hexdigest()[:PLACE_DIGITS])
        if self._heard and not self.name and speaks(message):
            self.name = f"thinking {self.places[-1]}"
        self._heard = self._heard or message.role == "assistant"


def speaks(message: Message) -> bool:
    """Return True if the user wrote the message. It ends a tool loop."""
    return message.role == "user" and not message.results


def _spine(message: Message) -> Iterator[str]:
    """Yield the texts that never change. Cache breakpoints may move, a text may become a list of one, and a client may
    change its instructions."""
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
    """A thinking block of a message from which all thinking was removed."""

    message: int
    place: str
    """The message's digest, from `HistoryFingerprint.digests`."""
    path: Path
    """Its path in the message. The last step is its index among the original parts."""
    block: Any
    """The block as it was sent."""


def blocks_of(message: Message) -> dict[Path, Any]:
    """Return the thinking blocks of a message, as sent."""
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
    """Return the blocks of records by message. Invalid records are skipped."""
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
    """Return the blocks that were in the message with this digest; none if records disagree."""
    found: dict[Path, Any] = {}
    for each in dropped:
        if each.place == place:
            before = found.setdefault(each.path, each.block)
            if before is not each.block and to_json(before) != to_json(each.block):
                return {}
    return found
