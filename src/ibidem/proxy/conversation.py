"""One conversation that goes through the proxy: its session, and how its requests were sent.

What its requests do to it is written by its own methods and nowhere else. `Conversations`, which has all of them, sets
what memory and the store know of it: `held`, `hint` and `notebook`.
"""

from __future__ import annotations

import threading
from collections.abc import Hashable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from .. import formats
from ..billing.budget import Point
from ..engine.incremental import SentPrefix
from ..engine.notebook import Notebook
from ..engine.pipeline import Compacted
from ..engine.session import Session
from ..plan import Edit, Plan
from ..wire import Scanned, scan
from ..wire.scan import scan_tolerantly
from .books.bill import freed
from .coin import Toss
from .conduct import Conduct, ConductReader

Key = tuple[str, ...]
"""The wire format, what the client calls its conversation and, where the request itself asks for one, the profile."""

ONE_TURN = 2
"""Messages by which a conversation grows at least between two requests."""


class SentRequest(NamedTuple):
    """How a request was sent."""

    prefix: SentPrefix
    freed: tuple[float, ...]
    """Tokens that each of its edits takes out."""


class Deviation(NamedTuple):
    """A request that was sent otherwise than planned, of which its session does not know yet."""

    key: Key
    body: bytes
    since: int
    """From this message on it went out as it came."""
    refused: bool
    """Because the provider had not taken it as planned."""
    at: float


class Counted(NamedTuple):
    """What a provider told about a request: input tokens, and those of them that it read from its cache."""

    context: int | None = None
    cached: int | None = None


