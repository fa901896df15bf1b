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
from ..billing.budget import Moment
from ..billing.lifetimes import Asked, CacheMode, Kept, Pauses, checked_mode
from ..errors import UsageError
from ..model import Conversation
from ..plan import Plan
from ..store.recall import default_store
from ..strategies import profiles
from ..strategies.strategy import Planner, Start, grows
from ..wire import Scanned, scan
from ..wire.scan import rescan, scan_tolerantly
from . import marking, pipeline
from .incremental import Growing, SentPrefix, WholeMessages, digest_of, substance
from .journal import NOWHERE, Journal, Note, Position, previous_length
from .marking import CacheSettings, MarkedRequest, Outgoing
from .pipeline import Compacted
from .stats import Stats

if TYPE_CHECKING:
    from ..formats import Format
    from ..store import Store

log = logging.getLogger("ibidem")


class SentOtherwise(NamedTuple):
    """How a request was sent, if it was not sent as planned."""

    since: int
    refused: bool
    thinking_dropped: int = 0


class UnsavedNotes(NamedTuple):
    """Journal entries that are not in a store yet."""

    notes: Mapping[Position, Note]
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
        pauses: Pauses | None = None,
    ) -> None:
        """`store` gets the originals of evicted text (default: the user's store). `state` continues another session.

        `cache="auto"` adds cache breakpoints to requests without any, `cache="lifetime"` only chooses the TTL of the
        client's breakpoints. `pauses` are the user's idle times before this conversation.
        """
        if not isinstance(pauses, Pauses | None):
            raise UsageError(f"pauses: {pauses!r} is not valid: pass an ibidem.Pauses, or None")
        self._cache = CacheSettings(checked_mode(cache), Pauses() if pauses is None else pauses)
        self._strategies = profiles.chosen(profile, strategies)
        pipeline.checked(format, model, store)
        self._grows = grows(self._strategies)
        self._format = format
        self.model = model
        """Model of requests that do not name one. It may change between requests."""
        self._store = store
        self._lock = threading.Lock()
        self._seen: Growing | None = None
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
        return self._grows and self._strategies[0].revises

    @property
    def remembers(self) -> bool:
        """True if decisions depend on request times and usage, not only on the history."""
        return self.revises or (self._grows and bool(self._cache))

    def state(self) -> bytes:
        """Return the journal, with which another session continues the conversation in the same way."""
        with self._lock:
            return self._journal.dump()

    def learn(self, state: bytes) -> None:
        """Add the state of another session of the same conversation."""
        with self._lock:
            self._journal.load(state)

    def unsaved(self) -> UnsavedNotes:
        """Return the journal entries since the last save, as rows to append to the stored ones."""
        with self._lock:
            notes = self._journal.unsaved()
            return UnsavedNotes(notes, [self._journal.row(*each) for each in notes.items()])

    def saved(self, unsaved: UnsavedNotes) -> None:
        """Mark journal entries as saved."""
        with self._lock:
            self._journal.saved(unsaved.notes)

    def learn_rows(self, rows: Iterable[bytes], forgotten: bool = False) -> dict[Position, bytes]:
        """Add journal rows of other sessions of the same conversation. Return the last row of each request.

        `forgotten`: the store lost the rows that were saved before, so all entries are unsaved again.
        """
        with self._lock:
            if forgotten:
                self._journal.forgotten()
            return self._journal.learn(rows)

    def rescan(self, data: bytes) -> Scanned | None:
        """Scan a request that starts with the bytes of the last one, for `compact`; None for any other request."""
        with self._lock:
            known = self._seen.known if self._seen is not None else None
            return None if known is None else rescan(data, known)

    def shares(self, scanned: Scanned) -> tuple[int, int]:
        """Return how many of the session's messages the request starts with, and how many the session has."""
        with self._lock:
            seen = self._seen
            return (seen.shared(self._checked(scanned)), len(seen)) if seen is not None else (0, 0)

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
            given = request.encode("utf-8", "surrogatepass")
            found = self.compact(given, idle=idle, context=context, cached=cached, at=at)
            changed = found.request is not given
            return replace(found, request=found.request.decode("utf-8", "surrogatepass") if changed else request)
        with self._lock:
            if self._grows:
                scanned = self._scan(request)
                if scanned is not None:
                    return self._grow(scanned, Moment(idle, context, cached=cached), at)
            return self._afresh(request.given if isinstance(request, Scanned) else request)

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
                self._journal.note(position, at=at, context=context, cached=cached)
                if cleared:  # recorded for the current request: one that was sent meanwhile stays as it was sent
                    journal = self._journal
                    journal.note(None if position is None or journal.followed(position) else position, cleared=True)

    def stop_revising(self, position: Position | None = None) -> None:
        """Stop changing text that was sent, from this request on, because the cache missed after the last revision."""
        with self._lock:
            if position or len(self._journal):
                self._journal.note(position, stopped=True)

    def refuse(self, position: Position) -> None:
        """Report that the provider rejected the rewritten request at `position`. No later one gets breakpoints."""
        with self._lock:
            self._journal.note(position, refused=True)

    @property
    def sent_prefix(self) -> SentPrefix | None:
        """How the last request was sent, so that a request without a plan can start with the same bytes."""
        with self._lock:
            return self._seen.sent_prefix if self._seen is not None else None

    @property
    def notes(self) -> int:
        """Number of journal entries in memory, of all branches."""
        with self._lock:
            return len(self._journal.notes)

    @property
    def weight(self) -> int:
        """Approximate memory use in bytes, without the journal."""
        with self._lock:
            return self._seen.weight if self._seen is not None else 0

    @property
    def unusual(self) -> bool:
        """True if the journal has facts that matter for every profile, such as a rejected request."""
        with self._lock:
            return self._journal.unusual

    @property
    def thinking_dropped(self) -> int:
        """Number of messages of the last request, from the first one on, that are sent without their thinking."""
        with self._lock:
            return self._journal.thinking_dropped if self._journal.unusual else 0

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
            scanned = self._scan(request) if self._grows else None
            if scanned is not None:
                self._grow(scanned, Moment(), at, SentOtherwise(since, refused, thinking_dropped))
            elif refused:
                self._journal.note(NOWHERE, refused=True)

    def _scan(self, request: Any) -> Scanned | None:
        if isinstance(request, Scanned):
            return self._checked(request)
        found = scan(request, self._seen.known if self._seen is not None else None)
        if found is None and self.revises and isinstance(request, bytes):
            return scan_tolerantly(request)
        return found

    def _checked(self, scanned: Scanned) -> Scanned:
        """Reset the scan's references to the last request if another request was processed since."""
        if scanned.unchanged and (self._seen is None or scanned.origin is not self._seen.known):
            scanned.unchanged, scanned.same_head = 0, False
        return scanned

    def _afresh(self, request: Any) -> Compacted:
        found = pipeline.compact(
            request, strategies=self._strategies, format=self._format, model=self.model, store=self._store
        )
        if not self._cache or found.reason or self._journal.any_refused:
            return found
        return pipeline.with_marks(found, self._cache, self.model, self._records)

    def _grow(self, scanned: Scanned, moment: Moment, at: float | None, went: SentOtherwise | None = None) -> Compacted:
        try:
            dialect = formats.named(self._format) if self._format else formats.detect(scanned.sketch, self.model)
        except formats.Ambiguous:
            return self._afresh(scanned.given)
        if scanned.key and scanned.key != dialect.history_key:
            return self._afresh(scanned.given)
        if went is None and dialect.has_checksum(scanned.head):
            return Compacted(scanned.given, Plan(), Stats(), formats.CHECKSUM_REASON, dialect.name)
        model = self.model or (found if isinstance(found := scanned.head.get("model"), str) else None)
        seen = self._seen if self._goes_on(scanned, dialect, model) else None
        if seen is not None and went is not None and not self._agrees(seen, scanned, went):
            seen = None  # the planned request was not sent, so process it from its start
        self._seen = None  # set again on success
        marked: MarkedRequest | None = None
        try:
            read = [dialect.read(index, scanned.value(index)) for index in range(len(seen or ()), len(scanned))]
            new = Conversation(tuple(read), dialect, scanned.head)
            if seen is None:
                self._journal.begin()
                self._key = marking.key_of(new.messages) if self._cache else ""
                seen = Growing(self._strategies[0], dialect, self._start(new, model))
            said = [*map(substance, new.messages)]
            self._journal.follow(map(digest_of, said))
            if went is None and (length := self._journal.foreign) is not None:  # no new edits in older messages
                sent = len(seen) or previous_length(len(new.messages), lambda index: new.messages[index].role)
                went = SentOtherwise(max(length, sent), refused=False)
            if self.remembers:
                self._note_moment(moment, at, dialect.cache_settings(scanned.head))
            if not self.sees_responses and dialect.manages_context(scanned.head):
                self._note_unseen(len(seen), new)
            if went is not None:
                self._note(went)
            kept = self._keep(seen, new, model, scanned.beside if went is None else None) if self._cache else None
            moments = self._journal.moments(len(seen)) if self.revises else {}
            unusual = self._journal.unusual
            as_is, cleared_at = (self._journal.as_is, self._journal.cleared_at) if unusual else ((), [])
            seen.take(new, scanned, model, said, moments, as_is, cleared_at)
            if seen.refused and self.revises:
                self._journal.note(moment=moments[len(self._journal)]._replace(refused=True))
            if went is None and kept is not None:
                self._journal.note(removed=seen.removed, spent=seen.spent)
                marked = self._marked(seen, scanned, model, kept)
            written, plan = marked or MarkedRequest(seen.write(scanned)), seen.plan
        except WholeMessages:
            return self._afresh(scanned.given)
        except (Exception, SystemExit):
            log.warning("a request is processed from its start after an error", exc_info=True)
            return self._afresh(scanned.given)
        self._seen = seen
        stats, marks = Stats.of(plan, model), written.additions
        return Compacted(written.request, plan, stats, "", dialect.name, marks=marks, kept=kept)

    def _note_unseen(self, sent: int, new: Conversation) -> None:
        """Record that the provider may have cleared any result that was sent before."""
        length = sent or previous_length(len(new.messages), lambda index: new.messages[index].role)
        if length:
            self._journal.note(self._journal.positions[length - 1], cleared=True)

    def _goes_on(self, scanned: Scanned, dialect: Format, model: str | None) -> bool:
        """Return True if the request continues the conversation so far."""
        seen = self._seen
        if seen is None or seen.shared(scanned) != len(seen):
            return False
        if scanned.same_head and not self.revises:  # then the model does not matter
            return True
        return seen.goes_on(self._start(Conversation((), dialect, scanned.head), model))

    def _start(self, conv: Conversation, model: str | None) -> Start:
        return Start(conv, model, lambda: self._store or default_store())

    def _marked(self, seen: Growing, scanned: Scanned, model: str | None, kept: Kept) -> MarkedRequest | None:
        """Write the request with cache breakpoints; None if it gets none. Known messages are not parsed again."""
        if not scanned.key:
            return None
        try:
            marks = seen.sent_marks(scanned)
            sent = Outgoing(seen.dialect, scanned.head, seen.sent(scanned), marks, model, self._key)
            additions = marking.planned(sent, self._cache.mode, kept)
            if not additions:
                return None
            new = seen.write(scanned, marking.changes(additions))
        except Exception:
            log.warning("cache breakpoints could not be added to a request", exc_info=True)
            return None
        store = self._records
        if store is not None:
            marking.remember(sent, additions, store)
        return MarkedRequest(new, tuple(additions))

    @property
    def _records(self) -> Store | None:
        """Store for breakpoint records. The user's own store is used only if the profile needs it anyway."""
        return self._store or (default_store() if self.revises else None)

    def _keep(self, seen: Growing, new: Conversation, model: str | None, beside: int | None) -> Kept | None:
        """Return the TTL decision, from the journal or a new one. It is recorded, so that a repeated request is equal.

        `parameter_bytes` is the size of the request parameters; None for a request that was not sent as planned.
        """
        journal = self._journal
        if journal.here is None or journal.refused:
            return None
        if journal.here.kept is None:
            before = journal.before
            kept = before.kept if before is not None else None
            if beside is not None:
                kept = self._decided(seen, new, model, beside)
            if kept is not None:
                journal.note(kept=kept, moment=journal.here.moment._replace(long=kept.long > 0, paid=kept.spent))
        return journal.here.kept

    def _decided(self, seen: Growing, new: Conversation, model: str | None, beside: int) -> Kept | None:
        """Choose the TTL. None after an error: the TTL is left to the client."""
        length, before = self._journal.last or (0, Note(Moment()))
        moment = (self._journal.here or before).moment
        try:
            asked = Asked(
                len(self._journal),
                idle=moment.idle,
                context=moment.context,
                cached=moment.cached,
                new=marking.tokens_of(each for each in new.messages if each.index >= length),
                removed=before.removed,
                spent=before.spent,
                head=marking.tokens_in(beside),
            )
            return marking.decided(self._cache, new, model, asked, before.kept, seen.marks(new.head, new))
        except Exception:
            log.warning("the cache TTL could not be chosen", exc_info=True)
            return None

    def _agrees(self, seen: Growing, scanned: Scanned, went: SentOtherwise) -> bool:
        """Return True if the known messages were sent as planned."""
        if len(seen) <= went.since:
            return True
        here = self._journal.here
        if here is None or here.as_is is None or len(seen) != len(scanned):
            return False
        return here.as_is <= went.since and (here.refused or not went.refused)

    def _note(self, went: SentOtherwise) -> None:
        """Record how a request was sent. Messages once sent unchanged stay so, even if the request is sent again."""
        here = self._journal.here or Note(Moment())
        since = went.since if here.as_is is None else min(went.since, here.as_is)
        self._journal.note(
            as_is=since,
            refused=went.refused or here.refused,
            stopped=went.refused or here.stopped,
            thinking_dropped=max(went.thinking_dropped, here.thinking_dropped),
        )

    def _note_moment(self, moment: Moment, at: float | None, settings: str) -> None:
        """Record the context of a request, unless it was sent before.

        With new `settings` the cache misses. The client may return to the earlier settings and hit their cache, so a
        revision with new settings has to be affordable (`SavingsBalance`). New tools are no reason for a revision.
        """
        journal = self._journal
        if journal.here is None:
            length, before = journal.last or (0, None)
            if before is not None:
                sent, known = self._settings
                is_new = settings != known and sent == journal.positions[length - 1]
                moment = moment._replace(new_settings=bool(is_new and settings and known))
                if at is not None and before.at is not None:
                    idle = max(0.0, at - before.at)
                    moment = moment._replace(idle=idle, context=before.context, cached=before.cached)
                moment = moment._replace(refused=before.stopped)
            journal.note(moment=moment, stopped=before is not None and before.stopped)
        self._settings = (journal.position, settings)
