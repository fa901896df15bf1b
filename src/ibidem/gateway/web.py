"""HTTP gateway: listen on this machine and forward requests to the MCP server, in either of the two transports.

- *Streamable HTTP*: the client POSTs a message and gets JSON or a stream of events. `Mcp-Session-Id` names the client.
- *HTTP with SSE* (older): a GET opens the stream. Its first event gives the URL for the client's POSTs.

If neither identifies the client, as in the protocol without sessions, nothing is stored. A body that is too large or
compressed is forwarded unread.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from io import BytesIO
from typing import Self
from urllib.parse import urljoin, urlsplit

from aiohttp import (
    ClientError,
    ClientProxyConnectionError,
    ClientResponse,
    ClientSession,
    ClientTimeout,
    DummyCookieJar,
    TCPConnector,
    web,
)
from yarl import URL

from .address import McpUpstream, credentials, hop_to, refused, relocated
from .events import EventFraming, event_field, with_data
from .lines import MAX_MESSAGE_BYTES
from .session import GatewaySettings, GatewayTotals, McpSession

MAX_SESSIONS = 64
"""Maximum sessions. The least recently used is evicted first."""
MAX_TOLD = 100
"""Maximum lines on standard error. Each line is printed once."""
SESSION_HEADER = "Mcp-Session-Id"
NOT_PASSED = frozenset(
    {"connection", "keep-alive", "proxy-connection", "proxy-authenticate", "proxy-authorization", "te", "trailer"}
    | {"transfer-encoding", "upgrade", "expect", "host", "content-length", "accept-encoding"}
)
"""Hop-by-hop headers, and headers that the gateway sets itself."""
NO_SESSION = "hints are off for clients without a session: the server sent no session id"
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
STOP_SECONDS = 2.0

quiet = logging.getLogger("ibidem.mcp.http")
quiet.disabled = True  # aiohttp's server would log requests that it cannot parse, including API keys

SessionKey = tuple[str, str]


class WebGateway:
    """Gateway for all clients of one server."""

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
        """Settings for the older transport, where the gateway cannot respond to its own tool."""
        self._totals = totals
        self._tell_user = tell
        self._told: set[str] = set()
        self._most = most
        self._sessions: OrderedDict[SessionKey, McpSession] = OrderedDict()
        self._client: ClientSession | None = None
        self._hop = hop_to(upstream)
        self._as_begun = settings, totals, self._tell
        """Arguments for a new session of an unknown client."""

    async def __aenter__(self) -> Self:
        self._client = ClientSession(
            timeout=ClientTimeout(total=None, connect=None, sock_connect=30, sock_read=None),
            connector=TCPConnector(limit=0),
            cookie_jar=DummyCookieJar(),
            auto_decompress=False,
            trust_env=False,  # True would also send credentials from netrc for every client
        )
        return self

    async def __aexit__(self, *exception: object) -> None:
        if self._client is not None:
            await self._client.close()

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """Forward one request and return its response."""
        try:
            return await self._handle(request)
        except web.RequestPayloadError:
            return web.Response(status=400, text="the request is incomplete\n")
        except Exception as error:
            self._fault(error)
            return web.Response(status=500, text="error in the gateway: see its standard error\n")

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        if why := refused(request.host, request.headers.get("Origin"), request.headers.get("Sec-Fetch-Site", "none")):
            return web.Response(status=403, text=why + "\n")
        if not request.raw_path.startswith("/"):
            return web.Response(status=400, text="this is a gateway to one server, not a proxy\n")
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
                data=BytesIO(body) if isinstance(body, bytes) and body else body,  # aiohttp sends a file in chunks
                allow_redirects=False,
                proxy=None if self._hop is None else URL(self._hop.url),
                proxy_headers=credentials(self._hop),
                skip_auto_headers=("User-Agent", "Content-Type", "Accept"),
            ) as answer:
                return await self._answered(request, answer, session, begun)
        except (ClientError, OSError, TimeoutError) as error:
            return web.Response(status=502, text=self._not_reached(error))

    def _not_reached(self, error: Exception) -> str:
        way_out = "Check that it runs and that --url is its address"
        if self._hop is not None and isinstance(error, ClientProxyConnectionError):
            way_out = f"Check that the proxy {self._hop.url} from {self._hop.variable} runs"
        return f"{self._upstream.origin}: no response ({type(error).__name__}). {way_out}\n"

    # --- sessions ---------------------------------------------------------------------------------

    def _session_of(self, request: web.BaseRequest) -> tuple[McpSession | None, McpSession]:
        """Return the session that a request continues, or None, and a new one in case the request starts one."""
        begun = McpSession(*self._as_begun)
        given = request.headers.get(SESSION_HEADER)
        key = ("header", given) if given else ("endpoint", request.path_qs)
        known = self._sessions.get(key)
        if known is None and given:
            # The session is older than this gateway. The client's name is unknown, so it gets no hints.
            known = self._kept(key, begun)
        if known is not None:
            self._sessions.move_to_end(key)
        return known, begun

    def _kept(self, key: SessionKey, session: McpSession) -> McpSession:
        self._sessions[key] = session
        while len(self._sessions) > MAX_SESSIONS:
            self._sessions.popitem(last=False)
        return session

    def _tell(self, line: str) -> None:
        if line not in self._told and len(self._told) < MAX_TOLD:  # bounded, because clients choose their names
            self._told.add(line)
            self._tell_user(line)

    def _fault(self, error: Exception) -> None:
        self._tell(f"a request was not forwarded after a bug in ibidem ({type(error).__name__}). Please report it")

    # --- requests ---------------------------------------------------------------------------------

    async def _asked(
        self, request: web.BaseRequest, session: McpSession | None, begun: McpSession
    ) -> tuple[bytes | AsyncIterator[bytes] | None, bytes]:
        """Return the body to forward, and our own response if the request calls the gateway's tool."""
        if not request.can_read_body:
            return None, b""
        if request.headers.get("Expect", "").lower() == "100-continue" and request.transport is not None:
            request.transport.write(CONTINUE)
        head = bytearray()
        async for piece in request.content.iter_chunked(2**16):
            head += piece
            if len(head) > self._most:
                if session is not None:
                    session.unseen()
                return _rest(bytes(head), request), b""
        if session is None and b'"initialize"' not in head:
            return bytes(head), b""
        if request.method != "POST" or _is_packed(request.headers):
            if session is not None:
                session.unseen()
            return bytes(head), b""
        done = (session or begun).from_client(bytes(head), time.monotonic())
        return done.to_server, done.to_client

    # --- responses --------------------------------------------------------------------------------

    async def _answered(
        self, request: web.BaseRequest, answer: ClientResponse, session: McpSession | None, begun: McpSession
    ) -> web.StreamResponse:
        session = self._told_apart(request, answer, session, begun)
        response = web.StreamResponse(status=answer.status, reason=answer.reason)
        own = _own(request)
        for name, value in answer.headers.items():
            if name.lower() not in NOT_PASSED:
                moved = name.lower() == "location"
                response.headers.add(name, relocated(value, self._upstream, own) if moved else value)
        pieces = self._looked_through(request, answer, session)
        if pieces is None or request.method == "HEAD":
            pieces = answer.content.iter_any()
            if "Content-Length" in answer.headers:
                response.headers["Content-Length"] = answer.headers["Content-Length"]
        try:
            await response.prepare(request)
        except ValueError:
            text = f"{self._upstream.origin}: the response has headers that HTTP does not allow\n"
            return web.Response(status=502, text=text)
        try:
            async for piece in pieces:
                await _written(response, piece, session)
            await response.write_eof()
        except Exception as error:  # the body is incomplete: abort, so that the client does not take it as complete
            if not isinstance(error, ClientError | OSError):
                self._fault(error)
            if request.transport is not None:
                request.transport.abort()
        return response

    def _looked_through(
        self, request: web.BaseRequest, answer: ClientResponse, session: McpSession | None
    ) -> AsyncIterator[bytes] | None:
        """Return the rewritten body in chunks, or None if the body is forwarded unread."""
        streams, told = answer.content_type == "text/event-stream", answer.content_type == "application/json"
        if (streams or told) and (answer.status != 200 or _is_packed(answer.headers)):
            # The body may contain a result, and clients differ in whether they accept it.
            if session is not None and answer.headers.get("Content-Length") != "0":
                session.unseen()
            return None
        if streams:
            return self._events(request, answer, session)
        return self._json(answer, session) if told and session is not None else None

    def _told_apart(
        self, request: web.BaseRequest, answer: ClientResponse, session: McpSession | None, begun: McpSession
    ) -> McpSession | None:
        """Return the session of a response, or None."""
        given = answer.headers.get(SESSION_HEADER)
        if given and request.headers.get(SESSION_HEADER) != given:
            # The server has given the same id to a second client. Such clients cannot be separated and get no hints.
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
        framing, own = EventFraming(self._most), _own(request)
        key: SessionKey | None = None
        try:
            async for piece in answer.content.iter_any():
                passed = []
                for given, whole in framing.feed(piece):
                    data = _relocated_endpoint(given, self._upstream, own) if whole else given
                    if whole and session is None and (path := _endpoint(data, request.path_qs, own)):
                        key = ("endpoint", path)
                        session = self._kept(key, McpSession(self._stream_settings, self._totals, self._tell))
                    passed.append(_looked_at(data, whole, session))
                yield b"".join(passed)
            for data, _ in framing.flush():
                yield data
        finally:
            if key is not None:  # in the older transport, the session ends with its stream
                self._sessions.pop(key, None)


