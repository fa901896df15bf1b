"""Adapter for LangChain and LangGraph agents, also deepagents: a middleware.

>>> from ibidem.adapters.langchain import IbidemMiddleware
>>> agent = create_agent(model, tools, middleware=[IbidemMiddleware()])

Put it last in the list, so that it sees the changes of all others. The agent's state and checkpoints do not change.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

from .. import formats
from ._cache_option import check_cache_mode
from ._request_rewriter import MirroredRequest, RequestRewriter, call_or_default, log_errors, missing_framework_error
from ._wire_mirror import WireMirror

try:
    from langchain.agents.middleware import AgentMiddleware
    from langchain_core.language_models import BaseChatModel
    from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
    from langchain_core.runnables import RunnableBinding
    from langgraph.config import get_config
except ModuleNotFoundError as error:
    raise missing_framework_error(error, "langchain", "'langchain>=1.0'") from error

if TYPE_CHECKING:
    from ..billing.cache_ttl import CacheMode
    from ..engine.session import Session
    from ..store import Store

IMAGE_TYPES = frozenset({"image_url", "input_image"})
CALL_TYPES = frozenset({"tool_use", "function_call"})


class ProviderQuirks(NamedTuple):
    """Properties of a provider's package that affect how a history is sent."""

    marks_failures: bool = False
    """True if failed results are marked in the request. These are not rewritten."""
    sends_objects: bool = False
    """True if a result with JSON or blocks is sent as an object, directly after its call. Invalid calls are dropped."""
    clearing_format: str = "openai-responses"
    """Wire format of the settings that make the provider clear its context."""
    cache_middleware: tuple[str, str] | None = None
    """Module and name of the package's middleware for prompt caching; None if the provider does not need it."""


PACKAGES = {
    "langchain_anthropic": ProviderQuirks(
        marks_failures=True,
        clearing_format="anthropic",
        cache_middleware=("langchain_anthropic.middleware", "AnthropicPromptCachingMiddleware"),
    ),
    "langchain_aws": ProviderQuirks(marks_failures=True, clearing_format="anthropic"),
    "langchain_google_genai": ProviderQuirks(sends_objects=True),
    "langchain_google_vertexai": ProviderQuirks(sends_objects=True),
}


class IbidemMiddleware(AgentMiddleware):
    """Middleware for any number of agents and conversations.

    Conversations are recognized by the `thread_id` of the run and by their first messages. With `session`, all requests
    belong to one conversation. `cache="auto"` enables LangChain's own prompt caching with a TTL of five minutes for
    requests without cache directives.
    """

    def __init__(
        self,
        profile: str = "lossless",
        *,
        session: Session | None = None,
        store: Store | None = None,
        cache: CacheMode = "off",
    ) -> None:
        super().__init__()
        self._rewriter = RequestRewriter(profile, session=session, store=store)
        self._uses_cache = (
            check_cache_mode(cache, "this middleware", 'set AnthropicPromptCachingMiddleware(ttl="1h")') == "auto"
        )

    def wrap_model_call(self, request: Any, handler: Callable[[Any], Any]) -> Any:
        request = call_or_default(_with_cache_directives, request, default=request) if self._uses_cache else request
        mirror = call_or_default(_mirror_messages, request, default=None)
        if mirror is None:
            return handler(request)
        pending = self._rewriter.rewrite_mirror(mirror, model=_model_name(request), conversation=_thread_id())
        response = handler(call_or_default(_with_results, request, pending, default=request))
        with log_errors():
            _report_usage(pending, response)
        return response

    async def awrap_model_call(self, request: Any, handler: Callable[[Any], Awaitable[Any]]) -> Any:
        request = call_or_default(_with_cache_directives, request, default=request) if self._uses_cache else request
        mirror = call_or_default(_mirror_messages, request, default=None)
        if mirror is None:
            return await handler(request)
        pending = await self._rewriter.arewrite_mirror(mirror, model=_model_name(request), conversation=_thread_id())
        response = await handler(call_or_default(_with_results, request, pending, default=request))
        with log_errors():
            _report_usage(pending, response)
        return response


def _thread_id() -> str:
    try:
        return str(get_config().get("configurable", {}).get("thread_id", ""))
    except RuntimeError:  # outside of a graph
        return ""


def _model_name(request: Any) -> str:
    name = getattr(request.model, "model_name", None) or getattr(request.model, "model", "")
    return name.removeprefix("models/") if isinstance(name, str) else ""


def _with_cache_directives(request: Any) -> Any:
    """Add cache directives with LangChain's own middleware to a request without any.

    Not for a call without tools and earlier responses, because no later request may read the cache entry.
    """
    caching = _provider_quirks(request.model).cache_middleware
    is_agent = request.tools and request.tool_choice in (None, "auto")
    has_response = any(isinstance(message, AIMessage) for message in request.messages)
    if caching is None or _asks(request) or not (is_agent or has_response):
        return request
    module, name = caching
    cache_middleware = getattr(import_module(module), name)(unsupported_model_behavior="ignore")
    return cache_middleware.wrap_model_call(request, lambda marked: marked)


def _asks(request: Any) -> bool:
    """Return True if the request already has a cache directive."""
    contents = [message.content for message in (request.system_message, *request.messages) if message is not None]
    blocks = [
        block for content in contents if isinstance(content, list) for block in content if isinstance(block, dict)
    ]
    tools = [tool if isinstance(tool, dict) else getattr(tool, "extras", None) or {} for tool in request.tools]
    settings = [request.model_settings, getattr(request.model, "model_kwargs", None) or {}]
    return any("cache_control" in each for each in (*blocks, *tools, *settings))


