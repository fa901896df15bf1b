"""Rewrite one request body, or decide why the original is sent (invariant 12).

`Rewriter.rewrite_request` runs in a separate thread, and its caller may abandon it. The caller then sends a body from
`fallback`, and the conversation is informed. `Rewriter.rewrite_warm` handles requests that are faster than a thread
switch.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import accumulate

from msgspec.structs import replace

from .. import formats
from ..billing.cache_directives import CacheAsked, cache_asked
from ..billing.input_estimate import NO_TEXT, NOTHING_NEW, NewPart, Reckoned, SampledText
from ..engine.incremental import SentPrefix
from ..engine.marking import CacheSettings
from ..engine.pipeline import Compacted
from ..errors import IbidemError, one_line
from ..plan import Edit
from ..store import Store, StoreError
from ..store.guarded import StoreUnavailable
from ..wire import Scanned
from ..wire.content_encoding import BrokenEncoding, UndecodableRequest, decode_body, encode_body
from .conversation import AnsweredRequest, Counted, Deviation, LiveConversation, SentRequest
from .fallback import bare, continue_without_thinking, fall_back, is_oversized, next_body
from .recognition import (
    Conversations,
    Found,
    detected,
)
from .types import (
    SYSTEM_CLOCK,
    Clock,
    Failed,
    LiveRequest,
    Oversized,
    Result,
    RewriteResult,
    SingleMessage,
    Unreadable,
    whereabouts,
)

log = logging.getLogger("ibidem")

LOOKUP_TRIES = 3
"""Attempts to look up a conversation that other threads change at the same time."""

SMALL_BYTES = 2**18
"""Requests up to this size are parsed quickly, whatever they contain."""

WARM_BYTES = 2**14
"""Maximum new bytes of a known conversation for the event loop. They take a few milliseconds, whatever they contain."""

STORE_SHARE = 0.6
"""Share of a request's time budget for store calls. The rest is for a fallback."""

LOCK_SECONDS = 0.05
"""Seconds a thread waits for a conversation before it checks whether the request was abandoned."""

NOTE_SECONDS = 15.0
"""Seconds that news for a session waits while its conversation is being rewritten."""

MAX_CONVERSATIONS, MAX_MEMORY, MAX_BODY = 1000, 256 * 2**20, 100 * 2**20
"""Defaults: conversations in memory, bytes that they may use, and bytes of one request."""

MAX_REASON = 200
"""Maximum length of a reported reason."""


