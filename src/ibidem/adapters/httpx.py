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
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from ..billing.usage import Usage
from ..engine.session import Session
from ..model import UsageError
from ..proxy.outcome import Job, Outcome
from ..proxy.refusals import MAX_HELD_BYTES, REFUSAL_STATUSES, Refusal
from ..proxy.routes import at_end, client_session
from ..proxy.usage import UsageReader
from ._pools import Pool, Pools, family_of, watched
from ._seat import Seat, aside, failing_open, safely

if TYPE_CHECKING:
    from ..store import Store

__all__ = ["Answered", "Transport", "install"]

log = logging.getLogger("ibidem")
C = TypeVar("C")

SIGNS = ("x-amz-date", "x-amz-content-sha256", "signature", "content-digest", "digest", "content-md5")
"""Headers of requests that are signed, or whose body has a checksum: another body would not fit."""
NO_ROUTE = "", False
FAMILIES = ("httpx", "httpx2")


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
    job: Job
    outcome: Outcome
    tried: list[bytes] = field(default_factory=list)

    def request(self) -> Any:
        """What is to be sent now."""
        body = self.outcome.body
        self.tried.append(self.job.body if body is None else body)
        return self.original if body is None else safely(_with, self.original, body, otherwise=self.original)

    def is_refusal(self, response: Any) -> bool:
        """Whether the provider may have refused what we made of a request, so that its answer is to be read."""
        length = response.headers.get("content-length", "0")
        small = length.isdecimal() and int(length) <= MAX_HELD_BYTES
        return self.outcome.body is not None and response.status_code in REFUSAL_STATUSES and small

    def instead(self, response: Any) -> Any:
        """The request that is sent in place of a refused one; None where the refusal stands."""
        outcome = safely(self._instead, response, otherwise=None)
        if outcome is None:
            return None
        self.outcome = outcome
        return self.request()

    def _instead(self, response: Any) -> Outcome | None:
        headers = [(name, value) for name, value in response.headers.items() if name != "content-encoding"]
        kind = Refusal(response.status_code, "", headers, bytearray(response.content)).kind
        if kind is None or self.job.counts:
            return None
        return self.transport.seat.instead(self.job, self.outcome, kind, self.tried)

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
        watch = _Watch(reader, self._charged)
        if plain is not None:
            watch.feed(plain)
            watch.end()
            return
        response.stream = watched(response, asynchronous, watch.feed, watch.end)

    def _charged(self, usage: Usage) -> None:
        outcome = self.outcome
        self.transport.seat.charged(outcome, usage)
        if self.transport.on_usage is not None:
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
    it cost, in the thread that read it.
    """

    def __init__(
        self,
        profile: str = "lossless",
        *,
        inner: Any = None,
        session: Session | None = None,
        store: Store | None = None,
        on_usage: Callable[[Answered], None] | None = None,
    ) -> None:
        self.seat = Seat(profile, session=session, store=store)
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
        response = inner.handle_request(exchange.request())
        while exchange.is_refusal(response):
            response.read()
            again = exchange.instead(response)
            if again is None:
                break
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
        exchange = await aside(len(content), self.begin, request, content)
        response = await inner.handle_async_request(exchange.request())
        while exchange.is_refusal(response):
            await response.aread()
            again = exchange.instead(response)
            if again is None:
                break
            response = await inner.handle_async_request(again)
        return exchange.watched(response, asynchronous=True)

    def begin(self, request: Any, content: bytes) -> Exchange:
        """What is made of a request that `carries` one, with this content; for those who send it themselves."""
        headers = request.headers
        format, counts = at_end(request.url.path) or NO_ROUTE
        encoding = headers.get("content-encoding", "").strip().lower()
        job = self.seat.job(format, content, client_session(headers.items()), encoding, counts)
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

    def close(self) -> None:
        if self._given is not None:
            self._given.close()
        for pool in self._pools.left(asynchronous=False):
            pool.close()

    async def aclose(self) -> None:
        if self._given is not None:
            await self._given.aclose()
        for pool in self._pools.left(asynchronous=True):
            await pool.aclose()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


def carries(request: Any) -> bool:
    """Whether a request carries a conversation that may be rewritten. All others are sent as they are, unread."""
    if request.method != "POST" or at_end(request.url.path) is None:
        return False
    headers = request.headers
    signed = headers.get("authorization", "").startswith("AWS4-") or "X-Amz-Signature" in request.url.query.decode()
    return not signed and not any(name in headers for name in SIGNS)


def _with(request: Any, body: bytes) -> Any:
    """The request with another body, as a new one."""
    left_out = ("content-length", "transfer-encoding")
    headers = [(name, value) for name, value in request.headers.multi_items() if name.lower() not in left_out]
    return type(request)(request.method, request.url, headers=headers, content=body, extensions=request.extensions)


# ── what is read in passing ─────────────────────────────────────────────────────────────────────────────────────────


@dataclass(slots=True)
class _Watch:
    """Reads what was charged for. Told once, at the end, or when nobody listens any more."""

    reader: UsageReader | None
    tell: Callable[[Usage], None]

    def feed(self, data: bytes) -> None:
        if self.reader is not None:
            self.reader.feed(data)

    def end(self) -> None:
        reader, self.reader = self.reader, None
        if reader is None:
            return
        with failing_open():
            usage = reader.finish()
            if usage is not None:
                self.tell(usage)


# ── clients that exist ──────────────────────────────────────────────────────────────────────────────────────────────

PLACES = (("_client",), ("_api_client", "_httpx_client"), ("_api_client", "_async_httpx_client"))
"""Where SDKs keep their httpx client: Anthropic's and OpenAI's, and the two of Google's."""


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
    if _at(client, ("_api_client",)) is not None and safely(client._api_client._use_aiohttp, otherwise=False):  # type: ignore[attr-defined]
        log.warning(
            "async calls of google-genai use aiohttp here, and are not rewritten: pass Transport in HttpOptions"
        )
    lead = Transport(profile, **options)
    for each in found:
        each._transport = lead.above(each._transport)
        each._mounts = {key: None if inner is None else lead.above(inner) for key, inner in each._mounts.items()}
    return client


def _at(client: Any, place: tuple[str, ...]) -> Any:
    for name in place:
        client = getattr(client, name, None)
    return client


def _is_client(client: Any) -> bool:
    known = any(base.__module__.partition(".")[0] in FAMILIES for base in type(client).__mro__)
    return known and hasattr(client, "_transport") and hasattr(client, "_mounts")
