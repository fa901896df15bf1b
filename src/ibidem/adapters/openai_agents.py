"""Adapter for the OpenAI Agents SDK: a filter for the input of the model.

    RunConfig(call_model_input_filter=input_filter)
    RunConfig(call_model_input_filter=input_filter(profile="recoverable", after=ToolOutputTrimmer()))

The SDK calls the filter before every model call. For all models, the input is in the Responses format. Sessions,
results and traces of the run do not change, because the filter returns a new list.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ._cache_option import check_cache_mode
from ._request_rewriter import PendingRequest, RequestRewriter, call_or_default, log_errors, missing_framework_error
from ._user_text import starts_with_user_text

try:
    from agents import RunHooks
except ModuleNotFoundError as error:
    raise missing_framework_error(error, "openai_agents", "openai-agents") from error

if TYPE_CHECKING:
    from agents.run_config import CallModelData, CallModelInputFilter, ModelInputData

    from ..billing.cache_ttl import CacheMode
    from ..engine.session import Session
    from ..store import Store

FORMAT = "openai-responses"

_last_request: ContextVar[PendingRequest | None] = ContextVar("ibidem_last_turn", default=None)
"""Last rewritten request of this task. The next model call of the task sends it."""


class InputFilter:
    """Filter with settings, for any number of concurrent runs. Create it with `input_filter(…)`."""

    def __init__(
        self,
        profile: str = "lossless",
        *,
        after: CallModelInputFilter | None = None,
        conversation: str | Callable[[CallModelData[Any]], str] = "",
        session: Session | None = None,
        store: Store | None = None,
        cache: CacheMode = "off",
    ) -> None:
        instead = 'set ModelSettings(extra_args={"prompt_cache_key": …})'
        check_cache_mode(cache, "a filter", instead, auto=False)
        self._rewriter = RequestRewriter(profile, session=session, store=store)
        self._first_filter = after
        self._conversation = conversation

    async def __call__(self, data: CallModelData[Any]) -> ModelInputData:
        _last_request.set(None)
        model_data = data.model_data
        if self._first_filter is not None:
            filter_result = self._first_filter(data)
            model_data = await filter_result if inspect.isawaitable(filter_result) else filter_result
        if not call_or_default(_is_complete, model_data.input, default=False):
            return model_data
        conversation = self._conversation
        name = conversation if isinstance(conversation, str) else call_or_default(conversation, data, default="")
        pending = await self._rewriter.arewrite(FORMAT, model_data.input, model=_model_name(data), conversation=name)
        _last_request.set(pending)
        return model_data if pending.history is model_data.input else replace(model_data, input=pending.history)


def input_filter(data: CallModelData[Any] | str | None = None, /, **settings: Any) -> Any:
    """Rewrite the input of a model call, or return a filter with other settings if there is no input.

    `profile` (also as the first argument), `session` and `store` are those of `ibidem.Session`. `after` is another
    filter that runs first. It must not run later, because it could remove text that a marker refers to. `conversation`
    is the id of the conversation, or a function that returns it from the data of a call. Without it, conversations are
    recognized by their first messages.
    """
    if data is None or isinstance(data, str):
        return InputFilter(*([] if data is None else [data]), **settings)
    return _default_filter(data)


_default_filter = InputFilter()


class UsageHooks(RunHooks):
    """Hooks that report usage, which a filter does not see. Profiles that evict need them.

    Pass them to each run: `Runner.run(…, hooks=UsageHooks())`.
    """

    async def on_llm_end(self, context: Any, agent: Any, response: Any) -> None:
        with log_errors():
            pending, usage = _last_request.get(), response.usage
            if pending is not None:
                pending.report_usage(context=usage.input_tokens, cached=usage.input_tokens_details.cached_tokens)


def _model_name(data: CallModelData[Any]) -> str:
    model = getattr(data.agent, "model", None)
    model = getattr(model, "model", model)
    return model if isinstance(model, str) else ""


def _is_complete(items: list[Any]) -> bool:
    """Return True if every result has its call, no result is a duplicate, and the first texts are from the user.

    A missing call means that the provider stores the earlier history. The SDK removes duplicates, which would change
    the numbers of results. After a handoff, the first text may be a summary by the model.
    """
    linked_items = [item for item in items if isinstance(item, dict) and "call_id" in item]
    calls = {item["call_id"] for item in linked_items if "output" not in item}
    result_ids = [item["call_id"] for item in linked_items if "output" in item]
    return starts_with_user_text(items) and len(set(result_ids)) == len(result_ids) and calls.issuperset(result_ids)
