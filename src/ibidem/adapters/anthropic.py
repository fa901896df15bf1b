"""Adapter for Anthropic's SDK: a middleware that rewrites messages before a request is signed, for all its clients.

>>> client = AnthropicBedrock(middleware=[middleware])
>>> client = AsyncAnthropic(middleware=[middleware("recoverable")])

Use it for Amazon Bedrock, where requests are signed with their body, so a transport below the SDK cannot change them.
For Anthropic's own API and for Vertex, the transport in `ibidem.adapters.httpx` does the same. Usage is read from the
SDK's response objects.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any, Self

from ..providers.rejections import REJECTION_STATUSES
from ..providers.routes import client_session_name
from ._request_rewriter import PendingRequest, RequestRewriter, call_or_default, log_errors, missing_framework_error

try:
    import anthropic
except ModuleNotFoundError as error:
    raise missing_framework_error(error, "anthropic", "'anthropic>=2.8'") from error
if not hasattr(anthropic, "Middleware"):
    raise ModuleNotFoundError("ibidem.adapters.anthropic needs a later anthropic: pip install 'anthropic>=2.8'")

if TYPE_CHECKING:
    from ..billing.cache_ttl import CacheMode
    from ..engine.session import Session
    from ..store import Store

__all__ = ["Middleware", "middleware"]

FORMAT = "anthropic"


class Middleware(anthropic.Middleware):
    """Middleware for any number of clients.

    Conversations are recognized by their first messages, or by a header such as `x-session-id`. `cache="auto"` adds
    cache breakpoints to requests without them (docs/caching.md).
    """

    def __init__(
        self,
        profile: str = "lossless",
        *,
        session: Session | None = None,
        store: Store | None = None,
        cache: CacheMode = "off",
    ) -> None:
        self._rewriter = RequestRewriter(profile, session=session, store=store, cache=cache)

    def __call__(self, profile: str = "lossless", **options: Any) -> Middleware:
        """Return another middleware with these options."""
        return Middleware(profile, **options)

    def handle(self, request: Any, call_next: Any) -> Any:
        """Send a request rewritten. If the provider rejects it, send the original."""
        arguments = call_or_default(_rewrite_arguments, request, default=None)
        if arguments is None:
            return call_next(request)
        pending = self._rewriter.rewrite(FORMAT, arguments.pop("messages"), **arguments)
        response = call_next(call_or_default(_rewritten_request, request, pending, default=request))
        if pending.is_changed and response.status_code in REJECTION_STATUSES:
            response.close()
            response = call_next(request)
            _report_if_rejected(pending, response)
        with log_errors():
            if _is_read(request, response):
                _watch_usage(pending, response.parse())
        return response

    async def handle_async(self, request: Any, call_next: Any) -> Any:
        """Send a request like `handle`, for async clients."""
        arguments = call_or_default(_rewrite_arguments, request, default=None)
        if arguments is None:
            return await call_next(request)
        pending = await self._rewriter.arewrite(FORMAT, arguments.pop("messages"), **arguments)
        response = await call_next(call_or_default(_rewritten_request, request, pending, default=request))
        if pending.is_changed and response.status_code in REJECTION_STATUSES:
            await response.close()
            response = await call_next(request)
            _report_if_rejected(pending, response)
        with log_errors():
            if _is_read(request, response):
                _watch_usage(pending, await response.parse())
        return response


middleware = Middleware()


def _rewrite_arguments(request: Any) -> dict[str, Any] | None:
    """Return the arguments for `RequestRewriter.rewrite`; None if the request has no conversation."""
    body, extra = request.json, request.options.extra_json or {}
    path = request.url.partition("?")[0]
    if request.method.lower() != "post" or not path.endswith("/v1/messages") or "messages" in extra:
        return None
    if not isinstance(body, dict) or not isinstance(body.get("messages"), list):
        return None
    headers = [(name, value) for name, value in request.headers.items() if isinstance(value, str)]
    head = {key: value for key, value in body.items() if key not in ("messages", "model")}
    names = {"model": str(body.get("model", "")), "conversation": client_session_name(headers)}
    return {"messages": body["messages"], "head": head, **names}


def _rewritten_request(request: Any, pending: PendingRequest) -> Any:
    """Return the rewritten request. `APIRequest.copy` is not used, because it deep-copies the whole history."""
    if pending.history is request.json["messages"] and not pending.params:
        return request
    new_request = copy.copy(request)
    body = {**request.json, **pending.params, "messages": pending.history}
    new_request.options = request.options.model_copy(update={"json_data": body})
    return new_request


def _report_if_rejected(pending: PendingRequest, response: Any) -> None:
    """If the provider accepts the original, report that it rejected our changes. Otherwise the original is invalid."""
    if response.http_response.is_success:
        pending.report_rejection()


# ── usage ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def _is_read(request: Any, response: Any) -> bool:
    """Return True if the SDK reads the response itself. With `with_streaming_response`, the caller does."""
    raw = {name.lower(): value for name, value in request.headers.items()}.get("x-stainless-raw-response")
    return raw != "stream" and bool(response.http_response.is_success)


def _watch_usage(pending: PendingRequest, parsed: Any) -> None:
    if not isinstance(parsed, anthropic.Stream | anthropic.AsyncStream):
        StreamUsage(pending).report_counts(parsed.usage)
        return
    stream: Any = parsed
    stream._iterator = UsageEventStream(stream._iterator, StreamUsage(pending))  # the SDK has no hook for stream events


class StreamUsage:
    """Usage of one response: the last reported count of each kind of input tokens."""

    def __init__(self, pending: PendingRequest) -> None:
        self._pending = pending
        self._input_tokens = self._read_tokens = self._write_tokens = 0

    def add_event(self, event: Any) -> None:
        with log_errors():
            if event.type == "message_start":
                self._update_counts(event.message.usage)
            elif event.type == "message_delta":
                self.report_counts(event.usage)

    def report_counts(self, usage: Any) -> None:
        self._update_counts(usage)
        self._pending.report_usage(
            context=self._input_tokens + self._read_tokens + self._write_tokens, cached=self._read_tokens
        )

    def _update_counts(self, usage: Any) -> None:
        self._input_tokens = getattr(usage, "input_tokens", None) or self._input_tokens
        self._read_tokens = getattr(usage, "cache_read_input_tokens", None) or self._read_tokens
        self._write_tokens = getattr(usage, "cache_creation_input_tokens", None) or self._write_tokens


class UsageEventStream:
    """Iterator over stream events that reads usage. Not a generator, because a generator must be closed."""

    def __init__(self, events: Any, count: StreamUsage) -> None:
        self._events, self._count = events, count

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:
        event = next(self._events)
        self._count.add_event(event)
        return event

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        event = await anext(self._events)
        self._count.add_event(event)
        return event