class Rewriter:
    """Rewrites requests of the conversations of one caller."""

    def __init__(
        self,
        conversations: Conversations,
        observe: bool,
        max_body: int,
        max_rewrite: int = 16 * 2**20,
        clock: Clock = SYSTEM_CLOCK,
        books: bool = True,
    ) -> None:
        """`books`: whether accounting needs token counts."""
        self.conversations = conversations
        self._books = books
        self._observe = observe
        self._max_body = max_body
        self._max_rewrite = max_rewrite
        self._now = clock.monotonic

    def rewrite(self, job: LiveRequest) -> RewriteResult:
        """Rewrite a request. Never raises: an error becomes a "failed open" result."""
        return self._told(job, self._rewrite)

    def rewrite_warm(self, job: LiveRequest) -> RewriteResult | None:
        """Rewrite a request in the event loop; None if that may take too long. Never raises."""
        found = self._warm(job)
        if found is None or not found.conversation.lock.acquire(blocking=False):
            return None
        try:
            if found.conversation.turns != found.turn:
                return None
            self.conversations.count_warm()
            return self._told(job, partial(self._go_on, found))
        finally:
            found.conversation.lock.release()

    def _warm(self, job: LiveRequest) -> Found | None:
        if job.encoding or job.counts or job.wish is not None or not job.format:
            return None
        try:
            return self.conversations.warm(job.key, job.body, WARM_BYTES)
        except Exception:  # the full rewrite reports the error
            return None

    def _go_on(self, found: Found, job: LiveRequest, start: float) -> RewriteResult:
        """Rewrite a request of a known conversation. Call under the conversation's lock."""
        job.decoded, job.conversation = job.body, found.conversation
        found.conversation.ask(job.model)
        return self._work(job, job.body, found, start, at_once=False)

    def _told(self, job: LiveRequest, work: Callable[[LiveRequest, float], RewriteResult]) -> RewriteResult:
        """Run `work` and return its result, or a result that names the error."""
        start, unread, theirs = self._now(), False, False
        try:
            return work(job, start)
        except SingleMessage:
            return RewriteResult(result="unchanged", took=self._now() - start)
        except (Unreadable, BrokenEncoding) as error:
            return self._theirs(str(error), start)
        except UndecodableRequest as error:
            told, theirs = str(error), True
        except Oversized as error:
            told, unread = str(error), True
        except StoreUnavailable as error:
            told = error.reason
        except (StoreError, Failed) as error:
            told = one_line(str(error))[:MAX_REASON]
        except IbidemError:  # its text contains a position, so that each would be counted as a separate reason
            return self._theirs("its messages cannot be read", start)
        except Exception as error:
            log.debug("a request cannot be rewritten", exc_info=True)
            told = whereabouts(error)
        return RewriteResult(result="failed open", reason=told, theirs=theirs, unread=unread, took=self._now() - start)

    def _theirs(self, told: str, start: float) -> RewriteResult:
        """Return the result for a malformed request of the client. The provider reports the error."""
        return RewriteResult(result="unchanged", reason=told, theirs=True, took=self._now() - start)

    def _rewrite(self, job: LiveRequest, start: float) -> RewriteResult:
        body = job.decoded = decode_body(job.body, job.encoding, self._max_body)
        if not job.format:
            self._weigh(body, 0)
            job.format = detected(body, job.model)
        if job.counts:
            return self._counted(job, body, start)
        for _ in range(LOOKUP_TRIES):
            with self.conversations.until(STORE_SHARE * job.budget):
                found = self.conversations.find_or_begin(job.key, body, partial(self._weigh, body))
            job.conversation = found.conversation
            if job.wish is not None:
                self.conversations.wish(found.conversation, job.wish == "off")
            with _held(found.conversation.lock, job) as held, self.conversations.until(STORE_SHARE * job.budget):
                if job.ended or not held:
                    break
                found.conversation.ask(job.model)
                self.conversations.settle(found.conversation)
                current = self.conversations.current(found, body)
                if current is not None:
                    job.observed = _observe(current)
                if current is not None and current.conversation.off and not self._observe:
                    self.conversations.catch_up(current)
                    return self._off(job, current, start)
                if current is not None:
                    return self._work(job, body, current, start)
        raise Failed("busy: other requests of the same conversation were faster")

    def _work(self, job: LiveRequest, body: bytes, found: Found, start: float, at_once: bool = True) -> RewriteResult:
        """Rewrite a request of a conversation that was found. Call under the conversation's lock."""
        conversation = found.conversation
        observes = self._observe or conversation.measured
        if formats.named(job.format).has_checksum(found.scanned.head):
            return self._checksummed(job, body, found, start)
        compacted = self.conversations.rewrite(found, job.at)
        changed = compacted.request is not body
        try:
            _refuse(compacted)
            new = encode_body(compacted.request, job.encoding) if changed and not observes else None
            result: Result = "observed" if observes else "rewritten" if changed else "unchanged"
            outcome = self._outcome(found, compacted, result, new, start, at_once)
            self.conversations.save(conversation)
        except Exception:
            job.end()
            raise
        if not job.end() and not observes:  # the caller gave up and sent another body
            self._went_otherwise(conversation)
        return outcome

    def _checksummed(self, job: LiveRequest, body: bytes, found: Found, start: float) -> RewriteResult:
        """Return the result for a request with a checksum of its body. Call under the conversation's lock.

        It is sent unchanged. If the provider accepts it, the conversation continues from there, so its history must say
        how it was sent.
        """
        outcome = replace(self._off(job, found, start), result="unchanged", reason=formats.CHECKSUM_REASON, theirs=True)
        if self._observe or found.conversation.measured:
            return outcome
        prefix = SentPrefix.unwritten(formats.named(job.format), found.scanned)
        return replace(outcome, sent=SentRequest(prefix, ()), deviation=Deviation(job.key, body, 0, False, job.at))

    def _off(self, job: LiveRequest, found: Found, start: float) -> RewriteResult:
        """Return the result for a paused conversation, with facts for accounting. `fallback` writes its body.

        Call under the conversation's lock.
        """
        conversation, scanned = found.conversation, found.scanned
        first_new = conversation.messages if len(scanned) != conversation.messages else conversation.first_new
        model = scanned.head.get("model")
        conversation.pass_on()
        job.end()
        return RewriteResult(
            result="off",
            conversation=conversation,
            messages=len(scanned),
            first_new=first_new,
            new=self._new(found, first_new, True, at_once=True),
            ends=() if first_new or not self._books else _ends(scanned, ()),
            took=self._now() - start,
            model=model if isinstance(model, str) else conversation.model,
        )

    def _went_otherwise(self, conversation: LiveConversation) -> None:
        """Inform the session that another body was sent, if that is known. Later requests then need not wait for it.

        If the provider has not responded yet, no entry is made: it may reject the body (`Live.report_accepted`).
        """
        if conversation.inbox:
            self.conversations.settle(conversation)
            self.conversations.save(conversation)

    def _weigh(self, body: bytes, start: int) -> None:
        """Raise `OversizedRequest` if parsing the new part of a request would delay others. The known part is not
        parsed again."""
        if len(body) - start > SMALL_BYTES and is_oversized(body, start, self._max_rewrite):
            raise Oversized("the new part of the request is too large: raise the limit with --max-rewrite")

    def _outcome(
        self, found: Found, compacted: Compacted, result: Result, body: bytes | None, start: float, at_once: bool
    ) -> RewriteResult:
        """Return the result with facts for accounting. If `at_once`, tokens are counted now, in this thread."""
        conversation, plan = found.conversation, compacted.plan
        point, prefix = conversation.plan_sent(plan, self._books), conversation.last
        measured, first_new = conversation.measured, conversation.first_new
        return RewriteResult(
            result=result,
            body=body,
            conversation=conversation,
            messages=conversation.messages,
            first_new=first_new,
            new=self._new(found, first_new, not compacted.marks, at_once),
            ends=() if first_new or not self._books else _ends(found.scanned, plan.edits),
            edits=plan.edits,
            marks=compacted.marks,
            kept=compacted.kept,
            freed=conversation.freed,
            revision=point.reason if point and not measured else "",
            rewritten=point.rewritten if point and not (measured and point.reason == "cold cache") else 0.0,
            took=self._now() - start,
            model=conversation.model,
            place=conversation.session.position,
            sent=None if self._observe or measured else _sent(prefix, conversation.freed),
        )

    def _new(self, found: Found, first_new: int, unmarked: bool, at_once: bool) -> NewPart:
        def reckon() -> Reckoned:
            return Reckoned(_sampled(found.scanned, first_new), self._asked(found, first_new, unmarked))

        if not self._books:
            return NOTHING_NEW
        if not at_once:
            return NewPart(reckon)
        new = reckon()
        new.text.tokens()  # count in this thread, not in the event loop
        return NewPart(known=new)

    def _asked(self, found: Found, first_new: int, unmarked: bool) -> CacheAsked | None:
        """Return the cache directives of a request, for accounting. An error here must not fail the request."""
        closely = self.conversations.asks_to_keep and unmarked
        try:
            return cache_asked(found.scanned, found.conversation.key[0], first_new, closely)
        except Exception as error:
            log.debug("cannot read the cache directives of a request: %s", whereabouts(error))
            return None

    def _counted(self, job: LiveRequest, body: bytes, start: float) -> RewriteResult:
        """Return the body that would be sent, for a request that only counts tokens. No state changes."""
        found = self.conversations.find(job.key, body, partial(self._weigh, body))
        if found is not None and found.conversation.inbox:
            with found.conversation.lock:
                self.conversations.settle(found.conversation)
        off = found.conversation.off if found is not None else self.conversations.all_off
        if not self._observe and (off if job.wish is None else job.wish == "off"):
            job.end()
            return RewriteResult(result="off", took=self._now() - start)
        if self.conversations.measures(job.key, found, body):
            job.end()
            return RewriteResult(result="observed", took=self._now() - start)
        compacted = self.conversations.preview(job.format, found, body, job.at, job.model)
        _refuse(compacted)
        new = None if self._observe or not compacted.plan else encode_body(compacted.request, job.encoding)
        job.end()
        return RewriteResult(result="unchanged" if new is None else "rewritten", body=new, took=self._now() - start)


