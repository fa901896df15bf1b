"""Connections to the upstreams, kept open between requests.

This uses the connector of aiohttp's client (DNS, TLS, proxies, connection pool) and its response parser, but not its
session, which would normalize requests. Here the bytes of a request are sent unchanged.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from base64 import b64encode
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache, partial
from importlib.util import find_spec
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import aiohttp
from aiohttp.connector import Connection
from multidict import CIMultiDict
from yarl import URL

from ... import environment
from ...errors import IbidemError, one_line
from ...providers.addresses import url_in_region
from ...providers.egress import OutboundProxy, find_certificate_sources, find_outbound_proxy
from ...providers.headers import HeaderList
from .upstream_protocol import Connector, UpstreamProtocol, tls_context

CONNECT_SECONDS = 60.0
"""Seconds to connect to an upstream."""
MAX_ADDRESSES = 200
"""Maximum cached addresses. There is one for each region, and a cloud has about fifty."""
CHUNK_BYTES = 2**18
"""Bytes of a response that are buffered before reading pauses."""
MAX_HEADER_BYTES = 2**20
"""Maximum bytes of one header, above the limit of every provider."""
READING: dict[str, Any] = {
    "auto_decompress": False,
    "read_bufsize": CHUNK_BYTES,
    "max_line_size": MAX_HEADER_BYTES,
    "max_field_size": MAX_HEADER_BYTES,
    "max_headers": 10_000,
}
"""Parser settings of aiohttp, for messages of clients and of upstreams."""
AUTOMATIC_HEADERS = ("Accept", "Accept-Encoding", "User-Agent")
"""Headers that aiohttp would add to a request to a proxy."""
MAX_JOINED_BYTES = 2**16
"""Body size up to which head and body are sent in one write."""

SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
"""Methods that are retried if a reused connection closes without a response."""
TIMED_OUT = 408

UPSTREAM_ERRORS = (aiohttp.ClientError, OSError, TimeoutError, aiohttp.http.HttpProcessingError)
"""Errors of an upstream connection."""

log = logging.getLogger("ibidem")


@dataclass(frozen=True, slots=True)
class Egress:
    """Outbound proxies and certificates for the upstreams."""

    proxies: Mapping[str, OutboundProxy | None]
    """Outbound proxy by provider; None for a direct connection."""
    context: ssl.SSLContext | None
    """TLS settings; None if no connection uses TLS."""
    proxy_for: Callable[[str], OutboundProxy | None]
    """Function that returns the outbound proxy for an address."""

    @property
    def proxy_names(self) -> tuple[str, ...]:
        """Outbound proxies for messages, without passwords."""
        return tuple(
            dict.fromkeys(
                f"{each.redacted_url} ({each.variable})" for each in self.proxies.values() if each is not None
            )
        )


def find_egress(bases: Mapping[str, str]) -> Egress:
    """Return the egress from the environment. Raises IbidemError if a setting there cannot be followed."""
    variables = environment.environment_variables()
    proxy_for = lru_cache(MAX_ADDRESSES)(lambda base: find_outbound_proxy(base, variables, environment.system_proxies))
    proxies = {provider: proxy_for(base) for provider, base in bases.items() if base}
    socks = next((each for each in proxies.values() if each is not None and each.is_socks), None)
    if socks is not None and find_spec("python_socks") is None:
        raise IbidemError(f"{socks.variable}: a SOCKS proxy needs: {environment.install_command('socks')}")
    safe = any(urlsplit(base).scheme == "https" for base in bases.values())
    safe = safe or any(each is not None and each.scheme == "https" for each in proxies.values())
    return Egress(proxies, tls_context(find_certificate_sources(variables)) if safe else None, proxy_for)


class _UpstreamAddress(NamedTuple):
    """Address of an upstream, with everything that is constant for its requests."""

    base: URL
    connection_request: aiohttp.ClientRequest
    """Request that identifies the connection for aiohttp's connector."""
    origin: str
    path: str
    """Path to put before the request's own."""
    host: str
    """Value of the `Host` header."""
    open_another: Callable[[], Awaitable[Connection]]
    """Function that opens an unused connection."""
    warn: Callable[[], None]
    """Function to call after an unrequested response."""


