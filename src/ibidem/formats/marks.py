"""Cache directives: where a request asks its provider to cache, and with which TTL."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from ..model import Path, to_json


class CacheMark(NamedTuple):
    """A cache breakpoint of a request."""

    path: Path
    """Path of the object that has it, in the body."""
    message: int
    """Index of its message; -1 before all messages."""
    long: bool
    """True for a TTL of one hour."""
    said: Any = None
    """Its TTL as sent; None for the provider's default, which is the shorter one."""
    known: bool = True
    """True if all its fields are known here."""
    ours: bool = False
    """True if Ibidem, possibly another instance, added it and chose its TTL. It is not changed."""


class Addition(NamedTuple):
    """A field to add to a request, or a value to replace. `...` in it is a placeholder for the replaced value."""

    path: Path
    value: Any


class CacheOffer(NamedTuple):
    """The cache directives that a provider accepts for a model."""

    marks: bool = False
    """True if it accepts breakpoints."""
    minimum: int = 0
    """Tokens of the shortest prefix that it caches."""
    hour: bool = False
    """True if a breakpoint can have a TTL."""
    key: str = ""
    """Name of the conversation, for a provider that routes by a cache key; else empty."""


class Sent(Protocol):
    """Messages as sent, parsed only on access."""

    def __len__(self) -> int: ...
    def __getitem__(self, index: int, /) -> Any: ...
    def size(self, index: int) -> int:
        """Estimate the bytes of a message without parsing it."""


class SentValues(tuple[Any, ...]):
    """Messages that are parsed already."""

    def size(self, index: int) -> int:
        return len(to_json(self[index]))


class Marks:
    """The cache directives of one format. This base class is for formats without any."""

    def in_head(self, head: Mapping[str, Any]) -> list[CacheMark]:
        """Return the breakpoints before all messages."""
        return []

    def in_message(self, index: int, message: Any) -> list[CacheMark]:
        """Return the breakpoints in one message, as sent."""
        return []

    def at_end(self, head: Mapping[str, Any], length: int) -> list[CacheMark]:
        """Return a breakpoint outside the messages that counts after the last one."""
        return []

    def found(self, head: Mapping[str, Any], history: Iterable[Any]) -> list[CacheMark]:
        """Return all breakpoints of a request, in the order of the prefix."""
        messages = list(history)
        inside = [mark for index, each in enumerate(messages) for mark in self.in_message(index, each)]
        return [*self.in_head(head), *inside, *self.at_end(head, len(messages))]

    def asks(self, head: Mapping[str, Any], marks: Sequence[CacheMark]) -> bool:
        """Return True if the client sends cache directives. Ibidem then adds none."""
        return bool(marks)

    def added(self, head: Mapping[str, Any], history: Sent, long: int, offer: CacheOffer) -> list[Addition]:
        """Return the additions for a request without directives. `long`: as `TtlDecision.long`."""
        return []

    def changed(self, marks: Sequence[CacheMark], long: int) -> list[Addition]:
        """Return changes of the TTLs of existing breakpoints."""
        return []


KEY, RETENTION = "prompt_cache_key", "prompt_cache_retention"


class CacheKeys(Marks):
    """Cache keys, for a provider that caches without breakpoints and only groups requests by a key."""

    def asks(self, head: Mapping[str, Any], marks: Sequence[CacheMark]) -> bool:
        return head.get(KEY) is not None or head.get(RETENTION) is not None

    def added(self, head: Mapping[str, Any], history: Sent, long: int, offer: CacheOffer) -> list[Addition]:
        """Return the cache key, and never a retention time. That field is deprecated, older models cache for a day
        without it, and organizations without data retention must not request more."""
        return [Addition((KEY,), offer.key)] if offer.key else []
