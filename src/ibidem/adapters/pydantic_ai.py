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

from ._caching import checked_cache
from ._seat import Seat, ShadowTurn, failing_open, missing, safely
from ._shadow import Shadow

try:
    from pydantic_ai import messages as parts
    from pydantic_ai.capabilities import AbstractCapability
    from pydantic_ai.models.fallback import FallbackModel
    from pydantic_ai.models.wrapper import WrapperModel
except ModuleNotFoundError as error:
    raise missing(error, "pydantic_ai", "pydantic-ai-slim") from error
if not hasattr(AbstractCapability, "get_wrapper_model"):
    raise ImportError("ibidem.adapters.pydantic_ai needs a later release: pip install -U 'pydantic-ai-slim>=2.62'")

if TYPE_CHECKING:
    from ..billing.lifetimes import CacheMode
    from ..engine.session import Session
    from ..store import Store

KEPT_BY_PROVIDER = ("openai_previous_response_id", "openai_conversation_id")
"""Settings with which only new messages are sent. Then the numbers of results differ from those in the history here."""


class Writing(NamedTuple):
    """How a model class converts results and arguments to its wire format."""

    objects: bool = False
    """True if objects in results are sent as text."""
    items: bool = False
    """True if each item of a list is sent as a separate text."""
    arguments: bool = False
    """True if arguments of a call are sent as the model wrote them."""
    marks: bool = False
    """True if the provider caches only up to cache breakpoints."""


WRITINGS = {
    "OpenAIChatModel": Writing(objects=True, arguments=True),
    "OpenAIResponsesModel": Writing(objects=True, arguments=True),
    "AnthropicModel": Writing(objects=True, items=True, marks=True),
}
NO_TEXT = ("image/", "audio/", "video/", "application/pdf")
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
    _seat: Seat = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        checked_cache(self.cache, "this capability", 'set ModelSettings(cache="1h")')
        self._seat = Seat(self.profile, session=self.session, store=self.store)

    async def for_run(self, ctx: Any) -> IbidemCapability:
        run = copy(self)
        run.conversation = self.conversation or ctx.conversation_id or ""
        return run

    def get_wrapper_model(self, model: Any) -> Any:
        return _Rewriting(model, self._seat, self.conversation, self.cache == "auto")


class _Rewriting(WrapperModel):
    def __init__(self, wrapped: Any, seat: Seat, conversation: str, keeps: bool) -> None:
        super().__init__(wrapped)
        self._seat, self._conversation, self._keeps = seat, conversation, keeps

    async def request(self, messages: list[Any], settings: Any, *rest: Any) -> Any:
        if isinstance(self.wrapped, FallbackModel):
            return await self._candidates().request(messages, settings, *rest)
        settings = safely(self._kept, messages, settings, *rest, otherwise=settings) if self._keeps else settings
        sent, turn = await self._rewritten(messages, settings)
        response = await self.wrapped.request(sent, settings, *rest)
        _tell(turn, response)
        return response

    @asynccontextmanager
    async def request_stream(self, messages: list[Any], settings: Any, *rest: Any) -> AsyncGenerator[Any]:
        if isinstance(self.wrapped, FallbackModel):
            async with self._candidates().request_stream(messages, settings, *rest) as stream:
                yield stream
            return
        settings = safely(self._kept, messages, settings, *rest, otherwise=settings) if self._keeps else settings
        sent, turn = await self._rewritten(messages, settings)
        async with self.wrapped.request_stream(sent, settings, *rest) as stream:
            yield stream
            with failing_open():
                _tell(turn, stream.get())

    def _candidates(self) -> Any:
        """Return a fallback model with each candidate wrapped, because each one has its own wire format."""
        found = copy(self.wrapped)
        found.models = [_Rewriting(model, self._seat, self._conversation, self._keeps) for model in self.wrapped.models]
        return found

    def _kept(self, messages: list[Any], settings: Any, asked: Any, *_: Any) -> Any:
        """Return settings that enable prompt caching if the request has no cache settings.

        Not for a call without tools and earlier responses, because no later request may read the cache entry.
        """
        merged = {**(self.settings or {}), **(settings or {})}
        said = any("cache" in name for name in merged) or any(map(_has_mark, messages))
        is_agent = asked.function_tools and merged.get("tool_choice") in (None, "auto")
        goes_on = any(isinstance(message, parts.ModelResponse) for message in messages)
        if said or not _writing(self.wrapped).marks or not (is_agent or goes_on):
            return settings
        return {**(settings or {}), "cache": True}

    async def _rewritten(self, messages: list[Any], settings: Any) -> tuple[list[Any], ShadowTurn | None]:
        shadow = safely(self._shadow, messages, settings, otherwise=None)
        if shadow is None:
            return messages, None
        turn = await self._seat.arewrite_shadow(shadow, model=self.model_name, conversation=self._conversation)
        return safely(_changed, messages, turn.results, otherwise=messages), turn

    def _shadow(self, messages: list[Any], settings: Any) -> Shadow | None:
        """Mirror the messages; None if other messages or other texts of the user are sent."""
        merged = {**(self.settings or {}), **(settings or {})}
        if any(merged.get(name) for name in KEPT_BY_PROVIDER) or merged.get("openai_transport") == "websocket":
            return None
        writing, shadow = _writing(self.wrapped), Shadow()
        for number, message in enumerate(messages):
            answers = isinstance(message, parts.ModelResponse)
            if not (_heard(shadow, message, writing) if answers else _asked(shadow, number, message, writing)):
                return None
        return shadow


