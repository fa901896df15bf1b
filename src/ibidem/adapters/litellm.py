"""LiteLLM: a callback for its async calls, its `Router` and its proxy, and `completion` for sync code.

>>> litellm.callbacks.append(IbidemCallback())  # acompletion, aresponses, anthropic.messages, Router

>>> from ibidem.adapters.litellm import completion  # in place of litellm.completion, whose hooks change nothing

In the settings of its proxy: `litellm_settings: {callbacks: ibidem.adapters.litellm.callback}`.
"""

from __future__ import annotations

import threading
import uuid
from collections import OrderedDict
from collections.abc import Mapping
from functools import wraps
from typing import TYPE_CHECKING, Any, NamedTuple

from ._seat import Seat, Turn, failing_open, missing

try:
    import litellm
    from litellm.integrations.custom_logger import CustomLogger
except ModuleNotFoundError as error:
    raise missing(error, "litellm", "litellm") from None

if TYPE_CHECKING:
    from ..engine.session import Session
    from ..store import Store

HISTORIES = {
    "completion": ("messages", "openai-chat"),
    "acompletion": ("messages", "openai-chat"),
    "anthropic_messages": ("messages", "anthropic"),
    "responses": ("input", "openai-responses"),
    "aresponses": ("input", "openai-responses"),
    "agenerate_content": ("contents", "gemini"),
    "agenerate_content_stream": ("contents", "gemini"),
}
"""What a call is made with, by its type: the argument that has the history, and its format."""

MAX_CALLS = 1000
"""Calls on their way whose usage is waited for; of one that fails, nothing is heard."""


class Call(NamedTuple):
    type: str
    turn: Turn


class IbidemCallback(CustomLogger):
    """Rewrites what LiteLLM sends. One serves a whole program; arguments that were passed stay as they are.

    Conversations are named by `litellm_session_id`, and else recognised. `session` is for one conversation by hand,
    `store` keeps what a profile lets go.
    """

    def __init__(
        self, profile: str = "lossless", *, session: Session | None = None, store: Store | None = None
    ) -> None:
        super().__init__()
        self._seat = Seat(profile, session=session, store=store)
        self._calls: OrderedDict[str, Call] = OrderedDict()
        self._lock = threading.Lock()

    async def async_pre_call_deployment_hook(self, kwargs: dict[str, Any], call_type: Any) -> dict[str, Any] | None:
        """Runs for every attempt, and once more for the call of another kind that some are translated to."""
        with failing_open():
            type, call = str(getattr(call_type, "value", call_type)), str(kwargs.get("litellm_call_id") or "")
            key, format = HISTORIES.get(type, ("", ""))
            known = self._calls.get(call)
            if isinstance(kwargs.get(key), list) and (known is None or known.type == type):
                turn = await self._seat.arewrite(format, kwargs[key], **_named(kwargs))
                if call:
                    self._expect(call, Call(type, turn))
                return {**kwargs, key: turn.history}
        return None

    def completion(self, *args: Any, **kwargs: Any) -> Any:
        """`litellm.completion`, streams and all, with the history rewritten."""
        turn: Turn | None = None
        with failing_open():
            named = _named({**kwargs, "model": args[0]} if args else kwargs)
            messages = args[1] if len(args) > 1 else kwargs.get("messages")
            if isinstance(messages, list):
                turn = self._seat.rewrite(HISTORIES["completion"][1], messages, **named)
                if len(args) > 1:
                    args = (args[0], turn.history, *args[2:])
                else:
                    kwargs["messages"] = turn.history
        if turn is not None and kwargs.get("stream"):  # what it cost is known when it was read to its end
            call = kwargs.setdefault("litellm_call_id", str(uuid.uuid4()))
            kwargs["success_callback"] = [*(kwargs.get("success_callback") or ()), self]
            self._expect(call, Call("completion", turn))
        response = litellm.completion(*args, **kwargs)
        if turn is not None and not kwargs.get("stream"):
            with failing_open():
                if not response._hidden_params.get("cache_hit"):
                    turn.answered(**counted(response.usage))
        return response

    async def async_log_success_event(
        self, kwargs: dict[str, Any], response_obj: Any, start_time: Any, end_time: Any
    ) -> None:
        self.log_success_event(kwargs, response_obj, start_time, end_time)

    def log_success_event(self, kwargs: dict[str, Any], response_obj: Any, start_time: Any, end_time: Any) -> None:
        """What the provider counted, if it was the provider that answered and not LiteLLM's cache."""
        with failing_open():
            with self._lock:
                call = self._calls.pop(str(kwargs.get("litellm_call_id")), None)
            told = kwargs.get("standard_logging_object")
            if call is not None and told and not kwargs.get("cache_hit"):
                usage = (told.get("metadata") or {}).get("usage_object") or {}
                cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens")
                call.turn.answered(context=told.get("prompt_tokens") or None, cached=cached)

    def _expect(self, name: str, call: Call) -> None:
        with self._lock:
            self._calls[name] = call
            self._calls.move_to_end(name)
            if len(self._calls) > MAX_CALLS:
                self._calls.popitem(last=False)


def counted(usage: Any) -> dict[str, int | None]:
    """What LiteLLM tells of a call. Chat completions and responses have other names for it."""
    details = getattr(usage, "prompt_tokens_details", None) or getattr(usage, "input_tokens_details", None)
    context = getattr(usage, "prompt_tokens", None) or getattr(usage, "input_tokens", None)
    return {"context": context, "cached": getattr(details, "cached_tokens", None)}


def _named(kwargs: Mapping[str, Any]) -> dict[str, Any]:
    return {"model": str(kwargs.get("model") or ""), "conversation": str(kwargs.get("litellm_session_id") or "")}


callback = IbidemCallback()
"""For the settings of LiteLLM's proxy, which name an object."""


@wraps(litellm.completion)
def completion(*args: Any, **kwargs: Any) -> Any:
    return callback.completion(*args, **kwargs)
