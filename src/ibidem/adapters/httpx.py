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
from ..providers.headers import with_beta
from ..providers.rejections import MAX_HELD_BYTES, REFUSAL_STATUSES, Refusal
from ..providers.routes import Route, at_end, client_session, is_signed
from ..providers.usage_reader import UsageReader
from ._pools import FAMILIES, Pool, Pools, aheld, family_of, held, watched
from ._seat import MAX_BODY, Seat, failing_open, safely
from ._versions import bounded

if TYPE_CHECKING:
    from ..billing.lifetimes import CacheMode
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
class Exchange:
    """One request and its response, with the bodies that were tried."""

    transport: Transport
    original: Any
    job: LiveRequest
    outcome: RewriteResult
    tried: list[bytes] = field(default_factory=list)

    def request(self) -> Any:
        """Return the request to send now, and record its body as tried."""
        body, beta = self.outcome.body, self.outcome.beta
        self.tried.append(self.job.body if body is None else body)
        return self.original if body is None else safely(_with, self.original, body, beta, otherwise=self.original)

    def is_rejection(self, response: Any) -> bool:
        """Return True if the provider may have rejected how a request is written, so that its response is read."""
        length = response.headers.get("content-length", "0")
        small = length.isdecimal() and int(length) <= MAX_HELD_BYTES
        ours = self.outcome.body is not None or has_signed_thinking(self.job)
        return ours and response.status_code in REFUSAL_STATUSES and small

    def instead(self, response: Any, raw: bytes) -> Any:
        """Return the next request after a rejection; None if the caller gets the rejection."""
        outcome = safely(self._instead, response, raw, otherwise=None)
        if outcome is None:
            return None
        self.outcome = outcome
        return self.request()

    def _instead(self, response: Any, raw: bytes) -> RewriteResult | None:
        refusal = Refusal(response.status_code, "", list(response.headers.items()), bytearray(raw))
        kind = refusal.kind
        if kind is None or self.job.counts:
            return None
        return self.transport.seat.instead(self.outcome, kind, refusal.names_thinking)

    def watched(self, response: Any, *, asynchronous: bool = False) -> Any:
        """Return the response. Its usage is reported while the client reads it."""
        with failing_open():
            if 200 <= response.status_code < 300 and not self.job.counts:
                self.transport.seat.accepted(self.outcome)
                self._watch(response, asynchronous)
        return response

    def _watch(self, response: Any, asynchronous: bool) -> None:
        told, encoding = (response.headers.get(f"content-{each}", "") for each in ("type", "encoding"))
        plain = getattr(response, "_content", None)  # the transport returned a complete response
        reader = UsageReader(self.job.format, told, "" if plain is not None else encoding)
        watch = _Watch(reader, self)
        if plain is not None:
            watch.feed(plain)
            watch.end()
            return
        response.stream = watched(response, asynchronous, watch.feed, watch.aend if asynchronous else watch.end)

    def charged(self, usage: Usage, cleared: bool) -> None:
        self.tell(usage)
        self.transport.seat.charged(self.outcome, usage, cleared)

    async def acharged(self, usage: Usage, cleared: bool) -> None:
        self.tell(usage)
        await self.transport.seat.aside(0, self.transport.seat.charged, self.outcome, usage, cleared)

    def tell(self, usage: Usage) -> None:
        if self.transport.on_usage is None:
            return
        outcome = self.outcome
        with failing_open():
            self.transport.on_usage(
                Answered(
                    usage=usage,
                    model=outcome.model,
                    format=self.job.format,
                    result=outcome.result,
                    reason=outcome.reason,
                    conversation=outcome.conversation.id if outcome.conversation else "",
                    bytes_before=len(self.job.body),
                    bytes_sent=len(self.tried[-1]),
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
        self.seat = Seat(profile, session=session, store=store, cache=cache)
        self.on_usage = on_usage
        self._given = inner
        self._pools = Pools()

    def handle_request(self, request: Any) -> Any:
        """Send a request, rewritten if it has a conversation. httpx calls this method."""
        pool = self._pool(request, False)
        try:
            response = self._handle(pool.inner, request)
        except BaseException:
            pool.end()
            raise
        return pool.lend(response)

    def _handle(self, inner: Any, request: Any) -> Any:
        if not carries(request):
            return inner.handle_request(request)
        exchange = self.begin(request, request.read())
        response, first = inner.handle_request(exchange.request()), None
        while exchange.is_rejection(response):
            response, raw = held(response)
            first = response if first is None else first
            again = exchange.instead(response, raw)
            if again is None:
                return first
            response = inner.handle_request(again)
        return exchange.watched(response)

    async def handle_async_request(self, request: Any) -> Any:
        """Send a request like `handle_request`, for async clients."""
        pool = self._pool(request, True)
        try:
            response = await self._handle_async(pool.inner, request)
        except BaseException:
            await pool.aend()
            raise
        return await pool.alend(response)

    async def _handle_async(self, inner: Any, request: Any) -> Any:
        if not carries(request):
            return await inner.handle_async_request(request)
        content = await request.aread()
        exchange = await self.seat.aside(len(content), self.begin, request, content)
        response, first = await inner.handle_async_request(exchange.request()), None
        while exchange.is_rejection(response):
            response, raw = await aheld(response)
            first = response if first is None else first
            again = await self.seat.aside(len(content), exchange.instead, response, raw)
            if again is None:
                return first
            response = await inner.handle_async_request(again)
        return exchange.watched(response, asynchronous=True)

    def begin(self, request: Any, content: bytes) -> Exchange:
        """Rewrite a request with a conversation, for callers that send it themselves."""
        headers = request.headers
        route = at_end(request.url.path) or NO_ROUTE
        encoding = headers.get("content-encoding", "").strip().lower()
        job = self.seat.job(
            route.format or "", content, client_session(headers.items()), encoding, route.counts, route.model
        )
        return Exchange(self, request, job, self.seat.outcome(job))

    def _pool(self, request: Any, asynchronous: bool) -> Pool:
        if self._given is not None:
            return Pool(self._given, lasting=True)
        return self._pools.taken(family_of(request), asynchronous)

    def above(self, inner: Any) -> Any:
        """Return a transport with another `inner` that shares the conversations of this one."""
        if isinstance(inner, Transport):
            return inner
        found = copy(self)
        found._given = inner
        return found

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """Return the same object. Frameworks copy objects with a client, and copies must share its connections."""
        return self

    def close(self) -> None:
        if self._given is not None:
            self._given.close()
        self._leave()

    def _leave(self) -> None:
        for pool in self._pools.left(asynchronous=False):
            pool.close()

    async def aclose(self) -> None:
        if self._given is not None:
            await self._given.aclose()
        await self._aleave()

    async def _aleave(self) -> None:
        for pool in self._pools.left(asynchronous=True):
            await pool.aclose()

    def __enter__(self) -> Self:
        if self._given is not None:
            self._given.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._given is not None:
            self._given.__exit__(kind, error, trace)
        self._leave()

    async def __aenter__(self) -> Self:
        if self._given is not None:
            await self._given.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._given is not None:
            await self._given.__aexit__(kind, error, trace)
        await self._aleave()


def carries(request: Any) -> bool:
    """Return True if a request has a conversation and is not signed. All others are sent unchanged and unread."""
    if request.method != "POST" or at_end(request.url.path) is None:
        return False
    headers = request.headers
    return not is_signed(headers.items(), request.url.query.decode("latin-1")) and not _is_upload(headers)


def _is_upload(headers: Any) -> bool:
    """Return True for a large or multipart body. Other services use paths with the same end for messages with files."""
    length = headers.get("content-length", "")
    large = length.isdecimal() and int(length) > MAX_BODY
    return large or headers.get("content-type", "").lower().startswith("multipart/")


def _with(request: Any, body: bytes, beta: str = "") -> Any:
    """Return a new request with another body. The headers stay byte-identical, except for a beta feature in `beta`."""
    left_out = (b"content-length", b"transfer-encoding")
    headers: Any = [(name, value) for name, value in request.headers.raw if name.lower() not in left_out]
    if beta:
        headers = with_beta([(name.decode("latin-1"), value.decode("latin-1")) for name, value in headers], beta)
    made = import_module(family_of(request)).Request
    return made(request.method, request.url, headers=headers, content=body, extensions=request.extensions)


# ── usage of responses ──────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(slots=True)
class _Watch:
    """Read the usage from a response stream, and report it once: at the end, or when the stream is closed."""

    reader: UsageReader | None
    exchange: Exchange

    def feed(self, data: bytes) -> None:
        if self.reader is not None:
            self.reader.feed(data)

    def end(self) -> None:
        with failing_open():
            usage, cleared = self._finished()
            if usage is not None:
                self.exchange.charged(usage, cleared)

    async def aend(self) -> None:
        with failing_open():
            usage, cleared = self._finished()
            if usage is not None:
                await self.exchange.acharged(usage, cleared)

    def _finished(self) -> tuple[Usage | None, bool]:
        reader, self.reader = self.reader, None
        if reader is None:
            return None, False
        return reader.finish(), reader.cleared_tool_uses > 0


# ── existing clients ────────────────────────────────────────────────────────────────────────────────────────────────

PLACES = (("_client",), ("_api_client", "_httpx_client"), ("_api_client", "_async_httpx_client"))
"""Attributes with the httpx client of an SDK: Anthropic's and OpenAI's, and the two of Google's."""
BOUNDS = {"httpx": "1", "httpx2": "3"}
"""First untested versions. `install` uses private attributes of the client."""


def install(client: C, profile: str = "lossless", **options: Any) -> C:
    """Install a `Transport` in an existing client of httpx or of an SDK, and return the client.

    The client's own transports send the requests, so its proxies, certificates and limits still apply. `options` are
    those of `Transport`, without `inner`. This requires httpx below 1 or httpx2 below 3, because it uses private
    attributes. Raises UsageError for an unknown kind of client. In that case, create the client with `Transport`.
    """
    found = [each for each in (client, *(_at(client, place) for place in PLACES)) if _is_client(each)]
    if not found:
        raise UsageError(
            f"client: no httpx client found in {type(client).__name__}: create the client with Transport, as in "
            "docs/adapters.md"
        )
    uses_aiohttp = _at(client, ("_api_client", "_use_aiohttp"))
    if callable(uses_aiohttp) and safely(uses_aiohttp, otherwise=False):
        log.warning(
            "async calls of this google-genai client use aiohttp and are not rewritten: pass Transport in HttpOptions"
        )
    for each in found:
        _bound(each)
    lead = Transport(profile, **options)
    for each in found:
        each._transport = lead.above(each._transport)
        each._mounts = {key: None if inner is None else lead.above(inner) for key, inner in each._mounts.items()}
    return client


def _bound(client: Any) -> None:
    family = family_of(client)
    try:
        bounded("httpx.install", family, BOUNDS[family])
    except ImportError as error:
        raise UsageError(f"client: {error}; or create the client with Transport") from None


def _at(client: Any, place: tuple[str, ...]) -> Any:
    for name in place:
        client = getattr(client, name, None)
    return client


def _is_client(client: Any) -> bool:
    known = any(base.__module__.partition(".")[0] in FAMILIES for base in type(client).__mro__)
    return known and hasattr(client, "_transport") and hasattr(client, "_mounts")
