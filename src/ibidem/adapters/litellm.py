"""Adapter for LiteLLM: a callback for async calls, `Router` and LiteLLM's proxy, and `completion` for sync code.

>>> litellm.callbacks.append(IbidemCallback())  # acompletion, aresponses, anthropic.messages, Router

>>> from ibidem.adapters.litellm import completion  # hooks cannot change litellm.completion

In the settings of its proxy: `litellm_settings: {callbacks: ibidem.adapters.litellm.callback}`.

With `cache="auto"`, calls without cache directives get them: breakpoints for Claude, from any provider, and a
`prompt_cache_key` for OpenAI's models. If a provider rejects that, `completion` sends the call again without them. An
async call is not sent again, but later calls of the conversation get no cache directives.
"""

from __future__ import annotations

import threading
import uuid
from collections import OrderedDict
from collections.abc import Mapping
from functools import wraps
from typing import TYPE_CHECKING, Any, NamedTuple

from ..live import RewriteResult
from ._litellm import HEAD, asks, marked_for_claude
from ._seat import Seat, Turn, failing_open, missing, safely
from ._words import has_words

try:
    import litellm
    from litellm.integrations.custom_logger import CustomLogger
except ModuleNotFoundError as error:
    raise missing(error, "litellm", "litellm") from None

if TYPE_CHECKING:
    from ..billing.lifetimes import CacheMode
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
"""By type of call: the argument with the history, and its wire format."""

AS_GIVEN = frozenset({"openai", "azure", "anthropic"})
"""Providers that get every text of a result unchanged, in all types of calls."""
OBJECTS = frozenset({"gemini", "vertex_ai", "vertex_ai_beta"})
"""Providers for which LiteLLM converts a result with JSON or an image data URL to an object."""
OWN_OBJECTS, TRANSLATED = "gemini", "openai-chat"
"""The format in which results are always objects, and the format that LiteLLM translates to others."""
FAMILIES = {"claude": "anthropic"}
"""Models for which LiteLLM uses one provider's blocks, with every host of the model."""
WRITTEN_OUT = ("{", "[", "data:")
NO_TEXT = [{"type": "image_url"}]

POSITIONAL = ("model", "messages")
"""Positional arguments of `completion`."""
MAX_CALLS = 1000
"""Maximum number of calls that wait for usage. A stream that is not read to its end never reports usage."""


class Call(NamedTuple):
    """A call that waits for its usage."""

    type: str
    turn: Turn
    marked: bool = False


class Given(NamedTuple):
    """The history of a call, and a copy to compact, with placeholders for results that LiteLLM converts."""

    history: list[Any]
    shown: list[Any]

    def rewritten(self, turn: Turn) -> list[Any]:
        if self.shown is self.history or turn.history is self.shown:
            return self.history if turn.history is self.shown else turn.history
        if len(turn.history) != len(self.history):
            turn.refused()
            return self.history
        every = zip(self.history, self.shown, turn.history, strict=True)
        return [new if shown is old else old for old, shown, new in every]


