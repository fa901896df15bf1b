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


class HistoryFingerprint:
    """Reads the messages of a history in order. Later rewrites do not change it, or are undone before it is
    computed."""

    def __init__(self) -> None:
        self.name = ""
        """Name of the records in the store. Empty before the user responds to the model; no thinking is removed before
        that. The user's earlier texts are the same in every run of one prompt."""
        self.digests: list[str] = []
        """Digest of the history up to and including each message."""
        self._digest = hashlib.sha256()
        self._has_model_message = False
        """True after the model's first message."""

    def add_message(self, message: Message) -> None:
        """Add the next message."""
        for text in _stable_texts(message):
            encoded = text.encode("utf-8", "surrogatepass")
            self._digest.update(b"%d:%b" % (len(encoded), encoded))
        self.digests.append(self._digest.hexdigest()[:PLACE_DIGITS])
        if self._has_model_message and not self.name and is_user_message(message):
            self.name = f"thinking {self.digests[-1]}"
        self._has_model_message = self._has_model_message or message.role == "assistant"


def is_user_message(message: Message) -> bool:
    """Return True if the user wrote the message. It ends a tool loop."""
    return message.role == "user" and not message.results


def _stable_texts(message: Message) -> Iterator[str]:
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


class RemovedThinking(NamedTuple):
    """A thinking block of a message from which all thinking was removed."""

    message: int
    digest: str
    """The message's digest, from `HistoryFingerprint.digests`."""
    path: Path
    """Its path in the message. The last step is its index among the original parts."""
    block: Any
    """The block as it was sent."""


def blocks_of(message: Message) -> dict[Path, Any]:
    """Return the thinking blocks of a message, as sent."""
    blocks: dict[Path, Any] = {}
    for part in message.parts:
        if isinstance(part, Thinking):
            value = message.wire
            for step in part.path:
                value = value[step]
            blocks[part.path] = value
    return blocks


def make_record(dropped: Iterable[RemovedThinking]) -> str:
    return to_json({"dropped": [list(each) for each in dropped]})


def parse_records(texts: Iterable[str]) -> dict[int, list[RemovedThinking]]:
    """Return the blocks of records by message. Invalid records are skipped."""
    by_message: dict[int, list[RemovedThinking]] = {}
    for text in texts:
        for each in _parse_record(text):
            by_message.setdefault(each.message, []).append(each)
    return by_message


def _parse_record(text: str) -> list[RemovedThinking]:
    try:
        rows = json.loads(text)["dropped"]
        blocks = [RemovedThinking(int(message), str(place), tuple(path), block) for message, place, path, block in rows]
        return [each for each in blocks if len(each.path) == 2 and isinstance(each.path[-1], int)]
    except (ValueError, TypeError, KeyError, RecursionError):
        return []


def removed_blocks(dropped: Iterable[RemovedThinking], place: str) -> dict[Path, Any]:
    """Return the blocks that were in the message with this digest; none if records disagree."""
    blocks: dict[Path, Any] = {}
    for each in dropped:
        if each.digest == place:
            before = blocks.setdefault(each.path, each.block)
            if before is not each.block and to_json(before) != to_json(each.block):
                return {}
    return blocks