class Live:
    """The conversations of one caller, and the only way to rewrite their requests. Safe to use from several threads.

    `rewrite_request` returns the body to send. The caller then reports the provider's response: `report_accepted`,
    `report_rejected` or `report_sent_unchanged`, and `report_usage` with its counts. Other failures (5xx, a reset
    connection) need no report: the same request gives the same bytes again. No method raises.
    """

    def __init__(
        self,
        conversations: Conversations,
        rewriter: Rewriter,
        *,
        clock: Clock = SYSTEM_CLOCK,
        run_later: Callable[[Callable[[], None]], None] = lambda work: work(),
        on_fault: Callable[[Exception, str], object] = lambda error, what: None,
    ) -> None:
        """Create the interface.

        `run_later` runs work that no request waits for, such as writing journal entries. `on_fault` gets internal
        errors.
        """
        self.conversations, self._rewriter = conversations, rewriter
        self._now = clock.time
        self._run_later, self._on_fault = run_later, on_fault

    @classmethod
    def for_profile(
        cls,
        profile: str,
        store: Store,
        *,
        cache: CacheSettings | None = None,
        max_body: int = MAX_BODY,
        run_later: Callable[[Callable[[], None]], None] = lambda work: work(),
        on_fault: Callable[[Exception, str], object] = lambda error, what: None,
    ) -> Live:
        """Create the interface for a caller without accounting, with the default limits of memory."""
        conversations = Conversations(profile, store, MAX_CONVERSATIONS, MAX_MEMORY, cache=cache)
        rewriter = Rewriter(conversations, False, max_body, books=False)
        return cls(conversations, rewriter, run_later=run_later, on_fault=on_fault)

    def has(self, outcome: RewriteResult) -> bool:
        """Return True if the request belongs to a conversation of this caller that is in memory."""
        conversation = outcome.conversation or (outcome.job.conversation if outcome.job is not None else None)
        return conversation is not None and self.conversations.has(conversation)

    def rewrite(self, job: LiveRequest) -> RewriteResult:
        """Return the body to send. Runs in the calling thread, and waits for locks and stores within the budget."""
        outcome = self._rewriter.rewrite(job)
        if outcome.result == "failed open" and not outcome.theirs:
            log.warning("request sent without new edits: %s", outcome.reason)
        try:
            if outcome.result in ("failed open", "off") and not outcome.theirs:
                outcome = fall_back(self.conversations, job, outcome)
            outcome = continue_without_thinking(self.conversations, job, outcome) or outcome
        except Exception as error:
            self._on_fault(error, "fallback")
        return replace(outcome, job=job)

    def rewrite_at_once(self, job: LiveRequest) -> RewriteResult | None:
        """Rewrite a request of a known conversation with few new bytes; None for all others. For event loops."""
        return self._rewriter.rewrite_warm(job)

    def preview(self, job: LiveRequest) -> RewriteResult:
        """Return the request that would be sent, without side effects. For token-counting endpoints."""
        job.counts = True
        return self.rewrite(job)

    def accepted(self, outcome: RewriteResult) -> None:
        """Report that the provider responded with 2xx. Later requests start as this one did. Never blocks."""
        conversation, deviation = outcome.conversation, outcome.deviation
        if conversation is not None:
            conversation.accept(outcome.sent, deviation)
        if deviation is not None:
            self._run_later(partial(self._learn, conversation, outcome.sent, deviation))

    def refused(self, outcome: RewriteResult, kind: str, names_thinking: bool = False) -> RewriteResult | None:
        """Report that the provider rejected the body. Return the next one to try; None to pass on the first
        rejection."""
        job = outcome.job
        if job is None:
            return None
        job.tried.append(job.body if outcome.body is None else outcome.body)
        log.warning("the provider rejected a request: %s", kind)
        try:
            again = next_body(self.conversations, job, outcome, kind, job.tried, names_thinking)
        except Exception as error:
            self._on_fault(error, "fallback")
            return None
        return replace(again, job=job) if again is not None else None

    def sent_as_it_came(self, outcome: RewriteResult, refused: bool = False) -> RewriteResult:
        """Report that the caller sent the original instead. Later requests start that way."""
        if outcome.job is None:
            return outcome
        failed = RewriteResult(
            result="failed open", refused=refused, conversation=outcome.conversation, job=outcome.job
        )
        bare_outcome = bare(outcome.job, failed)
        self.accepted(bare_outcome)
        return bare_outcome

    def answered(
        self, outcome: RewriteResult, counted: Counted, *, at: float | None = None, stop_revising: bool = False
    ) -> None:
        """Report the provider's token counts, at time `at` (default: now). Never blocks; journal entries are written
        later."""
        conversation = outcome.conversation
        if conversation is None or not (outcome.follows_counts or counted.cleared):
            return
        if outcome.place is None:  # the request cannot be identified
            counted = Counted(cleared=counted.cleared)
        conversation.inbox.append(
            AnsweredRequest(outcome.place, self._now() if at is None else at, counted, stop_revising)
        )
        self._run_later(partial(self._learn, conversation, None, None))

    def without_breakpoints(self, outcome: RewriteResult) -> None:
        """Report that the provider rejected a request that cannot be sent again. Later ones get no cache
        breakpoints."""
        conversation, place = outcome.conversation, outcome.place
        if conversation is not None and place is not None:
            conversation.session.refuse(place)
            self._run_later(partial(self._learn, conversation, None, None))

    def _learn(
        self, conversation: LiveConversation | None, sent: SentRequest | None, deviation: Deviation | None
    ) -> None:
        """Inform the session of a conversation and the store of a report. No request waits for this."""
        try:
            if conversation is None and deviation is not None:
                conversation = self.conversations.adopt(sent, deviation)
            if conversation is not None and conversation.lock.acquire(timeout=NOTE_SECONDS):
                try:
                    self.conversations.settle(conversation)
                    self.conversations.save(conversation, in_background=True)
                finally:
                    conversation.lock.release()
        except Exception as error:
            self._on_fault(error, "remember")


