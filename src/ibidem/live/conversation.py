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
from ..billing.revision_budget import PricedRevision
from ..engine.incremental import SentPrefix
from ..engine.journal import Position
from ..engine.journal_store import JournalStore
from ..engine.pipeline import Compacted
from ..engine.session import Session
from ..plan import Edit, Plan
from ..tokens import estimate
from ..wire import ScannedRequest, scan
from ..wire.request_scan import scan_tolerantly


def removed_tokens(
    edits: tuple[Edit, ...], before: tuple[Edit, ...] = (), known_tokens: tuple[float, ...] = ()
) -> tuple[float, ...]:
    """Estimate the tokens that each edit removes. `known_tokens`: counts of the edits `before`, reused."""
    if edits[: len(before)] == before:
        return known_tokens + tuple(map(_removed_by, edits[len(before) :]))
    tokens_by_edit = {id(edit): tokens for edit, tokens in zip(before, known_tokens, strict=True)}
    return tuple(tokens_by_edit[id(edit)] if id(edit) in tokens_by_edit else _removed_by(edit) for edit in edits)


def _removed_by(edit: Edit) -> float:
    if edit.counted_tokens is not None:
        return edit.counted_tokens
    return max(0.0, sum(map(estimate, edit.removed)) - estimate(edit.added))


class Assignment(Protocol):
    """The variant of an experiment that a conversation is in."""

    @property
    def is_observed(self) -> bool:
        """True if requests are sent unchanged, and only the possible savings are measured."""
        ...

    @property
    def label(self) -> str:
        """Name of the variant, for accounting."""
        ...

    def observe_agent(self, scanned: ScannedRequest) -> object:
        """Return what the agent did since the previous request, for the experiment. Called once per request. May
        raise."""
        ...


MAX_REVISIONS = 4
"""Number of revisions whose last accepted request is stored."""


class SentRequest(NamedTuple):
    """How a request was sent."""

    prefix: SentPrefix
    edit_tokens: tuple[float, ...]
    """Estimated tokens that each edit of the request removes."""

    @property
    def revised_at(self) -> int:
        """Number of messages of the last request that revised earlier messages; 0 if none did."""
        points = self.prefix.plan.points
        return points[-1].length if points else 0

    def is_followed_by(self, later: SentRequest) -> bool:
        """Return True if `later` has all messages of this request, sent in the same way, and more.

        Responses can arrive in another order than their requests. If `later` of the same revision is already stored,
        `SentHistory.add` ignores this request.
        """
        return later.prefix.is_continuation_of(self.prefix) and later.prefix.has_same_changes(
            self.prefix, self.prefix.message_count
        )

    def cut_prefix(self, scanned: ScannedRequest, shared: int) -> SentRequest:
        """Return a request whose first `shared` messages are sent as here, and all others unchanged."""
        pairs = zip(self.prefix.plan.edits, self.edit_tokens, strict=True)
        edit_tokens = tuple(tokens for edit, tokens in pairs if edit.message < shared)
        return SentRequest(self.prefix.truncate_to(scanned, shared), edit_tokens)


class SentHistory(NamedTuple):
    """The last accepted request of each revision, newest last."""

    requests: tuple[SentRequest, ...] = ()

    @property
    def newest_request(self) -> SentRequest | None:
        """The last accepted request of the newest revision."""
        return self.requests[-1] if self.requests else None

    def add(self, request: SentRequest) -> SentHistory:
        """Return the history with one more accepted request. A longer one may have been accepted before it."""
        if any(request.is_followed_by(each) for each in self.requests if each.revised_at == request.revised_at):
            return self
        others = [each for each in self.requests if each.revised_at != request.revised_at]
        return SentHistory((*others, request)[-MAX_REVISIONS:])

    def find_match(self, scanned: ScannedRequest) -> tuple[SentRequest, int] | None:
        """Find the newest request whose start this one shares, with the number of shared messages; None without a
        match.

        Messages were sent its way only up to the request that revised them, so all of those must be shared.
        """
        for request in reversed(self.requests):
            shared_count = request.prefix.shared_length(scanned)
            if shared_count and request.revised_at <= shared_count:
                return request, shared_count
        return None