def _writing(model: Any) -> Writing:
    while isinstance(model, WrapperModel):
        model = model.wrapped
    return next((found for each in type(model).__mro__ if (found := WRITINGS.get(each.__name__))), Writing())


def _has_mark(message: Any) -> bool:
    return any(
        isinstance(item, parts.CachePoint)
        for part in message.parts
        if isinstance(part, parts.UserPromptPart) and not isinstance(part.content, str)
        for item in part.content
    )


def _heard(shadow: Shadow, message: Any, writing: Writing) -> bool:
    texts = [part.content for part in message.parts if isinstance(part, parts.TextPart)]
    calls = [
        (part.tool_call_id, part.tool_name, part.args if writing.arguments and part.args else part.args_as_dict())
        for part in message.parts
        if isinstance(part, parts.ToolCallPart)
    ]
    if texts or calls:
        shadow.assistant("\n\n".join(texts), calls)
    return not any(isinstance(part, parts.CompactionPart) for part in message.parts)


def _asked(shadow: Shadow, number: int, message: Any, writing: Writing) -> bool:
    for place, part in enumerate(message.parts):
        if isinstance(part, parts.SystemPromptPart):
            shadow.system(part.content)
        elif isinstance(part, parts.UserPromptPart):
            said = [part.content] if isinstance(part.content, str) else part.content
            if number == 0 and not all(map(_plain, said)):
                return False
            shadow.user([item if isinstance(item, str) else getattr(item, "content", None) for item in said])
        elif isinstance(part, parts.ToolReturnPart) and part.tool_kind != "tool-search":
            shadow.result(part.tool_call_id, _texts(part, writing) or [None], (number, place))
        else:
            return False
    return True


def _plain(item: Any) -> bool:
    """Return False for a file that may be sent as text. Then it would count as user text, which identifies the
    conversation."""
    if isinstance(item, parts.BinaryContent):
        return item.media_type.startswith(NO_TEXT)
    return not isinstance(item, parts.DocumentUrl)


def _texts(part: Any, writing: Writing) -> list[str] | None:
    """Return the texts of a result as they are sent; None if it is sent in another form, such as an object."""
    if part.outcome != "success" or part.files or part.content is None:
        return None
    if isinstance(part.content, str):
        return [part.content]
    if writing.items and isinstance(part.content, list):
        return part.content_items(mode="str")
    return [part.model_response_str()] if writing.objects else None


def _changed(messages: list[Any], results: dict[Any, list[str]]) -> list[Any]:
    """Return messages with new texts of results. Only changed objects are copied."""
    new = list(messages)
    for (number, place), texts in results.items():
        changed = list(new[number].parts)
        several = isinstance(changed[place].content, list) and len(texts) > 1
        changed[place] = replace(changed[place], content=texts if several else texts[0])
        new[number] = replace(new[number], parts=changed)
    return new


def _tell(turn: ShadowTurn | None, response: Any) -> None:
    with failing_open():
        if turn is not None:
            turn.answered(context=response.usage.input_tokens, cached=response.usage.cache_read_tokens)
