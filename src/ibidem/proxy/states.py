"""The states of an exchange, which events may happen in each, and where each may lead.

An event that is not in the table is a mistake of whoever feeds the exchange. The one in `docs/architecture.md` is made
from this.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from . import events


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

    __hash__ = object.__hash__  # that of an Enum is a call in Python, and states are looked up with every event


UNREAD = frozenset({State.IDLE, State.HOLDING, State.PASSING, State.EARLY})
"""Not all of the request is here."""
UNCONNECTED = frozenset({State.IDLE, State.HOLDING, State.REWRITING})
"""No upstream was spoken to."""
BEGUN = frozenset({State.EARLY, State.ANSWERING, State.TUNNELLING})
"""The client has the head of an answer."""

_END: dict[type[events.Event], tuple[State, ...]] = {events.ClientGone: (State.OVER,)}
_ENDS = _END | {events.UpstreamFailed: (State.OVER,)}

NEXT_STATES: Mapping[State, Mapping[type[events.Event], tuple[State, ...]]] = {
    State.IDLE: {events.RequestStarted: (State.HOLDING, State.PASSING, State.OVER), **_END},
    State.HOLDING: {
        events.RequestChunk: (State.HOLDING, State.OVER),
        events.RequestEnded: (State.REWRITING, State.WAITING),
        events.RequestBroken: (State.OVER,),
        **_END,
    },
    State.REWRITING: {events.Rewritten: (State.TRYING, State.WAITING), **_END},
    State.PASSING: {
        events.RequestChunk: (State.PASSING, State.OVER),
        events.RequestEnded: (State.WAITING,),
        events.RequestBroken: (State.OVER,),
        events.AnswerStarted: (State.EARLY, State.TUNNELLING, State.OVER),
        **_ENDS,
    },
    State.TRYING: {events.AnswerStarted: (State.REFUSED, State.ANSWERING, State.OVER), **_ENDS},
    State.WAITING: {events.AnswerStarted: (State.ANSWERING, State.TUNNELLING, State.OVER), **_ENDS},
    State.REFUSED: {
        events.AnswerChunk: (State.REFUSED, State.ANSWERING),
        events.AnswerEnded: (State.RETRYING, State.OVER),
        **_ENDS,
    },
    State.RETRYING: {events.Resent: (State.TRYING, State.OVER), **_END},
    State.EARLY: {
        events.RequestChunk: (State.EARLY, State.OVER),
        events.RequestEnded: (State.ANSWERING,),
        events.RequestBroken: (State.OVER,),
        events.AnswerChunk: (State.EARLY,),
        events.AnswerEnded: (State.OVER,),
        **_ENDS,
    },
    State.ANSWERING: {events.AnswerChunk: (State.ANSWERING,), events.AnswerEnded: (State.OVER,), **_ENDS},
    State.TUNNELLING: {events.AnswerEnded: (State.OVER,), **_ENDS},
    State.OVER: {},
}
"""By state and event: the states that it may lead to."""
