"""A CONNECT proxy on loopback that ends TLS, forwards to one mock provider and logs who contacted which host.

Clients use real host names. Certificates come from a throw-away CA, so no hosts file and no root rights are needed.
Each user of the gate ("agent", "ibidem") has a port of its own: the log then tells who sent which credential where.
"""

from __future__ import annotations

import asyncio
import ssl
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple
from urllib.parse import parse_qs, urlsplit

import trustme

from ibidem.testing import wire

PATIENCE = 30.0
CREDENTIAL_HEADERS = ("x-api-key", "x-goog-api-key", "api-key", "authorization")
CREDENTIAL_CHARACTERS = 24
"""Characters of a credential in the log: enough to tell the fake credentials of the tests apart."""


class Contact(NamedTuple):
    """One request that reached the gate."""

    who: str
    host: str
    method: str
    path: str
    credential: str
    upgrade: str = ""
    clear: bool = False
    """Whether it came without CONNECT, so that the proxy could read it."""


class Gate:
    """`contacts` is the log. `ca` is the file with the certificate of the CA."""

    def __init__(
        self, upstream: str, folder: Path, canned: Mapping[str, bytes] | None = None, websockets: str = ""
    ) -> None:
        """`canned` maps a part of a path to the JSON that the gate answers itself. `websockets` is the address of a
        server for WebSockets; without it, the mock provider refuses them."""
        self.contacts: list[Contact] = []
        self.ports: dict[str, int] = {}
        self.ca = folder / "ca.pem"
        self._upstream, self._websockets = urlsplit(upstream), urlsplit(websockets)
        self._canned = canned or {}
        self._authority = trustme.CA()
        self._contexts: dict[str, ssl.SSLContext] = {}
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), name="gate", daemon=True)
        self._authority.cert_pem.write_to_path(str(self.ca))

    def __enter__(self) -> Gate:
        self._thread.start()
        assert self._ready.wait(PATIENCE), "the gate did not start"
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(PATIENCE)

    def url(self, who: str) -> str:
        return f"http://127.0.0.1:{self.ports[who]}"

    # ── in its own thread ───────────────────────────────────────────────────────────────────────────────────────────

    async def _serve(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        self._loop.set_exception_handler(lambda *_: None)  # clients leave in the middle of a handshake
        tasks: set[asyncio.Task[None]] = set()
        servers = []
        for who in ("agent", "ibidem"):

            def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, who: str = who) -> None:
                task = asyncio.create_task(self._connection(who, reader, writer))
                tasks.add(task)
                task.add_done_callback(tasks.discard)

            server = await asyncio.start_server(accept, "127.0.0.1", 0, limit=wire.HEAD_LIMIT)
            self.ports[who] = server.sockets[0].getsockname()[1]
            servers.append(server)
        self._ready.set()
        await self._stop.wait()
        for server in servers:
            server.close()
        for task in tuple(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _connection(self, who: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            method, target, headers = wire.parse_head(head)
            if method != "CONNECT":
                self._log(who, urlsplit(target).netloc, method, target, headers, clear=True)
                writer.write(wire.response_head(502, [("content-length", "0"), ("connection", "close")]))
                await writer.drain()
                return
            writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            await writer.drain()
            host = target.rpartition(":")[0]
            await writer.start_tls(self._context(host))
            await self._tunnel(who, host, reader, writer)
        except (OSError, EOFError, asyncio.LimitOverrunError):  # the client left
            pass
        finally:
            writer.close()

    async def _tunnel(self, who: str, host: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Forward request after request over one connection to the mock provider."""
        answers, upstream = await asyncio.open_connection(self._upstream.hostname, self._upstream.port)
        back = asyncio.create_task(_pump(answers, writer))
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                method, target, headers = wire.parse_head(head)
                known = self._log(who, host, method, target, headers)
                if known.get("upgrade") == "websocket" and self._websockets.port:
                    await self._switch(head, reader, writer)
                    return
                canned = next((body for part, body in self._canned.items() if part in target), None)
                if canned is None:
                    upstream.write(head)
                    await _forward_body(reader, upstream, known)
                else:
                    await _forward_body(reader, None, known)
                    about = [("content-type", "application/json"), ("content-length", str(len(canned)))]
                    writer.write(wire.response_head(200, about) + canned)
                    await writer.drain()
        finally:
            back.cancel()
            upstream.close()

    async def _switch(self, head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Connect a client to the server for WebSockets, from the request on."""
        back, forth = await asyncio.open_connection(self._websockets.hostname, self._websockets.port)
        forth.write(head)
        await asyncio.gather(_pump(reader, forth), _pump(back, writer))

    def _context(self, host: str) -> ssl.SSLContext:
        if host not in self._contexts:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self._authority.issue_cert(host).configure_cert(context)
            context.set_alpn_protocols(["http/1.1"])
            self._contexts[host] = context
        return self._contexts[host]

    def _log(
        self, who: str, host: str, method: str, target: str, headers: list[tuple[str, str]], clear: bool = False
    ) -> dict[str, str]:
        known = {name.lower(): value for name, value in headers}
        path, _, query = target.partition("?")
        given = [known[name] for name in CREDENTIAL_HEADERS if name in known] + parse_qs(query).get("key", [])
        credential = given[0].removeprefix("Bearer ")[:CREDENTIAL_CHARACTERS] if given else ""
        self.contacts.append(Contact(who, host, method, path, credential, known.get("upgrade", ""), clear))
        return known


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(1 << 16):
        writer.write(data)
        await writer.drain()
    writer.close()


async def _forward_body(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter | None, headers: Mapping[str, str]
) -> None:
    if "chunked" in headers.get("transfer-encoding", "").lower():
        size = -1
        while size:
            line = await reader.readuntil(b"\r\n")
            size = int(line.partition(b";")[0], 16)
            await _send(writer, line + await reader.readexactly(size + 2))
    else:
        await _send(writer, await reader.readexactly(int(headers.get("content-length", "0"))))


async def _send(writer: asyncio.StreamWriter | None, data: bytes) -> None:
    if writer is not None:
        writer.write(data)
        await writer.drain()