class Upstreams:
    """Upstreams by provider. Needs a running event loop."""

    def __init__(self, bases: Mapping[str, str], egress: Egress) -> None:
        self._bases = bases
        self._egress = egress
        self._socks: dict[tuple[str, int], OutboundProxy] = {}
        self._connector = Connector(self._socks, limit=0, ttl_dns_cache=300, ssl=egress.context or True)
        self._addresses: dict[str, _UpstreamAddress] = {}
        """Upstream by address."""
        for provider, base in bases.items():
            if base:
                self._find_address(provider)
        self._timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS)
        self._unreusable: set[str] = set()
        """Origins that sent an unrequested response. Their connections are not reused."""

    def host_name(self, provider: str, region: str = "") -> str:
        """Return the host name of a provider, for messages."""
        return self._find_address(provider, region).base.host or ""

    async def connect_provider(self, provider: str, region: str = "") -> UpstreamConnection:
        """Return a connection for one exchange."""
        address = self._find_address(provider, region)
        link = UpstreamConnection(
            await self._take_connection(address.connection_request, address.origin in self._unreusable), address
        )
        link.protocol.warn = address.warn
        return link

    def _find_address(self, provider: str, region: str = "") -> _UpstreamAddress:
        """Return the address of a provider in a region."""
        address = url_in_region(self._bases[provider], region)
        upstream = self._addresses.get(address)
        if upstream is None:
            base, proxy = URL(address, encoded=True), self._egress.proxy_for(address)
            if proxy is not None and proxy.is_socks:
                self._socks[base.raw_host or "", base.port or 0] = proxy
            request, origin = _connection_request(base, proxy), str(base.origin())
            path, host = base.raw_path.rstrip("/"), base.host_port_subcomponent or ""
            another, warn = partial(self._take_connection, request, True), partial(self._stop_reuse, origin)
            upstream = _UpstreamAddress(base, request, origin, path, host, another, warn)
            if len(self._addresses) < MAX_ADDRESSES:
                self._addresses[address] = upstream
        return upstream

    def _stop_reuse(self, origin: str) -> None:
        if origin not in self._unreusable:
            self._unreusable.add(origin)
            host = urlsplit(origin).hostname
            log.warning("%s sends responses without a request: its connections are no longer reused", host)

    async def _take_connection(self, request: aiohttp.ClientRequest, fresh: bool = False) -> Connection:
        """Return a connection without unrequested data; with `fresh`, one that was not used before."""
        while True:
            connection = await self._connector.connect(request, [], self._timeout)
            protocol = connection.protocol
            assert isinstance(protocol, UpstreamProtocol)
            if not protocol.is_used and not protocol.is_connected():
                return connection  # its first use raises the reason
            if protocol.is_clean() and not (fresh and protocol.is_used):
                return connection
            connection.close()
            if not protocol.is_used:
                raise aiohttp.ClientConnectionError("sent data before a request")

    async def close(self) -> None:
        """Close all connections."""
        await self._connector.close()


def _connection_request(base: URL, outbound: OutboundProxy | None) -> aiohttp.ClientRequest:
    """Return a request that identifies the connection for aiohttp's connector."""
    proxy, headers = None, None
    if outbound is not None and not outbound.is_socks:
        proxy = URL(outbound.redacted_url)
        if outbound.user is not None:
            credentials = b64encode(f"{outbound.user}:{outbound.password}".encode()).decode()
            headers = CIMultiDict(
                {"Proxy-Authorization": f"Basic {credentials}", "Host": base.host_port_subcomponent or ""}
            )
    return aiohttp.ClientRequest(
        "GET",
        base,
        loop=asyncio.get_running_loop(),
        proxy=proxy,
        proxy_headers=headers,
        skip_auto_headers=AUTOMATIC_HEADERS,
    )


