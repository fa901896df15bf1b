"""Adapter for LlamaIndex: a function agent that sends a rewritten history to its model.

>>> agent = IbidemAgent(tools=[read], llm=OpenAI("gpt-5"), system_prompt="You are careful.")

In every other way it is a `FunctionAgent`, alone or in an `AgentWorkflow`. Memory, context and events do not change. It
overrides private methods of LlamaIndex, so only tested versions are accepted. Conversations are recognized by their
first texts, because these methods get no id.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ._caching import checked_cache
from ._seat import Seat, ShadowTurn, bounded, failing_open, missing
from ._shadow import Shadow, ShadowCall

try:
    from llama_index.core.agent.workflow import FunctionAgent
    from llama_index.core.base.llms.types import ChatMessage, ChatResponse, TextBlock, ToolCallBlock
    from llama_index.core.bridge.pydantic import PrivateAttr
except ModuleNotFoundError as error:
    raise missing(error, "llama_index", "'llama-index-core<0.15' llama-index-llms-openai") from error

if TYPE_CHECKING:
    from ..billing.lifetimes import CacheMode
    from ..engine.session import Session
    from ..store import Store

__all__ = ["IbidemAgent"]

bounded("llama_index", "llama-index-core", "0.15")


class IbidemAgent(FunctionAgent):
    """A `FunctionAgent` that rewrites its requests. One agent can run in any number of contexts at once.

    With `session`, all requests belong to one conversation. `store` is for the originals of evicted text.
    """

    _seat: Seat = PrivateAttr()

    def __init__(
        self,
        *args: Any,
        profile: str = "lossless",
        session: Session | None = None,
        store: Store | None = None,
        cache: CacheMode = "off",
        **options: Any,
    ) -> None:
        super().__init__(*args, **options)
        checked_cache(
            cache,
            "this agent",
            'set additional_kwargs={"prompt_cache_key": …}',
            auto=False,
        )
        self._seat = Seat(profile, session=session, store=store)

    async def _get_response(self, current_llm_input: list[ChatMessage], tools: Sequence[Any]) -> ChatResponse:
        messages, turn = await self._rewritten(current_llm_input)
        return _heard(turn, await super()._get_response(messages, tools))

    async def _get_streaming_response(
        self, ctx: Any, current_llm_input: list[ChatMessage], tools: Sequence[Any]
    ) -> ChatResponse:
        messages, turn = await self._rewritten(current_llm_input)
        return _heard(turn, await super()._get_streaming_response(ctx, messages, tools))

    async def _rewritten(self, messages: list[ChatMessage]) -> tuple[list[ChatMessage], ShadowTurn | None]:
        with failing_open():
            parts = any(each.__name__ == "OpenAIResponses" for each in type(self.llm).__mro__)
            shadow = _shadow(messages, parts)
            turn = await self._seat.arewrite_shadow(shadow, model=self.llm.metadata.model_name)
            new = [
                _with(message, turn.results[index]) if index in turn.results else message
                for index, message in enumerate(messages)
            ]
            return new if turn.results else messages, turn
        return messages, None


def _shadow(messages: list[ChatMessage], parts: bool) -> Shadow:
    shadow = Shadow()
    for index, message in enumerate(messages):
        texts = [each.text if isinstance(each, TextBlock) else None for each in message.blocks]
        said = "".join(text or "" for text in texts)
        match message.role.value:
            case "system" | "developer":
                shadow.system(said)
            case "user":
                shadow.user(texts)
            case "assistant":
                shadow.assistant(said, _calls(message))
            case "tool":
                # The Responses API gets parts if the result has more than text. Otherwise there is one text.
                shadow.result(_answered(message), texts if parts and None in texts else said, index)
            case role:
                raise ValueError(f"unknown role: {role}")
    return shadow


def _answered(message: ChatMessage) -> str:
    more = message.additional_kwargs
    return str(more.get("tool_call_id") or more.get("call_id") or "")


def _calls(message: ChatMessage) -> list[ShadowCall]:
    blocks = [each for each in message.blocks if isinstance(each, ToolCallBlock)]
    if blocks:
        return [(each.tool_call_id or "", each.tool_name, each.tool_kwargs) for each in blocks]
    return [_call(each) for each in message.additional_kwargs.get("tool_calls", ())]


def _call(call: Any) -> ShadowCall:
    """Convert a call from an older memory: an SDK object or a dictionary, from either API of OpenAI."""
    made = _field(call, "function") or call
    ident = _field(call, "call_id") or _field(call, "id") or ""
    return ident, _field(made, "name") or "", _field(made, "arguments") or ""


def _with(message: ChatMessage, texts: list[str]) -> ChatMessage:
    """Return a copy with new texts. If several texts were sent as one, the first block gets the whole text."""
    left = iter(texts)
    blocks = [(each, next(left, None) if isinstance(each, TextBlock) else None) for each in message.blocks]
    new = [
        each if text is None else each.model_copy(update={"text": text})
        for each, text in blocks
        if text is not None or not isinstance(each, TextBlock)
    ]
    return message.model_copy(update={"blocks": new})


def _heard(turn: ShadowTurn | None, response: ChatResponse) -> ChatResponse:
    """Report the usage of a response, if the model class returns it."""
    with failing_open():
        usage = _field(response.raw, "usage") or response.additional_kwargs.get("usage")
        if turn is not None and usage:
            read = _field(usage, "prompt_tokens_details") or _field(usage, "input_tokens_details")
            count = _field(usage, "prompt_tokens") or _field(usage, "input_tokens")
            turn.answered(context=count, cached=_field(read, "cached_tokens"))
    return response


def _field(value: Any, name: str) -> Any:
    return value.get(name) if isinstance(value, dict) else getattr(value, name, None)
