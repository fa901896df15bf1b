"""What an exchange may command."""

from __future__ import annotations

import msgspec

from ..providers.headers import HeaderList


class Connect(msgspec.Struct, frozen=True):
    """Open the upstream and send it this, with a `Host` of its own. The body follows, in chunks if `chunked`."""

    provider: str
    method: str
    target: str
    headers: HeaderList
    chunked: bool = False
    region: str = ""


class SendUpstream(msgspec.Struct, frozen=True):
    data: bytes


class EndUpstream(msgspec.Struct, frozen=True):
    pass


class Rewrite(msgspec.Struct, frozen=True):
    body: bytes


class Resend(msgspec.Struct, frozen=True):
    """The provider refused what was sent, and calls that so."""

    kind: str
    names_thinking: bool = False
    """Its message is about thinking or a signature."""


class StartAnswer(msgspec.Struct, frozen=True):
    status: int
    reason: str
    headers: HeaderList
    chunked: bool = False
    """The body is sent in chunks."""
    last: bool = False
    """The connection ends with it."""


class SendAnswer(msgspec.Struct, frozen=True):
    data: bytes


class EndAnswer(msgspec.Struct, frozen=True):
    pass


class Tunnel(msgspec.Struct, frozen=True):
    """From here on both sides say what they like. Bytes pass as they come until one of them ends it."""


class CancelUpstream(msgspec.Struct, frozen=True):
    """Nobody listens any more: let go of the upstream at once."""


class ResetClient(msgspec.Struct, frozen=True):
    """The answer broke off in the middle: so does ours."""


class Refuse(msgspec.Struct, frozen=True):
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
