"""Proxies on loopback that stand between a machine and the world: HTTP, HTTPS and SOCKS. They know one name."""

from __future__ import annotations

import base64
import contextlib
import re
import select
import socket
import ssl
from pathlib import Path
from urllib.parse import urlsplit

import trustme

from tests.support.raw import PATIENCE, Peer, Script, Server

NAME = "provider.test"
"""Nobody but these proxies can look it up."""


class Authority:
    """Signs certificates that nobody knows, unless they are told."""

    def __init__(self, folder: Path) -> None:
        self._ca = trustme.CA()
        self.file = folder / "authority.pem"
        self._ca.cert_pem.write_to_path(self.file)

    def secured(self, script: Script, *names: str) -> Script:
        """The script, behind a handshake. Who does not believe us is not served."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._ca.issue_cert(*names or (NAME,)).configure_cert(context)

        def secure(peer: Peer) -> object:
            try:
                peer.sock = context.wrap_socket(peer.sock, server_side=True)
            except OSError:
                return "no handshake"
            return script(peer)

        return secure


def http_proxy(upstream: Server, known: str | None = None) -> Script:
    """Tunnels for who asks with CONNECT, and hands on what names a whole URL. Returns the heads that it was given."""
    wanted = None if known is None else b"basic " + base64.b64encode(known.encode()).lower()

    def script(peer: Peer) -> list[bytes]:
        heads: list[bytes] = []
        with contextlib.suppress(EOFError, OSError):
            while True:
                head, body = peer.message()
                heads.append(head)
                given = re.search(rb"\r\nproxy-authorization: ([^\r]*)", head.lower())
                if wanted != (given[1] if given else None):
                    peer.send(b"HTTP/1.1 407 Who are you\r\nContent-Length: 0\r\n\r\n")
                    continue
                with _reached(upstream) as there:
                    if head.startswith(b"CONNECT "):
                        peer.send(b"HTTP/1.1 200 Go on\r\n\r\n")
                        pump(peer.sock, there)
                        return heads
                    there.sendall(head + body)
                    peer.send(b"".join(Peer(there).message("GET")))
        return heads

    return script


def socks_proxy(upstream: Server, known: str | None = None, host: str = NAME) -> Script:
    """SOCKS 5, for one host. Returns the name and port that it was asked for, or why not."""

    def script(peer: Peer) -> str:
        version, count = peer.exactly(2)
        methods = peer.exactly(count)
        assert version == 5
        method = 0 if known is None else 2
        if method not in methods:
            peer.send(b"\x05\xff")
            return "no method"
        peer.send(bytes([5, method]))
        if known is not None:
            user = peer.exactly(peer.exactly(2)[1])
            password = peer.exactly(peer.exactly(1)[0])
            right = f"{user.decode()}:{password.decode()}" == known
            peer.send(b"\x01\x00" if right else b"\x01\x01")
            if not right:
                return "not known"
        _, _, _, kind = peer.exactly(4)
        assert kind == 3, "the proxy is given a name to look up"
        name = peer.exactly(peer.exactly(1)[0]).decode()
        port = int.from_bytes(peer.exactly(2), "big")
        if name != host:
            peer.send(b"\x05\x04\x00\x01" + bytes(6))
            return "no such name"
        peer.send(b"\x05\x00\x00\x01" + bytes(6))
        with _reached(upstream) as there:
            pump(peer.sock, there)
        return f"{name}:{port}"

    return script


def _reached(upstream: Server) -> socket.socket:
    parts = urlsplit(upstream.url)
    return socket.create_connection((parts.hostname or "", parts.port or 0), timeout=PATIENCE)


def pump(one: socket.socket, other: socket.socket) -> None:
    """Both ways until one side ends it."""
    ways = {one: other, other: one}
    with contextlib.suppress(OSError):
        while True:
            waiting = [each for each in ways if isinstance(each, ssl.SSLSocket) and each.pending()]
            for source in waiting or select.select([*ways], [], [], PATIENCE)[0]:
                data = source.recv(2**16)
                if not data:
                    return
                ways[source].sendall(data)
