"""Captured exchange for a recording (`--record`), and a recorder without effect when nothing is recorded."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from ...billing.usage import Usage
from ...live.types import Clock, LiveRequest
from ..settings import Settings

ANSWER_BYTES = 16 * 2**20
"""Bytes of a response that are stored. A longer one is truncated."""

Say = Callable[[str], object]


@dataclass(slots=True)
class CapturedExchange:
    """Exchange in progress, with its bodies."""

    job: LiveRequest
    client: str
    path: str
    """Path without the query, because some clients send their key in it."""
    host: str = ""
    """Host of the upstream."""
    rejected_bodies: list[bytes] = field(default_factory=list)
    """Bodies that the provider rejected."""
    sent_body: bytes | None = None
    """Body as sent; None if it is unchanged."""
    content_encoding: str = ""
    """Content encoding of the response."""
    conversation: str = ""
    model: str = ""
    status: int = 0
    usage: Usage | None = None
    would_have_paid: float | None = None
    """Dollars for the input without Ibidem; None if nothing is rewritten."""
    response_time: float = 0.0
    is_truncated: bool = False
    """True if the response is truncated."""
    _chunks: list[bytes] = field(default_factory=list)
    _size: int = 0

    def add_chunk(self, data: bytes) -> None:
        """Add a part of the response, as the client gets it."""
        if self._size < ANSWER_BYTES:
            self._chunks.append(data)
            self._size += len(data)
        else:
            self.is_truncated = self.is_truncated or bool(data)

    @property
    def response_body(self) -> bytes:
        """Body of the response, possibly truncated."""
        return b"".join(self._chunks)

    @property
    def held_bytes(self) -> int:
        """Bytes of all bodies."""
        bodies = (self.job.body, self.job.decoded_body or b"", self.sent_body or b"", *self.rejected_bodies)
        return sum(map(len, bodies)) + self._size


class NoRecorder:
    """Recorder that records nothing. Call `begin_capture` and `queue_capture` on the thread of the exchanges."""

    def start(self, say: Say) -> None:
        """Start recording. `say` gets messages for the user, from any thread."""

    def close(self) -> None:
        """Write the queue, but wait only for a short time."""

    def begin_capture(self, job: LiveRequest, client: str, path: str, upstream: str) -> CapturedExchange | None:
        """Start to capture an exchange. None if it is not recorded."""
        return None

    def queue_capture(self, capture: CapturedExchange) -> None:
        """Queue a finished exchange for writing."""


def open_recorder(settings: Settings, clock: Clock) -> NoRecorder:
    """Return the recorder for `--record`. Raises IbidemError if the folder cannot be used."""
    if settings.record is None:
        return NoRecorder()
    from .recorder import Recorder  # and with it the readers of logs

    return Recorder(settings.record, settings, clock)
