"""What may happen to an exchange: told by the client, by the upstream, and by who rewrites."""

from __future__ import annotations

from dataclasses import dataclass

from .headers import HeaderList


@dataclass(frozen=True, slots=True)
class RequestStarted:
    method: str
    target: str
    headers: HeaderList
    version: tuple[int, int] = (1, 1)
    keep_alive: bool = True
    """Whether the client wants to go on with its connection afterwards."""


@dataclass(frozen=True, slots=True)
class RequestChunk:
    data: bytes


@dataclass(frozen=True, slots=True)
class RequestEnded:
    pass


@dataclass(frozen=True, slots=True)
class RequestBroken:
    """Its body is not what its headers promise."""

    why: str


@dataclass(frozen=True, slots=True)
class Rewritten:
    """What is to be sent instead; None sends the original."""

    body: bytes | None


@dataclass(frozen=True, slots=True)
class Resent:
    """What is to be sent instead of what was refused; None if there is nothing else."""

    body: bytes | None
    last: bool = False
    """The answer to it is passed on whatever it is."""


@dataclass(frozen=True, slots=True)
class AnswerStarted:
    status: int
    reason: str
    headers: HeaderList


@dataclass(frozen=True, slots=True)
class AnswerChunk:
    data: bytes


@dataclass(frozen=True, slots=True)
class AnswerEnded:
    pass


@dataclass(frozen=True, slots=True)
class UpstreamFailed:
    """It could not be reached, or broke off."""

    why: str


@dataclass(frozen=True, slots=True)
class ClientGone:
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
