"""Adapter for Strands Agents: a middleware around each model call, for all providers of Strands, also Bedrock.

>>> agent.add_middleware(InvokeModelStage, middleware)
>>> agent.add_middleware(InvokeModelStage, middleware("recoverable"))

It changes only the request of one call. `agent.messages` and sessions do not change. It can also be added at
`InvokeModelStage.Input`. There it gets no usage, so only profiles that do not evict are useful.

With `cache="auto"`, it adds cache points after the system prompt and in messages, for Claude on Bedrock and on
Anthropic's own API, unless the model or the agent already has cache points. Tools come before the system prompt, so the
point after it covers them.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from typing import TYPE_CHECKING, Any

from ..providers.rejections import REJECTION_STATUSES
from ._breakpoints import SYSTEM, FrameworkBreakpoint, breakpoint_positions
from ._cache_option import check_cache_mode
from ._request_rewriter import MirroredRequest, RequestRewriter, call_or_default, log_errors, missing_framework_error
from ._wire_mirror import WireMirror

try:
    from strands.middleware import ModelStopReason
except ModuleNotFoundError as error:
    raise missing_framework_error(error, "strands", "'strands-agents>=1.62'") from error

if TYPE_CHECKING:
    from ..billing.cache_ttl import CacheMode
    from ..engine.session import Session
    from ..store import Store

__all__ = ["Middleware", "middleware"]

SEPARATE_TEXT_MODELS = ("AnthropicModel", "BedrockModel")
"""Models that send each text of a result separately. Others join the texts or add some."""
NON_MESSAGE_BLOCKS = {"toolResult", "toolUse", "cachePoint"}
POINT = "cachePoint"
CACHE_SETTINGS = ("cache_config", "cache_prompt", "cache_tools")
"""Cache settings of a model. If the user set one, nothing is added."""
BLOCK_NAMES = {"text": "text", "toolUse": "tool_use", "toolResult": "tool_result", "image": "image"}
"""Blocks that a cache point can follow, with their names in Anthropic's format."""

ResultPosition = tuple[int, int]
"""Position of a result: indexes of the message and of the block in it."""


class Middleware:
    """Middleware for any number of agents. Conversations are recognized by session, agent id and first messages."""

    def __init__(
        self,
        profile: str = "lossless",
        *,
        session: Session | None = None,
        store: Store | None = None,
        cache: CacheMode = "off",
    ) -> None:
        instead = 'set cache_config=CacheConfig(ttl="1h") of the model'
        self._rewriter = RequestRewriter(
            profile, session=session, store=store, cache=check_cache_mode(cache, "this middleware", instead)
        )

    def __call__(self, context: Any = None, next_fn: Callable[[Any], Any] | None = None, **options: Any) -> Any:
        """Handle a model call of Strands. With only a profile or options, return another middleware with these."""
        if context is None or isinstance(context, str):
            return Middleware(*filter(None, (context,)), **options)
        return self._rewrite_input(context) if next_fn is None else self._wrap_call(context, next_fn)

    async def _rewrite_input(self, context: Any) -> Any:
        context, pending = await self._rewrite_context(context)
        return context if pending is None else call_or_default(_with_cache_points, context, pending, default=context)

    async def _wrap_call(self, original: Any, next_fn: Callable[[Any], Any]) -> AsyncIterator[Any]:
        edited, pending = await self._rewrite_context(original)
        context = edited if pending is None else call_or_default(_with_cache_points, edited, pending, default=edited)
        has_started = False
        try:
            async for event in next_fn(context):
                has_started = True
                if pending is not None and isinstance(event, ModelStopReason):
                    with log_errors():
                        _report_usage(pending, event.usage)
                yield event
        except Exception as error:
            if pending is None or context is edited or has_started or not _is_rejection(error):
                raise
            pending.report_rejection()  # maybe because of our cache points: send the original, and add no points later
        else:
            return
        async for event in next_fn(original):
            yield event

    async def _rewrite_context(self, context: Any) -> tuple[Any, MirroredRequest | None]:
        mirror = call_or_default(_mirror_messages, context, default=None)
        if mirror is None:
            return context, None
        model, conversation = (
            call_or_default(_model_id, context, default=""),
            call_or_default(_conversation_id, context.agent, default=""),
        )
        pending = await self._rewriter.arewrite_mirror(mirror, model=model, conversation=conversation)
        return call_or_default(_with_results, context, pending.results, default=context), pending


middleware = Middleware()


def _mirror_messages(context: Any) -> WireMirror:
    mirror = WireMirror()
    is_separate = _sends_separate_texts(context.model)
    for index, message in enumerate(context.messages):
        blocks = message["content"]
        for place, block in enumerate(blocks):
            if (result := block.get("toolResult")) is not None:
                is_failed = result.get("status") == "error"  # such results stay as they are
                texts = [None] if is_failed else _result_texts(result["content"], is_separate)
                mirror.add_result(result["toolUseId"], texts, (index, place))
        message_texts = [block.get("text") for block in blocks if not block.keys() & NON_MESSAGE_BLOCKS]
        calls = [block["toolUse"] for block in blocks if "toolUse" in block]
        if message["role"] == "assistant":
            text = "".join(filter(None, message_texts))
            mirror.add_assistant(text or None, [(call["toolUseId"], call["name"], call["input"]) for call in calls])
        elif message_texts:
            mirror.add_user(message_texts)
    return mirror


def _sends_separate_texts(model: Any) -> bool:
    return any(kind.__name__ in SEPARATE_TEXT_MODELS for kind in type(model).__mro__)


