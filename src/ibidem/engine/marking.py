"""What a provider is asked to keep, put on a request when all else is done: `cache="lifetime"` and `cache="auto"`.

Marks are sacred (law 8) and this is the one place that touches them, for those who asked for it by name. No text
changes: what a mark adds is counted in bytes and costs no token. Nothing that goes wrong here keeps a request from
being sent: it goes without marks of ours, and where the store fails with marks that `expand` cannot take off again.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from ..billing.lifetimes import NOTHING_LONG, Asked, CacheMode, Kept, Pauses, choose
from ..billing.prices import Prices
from ..formats.marks import Addition, CacheMark, CacheOffer, Sent, SentValues
from ..markers import placed
from ..markers.thinking import speaks
from ..model import Conversation, Dialect, Message, Text, ToolCall, ToolResult
from ..store.naming import conversation_key, reference, words_of
from ..tokens import BYTES_PER_TOKEN, estimate
from ..wire import Change, open_document

if TYPE_CHECKING:
    from ..store import Store

log = logging.getLogger("ibidem")

KEY_PREFIX = "ibidem-"
"""Of the name of a conversation that a provider is given to find its cache by."""


ELSEWHERE = -2
"""In `Kept.client`: one like us stands before us, and decides for how long what is kept."""


class CacheSettings(NamedTuple):
    """What the user asked for."""

    mode: CacheMode = "off"
    pauses: Pauses = Pauses()
    """Of the user, before this conversation."""

    def __bool__(self) -> bool:
        return self.mode != "off"


class MarkedRequest(NamedTuple):
    """A request with what it asks of a cache, and what was put there."""

    request: Any
    additions: tuple[Addition, ...] = ()


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A request that is about to be sent: what stands in it when all edits are made."""

    dialect: Dialect
    head: Mapping[str, Any]
    history: Sent
    marks: Sequence[CacheMark]
    """Of the client, in the order of the prefix."""
    model: str | None
    key: str
    """The name of its conversation in a store."""

    def __getitem__(self, name: str) -> Any:
        """As the body has it, so that paths lead into it."""
        return self.history if name == self.dialect.history_key else self.head[name]


def decided(
    settings: CacheSettings,
    conv: Conversation,
    model: str | None,
    asked: Asked,
    before: Kept | None,
    marks: Sequence[CacheMark],
) -> Kept:
    """For how long what is kept. `conv` has at least what is new in the request; `asked` is filled in from it.

    Nothing is decided for a client that has both lifetimes in mind, or none where it is left to itself; nor where one
    like us has decided, and then not later either: it may leave things as they are for a while.
    """
    price = Prices().of(model or "", conv.dialect.name)
    known = before or Kept()
    long = [mark.message + 1 for mark in marks if mark.long]
    if not conv.dialect.marks.asks(conv.head, marks) and settings.mode == "lifetime":
        return known._replace(long=NOTHING_LONG)
    if known.client == ELSEWHERE or any(mark.ours for mark in marks):
        return known._replace(long=max(long, default=NOTHING_LONG), client=ELSEWHERE)
    if long and len(long) < len(marks):
        return known._replace(long=max(long))
    spoken = bool(conv.messages) and speaks(conv.messages[-1])
    head = 0.0 if marks and marks[0].message >= 0 else asked.head  # what carries no mark of its own is not kept apart
    asked = asked._replace(long=bool(long) if marks else None, spoken=spoken, head=head)
    kept = choose(price, before, asked, settings.pauses)
    return kept if price.caching.hour or long or not price.caching.marks else kept._replace(long=NOTHING_LONG)


def planned(sent: Outgoing, mode: CacheMode, kept: Kept) -> list[Addition]:
    """What a request gets. One that asks for something itself keeps its marks where they are."""
    marks = sent.dialect.marks
    if marks.asks(sent.head, sent.marks):
        return list(marks.changed(sent.marks, kept.long))
    if mode != "auto" or not len(sent.history) or sent.dialect.server_history(sent.head):
        return []
    caching = Prices().of(sent.model or "", sent.dialect.name).caching
    key = KEY_PREFIX + sent.key if caching.key else ""
    offer = CacheOffer(caching.marks, caching.minimum, caching.hour, key)
    return list(marks.added(sent.head, sent.history, kept.long, offer))


def changes(additions: Iterable[Addition]) -> list[Change]:
    return [Change(path, "set", value) for path, value in additions]


def remember(sent: Outgoing, additions: Sequence[Addition], store: Store) -> None:
    """So that `expand` can take them off again."""
    text = placed.record(len(sent.history), sent, changes(additions))
    try:
        store.put(placed.session_of(sent.key), {reference(text): text})
    except Exception as error:
        log.warning("marks of a request cannot be taken off later: %s", type(error).__name__)


def marked(
    request: Any,
    dialect: Dialect,
    mode: CacheMode,
    kept: Kept,
    model: str | None,
    key: str,
    store: Store | None = None,
) -> MarkedRequest:
    """A request that is read as a whole, with what it asks of a cache. `key` is the name of its conversation."""
    document = open_document(request)
    body = document.value
    history = body.get(dialect.history_key) if isinstance(body, dict) else None
    if not isinstance(history, list):
        return MarkedRequest(request)
    head = {name: value for name, value in body.items() if name != dialect.history_key}
    sent = Outgoing(dialect, head, SentValues(history), dialect.marks.found(head, history), model, key)
    additions = planned(sent, mode, kept)
    if not additions:
        return MarkedRequest(request)
    written = document.write(changes(additions))
    if store is not None:
        remember(sent, additions, store)
    return MarkedRequest(written, tuple(additions))


def key_of(messages: Iterable[Message]) -> str:
    """The name of a conversation with these first messages."""
    return conversation_key(words_of(messages))


def tokens_in(size: int) -> float:
    """Our count of so many bytes, about."""
    return size / BYTES_PER_TOKEN


def tokens_of(messages: Iterable[Message]) -> float:
    """Our count of what they say, about."""
    return sum(map(_estimated, messages))


def _estimated(message: Message) -> float:
    total = 0.0
    for part in message.parts:
        if isinstance(part, Text):
            total += estimate(part.text)
        elif isinstance(part, ToolCall):
            total += estimate(part.arguments)
        elif isinstance(part, ToolResult):
            total += sum(estimate(each.text) for each in part.segments if isinstance(each, Text))
    return total
