"""What may happen to an exchange: told by the client, by the upstream, and by who rewrites.

Every request has a dozen events and commands, and one outcome: as such objects they are made in a fifth of the time.
"""

from __future__ import annotations

import msgspec

from ..providers.headers import HeaderList


class RequestStarted(msgspec.Struct, frozen=True):
    method: str
    target: str
    headers: HeaderList
    version: tuple[int, int] = (1, 1)
    keep_alive: bool = True
    """Whether the client wants to go on with its connection afterwards."""


class RequestChunk(msgspec.Struct, frozen=True):
    data: bytes


class RequestEnded(msgspec.Struct, frozen=True):
    pass


class RequestBroken(msgspec.Struct, frozen=True):
    """Its body is not what its headers promise."""

    why: str


class Rewritten(msgspec.Struct, frozen=True):
    """What is to be sent instead; None sends the original."""

    body: bytes | None
    is_retryable: bool = False
    """The original is sent, and another body may exist if the provider rejects it."""


class Resent(msgspec.Struct, frozen=True):
    """What is to be sent instead of what was refused; None if there is nothing else."""

    body: bytes | None
    beta: str = ""
    """Feature that the request asks for in its `anthropic-beta` header."""


class AnswerStarted(msgspec.Struct, frozen=True):
    status: int
    reason: str
    headers: HeaderList


class AnswerChunk(msgspec.Struct, frozen=True):
    data: bytes


class AnswerEnded(msgspec.Struct, frozen=True):
    pass


class UpstreamFailed(msgspec.Struct, frozen=True):
    """It could not be reached, or broke off."""

    why: str


class ClientGone(msgspec.Struct, frozen=True):
    pass


Event = (
    RequestStarted
    | RequestChunk
    | RequestEnded
    | RequestBroken
    | Rewritten
    | Resent
    | AnswerStarted
    | AnswerChunk
    | AnswerEnded
    | UpstreamFailed
    | ClientGone
)
