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
from ...providers.addresses import in_region
from ...providers.egress import Hop, certificate_sources, hop
from ...providers.headers import HeaderList
from .connections import Connector, UpstreamProtocol, context

CONNECT_SECONDS = 60.0
"""Seconds to connect to an upstream."""
MAX_PLACES = 200
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

Broken = (aiohttp.ClientError, OSError, TimeoutError, aiohttp.http.HttpProcessingError)
"""Errors of an upstream connection."""

log = logging.getLogger("ibidem")


@dataclass(frozen=True, slots=True)
class Egress:
    """Outbound proxies and certificates for the upstreams."""

    hops: Mapping[str, Hop | None]
    """Outbound proxy by provider; None for a direct connection."""
    context: ssl.SSLContext | None
    """TLS settings; None if no connection uses TLS."""
    way: Callable[[str], Hop | None]
    """Function that returns the outbound proxy for an address."""

    @property
    def shown(self) -> tuple[str, ...]:
        """Outbound proxies for messages, without passwords."""
        return tuple(dict.fromkeys(f"{each.url} ({each.variable})" for each in self.hops.values() if each is not None))


def egress_of(bases: Mapping[str, str]) -> Egress:
    """Return the egress from the environment. Raises IbidemError if a setting there cannot be followed."""
    variables = environment.variables()
    way = lru_cache(MAX_PLACES)(lambda base: hop(base, variables, environment.system_proxies))
    hops = {provider: way(base) for provider, base in bases.items() if base}
    socks = next((each for each in hops.values() if each is not None and each.socks), None)
    if socks is not None and find_spec("python_socks") is None:
        raise IbidemError(f"{socks.variable}: a SOCKS proxy needs: {environment.install_command('socks')}")
    safe = any(urlsplit(base).scheme == "https" for base in bases.values())
    safe = safe or any(each is not None and each.scheme == "https" for each in hops.values())
    return Egress(hops, context(certificate_sources(variables)) if safe else None, way)


class _Place(NamedTuple):
    """Address of an upstream, with everything that is constant for its requests."""

    base: URL
    asked: aiohttp.ClientRequest
    """Request that identifies the connection for aiohttp's connector."""
    origin: str
    path: str
    """Path to put before the request's own."""
    host: str
    """Value of the `Host` header."""
    another: Callable[[], Awaitable[Connection]]
    """Function that opens an unused connection."""
    warn: Callable[[], None]
    """Function to call after an unrequested response."""


class Upstreams:
    """Upstreams by provider. Needs a running event loop."""

    def __init__(self, bases: Mapping[str, str], egress: Egress) -> None:
        self._bases = bases
        self._egress = egress
        self._socks: dict[tuple[str, int], Hop] = {}
        self._connector = Connector(self._socks, limit=0, ttl_dns_cache=300, ssl=egress.context or True)
        self._places: dict[str, _Place] = {}
        """Upstream by address."""
        for provider, base in bases.items():
            if base:
                self._place(provider)
        self._timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS)
        self._distrusted: set[str] = set()
        """Origins that sent an unrequested response. Their connections are not reused."""

    def host(self, provider: str, region: str = "") -> str:
        """Return the host name of a provider, for messages."""
        return self._place(provider, region).base.host or ""

    async def connect(self, provider: str, region: str = "") -> Link:
        """Return a connection for one exchange."""
        place = self._place(provider, region)
        link = Link(await self._taken(place.asked, place.origin in self._distrusted), place)
        link.protocol.warn = place.warn
        return link

    def _place(self, provider: str, region: str = "") -> _Place:
        """Return the address of a provider in a region."""
        address = in_region(self._bases[provider], region)
        found = self._places.get(address)
        if found is None:
            base, hop = URL(address, encoded=True), self._egress.way(address)
            if hop is not None and hop.socks:
                self._socks[base.raw_host or "", base.port or 0] = hop
            asked, origin = _request(base, hop), str(base.origin())
            path, host = base.raw_path.rstrip("/"), base.host_port_subcomponent or ""
            another, warn = partial(self._taken, asked, True), partial(self._distrust, origin)
            found = _Place(base, asked, origin, path, host, another, warn)
            if len(self._places) < MAX_PLACES:
                self._places[address] = found
        return found

    def _distrust(self, origin: str) -> None:
        if origin not in self._distrusted:
            self._distrusted.add(origin)
            host = urlsplit(origin).hostname
            log.warning("%s sends responses without a request: its connections are no longer reused", host)

    async def _taken(self, asked: aiohttp.ClientRequest, fresh: bool = False) -> Connection:
        """Return a connection without unrequested data; with `fresh`, one that was not used before."""
        while True:
            connection = await self._connector.connect(asked, [], self._timeout)
            protocol = connection.protocol
            assert isinstance(protocol, UpstreamProtocol)
            if not protocol.used and not protocol.is_connected():
                return connection  # its first use raises the reason
            if protocol.is_clean() and not (fresh and protocol.used):
                return connection
            connection.close()
            if not protocol.used:
                raise aiohttp.ClientConnectionError("sent data before a request")

    async def close(self) -> None:
        """Close all connections."""
        await self._connector.close()


