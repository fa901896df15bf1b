"""The words of an exchange: what may happen to it, what it may command, and the states that it goes through.

`NEXT_STATES` says which events may happen in which state, and where each may lead; one that is not there is a mistake
of whoever feeds the exchange. The table in `docs/architecture.md` is made from it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from .headers import HeaderList

# ── events ──────────────────────────────────────────────────────────────────────────────────────────────────────────


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


# ── commands ────────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Connect:
    """Open the upstream and send it this, with a `Host` of its own. The body follows, in chunks if `chunked`."""

    provider: str
    method: str
    target: str
    headers: HeaderList
    chunked: bool = False


@dataclass(frozen=True, slots=True)
class SendUpstream:
    data: bytes


@dataclass(frozen=True, slots=True)
class EndUpstream:
    pass


@dataclass(frozen=True, slots=True)
class Rewrite:
    body: bytes


@dataclass(frozen=True, slots=True)
class Resend:
    """The provider refused what was sent, and calls that so."""

    kind: str


@dataclass(frozen=True, slots=True)
class StartAnswer:
    status: int
    reason: str
    headers: HeaderList
    chunked: bool = False
    """The body is sent in chunks."""
    last: bool = False
    """The connection ends with it."""


@dataclass(frozen=True, slots=True)
class SendAnswer:
    data: bytes


@dataclass(frozen=True, slots=True)
class EndAnswer:
    pass


@dataclass(frozen=True, slots=True)
class Tunnel:
    """From here on both sides say what they like. Bytes pass as they come until one of them ends it."""


@dataclass(frozen=True, slots=True)
class CancelUpstream:
    """Nobody listens any more: let go of the upstream at once."""


@dataclass(frozen=True, slots=True)
class ResetClient:
    """The answer broke off in the middle: so does ours."""


@dataclass(frozen=True, slots=True)
class Refuse:
    """An answer of our own, because no upstream gave one."""

    status: int
    message: str
    headers: HeaderList = ()
    last: bool = False
    """The connection ends with it: the rest of the request is not read."""


Command = (
    Connect
    | SendUpstream
    | EndUpstream
    | Rewrite
    | Resend
    | StartAnswer
    | SendAnswer
    | EndAnswer
    | Tunnel
    | CancelUpstream
    | ResetClient
    | Refuse
)


# ── states ──────────────────────────────────────────────────────────────────────────────────────────────────────────


class State(Enum):
    IDLE = "nothing was asked yet"
    HOLDING = "the request is held until it is complete"
    REWRITING = "it is complete, and being rewritten"
    PASSING = "the request passes as it comes"
    TRYING = "it was sent rewritten: should it be refused, it is sent again"
    WAITING = "it was sent: what comes is the answer"
    REFUSED = "a refusal is held until it is complete"
    RETRYING = "what to send instead is being looked for"
    EARLY = "the answer passes, and the request still does"
    ANSWERING = "the answer passes"
    TUNNELLING = "bytes pass both ways"
    OVER = "nothing changes any more"


UNREAD = frozenset({State.IDLE, State.HOLDING, State.PASSING, State.EARLY})
"""Not all of the request is here."""
UNCONNECTED = frozenset({State.IDLE, State.HOLDING, State.REWRITING})
"""No upstream was spoken to."""
BEGUN = frozenset({State.EARLY, State.ANSWERING, State.TUNNELLING})
"""The client has the head of an answer."""

_END: dict[type[Event], tuple[State, ...]] = {ClientGone: (State.OVER,)}
_ENDS = _END | {UpstreamFailed: (State.OVER,)}

NEXT_STATES: Mapping[State, Mapping[type[Event], tuple[State, ...]]] = {
    State.IDLE: {RequestStarted: (State.HOLDING, State.PASSING, State.OVER), **_END},
    State.HOLDING: {
        RequestChunk: (State.HOLDING, State.OVER),
        RequestEnded: (State.REWRITING,),
        RequestBroken: (State.OVER,),
        **_END,
    },
    State.REWRITING: {Rewritten: (State.TRYING, State.WAITING), **_END},
    State.PASSING: {
        RequestChunk: (State.PASSING, State.OVER),
        RequestEnded: (State.WAITING,),
        RequestBroken: (State.OVER,),
        AnswerStarted: (State.EARLY, State.TUNNELLING, State.OVER),
        **_ENDS,
    },
    State.TRYING: {AnswerStarted: (State.REFUSED, State.ANSWERING, State.OVER), **_ENDS},
    State.WAITING: {AnswerStarted: (State.ANSWERING, State.TUNNELLING, State.OVER), **_ENDS},
    State.REFUSED: {
        AnswerChunk: (State.REFUSED, State.ANSWERING),
        AnswerEnded: (State.RETRYING, State.OVER),
        **_ENDS,
    },
    State.RETRYING: {Resent: (State.TRYING, State.WAITING, State.OVER), **_END},
    State.EARLY: {
        RequestChunk: (State.EARLY, State.OVER),
        RequestEnded: (State.ANSWERING,),
        RequestBroken: (State.OVER,),
        AnswerChunk: (State.EARLY,),
        AnswerEnded: (State.OVER,),
        **_ENDS,
    },
    State.ANSWERING: {AnswerChunk: (State.ANSWERING,), AnswerEnded: (State.OVER,), **_ENDS},
    State.TUNNELLING: {AnswerEnded: (State.OVER,), **_ENDS},
    State.OVER: {},
}
"""By state and event: the states that it may lead to."""
