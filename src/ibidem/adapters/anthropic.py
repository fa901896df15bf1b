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

from ..providers.rejections import REFUSAL_STATUSES
from ..providers.routes import client_session
from ._seat import Seat, Turn, failing_open, missing, safely

try:
    import anthropic
except ModuleNotFoundError as error:
    raise missing(error, "anthropic", "'anthropic>=2.8'") from error
if not hasattr(anthropic, "Middleware"):
    raise ModuleNotFoundError("ibidem.adapters.anthropic needs a later anthropic: pip install 'anthropic>=2.8'")

if TYPE_CHECKING:
    from ..billing.lifetimes import CacheMode
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
        self._seat = Seat(profile, session=session, store=store, cache=cache)

    def __call__(self, profile: str = "lossless", **options: Any) -> Middleware:
        """Return another middleware with these options."""
        return Middleware(profile, **options)

    def handle(self, request: Any, call_next: Any) -> Any:
        """Send a request rewritten. If the provider rejects it, send the original."""
        given = safely(_given, request, otherwise=None)
        if given is None:
            return call_next(request)
        turn = self._seat.rewrite(FORMAT, given.pop("messages"), **given)
        response = call_next(safely(_with, request, turn, otherwise=request))
        if turn.changed and response.status_code in REFUSAL_STATUSES:
            response.close()
            response = call_next(request)
            _settle(turn, response)
        with failing_open():
            if _is_read(request, response):
                _watch(turn, response.parse())
        return response

    async def handle_async(self, request: Any, call_next: Any) -> Any:
        """Send a request like `handle`, for async clients."""
        given = safely(_given, request, otherwise=None)
        if given is None:
            return await call_next(request)
        turn = await self._seat.arewrite(FORMAT, given.pop("messages"), **given)
        response = await call_next(safely(_with, request, turn, otherwise=request))
        if turn.changed and response.status_code in REFUSAL_STATUSES:
            await response.close()
            response = await call_next(request)
            _settle(turn, response)
        with failing_open():
            if _is_read(request, response):
                _watch(turn, await response.parse())
        return response


middleware = Middleware()


def _given(request: Any) -> dict[str, Any] | None:
    """Return the arguments for `RequestRewriter.rewrite`; None if the request has no conversation."""
    body, extra = request.json, request.options.extra_json or {}
    path = request.url.partition("?")[0]
    if request.method.lower() != "post" or not path.endswith("/v1/messages") or "messages" in extra:
        return None
    if not isinstance(body, dict) or not isinstance(body.get("messages"), list):
        return None
    headers = [(name, value) for name, value in request.headers.items() if isinstance(value, str)]
    head = {key: value for key, value in body.items() if key not in ("messages", "model")}
    named = {"model": str(body.get("model", "")), "conversation": client_session(headers)}
    return {"messages": body["messages"], "head": head, **named}


def _with(request: Any, turn: Turn) -> Any:
    """Return the rewritten request. `APIRequest.copy` is not used, because it deep-copies the whole history."""
    if turn.history is request.json["messages"] and not turn.head:
        return request
    changed = copy.copy(request)
    body = {**request.json, **turn.head, "messages": turn.history}
    changed.options = request.options.model_copy(update={"json_data": body})
    return changed


def _settle(turn: Turn, response: Any) -> None:
    """If the provider accepts the original, report that it rejected our changes. Otherwise the original is invalid."""
    if response.http_response.is_success:
        turn.refused()


# ── usage ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def _is_read(request: Any, response: Any) -> bool:
    """Return True if the SDK reads the response itself. With `with_streaming_response`, the caller does."""
    raw = {name.lower(): value for name, value in request.headers.items()}.get("x-stainless-raw-response")
    return raw != "stream" and bool(response.http_response.is_success)


def _watch(turn: Turn, answer: Any) -> None:
    if not isinstance(answer, anthropic.Stream | anthropic.AsyncStream):
        Count(turn).tell(answer.usage)
        return
    stream: Any = answer
    stream._iterator = Watched(stream._iterator, Count(turn))  # the SDK has no hook for stream events


class Count:
    """Usage of one response: the last reported count of each kind of input tokens."""

    def __init__(self, turn: Turn) -> None:
        self._turn = turn
        self._input = self._read = self._written = 0

    def see(self, event: Any) -> None:
        with failing_open():
            if event.type == "message_start":
                self._count(event.message.usage)
            elif event.type == "message_delta":
                self.tell(event.usage)

    def tell(self, usage: Any) -> None:
        self._count(usage)
        self._turn.answered(context=self._input + self._read + self._written, cached=self._read)

    def _count(self, usage: Any) -> None:
        self._input = getattr(usage, "input_tokens", None) or self._input
        self._read = getattr(usage, "cache_read_input_tokens", None) or self._read
        self._written = getattr(usage, "cache_creation_input_tokens", None) or self._written


class Watched:
    """Iterator over stream events that reads usage. Not a generator, because a generator must be closed."""

    def __init__(self, events: Any, count: Count) -> None:
        self._events, self._count = events, count

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:
        event = next(self._events)
        self._count.see(event)
        return event

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        event = await anext(self._events)
        self._count.see(event)
        return event
