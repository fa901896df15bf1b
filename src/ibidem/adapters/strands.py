"""Strands Agents: a middleware around each call of a model, for every provider that Strands has, Bedrock too.

>>> agent.add_middleware(InvokeModelStage, middleware)
>>> agent.add_middleware(InvokeModelStage, middleware("recoverable"))

It changes what one call sends; `agent.messages` and sessions stay as they are. It may stand at `InvokeModelStage.Input`
as well, where what a provider counted does not come by, so that only profiles that let nothing go are of use.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Any

from ._seat import Seat, ShadowTurn, failing_open, missing, safely
from ._shadow import Shadow

try:
    from strands.middleware import ModelStopReason
except ModuleNotFoundError as error:
    raise missing(error, "strands", "'strands-agents>=1.62'") from error

if TYPE_CHECKING:
    from ..engine.session import Session
    from ..store import Store

__all__ = ["Middleware", "middleware"]

PARTED = ("AnthropicModel", "BedrockModel")
"""Models that send each text of a result as a text of its own. Others join them, or add some."""
NOT_SAID = {"toolResult", "toolUse", "cachePoint"}

Place = tuple[int, int]
"""Of a result: message, and block in it."""


class Middleware:
    """One serves any number of agents. Conversations are recognised; sessions and ids of agents tell them apart."""

    def __init__(
        self, profile: str = "lossless", *, session: Session | None = None, store: Store | None = None
    ) -> None:
        self._seat = Seat(profile, session=session, store=store)

    def __call__(self, context: Any = None, next_fn: Callable[[Any], Any] | None = None, **options: Any) -> Any:
        """As Strands calls it; with a profile or options alone, another middleware that has them."""
        if context is None or isinstance(context, str):
            return Middleware(*filter(None, (context,)), **options)
        return self._changed(context) if next_fn is None else self._around(context, next_fn)

    async def _changed(self, context: Any) -> Any:
        return (await self._rewritten(context))[0]

    async def _around(self, context: Any, next_fn: Callable[[Any], Any]) -> AsyncIterator[Any]:
        context, turn = await self._rewritten(context)
        async for event in next_fn(context):
            if turn is not None and isinstance(event, ModelStopReason):
                with failing_open():
                    _tell(turn, event.usage)
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
    parted = any(kind.__name__ in PARTED for kind in type(context.model).__mro__)
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


def _texts(content: list[Any], parted: bool) -> str | list[str | None]:
    """Of a result. Where it is not sure how many texts the wire will have, it is shown as something that is no text."""
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


def _model(context: Any) -> str:
    return str(context.model.get_config().get("model_id", ""))


def _conversation(agent: Any) -> str:
    session = getattr(getattr(agent, "_session_manager", None), "session_id", None)
    ident = agent.agent_id
    return f"{session}/{ident}" if session else "" if ident == "default" else str(ident)


def _tell(turn: ShadowTurn, usage: Any) -> None:
    """Some providers count what was read from the cache among the input, and some beside it: the total says which."""
    told, read = usage["inputTokens"], usage.get("cacheReadInputTokens", 0)
    beside = 0 if told + usage["outputTokens"] == usage["totalTokens"] else read + usage.get("cacheWriteInputTokens", 0)
    turn.answered(context=told + beside, cached=read)
