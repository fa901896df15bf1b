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
from ._litellm_cache import CACHE_PARAMS, add_breakpoints, has_cache_directives
from ._request_rewriter import PendingRequest, RequestRewriter, call_or_default, log_errors, missing_framework_error
from ._user_text import starts_with_user_text

try:
    import litellm
    from litellm.integrations.custom_logger import CustomLogger
except ModuleNotFoundError as error:
    raise missing_framework_error(error, "litellm", "litellm") from None

if TYPE_CHECKING:
    from ..billing.cache_ttl import CacheMode
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

UNCHANGED_RESULTS = frozenset({"openai", "azure", "anthropic"})
"""Providers that get every text of a result unchanged, in all types of calls."""
OBJECT_PROVIDERS = frozenset({"gemini", "vertex_ai", "vertex_ai_beta"})
"""Providers for which LiteLLM converts a result with JSON or an image data URL to an object."""
OBJECT_FORMAT, TRANSLATED_FORMAT = "gemini", "openai-chat"
"""The format in which results are always objects, and the format that LiteLLM translates to others."""
MODEL_PROVIDERS = {"claude": "anthropic"}
"""Models for which LiteLLM uses one provider's blocks, with every host of the model."""
OBJECT_PREFIXES = ("{", "[", "data:")
PLACEHOLDER = [{"type": "image_url"}]

POSITIONAL = ("model", "messages")
"""Positional arguments of `completion`."""
MAX_CALLS = 1000
"""Maximum number of calls that wait for usage. A stream that is not read to its end never reports usage."""


class LiteLLMCall(NamedTuple):
    """A call that waits for its usage."""

    type: str
    pending: PendingRequest
    has_directives: bool = False


