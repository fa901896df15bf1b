"""States of an exchange, with the events that may happen in each and the states that they lead to.

An event that is not in the table is a bug in the driver. The table in `docs/architecture.md` is generated from this
one.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from . import events


class State(Enum):
    """State of an exchange. The value describes it in messages and in the documentation."""

    IDLE = "no request yet"
    HOLDING = "the request is held until it is complete"
    REWRITING = "the request is complete and is rewritten"
    PASSING = "the request is forwarded as it arrives"
    TRYING = "a rewritten request is sent; if it is rejected, another body is sent"
    WAITING = "the request is sent; its response is forwarded"
    REFUSED = "a rejection is held until it is complete"
    RETRYING = "another body is prepared"
    EARLY = "the response is forwarded while the request still arrives"
    ANSWERING = "the response is forwarded"
    TUNNELLING = "bytes are forwarded in both directions"
    OVER = "the exchange has ended"

    __hash__ = object.__hash__  # Enum's own is slower Python code, and every event looks up a state


REQUEST_INCOMPLETE = frozenset({State.IDLE, State.HOLDING, State.PASSING, State.EARLY})
"""States in which the request is incomplete."""
UNCONNECTED = frozenset({State.IDLE, State.HOLDING, State.REWRITING})
"""States without a connection to the upstream."""
RESPONSE_STARTED = frozenset({State.EARLY, State.ANSWERING, State.TUNNELLING})
"""States in which the client has the start of a response."""

_END: dict[type[events.Event], tuple[State, ...]] = {events.ClientClosed: (State.OVER,)}
_ENDS = _END | {events.UpstreamFailed: (State.OVER,)}

NEXT_STATES: Mapping[State, Mapping[type[events.Event], tuple[State, ...]]] = {
    State.IDLE: {events.RequestStarted: (State.HOLDING, State.PASSING, State.OVER), **_END},
    State.HOLDING: {
        events.RequestChunk: (State.HOLDING, State.OVER),
        events.RequestEnded: (State.REWRITING, State.WAITING),
        events.RequestBroken: (State.OVER,),
        **_END,
    },
    State.REWRITING: {events.RequestRewritten: (State.TRYING, State.WAITING), **_END},
    State.PASSING: {
        events.RequestChunk: (State.PASSING, State.OVER),
        events.RequestEnded: (State.WAITING,),
        events.RequestBroken: (State.OVER,),
        events.ResponseStarted: (State.EARLY, State.TUNNELLING, State.OVER),
        **_ENDS,
    },
    State.TRYING: {events.ResponseStarted: (State.REFUSED, State.ANSWERING, State.OVER), **_ENDS},
    State.WAITING: {events.ResponseStarted: (State.ANSWERING, State.TUNNELLING, State.OVER), **_ENDS},
    State.REFUSED: {
        events.ResponseChunk: (State.REFUSED, State.ANSWERING),
        events.ResponseEnded: (State.RETRYING, State.OVER),
        **_ENDS,
    },
    State.RETRYING: {events.ResendReady: (State.TRYING, State.OVER), **_END},
    State.EARLY: {
        events.RequestChunk: (State.EARLY, State.OVER),
        events.RequestEnded: (State.ANSWERING,),
        events.RequestBroken: (State.OVER,),
        events.ResponseChunk: (State.EARLY,),
        events.ResponseEnded: (State.OVER,),
        **_ENDS,
    },
    State.ANSWERING: {events.ResponseChunk: (State.ANSWERING,), events.ResponseEnded: (State.OVER,), **_ENDS},
    State.TUNNELLING: {events.ResponseEnded: (State.OVER,), **_ENDS},
    State.OVER: {},
}
"""Possible next states, by state and event."""
