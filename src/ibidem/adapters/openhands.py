"""Adapter for the OpenHands SDK: an `LLM` that sends a rewritten history. Events of the conversation do not change.

>>> agent = Agent(llm=IbidemLLM(model="anthropic/claude-sonnet-4-5", api_key=key), tools=tools)
"""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import ContextVar
from typing import Any

from ._caching import checked_cache
from ._seat import Seat, Turn, bounded, failing_open, missing

try:
    from openhands.sdk import LLM
    from pydantic import PrivateAttr
except ModuleNotFoundError as error:
    raise missing(error, "openhands", "openhands-sdk") from None

from .litellm import Given, counted, shown

bounded("openhands", "openhands-sdk", "1.59")  # the overridden methods are private

WIRES = {"completion": "openai-chat", "responses": "openai-responses"}
"""Wire format of the history that LiteLLM gets, by type of call."""

ASKED: ContextVar[Turn | None] = ContextVar("ibidem_asked", default=None)
"""Current request. The SDK has no separate method for the call of the Responses API, so the result finds it here."""


class IbidemLLM(LLM):
    """`LLM` with two additional settings. Conversations are recognized by the ids of OpenHands."""

    ibidem_profile: str = "lossless"
    ibidem_cache: str = "off"
    """OpenHands itself does the same as `auto`, unless `caching_prompt` is false."""
    _ibidem_seat: Seat = PrivateAttr()

    def model_post_init(self, context: Any, /) -> None:
        super().model_post_init(context)
        instead = "set prompt_cache_retention for OpenAI's models; for Claude, the TTL is always five minutes"
        checked_cache(self.ibidem_cache, "this LLM", instead, name="ibidem_cache")
        self._ibidem_seat = Seat(self.ibidem_profile)

    def _transport_call(self, *, messages: list[Any], **kwargs: Any) -> Any:
        given = self._shown("completion", messages, kwargs)
        turn = self._ibidem_seat.rewrite(WIRES["completion"], given.shown, **self._named(kwargs))
        return _answered(turn, super()._transport_call(messages=given.rewritten(turn), **kwargs))

    async def _atransport_call(self, *, messages: list[Any], **kwargs: Any) -> Any:
        given = self._shown("completion", messages, kwargs)
        turn = await self._ibidem_seat.arewrite(WIRES["completion"], given.shown, **self._named(kwargs))
        return _answered(turn, await super()._atransport_call(messages=given.rewritten(turn), **kwargs))

    def _prepare_responses_params(self, *args: Any, **kwargs: Any) -> Any:
        instructions, items, tools, options, told = super()._prepare_responses_params(*args, **kwargs)
        given = self._shown("responses", items, options)
        turn = self._ibidem_seat.rewrite(WIRES["responses"], given.shown, **self._named(options))
        ASKED.set(turn)
        return instructions, given.rewritten(turn), tools, options, told

    async def _aprepare_responses_params(self, *args: Any, **kwargs: Any) -> Any:
        instructions, items, tools, options, told = await super()._aprepare_responses_params(*args, **kwargs)
        given = self._shown("responses", items, options)
        turn = await self._ibidem_seat.arewrite(WIRES["responses"], given.shown, **self._named(options))
        ASKED.set(turn)
        return instructions, given.rewritten(turn), tools, options, told

    def _build_responses_result(self, resp: Any) -> Any:
        turn = ASKED.get()
        ASKED.set(None)
        return super()._build_responses_result(resp if turn is None else _answered(turn, resp))

    def _shown(self, call: str, history: list[Any], options: Mapping[str, Any]) -> Given:
        return shown(history, WIRES[call], {"api_base": self.base_url, **options, "model": self.model})

    def _named(self, options: Mapping[str, Any]) -> dict[str, Any]:
        headers = options.get("extra_headers") or {}
        return {"model": self.model, "conversation": str(headers.get("x-litellm-session-id") or "")}


def _answered(turn: Turn, response: Any) -> Any:
    with failing_open():
        turn.answered(**counted(response.usage))
    return response
