"""Cache directives: where a request asks its provider to cache, and with which TTL."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from ..model import Path, to_json


class CacheBreakpoint(NamedTuple):
    """A cache breakpoint of a request."""

    path: Path
    """Path of the object that has it, in the body."""
    message: int
    """Index of its message; -1 before all messages."""
    long: bool
    """True for a TTL of one hour."""
    ttl: Any = None
    """Its TTL as sent; None for the provider's default, which is the shorter one."""
    is_known: bool = True
    """True if all its fields are known here."""
    is_ours: bool = False
    """True if Ibidem, possibly another instance, added it and chose its TTL. It is not changed."""


class FieldAddition(NamedTuple):
    """A field to add to a request, or a value to replace. `...` in it is a placeholder for the replaced value."""

    path: Path
    value: Any


class CacheOffer(NamedTuple):
    """The cache directives that a provider accepts for a model."""

    accepts_breakpoints: bool = False
    """True if it accepts breakpoints."""
    min_tokens: int = 0
    """Tokens of the shortest prefix that it caches."""
    accepts_ttl: bool = False
    """True if a breakpoint can have a TTL."""
    key: str = ""
    """Name of the conversation, for a provider that routes by a cache key; else empty."""


class LazyMessages(Protocol):
    """Messages as sent, parsed only on access."""

    def __len__(self) -> int: ...
    def __getitem__(self, index: int, /) -> Any: ...
    def size(self, index: int) -> int:
        """Estimate the bytes of a message without parsing it."""


class ParsedMessages(tuple[Any, ...]):
    """Messages that are parsed already."""

    def size(self, index: int) -> int:
        return len(to_json(self[index]))


class CacheControl:
    """The cache directives of one format. This base class is for formats without any."""

    def breakpoints_in_head(self, head: Mapping[str, Any]) -> list[CacheBreakpoint]:
        """Return the breakpoints before all messages."""
        return []

    def breakpoints_in_message(self, index: int, message: Any) -> list[CacheBreakpoint]:
        """Return the breakpoints in one message, as sent."""
        return []

    def breakpoints_at_end(self, head: Mapping[str, Any], length: int) -> list[CacheBreakpoint]:
        """Return a breakpoint outside the messages that counts after the last one."""
        return []

    def all_breakpoints(self, head: Mapping[str, Any], history: Iterable[Any]) -> list[CacheBreakpoint]:
        """Return all breakpoints of a request, in the order of the prefix."""
        messages = list(history)
        inside = [mark for index, each in enumerate(messages) for mark in self.breakpoints_in_message(index, each)]
        return [*self.breakpoints_in_head(head), *inside, *self.breakpoints_at_end(head, len(messages))]

    def has_directives(self, head: Mapping[str, Any], marks: Sequence[CacheBreakpoint]) -> bool:
        """Return True if the client sends cache directives. Ibidem then adds none."""
        return bool(marks)

    def additions_for(
        self, head: Mapping[str, Any], history: LazyMessages, long: int, offer: CacheOffer
    ) -> list[FieldAddition]:
        """Return the fields to add to a request without cache directives: breakpoints, or a cache key. Here: none.

        `long` is the number of first messages that get a TTL of an hour. With 0, only the request parameters get it;
        with -1, nothing does.
        """
        return []

    def ttl_changes(self, marks: Sequence[CacheBreakpoint], long: int) -> list[FieldAddition]:
        """Return changes of the TTLs of existing breakpoints."""
        return []


KEY, RETENTION = "prompt_cache_key", "prompt_cache_retention"


class CacheKeys(CacheControl):
    """Cache keys, for a provider that caches without breakpoints and only groups requests by a key."""

    def has_directives(self, head: Mapping[str, Any], marks: Sequence[CacheBreakpoint]) -> bool:
        return head.get(KEY) is not None or head.get(RETENTION) is not None

    def additions_for(
        self, head: Mapping[str, Any], history: LazyMessages, long: int, offer: CacheOffer
    ) -> list[FieldAddition]:
        """Return the cache key, and never a retention time. That field is deprecated, older models cache for a day
        without it, and organizations without data retention must not request more."""
        return [FieldAddition((KEY,), offer.key)] if offer.key else []