NOTHING_SENT = SentHistory()


ConversationKey = tuple[str, ...]
"""Wire format, the client's name for the conversation and, if the request selects one, the profile."""

ONE_TURN = 2
"""Smallest number of messages that a conversation gains between two requests."""


class UnreportedSend(NamedTuple):
    """A request that was accepted but not sent as planned. The session must still be informed."""

    key: ConversationKey
    body: bytes
    first_unchanged: int
    """Index of the first message that was sent unchanged."""
    is_rejected: bool
    """True if the provider rejected the planned request."""
    at: float
    thinking_dropped: int = 0
    """Number of messages that were sent without their thinking, because the provider rejected it."""


class ProviderCount(NamedTuple):
    """Token counts of a response: input, the part read from the provider's cache, and whether it cleared tool
    results."""

    context: int | None = None
    cached_tokens: int | None = None
    has_cleared_results: bool = False


class AnsweredRequest(NamedTuple):
    """A response. The session of its request must still be informed."""

    position: Position | None
    at: float
    provider_count: ProviderCount
    stop_revising: bool
    """True if the provider's cache misses after our edits."""


@dataclass(eq=False)
class LiveConversation:
    """One branch, and the session that rewrites it. Change its fields only under its lock."""

    id: str
    key: ConversationKey
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
    memory_bytes: int = 0
    """Estimated bytes in memory."""
    edits: tuple[Edit, ...] = ()
    edit_tokens: tuple[float, ...] = ()
    """Edits of the last request and the tokens that each removes. Stored, so that no text is counted twice."""
    revision_count: int = 0
    """Number of revisions so far."""
    version: int = 0
    """Number of changes. A thread that found the conversation at a lower number must check it again."""
    notebook: JournalStore | None = None
    """Journal in the store, as read so far."""
    last_prefix: SentPrefix | None = None
    """How its last request was written. The next one is recognized by it, also while a thread rewrites."""
    history: SentHistory = NOTHING_SENT
    """How accepted requests were sent. A request that cannot be rewritten starts the same way."""
    inbox: deque[UnreportedSend | AnsweredRequest] = field(default_factory=deque)
    """News for the session. Every thread may add; the thread that holds the lock empties it."""
    thinking_dropped: int = 0
    """Number of messages, from the start, that are sent without thinking because the provider rejected it."""
    is_unanswered: bool = False
    """True if its last request was not accepted here. The client may have sent it to another replica."""
    is_remote: bool = False
    """True if another process of this proxy had it. The history shows how it was sent, even without journal entries."""
    is_paused: bool = False
    """True while paused: it continues without new edits."""
    assignment: Assignment | None = None
    """Its variant, if it takes part in an experiment."""
    lock: threading.Lock = field(default_factory=threading.Lock)
    """Held while one of its requests is rewritten."""
    _sent_lock: threading.Lock = field(default_factory=threading.Lock)
    """Held only while `history` is replaced."""

    @property
    def is_observed(self) -> bool:
        """True if requests are sent unchanged, and only the possible savings are measured."""
        return self.assignment is not None and self.assignment.is_observed

    def set_model(self, model: str) -> None:
        """Set the model for requests whose body does not name it."""
        if model:
            self.session.model = self.model = model

    def rewrite_request(self, scanned: ScannedRequest, at: float) -> Compacted:
        """Rewrite its next request."""
        self.version += 1
        self.is_unanswered = True
        try:
            return self.session.compact(scanned, at=at)
        finally:
            self._record_request(scanned)

    def skip_request(self) -> None:
        """Record that a request is sent without a rewrite. How it was sent is reported later."""
        self.version += 1

    def record_plan(self, plan: Plan, counts_tokens: bool = True) -> PricedRevision | None:
        """Record the edits of a request. Return the revision that it makes, if any.

        A revision by another replica, or from before a restart, does not count. Tokens of edits are only counted for
        accounting (`counts_tokens`).
        """
        last = plan.points[-1] if len(plan.points) > self.revision_count else None
        revision = last if last is not None and last.length == self.messages else None
        self.revision_count = len(plan.points)
        self.edit_tokens = (
            removed_tokens(plan.edits, self.edits, self.edit_tokens) if counts_tokens else (0.0,) * len(plan.edits)
        )
        self.edits = plan.edits
        return revision

    def record_accepted(self, request: SentRequest | None, unreported: UnreportedSend | None) -> None:
        """Record that the provider accepted a request. Later requests start as it was sent."""
        self.is_unanswered = False
        if self.is_observed:
            return
        if request is not None:
            self._add_sent(request)
        if unreported is not None:
            self.inbox.append(unreported)
            self.thinking_dropped = max(self.thinking_dropped, unreported.thinking_dropped)

    def _add_sent(self, request: SentRequest) -> None:
        with self._sent_lock:
            self.history = self.history.add(request)

    def apply_inbox(self) -> ScannedRequest | None:
        """Inform the session of the news in the inbox. Return the last request that was not sent as planned, if any."""
        scanned: ScannedRequest | None = None
        while self.inbox:
            news = self.inbox.popleft()
            if isinstance(news, UnreportedSend):
                scanned = self._apply_unreported(news) or scanned
            else:
                self._apply_response(news)
        return scanned

    def _apply_response(self, news: AnsweredRequest) -> None:
        count, position = news.provider_count, news.position
        self.session.answered(
            at=news.at,
            context=count.context,
            cached=count.cached_tokens,
            position=position,
            cleared=count.has_cleared_results,
        )
        if news.stop_revising:
            self.session.stop_revising(position)

    def _apply_unreported(self, unreported: UnreportedSend) -> ScannedRequest | None:
        scanned = scan(unreported.body) or scan_tolerantly(unreported.body)
        if scanned is None:
            return None
        self.version += 1
        self.session.sent_otherwise(
            scanned,
            unreported.first_unchanged,
            refused=unreported.is_rejected,
            at=unreported.at,
            thinking_dropped=unreported.thinking_dropped,
        )
        self._record_request(scanned)
        self.revision_count = len(self.last_prefix.plan.points) if self.last_prefix is not None else 0
        last, newest = self.last_prefix, self.history.newest_request
        if last is not None and newest is not None and newest.prefix.is_same_request(last):
            self._add_sent(
                SentRequest(last, removed_tokens(last.plan.edits, newest.prefix.plan.edits, newest.edit_tokens))
            )
        return scanned

    def can_continue_directly(self, scanned: ScannedRequest) -> bool:
        """Return True if a request that continues the conversation needs no more than a rewrite."""
        usual = not (self.is_paused or self.assignment or self.inbox or self.session.unusual)
        return usual and not (self.notebook is not None and self.may_have_moved(scanned))

    def _record_request(self, scanned: ScannedRequest) -> None:
        """Update the fields of the last request."""
        model = scanned.params.get("model")
        self.model = model if isinstance(model, str) else self.model
        if len(scanned) != self.messages:  # else the request is a repetition
            self.first_new = self.messages
        self.messages = len(scanned)
        self.last_prefix = self.session.sent_prefix or self.last_prefix
        self.thinking_dropped = max(self.thinking_dropped, self.session.thinking_dropped)

    def may_have_moved(self, scanned: ScannedRequest) -> bool:
        """Return True if another replica may have journal entries: the last request was not accepted here, or the model
        answered more than once since."""
        if self.is_unanswered and self.messages and len(scanned) > self.messages:
            return True
        if not self.messages or len(scanned) - self.messages <= ONE_TURN:
            return False
        read = formats.format_named(self.key[0]).read_message
        roles = [read(index, scanned.message_at(index)).role for index in range(self.messages, len(scanned))]
        answer_starts = [mine == "assistant" != before for before, mine in pairwise(["", *roles])]
        return sum(answer_starts) > 1


def continues_prefix(last: SentPrefix | None, scanned: ScannedRequest) -> bool:
    """Return True if a request starts with all messages of the last one."""
    return last is not None and 0 < last.message_count == last.shared_length(scanned)
