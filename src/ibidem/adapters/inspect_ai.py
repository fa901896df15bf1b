"""Adapter for Inspect: hooks that rewrite requests to a model, for all or some samples of an evaluation.

    @hooks(name="ibidem", description="Repeated text is sent once.")
    class Rewriting(IbidemHooks):
        def rewrites(self, data, sample):
            return sample is not None and sample.epoch == 2  # epoch 1 is the baseline

The messages of a sample do not change. The model events in its log show the rewritten requests.
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
    """Base class of hooks. Register a subclass with `@hooks`, and Inspect creates its only instance."""

    profile: ClassVar[str] = "lossless"
    store: ClassVar[Store | None] = None
    cache: ClassVar[CacheMode] = "off"
    """Inspect itself does the same as `auto`, unless you set `GenerateConfig(cache_prompt=False)`."""

    def __init__(self) -> None:
        checked_cache(self.cache, "these hooks", 'set cache_ttl="1h" of the model')
        self._seat = Seat(self.profile, store=self.store)
        self._last: ContextVar[ShadowTurn | None] = ContextVar("ibidem_last_turn", default=None)
        """Last rewritten request of this task. The next model call of the task sends it."""

    def rewrites(self, data: BeforeModelGenerate, sample: EvalSampleSummary | None) -> bool:
        """Return True to rewrite this call. Override it to choose. `sample` is None outside an evaluation."""
        return True

    async def on_sample_start(self, data: SampleStart) -> None:
        _sample.set(data.summary)

    async def on_before_model_generate(self, data: BeforeModelGenerate) -> None:
        """Rewrite the messages. Inspect calls this for every attempt. A rewritten request does not change again."""
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
    """Mirror the messages; None if Inspect sends some of the results in another form."""
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
    """Return a result as it is sent in every wire format; a placeholder for errors and several texts, which differ."""
    if message.error is not None or not message.content:
        return [None]
    if isinstance(message.content, str):
        return message.content
    texts = [*map(_text, message.content)]
    return texts if len(texts) - texts.count(None) == 1 else [None]


def _with(message: Any, texts: list[str]) -> Any:
    """Return a copy with another text and its own id, as Inspect does for changed messages."""
    content: Any = texts[0]
    if isinstance(message.content, list):
        content = [
            part.model_copy(update={"text": texts[0]}) if isinstance(part, ContentText) else part
            for part in message.content
        ]
    return message.model_copy(update={"content": content, "id": f"{message.id}.ibidem" if message.id else None})
