"""What a scripted provider saw."""

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
"""Seconds that a test waits for what must come; on a busy machine it may take a while."""


@dataclass(eq=False)
class Seen:
    """One request. What becomes of it is written down while it happens."""

    method: str
    target: str
    """Path and query, as they came."""
    headers: list[Header]
    """In the order and case they came."""
    body: bytes
    """As it came, compressed or not."""
    at: float
    """When its head came, in the seconds of the upstream's clock."""
    connection: int
    """Number of the connection that it came over, from 1."""
    whole: bool = True
    """Whether all of its body came."""
    answered: bool = False
    """All of the answer was handed over."""
    gone: bool = False
    """The client went away before that."""
    gone_at: float | None = None
    sent: list[bytes] = field(default_factory=list, repr=False)
    """The answer, piece by piece as it was handed over: head and body, with the lengths of chunks."""

    @property
    def path(self) -> str:
        return self.target.partition("?")[0]

    def header(self, name: str) -> str | None:
        """The first of that name, in any case."""
        return next((value for key, value in self.headers if key.lower() == name.lower()), None)

    @property
    def text(self) -> bytes:
        """The body, unpacked."""
        unpack = _UNPACK.get((self.header("content-encoding") or "identity").lower())
        if unpack is None:
            raise ValueError(f"no way to unpack {self.header('content-encoding')}")
        return unpack(self.body)

    @property
    def json(self) -> Any:
        return json.loads(self.text)

    @property
    def answer(self) -> bytes:
        """Every byte that went back."""
        return b"".join(self.sent)


def _zstd(data: bytes) -> bytes:
    from ..wire.zstd import ZstdError, decompress

    try:
        return decompress(data)
    except ZstdError as error:
        raise ValueError(str(error)) from None


_UNPACK: dict[str, Callable[[bytes], bytes]] = {
    "identity": bytes,
    "gzip": gzip.decompress,
    "deflate": zlib.decompress,
    "zstd": _zstd,
}


class SeenLog:
    """Requests in the order in which they came; may be read from any thread."""

    def __init__(self) -> None:
        self._seen: list[Seen] = []
        self._changed = threading.Condition()

    def __call__(self) -> list[Seen]:
        with self._changed:
            return list(self._seen)

    def add(self, seen: Seen) -> None:
        with self._changed:
            self._seen.append(seen)
            self._changed.notify_all()

    def change(self, seen: Seen, **values: Any) -> None:
        with self._changed:
            for name, value in values.items():
                setattr(seen, name, value)
            self._changed.notify_all()

    def clear(self) -> None:
        with self._changed:
            self._seen.clear()

    def wait(self, condition: Callable[[list[Seen]], bool], patience: float, what: str) -> list[Seen]:
        deadline = time.monotonic() + patience
        with self._changed:
            while not condition(self._seen):
                if not self._changed.wait(deadline - time.monotonic()):
                    raise TimeoutError(f"{what} did not happen in {patience:g} s; seen: {self._seen!r:.2000}")
            return list(self._seen)
