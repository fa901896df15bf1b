"""One conversation whose requests are rewritten: its session, and how its accepted requests were sent.

Its methods record what requests do to it. `recognition`, which has all conversations, sets the facts about memory and
store: `memory_bytes`, `hint` and `notebook`.

How requests were sent is a frozen value (`SentHistory`). A request that cannot be rewritten starts as earlier requests
did. The length of the shared prefix decides which of them counts: a rewound branch must not start with edits that its
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
        """True if requests are sent unchanged, and only the possible savings are measured."""
        ...

    @property
    def label(self) -> str:
        """Name of the variant, for accounting."""
        ...

    def observe(self, scanned: Scanned) -> object:
        """Return what the agent did since the previous request, for the experiment. Called once per request. May
        raise."""
        ...


MAX_REVISIONS = 4
"""Number of revisions whose last accepted request is stored."""


class SentRequest(NamedTuple):
    """How a request was sent."""

    prefix: SentPrefix
    freed: tuple[float, ...]
    """Estimated tokens that each edit of the request removes."""

    @property
    def revised_at(self) -> int:
        """Number of messages of the last request that revised earlier messages; 0 if none did."""
        points = self.prefix.plan.points
        return points[-1].length if points else 0

    def is_followed_by(self, later: SentRequest) -> bool:
        """Return True if `later` is a longer request that starts with the same bytes as this one."""
        return later.prefix.continues(self.prefix) and later.prefix.wrote_alike(self.prefix, self.prefix.messages)

    def cut(self, scanned: Scanned, shared: int) -> SentRequest:
        """Return a request whose first `shared` messages are sent as here, and all others unchanged."""
        pairs = zip(self.prefix.plan.edits, self.freed, strict=True)
        freed = tuple(tokens for edit, tokens in pairs if edit.message < shared)
        return SentRequest(self.prefix.cut(scanned, shared), freed)


class SentHistory(NamedTuple):
    """The last accepted request of each revision, newest last."""

    requests: tuple[SentRequest, ...] = ()

    @property
    def newest(self) -> SentRequest | None:
        """The last accepted request of the newest revision."""
        return self.requests[-1] if self.requests else None

    def add(self, sent: SentRequest) -> SentHistory:
        """Return the history with one more accepted request. A longer one may have been accepted before it."""
        if any(sent.is_followed_by(each) for each in self.requests if each.revised_at == sent.revised_at):
            return self
        others = [each for each in self.requests if each.revised_at != sent.revised_at]
        return SentHistory((*others, sent)[-MAX_REVISIONS:])

    def for_request(self, scanned: Scanned) -> tuple[SentRequest, int] | None:
        """Find the newest request whose start this one shares, with the number of shared messages; None without a
        match.

        Messages were sent its way only up to the request that revised them, so all of those must be shared.
        """
        for sent in reversed(self.requests):
            shared = sent.prefix.shared(scanned)
            if shared and sent.revised_at <= shared:
                return sent, shared
        return None


NOTHING_SENT = SentHistory()


Key = tuple[str, ...]
"""Wire format, the client's name for the conversation and, if the request selects one, the profile."""

ONE_TURN = 2
"""Smallest number of messages that a conversation gains between two requests."""


class Deviation(NamedTuple):
    """A request that was accepted but not sent as planned. The session must still be informed."""

    key: Key
    body: bytes
    since: int
    """Index of the first message that was sent unchanged."""
    refused: bool
    """True if the provider rejected the planned request."""
    at: float
    thinking_dropped: int = 0
    """Number of messages that were sent without their thinking, because the provider rejected it."""


class Counted(NamedTuple):
    """Token counts of a response: input, the part read from the provider's cache, and whether it cleared tool
    results."""

    context: int | None = None
    cached: int | None = None
    cleared: bool = False


class AnsweredRequest(NamedTuple):
    """A response. The session of its request must still be informed."""

    position: Position | None
    at: float
    counted: Counted
    stop_revising: bool
    """True if the provider's cache misses after our edits."""


