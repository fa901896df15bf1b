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
from ._caching import checked_cache
from ._seat import Seat, ShadowTurn, failing_open, missing, safely
from ._shadow import Shadow

try:
    from langchain.agents.middleware import AgentMiddleware
    from langchain_core.language_models import BaseChatModel
    from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
    from langchain_core.runnables import RunnableBinding
    from langgraph.config import get_config
except ModuleNotFoundError as error:
    raise missing(error, "langchain", "'langchain>=1.0'") from error

if TYPE_CHECKING:
    from ..billing.lifetimes import CacheMode
    from ..engine.session import Session
    from ..store import Store

PICTURES = frozenset({"image_url", "input_image"})
CALLS = frozenset({"tool_use", "function_call"})


class Writes(NamedTuple):
    """Properties of a provider's package that affect how a history is sent."""

    failures: bool = False
    """True if failed results are marked in the request. These are not rewritten."""
    objects: bool = False
    """True if a result with JSON or blocks is sent as an object, directly after its call. Invalid calls are dropped."""
    clears: str = "openai-responses"
    """Wire format of the settings that make the provider clear its context."""
    caching: tuple[str, str] | None = None
    """Module and name of the package's middleware for prompt caching; None if the provider does not need it."""


PACKAGES = {
    "langchain_anthropic": Writes(
        failures=True,
        clears="anthropic",
        caching=("langchain_anthropic.middleware", "AnthropicPromptCachingMiddleware"),
    ),
    "langchain_aws": Writes(failures=True, clears="anthropic"),
    "langchain_google_genai": Writes(objects=True),
    "langchain_google_vertexai": Writes(objects=True),
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
        self._seat = Seat(profile, session=session, store=store)
        self._keeps = (
            checked_cache(cache, "this middleware", 'set AnthropicPromptCachingMiddleware(ttl="1h")') == "auto"
        )

    def wrap_model_call(self, request: Any, handler: Callable[[Any], Any]) -> Any:
        request = safely(_marked, request, otherwise=request) if self._keeps else request
        shadow = safely(_shadow, request, otherwise=None)
        if shadow is None:
            return handler(request)
        turn = self._seat.rewrite_shadow(shadow, model=_model(request), conversation=_thread())
        response = handler(safely(_rewritten, request, turn, otherwise=request))
        with failing_open():
            _tell(turn, response)
        return response

    async def awrap_model_call(self, request: Any, handler: Callable[[Any], Awaitable[Any]]) -> Any:
        request = safely(_marked, request, otherwise=request) if self._keeps else request
        shadow = safely(_shadow, request, otherwise=None)
        if shadow is None:
            return await handler(request)
        turn = await self._seat.arewrite_shadow(shadow, model=_model(request), conversation=_thread())
        response = await handler(safely(_rewritten, request, turn, otherwise=request))
        with failing_open():
            _tell(turn, response)
        return response


def _thread() -> str:
    try:
        return str(get_config().get("configurable", {}).get("thread_id", ""))
    except RuntimeError:  # outside of a graph
        return ""


def _model(request: Any) -> str:
    name = getattr(request.model, "model_name", None) or getattr(request.model, "model", "")
    return name.removeprefix("models/") if isinstance(name, str) else ""


def _marked(request: Any) -> Any:
    """Add cache directives with LangChain's own middleware to a request without any.

    Not for a call without tools and earlier responses, because no later request may read the cache entry.
    """
    caching = _package(request.model).caching
    is_agent = request.tools and request.tool_choice in (None, "auto")
    goes_on = any(isinstance(message, AIMessage) for message in request.messages)
    if caching is None or _asks(request) or not (is_agent or goes_on):
        return request
    module, name = caching
    theirs = getattr(import_module(module), name)(unsupported_model_behavior="ignore")
    return theirs.wrap_model_call(request, lambda marked: marked)


def _asks(request: Any) -> bool:
    """Return True if the request already has a cache directive."""
    said = [message.content for message in (request.system_message, *request.messages) if message is not None]
    blocks = [block for content in said if isinstance(content, list) for block in content if isinstance(block, dict)]
    tools = [tool if isinstance(tool, dict) else getattr(tool, "extras", None) or {} for tool in request.tools]
    settings = [request.model_settings, getattr(request.model, "model_kwargs", None) or {}]
    return any("cache_control" in each for each in (*blocks, *tools, *settings))


def _tell(turn: ShadowTurn, response: Any) -> None:
    """Report the usage in a response."""
    response = getattr(response, "model_response", response)
    for message in getattr(response, "result", [response]):
        usage = getattr(message, "usage_metadata", None)
        if usage:
            cached = usage.get("input_token_details", {}).get("cache_read")
            turn.answered(context=usage.get("input_tokens"), cached=cached)


# ── mirror ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def _shadow(request: Any) -> Shadow | None:
    """Mirror the messages; None if the provider drops or reorders some, because a marker could refer to these."""
    model, bound = _served(request.model)
    writes = _package(model)
    if _is_cut(model, {**bound, **request.model_settings}, writes.clears):
        return None
    if writes.objects and not _is_straight(request.messages):
        return None
    shadow = Shadow()
    for at, message in enumerate(request.messages):
        if isinstance(message, ToolMessage):
            failed = writes.failures and message.status == "error"
            shadow.result(message.tool_call_id, [None] if failed else _texts(message.content, writes.objects), at)
        elif isinstance(message, AIMessage):
            shadow.assistant(str(message.text), _calls(message, writes.objects))
        elif isinstance(message, HumanMessage):
            shadow.user(_said(message.content))
        elif isinstance(message, SystemMessage):
            shadow.system(str(message.text))
        else:
            raise TypeError(f"{type(message).__name__} is not known")
    return shadow


def _served(model: Any) -> tuple[Any, dict[str, Any]]:
    """Return the chat model and the settings bound to it. Raises TypeError if the model cannot be determined."""
    bound: dict[str, Any] = {}
    while not isinstance(model, BaseChatModel):
        if isinstance(model, RunnableBinding):
            model, bound = model.bound, {**model.kwargs, **bound}
        elif (made := getattr(type(model), "_model", None)) is not None:  # `init_chat_model`
            model = made(model, get_config())
        else:
            raise TypeError(f"{type(model).__name__} is an unknown kind of chat model")
    return model, bound


def _package(model: Any) -> Writes:
    """Return the package properties of a model, found by its base classes."""
    names = (each.__module__.partition(".")[0] for each in type(model).__mro__)
    return next((PACKAGES[name] for name in names if name in PACKAGES), Writes())


def _is_cut(model: Any, settings: dict[str, Any], wire: str) -> bool:
    settings = {**(getattr(model, "model_kwargs", None) or {}), **settings}
    head = {name: settings.get(name) or getattr(model, name, None) for name in ("truncation", "context_management")}
    dialect = formats.named(wire)
    # Only a response would show whether the provider really removed something, and it is not visible here.
    is_cut = dialect.clears_history(head) or dialect.manages_context(head)
    return is_cut or bool(getattr(model, "use_previous_response_id", False))


def _is_straight(messages: Sequence[Any]) -> bool:
    """Return True if each result follows its call. Gemini's package moves results there and drops all others."""
    made: set[Any] = set()
    for message in messages:
        if not isinstance(message, ToolMessage):
            made = {call["id"] for call in message.tool_calls} if isinstance(message, AIMessage) else set()
        elif message.tool_call_id in made:
            made.remove(message.tool_call_id)
        else:
            return False
    return True


def _calls(message: AIMessage, objects: bool) -> list[tuple[str, str, Any]]:
    made = [*message.tool_calls, *(() if objects else message.invalid_tool_calls)]
    blocks = [block for block in message.content if isinstance(block, dict) and block.get("type") in CALLS]
    if not {block.get("call_id") or block.get("id") for block in blocks} <= {call["id"] for call in made}:
        raise ValueError("a message has calls in its content that are not among its calls")
    return [(call["id"] or "", call["name"] or "", call["args"] or {}) for call in made]


def _said(content: Any) -> str | list[str | None]:
    if isinstance(content, str):
        return content
    blocks = [{"type": "text", "text": block} if isinstance(block, str) else block for block in content]
    return [block["text"] if block.get("type") == "text" else None for block in blocks]


def _texts(content: Any, objects: bool) -> str | list[str | None]:
    """Return the texts of a result. None is a placeholder for content that packages write in different ways."""
    if isinstance(content, str):
        return [None] if objects and _is_json(content) else content
    if objects or not all(isinstance(block, dict) and (_is_text(block) or _is_picture(block)) for block in content):
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


def _is_picture(block: Any) -> bool:
    return block.get("type") in PICTURES


# ── changed messages ────────────────────────────────────────────────────────────────────────────────────────────────


def _rewritten(request: Any, turn: ShadowTurn) -> Any:
    if not turn.results:
        return request
    messages = [*request.messages]
    for at, texts in turn.results.items():
        messages[at] = messages[at].model_copy(update={"content": _content(messages[at].content, texts)})
    return request.override(messages=messages)


def _content(content: Any, texts: Sequence[str]) -> Any:
    if isinstance(content, str):
        return texts[0]
    left = iter(texts)
    return [{**block, "text": next(left)} if _is_text(block) else block for block in content]