class IbidemCallback(CustomLogger):
    """Callback that rewrites the requests of LiteLLM. One object serves a whole program. Arguments are not modified.

    Conversations are recognized by `litellm_session_id`, or else by their first messages. With `session`, all requests
    belong to one conversation. `store` is for the originals of evicted text. `cache` selects prompt caching
    (docs/caching.md).
    """

    def __init__(
        self,
        profile: str = "lossless",
        *,
        session: Session | None = None,
        store: Store | None = None,
        cache: CacheMode = "off",
    ) -> None:
        super().__init__()
        self._seat = Seat(profile, session=session, store=store, cache=cache)
        self._caches = cache != "off"
        self._calls: OrderedDict[str, Call] = OrderedDict()
        self._lock = threading.Lock()

    async def async_pre_call_deployment_hook(self, kwargs: dict[str, Any], call_type: Any) -> dict[str, Any] | None:
        """Rewrite a call. LiteLLM runs this for every attempt, and again if it translates the call to another type."""
        with failing_open():
            type, call = str(getattr(call_type, "value", call_type)), str(kwargs.get("litellm_call_id") or "")
            key, format = HISTORIES.get(type, ("", ""))
            known = self._calls.get(call)
            if not isinstance(kwargs.get(key), list) or (known is not None and known.type != type):
                return None
            given = _given(kwargs[key], format, kwargs)
            if given is not None:
                turn = await self._seat.arewrite(format, given.shown, **self._named(kwargs))
                plain = {**kwargs, key: given.rewritten(turn)}
                sent = self._marked(plain, key, turn)
                if call:
                    self._expect(call, type, turn, turn.marked or sent is not plain)
                return sent
        return None

    def completion(self, *args: Any, **kwargs: Any) -> Any:
        """Call `litellm.completion` with the history rewritten, streamed or not."""
        named = {**dict(zip(POSITIONAL, args, strict=False)), **kwargs}
        as_it_is: tuple[Turn | None, dict[str, Any], bool] = (None, named, False)
        turn, sent, marked = safely(self._prepared, named, otherwise=as_it_is)
        if turn is not None and named.get("stream"):  # its usage is known only at the end of the stream
            call = named.get("litellm_call_id") or str(uuid.uuid4())
            heard = {"litellm_call_id": call, "success_callback": [*(named.get("success_callback") or ()), self]}
            named, sent = {**named, **heard}, {**sent, **heard}
            self._expect(call, "completion", turn)
        try:
            response = _called(args, sent)
        except litellm.BadRequestError:
            if turn is None or not marked:
                raise
            response = _called(args, named)
            turn.refused()  # because of our cache directives: the provider accepted the call without them
        if turn is not None and not named.get("stream"):
            with failing_open():
                if not response._hidden_params.get("cache_hit"):
                    turn.answered(**counted(response.usage))
        return response

    def _prepared(self, named: dict[str, Any]) -> tuple[Turn | None, dict[str, Any], bool]:
        """Return the call to make, and whether it has cache directives of ours."""
        key, format = HISTORIES["completion"]
        messages = named.get(key)
        given = _given(messages, format, named) if isinstance(messages, list) else None
        if given is None:
            return None, named, False
        turn = self._seat.rewrite(format, given.shown, **self._named(named))
        plain = {**named, key: given.rewritten(turn)}
        sent = self._marked(plain, key, turn)
        return turn, sent, sent is not plain

    def _marked(self, call: dict[str, Any], key: str, turn: Turn) -> dict[str, Any]:
        """Return a call with cache directives; the same object if none were added."""
        if not self._caches or asks(call, key):
            return call
        if turn.head:
            known = litellm.get_supported_openai_params(*litellm.get_llm_provider(str(call["model"]))[:2]) or ()
            taken = {name: value for name, value in turn.head.items() if name in call or name in known}
            return {**call, **taken} if taken else call
        if turn.format == TRANSLATED and _provider(call) in FAMILIES.values():
            return safely(marked_for_claude, call, turn, str(call["model"]), otherwise=call)
        return call

    def _named(self, kwargs: Mapping[str, Any]) -> dict[str, Any]:
        named: dict[str, Any] = {
            "model": str(kwargs.get("model") or ""),
            "conversation": str(kwargs.get("litellm_session_id") or ""),
        }
        if self._caches:
            named["head"] = {name: kwargs[name] for name in HEAD if kwargs.get(name) is not None}
        return named

    async def async_log_success_event(
        self, kwargs: dict[str, Any], response_obj: Any, start_time: Any, end_time: Any
    ) -> None:
        self.log_success_event(kwargs, response_obj, start_time, end_time)

    def log_success_event(self, kwargs: dict[str, Any], response_obj: Any, start_time: Any, end_time: Any) -> None:
        """Report the usage of a call, unless the response is from LiteLLM's cache."""
        with failing_open():
            with self._lock:
                call = self._calls.pop(str(kwargs.get("litellm_call_id")), None)
            told = kwargs.get("standard_logging_object")
            if call is not None and told and not kwargs.get("cache_hit"):
                usage = (told.get("metadata") or {}).get("usage_object") or {}
                cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens")
                call.turn.answered(context=told.get("prompt_tokens") or None, cached=cached)

    async def async_log_failure_event(
        self, kwargs: dict[str, Any], response_obj: Any, start_time: Any, end_time: Any
    ) -> None:
        self.log_failure_event(kwargs, response_obj, start_time, end_time)

    def log_failure_event(self, kwargs: dict[str, Any], response_obj: Any, start_time: Any, end_time: Any) -> None:
        with failing_open():
            with self._lock:
                call = self._calls.pop(str(kwargs.get("litellm_call_id")), None)
            if call is not None and call.marked and isinstance(kwargs.get("exception"), litellm.BadRequestError):
                self._seat.refuse(call.turn.outcome)

    def _expect(self, name: str, type: str, turn: Turn, marked: bool = False) -> None:
        with self._lock:
            self._calls[name] = Call(type, _waiting(turn), marked)
            self._calls.move_to_end(name)
            if len(self._calls) > MAX_CALLS:
                self._calls.popitem(last=False)


