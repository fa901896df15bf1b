"""Transport for httpx and httpx2. It rewrites the requests of every SDK that accepts an HTTP client.

>>> client = anthropic.Anthropic(http_client=anthropic.DefaultHttpxClient(transport=Transport()))
>>> client = install(openai.OpenAI())         # in an existing client

It works on the bytes that are sent. Requests with a conversation, recognized by the end of their path, are rewritten.
All others are forwarded unchanged, and uploads are not read. Responses are not changed, only their usage is read.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, field
from importlib import import_module
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from ..billing.usage import Usage
from ..engine.session import Session
from ..errors import UsageError
from ..live import LiveRequest, RewriteResult, has_signed_thinking
from ..providers.headers import add_beta
from ..providers.rejections import MAX_HELD_BYTES, REJECTION_STATUSES, Rejection
from ..providers.routes import Route, client_session_name, is_signed, route_by_suffix
from ..providers.usage_reader import UsageReader
from ._connection_pools import (
    LIBRARIES,
    ConnectionPool,
    ConnectionPools,
    aread_response,
    library_of,
    read_response,
    watch_stream,
)
from ._request_rewriter import MAX_BODY, RequestRewriter, call_or_default, log_errors
from ._requirements import check_tested_version

if TYPE_CHECKING:
    from ..billing.cache_ttl import CacheMode
    from ..store import Store

__all__ = ["Answered", "Transport", "install"]

log = logging.getLogger("ibidem")
C = TypeVar("C")

NO_ROUTE = Route("", "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """One response, as passed to `on_usage`."""

    usage: Usage
    """Token counts from the provider."""
    model: str
    format: str
    result: str
    """`rewritten`, `unchanged`, or `failed open`."""
    reason: str
    """Why it failed open; empty if it did not."""
    conversation: str
    """Id of the conversation; empty if it is unknown."""
    bytes_before: int
    bytes_sent: int


@dataclass(slots=True)
class TransportExchange:
    """One request and its response, with the bodies that were tried."""

    transport: Transport
    original: Any
    job: LiveRequest
    outcome: RewriteResult
    tried_bodies: list[bytes] = field(default_factory=list)

    def next_request(self) -> Any:
        """Return the request to send now, and record its body as tried."""
        body, beta = self.outcome.body, self.outcome.beta
        self.tried_bodies.append(self.job.body if body is None else body)
        return (
            self.original
            if body is None
            else call_or_default(_replace_body, self.original, body, beta, default=self.original)
        )

    def is_rejection(self, response: Any) -> bool:
        """Return True if the provider may have rejected how a request is written, so that its response is read."""
        length = response.headers.get("content-length", "0")
        is_small = length.isdecimal() and int(length) <= MAX_HELD_BYTES
        is_relevant = self.outcome.body is not None or has_signed_thinking(self.job)
        return is_relevant and response.status_code in REJECTION_STATUSES and is_small

    def retry_request(self, response: Any, raw: bytes) -> Any:
        """Return the next request after a rejection; None if the caller gets the rejection."""
        outcome = call_or_default(self._next_result, response, raw, default=None)
        if outcome is None:
            return None
        self.outcome = outcome
        return self.next_request()

    def _next_result(self, response: Any, raw: bytes) -> RewriteResult | None:
        refusal = Rejection(response.status_code, "", list(response.headers.items()), bytearray(raw))
        kind = refusal.error_kind
        if kind is None or self.job.is_count_only:
            return None
        return self.transport.rewriter.next_attempt(self.outcome, kind, refusal.is_about_thinking)

    def watch_response(self, response: Any, *, is_async: bool = False) -> Any:
        """Return the response. Its usage is reported while the client reads it."""
        with log_errors():
            if 200 <= response.status_code < 300 and not self.job.is_count_only:
                self.transport.rewriter.record_acceptance(self.outcome)
                self._attach_reader(response, is_async)
        return response

    def _attach_reader(self, response: Any, is_async: bool) -> None:
        content_type, encoding = (response.headers.get(f"content-{each}", "") for each in ("type", "encoding"))
        complete_body = getattr(response, "_content", None)  # the transport returned a complete response
        reader = UsageReader(self.job.format, content_type, "" if complete_body is not None else encoding)
        watcher = _UsageWatcher(reader, self)
        if complete_body is not None:
            watcher.feed(complete_body)
            watcher.finish()
            return
        response.stream = watch_stream(
            response, is_async, watcher.feed, watcher.afinish if is_async else watcher.finish
        )

    def record_usage(self, usage: Usage, has_cleared_results: bool) -> None:
        self.report_usage(usage)
        self.transport.rewriter.record_usage(self.outcome, usage, has_cleared_results)

    async def arecord_usage(self, usage: Usage, has_cleared_results: bool) -> None:
        self.report_usage(usage)
        await self.transport.rewriter.run_in_thread(
            0, self.transport.rewriter.record_usage, self.outcome, usage, has_cleared_results
        )

    def report_usage(self, usage: Usage) -> None:
        if self.transport.on_usage is None:
            return
        outcome = self.outcome
        with log_errors():
            self.transport.on_usage(
                Answered(
                    usage=usage,
                    model=outcome.model,
                    format=self.job.format,
                    result=outcome.result,
                    reason=outcome.reason,
                    conversation=outcome.conversation.id if outcome.conversation else "",
                    bytes_before=len(self.job.body),
                    bytes_sent=len(self.tried_bodies[-1]),
                )
            )


class Transport:
    """Transport for the argument `transport=` of any httpx or httpx2 client, sync or async.

    One object can serve several clients. `inner` sends the rewritten requests. Without it, the transport opens
    connections with the client's own library. Conversations are recognized as in the proxy: by their first messages,
    and by a header such as `x-session-id`. With `session`, all requests belong to one conversation. `on_usage` is
    called for each response with usage, in the thread that read it. `cache="auto"` adds cache breakpoints to requests
    without them, and `"lifetime"` chooses the TTL of existing ones (docs/caching.md).
    """

    def __init__(
        self,
        profile: str = "lossless",
        *,
        inner: Any = None,
        session: Session | None = None,
        store: Store | None = None,
        on_usage: Callable[[Answered], None] | None = None,
        cache: CacheMode = "off",
    ) -> None:
        self.rewriter = RequestRewriter(profile, session=session, store=store, cache=cache)
        self.on_usage = on_usage
        self._inner = inner
        self._pools = ConnectionPools()

    def handle_request(self, request: Any) -> Any:
        """Send a request, rewritten if it has a conversation. httpx calls this method."""
        pool = self._acquire_pool(request, False)
        try:
            response = self._send_request(pool.inner, request)
        except BaseException:
            pool.release()
            raise
        return pool.attach_response(response)

    def _send_request(self, inner: Any, request: Any) -> Any:
        if not is_rewritable(request):
            return inner.handle_request(request)
        exchange = self.begin_exchange(request, request.read())
        response, first_response = inner.handle_request(exchange.next_request()), None
        while exchange.is_rejection(response):
            response, raw = read_response(response)
            first_response = response if first_response is None else first_response
            next_request = exchange.retry_request(response, raw)
            if next_request is None:
                return first_response
            response = inner.handle_request(next_request)
        return exchange.watch_response(response)

    async def handle_async_request(self, request: Any) -> Any:
        """Send a request like `handle_request`, for async clients."""
        pool = self._acquire_pool(request, True)
        try:
            response = await self._asend_request(pool.inner, request)
        except BaseException:
            await pool.arelease()
            raise
        return await pool.aattach_response(response)

    async def _asend_request(self, inner: Any, request: Any) -> Any:
        if not is_rewritable(request):
            return await inner.handle_async_request(request)
        content = await request.aread()
        exchange = await self.rewriter.run_in_thread(len(content), self.begin_exchange, request, content)
        response, first_response = await inner.handle_async_request(exchange.next_request()), None
        while exchange.is_rejection(response):
            response, raw = await aread_response(response)
            first_response = response if first_response is None else first_response
            next_request = await self.rewriter.run_in_thread(len(content), exchange.retry_request, response, raw)
            if next_request is None:
                return first_response
            response = await inner.handle_async_request(next_request)
        return exchange.watch_response(response, is_async=True)

    def begin_exchange(self, request: Any, content: bytes) -> TransportExchange:
        """Rewrite a request with a conversation, for callers that send it themselves."""
        headers = request.headers
        route = route_by_suffix(request.url.path) or NO_ROUTE
        encoding = headers.get("content-encoding", "").strip().lower()
        job = self.rewriter.make_job(
            route.format or "", content, client_session_name(headers.items()), encoding, route.counts, route.model
        )
        return TransportExchange(self, request, job, self.rewriter.rewrite_body(job))

    def _acquire_pool(self, request: Any, is_async: bool) -> ConnectionPool:
        if self._inner is not None:
            return ConnectionPool(self._inner, is_external=True)
        return self._pools.acquire_pool(library_of(request), is_async)

    def with_inner(self, inner: Any) -> Any:
        """Return a transport with another `inner` that shares the conversations of this one."""
        if isinstance(inner, Transport):
            return inner
        transport = copy(self)
        transport._inner = inner
        return transport

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """Return the same object. Frameworks copy objects with a client, and copies must share its connections."""
        return self

    def close(self) -> None:
        if self._inner is not None:
            self._inner.close()
        self._close_pools()

    def _close_pools(self) -> None:
        for pool in self._pools.remove_pools(is_async=False):
            pool.close()

    async def aclose(self) -> None:
        if self._inner is not None:
            await self._inner.aclose()
        await self._aclose_pools()

    async def _aclose_pools(self) -> None:
        for pool in self._pools.remove_pools(is_async=True):
            await pool.aclose()

    def __enter__(self) -> Self:
        if self._inner is not None:
            self._inner.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._inner is not None:
            self._inner.__exit__(kind, error, trace)
        self._close_pools()

    async def __aenter__(self) -> Self:
        if self._inner is not None:
            await self._inner.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._inner is not None:
            await self._inner.__aexit__(kind, error, trace)
        await self._aclose_pools()


def is_rewritable(request: Any) -> bool:
    """Return True if a request has a conversation and is not signed. All others are sent unchanged and unread."""
    if request.method != "POST" or route_by_suffix(request.url.path) is None:
        return False
    headers = request.headers
    return not is_signed(headers.items(), request.url.query.decode("latin-1")) and not _is_upload(headers)


def _is_upload(headers: Any) -> bool:
    """Return True for a large or multipart body. Other services use paths with the same end for messages with files."""
    length = headers.get("content-length", "")
    large = length.isdecimal() and int(length) > MAX_BODY
    return large or headers.get("content-type", "").lower().startswith("multipart/")


def _replace_body(request: Any, body: bytes, beta: str = "") -> Any:
    """Return a new request with another body. The headers stay byte-identical, except for a beta feature in `beta`."""
    length_headers = (b"content-length", b"transfer-encoding")
    headers: Any = [(name, value) for name, value in request.headers.raw if name.lower() not in length_headers]
    if beta:
        headers = add_beta([(name.decode("latin-1"), value.decode("latin-1")) for name, value in headers], beta)
    request_class = import_module(library_of(request)).Request
    return request_class(request.method, request.url, headers=headers, content=body, extensions=request.extensions)


# ── usage of responses ──────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(slots=True)
class _UsageWatcher:
    """Read the usage from a response stream, and report it once: at the end, or when the stream is closed."""

    reader: UsageReader | None
    exchange: TransportExchange

    def feed(self, data: bytes) -> None:
        if self.reader is not None:
            self.reader.feed(data)

    def finish(self) -> None:
        with log_errors():
            usage, has_cleared_results = self._finish_reader()
            if usage is not None:
                self.exchange.record_usage(usage, has_cleared_results)

    async def afinish(self) -> None:
        with log_errors():
            usage, has_cleared_results = self._finish_reader()
            if usage is not None:
                await self.exchange.arecord_usage(usage, has_cleared_results)

    def _finish_reader(self) -> tuple[Usage | None, bool]:
        reader, self.reader = self.reader, None
        if reader is None:
            return None, False
        return reader.finish(), reader.cleared_tool_uses > 0


# ── existing clients ────────────────────────────────────────────────────────────────────────────────────────────────

CLIENT_ATTRIBUTES = (("_client",), ("_api_client", "_httpx_client"), ("_api_client", "_async_httpx_client"))
"""Attributes with the httpx client of an SDK: Anthropic's and OpenAI's, and the two of Google's."""
BOUNDS = {"httpx": "1", "httpx2": "3"}
"""First untested versions. `install` uses private attributes of the client."""