class CallHistory(NamedTuple):
    """The history of a call, and a copy to compact, with placeholders for results that LiteLLM converts."""

    history: list[Any]
    compactable: list[Any]

    def merge_changes(self, pending: PendingRequest) -> list[Any]:
        """Return the history to send: rewritten, but with the original messages in place of placeholders.

        If messages were added or removed, placeholders cannot be matched, and the original history is sent.
        """
        if self.compactable is self.history or pending.history is self.compactable:
            return self.history if pending.history is self.compactable else pending.history
        if len(pending.history) != len(self.history):
            pending.report_rejection()
            return self.history
        triples = zip(self.history, self.compactable, pending.history, strict=True)
        return [new if before is old else old for old, before, new in triples]


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
        self._rewriter = RequestRewriter(profile, session=session, store=store, cache=cache)
        self._uses_cache = cache != "off"
        self._calls: OrderedDict[str, LiteLLMCall] = OrderedDict()
        self._lock = threading.Lock()

    async def async_pre_call_deployment_hook(self, kwargs: dict[str, Any], call_type: Any) -> dict[str, Any] | None:
        """Rewrite a call. LiteLLM runs this for every attempt, and again if it translates the call to another type."""
        with log_errors():
            type, call = str(getattr(call_type, "value", call_type)), str(kwargs.get("litellm_call_id") or "")
            key, format = HISTORIES.get(type, ("", ""))
            earlier_call = self._calls.get(call)
            if not isinstance(kwargs.get(key), list) or (earlier_call is not None and earlier_call.type != type):
                return None
            history = _find_call_history(kwargs[key], format, kwargs)
            if history is not None:
                pending = await self._rewriter.arewrite(format, history.compactable, **self._rewrite_arguments(kwargs))
                plain = {**kwargs, key: history.merge_changes(pending)}
                new_kwargs = self._with_cache_directives(plain, key, pending)
                if call:
                    self._await_usage(call, type, pending, pending.has_directives or new_kwargs is not plain)
                return new_kwargs
        return None

    def completion(self, *args: Any, **kwargs: Any) -> Any:
        """Call `litellm.completion` with the history rewritten, streamed or not."""
        arguments = {**dict(zip(POSITIONAL, args, strict=False)), **kwargs}
        unchanged_call: tuple[PendingRequest | None, dict[str, Any], bool] = (None, arguments, False)
        pending, new_arguments, has_directives = call_or_default(self._prepare_call, arguments, default=unchanged_call)
        if pending is not None and arguments.get("stream"):  # its usage is known only at the end of the stream
            call = arguments.get("litellm_call_id") or str(uuid.uuid4())
            usage_options = {
                "litellm_call_id": call,
                "success_callback": [*(arguments.get("success_callback") or ()), self],
            }
            arguments, new_arguments = {**arguments, **usage_options}, {**new_arguments, **usage_options}
            self._await_usage(call, "completion", pending)
        try:
            response = _call_litellm(args, new_arguments)
        except litellm.BadRequestError:
            if pending is None or not has_directives:
                raise
            response = _call_litellm(args, arguments)
            pending.report_rejection()  # because of our cache directives: the provider accepted the call without them
        if pending is not None and not arguments.get("stream"):
            with log_errors():
                if not response._hidden_params.get("cache_hit"):
                    pending.report_usage(**usage_from_call(response.usage))
        return response

    def _prepare_call(self, arguments: dict[str, Any]) -> tuple[PendingRequest | None, dict[str, Any], bool]:
        """Return the call to make, and whether it has cache directives of ours."""
        key, format = HISTORIES["completion"]
        messages = arguments.get(key)
        history = _find_call_history(messages, format, arguments) if isinstance(messages, list) else None
        if history is None:
            return None, arguments, False
        pending = self._rewriter.rewrite(format, history.compactable, **self._rewrite_arguments(arguments))
        plain = {**arguments, key: history.merge_changes(pending)}
        new_arguments = self._with_cache_directives(plain, key, pending)
        return pending, new_arguments, new_arguments is not plain

    def _with_cache_directives(self, call: dict[str, Any], key: str, pending: PendingRequest) -> dict[str, Any]:
        """Return a call with cache directives; the same object if none were added."""
        if not self._uses_cache or has_cache_directives(call, key):
            return call
        if pending.params:
            supported_params = (
                litellm.get_supported_openai_params(*litellm.get_llm_provider(str(call["model"]))[:2]) or ()
            )
            new_params = {
                name: value for name, value in pending.params.items() if name in call or name in supported_params
            }
            return {**call, **new_params} if new_params else call
        if pending.format == TRANSLATED_FORMAT and _provider_name(call) in MODEL_PROVIDERS.values():
            return call_or_default(add_breakpoints, call, pending, str(call["model"]), default=call)
        return call

    def _rewrite_arguments(self, kwargs: Mapping[str, Any]) -> dict[str, Any]:
        arguments: dict[str, Any] = {
            "model": str(kwargs.get("model") or ""),
            "conversation": str(kwargs.get("litellm_session_id") or ""),
        }
        if self._uses_cache:
            arguments["head"] = {name: kwargs[name] for name in CACHE_PARAMS if kwargs.get(name) is not None}
        return arguments

    async def async_log_success_event(
        self, kwargs: dict[str, Any], response_obj: Any, start_time: Any, end_time: Any
    ) -> None:
        self.log_success_event(kwargs, response_obj, start_time, end_time)

    def log_success_event(self, kwargs: dict[str, Any], response_obj: Any, start_time: Any, end_time: Any) -> None:
        """Report the usage of a call, unless the response is from LiteLLM's cache."""
        with log_errors():
            with self._lock:
                call = self._calls.pop(str(kwargs.get("litellm_call_id")), None)
            log_object = kwargs.get("standard_logging_object")
            if call is not None and log_object and not kwargs.get("cache_hit"):
                usage = (log_object.get("metadata") or {}).get("usage_object") or {}
                cached_tokens = (usage.get("prompt_tokens_details") or {}).get("cached_tokens")
                call.pending.report_usage(context=log_object.get("prompt_tokens") or None, cached=cached_tokens)

    async def async_log_failure_event(
        self, kwargs: dict[str, Any], response_obj: Any, start_time: Any, end_time: Any
    ) -> None:
        self.log_failure_event(kwargs, response_obj, start_time, end_time)

    def log_failure_event(self, kwargs: dict[str, Any], response_obj: Any, start_time: Any, end_time: Any) -> None:
        with log_errors():
            with self._lock:
                call = self._calls.pop(str(kwargs.get("litellm_call_id")), None)
            if (
                call is not None
                and call.has_directives
                and isinstance(kwargs.get("exception"), litellm.BadRequestError)
            ):
                self._rewriter.record_rejection(call.pending.outcome)

    def _await_usage(self, name: str, type: str, pending: PendingRequest, has_directives: bool = False) -> None:
        with self._lock:
            self._calls[name] = LiteLLMCall(type, _without_history(pending), has_directives)
            self._calls.move_to_end(name)
            if len(self._calls) > MAX_CALLS:
                self._calls.popitem(last=False)


