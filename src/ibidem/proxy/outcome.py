"""One request that is worked on, and what became of it."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Literal, Protocol

import msgspec

from ..billing.lifetimes import Kept
from ..engine.journal import Position
from ..formats.marks import Addition
from ..plan import Edit
from .conduct import Conduct
from .conversation import Deviation, Key, LiveConversation
from .new_part import NOTHING_NEW, NewPart
from .sent_history import SentRequest
from .switch import Wish

Result = Literal["rewritten", "unchanged", "observed", "off", "failed open"]


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
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

    @property
    def measured(self) -> bool:
        """It is on the side of a trial that goes as it came."""
        return self.conversation is not None and self.conversation.measured


class LateResult(Protocol):
    @property
    def outcome(self) -> Outcome | Exception | None: ...


@dataclass(eq=False)
class Job:
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
    conduct: Conduct | None = None
    """What the agent did since its last request, where that is counted."""
    wish: Wish | None = None
    """Whether its conversation is to be on or off from here on, if it says."""
    profile: str = ""
    """What it is to be rewritten by; empty for what goes on to its provider from here, which is as the settings say."""
    late: LateResult | None = None
    """Work that goes on after the request was sent in another way."""
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _ended: bool = False

    @property
    def key(self) -> Key:
        return (self.format, self.named, self.profile) if self.profile else (self.format, self.named)

    def late_plan(self) -> Outcome | None:
        """The request as planned, if that was ready only after it was sent in another way."""
        found = self.late.outcome if self.late is not None else None
        return found if isinstance(found, Outcome) and found.result == "rewritten" else None

    @property
    def ended(self) -> bool:
        return self._ended

    def end(self) -> bool:
        """True for the first who ends it."""
        with self._lock:
            first, self._ended = not self._ended, True
            return first
