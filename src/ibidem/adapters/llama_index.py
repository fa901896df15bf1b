"""Adapter for LlamaIndex: a function agent that sends a rewritten history to its model.

>>> agent = IbidemAgent(tools=[read], llm=OpenAI("gpt-5"), system_prompt="You are careful.")

In every other way it is a `FunctionAgent`, alone or in an `AgentWorkflow`. Memory, context and events do not change. It
overrides private methods of LlamaIndex, so only tested versions are accepted. Conversations are recognized by their
first texts, because these methods get no id.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ._cache_option import check_cache_mode
from ._request_rewriter import (
    MirroredRequest,
    RequestRewriter,
    check_tested_version,
    log_errors,
    missing_framework_error,
)
from ._wire_mirror import MirrorCall, WireMirror

try:
    from llama_index.core.agent.workflow import FunctionAgent
    from llama_index.core.base.llms.types import ChatMessage, ChatResponse, TextBlock, ToolCallBlock
    from llama_index.core.bridge.pydantic import PrivateAttr
except ModuleNotFoundError as error:
    raise missing_framework_error(error, "llama_index", "'llama-index-core<0.15' llama-index-llms-openai") from error

if TYPE_CHECKING:
    from ..billing.cache_ttl import CacheMode
    from ..engine.session import Session
    from ..store import Store

__all__ = ["IbidemAgent"]

check_tested_version("llama_index", "llama-index-core", "0.15")


class IbidemAgent(FunctionAgent):
    """A `FunctionAgent` that rewrites its requests. One agent can run in any number of contexts at once.

    With `session`, all requests belong to one conversation. `store` is for the originals of evicted text.
    """

    _rewriter: RequestRewriter = PrivateAttr()

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
        check_cache_mode(
            cache,
            "this agent",
            'set additional_kwargs={"prompt_cache_key": …}',
            auto=False,
        )
        self._rewriter = RequestRewriter(profile, session=session, store=store)

    async def _get_response(self, current_llm_input: list[ChatMessage], tools: Sequence[Any]) -> ChatResponse:
        messages, pending = await self._rewrite_messages(current_llm_input)
        return _report_usage(pending, await super()._get_response(messages, tools))

    async def _get_streaming_response(
        self, ctx: Any, current_llm_input: list[ChatMessage], tools: Sequence[Any]
    ) -> ChatResponse:
        messages, pending = await self._rewrite_messages(current_llm_input)
        return _report_usage(pending, await super()._get_streaming_response(ctx, messages, tools))

    async def _rewrite_messages(self, messages: list[ChatMessage]) -> tuple[list[ChatMessage], MirroredRequest | None]:
        with log_errors():
            parts = any(each.__name__ == "OpenAIResponses" for each in type(self.llm).__mro__)
            mirror = _mirror_messages(messages, parts)
            pending = await self._rewriter.arewrite_mirror(mirror, model=self.llm.metadata.model_name)
            new = [
                _with_texts(message, pending.results[index]) if index in pending.results else message
                for index, message in enumerate(messages)
            ]
            return new if pending.results else messages, pending
        return messages, None


def _mirror_messages(messages: list[ChatMessage], parts: bool) -> WireMirror:
    mirror = WireMirror()
    for index, message in enumerate(messages):
        texts = [each.text if isinstance(each, TextBlock) else None for each in message.blocks]
        full_text = "".join(text or "" for text in texts)
        match message.role.value:
            case "system" | "developer":
                mirror.add_system(full_text)
            case "user":
                mirror.add_user(texts)
            case "assistant":
                mirror.add_assistant(full_text, _message_calls(message))
            case "tool":
                # The Responses API gets parts if the result has more than text. Otherwise there is one text.
                mirror.add_result(_result_call_id(message), texts if parts and None in texts else full_text, index)
            case role:
                raise ValueError(f"unknown role: {role}")
    return mirror


def _result_call_id(message: ChatMessage) -> str:
    more = message.additional_kwargs
    return str(more.get("tool_call_id") or more.get("call_id") or "")


def _message_calls(message: ChatMessage) -> list[MirrorCall]:
    blocks = [each for each in message.blocks if isinstance(each, ToolCallBlock)]
    if blocks:
        return [(each.tool_call_id or "", each.tool_name, each.tool_kwargs) for each in blocks]
    return [_convert_call(each) for each in message.additional_kwargs.get("tool_calls", ())]


def _convert_call(call: Any) -> MirrorCall:
    """Convert a call from an older memory: an SDK object or a dictionary, from either API of OpenAI."""
    function = _get_field(call, "function") or call
    ident = _get_field(call, "call_id") or _get_field(call, "id") or ""
    return ident, _get_field(function, "name") or "", _get_field(function, "arguments") or ""


def _with_texts(message: ChatMessage, texts: list[str]) -> ChatMessage:
    """Return a copy with new texts. If several texts were sent as one, the first block gets the whole text."""
    remaining = iter(texts)
    blocks = [(each, next(remaining, None) if isinstance(each, TextBlock) else None) for each in message.blocks]
    new = [
        each if text is None else each.model_copy(update={"text": text})
        for each, text in blocks
        if text is not None or not isinstance(each, TextBlock)
    ]
    return message.model_copy(update={"blocks": new})


def _report_usage(pending: MirroredRequest | None, response: ChatResponse) -> ChatResponse:
    """Report the usage of a response, if the model class returns it."""
    with log_errors():
        usage = _get_field(response.raw, "usage") or response.additional_kwargs.get("usage")
        if pending is not None and usage:
            token_details = _get_field(usage, "prompt_tokens_details") or _get_field(usage, "input_tokens_details")
            count = _get_field(usage, "prompt_tokens") or _get_field(usage, "input_tokens")
            pending.report_usage(context=count, cached=_get_field(token_details, "cached_tokens"))
    return response


def _get_field(value: Any, name: str) -> Any:
    return value.get(name) if isinstance(value, dict) else getattr(value, name, None)
