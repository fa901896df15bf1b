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

from ._cache_option import check_cache_mode
from ._request_rewriter import MirroredRequest, RequestRewriter, log_errors, missing_framework_error
from ._wire_mirror import WireMirror

try:
    from agent_framework import ChatContext, ChatMiddleware, Content, Message
except ModuleNotFoundError as error:
    raise missing_framework_error(error, "agent_framework", "agent-framework-core agent-framework-openai") from error

if TYPE_CHECKING:
    from ..billing.cache_ttl import CacheMode
    from ..engine.session import Session
    from ..store import Store

__all__ = ["IbidemChatMiddleware"]

log = logging.getLogger("ibidem")

STORED_HISTORY_OPTIONS = ("conversation_id", "previous_response_id", "conversation")
"""Options of requests that continue a history stored by the provider."""
KNOWN_TYPES = frozenset(
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
        check_cache_mode(
            cache,
            "this middleware",
            'set default_options={"prompt_cache_key": …}',
            auto=False,
        )
        self._rewriter = RequestRewriter(profile, session=session, store=store)
        self._has_warned = False

    async def process(self, context: ChatContext, call_next: Callable[[], Awaitable[None]]) -> None:
        pending = None
        with log_errors():
            pending = await self._rewrite_request(context)
        await call_next()
        if pending is not None and not context.stream:
            _report_usage(pending, context.result)

    async def _rewrite_request(self, context: ChatContext) -> MirroredRequest | None:
        options = context.options or {}
        if any(options.get(key) for key in STORED_HISTORY_OPTIONS) or self._client_compacts(context):
            return None
        parts = getattr(context.client, "SUPPORTS_RICH_FUNCTION_OUTPUT", False)
        mirror = _mirror_messages(context.messages, parts)
        if mirror is None:
            return None
        model = options.get("model") or getattr(context.client, "model", None) or ""
        name = context.session.session_id if context.session else ""
        pending = await self._rewriter.arewrite_mirror(mirror, model=model, conversation=name)
        if pending.results:
            context.messages = [_with_results(*each, pending.results) for each in enumerate(context.messages)]
        if context.stream:
            context.stream_result_hooks.append(lambda response: _report_usage(pending, response))
        return pending

    def _client_compacts(self, context: ChatContext) -> bool:
        """Return True if the client compacts or annotates messages after this middleware. Warns once."""
        names = ("compaction_strategy", "tokenizer")
        is_compacting = any(
            (context.kwargs.get(name) or getattr(context.client, name, None)) is not None for name in names
        )
        if is_compacting and not self._has_warned:
            self._has_warned = True
            log.warning("requests are sent unchanged: the client compacts histories itself, after all middleware")
        return is_compacting


def _mirror_messages(messages: list[Message], parts: bool) -> WireMirror | None:
    """Mirror the messages; None if their wire format is unknown."""
    mirror = WireMirror()
    for index, message in enumerate(messages):
        if not all(map(_has_known_format, message.contents)):
            return None
        texts = [each.text if each.type == "text" else None for each in message.contents if each.type in _MESSAGE_TYPES]
        calls = [each for each in message.contents if each.type == "function_call"]
        if message.role == "assistant":
            full_text = "".join(text or "" for text in texts)
            mirror.add_assistant(full_text, [(each.call_id, each.name, each.arguments or "") for each in calls])
        elif message.role == "user":
            mirror.add_user(texts)
        for place, content in enumerate(message.contents):
            if content.type == "function_result":
                mirror.add_result(content.call_id, _result_texts(content, parts), (index, place))
    return mirror


def _has_known_format(content: Content) -> bool:
    more = content.additional_properties
    shell = any("shell" in key for key in (*more, *more.get(PROVIDER_TOOLS, ())))
    return content.type in KNOWN_TYPES and not getattr(content, "hosted", False) and not shell


PROVIDER_TOOLS = "openai"
"""Key for properties of the provider's own tools, such as its shell."""
_MESSAGE_TYPES = ("text", "data", "uri", "hosted_file")


def _result_texts(content: Content, parts: bool) -> list[str | None] | str:
    """Return the texts of a result as they are sent: one text, or parts if the format supports other content."""
    items = content.items or []
    if parts and any(each.type != "text" for each in items):
        return [each.text or "" if each.type == "text" else None for each in items]
    if items and not parts:
        return "\n".join(each.text or "" for each in items if each.type == "text")
    if not isinstance(content.result, str | None):
        raise TypeError("a tool result is not text")
    return content.result or ""


def _with_results(index: int, message: Message, results: dict[Any, list[str]]) -> Message:
    """Return a message with the new texts of its results; the same object if none of them changed."""
    new_texts = {place: results[index, place] for place in range(len(message.contents)) if (index, place) in results}
    if not new_texts:
        return message
    contents = [
        _with_texts(each, new_texts[at]) if at in new_texts else each for at, each in enumerate(message.contents)
    ]
    return _copy_object(message, contents=contents)


def _with_texts(content: Content, texts: list[str]) -> Content:
    """Return a result with new texts. The text is stored twice, because clients send one or the other field.

    If several texts were sent as one, the first item gets the whole text.
    """
    remaining = iter(texts)
    items = [(each, next(remaining, None) if each.type == "text" else None) for each in content.items or []]
    new = [
        each if text is None else _copy_object(each, text=text)
        for each, text in items
        if text is not None or each.type != "text"
    ]
    return _copy_object(content, result="\n".join(texts), items=new)


def _copy_object(value: Any, **changes: Any) -> Any:
    """Copy an object with changed fields. Faster than `copy`, because a long history has hundreds of objects."""
    new = object.__new__(type(value))
    new.__dict__.update(value.__dict__, **changes)
    return new


def _report_usage(pending: MirroredRequest, response: Any) -> None:
    with log_errors():
        usage = response.usage_details or {}
        pending.report_usage(context=usage.get("input_token_count"), cached=usage.get("cache_read_input_token_count"))
