"""Both ends of a connection in bytes: a client and a server that say exactly what they are told to, and see all."""

from __future__ import annotations

import contextlib
import queue
import socket
import struct
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any, Self
from urllib.parse import urlsplit

from ibidem.proxy.edge.server import BackgroundServer
from ibidem.proxy.settings import Settings
from ibidem.store import MemoryStore

PATIENCE = 30.0
"""Seconds until a test gives up on what must come."""


class Peer:
    """The other side of a socket."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        sock.settimeout(PATIENCE)
        self._held = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def send(self, data: bytes) -> None:
        self.sock.sendall(data)

    def some(self) -> bytes:
        """What comes next; empty at the end."""
        if self._held:
            found, self._held = self._held, b""
            return found
        return self.sock.recv(2**18)

    def until(self, end: bytes) -> bytes:
        while (place := self._held.find(end)) < 0:
            self._more()
        return self._take(place + len(end))

    def exactly(self, size: int) -> bytes:
        parts, left = [], size
        while left:
            if not self._held:
                self._more()
            parts.append(self._take(left))
            left -= len(parts[-1])
        return b"".join(parts)

    def rest(self) -> bytes:
        found = bytearray()
        while data := self.some():
            found += data
        return bytes(found)

    def _more(self) -> None:
        data = self.sock.recv(2**18)
        if not data:
            raise EOFError(f"it ended after {self._held!r}")
        self._held += data

    def _take(self, size: int) -> bytes:
        found, self._held = self._held[:size], self._held[size:]
        return found

    def message(self, method: str = "") -> tuple[bytes, bytes]:
        """Head and body of a request, or of the answer to a request with a method."""
        head = self.until(b"\r\n\r\n")
        low = head.lower()
        if method == "HEAD" or low.startswith((b"http/1.1 204", b"http/1.1 304")):
            return head, b""
        if b"\r\ntransfer-encoding: chunked\r\n" in low:
            return head, self.chunks()
        if b"\r\ncontent-length: " in low:
            return head, self.exactly(int(low.split(b"\r\ncontent-length: ")[1].split(b"\r\n")[0]))
        return head, self.rest() if method else b""

    def chunks(self) -> bytes:
        found = bytearray()
        while size := int(self.until(b"\r\n")[:-2], 16):
            found += self.exactly(size)
            assert self.exactly(2) == b"\r\n"
        assert self.exactly(2) == b"\r\n"
        return bytes(found)

    def wait_until_gone(self) -> None:
        """TimeoutError if it stays."""
        with contextlib.suppress(ConnectionError):
            while self.sock.recv(2**16):
                pass

    def reset(self) -> None:
        self.sock.setsockopt(
            socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("hh" if sys.platform == "win32" else "ii", 1, 0)
        )
        self.close()

    def close(self) -> None:
        self.sock.close()


Script = Callable[[Peer], Any]


class Server:
    """Runs a script with each connection, in a thread of its own. What a script raises fails the test."""

    def __init__(self, script: Script) -> None:
        self._script = script
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.url = "http://{}:{}".format(*self._socket.getsockname())
        self.host = self.url.removeprefix("http://").encode()
        self.seen: queue.Queue[Any] = queue.Queue()
        """What the scripts returned."""
        self._errors: list[BaseException] = []
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # wakes who waits in accept
        self._socket.close()
        for thread in self._threads:
            thread.join(PATIENCE)
        if self._errors and kind is None:
            raise self._errors[0]

    def next(self) -> Any:
        return self.seen.get(timeout=PATIENCE)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                peer = Peer(self._socket.accept()[0])
                thread = threading.Thread(target=self._run, args=(peer,), daemon=True)
                self._threads.append(thread)
                thread.start()

    def _run(self, peer: Peer) -> None:
        with peer:
            try:
                self.seen.put(self._script(peer))
            except BaseException as error:
                self._errors.append(error)


def connect(url: str, narrow: bool = False) -> Peer:
    """A narrow one takes only a little before it is read from."""
    parts = urlsplit(url)
    assert parts.hostname
    sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    sock.settimeout(PATIENCE)
    if narrow:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    sock.connect((parts.hostname, parts.port or 80))
    return Peer(sock)


def to(url: str, path: str = "", **more: Any) -> Settings:
    """All providers are at one place, and there is time: on a busy machine all takes long."""
    upstreams = dict.fromkeys(("anthropic", "openai", "gemini"), url + path)
    return Settings(port=0, upstreams=upstreams, **{"budget_ms": 1e3 * PATIENCE, **more})


@contextlib.contextmanager
def proxied(script: Script, path: str = "", **more: Any) -> Iterator[tuple[Server, BackgroundServer]]:
    with Server(script) as server, BackgroundServer(to(server.url, path, **more), store=MemoryStore()) as proxy:
        yield server, proxy


def answering(*answers: bytes) -> Script:
    """One request after the other on a connection; returns what was seen of them."""

    def script(peer: Peer) -> list[tuple[bytes, bytes]]:
        found = []
        for answer in answers:
            found.append(peer.message())
            head, end, _ = answer.partition(b"\r\n\r\n")
            peer.send(head + end if found[-1][0].startswith(b"HEAD ") else answer)
        return found

    return script


def asked(proxy: BackgroundServer, request: bytes, method: str = "GET") -> tuple[bytes, bytes]:
    """Head and body of the answer."""
    with connect(proxy.url) as client:
        client.send(request)
        return client.message(method)
