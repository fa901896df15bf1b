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

from ..billing.cache_ttl import NOTHING_LONG, CacheMode, CacheRequest, IdleTimes, TtlDecision, choose_ttl
from ..billing.prices import Prices
from ..formats.cache_control import CacheBreakpoint, CacheOffer, FieldAddition, LazyMessages, ParsedMessages
from ..markers import breakpoint_records
from ..markers.thinking_records import is_user_message
from ..model import Conversation, Dialect, Message, Text, ToolCall, ToolResult
from ..store.references import conversation_key, opening_text, reference
from ..tokens import BYTES_PER_TOKEN, estimate
from ..wire import JsonChange, open_document

if TYPE_CHECKING:
    from ..store import Store

log = logging.getLogger("ibidem")

KEY_PREFIX = "ibidem-"
"""Prefix of the cache key of a conversation, for providers that use one."""


OTHER_INSTANCE = -2
"""Value of `TtlDecision.client`: another Ibidem earlier in the chain chooses the TTL."""


class CacheSettings(NamedTuple):
    """The user's prompt caching settings."""

    mode: CacheMode = "off"
    pauses: IdleTimes = IdleTimes()
    """The user's idle times before this conversation."""

    def __bool__(self) -> bool:
        return self.mode != "off"


class RequestWithBreakpoints(NamedTuple):
    """A request with its cache breakpoints, and the changes that added them."""

    request: Any
    additions: tuple[FieldAddition, ...] = ()


@dataclass(frozen=True, slots=True)
class OutgoingRequest:
    """A request after all edits, to which cache breakpoints may be added."""

    dialect: Dialect
    head: Mapping[str, Any]
    history: LazyMessages
    breakpoints: Sequence[CacheBreakpoint]
    """The client's cache breakpoints, in the order of the prefix."""
    model: str | None
    key: str
    """Name of the conversation in a store."""

    def __getitem__(self, name: str) -> Any:
        """Field of the request body. Paths of changes start with its name."""
        return self.history if name == self.dialect.history_key else self.head[name]


def decide_ttl(
    settings: CacheSettings,
    conv: Conversation,
    model: str | None,
    cache_request: CacheRequest,
    previous: TtlDecision | None,
    breakpoints: Sequence[CacheBreakpoint],
) -> TtlDecision:
    """Choose the TTL. `conv` has at least the new messages of the request, from which `cache_request` is completed.

    The client's TTL stays if it uses both TTLs, or no breakpoints in mode "lifetime". It also stays, for the rest of
    the conversation, if another Ibidem has added breakpoints, because that one chooses the TTL.
    """
    price = Prices().of(model or "", conv.dialect.name)
    base = previous or TtlDecision()
    long_lengths = [mark.message + 1 for mark in breakpoints if mark.long]
    if not conv.dialect.cache_control.has_directives(conv.head, breakpoints) and settings.mode == "lifetime":
        return base._replace(long=NOTHING_LONG)
    if base.client == OTHER_INSTANCE or any(mark.is_ours for mark in breakpoints):
        return base._replace(long=max(long_lengths, default=NOTHING_LONG), client=OTHER_INSTANCE)
    if long_lengths and len(long_lengths) < len(breakpoints):
        return base._replace(long=max(long_lengths))
    is_user_turn = bool(conv.messages) and is_user_message(conv.messages[-1])
    parameter_tokens = (
        0.0 if breakpoints and breakpoints[0].message >= 0 else cache_request.head
    )  # else not cached separately
    cache_request = cache_request._replace(
        long=bool(long_lengths) if breakpoints else None, spoken=is_user_turn, head=parameter_tokens
    )
    decision = choose_ttl(price, previous, cache_request, settings.pauses)
    return (
        decision
        if price.caching.hour or long_lengths or not price.caching.marks
        else decision._replace(long=NOTHING_LONG)
    )


def plan_breakpoints(request: OutgoingRequest, mode: CacheMode, decision: TtlDecision) -> list[FieldAddition]:
    """Return the breakpoints to add or change. Breakpoints of the client stay in place."""
    cache_control = request.dialect.cache_control
    if cache_control.has_directives(request.head, request.breakpoints):
        return list(cache_control.ttl_changes(request.breakpoints, decision.long))
    if mode != "auto" or not len(request.history) or request.dialect.server_history(request.head):
        return []
    caching = Prices().of(request.model or "", request.dialect.name).caching
    key = KEY_PREFIX + request.key if caching.key else ""
    offer = CacheOffer(caching.marks, caching.minimum, caching.hour, key)
    return list(cache_control.additions_for(request.head, request.history, decision.long, offer))


def breakpoint_changes(additions: Iterable[FieldAddition]) -> list[JsonChange]:
    """Return the JSON changes for added fields."""
    return [JsonChange(path, "set", value) for path, value in additions]


def record_breakpoints(request: OutgoingRequest, additions: Sequence[FieldAddition], store: Store) -> None:
    """Record the added breakpoints in the store, so that `expand` can remove them."""
    text = breakpoint_records.make_record(len(request.history), request, breakpoint_changes(additions))
    try:
        store.put(breakpoint_records.session_of(request.key), {reference(text): text})
    except Exception as error:
        log.warning("expand cannot remove the cache breakpoints of this request: %s", type(error).__name__)


def apply_breakpoints(
    request: Any,
    dialect: Dialect,
    mode: CacheMode,
    decision: TtlDecision,
    model: str | None,
    key: str,
    store: Store | None = None,
) -> RequestWithBreakpoints:
    """Parse a request and add cache breakpoints. `key` is the name of its conversation."""
    document = open_document(request)
    body = document.value
    history = body.get(dialect.history_key) if isinstance(body, dict) else None
    if not isinstance(history, list):
        return RequestWithBreakpoints(request)
    head = {name: value for name, value in body.items() if name != dialect.history_key}
    outgoing = OutgoingRequest(
        dialect, head, ParsedMessages(history), dialect.cache_control.all_breakpoints(head, history), model, key
    )
    additions = plan_breakpoints(outgoing, mode, decision)
    if not additions:
        return RequestWithBreakpoints(request)
    new_request = document.write(breakpoint_changes(additions))
    if store is not None:
        record_breakpoints(outgoing, additions, store)
    return RequestWithBreakpoints(new_request, tuple(additions))


def cache_key_for(messages: Iterable[Message]) -> str:
    """Return the name of a conversation with these first messages."""
    return conversation_key(opening_text(messages))


def tokens_for_bytes(size: int) -> float:
    """Estimate the tokens of `size` bytes."""
    return size / BYTES_PER_TOKEN


def message_tokens(messages: Iterable[Message]) -> float:
    """Estimate the tokens of the messages' texts."""
    return sum(map(_estimate_message, messages))


def _estimate_message(message: Message) -> float:
    total = 0.0
    for part in message.parts:
        if isinstance(part, Text):
            total += estimate(part.text)
        elif isinstance(part, ToolCall):
            total += estimate(part.arguments)
        elif isinstance(part, ToolResult):
            total += sum(estimate(each.text) for each in part.segments if isinstance(each, Text))
    return total
