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

from ._caching import checked_cache
from ._seat import Seat, Turn, failing_open, missing, safely
from ._words import has_words

try:
    from agents import RunHooks
except ModuleNotFoundError as error:
    raise missing(error, "openai_agents", "openai-agents") from error

if TYPE_CHECKING:
    from agents.run_config import CallModelData, CallModelInputFilter, ModelInputData

    from ..billing.lifetimes import CacheMode
    from ..engine.session import Session
    from ..store import Store

FORMAT = "openai-responses"

_last: ContextVar[Turn | None] = ContextVar("ibidem_last_turn", default=None)
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
        checked_cache(cache, "a filter", instead, auto=False)
        self._seat = Seat(profile, session=session, store=store)
        self._after = after
        self._conversation = conversation

    async def __call__(self, data: CallModelData[Any]) -> ModelInputData:
        _last.set(None)
        given = data.model_data
        if self._after is not None:
            filtered = self._after(data)
            given = await filtered if inspect.isawaitable(filtered) else filtered
        if not safely(_whole, given.input, otherwise=False):
            return given
        named = self._conversation
        name = named if isinstance(named, str) else safely(named, data, otherwise="")
        turn = await self._seat.arewrite(FORMAT, given.input, model=_model(data), conversation=name)
        _last.set(turn)
        return given if turn.history is given.input else replace(given, input=turn.history)


def input_filter(data: CallModelData[Any] | str | None = None, /, **settings: Any) -> Any:
    """Rewrite the input of a model call, or return a filter with other settings if there is no input.

    `profile` (also as the first argument), `session` and `store` are those of `ibidem.Session`. `after` is another
    filter that runs first. It must not run later, because it could remove text that a marker refers to. `conversation`
    is the id of the conversation, or a function that returns it from the data of a call. Without it, conversations are
    recognized by their first messages.
    """
    if data is None or isinstance(data, str):
        return InputFilter(*([] if data is None else [data]), **settings)
    return _usual(data)


_usual = InputFilter()


class UsageHooks(RunHooks):
    """Hooks that report usage, which a filter does not see. Profiles that evict need them.

    Pass them to each run: `Runner.run(…, hooks=UsageHooks())`.
    """

    async def on_llm_end(self, context: Any, agent: Any, response: Any) -> None:
        with failing_open():
            turn, usage = _last.get(), response.usage
            if turn is not None:
                turn.answered(context=usage.input_tokens, cached=usage.input_tokens_details.cached_tokens)


def _model(data: CallModelData[Any]) -> str:
    named = getattr(data.agent, "model", None)
    named = getattr(named, "model", named)
    return named if isinstance(named, str) else ""


def _whole(items: list[Any]) -> bool:
    """Return True if every result has its call, no result is a duplicate, and the first texts are from the user.

    A missing call means that the provider stores the earlier history. The SDK removes duplicates, which would change
    the numbers of results. After a handoff, the first text may be a summary by the model.
    """
    named = [item for item in items if isinstance(item, dict) and "call_id" in item]
    calls = {item["call_id"] for item in named if "output" not in item}
    answered = [item["call_id"] for item in named if "output" in item]
    return has_words(items) and len(set(answered)) == len(answered) and calls.issuperset(answered)
