"""Adapter for Google's Agent Development Kit: a plugin that rewrites requests to Gemini.

>>> app = App(name="app", root_agent=agent, plugins=[IbidemPlugin()])

It changes the contents of a request. Events in the session and thought signatures do not change. Requests to other
models are not rewritten, because ADK writes their results differently. LiteLLM has its own adapter.
"""

from __future__ import annotations

import re
import weakref
from typing import TYPE_CHECKING, Any

from ._cache_option import check_cache_mode
from ._request_rewriter import PendingRequest, RequestRewriter, call_or_default, log_errors, missing_framework_error

try:
    from google.adk.models import Gemini
    from google.adk.plugins.base_plugin import BasePlugin
except ModuleNotFoundError as error:
    raise missing_framework_error(error, "google_adk", "'google-adk>=2.13'") from error

if TYPE_CHECKING:
    from ..billing.cache_ttl import CacheMode
    from ..engine.session import Session
    from ..store import Store

__all__ = ["IbidemPlugin"]

FORMAT = "gemini"

WireContent = dict[str, Any]


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
        check_cache_mode(cache, "this plugin", instead, auto=False)
        self._rewriter = RequestRewriter(profile, session=session, store=store)
        self._pending_requests: dict[int, tuple[Any, PendingRequest]] = {}
        """Requests without a response yet. A cancelled request is removed when its context is garbage collected."""

    async def before_model_callback(self, *, callback_context: Any, llm_request: Any) -> None:
        contents = call_or_default(_wire_contents, llm_request, default=None)
        if contents is None:
            return
        conversation = call_or_default(lambda: str(callback_context.session.id), default="")
        pending = await self._rewriter.arewrite(FORMAT, contents, model=llm_request.model, conversation=conversation)
        with log_errors():
            if pending.history is not contents:
                llm_request.contents = _changed_contents(llm_request.contents, contents, pending.history)
            actions = callback_context.actions  # the same object for a call and its responses
            key, pending_requests = id(actions), self._pending_requests
            pending_requests[key] = weakref.ref(actions, lambda _: pending_requests.pop(key, None)), pending

    async def after_model_callback(self, *, callback_context: Any, llm_response: Any) -> None:
        with log_errors():
            usage = llm_response.usage_metadata
            if llm_response.partial or usage is None:  # a piece of a stream
                return
            _, pending = self._pending_requests.pop(id(callback_context.actions), (None, None))
            if pending is not None:
                pending.report_usage(context=usage.prompt_token_count, cached=usage.cached_content_token_count or 0)


def _wire_contents(request: Any) -> list[WireContent] | None:
    """Return the contents in wire format; None if the model is not Gemini, or if Google's server stores the history."""
    name = (request.model or "").removeprefix("models/")
    if request.previous_interaction_id or not any(re.fullmatch(each, name) for each in Gemini.supported_models()):
        return None
    return [
        {"role": each.role or "user", "parts": [_wire_part(part) for part in each.parts or ()]}
        for each in request.contents
    ]


def _wire_part(part: Any) -> WireContent:
    """Return a part in wire format. Thinking becomes a placeholder, so it is neither referenced nor removed."""
    signature_field = {"thoughtSignature": "signed"} if part.thought_signature else {}
    if (result := part.function_response) is not None:
        id_field = {"id": result.id} if result.id else {}
        return {"functionResponse": {**id_field, "name": result.name, "response": result.response}}
    if (call := part.function_call) is not None:
        id_field = {"id": call.id} if call.id else {}
        return {"functionCall": {**id_field, "name": call.name, "args": call.args or {}}, **signature_field}
    if part.text is None or part.thought:
        return {"other": {}, **signature_field}
    return {"text": part.text, **signature_field}


def _changed_contents(contents: list[Any], before: list[WireContent], after: list[WireContent]) -> list[Any]:
    if len(after) != len(contents):
        raise ValueError("the number of messages changed")
    return [
        content if new is old else _changed_content(content, old["parts"], new["parts"])
        for content, old, new in zip(contents, before, after, strict=True)
    ]


def _changed_content(content: Any, before: list[WireContent], after: list[WireContent]) -> Any:
    parts = [
        part if new is old else _changed_part(part, new)
        for part, old, new in zip(content.parts, before, after, strict=True)
    ]
    return content.model_copy(update={"parts": parts})


def _changed_part(part: Any, new: WireContent) -> Any:
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