def usage_from_call(usage: Any) -> dict[str, int | None]:
    """Return the token counts in a response of LiteLLM, which have different names in each API."""
    details = getattr(usage, "prompt_tokens_details", None) or getattr(usage, "input_tokens_details", None)
    context = getattr(usage, "prompt_tokens", None) or getattr(usage, "input_tokens", None)
    return {"context": context, "cached": getattr(details, "cached_tokens", None)}


def _without_history(pending: PendingRequest) -> PendingRequest:
    """Return a copy without the history, to report usage later. Some calls never report it, so memory must be small."""
    outcome = pending.outcome
    conversation = outcome.conversation if outcome.follows_counts else None
    return PendingRequest(
        pending._rewriter,
        RewriteResult(result=outcome.result, conversation=conversation, position=outcome.position),
        [],
    )


def call_history(history: list[Any], format: str, kwargs: Mapping[str, Any]) -> CallHistory:
    """Return the history to compact, for adapters that call LiteLLM. It is empty if its translation is unknown."""
    return call_or_default(_find_call_history, history, format, kwargs, default=None) or CallHistory(history, [])


def _find_call_history(history: list[Any], format: str, kwargs: Mapping[str, Any]) -> CallHistory | None:
    """Return the history to compact; None if it is unknown how LiteLLM translates it."""
    provider = _provider_name(kwargs)
    if not starts_with_user_text(history):
        return None
    if provider in UNCHANGED_RESULTS or (format == OBJECT_FORMAT and provider in OBJECT_PROVIDERS):
        return CallHistory(history, history)
    return (
        CallHistory(history, [_mask_result(each, provider) for each in history])
        if format == TRANSLATED_FORMAT
        else None
    )


def _provider_name(kwargs: Mapping[str, Any]) -> str:
    model = str(kwargs.get("model") or "")
    if provider := next((each for family, each in MODEL_PROVIDERS.items() if family in model), ""):
        return provider
    options = {name: kwargs.get(name) for name in ("custom_llm_provider", "api_base")}
    return str(litellm.get_llm_provider(model, **options)[1])


def _mask_result(message: Any, provider: str) -> Any:
    """Replace a result by a placeholder if LiteLLM joins its texts or converts it to an object."""
    if not isinstance(message, Mapping) or message.get("role") != "tool":
        return message
    content = message.get("content")
    texts = [content] if isinstance(content, str) else [part.get("text", "") for part in content or ()]
    is_converted = provider in OBJECT_PROVIDERS and "".join(texts).lstrip().startswith(OBJECT_PREFIXES)
    return {**message, "content": PLACEHOLDER} if is_converted or len([*filter(None, texts)]) > 1 else message


def _call_litellm(args: tuple[Any, ...], arguments: dict[str, Any]) -> Any:
    """Call `litellm.completion` with the same positional arguments as the caller."""
    positional_names = POSITIONAL[: len(args)]
    rest = {name: value for name, value in arguments.items() if name not in positional_names}
    return litellm.completion(*(arguments[name] for name in positional_names), *args[len(POSITIONAL) :], **rest)


callback = IbidemCallback()
"""Callback for the settings of LiteLLM's proxy, which refer to an object by name."""


@wraps(litellm.completion)
def completion(*args: Any, **kwargs: Any) -> Any:
    return callback.completion(*args, **kwargs)
