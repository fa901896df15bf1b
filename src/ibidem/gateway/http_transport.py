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

from .line_framing import MAX_MESSAGE_BYTES
from .mcp_session import GatewaySettings, GatewayTotals, McpSession
from .mcp_upstream import McpUpstream, proxy_for, proxy_headers, rejection_reason, rewrite_location
from .sse_framing import EventFraming, event_field, replace_data

MAX_SESSIONS = 64
"""Maximum sessions. The least recently used is evicted first."""
MAX_REPORTED = 100
"""Maximum lines on standard error. Each line is printed once."""
SESSION_HEADER = "Mcp-Session-Id"
NOT_FORWARDED = frozenset(
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


class HttpGateway:
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
        self._reported: set[str] = set()
        self._most = most
        self._sessions: OrderedDict[SessionKey, McpSession] = OrderedDict()
        self._client: ClientSession | None = None
        self._hop = proxy_for(upstream)
        self._session_arguments = settings, totals, self._tell_once
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
            return await self._forward_request(request)
        except web.RequestPayloadError:
            return web.Response(status=400, text="the request is incomplete\n")
        except Exception as error:
            self._report_fault(error)
            return web.Response(status=500, text="error in the gateway: see its standard error\n")

    async def _forward_request(self, request: web.BaseRequest) -> web.StreamResponse:
        if why := rejection_reason(
            request.host, request.headers.get("Origin"), request.headers.get("Sec-Fetch-Site", "none")
        ):
            return web.Response(status=403, text=why + "\n")
        if not request.raw_path.startswith("/"):
            return web.Response(status=400, text="this is a gateway to one server, not a proxy\n")
        assert self._client is not None
        session, new_session = self._find_session(request)
        body, own_response = await self._read_request(request, session, new_session)
        if own_response:
            return web.Response(body=own_response, content_type="application/json")
        url = URL(self._upstream.origin + request.raw_path, encoded=True)
        headers = [(name, value) for name, value in request.headers.items() if name.lower() not in NOT_FORWARDED]
        try:
            async with self._client.request(
                request.method,
                url,
                headers=[*headers, ("Accept-Encoding", "identity")],
                data=BytesIO(body) if isinstance(body, bytes) and body else body,  # aiohttp sends a file in chunks
                allow_redirects=False,
                proxy=None if self._hop is None else URL(self._hop.redacted_url),
                proxy_headers=proxy_headers(self._hop),
                skip_auto_headers=("User-Agent", "Content-Type", "Accept"),
            ) as answer:
                return await self._forward_response(request, answer, session, new_session)
        except (ClientError, OSError, TimeoutError) as error:
            return web.Response(status=502, text=self._unreachable_message(error))

    def _unreachable_message(self, error: Exception) -> str:
        way_out = "Check that it runs and that --url is its address"
        if self._hop is not None and isinstance(error, ClientProxyConnectionError):
            way_out = f"Check that the proxy {self._hop.redacted_url} from {self._hop.variable} runs"
        return f"{self._upstream.origin}: no response ({type(error).__name__}). {way_out}\n"

    # --- sessions ---------------------------------------------------------------------------------

    def _find_session(self, request: web.BaseRequest) -> tuple[McpSession | None, McpSession]:
        """Return the session that a request continues, or None, and a new one in case the request starts one."""
        new_session = McpSession(*self._session_arguments)
        session_id = request.headers.get(SESSION_HEADER)
        key = ("header", session_id) if session_id else ("endpoint", request.path_qs)
        session = self._sessions.get(key)
        if session is None and session_id:
            # The session is older than this gateway. The client's name is unknown, so it gets no hints.
            session = self._store_session(key, new_session)
        if session is not None:
            self._sessions.move_to_end(key)
        return session, new_session

    def _store_session(self, key: SessionKey, session: McpSession) -> McpSession:
        self._sessions[key] = session
        while len(self._sessions) > MAX_SESSIONS:
            self._sessions.popitem(last=False)
        return session

    def _tell_once(self, line: str) -> None:
        if (
            line not in self._reported and len(self._reported) < MAX_REPORTED
        ):  # bounded, because clients choose their names
            self._reported.add(line)
            self._tell_user(line)

    def _report_fault(self, error: Exception) -> None:
        self._tell_once(f"a request was not forwarded after a bug in ibidem ({type(error).__name__}). Please report it")

    # --- requests ---------------------------------------------------------------------------------

    async def _read_request(
        self, request: web.BaseRequest, session: McpSession | None, new_session: McpSession
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
                    session.clear_memory()
                return _remaining_body(bytes(head), request), b""
        if session is None and b'"initialize"' not in head:
            return bytes(head), b""
        if request.method != "POST" or _is_compressed(request.headers):
            if session is not None:
                session.clear_memory()
            return bytes(head), b""
        target = (session or new_session).from_client(bytes(head), time.monotonic())
        return target.to_server, target.to_client

    # --- responses --------------------------------------------------------------------------------

    async def _forward_response(
        self, request: web.BaseRequest, answer: ClientResponse, session: McpSession | None, new_session: McpSession
    ) -> web.StreamResponse:
        session = self._response_session(request, answer, session, new_session)
        response = web.StreamResponse(status=answer.status, reason=answer.reason)
        own_origin = _own_origin(request)
        for name, value in answer.headers.items():
            if name.lower() not in NOT_FORWARDED:
                is_location = name.lower() == "location"
                response.headers.add(
                    name, rewrite_location(value, self._upstream, own_origin) if is_location else value
                )
        pieces = self._rewritten_body(request, answer, session)
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
                await _write_or_clear(response, piece, session)
            await response.write_eof()
        except Exception as error:  # the body is incomplete: abort, so that the client does not take it as complete
            if not isinstance(error, ClientError | OSError):
                self._report_fault(error)
            if request.transport is not None:
                request.transport.abort()
        return response

    def _rewritten_body(
        self, request: web.BaseRequest, answer: ClientResponse, session: McpSession | None
    ) -> AsyncIterator[bytes] | None:
        """Return the rewritten body in chunks, or None if the body is forwarded unread."""
        is_stream, is_json = answer.content_type == "text/event-stream", answer.content_type == "application/json"
        if (is_stream or is_json) and (answer.status != 200 or _is_compressed(answer.headers)):
            # The body may contain a result, and clients differ in whether they accept it.
            if session is not None and answer.headers.get("Content-Length") != "0":
                session.clear_memory()
            return None
        if is_stream:
            return self._rewrite_events(request, answer, session)
        return self._rewrite_json(answer, session) if is_json and session is not None else None

    def _response_session(
        self, request: web.BaseRequest, answer: ClientResponse, session: McpSession | None, new_session: McpSession
    ) -> McpSession | None:
        """Return the session of a response, or None."""
        session_id = answer.headers.get(SESSION_HEADER)
        if session_id and request.headers.get(SESSION_HEADER) != session_id:
            # The server has given the same id to a second client. Such clients cannot be separated and get no hints.
            is_repeated = ("header", session_id) in self._sessions
            session = self._store_session(
                ("header", session_id), McpSession(*self._session_arguments) if is_repeated else new_session
            )
        request_id = request.headers.get(SESSION_HEADER)
        if request_id and (answer.status == 404 or (request.method == "DELETE" and answer.status < 300)):
            self._sessions.pop(("header", request_id), None)
        if session is None and request.method == "POST" and answer.status == 200:
            self._tell_once(NO_SESSION)
        return session

    async def _rewrite_json(self, answer: ClientResponse, session: McpSession) -> AsyncIterator[bytes]:
        body = bytearray()
        pieces = answer.content.iter_any()
        async for piece in pieces:
            body += piece
            if len(body) > self._most:
                session.clear_memory()
                yield bytes(body)
                break
        else:
            yield session.from_server(bytes(body), time.monotonic())
            return
        async for piece in pieces:
            yield piece

    async def _rewrite_events(
        self, request: web.BaseRequest, answer: ClientResponse, session: McpSession | None
    ) -> AsyncIterator[bytes]:
        framing, own_origin = EventFraming(self._most), _own_origin(request)
        key: SessionKey | None = None
        try:
            async for piece in answer.content.iter_any():
                forwarded = []
                for frame_data, whole in framing.feed(piece):
                    data = _rewrite_endpoint(frame_data, self._upstream, own_origin) if whole else frame_data
                    if whole and session is None and (path := _endpoint_path(data, request.path_qs, own_origin)):
                        key = ("endpoint", path)
                        session = self._store_session(
                            key, McpSession(self._stream_settings, self._totals, self._tell_once)
                        )
                    forwarded.append(_rewrite_event(data, whole, session))
                yield b"".join(forwarded)
            for data, _ in framing.flush():
                yield data
        finally:
            if key is not None:  # in the older transport, the session ends with its stream
                self._sessions.pop(key, None)


def _own_origin(request: web.BaseRequest) -> str:
    """Return the gateway's origin, as this client names it."""
    return f"{request.scheme}://{request.host}"


def _is_compressed(headers: Mapping[str, str]) -> bool:
    return headers.get("Content-Encoding", "identity").strip().lower() != "identity"


async def _write_or_clear(response: web.StreamResponse, piece: bytes, session: McpSession | None) -> None:
    try:
        await response.write(piece)
    except BaseException:
        if session is not None:  # unknown how much the client has read
            session.clear_memory()
        raise


def _rewrite_event(event: bytes, whole: bool, session: McpSession | None) -> bytes:
    if session is None:
        return event
    if not whole:
        session.clear_memory()
        return event
    return replace_data(event, lambda data: session.from_server(data, time.monotonic()))


def _is_endpoint(event: bytes) -> bool:
    return event_field(event, b"event") == b"endpoint"


def _rewrite_endpoint(event: bytes, upstream: McpUpstream, own_origin: str) -> bytes:
    """Replace the server's origin in an endpoint event by ours, because the client may only reach us."""
    if not _is_endpoint(event):
        return event
    return replace_data(
        event, lambda data: rewrite_location(data.decode("latin-1"), upstream, own_origin).encode("latin-1")
    )


def _endpoint_path(event: bytes, request_path: str, own_origin: str) -> str:
    """Return path and query of a client's POST endpoint in the older transport. Empty if they identify no client."""
    if not _is_endpoint(event):
        return ""
    try:
        endpoint = urlsplit(
            urljoin(own_origin + request_path, (event_field(event, b"data") or b"").decode("utf-8", "replace"))
        )
    except ValueError:
        return ""
    here = f"{endpoint.scheme}://{endpoint.netloc}" == own_origin
    return f"{endpoint.path}?{endpoint.query}" if endpoint.query and here else ""


async def _remaining_body(head: bytes, request: web.BaseRequest) -> AsyncIterator[bytes]:
    yield head
    async for piece in request.content.iter_chunked(2**16):
        yield piece


def serve_http(
    upstream: McpUpstream,
    port: int,
    settings: GatewaySettings,
    totals: GatewayTotals,
    tell: Callable[[str], None],
) -> None:
    """Run the HTTP gateway until it is stopped. Raises OSError if it cannot listen on the port."""
    asyncio.run(_serve_until_stopped(HttpGateway(upstream, settings, totals, tell), upstream, port, tell))


async def _serve_until_stopped(
    gateway: HttpGateway, upstream: McpUpstream, port: int, tell: Callable[[str], None]
) -> None:
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
            own_origin = f"http://127.0.0.1:{runner.addresses[0][1]}"
            tell(f"{own_origin}{upstream.path} forwards to {upstream.origin}{upstream.path} (stop with Ctrl-C)")
            await stop.wait()
        finally:
            await runner.cleanup()
