"""Requests that are rewritten, what became of them, and what can stand against rewriting one."""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass, field
from time import perf_counter
from time import time as time_of_day
from typing import Literal, Protocol

import msgspec

from ..billing.input_estimate import NOTHING_NEW, NewPart
from ..billing.lifetimes import Kept
from ..engine.journal import Position
from ..errors import IbidemError
from ..formats.marks import Addition
from ..plan import Edit
from .conversation import Deviation, Key, LiveConversation, SentRequest
from .policy import Wish


class Clock:
    """The real one."""

    time = staticmethod(time_of_day)
    """Seconds since 1970."""
    monotonic = staticmethod(perf_counter)
    """Seconds since some moment, which never jump: what took how long."""


SYSTEM_CLOCK = Clock()


class Unreadable(IbidemError):
    """A request that the client made like that. It is between the client and its provider."""


class SingleMessage(IbidemError):
    """A request with one message and no history around it: it repeats nothing."""


class Failed(IbidemError):
    """A request that can be read and was not rewritten."""


class Oversized(IbidemError):
    """A request with more in it than is read here."""


def whereabouts(error: BaseException) -> str:
    """Return the type and the place of an error. Its message may quote what the client sent."""
    trace, place = error.__traceback__, ""
    while trace is not None:
        place = f"{os.path.basename(trace.tb_frame.f_code.co_filename)}:{trace.tb_lineno}"
        trace = trace.tb_next
    return f"{type(error).__name__} at {place}"


Result = Literal["rewritten", "unchanged", "observed", "off", "failed open"]


class RewriteResult(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a request."""

    result: Result
    body: bytes | None = None
    """What is sent; None for the request as it came. If it failed open or is off, this begins as earlier ones did."""
    reason: str = ""
    """Why it failed open, or could not be read."""
    theirs: bool = False
    """That was the client's doing: nothing is wrong here, and it goes as it came."""
    unread: bool = False
    """There is too much in it to be read at all."""
    refused: bool = False
    """The provider refused what was sent before."""
    conversation: LiveConversation | None = None
    messages: int = 0
    first_new: int = 0
    """Of these, those that were sent before."""
    new: NewPart = NOTHING_NEW
    """The others."""
    ends: tuple[float, ...] = ()
    """Where each message ends, as a share of what is sent, about; only where none is known to have been sent before."""
    edits: tuple[Edit, ...] = ()
    marks: tuple[Addition, ...] = ()
    """What was put on it for the provider's cache, beside the edits."""
    kept: Kept | None = None
    """For how long the provider is asked to keep what, if that was decided."""
    freed: tuple[float, ...] = ()
    """Tokens that each of them takes out, by our count."""
    revision: str = ""
    """Why something that was sent before was changed in this request."""
    rewritten: float = 0.0
    """Tokens that the provider has to write again because of that, at worst."""
    took: float = 0.0
    """Seconds."""
    model: str = ""
    place: Position | None = None
    """By which the session knows this very request later."""
    sent: SentRequest | None = None
    """How later requests begin that cannot be rewritten, if the provider takes this one."""
    deviation: Deviation | None = None
    """What the session has to learn, if the provider takes this one."""
    thinking_dropped: int = 0
    """Number of messages that are sent without their thinking, because the provider rejected it."""
    beta: str = ""
    """Feature that the request needs in its `anthropic-beta` header."""
    job: LiveRequest | None = None
    """The request, for `Live.refused` and `Live.sent_as_it_came`."""

    @property
    def follows_counts(self) -> bool:
        """Later requests of the conversation depend on what the provider counted for this one."""
        return self.conversation is not None and self.conversation.session.remembers

    @property
    def measured(self) -> bool:
        """It is on the side of a trial that goes as it came."""
        return self.conversation is not None and self.conversation.measured


class LateResult(Protocol):
    @property
    def outcome(self) -> RewriteResult | Exception | None: ...


@dataclass(eq=False)
class LiveRequest:
    """A request that is being worked on. Either it is done in time or it is given up, never both."""

    format: str
    """Empty where only its body tells, which is looked at by who works on it."""
    named: str
    """What the client calls the conversation."""
    encoding: str
    body: bytes
    at: float
    """Seconds since 1970."""
    counts: bool = False
    """Nothing is answered: it only asks for a size."""
    most: int = 100 * 2**20
    """Bytes that it may unpack to."""
    budget: float = 60.0
    """Seconds until the rewritten request has to be ready."""
    patience: float = 60.0
    """Seconds that it may wait for others of its conversation. It may become more while it waits."""
    decoded: bytes | None = None
    """Its body, once it is unpacked."""
    conversation: LiveConversation | None = None
    """Whose it is, once that is known."""
    model: str = ""
    """Who is asked, where the body does not say."""
    observed: object = None
    """What the agent did since its last request, if an experiment asks."""
    wish: Wish | None = None
    """Whether its conversation is to be on or off from here on, if it says."""
    profile: str = ""
    """What it is to be rewritten by; empty for what goes on to its provider from here, which is as the settings say."""
    tried: list[bytes] = field(default_factory=list)
    """Bodies that the provider rejected."""
    late: LateResult | None = None
    """Work that goes on after the request was sent in another way."""
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _ended: bool = False

    @property
    def key(self) -> Key:
        return (self.format, self.named, self.profile) if self.profile else (self.format, self.named)

    def late_plan(self) -> RewriteResult | None:
        """The request as planned, if that was ready only after it was sent in another way."""
        found = self.late.outcome if self.late is not None else None
        return found if isinstance(found, RewriteResult) and found.result == "rewritten" else None

    @property
    def ended(self) -> bool:
        return self._ended

    def end(self) -> bool:
        """True for the first who ends it."""
        with self._lock:
            first, self._ended = not self._ended, True
            return first
