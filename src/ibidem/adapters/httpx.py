"""A transport for httpx and httpx2: every SDK that lets one hand in a client is rewritten by it.

>>> client = anthropic.Anthropic(http_client=anthropic.DefaultHttpxClient(transport=Transport()))
>>> client = install(openai.OpenAI())         # or into a client that exists

It sees the bytes that are sent. A request that carries a conversation, known by the end of its path, is rewritten; all
else passes as it comes, uploads unread. Answers pass unchanged, and what they say of tokens is read in passing.
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
    """One request that was answered, as `on_usage` is told."""

    usage: Usage
    """Tokens that the provider counted."""
    model: str
    format: str
    result: str
    """`rewritten`, `unchanged`, or `failed open`."""
    reason: str
    """Why it failed open."""
    conversation: str
    """By which requests of one conversation are told from others; empty if that is not known."""
    bytes_before: int
    bytes_sent: int


@dataclass(slots=True)
class Exchange:
    """One request and its answer."""

    transport: Transport
    original: Any
    job: LiveRequest
    outcome: RewriteResult
    tried: list[bytes] = field(default_factory=list)

    def request(self) -> Any:
        """What is to be sent now."""
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
        """The request that is sent in place of a refused one; None where the refusal stands."""
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
        """The answer, which tells what was charged while it is read."""
        with failing_open():
            if 200 <= response.status_code < 300 and not self.job.counts:
                self.transport.seat.accepted(self.outcome)
                self._watch(response, asynchronous)
        return response

    def _watch(self, response: Any, asynchronous: bool) -> None:
        told, encoding = (response.headers.get(f"content-{each}", "") for each in ("type", "encoding"))
        plain = getattr(response, "_content", None)  # of a transport that had all of it
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
    """For `transport=` of an httpx or httpx2 client, sync or async; one object fits all of them at once.

    `inner` sends what is rewritten; without it, a transport of the client's own family is made when it is needed.
    Conversations are recognised as in the proxy: by their first messages, and by a header such as `x-session-id`.
    With `session`, all requests are taken for that one conversation. `on_usage` is told of each answer that says what
    it cost, in the thread that read it. `cache="auto"` asks the provider to keep what it is sent, where the program
    does not, and `"lifetime"` for how long, where it does: see docs/caching.md.
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
        """What is made of a request that `carries` one, with this content; for those who send it themselves."""
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
        """Another one over this transport, for which the same conversations are known."""
        if isinstance(inner, Transport):
            return inner
        found = copy(self)
        found._given = inner
        return found

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """Frameworks copy what holds a client; connections and conversations stay the same."""
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
    """Whether a request carries a conversation that may be rewritten. All others are sent as they are, unread."""
    if request.method != "POST" or at_end(request.url.path) is None:
        return False
    headers = request.headers
    return not is_signed(headers.items(), request.url.query.decode("latin-1")) and not _is_upload(headers)


def _is_upload(headers: Any) -> bool:
    """Others have paths that end alike, for messages with files."""
    length = headers.get("content-length", "")
    large = length.isdecimal() and int(length) > MAX_BODY
    return large or headers.get("content-type", "").lower().startswith("multipart/")


def _with(request: Any, body: bytes, beta: str = "") -> Any:
    """The request with another body, as a new one. Its headers are the same to the byte, but for a feature that the
    body needs."""
    left_out = (b"content-length", b"transfer-encoding")
    headers: Any = [(name, value) for name, value in request.headers.raw if name.lower() not in left_out]
    if beta:
        headers = with_beta([(name.decode("latin-1"), value.decode("latin-1")) for name, value in headers], beta)
    made = import_module(family_of(request)).Request
    return made(request.method, request.url, headers=headers, content=body, extensions=request.extensions)


# ── what is read in passing ─────────────────────────────────────────────────────────────────────────────────────────


@dataclass(slots=True)
class _Watch:
    """Reads what was charged for. Told once, at the end, or when nobody listens any more."""

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


# ── clients that exist ──────────────────────────────────────────────────────────────────────────────────────────────

PLACES = (("_client",), ("_api_client", "_httpx_client"), ("_api_client", "_async_httpx_client"))
"""Where SDKs keep their httpx client: Anthropic's and OpenAI's, and the two of Google's."""
BOUNDS = {"httpx": "1", "httpx2": "3"}
"""Versions from which on it is not known where a client keeps its transports."""


def install(client: C, profile: str = "lossless", **options: Any) -> C:
    """Put a transport into a client that exists, of httpx or of an SDK, and return that client.

    Its own transports stay below, so proxies of the environment, certificates and limits count as before. `options` are
    those of `Transport`, without `inner`. Only for versions of httpx below 1 and of httpx2 below 3: it reaches for what
    they do not promise to keep. Raises UsageError for what is no such client: make it with `Transport` then.
    """
    found = [each for each in (client, *(_at(client, place) for place in PLACES)) if _is_client(each)]
    if not found:
        raise UsageError(
            f"client: {type(client).__name__} has no httpx client that is known here: make it with Transport, as the "
            "page on adapters shows"
        )
    uses_aiohttp = _at(client, ("_api_client", "_use_aiohttp"))
    if callable(uses_aiohttp) and safely(uses_aiohttp, otherwise=False):
        log.warning(
            "async calls of google-genai use aiohttp here, and are not rewritten: pass Transport in HttpOptions"
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
        raise UsageError(f"client: {error}; or make the client with Transport") from None


def _at(client: Any, place: tuple[str, ...]) -> Any:
    for name in place:
        client = getattr(client, name, None)
    return client


def _is_client(client: Any) -> bool:
    known = any(base.__module__.partition(".")[0] in FAMILIES for base in type(client).__mro__)
    return known and hasattr(client, "_transport") and hasattr(client, "_mounts")