class UpstreamConnection:
    """Upstream connection for one exchange. If a reused connection has timed out, it is replaced by a new one."""

    def __init__(self, connection: Connection, address: _UpstreamAddress) -> None:
        self._place = address
        request = address.connection_request
        through = request.proxy is not None and not request.is_ssl()
        self._through: Mapping[str, str] | None = (request.proxy_headers or {}) if through else None
        self._waiting = b""
        self._chunked = False
        self._method = ""
        self._use_connection(connection)
        self._written: list[bytes] | None = [] if self.protocol.is_used else None
        """Written data for a retry; None if no retry is possible."""

    def _use_connection(self, connection: Connection) -> None:
        assert isinstance(connection.protocol, UpstreamProtocol)
        self._connection = connection
        self.protocol = connection.protocol

    def start_request(self, method: str, target: str, headers: HeaderList, chunked: bool) -> None:
        """Prepare the request head. It is sent with the start of the body."""
        path = self._place.path + target
        lines = [f"Host: {self._place.host}", *[f"{name}: {value}" for name, value in headers]]
        if self._through is not None:
            path = f"{self._place.origin}{path}"
            lines += [f"{name}: {value}" for name, value in self._through.items() if name.lower() != "host"]
        first = f"{method} {path} HTTP/1.1\r\n".encode("utf-8", "surrogateescape")
        self._waiting = first + "\r\n".join([*lines, "", ""]).encode("latin-1")
        self._chunked = chunked
        self._method = method
        self._expect_response()

    def _expect_response(self) -> None:
        self.protocol.set_response_params(skip_payload=self._method == "HEAD", read_until_eof=True, **READING)

    def flush_head(self) -> None:
        """Send the head now, if the body may arrive later."""
        self._write_bytes(self._waiting)
        self._waiting = b""

    def send_chunk(self, data: bytes) -> None:
        """Send a part of the request body."""
        if self._written is not None and sum(map(len, self._written)) > MAX_JOINED_BYTES:
            self._written = None  # too large to store for a retry
        if self._chunked:
            data = b"%x\r\n%b\r\n" % (len(data), data) if data else b""
        if self._waiting and len(data) <= MAX_JOINED_BYTES:
            self._write_bytes(self._waiting + data)
        else:
            self._write_bytes(self._waiting)
            self._write_bytes(data)
        self._waiting = b""

    def end_request(self) -> None:
        """End the request body."""
        self.protocol.is_request_complete = True
        last = b"0\r\n\r\n" if self._chunked else b""
        self._write_bytes(self._waiting + last)
        self._waiting = b""

    def _write_bytes(self, data: bytes) -> None:
        if self._written is not None and data:
            self._written.append(data)
        transport = self.protocol.transport
        if transport is not None and data:  # without a transport, waiting for the response raises the error
            transport.write(data)

    async def wait_until_drained(self) -> None:
        """Wait until the upstream has read enough to be sent more."""
        if self.protocol.writing_paused:
            await self.protocol._drain_helper()

    async def read_response(self) -> tuple[aiohttp.http.RawResponseMessage, aiohttp.StreamReader]:
        """Return the response after any informational ones. Retry once if a reused connection had timed out."""
        try:
            response = await self._read_final_response()
        except UPSTREAM_ERRORS:
            if not self._can_retry or self._method not in SAFE_METHODS or self.protocol.has_received:
                raise
        else:
            if response[0].code != TIMED_OUT or not self._can_retry:
                self._written = None
                return response
        await self._retry_request()
        return await self._read_final_response()

    async def _read_final_response(self) -> tuple[aiohttp.http.RawResponseMessage, aiohttp.StreamReader]:
        while True:
            message, content = await self.protocol.read()
            if message.code >= 200 or message.code == 101:
                return message, content

    @property
    def _can_retry(self) -> bool:
        """True if the connection is a reused one that may have timed out, and the whole request is stored."""
        return self._written is not None and self.protocol.is_request_complete

    async def _retry_request(self) -> None:
        written_data, self._written = self._written or [], None
        self.abort_connection()
        self._use_connection(await self._place.open_another())
        self._expect_response()
        for each in written_data:
            self._write_bytes(each)
        self.protocol.is_request_complete = True

    def closing_error(self) -> BaseException | None:
        """Return the error that ended the connection, for a response whose end is the end of the connection."""
        error = None if self.protocol.is_finished else self.protocol.exception()
        return error if isinstance(error, aiohttp.ClientOSError) else None

    def release_connection(self) -> None:
        """Return the connection to the pool, if it is in order."""
        self.protocol.make_idle()
        self._connection.release()

    def close(self) -> None:
        """Close the connection after sending the data already written."""
        self._connection.close()

    def abort_connection(self) -> None:
        """Close the connection at once. Unsent data is dropped."""
        if self._connection.protocol is not None:
            with suppress(Exception):
                self.protocol.abort()
            self._connection.close()


def describe_error(error: BaseException) -> str:
    """Describe an error in one line."""
    if isinstance(error, TimeoutError):
        return "no response in time"
    return one_line(str(error)) or type(error).__name__


def pending_bytes(content: Any) -> bytes:
    """Return the data of a failed response that arrived but was not forwarded yet."""
    return bytes(content._read_nowait(-1)) if getattr(content, "_buffer", None) else b""