def _request(base: URL, hop: Hop | None) -> aiohttp.ClientRequest:
    """Return a request that identifies the connection for aiohttp's connector."""
    proxy, headers = None, None
    if hop is not None and not hop.socks:
        proxy = URL(hop.url)
        if hop.user is not None:
            known = b64encode(f"{hop.user}:{hop.password}".encode()).decode()
            headers = CIMultiDict({"Proxy-Authorization": f"Basic {known}", "Host": base.host_port_subcomponent or ""})
    return aiohttp.ClientRequest(
        "GET",
        base,
        loop=asyncio.get_running_loop(),
        proxy=proxy,
        proxy_headers=headers,
        skip_auto_headers=AUTOMATIC_HEADERS,
    )


class Link:
    """Upstream connection for one exchange. If a reused connection has timed out, it is replaced by a new one."""

    def __init__(self, connection: Connection, place: _Place) -> None:
        self._place = place
        asked = place.asked
        through = asked.proxy is not None and not asked.is_ssl()
        self._through: Mapping[str, str] | None = (asked.proxy_headers or {}) if through else None
        self._waiting = b""
        self._chunked = False
        self._method = ""
        self._take(connection)
        self._written: list[bytes] | None = [] if self.protocol.used else None
        """Written data for a retry; None if no retry is possible."""

    def _take(self, connection: Connection) -> None:
        assert isinstance(connection.protocol, UpstreamProtocol)
        self._connection = connection
        self.protocol = connection.protocol

    def start(self, method: str, target: str, headers: HeaderList, chunked: bool) -> None:
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
        self._ask()

    def _ask(self) -> None:
        self.protocol.set_response_params(skip_payload=self._method == "HEAD", read_until_eof=True, **READING)

    def flush(self) -> None:
        """Send the head now, if the body may arrive later."""
        self._write(self._waiting)
        self._waiting = b""

    def send(self, data: bytes) -> None:
        """Send a part of the request body."""
        if self._written is not None and sum(map(len, self._written)) > MAX_JOINED_BYTES:
            self._written = None  # too large to store for a retry
        if self._chunked:
            data = b"%x\r\n%b\r\n" % (len(data), data) if data else b""
        if self._waiting and len(data) <= MAX_JOINED_BYTES:
            self._write(self._waiting + data)
        else:
            self._write(self._waiting)
            self._write(data)
        self._waiting = b""

    def end(self) -> None:
        """End the request body."""
        self.protocol.complete = True
        last = b"0\r\n\r\n" if self._chunked else b""
        self._write(self._waiting + last)
        self._waiting = b""

    def _write(self, data: bytes) -> None:
        if self._written is not None and data:
            self._written.append(data)
        transport = self.protocol.transport
        if transport is not None and data:  # without a transport, waiting for the response raises the error
            transport.write(data)

    async def drain(self) -> None:
        """Wait until the upstream has read enough to be sent more."""
        if self.protocol.writing_paused:
            await self.protocol._drain_helper()

    async def answer(self) -> tuple[aiohttp.http.RawResponseMessage, aiohttp.StreamReader]:
        """Return the response after any informational ones. Retry once if a reused connection had timed out."""
        try:
            found = await self._read_answer()
        except Broken:
            if not self._may_ask_again or self._method not in SAFE_METHODS or self.protocol.received:
                raise
        else:
            if found[0].code != TIMED_OUT or not self._may_ask_again:
                self._written = None
                return found
        await self._ask_again()
        return await self._read_answer()

    async def _read_answer(self) -> tuple[aiohttp.http.RawResponseMessage, aiohttp.StreamReader]:
        while True:
            message, content = await self.protocol.read()
            if message.code >= 200 or message.code == 101:
                return message, content

    @property
    def _may_ask_again(self) -> bool:
        """True if the connection is a reused one that may have timed out, and the whole request is stored."""
        return self._written is not None and self.protocol.complete

    async def _ask_again(self) -> None:
        said, self._written = self._written or [], None
        self.cancel()
        self._take(await self._place.another())
        self._ask()
        for each in said:
            self._write(each)
        self.protocol.complete = True

    def broke_off(self) -> BaseException | None:
        """Return the error that ended the connection, for a response whose end is the end of the connection."""
        found = None if self.protocol.finished else self.protocol.exception()
        return found if isinstance(found, aiohttp.ClientOSError) else None

    def release(self) -> None:
        """Return the connection to the pool, if it is in order."""
        self.protocol.park()
        self._connection.release()

    def close(self) -> None:
        """Close the connection after sending the data already written."""
        self._connection.close()

    def cancel(self) -> None:
        """Close the connection at once. Unsent data is dropped."""
        if self._connection.protocol is not None:
            with suppress(Exception):
                self.protocol.abort()
            self._connection.close()


def why(error: BaseException) -> str:
    """Describe an error in one line."""
    if isinstance(error, TimeoutError):
        return "no response in time"
    return one_line(str(error)) or type(error).__name__


def unread(content: Any) -> bytes:
    """Return the data of a failed response that arrived but was not forwarded yet."""
    return bytes(content._read_nowait(-1)) if getattr(content, "_buffer", None) else b""
