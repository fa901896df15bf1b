"""Add cache breakpoints or change their TTL, after all edits: `cache="lifetime"` and `cache="auto"`.

Cache breakpoints are protected (invariant 8). Only this module changes them, and only if the user enabled it. No text
changes, and a breakpoint costs no tokens. An error here never prevents sending: the request is sent without our
breakpoints. If the store fails, they are sent, but `expand` cannot remove them.
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
"""Prefix of the cache key of a conversation, for providers that use one."""


ELSEWHERE = -2
"""Value of `TtlDecision.client`: another Ibidem earlier in the chain chooses the TTL."""


class CacheSettings(NamedTuple):
    """The user's prompt caching settings."""

    mode: CacheMode = "off"
    pauses: Pauses = Pauses()
    """The user's idle times before this conversation."""

    def __bool__(self) -> bool:
        return self.mode != "off"


class MarkedRequest(NamedTuple):
    """A request with its cache breakpoints, and the changes that added them."""

    request: Any
    additions: tuple[Addition, ...] = ()


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A request after all edits, to which cache breakpoints may be added."""

    dialect: Dialect
    head: Mapping[str, Any]
    history: Sent
    marks: Sequence[CacheMark]
    """The client's cache breakpoints, in the order of the prefix."""
    model: str | None
    key: str
    """Name of the conversation in a store."""

    def __getitem__(self, name: str) -> Any:
        """Field of the request body. Paths of changes start with its name."""
        return self.history if name == self.dialect.history_key else self.head[name]


def decided(
    settings: CacheSettings,
    conv: Conversation,
    model: str | None,
    asked: Asked,
    before: Kept | None,
    marks: Sequence[CacheMark],
) -> Kept:
    """Choose the TTL. `conv` has at least the new messages of the request, from which `cache_request` is completed.

    The client's TTL stays if it uses both TTLs, or no breakpoints in mode "lifetime". It also stays, for the rest of
    the conversation, if another Ibidem has added breakpoints, because that one chooses the TTL.
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
    head = 0.0 if marks and marks[0].message >= 0 else asked.head  # else not cached separately
    asked = asked._replace(long=bool(long) if marks else None, spoken=spoken, head=head)
    kept = choose(price, before, asked, settings.pauses)
    return kept if price.caching.hour or long or not price.caching.marks else kept._replace(long=NOTHING_LONG)


def planned(sent: Outgoing, mode: CacheMode, kept: Kept) -> list[Addition]:
    """Return the breakpoints to add or change. Breakpoints of the client stay in place."""
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
    """Return the JSON changes for added fields."""
    return [Change(path, "set", value) for path, value in additions]


def remember(sent: Outgoing, additions: Sequence[Addition], store: Store) -> None:
    """Record the added breakpoints in the store, so that `expand` can remove them."""
    text = placed.record(len(sent.history), sent, changes(additions))
    try:
        store.put(placed.session_of(sent.key), {reference(text): text})
    except Exception as error:
        log.warning("expand cannot remove the cache breakpoints of this request: %s", type(error).__name__)


def marked(
    request: Any,
    dialect: Dialect,
    mode: CacheMode,
    kept: Kept,
    model: str | None,
    key: str,
    store: Store | None = None,
) -> MarkedRequest:
    """Parse a request and add cache breakpoints. `key` is the name of its conversation."""
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
    """Return the name of a conversation with these first messages."""
    return conversation_key(words_of(messages))


def tokens_in(size: int) -> float:
    """Estimate the tokens of `size` bytes."""
    return size / BYTES_PER_TOKEN


def tokens_of(messages: Iterable[Message]) -> float:
    """Estimate the tokens of the messages' texts."""
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
