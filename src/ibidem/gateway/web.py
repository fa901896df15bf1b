"""A server that is reached by HTTP: we listen on this machine and pass requests on, in either of the two transports.

- *Streamable HTTP*: a message is POSTed; its answer is JSON or a stream of events. `Mcp-Session-Id` names the client.
- *HTTP with SSE*, the older one: a GET opens the stream, whose first event says where that client POSTs to.

Where neither tells clients apart, as in the protocol without sessions, nothing is remembered. Bodies are looked at as
they pass; one that is too large, or packed, streams through.
"""

from __future__ import annotations

import asyncio
import signal
import time
from base64 import b64encode
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from dataclasses import replace
from io import BytesIO
from typing import Self
from urllib.parse import urljoin, urlsplit
from urllib.request import getproxies, proxy_bypass

from aiohttp import ClientError, ClientResponse, ClientSession, ClientTimeout, DummyCookieJar, TCPConnector, web
from yarl import URL

from .address import McpUpstream, refused, relocated
from .events import EventFraming, event_field, with_data
from .lines import MAX_MESSAGE_BYTES
from .session import GatewaySettings, GatewayTotals, McpSession

MAX_SESSIONS = 64
"""Clients that are told apart; the one least recently heard of is forgotten first."""
MAX_TOLD = 100
"""Lines on standard error, each once."""
SESSION_HEADER = "Mcp-Session-Id"
NOT_PASSED = frozenset(
    {"connection", "keep-alive", "proxy-connection", "proxy-authenticate", "proxy-authorization", "te", "trailer"}
    | {"transfer-encoding", "upgrade", "expect", "host", "content-length", "accept-encoding"}
)
"""Headers that are for the neighbour, or that we say ourselves."""
NO_SESSION = "nothing is remembered for clients without a session: the server gave no session id"
STOP_SECONDS = 2.0

SessionKey = tuple[str, str]


