"""One exchange as it is taken for a recording (`--record`), and where nothing is recorded, nothing of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from ...billing.usage import Usage
from ...live.types import Clock, LiveRequest
from ..settings import Settings

ANSWER_BYTES = 16 * 2**20
"""Bytes of an answer that are kept; of a longer one, its beginning."""

Say = Callable[[str], object]


@dataclass(slots=True)
class Taken:
    """One exchange, while it happens."""

    job: LiveRequest
    client: str
    path: str
    """Without what stands behind a question mark: some clients send their key there."""
    host: str = ""
    """Whom it was sent to."""
    refused: list[bytes] = field(default_factory=list)
    """What was sent and refused."""
    went: bytes | None = None
    """None if it went as it came."""
    packed: str = ""
    """How the answer is compressed."""
    conversation: str = ""
    model: str = ""
    status: int = 0
    usage: Usage | None = None
    would_have_paid: float | None = None
    """Dollars for its input, had it gone as it came; None where nothing is rewritten."""
    answered: float = 0.0
    cut: bool = False
    """The answer is longer than what is kept of it."""
    _heard: list[bytes] = field(default_factory=list)
    _size: int = 0

    def hear(self, data: bytes) -> None:
        """A piece of the answer, as the client gets it."""
        if self._size < ANSWER_BYTES:
            self._heard.append(data)
            self._size += len(data)
        else:
            self.cut = self.cut or bool(data)

    @property
    def answer(self) -> bytes:
        return b"".join(self._heard)

    @property
    def held(self) -> int:
        """Bytes that it holds."""
        bodies = (self.job.body, self.job.decoded or b"", self.went or b"", *self.refused)
        return sum(map(len, bodies)) + self._size


class NoRecorder:
    """Records nothing. `begin` and `take` are for the thread of the exchanges."""

    def start(self, say: Say) -> None:
        """`say` is told what the user should know of, from any thread."""

    def close(self) -> None:
        """What waits is written, if that does not take long."""

    def begin(self, job: LiveRequest, client: str, path: str, upstream: str) -> Taken | None:
        """None for what is not recorded."""
        return None

    def take(self, taken: Taken) -> None:
        """An exchange that is over."""


def recorder_of(settings: Settings, clock: Clock) -> NoRecorder:
    """Raises IbidemError where the folder cannot be used."""
    if settings.record is None:
        return NoRecorder()
    from .recorder import Recorder  # and with it the readers of logs

    return Recorder(settings.record, settings, clock)
