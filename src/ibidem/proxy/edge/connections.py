"""One connection to an upstream, which hears only what it asked for.

A connection that is kept open may hear something while nobody waits: the 408 of a load balancer, an answer that was
sent twice, bytes behind the end of an answer. Whoever asks next would take it for their answer, and everybody behind
them the answer of the one before. So a connection is closed as soon as anything is heard that no request waits for.
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

from ...providers.egress import CertificateSource, Hop, unreadable

UNASKED_STATUSES = frozenset({400, 408, 421, 425, 431})
"""What, beside 500 and more, is said to a connection rather than to a request. It may not be the answer to the one that
was just written: should that follow, it must find nobody else waiting. So the connection is not used again."""
ANSWERS = (b"HTTP/1.1 2", b"HTTP/1.1 3", b"HTTP/1.0 2", b"HTTP/1.0 3")
POLLS = hasattr(select, "poll")
HASHED = re.compile(r"[0-9a-f]{8}\.\d+")
"""How OpenSSL wants certificates to be named in a folder."""


def _ignore() -> None:
    """There is nobody to be told."""


class UpstreamProtocol(ResponseHandler):
    """Fresh, then by turns asked and at rest. `finished` is the time between: all of the answer is here."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop)
        self.warn: Callable[[], None] = _ignore
        """Called when an answer is heard that nobody asked for, and that is none of a load balancer."""
        self.used = False
        """A request was answered on it before."""
        self.complete = False
        """All of the request was given out."""
        self.received = False
        """Something came since it was asked."""
        self.finished = False
        self._idle = False
        self._doubtful = False
        """Its answer may not be one to its request, which may follow."""
        self._switched = False
        """It speaks something else than HTTP now."""
        self._content: Any = None
        """The body of the answer, once there is one."""
        self._watched: tuple[object, Any, Any] = (None, None, None)
        """A transport, its socket, and what tells whether something is in it."""

    def set_response_params(self, **params: Any) -> None:
        """A request is about to be written."""
        self.complete = self.received = self.finished = self._idle = False
        self._content = None
        super().set_response_params(**params)

    def is_clean(self) -> bool:
        """Whether nothing was heard on it that nobody asked for, up to this moment."""
        return self.is_connected() and not self.should_close and not (self.used and self._arrived())

    def park(self) -> None:
        """The answer was taken. It may be kept open, if that was all there was: what comes now is heard by nobody, and
        looked for before it is used again."""
        if not self.finished:
            self.force_close()
        self.used = self._idle = True
        self._parser = None

    def data_received(self, data: bytes) -> None:
        if self._switched:
            super().data_received(data)
        elif self._idle or self.finished:
            if data:
                self._discard(data.startswith(ANSWERS))
        elif self._parser is None:
            super().data_received(data)
        else:
            self._receive(data)

    def _receive(self, data: bytes) -> None:
        """The head by lines: then it has been read when bytes behind the end of the answer are an error."""
        start = 0 if self.received else _head_end(data)
        self.received = True
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
        if self._content is None or self._switched:
            return
        if self._content.is_eof():
            self._end()
        elif self._exception is not None:  # who waits for the rest of it is told
            self._content.set_exception(aiohttp.ClientPayloadError(str(self._exception)))

    def feed_data(self, data: Any, size: int = 0) -> None:
        """A message was read. The first that is more than a sign of life is the answer, and the last."""
        message, content = data
        if self._content is not None:
            self._discard(200 <= message.code < 400)
            return
        if message.code >= 200 or message.code == 101:
            self._content = content
            early = not self.complete or (self.transport is not None and self.transport.get_write_buffer_size() > 0)
            self._doubtful = early or message.code in UNASKED_STATUSES or message.code >= 500
            self._switched = message.code == 101
            if self._doubtful or self._switched:
                self.force_close()
        super().feed_data(data, size)

    def _end(self) -> None:
        self.finished = True
        try:
            begun = self._parser is not None and self._parser.feed_eof() is not None
        except Exception:
            begun = True
        if begun:
            self._discard()

    def _discard(self, answered: bool = False) -> None:
        if answered and not self._doubtful:  # behind what was no answer to it, a request's own may come
            self.warn()
        self.force_close()
        if self.finished or self._idle:  # what was asked for is all here
            self.close()

    def _arrived(self) -> bool:
        """Whether there is something in the socket that the loop has not read yet, if only its end."""
        transport = self.transport
        if transport is None:
            return False
        if self._watched[0] is not transport:
            self._watched = transport, transport.get_extra_info("socket"), select.poll() if POLLS else None
        _, found, poll = self._watched
        if found is None or (number := found.fileno()) < 0:
            return False
        if poll is None:
            return bool(select.select([number], [], [], 0)[0])
        poll.register(number, select.POLLIN)
        return bool(poll.poll(0))


def _head_end(data: bytes) -> int:
    """Where a head ends that is here as a whole, and in the usual way; 0 where it has to be looked at line by line."""
    end = data.find(b"\r\n\r\n") + 4
    return end if end > 3 and data.find(b"\n\n", 0, end) < 0 and data.find(b"\n\r\n", 0, end) == end - 3 else 0


class Connector(aiohttp.TCPConnector):
    """Opens connections of this kind, and keeps them."""

    def __init__(self, hops: Mapping[tuple[str, int], Hop], **settings: Any) -> None:
        """`hops` are the SOCKS proxies, by the host and port that are reached through them."""
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


async def _through_socks(hop: Hop, host: str, port: int, seconds: float) -> socket.socket:
    """The proxy looks the name up: what it can reach, this machine may not know."""
    from python_socks import ProxyError, ProxyType
    from python_socks.async_.asyncio import Proxy

    proxy = Proxy(ProxyType.SOCKS5, hop.host, hop.port, hop.user, hop.password, rdns=True)
    try:
        return await proxy.connect(host, port, timeout=seconds)
    except ProxyError as error:
        raise aiohttp.ClientConnectionError(f"{hop.url}: {error}") from None


def context(sources: Iterable[CertificateSource]) -> ssl.SSLContext:
    """The system's certificates and these. Raises IbidemError where they cannot be read."""
    found = ssl.create_default_context()
    found.set_alpn_protocols(["http/1.1"])
    found.verify_flags &= (
        ~ssl.VERIFY_X509_STRICT
    )  # which companies' own certificates often fail, and no client asks for
    usual = ssl.get_default_verify_paths()
    for place in ({"cafile": usual.openssl_cafile}, {"capath": usual.openssl_capath}):
        with suppress(OSError):  # a variable would take their place
            found.load_verify_locations(**place)
    for source in sources:
        try:
            _load_certificates(found, source.path)
        except ssl.SSLError:
            raise unreadable(source, "no certificates are in it") from None
        except OSError as error:
            raise unreadable(source, error.strerror or "it cannot be read") from None
    return found


def _load_certificates(found: ssl.SSLContext, path: Path) -> None:
    if not path.is_dir():
        found.load_verify_locations(cafile=path)
        return
    files = sorted(path.iterdir())
    found.load_verify_locations(capath=path)
    if not any(HASHED.fullmatch(each.name) for each in files):  # only such names are looked up there
        for each in files:
            if each.suffix in (".pem", ".crt", ".cer"):
                with suppress(OSError):
                    found.load_verify_locations(cafile=each)
