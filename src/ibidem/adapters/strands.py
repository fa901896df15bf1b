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

from ..providers.rejections import REFUSAL_STATUSES
from ._caching import checked_cache
from ._marks import SYSTEM, Spot, spots
from ._seat import Seat, ShadowTurn, failing_open, missing, safely
from ._shadow import Shadow

try:
    from strands.middleware import ModelStopReason
except ModuleNotFoundError as error:
    raise missing(error, "strands", "'strands-agents>=1.62'") from error

if TYPE_CHECKING:
    from ..billing.lifetimes import CacheMode
    from ..engine.session import Session
    from ..store import Store

__all__ = ["Middleware", "middleware"]

PARTED = ("AnthropicModel", "BedrockModel")
"""Models that send each text of a result separately. Others join the texts or add some."""
NOT_SAID = {"toolResult", "toolUse", "cachePoint"}
POINT = "cachePoint"
SETTINGS = ("cache_config", "cache_prompt", "cache_tools")
"""Cache settings of a model. If the user set one, nothing is added."""
CARRIERS = {"text": "text", "toolUse": "tool_use", "toolResult": "tool_result", "image": "image"}
"""Blocks that a cache point can follow, with their names in Anthropic's format."""

Place = tuple[int, int]
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
        self._seat = Seat(profile, session=session, store=store, cache=checked_cache(cache, "this middleware", instead))

    def __call__(self, context: Any = None, next_fn: Callable[[Any], Any] | None = None, **options: Any) -> Any:
        """Handle a model call of Strands. With only a profile or options, return another middleware with these."""
        if context is None or isinstance(context, str):
            return Middleware(*filter(None, (context,)), **options)
        return self._changed(context) if next_fn is None else self._around(context, next_fn)

    async def _changed(self, context: Any) -> Any:
        context, turn = await self._rewritten(context)
        return context if turn is None else safely(_marked, context, turn, otherwise=context)

    async def _around(self, given: Any, next_fn: Callable[[Any], Any]) -> AsyncIterator[Any]:
        plain, turn = await self._rewritten(given)
        context = plain if turn is None else safely(_marked, plain, turn, otherwise=plain)
        begun = False
        try:
            async for event in next_fn(context):
                begun = True
                if turn is not None and isinstance(event, ModelStopReason):
                    with failing_open():
                        _tell(turn, event.usage)
                yield event
        except Exception as error:
            if turn is None or context is plain or begun or not _is_refusal(error):
                raise
            turn.refused()  # maybe because of our cache points: send the original, and add no points later
        else:
            return
        async for event in next_fn(given):
            yield event

    async def _rewritten(self, context: Any) -> tuple[Any, ShadowTurn | None]:
        shadow = safely(_shadow, context, otherwise=None)
        if shadow is None:
            return context, None
        model, conversation = safely(_model, context, otherwise=""), safely(_conversation, context.agent, otherwise="")
        turn = await self._seat.arewrite_shadow(shadow, model=model, conversation=conversation)
        return safely(_with, context, turn.results, otherwise=context), turn


middleware = Middleware()


def _shadow(context: Any) -> Shadow:
    shadow = Shadow()
    parted = _is_parted(context.model)
    for index, message in enumerate(context.messages):
        blocks = message["content"]
        for place, block in enumerate(blocks):
            if (result := block.get("toolResult")) is not None:
                failed = result.get("status") == "error"  # such results stay as they are
                texts = [None] if failed else _texts(result["content"], parted)
                shadow.result(result["toolUseId"], texts, (index, place))
        said = [block.get("text") for block in blocks if not block.keys() & NOT_SAID]
        calls = [block["toolUse"] for block in blocks if "toolUse" in block]
        if message["role"] == "assistant":
            text = "".join(filter(None, said))
            shadow.assistant(text or None, [(call["toolUseId"], call["name"], call["input"]) for call in calls])
        elif said:
            shadow.user(said)
    return shadow


def _is_parted(model: Any) -> bool:
    return any(kind.__name__ in PARTED for kind in type(model).__mro__)


def _texts(content: list[Any], parted: bool) -> str | list[str | None]:
    """Return the texts of a result; a placeholder if the number of texts that will be sent is unknown."""
    texts = [block.get("text") for block in content]
    if len(texts) == 1 and texts[0] is not None:
        return str(texts[0])
    sure = parted and not any("json" in block or "document" in block for block in content)
    return texts if sure else [None]


