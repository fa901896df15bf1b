"""LiteLLM: a callback for its async calls, its `Router` and its proxy, and `completion` for sync code.

>>> litellm.callbacks.append(IbidemCallback())  # acompletion, aresponses, anthropic.messages, Router

>>> from ibidem.adapters.litellm import completion  # in place of litellm.completion, whose hooks change nothing

In the settings of its proxy: `litellm_settings: {callbacks: ibidem.adapters.litellm.callback}`.

With `cache="auto"`, calls for Claude get marks for its cache, whoever serves it, and calls for OpenAI's models a
`prompt_cache_key`, unless they have something of the kind. Where that is refused, `completion` asks again without; of
an async call LiteLLM has the refusal already, and later calls of that conversation get no marks.
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
"""What a call is made with, by its type: the argument that has the history, and its format."""

AS_GIVEN = frozenset({"openai", "azure", "anthropic"})
"""Providers that get every text of a result as it is, whichever call it comes from."""
OBJECTS = frozenset({"gemini", "vertex_ai", "vertex_ai_beta"})
"""Providers for which a result that is JSON, or a picture in a text, is made an object."""
OWN_OBJECTS, TRANSLATED = "gemini", "openai-chat"
"""The format in which a result is an object anyway, and the one from which LiteLLM makes others."""
FAMILIES = {"claude": "anthropic"}
"""Models that get the blocks of one provider, whoever serves them."""
WRITTEN_OUT = ("{", "[", "data:")
NO_TEXT = [{"type": "image_url"}]

POSITIONAL = ("model", "messages")
"""What `completion` may be given by its place."""
MAX_CALLS = 1000
"""Calls on their way whose usage is waited for; of a stream that nobody reads to its end, nothing is heard."""


class Call(NamedTuple):
    type: str
    turn: Turn
    marked: bool = False


class Given(NamedTuple):
    """The history of a call, and what of it is compacted: results that the wire has otherwise are no text there."""

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
    """Rewrites what LiteLLM sends. One serves a whole program; arguments that were passed stay as they are.

    Conversations are named by `litellm_session_id`, and else recognised. `session` is for one conversation by hand,
    `store` keeps what a profile lets go, `cache` says what the provider is asked to keep (docs/caching.md).
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
        """Runs for every attempt, and once more for the call of another kind that some are translated to."""
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
        """`litellm.completion`, streams and all, with the history rewritten."""
        named = {**dict(zip(POSITIONAL, args, strict=False)), **kwargs}
        as_it_is: tuple[Turn | None, dict[str, Any], bool] = (None, named, False)
        turn, sent, marked = safely(self._prepared, named, otherwise=as_it_is)
        if turn is not None and named.get("stream"):  # what it cost is known when it was read to its end
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
            turn.refused()  # for its marks: it is taken without
        if turn is not None and not named.get("stream"):
            with failing_open():
                if not response._hidden_params.get("cache_hit"):
                    turn.answered(**counted(response.usage))
        return response

    def _prepared(self, named: dict[str, Any]) -> tuple[Turn | None, dict[str, Any], bool]:
        """A call as it is to be made, and whether there are marks on it."""
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
        """A call with what it asks of the provider's cache beside its history; itself if that is nothing."""
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
        """What the provider counted, if it was the provider that answered and not LiteLLM's cache."""
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
    """What LiteLLM tells of a call. Chat completions and responses have other names for it."""
    details = getattr(usage, "prompt_tokens_details", None) or getattr(usage, "input_tokens_details", None)
    context = getattr(usage, "prompt_tokens", None) or getattr(usage, "input_tokens", None)
    return {"context": context, "cached": getattr(details, "cached_tokens", None)}


def _waiting(turn: Turn) -> Turn:
    """What is needed of a request to tell what it cost, without its text: not every call is heard of again."""
    outcome = turn.outcome
    conversation = outcome.conversation if outcome.follows_counts else None
    return Turn(turn._seat, RewriteResult(result=outcome.result, conversation=conversation, place=outcome.place), [])


def shown(history: list[Any], format: str, kwargs: Mapping[str, Any]) -> Given:
    """For those who call LiteLLM themselves. Nothing is shown where it is not known how it is translated."""
    return safely(_given, history, format, kwargs, otherwise=None) or Given(history, [])


def _given(history: list[Any], format: str, kwargs: Mapping[str, Any]) -> Given | None:
    """None where it is not known how LiteLLM translates it."""
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
    """Several texts of a result are joined by most, and read as JSON by some."""
    if not isinstance(message, Mapping) or message.get("role") != "tool":
        return message
    content = message.get("content")
    texts = [content] if isinstance(content, str) else [part.get("text", "") for part in content or ()]
    otherwise = provider in OBJECTS and "".join(texts).lstrip().startswith(WRITTEN_OUT)
    return {**message, "content": NO_TEXT} if otherwise or len([*filter(None, texts)]) > 1 else message


def _called(args: tuple[Any, ...], named: dict[str, Any]) -> Any:
    """As it was called: some pass what it is made with by its place."""
    placed = POSITIONAL[: len(args)]
    rest = {name: value for name, value in named.items() if name not in placed}
    return litellm.completion(*(named[name] for name in placed), *args[len(POSITIONAL) :], **rest)


callback = IbidemCallback()
"""For the settings of LiteLLM's proxy, which name an object."""


@wraps(litellm.completion)
def completion(*args: Any, **kwargs: Any) -> Any:
    return callback.completion(*args, **kwargs)
