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
from ..billing.cache_directives import CacheDirectives, read_directives
from ..billing.input_estimate import NO_INPUT, NO_TEXT, InputEstimate, LazyInputEstimate, SampledText
from ..engine.breakpoint_placement import CacheSettings
from ..engine.incremental import SentPrefix
from ..engine.pipeline import Compacted
from ..errors import IbidemError, one_line
from ..plan import Edit
from ..store import Store, StoreError
from ..store.guarded import StoreUnavailable
from ..wire import ScannedRequest
from ..wire.content_encoding import BrokenEncoding, UndecodableRequest, decode_body, encode_body
from .conversation import AnsweredRequest, LiveConversation, ProviderCount, SentRequest, UnreportedSend
from .fallback import continue_without_thinking, fall_back, is_oversized, next_body, original_result
from .recognition import (
    ConversationMatch,
    Conversations,
    detect_format,
)
from .types import (
    SYSTEM_CLOCK,
    Clock,
    LiveRequest,
    OversizedRequest,
    Result,
    RewriteFailed,
    RewriteResult,
    SingleMessage,
    UnreadableRequest,
    error_location,
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

INBOX_SECONDS = 15.0
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
        has_accounting: bool = True,
    ) -> None:
        """`has_accounting`: whether accounting needs token counts."""
        self.conversations = conversations
        self._has_accounting = has_accounting
        self._observe = observe
        self._max_body = max_body
        self._max_rewrite = max_rewrite
        self._now = clock.monotonic

    def rewrite_request(self, job: LiveRequest) -> RewriteResult:
        """Rewrite a request. Never raises: an error becomes a "failed open" result."""
        return self._capture_errors(job, self._find_and_rewrite)

    def rewrite_warm(self, job: LiveRequest) -> RewriteResult | None:
        """Rewrite a request in the event loop; None if that may take too long. Never raises."""
        match = self._find_warm(job)
        if match is None or not match.conversation.lock.acquire(blocking=False):
            return None
        try:
            if match.conversation.version != match.version:
                return None
            self.conversations.count_warm()
            return self._capture_errors(job, partial(self._rewrite_warm_match, match))
        finally:
            match.conversation.lock.release()

    def _find_warm(self, job: LiveRequest) -> ConversationMatch | None:
        if job.encoding or job.is_count_only or job.pause_mode is not None or not job.format:
            return None
        try:
            return self.conversations.find_warm(job.key, job.body, WARM_BYTES)
        except Exception:  # the full rewrite reports the error
            return None

    def _rewrite_warm_match(self, match: ConversationMatch, job: LiveRequest, start: float) -> RewriteResult:
        """Rewrite a request of a known conversation. Call under the conversation's lock."""
        job.decoded_body, job.conversation = job.body, match.conversation
        match.conversation.set_model(job.model)
        return self._rewrite_match(job, job.body, match, start, at_once=False)

    def _capture_errors(self, job: LiveRequest, work: Callable[[LiveRequest, float], RewriteResult]) -> RewriteResult:
        """Run `work` and return its result, or a result that names the error."""
        start, is_too_large, is_client_fault = self._now(), False, False
        try:
            return work(job, start)
        except SingleMessage:
            return RewriteResult(result="unchanged", seconds=self._now() - start)
        except (UnreadableRequest, BrokenEncoding) as error:
            return self._client_fault_result(str(error), start)
        except UndecodableRequest as error:
            reason, is_client_fault = str(error), True
        except OversizedRequest as error:
            reason, is_too_large = str(error), True
        except StoreUnavailable as error:
            reason = error.reason
        except (StoreError, RewriteFailed) as error:
            reason = one_line(str(error))[:MAX_REASON]
        except IbidemError:  # its text contains a position, so that each would be counted as a separate reason
            return self._client_fault_result("its messages cannot be read", start)
        except Exception as error:
            log.debug("a request cannot be rewritten", exc_info=True)
            reason = error_location(error)
        return RewriteResult(
            result="failed open",
            reason=reason,
            is_client_fault=is_client_fault,
            is_too_large=is_too_large,
            seconds=self._now() - start,
        )

    def _client_fault_result(self, reason: str, start: float) -> RewriteResult:
        """Return the result for a malformed request of the client. The provider reports the error."""
        return RewriteResult(result="unchanged", reason=reason, is_client_fault=True, seconds=self._now() - start)

    def _find_and_rewrite(self, job: LiveRequest, start: float) -> RewriteResult:
        body = job.decoded_body = decode_body(job.body, job.encoding, self._max_body)
        if not job.format:
            self._check_size(body, 0)
            job.format = detect_format(body, job.model)
        if job.is_count_only:
            return self._preview_result(job, body, start)
        for _ in range(LOOKUP_TRIES):
            with self.conversations.store_deadline(STORE_SHARE * job.budget):
                match = self.conversations.find_or_create(job.key, body, partial(self._check_size, body))
            job.conversation = match.conversation
            if job.pause_mode is not None:
                self.conversations.apply_pause_header(match.conversation, job.pause_mode == "off")
            with (
                _acquire_lock(match.conversation.lock, job) as is_locked,
                self.conversations.store_deadline(STORE_SHARE * job.budget),
            ):
                if job.is_ended or not is_locked:
                    break
                match.conversation.set_model(job.model)
                self.conversations.apply_inbox(match.conversation)
                current = self.conversations.refresh_match(match, body)
                if current is not None:
                    job.observation = _observe_agent(current)
                if current is not None and current.conversation.is_paused and not self._observe:
                    self.conversations.catch_up(current)
                    return self._paused_result(job, current, start)
                if current is not None:
                    return self._rewrite_match(job, body, current, start)
        raise RewriteFailed("busy: other requests of the same conversation were faster")

    def _rewrite_match(
        self, job: LiveRequest, body: bytes, match: ConversationMatch, start: float, at_once: bool = True
    ) -> RewriteResult:
        """Rewrite a request of a conversation that was found. Call under the conversation's lock."""
        conversation = match.conversation
        is_observed = self._observe or conversation.is_observed
        if formats.format_named(job.format).has_checksum(match.scanned.params):
            return self._checksum_result(job, body, match, start)
        rewrite = self.conversations.rewrite_request(match, job.at)
        is_changed = rewrite.request is not body
        try:
            _raise_if_failed(rewrite)
            new_body = encode_body(rewrite.request, job.encoding) if is_changed and not is_observed else None
            result: Result = "observed" if is_observed else "rewritten" if is_changed else "unchanged"
            outcome = self._build_result(match, rewrite, result, new_body, start, at_once)
            self.conversations.save_journal(conversation)
        except Exception:
            job.try_end()
            raise
        if not job.try_end() and not is_observed:  # the caller gave up and sent another body
            self._apply_inbox_now(conversation)
        return outcome

    def _checksum_result(self, job: LiveRequest, body: bytes, match: ConversationMatch, start: float) -> RewriteResult:
        """Return the result for a request with a checksum of its body. Call under the conversation's lock.

        It is sent unchanged. If the provider accepts it, the conversation continues from there, so its history must say
        how it was sent.
        """
        outcome = replace(
            self._paused_result(job, match, start),
            result="unchanged",
            reason=formats.CHECKSUM_REASON,
            is_client_fault=True,
        )
        if self._observe or match.conversation.is_observed:
            return outcome
        prefix = SentPrefix.from_unchanged(formats.format_named(job.format), match.scanned)
        return replace(
            outcome,
            sent_request=SentRequest(prefix, ()),
            unreported_send=UnreportedSend(job.key, body, 0, False, job.at),
        )

    def _paused_result(self, job: LiveRequest, match: ConversationMatch, start: float) -> RewriteResult:
        """Return the result for a paused conversation, with facts for accounting. `fallback` writes its body.

        Call under the conversation's lock.
        """
        conversation, scanned = match.conversation, match.scanned
        first_new = conversation.messages if len(scanned) != conversation.messages else conversation.first_new
        model = scanned.params.get("model")
        conversation.skip_request()
        job.try_end()
        return RewriteResult(
            result="off",
            conversation=conversation,
            messages=len(scanned),
            first_new=first_new,
            new_input=self._new_input(match, first_new, True, at_once=True),
            message_ends=() if first_new or not self._has_accounting else _message_ends(scanned, ()),
            seconds=self._now() - start,
            model=model if isinstance(model, str) else conversation.model,
        )

    def _apply_inbox_now(self, conversation: LiveConversation) -> None:
        """Inform the session that another body was sent, if that is known. Later requests then need not wait for it.

        If the provider has not responded yet, no entry is made: it may reject the body (`Live.report_accepted`).
        """
        if conversation.inbox:
            self.conversations.apply_inbox(conversation)
            self.conversations.save_journal(conversation)

    def _check_size(self, body: bytes, start: int) -> None:
        """Raise `OversizedRequest` if parsing the new part of a request would delay others. The known part is not
        parsed again."""
        if len(body) - start > SMALL_BYTES and is_oversized(body, start, self._max_rewrite):
            raise OversizedRequest("the new part of the request is too large: raise the limit with --max-rewrite")

    def _build_result(
        self,
        match: ConversationMatch,
        rewrite: Compacted,
        result: Result,
        body: bytes | None,
        start: float,
        at_once: bool,
    ) -> RewriteResult:
        """Return the result with facts for accounting. If `at_once`, tokens are counted now, in this thread."""
        conversation, plan = match.conversation, rewrite.plan
        revision, prefix = conversation.record_plan(plan, self._has_accounting), conversation.last_prefix
        is_observed, first_new = conversation.is_observed, conversation.first_new
        return RewriteResult(
            result=result,
            body=body,
            conversation=conversation,
            messages=conversation.messages,
            first_new=first_new,
            new_input=self._new_input(match, first_new, not rewrite.marks, at_once),
            message_ends=() if first_new or not self._has_accounting else _message_ends(match.scanned, plan.edits),
            edits=plan.edits,
            cache_additions=rewrite.marks,
            ttl_decision=rewrite.kept,
            edit_tokens=conversation.edit_tokens,
            revision_reason=revision.reason if revision and not is_observed else "",
            rewritten_tokens=revision.rewritten
            if revision and not (is_observed and revision.reason == "cold cache")
            else 0.0,
            seconds=self._now() - start,
            model=conversation.model,
            position=conversation.session.position,
            sent_request=None if self._observe or is_observed else _sent_request(prefix, conversation.edit_tokens),
        )

    def _new_input(
        self, match: ConversationMatch, first_new: int, has_own_directives: bool, at_once: bool
    ) -> LazyInputEstimate:
        def estimate_new_input() -> InputEstimate:
            return InputEstimate(
                _sample_text(match.scanned, first_new), self._cache_directives(match, first_new, has_own_directives)
            )

        if not self._has_accounting:
            return NO_INPUT
        if not at_once:
            return LazyInputEstimate(estimate_new_input)
        estimate = estimate_new_input()
        estimate.text.count_tokens()  # count in this thread, not in the event loop
        return LazyInputEstimate(initial=estimate)

    def _cache_directives(
        self, match: ConversationMatch, first_new: int, has_own_directives: bool
    ) -> CacheDirectives | None:
        """Return the cache directives of a request, for accounting. An error here must not fail the request."""
        is_detailed = self.conversations.sets_cache_directives and has_own_directives
        try:
            return read_directives(match.scanned, match.conversation.key[0], first_new, is_detailed)
        except Exception as error:
            log.debug("cannot read the cache directives of a request: %s", error_location(error))
            return None

    def _preview_result(self, job: LiveRequest, body: bytes, start: float) -> RewriteResult:
        """Return the body that would be sent, for a request that only counts tokens. No state changes."""
        match = self.conversations.find_conversation(job.key, body, partial(self._check_size, body))
        if match is not None and match.conversation.inbox:
            with match.conversation.lock:
                self.conversations.apply_inbox(match.conversation)
        is_paused = match.conversation.is_paused if match is not None else self.conversations.all_off
        if not self._observe and (is_paused if job.pause_mode is None else job.pause_mode == "off"):
            job.try_end()
            return RewriteResult(result="off", seconds=self._now() - start)
        if self.conversations.is_observed(job.key, match, body):
            job.try_end()
            return RewriteResult(result="observed", seconds=self._now() - start)
        rewrite = self.conversations.preview_request(job.format, match, body, job.at, job.model)
        _raise_if_failed(rewrite)
        new_body = None if self._observe or not rewrite.plan else encode_body(rewrite.request, job.encoding)
        job.try_end()
        return RewriteResult(
            result="unchanged" if new_body is None else "rewritten", body=new_body, seconds=self._now() - start
        )


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
        rewriter = Rewriter(conversations, False, max_body, has_accounting=False)
        return cls(conversations, rewriter, run_later=run_later, on_fault=on_fault)

    def has_conversation_of(self, result: RewriteResult) -> bool:
        """Return True if the request belongs to a conversation of this caller that is in memory."""
        conversation = result.conversation or (result.job.conversation if result.job is not None else None)
        return conversation is not None and self.conversations.has_conversation(conversation)

    def rewrite_request(self, job: LiveRequest) -> RewriteResult:
        """Return the body to send. Runs in the calling thread, and waits for locks and stores within the budget."""
        result = self._rewriter.rewrite_request(job)
        if result.result == "failed open" and not result.is_client_fault:
            log.warning("request sent without new edits: %s", result.reason)
        try:
            if result.result in ("failed open", "off") and not result.is_client_fault:
                result = fall_back(self.conversations, job, result)
            result = continue_without_thinking(self.conversations, job, result) or result
        except Exception as error:
            self._on_fault(error, "fallback")
        return replace(result, job=job)

    def rewrite_at_once(self, job: LiveRequest) -> RewriteResult | None:
        """Rewrite a request of a known conversation with few new bytes; None for all others. For event loops."""
        return self._rewriter.rewrite_warm(job)

    def preview_request(self, job: LiveRequest) -> RewriteResult:
        """Return the request that would be sent, without side effects. For token-counting endpoints."""
        job.is_count_only = True
        return self.rewrite_request(job)

    def report_accepted(self, result: RewriteResult) -> None:
        """Report that the provider responded with 2xx. Later requests start as this one did. Never blocks."""
        conversation, deviation = result.conversation, result.unreported_send
        if conversation is not None:
            conversation.record_accepted(result.sent_request, deviation)
        if deviation is not None:
            self._run_later(partial(self._apply_report, conversation, result.sent_request, deviation))

    def report_rejected(self, result: RewriteResult, kind: str, names_thinking: bool = False) -> RewriteResult | None:
        """Report that the provider rejected the body. Return the next one to try; None to pass on the first
        rejection."""
        job = result.job
        if job is None:
            return None
        job.rejected_bodies.append(job.body if result.body is None else result.body)
        log.warning("the provider rejected a request: %s", kind)
        try:
            next_result = next_body(self.conversations, job, result, kind, job.rejected_bodies, names_thinking)
        except Exception as error:
            self._on_fault(error, "fallback")
            return None
        return replace(next_result, job=job) if next_result is not None else None

    def report_sent_unchanged(self, result: RewriteResult, is_rejected: bool = False) -> RewriteResult:
        """Report that the caller sent the original instead. Later requests start that way."""
        if result.job is None:
            return result
        failure = RewriteResult(
            result="failed open", is_rejected=is_rejected, conversation=result.conversation, job=result.job
        )
        bare_outcome = original_result(result.job, failure)
        self.report_accepted(bare_outcome)
        return bare_outcome

    def report_usage(
        self, result: RewriteResult, count: ProviderCount, *, time: float | None = None, stop_revising: bool = False
    ) -> None:
        """Report the provider's token counts, at time `time` (default: now). Never blocks; journal entries are written
        later."""
        conversation = result.conversation
        if conversation is None or not (result.follows_counts or count.has_cleared_results):
            return
        if result.position is None:  # the request cannot be identified
            count = ProviderCount(has_cleared_results=count.has_cleared_results)
        conversation.inbox.append(
            AnsweredRequest(result.position, self._now() if time is None else time, count, stop_revising)
        )
        self._run_later(partial(self._apply_report, conversation, None, None))

    def report_breakpoint_rejection(self, result: RewriteResult) -> None:
        """Report that the provider rejected a request that cannot be sent again. Later ones get no cache
        breakpoints."""
        conversation, place = result.conversation, result.position
        if conversation is not None and place is not None:
            conversation.session.refuse(place)
            self._run_later(partial(self._apply_report, conversation, None, None))

    def _apply_report(
        self, conversation: LiveConversation | None, sent: SentRequest | None, deviation: UnreportedSend | None
    ) -> None:
        """Inform the session of a conversation and the store of a report. No request waits for this."""
        try:
            if conversation is None and deviation is not None:
                conversation = self.conversations.adopt_request(sent, deviation)
            if conversation is not None and conversation.lock.acquire(timeout=INBOX_SECONDS):
                try:
                    self.conversations.apply_inbox(conversation)
                    self.conversations.save_journal(conversation, in_background=True)
                finally:
                    conversation.lock.release()
        except Exception as error:
            self._on_fault(error, "remember")