def _with(context: Any, results: dict[Place, list[str]]) -> Any:
    if not results:
        return context
    messages = list(context.messages)
    for (index, place), texts in results.items():
        blocks, left = list(messages[index]["content"]), iter(texts)
        result = blocks[place]["toolResult"]
        content = [{**block, "text": next(left)} if "text" in block else block for block in result["content"]]
        blocks[place] = {**blocks[place], "toolResult": {**result, "content": content}}
        messages[index] = {**messages[index], "content": blocks}
    return context.replace(messages=messages)


# ── cache points ────────────────────────────────────────────────────────────────────────────────────────────────────


def _marked(context: Any, turn: ShadowTurn) -> Any:
    if turn.kept is None or not _is_parted(context.model) or _asks(context):
        return context
    system = context.system_prompt
    system = [{"text": system}] if isinstance(system, str) and system else list(system or ())
    head = {
        "system": [{"type": "text", **block} for block in system if "text" in block],
        "tools": context.tool_specs,
        "tool_choice": {"type": next(iter(context.tool_choice or {"auto": {}}))},
    }
    volatile = context.dynamic_trailing_blocks
    told = [_told(message, volatile * (last == 1)) for last, message in enumerate_back(context.messages)]
    found = spots(turn.kept, _model(context), head, told)
    if not found:
        return context
    inside = [spot for spot in found if spot.message >= 0]
    changed = context.replace(messages=_pointed(context.messages, inside))
    before = [spot for spot in found if spot.message == SYSTEM]
    return changed.replace(system_prompt=[*system, _point(before[0].long)]) if before else changed


def enumerate_back(messages: list[Any]) -> Iterator[tuple[int, Any]]:
    """Yield the messages in order, each with its number from the end, starting at 1 for the last."""
    return zip(range(len(messages), 0, -1), messages, strict=True)


def _told(message: Any, volatile: int) -> dict[str, Any]:
    """Return a message for `breakpoint_positions`. The last `volatile` blocks differ in each call: not cached."""
    blocks = message["content"]
    kinds = [CARRIERS.get(next(iter(block)), "other") for block in blocks]
    kinds[len(blocks) - volatile :] = ["other"] * min(volatile, len(blocks))
    told = [{"type": kind, **_substance(kind, block)} for kind, block in zip(kinds, blocks, strict=True)]
    return {"role": message["role"], "content": told}


def _substance(kind: str, block: Any) -> dict[str, Any]:
    """Return the fields that show the length of a block."""
    if kind == "tool_result":
        return {"content": "".join(part.get("text") or " *" for part in block["toolResult"]["content"])}
    return {"text": block["text"]} if kind == "text" else {"size": str(block) if kind == "tool_use" else ""}


def _pointed(messages: list[Any], found: list[Spot]) -> list[Any]:
    new = list(messages)
    for spot in reversed(found):
        blocks = list(new[spot.message]["content"])
        blocks.insert(spot.block + 1, _point(spot.long))
        new[spot.message] = {**new[spot.message], "content": blocks}
    return new


def _point(long: bool) -> dict[str, Any]:
    return {POINT: {"type": "default", "ttl": "1h"} if long else {"type": "default"}}


def _asks(context: Any) -> bool:
    """Return True if the user set cache points or cache settings."""
    system = context.system_prompt if isinstance(context.system_prompt, list) else []
    blocks = [block for message in context.messages for block in message["content"]]
    settings = context.model.get_config()
    return any(POINT in block for block in (*system, *blocks)) or any(map(settings.get, SETTINGS))


def _is_refusal(error: Exception) -> bool:
    told = getattr(error, "response", None)
    status = told.get("ResponseMetadata", {}).get("HTTPStatusCode") if isinstance(told, dict) else None
    return (status or getattr(error, "status_code", None)) in REFUSAL_STATUSES


# ── request data ────────────────────────────────────────────────────────────────────────────────────────────────────


def _model(context: Any) -> str:
    return str(context.model.get_config().get("model_id", ""))


def _conversation(agent: Any) -> str:
    session = getattr(getattr(agent, "_session_manager", None), "session_id", None)
    ident = agent.agent_id
    return f"{session}/{ident}" if session else "" if ident == "default" else str(ident)


def _tell(turn: ShadowTurn, usage: Any) -> None:
    """Report usage. Some providers include cache reads in the input count and others do not. The total shows which."""
    told, read = usage["inputTokens"], usage.get("cacheReadInputTokens", 0)
    beside = 0 if told + usage["outputTokens"] == usage["totalTokens"] else read + usage.get("cacheWriteInputTokens", 0)
    turn.answered(context=told + beside, cached=read)
