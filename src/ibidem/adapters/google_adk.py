"""Google's Agent Development Kit: a plugin that rewrites what is sent to Gemini.

>>> app = App(name="app", root_agent=agent, plugins=[IbidemPlugin()])

It changes the contents of one request; events in the session stay as they are, and so do thought signatures. Other
models that ADK can call write results in other ways, and are left alone: LiteLLM has an adapter of its own.
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
    """One serves any number of apps and runners. A conversation is named by the id of its session."""

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
        instead = "Gemini caches by itself; for Claude set App(context_cache_config=ContextCacheConfig(ttl_seconds=…))"
        checked_cache(cache, "this plugin", instead, auto=False)
        self._seat = Seat(profile, session=session, store=store)
        self._under_way: dict[int, tuple[Any, Turn]] = {}
        """Requests whose answers are waited for. One that is given up is never answered, and goes with its context."""

    async def before_model_callback(self, *, callback_context: Any, llm_request: Any) -> None:
        wire = safely(_wire, llm_request, otherwise=None)
        if wire is None:
            return
        conversation = safely(lambda: str(callback_context.session.id), otherwise="")
        turn = await self._seat.arewrite(FORMAT, wire, model=llm_request.model, conversation=conversation)
        with failing_open():
            if turn.history is not wire:
                llm_request.contents = _changed(llm_request.contents, wire, turn.history)
            actions = callback_context.actions  # one object for a call and its answers
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
    """What is sent, as far as it matters here; None if it is not for Gemini, or goes on from what its server keeps."""
    name = (request.model or "").removeprefix("models/")
    if request.previous_interaction_id or not any(re.fullmatch(each, name) for each in Gemini.supported_models()):
        return None
    return [
        {"role": each.role or "user", "parts": [_part(part) for part in each.parts or ()]} for each in request.contents
    ]


def _part(part: Any) -> Wire:
    """Thoughts are shown as something that is no text: nothing of them is quoted, and none is taken out."""
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
        raise ValueError("messages came or went")
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
    """A copy that differs in the one thing that did: a result, arguments, or a text."""
    if part.function_response is not None:
        response = new["functionResponse"]["response"]
        return part.model_copy(
            update={"function_response": part.function_response.model_copy(update={"response": response})}
        )
    if part.function_call is not None:
        args = new["functionCall"]["args"]
        return part.model_copy(update={"function_call": part.function_call.model_copy(update={"args": args})})
    return part.model_copy(update={"text": new["text"]})
