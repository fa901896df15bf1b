"""The requests that a mock provider received."""

from __future__ import annotations

import gzip
import json
import threading
import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from .answers import Header

PATIENCE_SECONDS = 30.0
"""Maximum seconds that a test waits. Events may be slow on a busy machine."""


@dataclass(eq=False)
class Seen:
    """One request. Its fields change while the response is sent."""

    method: str
    target: str
    """Path and query, as received."""
    headers: list[Header]
    """Headers in the order and case received."""
    body: bytes
    """The body as received, compressed or not."""
    at: float
    """When its head arrived, in seconds of the upstream's clock."""
    connection: int
    """Number of its connection, from 1."""
    whole: bool = True
    """True if its whole body arrived."""
    answered: bool = False
    """True if the whole response was sent."""
    gone: bool = False
    """True if the client disconnected before that."""
    gone_at: float | None = None
    sent: list[bytes] = field(default_factory=list, repr=False)
    """The response in pieces as sent: head and body, with the lengths of chunks."""

    @property
    def path(self) -> str:
        """Path without the query."""
        return self.target.partition("?")[0]

    def header(self, name: str) -> str | None:
        """Return the first header with this name, in any case."""
        return next((value for key, value in self.headers if key.lower() == name.lower()), None)

    @property
    def text(self) -> bytes:
        """The decompressed body."""
        unpack = _UNPACK.get((self.header("content-encoding") or "identity").lower())
        if unpack is None:
            raise ValueError(f"no way to unpack {self.header('content-encoding')}")
        return unpack(self.body)

    @property
    def json(self) -> Any:
        """The body as a value."""
        return json.loads(self.text)

    @property
    def answer(self) -> bytes:
        """All bytes of the response."""
        return b"".join(self.sent)


def _decompress_zstd(data: bytes) -> bytes:
    from ..wire.zstd import ZstdError, decompress

    try:
        return decompress(data)
    except ZstdError as error:
        raise ValueError(str(error)) from None


_UNPACK: dict[str, Callable[[bytes], bytes]] = {
    "identity": bytes,
    "gzip": gzip.decompress,
    "deflate": zlib.decompress,
    "zstd": _decompress_zstd,
}


class SeenLog:
    """Requests in the order of arrival. Can be read from any thread."""

    def __init__(self) -> None:
        self._requests: list[Seen] = []
        self._condition = threading.Condition()

    def __call__(self) -> list[Seen]:
        with self._condition:
            return list(self._requests)

    def add_request(self, seen: Seen) -> None:
        with self._condition:
            self._requests.append(seen)
            self._condition.notify_all()

    def update_request(self, seen: Seen, **values: Any) -> None:
        with self._condition:
            for name, value in values.items():
                setattr(seen, name, value)
            self._condition.notify_all()

    def clear(self) -> None:
        with self._condition:
            self._requests.clear()

    def wait_until(self, condition: Callable[[list[Seen]], bool], patience: float, what: str) -> list[Seen]:
        deadline = time.monotonic() + patience
        with self._condition:
            while not condition(self._requests):
                if not self._condition.wait(deadline - time.monotonic()):
                    raise TimeoutError(f"{what} did not happen in {patience:g} s; seen: {self._requests!r:.2000}")
            return list(self._requests)