def counted(usage: Any) -> dict[str, int | None]:
    """Return the token counts in a response of LiteLLM, which have different names in each API."""
    details = getattr(usage, "prompt_tokens_details", None) or getattr(usage, "input_tokens_details", None)
    context = getattr(usage, "prompt_tokens", None) or getattr(usage, "input_tokens", None)
    return {"context": context, "cached": getattr(details, "cached_tokens", None)}


def _waiting(turn: Turn) -> Turn:
    """Return a copy without the history, to report usage later. Some calls never report it, so memory must be small."""
    outcome = turn.outcome
    conversation = outcome.conversation if outcome.follows_counts else None
    return Turn(turn._seat, RewriteResult(result=outcome.result, conversation=conversation, place=outcome.place), [])


def shown(history: list[Any], format: str, kwargs: Mapping[str, Any]) -> Given:
    """Return the history to compact, for adapters that call LiteLLM. It is empty if its translation is unknown."""
    return safely(_given, history, format, kwargs, otherwise=None) or Given(history, [])


def _given(history: list[Any], format: str, kwargs: Mapping[str, Any]) -> Given | None:
    """Return the history to compact; None if it is unknown how LiteLLM translates it."""
    provider = _provider(kwargs)
    if not has_words(history):
        return None
    if provider in AS_GIVEN or (format == OWN_OBJECTS and provider in OBJECTS):
        return Given(history, history)
    return Given(history, [_shown(each, provider) for each in history]) if format == TRANSLATED else None


def _provider(kwargs: Mapping[str, Any]) -> str:
    model = str(kwargs.get("model") or "")
    if served := next((each for family, each in FAMILIES.items() if family in model), ""):
        return served
    options = {name: kwargs.get(name) for name in ("custom_llm_provider", "api_base")}
    return str(litellm.get_llm_provider(model, **options)[1])


def _shown(message: Any, provider: str) -> Any:
    """Replace a result by a placeholder if LiteLLM joins its texts or converts it to an object."""
    if not isinstance(message, Mapping) or message.get("role") != "tool":
        return message
    content = message.get("content")
    texts = [content] if isinstance(content, str) else [part.get("text", "") for part in content or ()]
    otherwise = provider in OBJECTS and "".join(texts).lstrip().startswith(WRITTEN_OUT)
    return {**message, "content": NO_TEXT} if otherwise or len([*filter(None, texts)]) > 1 else message


def _called(args: tuple[Any, ...], named: dict[str, Any]) -> Any:
    """Call `litellm.completion` with the same positional arguments as the caller."""
    placed = POSITIONAL[: len(args)]
    rest = {name: value for name, value in named.items() if name not in placed}
    return litellm.completion(*(named[name] for name in placed), *args[len(POSITIONAL) :], **rest)


callback = IbidemCallback()
"""Callback for the settings of LiteLLM's proxy, which refer to an object by name."""


@wraps(litellm.completion)
def completion(*args: Any, **kwargs: Any) -> Any:
    return callback.completion(*args, **kwargs)
