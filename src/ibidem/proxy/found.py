"""What is found of a request: the conversation that it goes on, or what it begins with."""

from __future__ import annotations

from typing import NamedTuple

from ..model import Message
from ..wire import Scanned
from .conversation import Key, LiveConversation


class Found(NamedTuple):
    """What a request goes on."""

    conversation: LiveConversation
    scanned: Scanned
    turn: int
    """Of the conversation, when it was found."""


class OpenedRequest(NamedTuple):
    """A request that is looked at for the first time."""

    key: Key
    body: bytes
    scanned: Scanned
    messages: list[Message]
    """Up to the user's first."""
    name: str
    """That its conversation has in the store."""
    alike: list[LiveConversation]
    """Those of that name, the newest first."""