@dataclass(eq=False)
class LiveConversation:
    """One branch, and the session that rewrites it. What changes is changed under its lock."""

    id: str
    key: Key
    name: str
    """In the store."""
    session: Session
    title: str = ""
    parent: str = ""
    """The one that it branches off, if that is known."""
    model: str = ""
    hint: Hashable = None
    """What its last request began with."""
    messages: int = 0
    """Of the last request."""
    first_new: int = 0
    """Of these, those that were sent before it."""
    held: int = 0
    """Bytes that it takes in memory, about."""
    edits: tuple[Edit, ...] = ()
    freed: tuple[float, ...] = ()
    """Of the last request, and the tokens that each takes out: so that no text is counted twice."""
    points: int = 0
    """How often what had been sent was changed."""
    turns: int = 0
    """How often it was worked on: who found it before that has to look again."""
    notebook: Notebook | None = None
    """What the store has of it, as far as is known."""
    last: SentPrefix | None = None
    """How its last request was written. By this the next is known, also while somebody works on it."""
    sent: SentRequest | None = None
    """How the last request was sent that the provider took: what cannot be rewritten begins that way."""
    deviation: Deviation | None = None
    thinking_dropped: int = 0
    """Number of messages, from the start, that are sent without their thinking: the provider rejected it."""
    elsewhere: bool = False
    """Another process of this proxy had it: what was sent follows from the history, also where nothing is noted."""
    off: bool = False
    """It goes on without new edits, until it is switched on again."""
    toss: Toss | None = None
    """On which side of a trial it is, if there is one."""
    conduct: ConductReader | None = field(init=False, default=None)
    """Counts what its agent does, for a trial."""
    measured: bool = field(init=False, default=False)
    """It goes out as it came, and only what would have been saved is measured."""
    lock: threading.Lock = field(default_factory=threading.Lock)
    """Held while a request of it is worked on."""

    def __post_init__(self) -> None:
        if self.toss is not None:
            self.conduct = ConductReader(self.key[0])
            self.measured = self.toss.arm == "measure"

    def count_conduct(self, scanned: Scanned) -> Conduct | None:
        """What its agent did since the request before. What goes wrong here goes wrong for nobody else."""
        try:
            return self.conduct.read(scanned) if self.conduct is not None else None
        except Exception:
            self.conduct = None  # half of a message may be counted
            return None

    def ask(self, model: str) -> None:
        """Who is asked from here on, if something else than the requests says so."""
        if model:
            self.session.model = self.model = model

    def rewrite(self, scanned: Scanned, at: float) -> Compacted:
        self.turns += 1
        try:
            return self.session.compact(scanned, at=at)
        finally:
            self._grow(scanned)

    def pass_on(self) -> None:
        """A request of it is not worked on: it goes out as it is known here, and what comes of that is known later."""
        self.turns += 1

    def plan_sent(self, plan: Plan, counts: bool = True) -> Point | None:
        """What is sent has these edits. Returns where it changes what had been sent, if it does.

        A change that another replica made, or that was made before a restart, is not one of this request. The tokens of
        edits are counted for the books; without these there is no need to.
        """
        last = plan.points[-1] if len(plan.points) > self.points else None
        point = last if last is not None and last.length == self.messages else None
        self.points = len(plan.points)
        self.freed = freed(plan.edits, self.edits, self.freed) if counts else (0.0,) * len(plan.edits)
        self.edits = plan.edits
        return point

    def accept(self, sent: SentRequest | None, deviation: Deviation | None) -> None:
        """The provider takes a request that was sent so: the conversation goes on in that way."""
        if self.measured:
            return
        if sent is not None and not (self.sent and self.sent.prefix.continues(sent.prefix)):
            self.sent = sent  # else a later one was taken first
        if deviation is not None:
            self.deviate(deviation)
            if not deviation.since:
                self.sent = None

    def deviate(self, deviation: Deviation) -> None:
        self.deviation = deviation

    def settle(self) -> Scanned | None:
        """Its session learns of a deviation, if there is one. Returns that request."""
        deviation, self.deviation = self.deviation, None
        scanned = scan(deviation.body) or scan_tolerantly(deviation.body) if deviation is not None else None
        if deviation is None or scanned is None:
            return None
        self.turns += 1
        self.session.sent_otherwise(scanned, deviation.since, refused=deviation.refused, at=deviation.at)
        self._grow(scanned)
        self.points = len(self.last.plan.points) if self.last is not None else 0
        last, sent = self.last, self.sent
        if last is not None and (last.goes_on_from(sent.prefix, deviation.since) if sent else _bare(last, deviation)):
            known = (sent.prefix.plan.edits, sent.freed) if sent else ((), ())
            self.sent = SentRequest(last, freed(last.plan.edits, *known))
        return scanned

    def goes_on_as_ever(self, scanned: Scanned) -> bool:
        """Whether there is nothing to it but to rewrite a request that goes it on."""
        usual = not (self.off or self.toss or self.deviation or self.session.unusual)
        return usual and not (self.notebook is not None and self.went_elsewhere(scanned))

    def _grow(self, scanned: Scanned) -> None:
        """It was worked on with this request."""
        model = scanned.head.get("model")
        self.model = model if isinstance(model, str) else self.model
        if len(scanned) != self.messages:  # else it is sent again
            self.first_new = self.messages
        self.messages = len(scanned)
        self.last = self.session.sent_prefix or self.last

    def went_elsewhere(self, scanned: Scanned) -> bool:
        """Whether the model was heard more than once since its last request came here: another replica has notes."""
        if not self.messages or len(scanned) - self.messages <= ONE_TURN:
            return False
        read = formats.named(self.key[0]).read
        roles = [read(index, scanned.value(index)).role for index in range(self.messages, len(scanned))]
        heard = [mine == "assistant" != before for before, mine in pairwise(["", *roles])]
        return sum(heard) > 1


def _bare(last: SentPrefix, deviation: Deviation) -> bool:
    """Whether all of it went as it came, whatever the branch did that it came from."""
    return not deviation.since and not last.plan.edits


def goes_on(last: SentPrefix | None, scanned: Scanned) -> bool:
    """Whether a request begins with all that was said."""
    return last is not None and 0 < last.messages == last.shared(scanned)