def _observe_agent(match: ConversationMatch) -> object:
    """Return what an experiment records about a request. An error in it must not fail the request."""
    assignment = match.conversation.assignment
    try:
        return assignment.observe_agent(match.scanned) if assignment is not None else None
    except Exception:
        return None


@contextmanager
def _acquire_lock(lock: threading.Lock, job: LiveRequest) -> Iterator[bool]:
    """Acquire the lock while the caller waits for the request. A thread that waited longer would be lost."""
    seconds, is_acquired = 0.0, lock.acquire(blocking=False)
    while not is_acquired and seconds < job.patience and not job.is_ended:
        is_acquired = lock.acquire(timeout=LOCK_SECONDS)
        seconds += LOCK_SECONDS
    try:
        yield is_acquired
    finally:
        if is_acquired:
            lock.release()


def _sent_request(prefix: SentPrefix | None, freed: tuple[float, ...]) -> SentRequest | None:
    """Return how the request is sent; None if the profile does not track a conversation."""
    return SentRequest(prefix, freed) if prefix is not None and len(prefix.plan.edits) == len(freed) else None


def _raise_if_failed(rewrite: Compacted) -> None:
    """Raise if the request was not rewritten. Details after the colon may quote the client's text, so they are
    omitted."""
    if rewrite.reason == formats.CHECKSUM_REASON:
        raise UnreadableRequest(rewrite.reason)
    if rewrite.reason:
        raise RewriteFailed(rewrite.reason.partition(":")[0])


def _sample_text(scanned: ScannedRequest, first: int) -> SampledText:
    """Return the text of the messages from `first` on."""
    scan_state = scanned.scan_state
    if scan_state is None or first >= len(scan_state.spans):
        return NO_TEXT
    return SampledText(*(scanned.original[start:end] for start, end in scan_state.spans[first:]))


def _message_ends(scanned: ScannedRequest, edits: tuple[Edit, ...]) -> tuple[float, ...]:
    """Return the end of each message as a fraction of the request. Request parameters come first, as providers see
    them."""
    scan_state = scanned.scan_state
    if scan_state is None:
        return ()
    sizes = [end - start for start, end in scan_state.spans]
    head = len(scanned.original) - sum(sizes)
    for edit in edits:
        sizes[edit.message] -= edit.bytes_saved
    sums = list(accumulate(sizes, initial=head))
    return tuple(total / sums[-1] for total in sums[1:])
