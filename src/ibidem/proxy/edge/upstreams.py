"""Connections to the upstreams, kept open between requests.

Of aiohttp's client, the connector (names, TLS, proxies, what is kept open) and the parser of answers are used, and not
the session above them: that one would tidy what is sent. Here a request goes out in the bytes that it is given in.
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
"""Seconds to reach an upstream."""
MAX_PLACES = 200
"""Addresses that are remembered: one for each region, and there are some fifty."""
CHUNK_BYTES = 2**18
"""Bytes of an answer that are taken in before they are passed on."""
MAX_HEADER_BYTES = 2**20
"""Bytes that one header may have; more than any provider takes."""
READING: dict[str, Any] = {
    "auto_decompress": False,
    "read_bufsize": CHUNK_BYTES,
    "max_line_size": MAX_HEADER_BYTES,
    "max_field_size": MAX_HEADER_BYTES,
    "max_headers": 10_000,
}
"""How messages are read, of clients and of upstreams."""
AUTOMATIC_HEADERS = ("Accept", "Accept-Encoding", "User-Agent")
"""What aiohttp would tell a proxy about itself."""
MAX_JOINED_BYTES = 2**16
"""Bytes up to which head and body go out in one piece."""

SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
"""Methods that may be asked again when a connection that was in use before ends without a word."""
TIMED_OUT = 408

Broken = (aiohttp.ClientError, OSError, TimeoutError, aiohttp.http.HttpProcessingError)
"""What an upstream may fail with."""

log = logging.getLogger("ibidem")


@dataclass(frozen=True, slots=True)
class Egress:
    """How the upstreams are reached from this machine."""

    hops: Mapping[str, Hop | None]
    """By provider: the proxy on the way."""
    context: ssl.SSLContext | None
    """None: nobody on the way speaks TLS."""
    way: Callable[[str], Hop | None]
    """The proxy on the way to any other address."""

    @property
    def shown(self) -> tuple[str, ...]:
        """The proxies, without what is secret."""
        return tuple(dict.fromkeys(f"{each.url} ({each.variable})" for each in self.hops.values() if each is not None))


def egress_of(bases: Mapping[str, str]) -> Egress:
    """As the environment says. Raises IbidemError where that cannot be followed."""
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
    """An address that requests are sent to, and what is said of it in each of them."""

    base: URL
    asked: aiohttp.ClientRequest
    origin: str
    path: str
    """Before the request's own."""
    host: str
    """For the header."""
    another: Callable[[], Awaitable[Connection]]
    """A connection that was not used yet."""
    warn: Callable[[], None]
    """Told of an answer that nobody had asked for."""


class Upstreams:
    """By provider. To be made where a loop is running."""

    def __init__(self, bases: Mapping[str, str], egress: Egress) -> None:
        self._bases = bases
        self._egress = egress
        self._socks: dict[tuple[str, int], Hop] = {}
        self._connector = Connector(self._socks, limit=0, ttl_dns_cache=300, ssl=egress.context or True)
        self._places: dict[str, _Place] = {}
        """By address."""
        for provider, base in bases.items():
            if base:
                self._place(provider)
        self._timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS)
        self._distrusted: set[str] = set()
        """Who gave an answer that nobody had asked for: there a connection is used once."""

    def host(self, provider: str, region: str = "") -> str:
        return self._place(provider, region).base.host or ""

    async def connect(self, provider: str, region: str = "") -> Link:
        place = self._place(provider, region)
        link = Link(await self._taken(place.asked, place.origin in self._distrusted), place)
        link.protocol.warn = place.warn
        return link

    def _place(self, provider: str, region: str = "") -> _Place:
        """Where a request of this provider goes."""
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
            log.warning("%s gives answers that nobody asked for: a connection is used once there", host)

    async def _taken(self, asked: aiohttp.ClientRequest, fresh: bool = False) -> Connection:
        """One on which nothing was heard that nobody asked for; with `fresh`, one that was not used yet."""
        while True:
            connection = await self._connector.connect(asked, [], self._timeout)
            protocol = connection.protocol
            assert isinstance(protocol, UpstreamProtocol)
            if not protocol.used and not protocol.is_connected():
                return connection  # which says why, when it is asked
            if protocol.is_clean() and not (fresh and protocol.used):
                return connection
            connection.close()
            if not protocol.used:
                raise aiohttp.ClientConnectionError("it spoke before it was asked")

    async def close(self) -> None:
        await self._connector.close()


def _request(base: URL, hop: Hop | None) -> aiohttp.ClientRequest:
    """Names the other end of a connection."""
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
    """One connection, for the time of one exchange; another one, if the first had timed out meanwhile."""

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
        """All that was written, as long as it may have to be said again."""

    def _take(self, connection: Connection) -> None:
        assert isinstance(connection.protocol, UpstreamProtocol)
        self._connection = connection
        self.protocol = connection.protocol

    def start(self, method: str, target: str, headers: HeaderList, chunked: bool) -> None:
        """The head. It goes out with what follows it."""
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
        """The head, where it is not known when something will follow it."""
        self._write(self._waiting)
        self._waiting = b""

    def send(self, data: bytes) -> None:
        if self._written is not None and sum(map(len, self._written)) > MAX_JOINED_BYTES:
            self._written = None  # too much to be kept: it is not said again
        if self._chunked:
            data = b"%x\r\n%b\r\n" % (len(data), data) if data else b""
        if self._waiting and len(data) <= MAX_JOINED_BYTES:
            self._write(self._waiting + data)
        else:
            self._write(self._waiting)
            self._write(data)
        self._waiting = b""

    def end(self) -> None:
        self.protocol.complete = True
        last = b"0\r\n\r\n" if self._chunked else b""
        self._write(self._waiting + last)
        self._waiting = b""

    def _write(self, data: bytes) -> None:
        if self._written is not None and data:
            self._written.append(data)
        transport = self.protocol.transport
        if transport is not None and data:  # without one the answer is an error, which is awaited anyway
            transport.write(data)

    async def drain(self) -> None:
        """Until the upstream has taken enough of it to be sent more."""
        if self.protocol.writing_paused:
            await self.protocol._drain_helper()

    async def answer(self) -> tuple[aiohttp.http.RawResponseMessage, aiohttp.StreamReader]:
        """The first that is more than a sign of life."""
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
        """It was in use before, so upstream may have spoken of that time; and all of the request is in hand."""
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
        """Why the connection ended, for an answer whose end is told by nothing else."""
        found = None if self.protocol.finished else self.protocol.exception()
        return found if isinstance(found, aiohttp.ClientOSError) else None

    def release(self) -> None:
        """It may be used again, if all is well with it."""
        self.protocol.park()
        self._connection.release()

    def close(self) -> None:
        """It may not, but what was written to it is still sent."""
        self._connection.close()

    def cancel(self) -> None:
        """At once: what was not sent yet is not sent any more."""
        if self._connection.protocol is not None:
            with suppress(Exception):
                self.protocol.abort()
            self._connection.close()


def why(error: BaseException) -> str:
    """What went wrong, in words."""
    if isinstance(error, TimeoutError):
        return "did not answer in time"
    return one_line(str(error)) or type(error).__name__


def unread(content: Any) -> bytes:
    """What came of an answer before it broke off, and was not passed on yet."""
    return bytes(content._read_nowait(-1)) if getattr(content, "_buffer", None) else b""
