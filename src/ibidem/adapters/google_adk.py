"""Adapter for Google's Agent Development Kit: a plugin that rewrites requests to Gemini.

>>> app = App(name="app", root_agent=agent, plugins=[IbidemPlugin()])

It changes the contents of a request. Events in the session and thought signatures do not change. Requests to other
models are not rewritten, because ADK writes their results differently. LiteLLM has its own adapter.
"""

from __future__ import annotations

import re
import weakref
from typing import TYPE_CHECKING, Any

from ._caching import checked_cache
from ._seat import Seat, Turn, failing_open, missing, safely

try:
    from google.adk.models import Gemini
    from google.adk.plugins.base_plugin import BasePlugin
except ModuleNotFoundError as error:
    raise missing(error, "google_adk", "'google-adk>=2.13'") from error

if TYPE_CHECKING:
    from ..billing.lifetimes import CacheMode
    from ..engine.session import Session
    from ..store import Store

__all__ = ["IbidemPlugin"]

FORMAT = "gemini"

Wire = dict[str, Any]


class IbidemPlugin(BasePlugin):
    """Plugin for any number of apps and runners. Conversations are recognized by the session id."""

    def __init__(
        self,
        profile: str = "lossless",
        *,
        name: str = "ibidem",
        session: Session | None = None,
        store: Store | None = None,
        cache: CacheMode = "off",
    ) -> None:
        super().__init__(name=name)
        instead = "Gemini always caches; for Claude set App(context_cache_config=ContextCacheConfig(ttl_seconds=…))"
        checked_cache(cache, "this plugin", instead, auto=False)
        self._seat = Seat(profile, session=session, store=store)
        self._under_way: dict[int, tuple[Any, Turn]] = {}
        """Requests without a response yet. A cancelled request is removed when its context is garbage collected."""

    async def before_model_callback(self, *, callback_context: Any, llm_request: Any) -> None:
        wire = safely(_wire, llm_request, otherwise=None)
        if wire is None:
            return
        conversation = safely(lambda: str(callback_context.session.id), otherwise="")
        turn = await self._seat.arewrite(FORMAT, wire, model=llm_request.model, conversation=conversation)
        with failing_open():
            if turn.history is not wire:
                llm_request.contents = _changed(llm_request.contents, wire, turn.history)
            actions = callback_context.actions  # the same object for a call and its responses
            key, waiting = id(actions), self._under_way
            waiting[key] = weakref.ref(actions, lambda _: waiting.pop(key, None)), turn

    async def after_model_callback(self, *, callback_context: Any, llm_response: Any) -> None:
        with failing_open():
            usage = llm_response.usage_metadata
            if llm_response.partial or usage is None:  # a piece of a stream
                return
            _, turn = self._under_way.pop(id(callback_context.actions), (None, None))
            if turn is not None:
                turn.answered(context=usage.prompt_token_count, cached=usage.cached_content_token_count or 0)


def _wire(request: Any) -> list[Wire] | None:
    """Return the contents in wire format; None if the model is not Gemini, or if Google's server stores the history."""
    name = (request.model or "").removeprefix("models/")
    if request.previous_interaction_id or not any(re.fullmatch(each, name) for each in Gemini.supported_models()):
        return None
    return [
        {"role": each.role or "user", "parts": [_part(part) for part in each.parts or ()]} for each in request.contents
    ]


def _part(part: Any) -> Wire:
    """Return a part in wire format. Thinking becomes a placeholder, so it is neither referenced nor removed."""
    signed = {"thoughtSignature": "signed"} if part.thought_signature else {}
    if (result := part.function_response) is not None:
        named = {"id": result.id} if result.id else {}
        return {"functionResponse": {**named, "name": result.name, "response": result.response}}
    if (call := part.function_call) is not None:
        named = {"id": call.id} if call.id else {}
        return {"functionCall": {**named, "name": call.name, "args": call.args or {}}, **signed}
    if part.text is None or part.thought:
        return {"other": {}, **signed}
    return {"text": part.text, **signed}


def _changed(contents: list[Any], before: list[Wire], after: list[Wire]) -> list[Any]:
    if len(after) != len(contents):
        raise ValueError("the number of messages changed")
    return [
        content if new is old else _content(content, old["parts"], new["parts"])
        for content, old, new in zip(contents, before, after, strict=True)
    ]


def _content(content: Any, before: list[Wire], after: list[Wire]) -> Any:
    parts = [
        part if new is old else _with(part, new) for part, old, new in zip(content.parts, before, after, strict=True)
    ]
    return content.model_copy(update={"parts": parts})


def _with(part: Any, new: Wire) -> Any:
    """Return a copy of a part with its changed result, arguments or text."""
    if part.function_response is not None:
        response = new["functionResponse"]["response"]
        return part.model_copy(
            update={"function_response": part.function_response.model_copy(update={"response": response})}
        )
    if part.function_call is not None:
        args = new["functionCall"]["args"]
        return part.model_copy(update={"function_call": part.function_call.model_copy(update={"args": args})})
    return part.model_copy(update={"text": new["text"]})
