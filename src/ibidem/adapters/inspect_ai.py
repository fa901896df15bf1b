"""Inspect: hooks that rewrite what a model is sent, for all samples of an evaluation or for some of them.

    @hooks(name="ibidem", description="Nothing is said twice.")
    class Rewriting(IbidemHooks):
        def rewrites(self, data, sample):
            return sample is not None and sample.epoch == 2  # and epoch 1 is the other arm

A sample keeps its messages as they are; the model events of its log show what was sent.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, ClassVar

from ._caching import checked_cache
from ._seat import Seat, ShadowTurn, failing_open, missing, safely
from ._shadow import Shadow

try:
    from inspect_ai.hooks import Hooks
    from inspect_ai.model import ContentData, ContentText
except ModuleNotFoundError as error:
    raise missing(error, "inspect_ai", "inspect_ai") from error

if TYPE_CHECKING:
    from inspect_ai.hooks import BeforeModelGenerate, ModelUsageData, SampleStart
    from inspect_ai.log import EvalSampleSummary
    from inspect_ai.model import ChatMessage

    from ..billing.lifetimes import CacheMode
    from ..store import Store

_sample: ContextVar[Any] = ContextVar("ibidem_sample", default=None)


class IbidemHooks(Hooks):
    """To be registered with `@hooks`, as a class of your own: Inspect makes the one instance of it."""

    profile: ClassVar[str] = "lossless"
    store: ClassVar[Store | None] = None
    cache: ClassVar[CacheMode] = "off"
    """`auto` is what Inspect does by itself, unless `GenerateConfig(cache_prompt=False)` says otherwise."""

    def __init__(self) -> None:
        checked_cache(self.cache, "these hooks", 'set cache_ttl="1h" of the model')
        self._seat = Seat(self.profile, store=self.store)
        self._last: ContextVar[ShadowTurn | None] = ContextVar("ibidem_last_turn", default=None)
        """Of this task: the call that it makes next is the one that was rewritten last."""

    def rewrites(self, data: BeforeModelGenerate, sample: EvalSampleSummary | None) -> bool:
        """Whether this call is rewritten. There is no sample where a model is called outside of an evaluation."""
        return True

    async def on_sample_start(self, data: SampleStart) -> None:
        _sample.set(data.summary)

    async def on_before_model_generate(self, data: BeforeModelGenerate) -> None:
        """Asked again for each attempt: what was rewritten once is not changed by that."""
        self._last.set(None)
        if not self.rewrites(data, _sample.get()):
            return
        shadow = safely(_shadow, data.input, otherwise=None)
        if shadow is None:
            return
        model = data.model_name.rpartition("/")[2]
        turn = await self._seat.arewrite_shadow(shadow, model=model, conversation=data.sample_id or "")
        self._last.set(turn)
        with failing_open():
            changed = {place: _with(data.input[place], texts) for place, texts in turn.results.items()}
            data.input[:] = [changed.get(place, message) for place, message in enumerate(data.input)]

    async def on_model_usage(self, data: ModelUsageData) -> None:
        with failing_open():
            turn, usage, read = self._last.get(), data.usage, data.usage.input_tokens_cache_read or 0
            if turn is not None:
                written = usage.input_tokens_cache_write or 0
                turn.answered(context=usage.input_tokens + read + written, cached=read)


def _shadow(messages: list[ChatMessage]) -> Shadow | None:
    """None where the wire will have other results than these messages: it writes some out as something else."""
    shadow = Shadow()
    called: set[str] = set()
    for place, message in enumerate(messages):
        if isinstance(message.content, list) and any(isinstance(part, ContentData) for part in message.content):
            return None
        if message.role == "system":
            shadow.system(message.text)
        elif message.role == "user":
            shadow.user(message.content if isinstance(message.content, str) else [*map(_text, message.content)])
        elif message.role == "assistant":
            calls = message.tool_calls or []
            called.update(call.id for call in calls)
            shadow.assistant(message.text, [(call.id, call.function, call.arguments) for call in calls])
        elif message.tool_call_id not in called or message.function == "tool_search":
            return None
        else:
            shadow.result(message.tool_call_id, _result(message), place)
    return shadow


def _text(part: Any) -> str | None:
    return part.text if isinstance(part, ContentText) else None


def _result(message: Any) -> str | list[str | None]:
    """As it is on every wire; no text where wires differ: an error, or several texts, which some of them join."""
    if message.error is not None or not message.content:
        return [None]
    if isinstance(message.content, str):
        return message.content
    texts = [*map(_text, message.content)]
    return texts if len(texts) - texts.count(None) == 1 else [None]


def _with(message: Any, texts: list[str]) -> Any:
    """A copy with another text, and with a name of its own, as Inspect gives one to what it changes."""
    content: Any = texts[0]
    if isinstance(message.content, list):
        content = [
            part.model_copy(update={"text": texts[0]}) if isinstance(part, ContentText) else part
            for part in message.content
        ]
    return message.model_copy(update={"content": content, "id": f"{message.id}.ibidem" if message.id else None})
