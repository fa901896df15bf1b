"""Adapter for the OpenHands SDK: an `LLM` that sends a rewritten history. Events of the conversation do not change.

>>> agent = Agent(llm=IbidemLLM(model="anthropic/claude-sonnet-4-5", api_key=key), tools=tools)
"""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import ContextVar
from typing import Any

from ._cache_option import check_cache_mode
from ._request_rewriter import (
    PendingRequest,
    RequestRewriter,
    check_tested_version,
    log_errors,
    missing_framework_error,
)

try:
    from openhands.sdk import LLM
    from pydantic import PrivateAttr
except ModuleNotFoundError as error:
    raise missing_framework_error(error, "openhands", "openhands-sdk") from None

from .litellm import CallHistory, call_history, usage_from_call

check_tested_version("openhands", "openhands-sdk", "1.59")  # the overridden methods are private

WIRE_FORMATS = {"completion": "openai-chat", "responses": "openai-responses"}
"""Wire format of the history that LiteLLM gets, by type of call."""

CURRENT_REQUEST: ContextVar[PendingRequest | None] = ContextVar("ibidem_asked", default=None)
"""Current request. The SDK has no separate method for the call of the Responses API, so the result finds it here."""


class IbidemLLM(LLM):
    """`LLM` with two additional settings. Conversations are recognized by the ids of OpenHands."""

    ibidem_profile: str = "lossless"
    ibidem_cache: str = "off"
    """OpenHands itself does the same as `auto`, unless `caching_prompt` is false."""
    _ibidem_rewriter: RequestRewriter = PrivateAttr()

    def model_post_init(self, context: Any, /) -> None:
        super().model_post_init(context)
        instead = "set prompt_cache_retention for OpenAI's models; for Claude, the TTL is always five minutes"
        check_cache_mode(self.ibidem_cache, "this LLM", instead, name="ibidem_cache")
        self._ibidem_rewriter = RequestRewriter(self.ibidem_profile)

    def _transport_call(self, *, messages: list[Any], **kwargs: Any) -> Any:
        history = self._call_history("completion", messages, kwargs)
        pending = self._ibidem_rewriter.rewrite(
            WIRE_FORMATS["completion"], history.compactable, **self._rewrite_arguments(kwargs)
        )
        return _report_usage(pending, super()._transport_call(messages=history.merge_changes(pending), **kwargs))

    async def _atransport_call(self, *, messages: list[Any], **kwargs: Any) -> Any:
        history = self._call_history("completion", messages, kwargs)
        pending = await self._ibidem_rewriter.arewrite(
            WIRE_FORMATS["completion"], history.compactable, **self._rewrite_arguments(kwargs)
        )
        return _report_usage(pending, await super()._atransport_call(messages=history.merge_changes(pending), **kwargs))

    def _prepare_responses_params(self, *args: Any, **kwargs: Any) -> Any:
        instructions, items, tools, options, context = super()._prepare_responses_params(*args, **kwargs)
        history = self._call_history("responses", items, options)
        pending = self._ibidem_rewriter.rewrite(
            WIRE_FORMATS["responses"], history.compactable, **self._rewrite_arguments(options)
        )
        CURRENT_REQUEST.set(pending)
        return instructions, history.merge_changes(pending), tools, options, context

    async def _aprepare_responses_params(self, *args: Any, **kwargs: Any) -> Any:
        instructions, items, tools, options, context = await super()._aprepare_responses_params(*args, **kwargs)
        history = self._call_history("responses", items, options)
        pending = await self._ibidem_rewriter.arewrite(
            WIRE_FORMATS["responses"], history.compactable, **self._rewrite_arguments(options)
        )
        CURRENT_REQUEST.set(pending)
        return instructions, history.merge_changes(pending), tools, options, context

    def _build_responses_result(self, resp: Any) -> Any:
        pending = CURRENT_REQUEST.get()
        CURRENT_REQUEST.set(None)
        return super()._build_responses_result(resp if pending is None else _report_usage(pending, resp))

    def _call_history(self, call: str, history: list[Any], options: Mapping[str, Any]) -> CallHistory:
        return call_history(history, WIRE_FORMATS[call], {"api_base": self.base_url, **options, "model": self.model})

    def _rewrite_arguments(self, options: Mapping[str, Any]) -> dict[str, Any]:
        headers = options.get("extra_headers") or {}
        return {"model": self.model, "conversation": str(headers.get("x-litellm-session-id") or "")}


def _report_usage(pending: PendingRequest, response: Any) -> Any:
    with log_errors():
        pending.report_usage(**usage_from_call(response.usage))
    return response