def _observe(match: Found) -> object:
    """Return what an experiment records about a request. An error in it must not fail the request."""
    assignment = match.conversation.assignment
    try:
        return assignment.observe(match.scanned) if assignment is not None else None
    except Exception:
        return None


@contextmanager
def _held(lock: threading.Lock, job: LiveRequest) -> Iterator[bool]:
    """Acquire the lock while the caller waits for the request. A thread that waited longer would be lost."""
    waited, held = 0.0, lock.acquire(blocking=False)
    while not held and waited < job.patience and not job.ended:
        held = lock.acquire(timeout=LOCK_SECONDS)
        waited += LOCK_SECONDS
    try:
        yield held
    finally:
        if held:
            lock.release()


def _sent(prefix: SentPrefix | None, freed: tuple[float, ...]) -> SentRequest | None:
    """Return how the request is sent; None if the profile does not track a conversation."""
    return SentRequest(prefix, freed) if prefix is not None and len(prefix.plan.edits) == len(freed) else None


def _refuse(compacted: Compacted) -> None:
    """Raise if the request was not rewritten. Details after the colon may quote the client's text, so they are
    omitted."""
    if compacted.reason == formats.CHECKSUM_REASON:
        raise Unreadable(compacted.reason)
    if compacted.reason:
        raise Failed(compacted.reason.partition(":")[0])


def _sampled(scanned: Scanned, first: int) -> SampledText:
    """Return the text of the messages from `first` on."""
    known = scanned.known
    if known is None or first >= len(known.spans):
        return NO_TEXT
    return SampledText(*(scanned.given[start:end] for start, end in known.spans[first:]))


def _ends(scanned: Scanned, edits: tuple[Edit, ...]) -> tuple[float, ...]:
    """Return the end of each message as a fraction of the request. Request parameters come first, as providers see
    them."""
    known = scanned.known
    if known is None:
        return ()
    sizes = [end - start for start, end in known.spans]
    head = len(scanned.given) - sum(sizes)
    for edit in edits:
        sizes[edit.message] -= edit.bytes_saved
    sums = list(accumulate(sizes, initial=head))
    return tuple(each / sums[-1] for each in sums[1:])