def _own(request: web.BaseRequest) -> str:
    """Return the gateway's origin, as this client names it."""
    return f"{request.scheme}://{request.host}"


def _is_packed(headers: Mapping[str, str]) -> bool:
    return headers.get("Content-Encoding", "identity").strip().lower() != "identity"


async def _written(response: web.StreamResponse, piece: bytes, session: McpSession | None) -> None:
    try:
        await response.write(piece)
    except BaseException:
        if session is not None:  # unknown how much the client has read
            session.unseen()
        raise


def _looked_at(event: bytes, whole: bool, session: McpSession | None) -> bytes:
    if session is None:
        return event
    if not whole:
        session.unseen()
        return event
    return with_data(event, lambda data: session.from_server(data, time.monotonic()))


def _is_endpoint(event: bytes) -> bool:
    return event_field(event, b"event") == b"endpoint"


def _relocated_endpoint(event: bytes, upstream: McpUpstream, own: str) -> bytes:
    """Replace the server's origin in an endpoint event by ours, because the client may only reach us."""
    if not _is_endpoint(event):
        return event
    return with_data(event, lambda data: relocated(data.decode("latin-1"), upstream, own).encode("latin-1"))


def _endpoint(event: bytes, asked: str, own: str) -> str:
    """Return path and query of a client's POST endpoint in the older transport. Empty if they identify no client."""
    if not _is_endpoint(event):
        return ""
    try:
        found = urlsplit(urljoin(own + asked, (event_field(event, b"data") or b"").decode("utf-8", "replace")))
    except ValueError:
        return ""
    here = f"{found.scheme}://{found.netloc}" == own
    return f"{found.path}?{found.query}" if found.query and here else ""


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
    """Run the HTTP gateway until it is stopped. Raises OSError if it cannot listen on the port."""
    asyncio.run(_serve(WebGateway(upstream, settings, totals, tell), upstream, port, tell))


async def _serve(gateway: WebGateway, upstream: McpUpstream, port: int, tell: Callable[[str], None]) -> None:
    stop = asyncio.Event()
    with suppress(NotImplementedError):  # Windows: an interrupt ends the process at once
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
    server = web.Server(gateway.handle, access_log=None, logger=quiet, handler_cancellation=True, auto_decompress=False)
    runner = web.ServerRunner(server, shutdown_timeout=STOP_SECONDS)
    async with gateway:
        try:
            await runner.setup()
            await web.TCPSite(runner, "127.0.0.1", port).start()
            own = f"http://127.0.0.1:{runner.addresses[0][1]}"
            tell(f"{own}{upstream.path} forwards to {upstream.origin}{upstream.path} (stop with Ctrl-C)")
            await stop.wait()
        finally:
            await runner.cleanup()
