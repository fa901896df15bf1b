"""Commands that an exchange returns. The driver executes them."""

from __future__ import annotations

import msgspec

from ..providers.headers import HeaderList


class Connect(msgspec.Struct, frozen=True):
    """Connect to the upstream and send the request head, with the upstream's `Host`. The body follows."""

    provider: str
    method: str
    target: str
    headers: HeaderList
    chunked: bool = False
    """True if the body is sent in chunks."""
    region: str = ""


class SendUpstream(msgspec.Struct, frozen=True):
    """Send a part of the request body to the upstream."""

    data: bytes


class EndUpstream(msgspec.Struct, frozen=True):
    """End the request body."""


class Rewrite(msgspec.Struct, frozen=True):
    """Rewrite the body, then pass `RequestRewritten`."""

    body: bytes


class Resend(msgspec.Struct, frozen=True):
    """Find another body, because the provider rejected the last one. Then pass `ResendReady`."""

    kind: str
    """Provider's name for the error."""
    names_thinking: bool = False
    """True if the error message is about thinking or a signature."""


class StartResponse(msgspec.Struct, frozen=True):
    """Send status and headers of the response to the client."""

    status: int
    reason: str
    headers: HeaderList
    chunked: bool = False
    """True if the body is sent in chunks."""
    last: bool = False
    """True if the connection closes after this response."""


class SendResponse(msgspec.Struct, frozen=True):
    """Send a part of the response body to the client."""

    data: bytes


class EndResponse(msgspec.Struct, frozen=True):
    """End the response body."""


class Tunnel(msgspec.Struct, frozen=True):
    """From now on, forward bytes in both directions until one side closes."""


class CancelUpstream(msgspec.Struct, frozen=True):
    """Close the upstream connection at once, because the response is no longer needed."""


class ResetClient(msgspec.Struct, frozen=True):
    """Abort the client's connection, because the response is incomplete."""


class SendError(msgspec.Struct, frozen=True):
    """Send an error response of the proxy, because there is none from the upstream."""

    status: int
    message: str
    headers: HeaderList = ()
    last: bool = False
    """True if the connection closes after this response, because the rest of the request is not read."""


Command = (
    Connect
    | SendUpstream
    | EndUpstream
    | Rewrite
    | Resend
    | StartResponse
    | SendResponse
    | EndResponse
    | Tunnel
    | CancelUpstream
    | ResetClient
    | SendError
)