def _report_usage(pending: MirroredRequest, response: Any) -> None:
    """Report the usage in a response."""
    response = getattr(response, "model_response", response)
    for message in getattr(response, "result", [response]):
        usage = getattr(message, "usage_metadata", None)
        if usage:
            cached_tokens = usage.get("input_token_details", {}).get("cache_read")
            pending.report_usage(context=usage.get("input_tokens"), cached=cached_tokens)


# ── mirror ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def _mirror_messages(request: Any) -> WireMirror | None:
    """Mirror the messages; None if the provider drops or reorders some, because a marker could refer to these."""
    model, bound_settings = _find_chat_model(request.model)
    quirks = _provider_quirks(model)
    if _loses_history(model, {**bound_settings, **request.model_settings}, quirks.clearing_format):
        return None
    if quirks.sends_objects and not _has_adjacent_results(request.messages):
        return None
    mirror = WireMirror()
    for at, message in enumerate(request.messages):
        if isinstance(message, ToolMessage):
            is_fixed = quirks.marks_failures and message.status == "error"
            mirror.add_result(
                message.tool_call_id, [None] if is_fixed else _result_texts(message.content, quirks.sends_objects), at
            )
        elif isinstance(message, AIMessage):
            mirror.add_assistant(str(message.text), _message_calls(message, quirks.sends_objects))
        elif isinstance(message, HumanMessage):
            mirror.add_user(_user_texts(message.content))
        elif isinstance(message, SystemMessage):
            mirror.add_system(str(message.text))
        else:
            raise TypeError(f"{type(message).__name__} is not known")
    return mirror


def _find_chat_model(model: Any) -> tuple[Any, dict[str, Any]]:
    """Return the chat model and the settings bound to it. Raises TypeError if the model cannot be determined."""
    settings: dict[str, Any] = {}
    while not isinstance(model, BaseChatModel):
        if isinstance(model, RunnableBinding):
            model, settings = model.bound, {**model.kwargs, **settings}
        elif (make_model := getattr(type(model), "_model", None)) is not None:  # `init_chat_model`
            model = make_model(model, get_config())
        else:
            raise TypeError(f"{type(model).__name__} is an unknown kind of chat model")
    return model, settings


def _provider_quirks(model: Any) -> ProviderQuirks:
    """Return the package properties of a model, found by its base classes."""
    names = (each.__module__.partition(".")[0] for each in type(model).__mro__)
    return next((PACKAGES[name] for name in names if name in PACKAGES), ProviderQuirks())


def _loses_history(model: Any, settings: dict[str, Any], format_name: str) -> bool:
    settings = {**(getattr(model, "model_kwargs", None) or {}), **settings}
    head = {name: settings.get(name) or getattr(model, name, None) for name in ("truncation", "context_management")}
    dialect = formats.format_named(format_name)
    # Only a response would show whether the provider really removed something, and it is not visible here.
    is_cut = dialect.clears_history(head) or dialect.manages_context(head)
    return is_cut or bool(getattr(model, "use_previous_response_id", False))


def _has_adjacent_results(messages: Sequence[Any]) -> bool:
    """Return True if each result follows its call. Gemini's package moves results there and drops all others."""
    call_ids: set[Any] = set()
    for message in messages:
        if not isinstance(message, ToolMessage):
            call_ids = {call["id"] for call in message.tool_calls} if isinstance(message, AIMessage) else set()
        elif message.tool_call_id in call_ids:
            call_ids.remove(message.tool_call_id)
        else:
            return False
    return True


def _message_calls(message: AIMessage, sends_objects: bool) -> list[tuple[str, str, Any]]:
    all_calls = [*message.tool_calls, *(() if sends_objects else message.invalid_tool_calls)]
    blocks = [block for block in message.content if isinstance(block, dict) and block.get("type") in CALL_TYPES]
    if not {block.get("call_id") or block.get("id") for block in blocks} <= {call["id"] for call in all_calls}:
        raise ValueError("a message has calls in its content that are not among its calls")
    return [(call["id"] or "", call["name"] or "", call["args"] or {}) for call in all_calls]


def _user_texts(content: Any) -> str | list[str | None]:
    if isinstance(content, str):
        return content
    blocks = [{"type": "text", "text": block} if isinstance(block, str) else block for block in content]
    return [block["text"] if block.get("type") == "text" else None for block in blocks]


def _result_texts(content: Any, sends_objects: bool) -> str | list[str | None]:
    """Return the texts of a result. None is a placeholder for content that packages write in different ways."""
    if isinstance(content, str):
        return [None] if sends_objects and _is_json(content) else content
    if sends_objects or not all(isinstance(block, dict) and (_is_text(block) or _is_image(block)) for block in content):
        return [None]
    return [block["text"] if _is_text(block) else None for block in content]


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def _is_text(block: Any) -> bool:
    text = block.get("text")
    return block.get("type") == "text" and isinstance(text, str) and bool(text.strip())


def _is_image(block: Any) -> bool:
    return block.get("type") in IMAGE_TYPES


# ── changed messages ────────────────────────────────────────────────────────────────────────────────────────────────


def _with_results(request: Any, pending: MirroredRequest) -> Any:
    if not pending.results:
        return request
    messages = [*request.messages]
    for at, texts in pending.results.items():
        messages[at] = messages[at].model_copy(update={"content": _with_texts(messages[at].content, texts)})
    return request.override(messages=messages)


def _with_texts(content: Any, texts: Sequence[str]) -> Any:
    if isinstance(content, str):
        return texts[0]
    remaining = iter(texts)
    return [{**block, "text": next(remaining)} if _is_text(block) else block for block in content]