class WebGateway:
    """All clients of one server."""

    def __init__(
        self,
        upstream: McpUpstream,
        settings: GatewaySettings,
        totals: GatewayTotals,
        tell: Callable[[str], None],
        most: int = MAX_MESSAGE_BYTES,
    ) -> None:
        self._upstream = upstream
        self._settings = settings
        self._stream_settings = replace(settings, offers_forget=False)
        """For the older transport, where we have no place to answer a tool of our own."""
        self._totals = totals
        self._tell_user = tell
        self._told: set[str] = set()
        self._most = most
        self._sessions: OrderedDict[SessionKey, McpSession] = OrderedDict()
        self._client: ClientSession | None = None
        self._hop, self._hop_headers = _hop(upstream)
        self._as_begun = settings, totals, self._tell
        """What a session is made with, before it is known who talks."""

    async def __aenter__(self) -> Self:
        self._client = ClientSession(
            timeout=ClientTimeout(total=None, connect=None, sock_connect=30, sock_read=None),
            connector=TCPConnector(limit=0),
            cookie_jar=DummyCookieJar(),
            auto_decompress=False,
            trust_env=False,  # it would also send what stands in netrc, for whoever asks
        )
        return self

    async def __aexit__(self, *exception: object) -> None:
        if self._client is not None:
            await self._client.close()

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        if why := refused(request.host, request.headers.get("Origin"), request.headers.get("Sec-Fetch-Site", "none")):
            return web.Response(status=403, text=why + "\n")
        if not request.raw_path.startswith("/"):
            return web.Response(status=400, text="this is a gateway to one server, and no proxy\n")
        assert self._client is not None
        session, begun = self._session_of(request)
        body, own = await self._asked(request, session, begun)
        if own:
            return web.Response(body=own, content_type="application/json")
        url = URL(self._upstream.origin + request.raw_path, encoded=True)
        headers = [(name, value) for name, value in request.headers.items() if name.lower() not in NOT_PASSED]
        try:
            async with self._client.request(
                request.method,
                url,
                headers=[*headers, ("Accept-Encoding", "identity")],
                data=BytesIO(body) if isinstance(body, bytes) and body else body,  # in pieces, if it is large
                allow_redirects=False,
                proxy=self._hop,
                proxy_headers=self._hop_headers,
                skip_auto_headers=("User-Agent", "Content-Type", "Accept"),
            ) as answer:
                return await self._answered(request, answer, session, begun)
        except (ClientError, OSError, TimeoutError) as error:
            return web.Response(status=502, text=f"{self._upstream.origin}: {type(error).__name__}\n")

    # --- who it is --------------------------------------------------------------------------------

    def _session_of(self, request: web.BaseRequest) -> tuple[McpSession | None, McpSession]:
        """The session that a request goes on, if any, and one for the case that it begins one."""
        begun = McpSession(*self._as_begun)
        given = request.headers.get(SESSION_HEADER)
        key = ("header", given) if given else ("endpoint", request.path_qs)
        known = self._sessions.get(key)
        if known is None and given:
            known = self._kept(key, begun)  # who it is was told before we ran, so there will be no hints
        if known is not None:
            self._sessions.move_to_end(key)
        return known, begun

    def _kept(self, key: SessionKey, session: McpSession) -> McpSession:
        self._sessions[key] = session
        while len(self._sessions) > MAX_SESSIONS:
            self._sessions.popitem(last=False)
        return session

    def _tell(self, line: str) -> None:
        if line not in self._told and len(self._told) < MAX_TOLD:  # names of clients are in them
            self._told.add(line)
            self._tell_user(line)

    # --- what it asks -----------------------------------------------------------------------------

    async def _asked(
        self, request: web.BaseRequest, session: McpSession | None, begun: McpSession
    ) -> tuple[bytes | AsyncIterator[bytes] | None, bytes]:
        """The body to pass on, and an answer of our own, if it is for us."""
        if not request.can_read_body:
            return None, b""
        head = bytearray()
        async for piece in request.content.iter_chunked(2**16):
            head += piece
            if len(head) > self._most:
                if session is not None:
                    session.unseen()
                return _rest(bytes(head), request), b""
        if session is None and b'"initialize"' not in head:
            return bytes(head), b""
        if request.method != "POST" or request.headers.get("Content-Encoding"):
            return bytes(head), b""
        done = (session or begun).from_client(bytes(head), time.monotonic())
        return done.to_server, done.to_client

    # --- what it is answered ----------------------------------------------------------------------

    async def _answered(
        self, request: web.BaseRequest, answer: ClientResponse, session: McpSession | None, begun: McpSession
    ) -> web.StreamResponse:
        session = self._told_apart(request, answer, session, begun)
        response = web.StreamResponse(status=answer.status, reason=answer.reason)
        own = f"{request.scheme}://{request.host}"
        for name, value in answer.headers.items():
            if name.lower() not in NOT_PASSED:
                moved = name.lower() == "location"
                response.headers.add(name, relocated(value, self._upstream, own) if moved else value)
        pieces = self._looked_through(request, answer, session)
        if pieces is None or request.method == "HEAD":
            pieces = answer.content.iter_any()
            if "Content-Length" in answer.headers:
                response.headers["Content-Length"] = answer.headers["Content-Length"]
        await response.prepare(request)
        try:
            async for piece in pieces:
                await _written(response, piece, session)
            await response.write_eof()
        except (ClientError, TimeoutError):  # the server broke off: so do we
            if request.transport is not None:
                request.transport.abort()
        return response

    def _looked_through(
        self, request: web.BaseRequest, answer: ClientResponse, session: McpSession | None
    ) -> AsyncIterator[bytes] | None:
        """The body, as far as it is one that we look at."""
        if answer.headers.get("Content-Encoding", "identity").lower() != "identity":
            return None
        if answer.content_type == "text/event-stream":
            return self._events(request, answer, session)
        if answer.content_type == "application/json" and session is not None:
            return self._json(answer, session)
        return None

    def _told_apart(
        self, request: web.BaseRequest, answer: ClientResponse, session: McpSession | None, begun: McpSession
    ) -> McpSession | None:
        """The session of an answer; None where it belongs to none."""
        given = answer.headers.get(SESSION_HEADER)
        if given and request.headers.get(SESSION_HEADER) != given:
            # An id that is given to a second client tells nobody apart: then who asks is not known, and gets no hints.
            twice = ("header", given) in self._sessions
            session = self._kept(("header", given), McpSession(*self._as_begun) if twice else begun)
        asked = request.headers.get(SESSION_HEADER)
        if asked and (answer.status == 404 or (request.method == "DELETE" and answer.status < 300)):
            self._sessions.pop(("header", asked), None)
        if session is None and request.method == "POST" and answer.status == 200:
            self._tell(NO_SESSION)
        return session

    async def _json(self, answer: ClientResponse, session: McpSession) -> AsyncIterator[bytes]:
        held = bytearray()
        pieces = answer.content.iter_any()
        async for piece in pieces:
            held += piece
            if len(held) > self._most:
                session.unseen()
                yield bytes(held)
                break
        else:
            yield session.from_server(bytes(held), time.monotonic())
            return
        async for piece in pieces:
            yield piece

    async def _events(
        self, request: web.BaseRequest, answer: ClientResponse, session: McpSession | None
    ) -> AsyncIterator[bytes]:
        framing = EventFraming(self._most)
        key: SessionKey | None = None
        try:
            async for piece in answer.content.iter_any():
                passed = []
                for data, whole in framing.feed(piece):
                    if whole and session is None and (path := _endpoint(data, request)):
                        key = ("endpoint", path)
                        session = self._kept(key, McpSession(self._stream_settings, self._totals, self._tell))
                    passed.append(_looked_at(data, whole, session))
                yield b"".join(passed)
            for data, _ in framing.flush():
                yield data
        finally:
            if key is not None:  # the stream was the session
                self._sessions.pop(key, None)


