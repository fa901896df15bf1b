"""One conversation whose requests are rewritten: its session, and how its accepted requests were sent.

Its own methods record what requests do to it. `recognition`, which has all conversations, sets what memory and the
store know of it: `held`, `hint` and `notebook`.

How requests were sent is a frozen value (`SentHistory`). A request that cannot be rewritten starts as earlier requests
did. Which of them counts depends on how far it agrees with them: a rewound branch must not start with edits that its
parent made later.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Hashable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple, Protocol

from .. import formats
from ..billing.budget import Point
from ..engine.incremental import SentPrefix
from ..engine.journal import Position
from ..engine.notebook import Notebook
from ..engine.pipeline import Compacted
from ..engine.session import Session
from ..plan import Edit, Plan
from ..tokens import estimate
from ..wire import Scanned, scan
from ..wire.scan import scan_tolerantly


def removed_tokens(
    edits: tuple[Edit, ...], before: tuple[Edit, ...] = (), known: tuple[float, ...] = ()
) -> tuple[float, ...]:
    """Estimate the tokens that each edit removes. `known` are the counts of the edits `before`, which are reused."""
    if edits[: len(before)] == before:
        return known + tuple(map(_removed_by, edits[len(before) :]))
    counted = {id(edit): tokens for edit, tokens in zip(before, known, strict=True)}
    return tuple(counted[id(edit)] if id(edit) in counted else _removed_by(edit) for edit in edits)


def _removed_by(edit: Edit) -> float:
    if edit.counted_tokens is not None:
        return edit.counted_tokens
    return max(0.0, sum(map(estimate, edit.removed)) - estimate(edit.added))


class Assignment(Protocol):
    """The variant of an experiment that a conversation is in."""

    @property
    def measured(self) -> bool:
        """Its requests are sent unchanged, and only what would have been saved is measured."""
        ...

    @property
    def label(self) -> str:
        """Name of the variant, for accounting."""
        ...

    def observe(self, scanned: Scanned) -> object:
        """What the agent did since the request before, for the experiment. Called once for each request. May raise."""
        ...


MAX_REVISIONS = 4
"""Revisions of which the last accepted request is kept."""


class SentRequest(NamedTuple):
    """How a request was sent."""

    prefix: SentPrefix
    freed: tuple[float, ...]
    """Tokens that each of its edits removes."""

    @property
    def revised_at(self) -> int:
        """Number of messages of the request that changed earlier messages last; 0 if none did."""
        points = self.prefix.plan.points
        return points[-1].length if points else 0

    def is_followed_by(self, later: SentRequest) -> bool:
        """Return True if `later` is a longer request that was sent in the same way as far as this one goes."""
        return later.prefix.continues(self.prefix) and later.prefix.wrote_alike(self.prefix, self.prefix.messages)

    def cut(self, scanned: Scanned, shared: int) -> SentRequest:
        """A request whose first messages, `shared` of them, are sent as here, and all others unchanged."""
        pairs = zip(self.prefix.plan.edits, self.freed, strict=True)
        freed = tuple(tokens for edit, tokens in pairs if edit.message < shared)
        return SentRequest(self.prefix.cut(scanned, shared), freed)


class SentHistory(NamedTuple):
    """The last accepted request of each revision, newest last."""

    requests: tuple[SentRequest, ...] = ()

    @property
    def newest(self) -> SentRequest | None:
        return self.requests[-1] if self.requests else None

    def add(self, sent: SentRequest) -> SentHistory:
        """The history with one more accepted request. A longer one may have been accepted before it."""
        if any(sent.is_followed_by(each) for each in self.requests if each.revised_at == sent.revised_at):
            return self
        others = [each for each in self.requests if each.revised_at != sent.revised_at]
        return SentHistory((*others, sent)[-MAX_REVISIONS:])

    def for_request(self, scanned: Scanned) -> tuple[SentRequest, int] | None:
        """The newest request that this one starts like, and the number of messages in common; None if there is none.

        Messages were sent in its way only up to the request that revised them, so all of those have to be in common.
        """
        for sent in reversed(self.requests):
            shared = sent.prefix.shared(scanned)
            if shared and sent.revised_at <= shared:
                return sent, shared
        return None


NOTHING_SENT = SentHistory()


Key = tuple[str, ...]
"""The wire format, what the client calls its conversation and, where the request itself asks for one, the profile."""

ONE_TURN = 2
"""Messages by which a conversation grows at least between two requests."""


class Deviation(NamedTuple):
    """A request that was accepted and not sent as planned. Its session does not know yet."""

    key: Key
    body: bytes
    since: int
    """Index of the first message that was sent unchanged."""
    refused: bool
    """Because the provider rejected the planned request."""
    at: float
    thinking_dropped: int = 0
    """Number of messages that were sent without their thinking, because the provider rejected it."""


class Counted(NamedTuple):
    """What a provider reported about a request: input tokens, those of them that it read from its cache, and whether
    it cleared tool results."""

    context: int | None = None
    cached: int | None = None
    cleared: bool = False


class AnsweredRequest(NamedTuple):
    """A response. The session of its request does not know yet."""

    position: Position | None
    at: float
    counted: Counted
    stop_revising: bool
    """The provider's cache misses after our edits."""


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
    history: SentHistory = NOTHING_SENT
    """How accepted requests were sent: a request that cannot be rewritten starts that way."""
    inbox: deque[Deviation | AnsweredRequest] = field(default_factory=deque)
    """What its session has to learn. Anybody adds to it; who holds the lock empties it."""
    thinking_dropped: int = 0
    """Number of messages, from the start, that are sent without their thinking: the provider rejected it."""
    unanswered: bool = False
    """Its last request was not accepted here. The client may have sent it to another replica."""
    elsewhere: bool = False
    """Another process of this proxy had it: what was sent follows from the history, also where nothing is noted."""
    off: bool = False
    """It goes on without new edits, until it is switched on again."""
    assignment: Assignment | None = None
    """Its variant, if it takes part in an experiment."""
    lock: threading.Lock = field(default_factory=threading.Lock)
    """Held while a request of it is worked on."""
    _sent_lock: threading.Lock = field(default_factory=threading.Lock)
    """Held while `history` is replaced, and for nothing else."""

    @property
    def measured(self) -> bool:
        """Its requests are sent unchanged, and only what would have been saved is measured."""
        return self.assignment is not None and self.assignment.measured

    def ask(self, model: str) -> None:
        """Who is asked from here on, if something else than the requests says so."""
        if model:
            self.session.model = self.model = model

    def rewrite(self, scanned: Scanned, at: float) -> Compacted:
        self.turns += 1
        self.unanswered = True
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
        self.freed = removed_tokens(plan.edits, self.edits, self.freed) if counts else (0.0,) * len(plan.edits)
        self.edits = plan.edits
        return point

    def accept(self, sent: SentRequest | None, deviation: Deviation | None) -> None:
        """The provider takes a request that was sent so: the conversation goes on in that way."""
        self.unanswered = False
        if self.measured:
            return
        if sent is not None:
            self._add_sent(sent)
        if deviation is not None:
            self.inbox.append(deviation)
            self.thinking_dropped = max(self.thinking_dropped, deviation.thinking_dropped)

    def _add_sent(self, sent: SentRequest) -> None:
        with self._sent_lock:
            self.history = self.history.add(sent)

    def settle(self) -> Scanned | None:
        """Its session learns what is in the inbox. Returns the last request that was not sent as planned, if any."""
        found: Scanned | None = None
        while self.inbox:
            news = self.inbox.popleft()
            if isinstance(news, Deviation):
                found = self._settle(news) or found
            else:
                self._hear(news)
        return found

    def _hear(self, news: AnsweredRequest) -> None:
        counted, at = news.counted, news.position
        self.session.answered(
            at=news.at, context=counted.context, cached=counted.cached, position=at, cleared=counted.cleared
        )
        if news.stop_revising:
            self.session.stop_revising(at)

    def _settle(self, deviation: Deviation) -> Scanned | None:
        scanned = scan(deviation.body) or scan_tolerantly(deviation.body)
        if scanned is None:
            return None
        self.turns += 1
        self.session.sent_otherwise(
            scanned,
            deviation.since,
            refused=deviation.refused,
            at=deviation.at,
            thinking_dropped=deviation.thinking_dropped,
        )
        self._grow(scanned)
        self.points = len(self.last.plan.points) if self.last is not None else 0
        last, sent = self.last, self.history.newest
        if last is not None and sent is not None and sent.prefix.is_same_request(last):
            self._add_sent(SentRequest(last, removed_tokens(last.plan.edits, sent.prefix.plan.edits, sent.freed)))
        return scanned

    def goes_on_as_ever(self, scanned: Scanned) -> bool:
        """Whether there is nothing to it but to rewrite a request that goes it on."""
        usual = not (self.off or self.assignment or self.inbox or self.session.unusual)
        return usual and not (self.notebook is not None and self.went_elsewhere(scanned))

    def _grow(self, scanned: Scanned) -> None:
        """It was worked on with this request."""
        model = scanned.head.get("model")
        self.model = model if isinstance(model, str) else self.model
        if len(scanned) != self.messages:  # else it is sent again
            self.first_new = self.messages
        self.messages = len(scanned)
        self.last = self.session.sent_prefix or self.last
        self.thinking_dropped = max(self.thinking_dropped, self.session.thinking_dropped)

    def went_elsewhere(self, scanned: Scanned) -> bool:
        """Return True if another replica may have notes: the last request was not accepted here, or the model answered
        more than once since it came."""
        if self.unanswered and self.messages and len(scanned) > self.messages:
            return True
        if not self.messages or len(scanned) - self.messages <= ONE_TURN:
            return False
        read = formats.named(self.key[0]).read
        roles = [read(index, scanned.value(index)).role for index in range(self.messages, len(scanned))]
        heard = [mine == "assistant" != before for before, mine in pairwise(["", *roles])]
        return sum(heard) > 1


def goes_on(last: SentPrefix | None, scanned: Scanned) -> bool:
    """Whether a request begins with all that was said."""
    return last is not None and 0 < last.messages == last.shared(scanned)
