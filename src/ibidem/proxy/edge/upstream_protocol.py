"""Protocol of an upstream connection that rejects unrequested data.

On an idle connection, data can arrive without a request: a 408 of a load balancer, a response that was sent twice,
bytes after the end of a response. The next request would take it for its own response, and all later requests would
get the response of the one before. So a connection is closed as soon as data arrives that no request waits for.
"""

from __future__ import annotations

import asyncio
import functools
import re
import select
import socket
import ssl
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp.client_proto import ResponseHandler

from ...providers.egress import CertificateSource, OutboundProxy, certificate_error

CONNECTION_STATUSES = frozenset({400, 408, 421, 425, 431})
"""Statuses below 500 that can concern the connection instead of the request.

The real response may still follow and must not reach another request, so the connection is not reused.
"""
RESPONSE_STARTS = (b"HTTP/1.1 2", b"HTTP/1.1 3", b"HTTP/1.0 2", b"HTTP/1.0 3")
POLLS = hasattr(select, "poll")
HASHED = re.compile(r"[0-9a-f]{8}\.\d+")
"""Names of certificates in a folder that OpenSSL looks up."""


def _do_nothing() -> None:
    """Do nothing: the default for `UpstreamProtocol.warn`."""


class UpstreamProtocol(ResponseHandler):
    """Upstream connection. It is new, then alternates between a request in progress and idle.

    `is_finished` marks the time between the two: the response is complete, but the connection is not yet released.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop)
        self.warn: Callable[[], None] = _do_nothing
        """Function to call after an unrequested response, except those of load balancers."""
        self.is_used = False
        """True if it was used for a request before."""
        self.is_request_complete = False
        """True if the whole request was written."""
        self.has_received = False
        """True if data has arrived since the request."""
        self.is_finished = False
        self._idle = False
        self._is_doubtful = False
        """True if the response may concern the connection, so that the real response may follow."""
        self._is_upgraded = False
        """True if it was upgraded from HTTP to another protocol."""
        self._content: Any = None
        """Body of the response, after its head has arrived."""
        self._poll_state: tuple[object, Any, Any] = (None, None, None)
        """Transport, its socket, and a poll object for that socket."""

    def set_response_params(self, **params: Any) -> None:
        """Prepare for a request that is about to be written."""
        self.is_request_complete = self.has_received = self.is_finished = self._idle = False
        self._content = None
        super().set_response_params(**params)

    def is_clean(self) -> bool:
        """Return whether the connection can be used: open, and without unrequested data until now."""
        return self.is_connected() and not self.should_close and not (self.is_used and self._has_unread_data())

    def make_idle(self) -> None:
        """Make the connection idle after a response. Data that arrives from now on is unrequested."""
        if not self.is_finished:
            self.force_close()
        self.is_used = self._idle = True
        self._parser = None

    def data_received(self, data: bytes) -> None:
        if self._is_upgraded:
            super().data_received(data)
        elif self._idle or self.is_finished:
            if data:
                self._reject_unrequested(data.startswith(RESPONSE_STARTS))
        elif self._parser is None:
            super().data_received(data)
        else:
            self._parse_response(data)

    def _parse_response(self, data: bytes) -> None:
        """Parse data of a response. The head is parsed by lines, so that it is complete before an error in the rest."""
        start = 0 if self.has_received else _head_end(data)
        self.has_received = True
        if start:
            super().data_received(data[:start])
            if self._exception is not None:
                return
        while self._content is None and (end := data.find(b"\n", start) + 1):
            super().data_received(data[start:end])
            start = end
            if self._exception is not None:
                return
        super().data_received(data[start:])
        if self._content is None or self._is_upgraded:
            return
        if self._content.is_eof():
            self._finish_response()
        elif self._exception is not None:  # wake up the reader of the body with the error
            self._content.set_exception(aiohttp.ClientPayloadError(str(self._exception)))

    def feed_data(self, data: Any, size: int = 0) -> None:
        """Handle a parsed message. The first that is not informational is the response; any further one is an error."""
        message, content = data
        if self._content is not None:
            self._reject_unrequested(200 <= message.code < 400)
            return
        if message.code >= 200 or message.code == 101:
            self._content = content
            early = not self.is_request_complete or (
                self.transport is not None and self.transport.get_write_buffer_size() > 0
            )
            self._is_doubtful = early or message.code in CONNECTION_STATUSES or message.code >= 500
            self._is_upgraded = message.code == 101
            if self._is_doubtful or self._is_upgraded:
                self.force_close()
        super().feed_data(data, size)

    def _finish_response(self) -> None:
        self.is_finished = True
        try:
            has_more = self._parser is not None and self._parser.feed_eof() is not None
        except Exception:
            has_more = True
        if has_more:
            self._reject_unrequested()

    def _reject_unrequested(self, is_response: bool = False) -> None:
        if (
            is_response and not self._is_doubtful
        ):  # after a doubtful response, the real one may arrive without being an error
            self.warn()
        self.force_close()
        if self.is_finished or self._idle:  # the requested response is complete
            self.close()

    def _has_unread_data(self) -> bool:
        """Return whether the socket has data (or its end) that the event loop has not read yet."""
        transport = self.transport
        if transport is None:
            return False
        if self._poll_state[0] is not transport:
            self._poll_state = transport, transport.get_extra_info("socket"), select.poll() if POLLS else None
        _, sock, poll = self._poll_state
        if sock is None or (number := sock.fileno()) < 0:
            return False
        if poll is None:
            return bool(select.select([number], [], [], 0)[0])
        poll.register(number, select.POLLIN)
        return bool(poll.poll(0))


def _head_end(data: bytes) -> int:
    """Return the end of a complete, regular head in `data`; 0 if it must be parsed line by line."""
    end = data.find(b"\r\n\r\n") + 4
    return end if end > 3 and data.find(b"\n\n", 0, end) < 0 and data.find(b"\n\r\n", 0, end) == end - 3 else 0


class Connector(aiohttp.TCPConnector):
    """Connection pool with `UpstreamProtocol` connections and SOCKS proxies."""

    def __init__(self, hops: Mapping[tuple[str, int], OutboundProxy], **settings: Any) -> None:
        """`hops`: SOCKS proxies, by host and port of the upstream behind them."""
        super().__init__(**settings)
        self._factory = functools.partial(UpstreamProtocol, loop=self._loop)  # type: ignore[assignment]
        self._hops = hops

    async def _create_connection(self, req: aiohttp.ClientRequest, traces: Any, timeout: Any) -> ResponseHandler:
        host, port = req.url.raw_host or "", req.url.port or 0
        hop = self._hops.get((host, port))
        if hop is None:
            return await super()._create_connection(req, traces, timeout)
        context = self._get_ssl_context(req)
        _, protocol = await self._wrap_existing_connection(
            self._factory,
            timeout=timeout,
            ssl=context,
            sock=await _through_socks(hop, host, port, timeout.sock_connect),
            server_hostname=host.rstrip(".") if context else None,
            req=req,
        )
        return protocol


async def _through_socks(hop: OutboundProxy, host: str, port: int, seconds: float) -> socket.socket:
    """Connect through a SOCKS proxy. The proxy resolves the host name, because this machine may not be able to."""
    from python_socks import ProxyError, ProxyType
    from python_socks.async_.asyncio import Proxy

    proxy = Proxy(ProxyType.SOCKS5, hop.host, hop.port, hop.user, hop.password, rdns=True)
    try:
        return await proxy.connect(host, port, timeout=seconds)
    except ProxyError as error:
        raise aiohttp.ClientConnectionError(f"{hop.redacted_url}: {error}") from None


def tls_context(sources: Iterable[CertificateSource]) -> ssl.SSLContext:
    """Return TLS settings with the system's certificates and those in `sources`. Raises IbidemError if unreadable."""
    settings = ssl.create_default_context()
    settings.set_alpn_protocols(["http/1.1"])
    settings.verify_flags &= (
        ~ssl.VERIFY_X509_STRICT
    )  # certificates of company proxies often violate it, and no client requires it
    usual = ssl.get_default_verify_paths()
    for location in ({"cafile": usual.openssl_cafile}, {"capath": usual.openssl_capath}):
        with suppress(OSError):  # load them explicitly, because SSL_CERT_FILE would replace them
            settings.load_verify_locations(**location)
    for source in sources:
        try:
            _load_certificates(settings, source.path)
        except ssl.SSLError:
            raise certificate_error(source, "it contains no certificates") from None
        except OSError as error:
            raise certificate_error(source, error.strerror or "it cannot be read") from None
    return settings


def _load_certificates(settings: ssl.SSLContext, path: Path) -> None:
    if not path.is_dir():
        settings.load_verify_locations(cafile=path)
        return
    files = sorted(path.iterdir())
    settings.load_verify_locations(capath=path)
    if not any(HASHED.fullmatch(each.name) for each in files):  # OpenSSL looks up only such names, so load the others
        for each in files:
            if each.suffix in (".pem", ".crt", ".cer"):
                with suppress(OSError):
                    settings.load_verify_locations(cafile=each)