def install(client: C, profile: str = "lossless", **options: Any) -> C:
    """Install a `Transport` in an existing client of httpx or of an SDK, and return the client.

    The client's own transports send the requests, so its proxies, certificates and limits still apply. `options` are
    those of `Transport`, without `inner`. This requires httpx below 1 or httpx2 below 3, because it uses private
    attributes. Raises UsageError for an unknown kind of client. In that case, create the client with `Transport`.
    """
    clients = [
        each for each in (client, *(_attribute_at(client, place) for place in CLIENT_ATTRIBUTES)) if _is_client(each)
    ]
    if not clients:
        raise UsageError(
            f"client: no httpx client found in {type(client).__name__}: create the client with Transport, as in "
            "docs/adapters.md"
        )
    uses_aiohttp = _attribute_at(client, ("_api_client", "_use_aiohttp"))
    if callable(uses_aiohttp) and call_or_default(uses_aiohttp, default=False):
        log.warning(
            "async calls of this google-genai client use aiohttp and are not rewritten: pass Transport in HttpOptions"
        )
    for each in clients:
        _check_version(each)
    transport = Transport(profile, **options)
    for each in clients:
        each._transport = transport.with_inner(each._transport)
        each._mounts = {
            key: None if inner is None else transport.with_inner(inner) for key, inner in each._mounts.items()
        }
    return client


def _check_version(client: Any) -> None:
    library = library_of(client)
    try:
        check_tested_version("httpx.install", library, BOUNDS[library])
    except ImportError as error:
        raise UsageError(f"client: {error}; or create the client with Transport") from None


def _attribute_at(client: Any, names: tuple[str, ...]) -> Any:
    for name in names:
        client = getattr(client, name, None)
    return client


def _is_client(client: Any) -> bool:
    is_httpx = any(base.__module__.partition(".")[0] in LIBRARIES for base in type(client).__mro__)
    return is_httpx and hasattr(client, "_transport") and hasattr(client, "_mounts")
