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

from ._cache_option import check_cache_mode
from ._request_rewriter import MirroredRequest, RequestRewriter, call_or_default, log_errors, missing_framework_error
from ._wire_mirror import WireMirror

try:
    from inspect_ai.hooks import Hooks
    from inspect_ai.model import ContentData, ContentText
except ModuleNotFoundError as error:
    raise missing_framework_error(error, "inspect_ai", "inspect_ai") from error

if TYPE_CHECKING:
    from inspect_ai.hooks import BeforeModelGenerate, ModelUsageData, SampleStart
    from inspect_ai.log import EvalSampleSummary
    from inspect_ai.model import ChatMessage

    from ..billing.cache_ttl import CacheMode
    from ..store import Store

_sample: ContextVar[Any] = ContextVar("ibidem_sample", default=None)


class IbidemHooks(Hooks):
    """Base class of hooks. Register a subclass with `@hooks`, and Inspect creates its only instance."""

    profile: ClassVar[str] = "lossless"
    store: ClassVar[Store | None] = None
    cache: ClassVar[CacheMode] = "off"
    """Inspect itself does the same as `auto`, unless you set `GenerateConfig(cache_prompt=False)`."""

    def __init__(self) -> None:
        check_cache_mode(self.cache, "these hooks", 'set cache_ttl="1h" of the model')
        self._rewriter = RequestRewriter(self.profile, store=self.store)
        self._last_request: ContextVar[MirroredRequest | None] = ContextVar("ibidem_last_turn", default=None)
        """Last rewritten request of this task. The next model call of the task sends it."""

    def rewrites(self, data: BeforeModelGenerate, sample: EvalSampleSummary | None) -> bool:
        """Return True to rewrite this call. Override it to choose. `sample` is None outside an evaluation."""
        return True

    async def on_sample_start(self, data: SampleStart) -> None:
        _sample.set(data.summary)

    async def on_before_model_generate(self, data: BeforeModelGenerate) -> None:
        """Rewrite the messages. Inspect calls this for every attempt. A rewritten request does not change again."""
        self._last_request.set(None)
        if not self.rewrites(data, _sample.get()):
            return
        mirror = call_or_default(_mirror_messages, data.input, default=None)
        if mirror is None:
            return
        model = data.model_name.rpartition("/")[2]
        pending = await self._rewriter.arewrite_mirror(mirror, model=model, conversation=data.sample_id or "")
        self._last_request.set(pending)
        with log_errors():
            new_messages = {place: _with_text(data.input[place], texts) for place, texts in pending.results.items()}
            data.input[:] = [new_messages.get(place, message) for place, message in enumerate(data.input)]

    async def on_model_usage(self, data: ModelUsageData) -> None:
        with log_errors():
            pending, usage, read_tokens = self._last_request.get(), data.usage, data.usage.input_tokens_cache_read or 0
            if pending is not None:
                write_tokens = usage.input_tokens_cache_write or 0
                pending.report_usage(context=usage.input_tokens + read_tokens + write_tokens, cached=read_tokens)


def _mirror_messages(messages: list[ChatMessage]) -> WireMirror | None:
    """Mirror the messages; None if Inspect sends some of the results in another form."""
    mirror = WireMirror()
    call_ids: set[str] = set()
    for place, message in enumerate(messages):
        if isinstance(message.content, list) and any(isinstance(part, ContentData) for part in message.content):
            return None
        if message.role == "system":
            mirror.add_system(message.text)
        elif message.role == "user":
            mirror.add_user(
                message.content if isinstance(message.content, str) else [*map(_part_text, message.content)]
            )
        elif message.role == "assistant":
            calls = message.tool_calls or []
            call_ids.update(call.id for call in calls)
            mirror.add_assistant(message.text, [(call.id, call.function, call.arguments) for call in calls])
        elif message.tool_call_id not in call_ids or message.function == "tool_search":
            return None
        else:
            mirror.add_result(message.tool_call_id, _result_content(message), place)
    return mirror


def _part_text(part: Any) -> str | None:
    return part.text if isinstance(part, ContentText) else None


def _result_content(message: Any) -> str | list[str | None]:
    """Return a result as it is sent in every wire format; a placeholder for errors and several texts, which differ."""
    if message.error is not None or not message.content:
        return [None]
    if isinstance(message.content, str):
        return message.content
    texts = [*map(_part_text, message.content)]
    return texts if len(texts) - texts.count(None) == 1 else [None]


def _with_text(message: Any, texts: list[str]) -> Any:
    """Return a copy with another text and its own id, as Inspect does for changed messages."""
    content: Any = texts[0]
    if isinstance(message.content, list):
        content = [
            part.model_copy(update={"text": texts[0]}) if isinstance(part, ContentText) else part
            for part in message.content
        ]
    return message.model_copy(update={"content": content, "id": f"{message.id}.ibidem" if message.id else None})
