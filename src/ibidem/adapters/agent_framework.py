"""Adapter for Microsoft Agent Framework: a chat middleware that rewrites requests to the model.

>>> agent = Agent(client, "You are careful.", tools=[read], middleware=[IbidemChatMiddleware()])

Put it last in the list, because it does not see the changes of later middleware. Conversations are recognized by the id
of the session, or else by their first texts. Stored histories do not change.

These requests are sent unchanged: those of a client with its own compaction (`compaction_strategy`, `tokenizer`), which
runs after all middleware and could drop a message that a marker refers to, those whose history the provider stores, and
those with tools that the provider runs.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from ._caching import checked_cache
from ._seat import Seat, ShadowTurn, failing_open, missing
from ._shadow import Shadow

try:
    from agent_framework import ChatContext, ChatMiddleware, Content, Message
except ModuleNotFoundError as error:
    raise missing(error, "agent_framework", "agent-framework-core agent-framework-openai") from error

if TYPE_CHECKING:
    from ..billing.lifetimes import CacheMode
    from ..engine.session import Session
    from ..store import Store

__all__ = ["IbidemChatMiddleware"]

log = logging.getLogger("ibidem")

KEPT = ("conversation_id", "previous_response_id", "conversation")
"""Options of requests that continue a history stored by the provider."""
KNOWN = frozenset(
    (
        *("text", "text_reasoning", "data", "uri", "hosted_file", "usage", "error"),
        *("function_call", "function_result", "function_approval_request", "function_approval_response"),
    )
)
"""Content types with a known wire format. The others belong to tools that the provider runs."""


class IbidemChatMiddleware(ChatMiddleware):
    """Chat middleware that rewrites requests. One object serves any number of agents.

    With `session`, all requests belong to one conversation. `store` is for the originals of evicted text.
    """

    def __init__(
        self,
        profile: str = "lossless",
        *,
        session: Session | None = None,
        store: Store | None = None,
        cache: CacheMode = "off",
    ) -> None:
        checked_cache(
            cache,
            "this middleware",
            'set default_options={"prompt_cache_key": …}',
            auto=False,
        )
        self._seat = Seat(profile, session=session, store=store)
        self._warned = False

    async def process(self, context: ChatContext, call_next: Callable[[], Awaitable[None]]) -> None:
        turn = None
        with failing_open():
            turn = await self._rewrite(context)
        await call_next()
        if turn is not None and not context.stream:
            _tell(turn, context.result)

    async def _rewrite(self, context: ChatContext) -> ShadowTurn | None:
        options = context.options or {}
        if any(options.get(key) for key in KEPT) or self._compacts(context):
            return None
        parts = getattr(context.client, "SUPPORTS_RICH_FUNCTION_OUTPUT", False)
        shadow = _shadow(context.messages, parts)
        if shadow is None:
            return None
        model = options.get("model") or getattr(context.client, "model", None) or ""
        name = context.session.session_id if context.session else ""
        turn = await self._seat.arewrite_shadow(shadow, model=model, conversation=name)
        if turn.results:
            context.messages = [_copied(*each, turn.results) for each in enumerate(context.messages)]
        if context.stream:
            context.stream_result_hooks.append(lambda response: _tell(turn, response))
        return turn

    def _compacts(self, context: ChatContext) -> bool:
        """Return True if the client compacts or annotates messages after this middleware. Warns once."""
        names = ("compaction_strategy", "tokenizer")
        found = any((context.kwargs.get(name) or getattr(context.client, name, None)) is not None for name in names)
        if found and not self._warned:
            self._warned = True
            log.warning("requests are sent unchanged: the client compacts histories itself, after all middleware")
        return found


def _shadow(messages: list[Message], parts: bool) -> Shadow | None:
    """Mirror the messages; None if their wire format is unknown."""
    shadow = Shadow()
    for index, message in enumerate(messages):
        if not all(map(_known, message.contents)):
            return None
        texts = [each.text if each.type == "text" else None for each in message.contents if each.type in _SAID]
        calls = [each for each in message.contents if each.type == "function_call"]
        if message.role == "assistant":
            said = "".join(text or "" for text in texts)
            shadow.assistant(said, [(each.call_id, each.name, each.arguments or "") for each in calls])
        elif message.role == "user":
            shadow.user(texts)
        for place, content in enumerate(message.contents):
            if content.type == "function_result":
                shadow.result(content.call_id, _texts(content, parts), (index, place))
    return shadow


def _known(content: Content) -> bool:
    more = content.additional_properties
    shell = any("shell" in key for key in (*more, *more.get(OWN_TOOLS, ())))
    return content.type in KNOWN and not getattr(content, "hosted", False) and not shell


OWN_TOOLS = "openai"
"""Key for properties of the provider's own tools, such as its shell."""
_SAID = ("text", "data", "uri", "hosted_file")


def _texts(content: Content, parts: bool) -> list[str | None] | str:
    """Return the texts of a result as they are sent: one text, or parts if the format supports other content."""
    items = content.items or []
    if parts and any(each.type != "text" for each in items):
        return [each.text or "" if each.type == "text" else None for each in items]
    if items and not parts:
        return "\n".join(each.text or "" for each in items if each.type == "text")
    if not isinstance(content.result, str | None):
        raise TypeError("a tool result is not text")
    return content.result or ""


def _copied(index: int, message: Message, results: dict[Any, list[str]]) -> Message:
    """Return a message with the new texts of its results; the same object if none of them changed."""
    changed = {place: results[index, place] for place in range(len(message.contents)) if (index, place) in results}
    if not changed:
        return message
    contents = [_with(each, changed[at]) if at in changed else each for at, each in enumerate(message.contents)]
    return _copy(message, contents=contents)


def _with(content: Content, texts: list[str]) -> Content:
    """Return a result with new texts. The text is stored twice, because clients send one or the other field.

    If several texts were sent as one, the first item gets the whole text.
    """
    left = iter(texts)
    items = [(each, next(left, None) if each.type == "text" else None) for each in content.items or []]
    new = [
        each if text is None else _copy(each, text=text)
        for each, text in items
        if text is not None or each.type != "text"
    ]
    return _copy(content, result="\n".join(texts), items=new)


def _copy(value: Any, **changes: Any) -> Any:
    """Copy an object with changed fields. Faster than `copy`, because a long history has hundreds of objects."""
    new = object.__new__(type(value))
    new.__dict__.update(value.__dict__, **changes)
    return new


def _tell(turn: ShadowTurn, response: Any) -> None:
    with failing_open():
        usage = response.usage_details or {}
        turn.answered(context=usage.get("input_token_count"), cached=usage.get("cache_read_input_token_count"))
