"""Adapter for Pydantic AI: a capability that rewrites requests to the model.

    Agent("anthropic:claude-sonnet-5-5", capabilities=[IbidemCapability()])

It wraps the model of a request. At this point, the messages are in their final order and form, with retries and
prompts. The history of the run does not change. Usage is read from the response.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from copy import copy
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from ._cache_option import check_cache_mode
from ._request_rewriter import MirroredRequest, RequestRewriter, call_or_default, log_errors, missing_framework_error
from ._wire_mirror import WireMirror

try:
    from pydantic_ai import messages as parts
    from pydantic_ai.capabilities import AbstractCapability
    from pydantic_ai.models.fallback import FallbackModel
    from pydantic_ai.models.wrapper import WrapperModel
except ModuleNotFoundError as error:
    raise missing_framework_error(error, "pydantic_ai", "pydantic-ai-slim") from error
if not hasattr(AbstractCapability, "get_wrapper_model"):
    raise ImportError("ibidem.adapters.pydantic_ai needs a later release: pip install -U 'pydantic-ai-slim>=2.62'")

if TYPE_CHECKING:
    from ..billing.cache_ttl import CacheMode
    from ..engine.session import Session
    from ..store import Store

STORED_HISTORY_SETTINGS = ("openai_previous_response_id", "openai_conversation_id")
"""Settings with which only new messages are sent. Then the numbers of results differ from those in the history here."""


class WireConversion(NamedTuple):
    """How a model class converts results and arguments to its wire format."""

    writes_objects: bool = False
    """True if objects in results are sent as text."""
    splits_items: bool = False
    """True if each item of a list is sent as a separate text."""
    keeps_arguments: bool = False
    """True if arguments of a call are sent as the model wrote them."""
    needs_breakpoints: bool = False
    """True if the provider caches only up to cache breakpoints."""


CONVERSIONS = {
    "OpenAIChatModel": WireConversion(writes_objects=True, keeps_arguments=True),
    "OpenAIResponsesModel": WireConversion(writes_objects=True, keeps_arguments=True),
    "AnthropicModel": WireConversion(writes_objects=True, splits_items=True, needs_breakpoints=True),
}
NON_TEXT_TYPES = ("image/", "audio/", "video/", "application/pdf")
"""Media types of attachments that are never sent as text."""


@dataclass
class IbidemCapability(AbstractCapability[Any]):
    """Capability for any number of agents and runs. `session` and `store` are those of `ibidem.Session`."""

    profile: str = "lossless"
    session: Session | None = None
    store: Store | None = None
    conversation: str = ""
    """Id of the conversation (default: the `conversation_id` of the run)."""
    cache: CacheMode = "off"
    """`auto` enables the setting `cache` of Pydantic AI for requests without cache settings."""
    _rewriter: RequestRewriter = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_cache_mode(self.cache, "this capability", 'set ModelSettings(cache="1h")')
        self._rewriter = RequestRewriter(self.profile, session=self.session, store=self.store)

    async def for_run(self, ctx: Any) -> IbidemCapability:
        run = copy(self)
        run.conversation = self.conversation or ctx.conversation_id or ""
        return run

    def get_wrapper_model(self, model: Any) -> Any:
        return _RewritingModel(model, self._rewriter, self.conversation, self.cache == "auto")


class _RewritingModel(WrapperModel):
    def __init__(self, wrapped: Any, rewriter: RequestRewriter, conversation: str, uses_cache: bool) -> None:
        super().__init__(wrapped)
        self._rewriter, self._conversation, self._uses_cache = rewriter, conversation, uses_cache

    async def request(self, messages: list[Any], settings: Any, *rest: Any) -> Any:
        if isinstance(self.wrapped, FallbackModel):
            return await self._wrap_candidates().request(messages, settings, *rest)
        settings = (
            call_or_default(self._with_cache_setting, messages, settings, *rest, default=settings)
            if self._uses_cache
            else settings
        )
        new_messages, pending = await self._rewrite_messages(messages, settings)
        response = await self.wrapped.request(new_messages, settings, *rest)
        _report_usage(pending, response)
        return response

    @asynccontextmanager
    async def request_stream(self, messages: list[Any], settings: Any, *rest: Any) -> AsyncGenerator[Any]:
        if isinstance(self.wrapped, FallbackModel):
            async with self._wrap_candidates().request_stream(messages, settings, *rest) as stream:
                yield stream
            return
        settings = (
            call_or_default(self._with_cache_setting, messages, settings, *rest, default=settings)
            if self._uses_cache
            else settings
        )
        new_messages, pending = await self._rewrite_messages(messages, settings)
        async with self.wrapped.request_stream(new_messages, settings, *rest) as stream:
            yield stream
            with log_errors():
                _report_usage(pending, stream.get())

    def _wrap_candidates(self) -> Any:
        """Return a fallback model with each candidate wrapped, because each one has its own wire format."""
        fallback = copy(self.wrapped)
        fallback.models = [
            _RewritingModel(model, self._rewriter, self._conversation, self._uses_cache)
            for model in self.wrapped.models
        ]
        return fallback

    def _with_cache_setting(self, messages: list[Any], settings: Any, request_params: Any, *_: Any) -> Any:
        """Return settings that enable prompt caching if the request has no cache settings.

        Not for a call without tools and earlier responses, because no later request may read the cache entry.
        """
        all_settings = {**(self.settings or {}), **(settings or {})}
        has_cache_settings = any("cache" in name for name in all_settings) or any(map(_has_cache_point, messages))
        is_agent = request_params.function_tools and all_settings.get("tool_choice") in (None, "auto")
        has_response = any(isinstance(message, parts.ModelResponse) for message in messages)
        if has_cache_settings or not _conversion_for(self.wrapped).needs_breakpoints or not (is_agent or has_response):
            return settings
        return {**(settings or {}), "cache": True}

    async def _rewrite_messages(self, messages: list[Any], settings: Any) -> tuple[list[Any], MirroredRequest | None]:
        mirror = call_or_default(self._mirror_messages, messages, settings, default=None)
        if mirror is None:
            return messages, None
        pending = await self._rewriter.arewrite_mirror(mirror, model=self.model_name, conversation=self._conversation)
        return call_or_default(_with_results, messages, pending.results, default=messages), pending

    def _mirror_messages(self, messages: list[Any], settings: Any) -> WireMirror | None:
        """Mirror the messages; None if other messages or other texts of the user are sent."""
        all_settings = {**(self.settings or {}), **(settings or {})}
        if (
            any(all_settings.get(name) for name in STORED_HISTORY_SETTINGS)
            or all_settings.get("openai_transport") == "websocket"
        ):
            return None
        conversion, mirror = _conversion_for(self.wrapped), WireMirror()
        for number, message in enumerate(messages):
            is_response = isinstance(message, parts.ModelResponse)
            if not (
                _mirror_response(mirror, message, conversion)
                if is_response
                else _mirror_request(mirror, number, message, conversion)
            ):
                return None
        return mirror


def _conversion_for(model: Any) -> WireConversion:
    while isinstance(model, WrapperModel):
        model = model.wrapped
    return next(
        (conversion for each in type(model).__mro__ if (conversion := CONVERSIONS.get(each.__name__))), WireConversion()
    )


def _has_cache_point(message: Any) -> bool:
    return any(
        isinstance(item, parts.CachePoint)
        for part in message.parts
        if isinstance(part, parts.UserPromptPart) and not isinstance(part.content, str)
        for item in part.content
    )


def _mirror_response(mirror: WireMirror, message: Any, conversion: WireConversion) -> bool:
    texts = [part.content for part in message.parts if isinstance(part, parts.TextPart)]
    calls = [
        (
            part.tool_call_id,
            part.tool_name,
            part.args if conversion.keeps_arguments and part.args else part.args_as_dict(),
        )
        for part in message.parts
        if isinstance(part, parts.ToolCallPart)
    ]
    if texts or calls:
        mirror.add_assistant("\n\n".join(texts), calls)
    return not any(isinstance(part, parts.CompactionPart) for part in message.parts)


def _mirror_request(mirror: WireMirror, number: int, message: Any, conversion: WireConversion) -> bool:
    for place, part in enumerate(message.parts):
        if isinstance(part, parts.SystemPromptPart):
            mirror.add_system(part.content)
        elif isinstance(part, parts.UserPromptPart):
            contents = [part.content] if isinstance(part.content, str) else part.content
            if number == 0 and not all(map(_is_plain_content, contents)):
                return False
            mirror.add_user([item if isinstance(item, str) else getattr(item, "content", None) for item in contents])
        elif isinstance(part, parts.ToolReturnPart) and part.tool_kind != "tool-search":
            mirror.add_result(part.tool_call_id, _result_texts(part, conversion) or [None], (number, place))
        else:
            return False
    return True


def _is_plain_content(item: Any) -> bool:
    """Return False for a file that may be sent as text. Then it would count as user text, which identifies the
    conversation."""
    if isinstance(item, parts.BinaryContent):
        return item.media_type.startswith(NON_TEXT_TYPES)
    return not isinstance(item, parts.DocumentUrl)


def _result_texts(part: Any, conversion: WireConversion) -> list[str] | None:
    """Return the texts of a result as they are sent; None if it is sent in another form, such as an object."""
    if part.outcome != "success" or part.files or part.content is None:
        return None
    if isinstance(part.content, str):
        return [part.content]
    if conversion.splits_items and isinstance(part.content, list):
        return part.content_items(mode="str")
    return [part.model_response_str()] if conversion.writes_objects else None


def _with_results(messages: list[Any], results: dict[Any, list[str]]) -> list[Any]:
    """Return messages with new texts of results. Only changed objects are copied."""
    new = list(messages)
    for (number, place), texts in results.items():
        new_parts = list(new[number].parts)
        has_several_texts = isinstance(new_parts[place].content, list) and len(texts) > 1
        new_parts[place] = replace(new_parts[place], content=texts if has_several_texts else texts[0])
        new[number] = replace(new[number], parts=new_parts)
    return new


def _report_usage(pending: MirroredRequest | None, response: Any) -> None:
    with log_errors():
        if pending is not None:
            pending.report_usage(context=response.usage.input_tokens, cached=response.usage.cache_read_tokens)
