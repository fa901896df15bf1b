"""OpenAI Agents SDK: a filter for what is sent to the model.

    RunConfig(call_model_input_filter=input_filter)
    RunConfig(call_model_input_filter=input_filter(profile="recoverable", after=ToolOutputTrimmer()))

The SDK asks it before every model call, with the items of the request in the Responses format, whichever model they go
to. Sessions, results and traces of the run keep the originals: the filter gives back a list of its own.
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
"""Of this task: the call that it makes next is the one that was rewritten last."""


class InputFilter:
    """A filter with settings, for any number of runs at the same time. `input_filter(…)` makes one."""

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
    """Rewrites the input of a model call; without one, a filter with other settings.

    `profile` (which may stand first), `session` and `store` are those of `ibidem.Session`. `after` is another filter,
    whose output is then rewritten: it is never asked after us, since it could cut what a marker refers to.
    `conversation` names the conversation, or is a function that reads the name off the data of a call; without it, it
    is recognised.
    """
    if data is None or isinstance(data, str):
        return InputFilter(*([] if data is None else [data]), **settings)
    return _usual(data)


_usual = InputFilter()


class UsageHooks(RunHooks):
    """For profiles that go by what the provider counts: `Runner.run(…, hooks=UsageHooks())`. A filter sees no usage."""

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
    """Whether each result stands with its call, and once: else the provider keeps what came before, or the SDK will
    take out what is there twice, and results are counted otherwise than here. And whether the user says something
    first, as markers go by that: a handoff may leave a summary of the model's alone."""
    named = [item for item in items if isinstance(item, dict) and "call_id" in item]
    calls = {item["call_id"] for item in named if "output" not in item}
    answered = [item["call_id"] for item in named if "output" in item]
    return has_words(items) and len(set(answered)) == len(answered) and calls.issuperset(answered)