def _hop(upstream: McpUpstream) -> tuple[URL | None, dict[str, str]]:
    """The proxy that the environment, or the system, names for this server, and what it is told."""
    to = URL(upstream.origin)
    named = getproxies().get(to.scheme, "") if not proxy_bypass(to.host or "") else ""
    url = URL(named if "://" in named else f"http://{named}") if named else URL()
    if url.scheme != "http" or not url.host:
        return None, {}
    user = b64encode(f"{url.user}:{url.password or ''}".encode()).decode()
    return url.with_user(None), {"Authorization": f"Basic {user}"} if url.user else {}


async def _written(response: web.StreamResponse, piece: bytes, session: McpSession | None) -> None:
    try:
        await response.write(piece)
    except BaseException:
        if session is not None:  # nobody knows how much of it was read
            session.unseen()
        raise


def _looked_at(event: bytes, whole: bool, session: McpSession | None) -> bytes:
    if session is None:
        return event
    if not whole:
        session.unseen()
        return event
    return with_data(event, lambda data: session.from_server(data, time.monotonic()))


def _endpoint(event: bytes, request: web.BaseRequest) -> str:
    """Where a client of the older transport POSTs to, with what tells it apart; empty if the event does not say."""
    if event_field(event, b"event") != b"endpoint":
        return ""
    found = urlsplit(urljoin(request.path_qs, (event_field(event, b"data") or b"").decode("utf-8", "replace")))
    return f"{found.path}?{found.query}" if found.query else ""


async def _rest(head: bytes, request: web.BaseRequest) -> AsyncIterator[bytes]:
    yield head
    async for piece in request.content.iter_chunked(2**16):
        yield piece


def serve(
    upstream: McpUpstream,
    port: int,
    settings: GatewaySettings,
    totals: GatewayTotals,
    tell: Callable[[str], None],
) -> None:
    """Until told to stop. OSError if we cannot listen there."""
    asyncio.run(_serve(WebGateway(upstream, settings, totals, tell), upstream, port, tell))


async def _serve(gateway: WebGateway, upstream: McpUpstream, port: int, tell: Callable[[str], None]) -> None:
    stop = asyncio.Event()
    with suppress(NotImplementedError):  # Windows: an interrupt ends it at once
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
    server = web.Server(gateway.handle, access_log=None, handler_cancellation=True, auto_decompress=False)
    runner = web.ServerRunner(server, shutdown_timeout=STOP_SECONDS)
    async with gateway:
        try:
            await runner.setup()
            await web.TCPSite(runner, "127.0.0.1", port).start()
            own = f"http://127.0.0.1:{runner.addresses[0][1]}"
            tell(f"{upstream.origin}{upstream.path} is on {own}{upstream.path} (Ctrl-C ends it)")
            await stop.wait()
        finally:
            await runner.cleanup()