def _result_texts(content: list[Any], is_separate: bool) -> str | list[str | None]:
    """Return the texts of a result; a placeholder if the number of texts that will be sent is unknown."""
    texts = [block.get("text") for block in content]
    if len(texts) == 1 and texts[0] is not None:
        return str(texts[0])
    is_known = is_separate and not any("json" in block or "document" in block for block in content)
    return texts if is_known else [None]


def _with_results(context: Any, results: dict[ResultPosition, list[str]]) -> Any:
    if not results:
        return context
    messages = list(context.messages)
    for (index, place), texts in results.items():
        blocks, remaining = list(messages[index]["content"]), iter(texts)
        result = blocks[place]["toolResult"]
        content = [{**block, "text": next(remaining)} if "text" in block else block for block in result["content"]]
        blocks[place] = {**blocks[place], "toolResult": {**result, "content": content}}
        messages[index] = {**messages[index], "content": blocks}
    return context.replace(messages=messages)


# ── cache points ────────────────────────────────────────────────────────────────────────────────────────────────────


def _with_cache_points(context: Any, pending: MirroredRequest) -> Any:
    if pending.ttl_decision is None or not _sends_separate_texts(context.model) or _asks(context):
        return context
    system = context.system_prompt
    system = [{"text": system}] if isinstance(system, str) and system else list(system or ())
    head = {
        "system": [{"type": "text", **block} for block in system if "text" in block],
        "tools": context.tool_specs,
        "tool_choice": {"type": next(iter(context.tool_choice or {"auto": {}}))},
    }
    volatile = context.dynamic_trailing_blocks
    descriptions = [
        _describe_message(message, volatile * (last == 1)) for last, message in enumerate_back(context.messages)
    ]
    breakpoints = breakpoint_positions(pending.ttl_decision, _model_id(context), head, descriptions)
    if not breakpoints:
        return context
    message_breakpoints = [spot for spot in breakpoints if spot.message >= 0]
    new_context = context.replace(messages=_insert_cache_points(context.messages, message_breakpoints))
    system_breakpoints = [spot for spot in breakpoints if spot.message == SYSTEM]
    return (
        new_context.replace(system_prompt=[*system, _cache_point(system_breakpoints[0].is_one_hour)])
        if system_breakpoints
        else new_context
    )


def enumerate_back(messages: list[Any]) -> Iterator[tuple[int, Any]]:
    """Yield the messages in order, each with its number from the end, starting at 1 for the last."""
    return zip(range(len(messages), 0, -1), messages, strict=True)


def _describe_message(message: Any, volatile: int) -> dict[str, Any]:
    """Return a message for `breakpoint_positions`. The last `volatile` blocks differ in each call: not cached."""
    blocks = message["content"]
    kinds = [BLOCK_NAMES.get(next(iter(block)), "other") for block in blocks]
    kinds[len(blocks) - volatile :] = ["other"] * min(volatile, len(blocks))
    descriptions = [{"type": kind, **_size_fields(kind, block)} for kind, block in zip(kinds, blocks, strict=True)]
    return {"role": message["role"], "content": descriptions}


def _size_fields(kind: str, block: Any) -> dict[str, Any]:
    """Return the fields that show the length of a block."""
    if kind == "tool_result":
        return {"content": "".join(part.get("text") or " *" for part in block["toolResult"]["content"])}
    return {"text": block["text"]} if kind == "text" else {"size": str(block) if kind == "tool_use" else ""}


def _insert_cache_points(messages: list[Any], breakpoints: list[FrameworkBreakpoint]) -> list[Any]:
    new = list(messages)
    for position in reversed(breakpoints):
        blocks = list(new[position.message]["content"])
        blocks.insert(position.block + 1, _cache_point(position.is_one_hour))
        new[position.message] = {**new[position.message], "content": blocks}
    return new


def _cache_point(long: bool) -> dict[str, Any]:
    return {POINT: {"type": "default", "ttl": "1h"} if long else {"type": "default"}}


def _asks(context: Any) -> bool:
    """Return True if the user set cache points or cache settings."""
    system = context.system_prompt if isinstance(context.system_prompt, list) else []
    blocks = [block for message in context.messages for block in message["content"]]
    settings = context.model.get_config()
    return any(POINT in block for block in (*system, *blocks)) or any(map(settings.get, CACHE_SETTINGS))


def _is_rejection(error: Exception) -> bool:
    response = getattr(error, "response", None)
    status = response.get("ResponseMetadata", {}).get("HTTPStatusCode") if isinstance(response, dict) else None
    return (status or getattr(error, "status_code", None)) in REJECTION_STATUSES


# ── request data ────────────────────────────────────────────────────────────────────────────────────────────────────


def _model_id(context: Any) -> str:
    return str(context.model.get_config().get("model_id", ""))


def _conversation_id(agent: Any) -> str:
    session = getattr(getattr(agent, "_session_manager", None), "session_id", None)
    ident = agent.agent_id
    return f"{session}/{ident}" if session else "" if ident == "default" else str(ident)


def _report_usage(pending: MirroredRequest, usage: Any) -> None:
    """Report usage. Some providers include cache reads in the input count and others do not. The total shows which."""
    input_tokens, read = usage["inputTokens"], usage.get("cacheReadInputTokens", 0)
    extra_tokens = (
        0
        if input_tokens + usage["outputTokens"] == usage["totalTokens"]
        else read + usage.get("cacheWriteInputTokens", 0)
    )
    pending.report_usage(context=input_tokens + extra_tokens, cached=read)
