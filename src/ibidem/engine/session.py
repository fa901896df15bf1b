"""A growing conversation: each call processes only new messages, with the same result as `compact`.

A request that starts with the messages of the previous one costs their comparison and the work for the new messages.
Any other request (a fork, a rewind, a history that the client changed) is processed from its start.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from .. import formats
from ..billing.cache_ttl import CacheMode, CacheRequest, IdleTimes, TtlDecision, validate_cache_mode
from ..billing.revision_budget import RequestContext
from ..errors import UsageError
from ..model import Conversation
from ..plan import Plan
from ..store.recall import default_store
from ..strategies import profiles
from ..strategies.strategy import ConversationStart, Planner, is_incremental
from ..wire import ScannedRequest, scan
from ..wire.request_scan import scan_continuation, scan_tolerantly
from . import breakpoint_placement, pipeline
from .breakpoint_placement import CacheSettings, OutgoingRequest, RequestWithBreakpoints
from .incremental import GrowingConversation, SentPrefix, WholeMessageEdit, comparable_content, content_digest
from .journal import NOWHERE, Journal, JournalEntry, Position, previous_request_length
from .pipeline import Compacted
from .stats import Stats

if TYPE_CHECKING:
    from ..formats import Format
    from ..store import Store

log = logging.getLogger("ibidem")


class ActualSend(NamedTuple):
    """How a request was sent, if it was not sent as planned."""

    first_unchanged: int
    is_rejected: bool
    thinking_dropped: int = 0


class UnsavedEntries(NamedTuple):
    """Journal entries that are not in a store yet."""

    entries: Mapping[Position, JournalEntry]
    rows: list[bytes]
    """The entries as they are stored."""


class Session:
    """One conversation, compacted request by request. Thread-safe: calls run one after the other."""

    def __init__(
        self,
        profile: str = "lossless",
        *,
        strategies: Sequence[Planner] | None = None,
        format: str | None = None,
        model: str | None = None,
        store: Store | None = None,
        state: bytes | None = None,
        cache: CacheMode = "off",
        pauses: IdleTimes | None = None,
    ) -> None:
        """`store` gets the originals of evicted text (default: the user's store). `state` continues another session.

        `cache="auto"` adds cache breakpoints to requests without any, `cache="lifetime"` only chooses the TTL of the
        client's breakpoints. `pauses` are the user's idle times before this conversation.
        """
        if not isinstance(pauses, IdleTimes | None):
            raise UsageError(f"pauses: {pauses!r} is not valid: pass an ibidem.Pauses, or None")
        self._cache_settings = CacheSettings(validate_cache_mode(cache), IdleTimes() if pauses is None else pauses)
        self._strategies = profiles.select_strategies(profile, strategies)
        pipeline.check_options(format, model, store)
        self._is_incremental = is_incremental(self._strategies)
        self._format = format
        self.model = model
        """Model of requests that do not name one. It may change between requests."""
        self._store = store
        self._lock = threading.Lock()
        self._conversation: GrowingConversation | None = None
        self._settings: tuple[Position | None, str] = (None, "")
        """Position of the last request, and its settings that the provider's cache depends on."""
        self._key = ""
        """Name of the conversation, for breakpoint records and for providers with a cache key."""
        self.sees_responses = True
        """True if `answered` reports that the provider cleared results. If False, no text refers to results that it may
        clear."""
        self._journal = Journal()
        if state is not None:
            self._journal.load(state)

    @property
    def revises(self) -> bool:
        """True if the profile may change text that was already sent."""
        return self._is_incremental and self._strategies[0].revises

    @property
    def remembers(self) -> bool:
        """True if decisions depend on request times and usage, not only on the history."""
        return self.revises or (self._is_incremental and bool(self._cache_settings))

    def state(self) -> bytes:
        """Return the journal, with which another session continues the conversation in the same way."""
        with self._lock:
            return self._journal.dump()

    def learn(self, state: bytes) -> None:
        """Add the state of another session of the same conversation."""
        with self._lock:
            self._journal.load(state)

    def unsaved(self) -> UnsavedEntries:
        """Return the journal entries since the last save, as rows to append to the stored ones."""
        with self._lock:
            notes = self._journal.unsaved_entries()
            return UnsavedEntries(notes, [self._journal.encode_row(*each) for each in notes.items()])

    def saved(self, unsaved: UnsavedEntries) -> None:
        """Mark journal entries as saved."""
        with self._lock:
            self._journal.mark_saved(unsaved.entries)

    def learn_rows(self, rows: Iterable[bytes], forgotten: bool = False) -> dict[Position, bytes]:
        """Add journal rows of other sessions of the same conversation. Return the last row of each request.

        `forgotten`: the store lost the rows that were saved before, so all entries are unsaved again.
        """
        with self._lock:
            if forgotten:
                self._journal.mark_all_unsaved()
            return self._journal.add_rows(rows)

    def rescan(self, data: bytes) -> ScannedRequest | None:
        """Scan a request that starts with the bytes of the last one, for `compact`; None for any other request."""
        with self._lock:
            scan_state = self._conversation.scan_state if self._conversation is not None else None
            return None if scan_state is None else scan_continuation(data, scan_state)

    def shares(self, scanned: ScannedRequest) -> tuple[int, int]:
        """Return how many of the session's messages the request starts with, and how many the session has."""
        with self._lock:
            conversation = self._conversation
            return (
                (conversation.shared_length(self._drop_stale_scan(scanned)), len(conversation))
                if conversation is not None
                else (0, 0)
            )

    def compact(
        self,
        request: Any,
        *,
        idle: float | None = None,
        context: int | None = None,
        cached: int | None = None,
        at: float | None = None,
    ) -> Compacted:
        """Rewrite the next request of the conversation, as `ibidem.compact` with the session's settings.

        Profiles that evict use `idle` (seconds since the last response), `context` (input tokens that the provider
        counted for the previous request) and `cached` (tokens that it read from its cache). If you call `answered`,
        pass only `at`, the time of this request in seconds since 1970.
        """
        for name, value in (("idle", idle), ("context", context), ("cached", cached), ("at", at)):
            if value is not None and (isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0):
                raise UsageError(f"{name}: {value!r} is not a number of 0 or more")
        if isinstance(request, str):
            data = request.encode("utf-8", "surrogatepass")
            result = self.compact(data, idle=idle, context=context, cached=cached, at=at)
            is_changed = result.request is not data
            return replace(result, request=result.request.decode("utf-8", "surrogatepass") if is_changed else request)
        with self._lock:
            if self._is_incremental:
                scanned = self._scan_request(request)
                if scanned is not None:
                    return self._compact_new_messages(scanned, RequestContext(idle, context, cached=cached), at)
            return self._compact_from_start(request.original if isinstance(request, ScannedRequest) else request)

    @property
    def position(self) -> Position | None:
        """Position of the last request, to report its response later."""
        with self._lock:
            return self._journal.position

    def answered(
        self,
        *,
        at: float,
        context: int | None = None,
        cached: int | None = None,
        position: Position | None = None,
        cleared: bool = False,
    ) -> None:
        """Report the response to the last request, or to the one at `position`.

        `at` is its time in seconds since 1970, `context` the input tokens that the provider counted, and `cached` those
        that it read from its cache. `cleared`: its `applied_edits` report that tool results were cleared. Then later
        texts do not refer to text that was sent before.
        """
        with self._lock:
            if position or len(self._journal):
                self._journal.record_entry(position, at=at, context=context, cached=cached)
                if cleared:  # recorded for the current request: one that was sent meanwhile stays as it was sent
                    journal = self._journal
                    journal.record_entry(
                        None if position is None or journal.has_position(position) else position, cleared=True
                    )

    def stop_revising(self, position: Position | None = None) -> None:
        """Stop changing text that was sent, from this request on, because the cache missed after the last revision."""
        with self._lock:
            if position or len(self._journal):
                self._journal.record_entry(position, stopped=True)

    def refuse(self, position: Position) -> None:
        """Report that the provider rejected the rewritten request at `position`. No later one gets breakpoints."""
        with self._lock:
            self._journal.record_entry(position, refused=True)

    @property
    def sent_prefix(self) -> SentPrefix | None:
        """How the last request was sent, so that a request without a plan can start with the same bytes."""
        with self._lock:
            return self._conversation.sent_prefix if self._conversation is not None else None

    @property
    def notes(self) -> int:
        """Number of journal entries in memory, of all branches."""
        with self._lock:
            return len(self._journal.entries)

    @property
    def weight(self) -> int:
        """Approximate memory use in bytes, without the journal."""
        with self._lock:
            return self._conversation.memory_bytes if self._conversation is not None else 0

    @property
    def unusual(self) -> bool:
        """True if the journal has facts that matter for every profile, such as a rejected request."""
        with self._lock:
            return self._journal.is_unusual

    @property
    def thinking_dropped(self) -> int:
        """Number of messages of the last request, from the first one on, that are sent without their thinking."""
        with self._lock:
            return self._journal.dropped_thinking_count if self._journal.is_unusual else 0

    def sent_otherwise(
        self,
        request: Any,
        since: int,
        *,
        refused: bool = False,
        at: float | None = None,
        thinking_dropped: int = 0,
    ) -> None:
        """Report that a request was not sent as planned.

        Its messages from `since` on were sent unchanged, and earlier ones as in the previous request, without new
        revisions. They stay so, because the provider may have cached them. Later messages may refer to them. `refused`:
        the provider rejected the planned request. `thinking_dropped`: number of messages that were sent without their
        thinking, because the provider rejected it.
        """
        with self._lock:
            scanned = self._scan_request(request) if self._is_incremental else None
            if scanned is not None:
                self._compact_new_messages(scanned, RequestContext(), at, ActualSend(since, refused, thinking_dropped))
            elif refused:
                self._journal.record_entry(NOWHERE, refused=True)

    def _scan_request(self, request: Any) -> ScannedRequest | None:
        if isinstance(request, ScannedRequest):
            return self._drop_stale_scan(request)
        scanned = scan(request, self._conversation.scan_state if self._conversation is not None else None)
        if scanned is None and self.revises and isinstance(request, bytes):
            return scan_tolerantly(request)
        return scanned

    def _drop_stale_scan(self, scanned: ScannedRequest) -> ScannedRequest:
        """Reset the scan's references to the last request if another request was processed since."""
        if scanned.unchanged_count and (
            self._conversation is None or scanned.matched_state is not self._conversation.scan_state
        ):
            scanned.unchanged_count, scanned.has_same_params = 0, False
        return scanned

    def _compact_from_start(self, request: Any) -> Compacted:
        result = pipeline.compact(
            request, strategies=self._strategies, format=self._format, model=self.model, store=self._store
        )
        if not self._cache_settings or result.reason or self._journal.has_any_rejection:
            return result
        return pipeline.with_breakpoints(result, self._cache_settings, self.model, self._breakpoint_store)

    def _compact_new_messages(
        self, scanned: ScannedRequest, moment: RequestContext, at: float | None, actual_send: ActualSend | None = None
    ) -> Compacted:
        try:
            dialect = self._dialect_of(scanned)
        except formats.AmbiguousFormat:
            return self._compact_from_start(scanned.original)
        if scanned.key and scanned.key != dialect.history_key:
            return self._compact_from_start(scanned.original)
        if actual_send is None and dialect.has_checksum(scanned.params):
            return Compacted(scanned.original, Plan(), Stats(), formats.CHECKSUM_REASON, dialect.name)
        model = self.model or (body_model if isinstance(body_model := scanned.params.get("model"), str) else None)
        conversation = self._continued_conversation(scanned, dialect, model, actual_send)
        self._conversation = None  # set again on success
        with_breakpoints: RequestWithBreakpoints | None = None
        try:
            new_messages = [
                dialect.read_message(index, scanned.message_at(index))
                for index in range(len(conversation or ()), len(scanned))
            ]
            new = Conversation(tuple(new_messages), dialect, scanned.params)
            if conversation is None:
                self._journal.restart()
                self._key = breakpoint_placement.cache_key_for(new.messages) if self._cache_settings else ""
                conversation = GrowingConversation(self._strategies[0], dialect, self._make_start(new, model))
            contents = [*map(comparable_content, new.messages)]
            self._journal.follow_messages(map(content_digest, contents))
            actual_send = actual_send or self._send_of_other_version(conversation, new)
            if self.remembers:
                self._record_context(moment, at, dialect.cache_settings(scanned.params))
            if not self.sees_responses and dialect.manages_context(scanned.params):
                self._record_unseen_clearing(len(conversation), new)
            if actual_send is not None:
                self._record_send(actual_send)
            decision = (
                self._ttl_decision(conversation, new, model, scanned.params_size if actual_send is None else None)
                if self._cache_settings
                else None
            )
            moments = self._journal.request_contexts(len(conversation)) if self.revises else {}
            unusual = self._journal.is_unusual
            as_is = self._journal.unchanged_ranges if unusual else ()
            cleared_at = self._journal.cleared_lengths if unusual else []
            conversation.add_messages(new, scanned, model, contents, moments, as_is, cleared_at)
            if conversation.has_store_failed and self.revises:
                self._journal.record_entry(moment=moments[len(self._journal)]._replace(refused=True))
            if actual_send is None and decision is not None:
                self._journal.record_entry(removed=conversation.removed_tokens, spent=conversation.revision_cost)
                with_breakpoints = self._add_breakpoints(conversation, scanned, model, decision)
            outgoing, plan = with_breakpoints or RequestWithBreakpoints(conversation.write(scanned)), conversation.plan
        except WholeMessageEdit:
            return self._compact_from_start(scanned.original)
        except (Exception, SystemExit):
            log.warning("a request is processed from its start after an error", exc_info=True)
            return self._compact_from_start(scanned.original)
        self._conversation = conversation
        stats, marks = Stats.of(plan, model), outgoing.additions
        return Compacted(outgoing.request, plan, stats, "", dialect.name, marks=marks, kept=decision)

    def _dialect_of(self, scanned: ScannedRequest) -> Format:
        """Return the format that was set, or detect it."""
        if self._format:
            return formats.format_named(self._format)
        return formats.detect_format(scanned.format_sample, self.model)

    def _continued_conversation(
        self, scanned: ScannedRequest, dialect: Format, model: str | None, actual_send: ActualSend | None
    ) -> GrowingConversation | None:
        """Return the conversation that a request continues; None if it has to be processed from its start."""
        conversation = self._conversation
        if conversation is None or not self._continues_conversation(scanned, dialect, model):
            return None
        if actual_send is not None and not self._was_sent_as_planned(conversation, scanned, actual_send):
            return None
        return conversation

    def _send_of_other_version(self, conversation: GrowingConversation, new: Conversation) -> ActualSend | None:
        """Return how a history was sent that another version of our rules began: older messages get no new edits."""
        length = self._journal.foreign_length
        if length is None:
            return None
        sent_length = len(conversation) or previous_request_length(
            len(new.messages), lambda index: new.messages[index].role
        )
        return ActualSend(max(length, sent_length), is_rejected=False)

    def _record_unseen_clearing(self, sent_length: int, new: Conversation) -> None:
        """Record that the provider may have cleared any result that was sent before."""
        length = sent_length or previous_request_length(len(new.messages), lambda index: new.messages[index].role)
        if length:
            self._journal.record_entry(self._journal.positions[length - 1], cleared=True)

    def _continues_conversation(self, scanned: ScannedRequest, dialect: Format, model: str | None) -> bool:
        """Return True if the request continues the conversation so far."""
        conversation = self._conversation
        if conversation is None or conversation.shared_length(scanned) != len(conversation):
            return False
        if scanned.has_same_params and not self.revises:  # then the model does not matter
            return True
        return conversation.has_same_inputs(self._make_start(Conversation((), dialect, scanned.params), model))

    def _make_start(self, conv: Conversation, model: str | None) -> ConversationStart:
        return ConversationStart(conv, model, lambda: self._store or default_store())

    def _add_breakpoints(
        self, conversation: GrowingConversation, scanned: ScannedRequest, model: str | None, decision: TtlDecision
    ) -> RequestWithBreakpoints | None:
        """Write the request with cache breakpoints; None if it gets none. Known messages are not parsed again."""
        if not scanned.key:
            return None
        try:
            breakpoints = conversation.sent_breakpoints(scanned)
            outgoing = OutgoingRequest(
                conversation.dialect, scanned.params, conversation.sent_messages(scanned), breakpoints, model, self._key
            )
            additions = breakpoint_placement.plan_breakpoints(outgoing, self._cache_settings.mode, decision)
            if not additions:
                return None
            new = conversation.write(scanned, breakpoint_placement.breakpoint_changes(additions))
        except Exception:
            log.warning("cache breakpoints could not be added to a request", exc_info=True)
            return None
        store = self._breakpoint_store
        if store is not None:
            breakpoint_placement.record_breakpoints(outgoing, additions, store)
        return RequestWithBreakpoints(new, tuple(additions))

    @property
    def _breakpoint_store(self) -> Store | None:
        """Store for breakpoint records. The user's own store is used only if the profile needs it anyway."""
        return self._store or (default_store() if self.revises else None)

    def _ttl_decision(
        self, conversation: GrowingConversation, new: Conversation, model: str | None, parameter_bytes: int | None
    ) -> TtlDecision | None:
        """Return the TTL decision, from the journal or a new one. It is recorded, so that a repeated request is equal.

        `parameter_bytes` is the size of the request parameters; None for a request that was not sent as planned.
        """
        journal = self._journal
        if journal.current_entry is None or journal.has_rejection:
            return None
        if journal.current_entry.kept is None:
            previous = journal.previous_entry
            decision = previous.kept if previous is not None else None
            if parameter_bytes is not None:
                decision = self._decide_ttl(conversation, new, model, parameter_bytes)
            if decision is not None:
                journal.record_entry(
                    kept=decision,
                    moment=journal.current_entry.moment._replace(long=decision.long > 0, paid=decision.spent),
                )
        return journal.current_entry.kept

    def _decide_ttl(
        self, conversation: GrowingConversation, new: Conversation, model: str | None, parameter_bytes: int
    ) -> TtlDecision | None:
        """Choose the TTL. None after an error: the TTL is left to the client."""
        length, previous = self._journal.last_request or (0, JournalEntry(RequestContext()))
        moment = (self._journal.current_entry or previous).moment
        try:
            cache_request = CacheRequest(
                len(self._journal),
                idle=moment.idle,
                context=moment.context,
                cached=moment.cached,
                new=breakpoint_placement.message_tokens(each for each in new.messages if each.index >= length),
                removed=previous.removed,
                spent=previous.spent,
                head=breakpoint_placement.tokens_for_bytes(parameter_bytes),
            )
            return breakpoint_placement.decide_ttl(
                self._cache_settings,
                new,
                model,
                cache_request,
                previous.kept,
                conversation.client_breakpoints(new.head, new),
            )
        except Exception:
            log.warning("the cache TTL could not be chosen", exc_info=True)
            return None

    def _was_sent_as_planned(
        self, conversation: GrowingConversation, scanned: ScannedRequest, actual_send: ActualSend
    ) -> bool:
        """Return True if the known messages were sent as planned."""
        if len(conversation) <= actual_send.first_unchanged:
            return True
        entry = self._journal.current_entry
        if entry is None or entry.as_is is None or len(conversation) != len(scanned):
            return False
        return entry.as_is <= actual_send.first_unchanged and (entry.refused or not actual_send.is_rejected)

    def _record_send(self, actual_send: ActualSend) -> None:
        """Record a request that was not sent as planned.

        Messages once sent unchanged stay so, even if the request is sent again. After a rejection, sent text is not
        revised anymore.
        """
        entry = self._journal.current_entry or JournalEntry(RequestContext())
        first_unchanged = (
            actual_send.first_unchanged if entry.as_is is None else min(actual_send.first_unchanged, entry.as_is)
        )
        self._journal.record_entry(
            as_is=first_unchanged,
            refused=actual_send.is_rejected or entry.refused,
            stopped=actual_send.is_rejected or entry.stopped,
            thinking_dropped=max(actual_send.thinking_dropped, entry.thinking_dropped),
        )

    def _record_context(self, moment: RequestContext, at: float | None, settings: str) -> None:
        """Record the context of a request, unless it was sent before.

        With new `settings` the cache misses. The client may return to the earlier settings and hit their cache, so a
        revision with new settings has to be affordable (`SavingsBalance`). New tools are no reason for a revision.
        """
        journal = self._journal
        if journal.current_entry is None:
            length, previous = journal.last_request or (0, None)
            if previous is not None:
                sent, known = self._settings
                is_new = settings != known and sent == journal.positions[length - 1]
                moment = moment._replace(new_settings=bool(is_new and settings and known))
                if at is not None and previous.at is not None:
                    idle = max(0.0, at - previous.at)
                    moment = moment._replace(idle=idle, context=previous.context, cached=previous.cached)
                moment = moment._replace(refused=previous.stopped)
            journal.record_entry(moment=moment, stopped=previous is not None and previous.stopped)
        self._settings = (journal.position, settings)
