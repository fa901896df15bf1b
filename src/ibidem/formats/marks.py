"""Cache marks: where a request asks its provider to keep what it was sent, and for how long."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from ..model import Path, to_json


class CacheMark(NamedTuple):
    """One that stands in a request."""

    path: Path
    """Of the object that carries it, in the body."""
    message: int
    """Of the message that it is in; -1 for what stands before all messages."""
    long: bool
    said: Any = None
    """What it says about its lifetime; None where it says nothing, which is the shorter one."""
    known: bool = True
    """All that it says is what we know."""
    ours: bool = False
    """It was put there by one like us, who has decided for how long: it is left as it is."""


class Addition(NamedTuple):
    """A field that a request gets, or a value that takes the place of another; `...` in it stands for that one."""

    path: Path
    value: Any


class CacheOffer(NamedTuple):
    """What can be asked of a provider for a model."""

    marks: bool = False
    """Marks are heeded."""
    minimum: int = 0
    """Tokens of the shortest prefix that is kept."""
    hour: bool = False
    """A mark may say for how long."""
    key: str = ""
    """The name of the conversation, for a provider that finds its cache by one; else empty."""


class Sent(Protocol):
    """Messages as they are sent, which are looked at only where that is needed."""

    def __len__(self) -> int: ...
    def __getitem__(self, index: int, /) -> Any: ...
    def size(self, index: int) -> int:
        """Bytes of one, about, without looking at it."""


class SentValues(tuple[Any, ...]):
    """Those that are values."""

    def size(self, index: int) -> int:
        return len(to_json(self[index]))


class Marks:
    """How one format is told what to keep. This one is never told."""

    def in_head(self, head: Mapping[str, Any]) -> list[CacheMark]:
        """Those before all messages."""
        return []

    def in_message(self, index: int, message: Any) -> list[CacheMark]:
        """Those in one message, as it stands on the wire."""
        return []

    def at_end(self, head: Mapping[str, Any], length: int) -> list[CacheMark]:
        """One beside the messages that counts behind the last of them."""
        return []

    def found(self, head: Mapping[str, Any], history: Iterable[Any]) -> list[CacheMark]:
        """All that stand in a request, in the order of the prefix."""
        messages = list(history)
        inside = [mark for index, each in enumerate(messages) for mark in self.in_message(index, each)]
        return [*self.in_head(head), *inside, *self.at_end(head, len(messages))]

    def asks(self, head: Mapping[str, Any], marks: Sequence[CacheMark]) -> bool:
        """Whether the client says anything itself about what is to be kept: then nothing is added."""
        return bool(marks)

    def added(self, head: Mapping[str, Any], history: Sent, long: int, offer: CacheOffer) -> list[Addition]:
        """What a request without any of its own gets. `long`: as `Kept.long`."""
        return []

    def changed(self, marks: Sequence[CacheMark], long: int) -> list[Addition]:
        """Other lifetimes for the marks that stand in a request."""
        return []


KEY, RETENTION = "prompt_cache_key", "prompt_cache_retention"


class CacheKeys(Marks):
    """The provider keeps what it is sent by itself, and wants to know which requests belong together."""

    def asks(self, head: Mapping[str, Any], marks: Sequence[CacheMark]) -> bool:
        return head.get(KEY) is not None or head.get(RETENTION) is not None

    def added(self, head: Mapping[str, Any], history: Sent, long: int, offer: CacheOffer) -> list[Addition]:
        """Never for how long: the field for that is deprecated, a day is what older models keep by themselves, and for
        organisations that agreed on no retention nobody may ask for more."""
        return [Addition((KEY,), offer.key)] if offer.key else []
