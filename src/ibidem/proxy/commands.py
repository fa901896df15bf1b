"""What an exchange may command."""

from __future__ import annotations

from dataclasses import dataclass

from .headers import HeaderList


@dataclass(frozen=True, slots=True)
class Connect:
    """Open the upstream and send it this, with a `Host` of its own. The body follows, in chunks if `chunked`."""

    provider: str
    method: str
    target: str
    headers: HeaderList
    chunked: bool = False
    region: str = ""


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