@dataclass(eq=False)
class LiveConversation:
    """One branch, and the session that rewrites it. Change its fields only under its lock."""

    id: str
    key: Key
    name: str
    """Name in the store."""
    session: Session
    title: str = ""
    parent: str = ""
    """Id of the conversation that this one branched from, if known."""
    model: str = ""
    hint: Hashable = None
    """Hash of the first bytes of its last request, to find it by."""
    messages: int = 0
    """Number of messages of the last request."""
    first_new: int = 0
    """Index of the first message that only the last request has."""
    held: int = 0
    """Estimated bytes in memory."""
    edits: tuple[Edit, ...] = ()
    freed: tuple[float, ...] = ()
    """Edits of the last request and the tokens that each removes. Stored, so that no text is counted twice."""
    points: int = 0
    """Number of revisions so far."""
    turns: int = 0
    """Number of changes. A thread that found the conversation at a lower number must check it again."""
    notebook: Notebook | None = None
    """Journal in the store, as read so far."""
    last: SentPrefix | None = None
    """How its last request was written. The next one is recognized by it, also while a thread rewrites."""
    history: SentHistory = NOTHING_SENT
    """How accepted requests were sent. A request that cannot be rewritten starts the same way."""
    inbox: deque[Deviation | AnsweredRequest] = field(default_factory=deque)
    """News for the session. Every thread may add; the thread that holds the lock empties it."""
    thinking_dropped: int = 0
    """Number of messages, from the start, that are sent without thinking because the provider rejected it."""
    unanswered: bool = False
    """True if its last request was not accepted here. The client may have sent it to another replica."""
    elsewhere: bool = False
    """True if another process of this proxy had it. The history shows how it was sent, even without journal entries."""
    off: bool = False
    """True while paused: it continues without new edits."""
    assignment: Assignment | None = None
    """Its variant, if it takes part in an experiment."""
    lock: threading.Lock = field(default_factory=threading.Lock)
    """Held while one of its requests is rewritten."""
    _sent_lock: threading.Lock = field(default_factory=threading.Lock)
    """Held only while `history` is replaced."""

    @property
    def measured(self) -> bool:
        """True if requests are sent unchanged, and only the possible savings are measured."""
        return self.assignment is not None and self.assignment.measured

    def ask(self, model: str) -> None:
        """Set the model for requests whose body does not name it."""
        if model:
            self.session.model = self.model = model

    def rewrite(self, scanned: Scanned, at: float) -> Compacted:
        """Rewrite its next request."""
        self.turns += 1
        self.unanswered = True
        try:
            return self.session.compact(scanned, at=at)
        finally:
            self._grow(scanned)

    def pass_on(self) -> None:
        """Record that a request is sent without a rewrite. How it was sent is reported later."""
        self.turns += 1

    def plan_sent(self, plan: Plan, counts: bool = True) -> Point | None:
        """Record the edits of a request. Return the revision that it makes, if any.

        A revision by another replica, or from before a restart, does not count. Tokens of edits are only counted for
        accounting (`counts`).
        """
        last = plan.points[-1] if len(plan.points) > self.points else None
        point = last if last is not None and last.length == self.messages else None
        self.points = len(plan.points)
        self.freed = removed_tokens(plan.edits, self.edits, self.freed) if counts else (0.0,) * len(plan.edits)
        self.edits = plan.edits
        return point

    def accept(self, sent: SentRequest | None, deviation: Deviation | None) -> None:
        """Record that the provider accepted a request. Later requests start as it was sent."""
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
        """Inform the session of the news in the inbox. Return the last request that was not sent as planned, if any."""
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
        """Return True if a request that continues the conversation needs no more than a rewrite."""
        usual = not (self.off or self.assignment or self.inbox or self.session.unusual)
        return usual and not (self.notebook is not None and self.went_elsewhere(scanned))

    def _grow(self, scanned: Scanned) -> None:
        """Update the fields of the last request."""
        model = scanned.head.get("model")
        self.model = model if isinstance(model, str) else self.model
        if len(scanned) != self.messages:  # else the request is a repetition
            self.first_new = self.messages
        self.messages = len(scanned)
        self.last = self.session.sent_prefix or self.last
        self.thinking_dropped = max(self.thinking_dropped, self.session.thinking_dropped)

    def went_elsewhere(self, scanned: Scanned) -> bool:
        """Return True if another replica may have journal entries: the last request was not accepted here, or the model
        answered more than once since."""
        if self.unanswered and self.messages and len(scanned) > self.messages:
            return True
        if not self.messages or len(scanned) - self.messages <= ONE_TURN:
            return False
        read = formats.named(self.key[0]).read
        roles = [read(index, scanned.value(index)).role for index in range(self.messages, len(scanned))]
        heard = [mine == "assistant" != before for before, mine in pairwise(["", *roles])]
        return sum(heard) > 1


def goes_on(last: SentPrefix | None, scanned: Scanned) -> bool:
    """Return True if a request starts with all messages of the last one."""
    return last is not None and 0 < last.messages == last.shared(scanned)
