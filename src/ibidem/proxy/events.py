"""Events of an exchange, from the client, the upstream and the rewriter.

Every request has about a dozen events and commands. They are msgspec structs because these are fast to build.
"""

from __future__ import annotations

import msgspec

from ..providers.headers import HeaderList


class RequestStarted(msgspec.Struct, frozen=True):
    """The client has sent the head of a request."""

    method: str
    target: str
    headers: HeaderList
    version: tuple[int, int] = (1, 1)
    keep_alive: bool = True
    """True if the client wants to keep its connection open."""


class RequestChunk(msgspec.Struct, frozen=True):
    """A part of the request body has arrived."""

    data: bytes


class RequestEnded(msgspec.Struct, frozen=True):
    """The request body is complete."""


class RequestBroken(msgspec.Struct, frozen=True):
    """The request body does not match its headers."""

    why: str


class RequestRewritten(msgspec.Struct, frozen=True):
    """The request is rewritten."""

    body: bytes | None
    """Body to send; None for the original."""
    is_retryable: bool = False
    """The original is sent, and another body may exist if the provider rejects it."""


class ResendReady(msgspec.Struct, frozen=True):
    """Another body is ready after a rejection."""

    body: bytes | None
    """Body to send; None if there is no other."""
    beta: str = ""
    """Feature that the body requires in its `anthropic-beta` header."""


class ResponseStarted(msgspec.Struct, frozen=True):
    """The upstream has sent the head of its response."""

    status: int
    reason: str
    headers: HeaderList


class ResponseChunk(msgspec.Struct, frozen=True):
    """A part of the response body has arrived."""

    data: bytes


class ResponseEnded(msgspec.Struct, frozen=True):
    """The response body is complete."""


class UpstreamFailed(msgspec.Struct, frozen=True):
    """The upstream could not be reached, or closed the connection too early."""

    why: str


class ClientClosed(msgspec.Struct, frozen=True):
    """The client has closed its connection."""


Event = (
    RequestStarted
    | RequestChunk
    | RequestEnded
    | RequestBroken
    | RequestRewritten
    | ResendReady
    | ResponseStarted
    | ResponseChunk
    | ResponseEnded
    | UpstreamFailed
    | ClientClosed
)
