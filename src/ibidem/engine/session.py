"""A conversation that grows: each call does the work for what is new, and gives what `compact` would give.

A request that begins with the messages of the one before costs their comparison and what comes after them. Any other
request (a fork, a rewind, a history that the client changed, another conversation) is worked on from the start.
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
    """How a request was sent that was not sent as planned."""

    since: int
    refused: bool
    thinking_dropped: int = 0


class UnsavedNotes(NamedTuple):
    """What was noted of requests and is in no store yet."""

    notes: Mapping[Position, Note]
    rows: list[bytes]
    """Each of them as it is kept."""


class Session:
    """Thread-safe: calls are carried out one after the other."""

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
        """`store` keeps what is let go; the user's own if there is none. With `state`, go on where another was.

        `cache` says whether the provider may be asked to keep what it is sent (`auto`), or to keep it for longer or
        shorter than the client asks (`lifetime`); `pauses` are those of the user before this conversation.
        """
        if not isinstance(pauses, Pauses | None):
            raise UsageError(f"pauses: {pauses!r} is unknown: use ibidem.Pauses, or None")
        self._cache = CacheSettings(checked_mode(cache), Pauses() if pauses is None else pauses)
        self._strategies = profiles.chosen(profile, strategies)
        pipeline.checked(format, model, store)
        self._grows = grows(self._strategies)
        self._format = format
        self.model = model
        """Who is asked, where requests do not say. It may change from one to the next."""
        self._store = store
        self._lock = threading.Lock()
        self._seen: Growing | None = None
        self._settings: tuple[Position | None, str] = (None, "")
        """The last request, and its settings that decide what the provider finds in its cache."""
        self._key = ""
        """The name of the conversation, for records of marks and for providers that find their cache by one."""
        self.sees_responses = True
        """Whether `answered` reports what the provider cleared. If not, nothing refers to texts that it may clear."""
        self._journal = Journal()
        if state is not None:
            self._journal.load(state)

    @property
    def revises(self) -> bool:
        """Whether what was sent may change later."""
        return self._grows and self._strategies[0].revises

    @property
    def remembers(self) -> bool:
        """Whether it decides by more than the history: when requests came, and what their provider counted."""
        return self.revises or (self._grows and bool(self._cache))

    def state(self) -> bytes:
        """What is known beside the history: enough for another session, anywhere, to go on in the same way."""
        with self._lock:
            return self._journal.dump()

    def learn(self, state: bytes) -> None:
        """What another session of the same conversation came to know since."""
        with self._lock:
            self._journal.load(state)

    def unsaved(self) -> UnsavedNotes:
        """What was noted since notes were saved, as rows to be added to those that are."""
        with self._lock:
            notes = self._journal.unsaved()
            return UnsavedNotes(notes, [self._journal.row(*each) for each in notes.items()])

    def saved(self, unsaved: UnsavedNotes) -> None:
        with self._lock:
            self._journal.saved(unsaved.notes)

    def learn_rows(self, rows: Iterable[bytes], forgotten: bool = False) -> dict[Position, bytes]:
        """What other sessions of the same conversation added since; `forgotten`: what was saved before is gone.

        Returns the last row of each request.
        """
        with self._lock:
            if forgotten:
                self._journal.forgotten()
            return self._journal.learn(rows)

    def rescan(self, data: bytes) -> Scanned | None:
        """A request that begins as the last one did, as `compact` takes it too; None for any other."""
        with self._lock:
            known = self._seen.known if self._seen is not None else None
            return None if known is None else rescan(data, known)

    def shares(self, scanned: Scanned) -> tuple[int, int]:
        """With how many of the messages it has seen a request begins, and how many those are."""
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
        """Of the last request, for those who will know later what became of it."""
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
        """The last request, or the one at a place, was answered at that time; its provider counted so many tokens, and
        read so many of them from its cache. `cleared`: its `applied_edits` say that tool results were cleared. Later
        texts do not refer to anything that was sent before."""
        with self._lock:
            if position or len(self._journal):
                self._journal.note(position, at=at, context=context, cached=cached)
                if cleared:  # noted where it is known first: a request that was sent meanwhile stays as it was sent
                    journal = self._journal
                    journal.note(None if position is None or journal.followed(position) else position, cleared=True)

    def stop_revising(self, position: Position | None = None) -> None:
        """What was sent stays as it is from there on: the provider did not take the last change well."""
        with self._lock:
            if position or len(self._journal):
                self._journal.note(position, stopped=True)

    def refuse(self, position: Position) -> None:
        """The provider refused what was made of the request at that place: no later one gets marks."""
        with self._lock:
            self._journal.note(position, refused=True)

    @property
    def sent_prefix(self) -> SentPrefix | None:
        """How the last request was written, for one that cannot be worked on: it can begin in the same way."""
        with self._lock:
            return self._seen.sent_prefix if self._seen is not None else None

    @property
    def notes(self) -> int:
        """Of this and all other branches, as many as are in memory."""
        with self._lock:
            return len(self._journal.notes)

    @property
    def weight(self) -> int:
        """Bytes that it takes in memory beside its notes, about, as far as texts are concerned."""
        with self._lock:
            return self._seen.weight if self._seen is not None else 0

    @property
    def unusual(self) -> bool:
        """Whether there is something to remember that a history alone does not tell."""
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
        """A request was not sent as it was, or would have been, planned.

        Its messages from `since` on went out as they came, those before as they had been sent before; what was to be
        changed of them in this very request was not. The provider knows it that way, so it stays so; later messages
        may refer to it. `refused`: because the provider had not taken what was planned. `thinking_dropped`: number of
        its messages that went without their thinking, because the provider rejected that.
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
        """What was known of it when it was scanned may be known no more: another request came between."""
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
            seen = None  # what was made of it was not sent: it is worked on again
        self._seen = None  # until all went well
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
            if went is None and (length := self._journal.foreign) is not None:  # it goes on without new edits
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
            log.warning("a session begins again", exc_info=True)
            return self._afresh(scanned.given)
        self._seen = seen
        stats, marks = Stats.of(plan, model), written.additions
        return Compacted(written.request, plan, stats, "", dialect.name, marks=marks, kept=kept)

    def _note_unseen(self, sent: int, new: Conversation) -> None:
        """The provider may have cleared anything that was sent before."""
        length = sent or previous_length(len(new.messages), lambda index: new.messages[index].role)
        if length:
            self._journal.note(self._journal.positions[length - 1], cleared=True)

    def _goes_on(self, scanned: Scanned, dialect: Format, model: str | None) -> bool:
        """Whether a request goes on what was seen."""
        seen = self._seen
        if seen is None or seen.shared(scanned) != len(seen):
            return False
        if scanned.same_head and not self.revises:  # then it is not a matter of who is asked
            return True
        return seen.goes_on(self._start(Conversation((), dialect, scanned.head), model))

    def _start(self, conv: Conversation, model: str | None) -> Start:
        return Start(conv, model, lambda: self._store or default_store())

    def _marked(self, seen: Growing, scanned: Scanned, model: str | None, kept: Kept) -> MarkedRequest | None:
        """What is written, with what it asks of a cache; None where it gets nothing. Messages that are known are not
        looked at for it."""
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
            log.warning("a request is sent without marks", exc_info=True)
            return None
        store = self._records
        if store is not None:
            marking.remember(sent, additions, store)
        return MarkedRequest(new, tuple(additions))

    @property
    def _records(self) -> Store | None:
        """Where it is noted what was put on a request. For that alone the store of the user is not opened."""
        return self._store or (default_store() if self.revises else None)

    def _keep(self, seen: Growing, new: Conversation, model: str | None, beside: int | None) -> Kept | None:
        """For how long the provider is asked to keep what. Noted, so that whoever asks again asks alike.

        `beside`: bytes that stand beside the messages; None for a request that was not sent as planned.
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
        """None where that fails: then it is left to the client."""
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
            log.warning("nothing is decided about the cache", exc_info=True)
            return None

    def _agrees(self, seen: Growing, scanned: Scanned, went: SentOtherwise) -> bool:
        """Whether all that was made of the messages seen is what went out."""
        if len(seen) <= went.since:
            return True
        here = self._journal.here
        if here is None or here.as_is is None or len(seen) != len(scanned):
            return False
        return here.as_is <= went.since and (here.refused or not went.refused)

    def _note(self, went: SentOtherwise) -> None:
        """What went as it came once stays so, also where the same request is sent again."""
        here = self._journal.here or Note(Moment())
        since = went.since if here.as_is is None else min(went.since, here.as_is)
        self._journal.note(
            as_is=since,
            refused=went.refused or here.refused,
            stopped=went.refused or here.stopped,
            thinking_dropped=max(went.thinking_dropped, here.thinking_dropped),
        )

    def _note_moment(self, moment: Moment, at: float | None, settings: str) -> None:
        """Note the context of the request that is being sent, unless it was sent before.

        `settings`: those without which the provider finds nothing in its cache. The client may return to earlier ones
        and their cache, so a change with new settings has to be affordable (`Bank`).
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
