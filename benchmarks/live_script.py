"""What is sent for a recorded history on its way through Ibidem, with faults in it, as one digest.

Requests go through what the proxy goes through, without its sockets: conversations are recognized, a request that
cannot be rewritten falls back, and notes are stored. Everything runs in one thread, on a clock of its own, and by a
fixed script of faults, so that two runs give the same digest. The digest is over each body that is sent, in order, and
each row that is stored.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import msgspec

from ibidem.billing.cache_ttl import CacheMode
from ibidem.engine.breakpoint_placement import CacheSettings
from ibidem.errors import IbidemError
from ibidem.formats import FORMATS
from ibidem.live.conversation import AnsweredRequest, LiveConversation, ProviderCount
from ibidem.live.fallback import continue_without_thinking, fall_back, next_body, rebuild_sent_prefix
from ibidem.live.live import Rewriter
from ibidem.live.policy import PauseMode
from ibidem.live.recognition import Conversations
from ibidem.live.types import Clock, LiveRequest, RewriteResult
from ibidem.store import MemoryStore, StoreError
from ibidem.store.guarded import GuardedStore
from ibidem.store.store import JOURNAL_START, JournalPage, JournalPosition

from .corpus import Recorded

CACHE_MODES: tuple[CacheMode, ...] = ("off", "auto")
MODELS = {
    "anthropic": ("claude-sonnet-4-5", "claude-opus-5-1"),
    "openai-chat": ("gpt-5.2", "claude-opus-5-1"),
    "openai-responses": ("gpt-5.2",),
    "gemini": ("gemini-3-pro",),
}
"""Models of the requests, of histories in turn. Some sign thinking."""

PREVIEW, REJECTED, LATE, FAILING_STORE, LOST, RESTART = 5, 7, 11, 13, 17, 20
"""Every so many-th request: its size is counted first; the provider rejects it once; planning is too late for it; the
store fails meanwhile; the provider has an error; the proxy was restarted before."""
LONG_IDLE, STEP = 9, 10.0
"""Every so many-th request comes after an hour, others after so many seconds."""
BUDGET = 60.0
MEMORY_BYTES, CONVERSATIONS, BODY_BYTES = 2**28, 1000, 2**27
START = 1_700_000_000.0


class ScriptClock(Clock):
    """A clock that moves when the script says. It can call the script back while a request is planned."""

    def __init__(self) -> None:
        self.now = START
        self.on_read: Any = None

    def time(self) -> float:
        return self.now

    def monotonic(self) -> float:
        if self.on_read is not None:
            self.on_read()
        return self.now


class ScriptStore(MemoryStore):
    """A store that fails when the script says, and shows each stored row to a digest."""

    def __init__(self, clock: ScriptClock, digest: Any) -> None:
        super().__init__(clock=clock.time)
        self.failing = False
        self._digest = digest

    def _check(self) -> None:
        if self.failing:
            raise StoreError(self.where, "fails, as the script says")

    def put(self, session: str, originals: Any) -> None:
        self._check()
        super().put(session, originals)

    def get(self, refs: Any) -> dict[str, str]:
        self._check()
        return super().get(refs)

    def notes(self, session: str, since: JournalPosition = JOURNAL_START) -> JournalPage:
        self._check()
        return super().notes(session, since)

    def load(self, session: str) -> bytes | None:
        self._check()
        return super().load(session)

    def note(self, session: str, rows: Sequence[bytes], since: JournalPosition) -> JournalPage:
        self._check()
        notes = super().note(session, rows, since)
        if notes.added:
            self._digest.update(b"\0".join((b"\nnote", session.encode(), *rows)))
        return notes


@dataclass
class Sender:
    """What sends requests, until it is restarted."""

    profile: str
    cache: CacheMode
    clock: ScriptClock
    store: ScriptStore

    def __post_init__(self) -> None:
        guarded = GuardedStore(self.store, in_memory=True)
        settings = CacheSettings(self.cache)
        self._known = Conversations(self.profile, guarded, CONVERSATIONS, MEMORY_BYTES, cache=settings)
        self._rewriter = Rewriter(self._known, False, BODY_BYTES, clock=self.clock)

    def request(self, format: str, body: bytes, wish: PauseMode | None = None, counts: bool = False) -> LiveRequest:
        return LiveRequest(format, "", "", body, self.clock.now, counts, BODY_BYTES, BUDGET, BUDGET, pause_mode=wish)

    def rewrite(self, job: LiveRequest, *, at_once: bool) -> RewriteResult:
        warm = self._rewriter.rewrite_warm(job) if at_once else None
        return warm if warm is not None else self._finish(job, self._rewriter.rewrite_request(job))

    def give_up(self, job: LiveRequest) -> RewriteResult:
        """Nothing is planned in time."""
        job.try_end()
        return self._finish(job, RewriteResult(result="failed open", reason="time-out", seconds=BUDGET))

    def rewrite_late(self, job: LiveRequest) -> RewriteResult:
        """The request is given up while it is planned: the plan is there after another body was sent."""
        early: list[RewriteResult] = []
        reads = 0

        def give_up() -> None:
            nonlocal reads
            reads += 1
            if reads == 2:
                early.append(self.give_up(job))

        self.clock.on_read = give_up
        planned = self._rewriter.rewrite_request(job)
        self.clock.on_read = None
        if not early:
            return self._finish(job, planned)
        job.late_result = _Late(planned)
        return early[0]

    def _finish(self, job: LiveRequest, outcome: RewriteResult) -> RewriteResult:
        """As the proxy goes on with a request that was not planned."""
        if outcome.result in ("failed open", "off") and not outcome.is_client_fault:
            failed = outcome
            try:
                outcome = fall_back(self._known, job, failed)
                if failed.seconds < BUDGET:
                    outcome = rebuild_sent_prefix(self._known, job, outcome) or outcome
            except IbidemError:
                pass
        try:
            return continue_without_thinking(self._known, job, outcome) or outcome
        except IbidemError:
            return outcome

    def rejected(
        self, job: LiveRequest, outcome: RewriteResult, tried: Sequence[bytes], thinking: bool
    ) -> RewriteResult | None:
        return next_body(self._known, job, outcome, "invalid_request_error", tried, thinking)

    def accepted(self, outcome: RewriteResult) -> None:
        conversation, deviation = outcome.conversation, outcome.unreported_send
        if conversation is not None:
            conversation.record_accepted(outcome.sent_request, deviation)
        elif deviation is not None:
            try:
                conversation = self._known.adopt_request(outcome.sent_request, deviation)
            except IbidemError:
                return
        if deviation is not None and conversation is not None:
            self._settle(conversation)

    def answered(self, outcome: RewriteResult, context: int, cached: int, stop: bool) -> None:
        conversation, place = outcome.conversation, outcome.position
        if conversation is not None and self._known.needs_journal:
            counted = ProviderCount(context, cached) if place is not None else ProviderCount()
            conversation.inbox.append(AnsweredRequest(place, self.clock.now, counted, stop))
            self._settle(conversation)

    def _settle(self, conversation: LiveConversation) -> None:
        with suppress(IbidemError), conversation.lock:
            self._known.apply_inbox(conversation)
            self._known.save_journal(conversation, in_background=True)

    def pause(self, paused: bool) -> None:
        self._known.set_all_paused(paused)
        with suppress(IbidemError):
            self._known.add_pause("", paused)

    def read_pauses(self) -> None:
        with suppress(IbidemError):
            self._known.read_pauses()


@dataclass(frozen=True)
class _Late:
    outcome: RewriteResult


class Script:
    """The requests of one history, with the faults that happen to them."""

    def __init__(self, session: Recorded, profile: str, cache: CacheMode, stride: int) -> None:
        self._session, self._stride = session, stride
        self._digest = hashlib.sha256()
        self._clock = ScriptClock()
        self._store = ScriptStore(self._clock, self._digest)
        self._profile, self._cache = profile, cache
        self._first = zlib.crc32(session.name.encode()) % 1000
        models = MODELS.get(session.format, ("",))
        self._model = models[self._first % len(models)]
        self.bodies = 0

    def run(self) -> bytes:
        sender = self._restart()
        cuts = self._session.cuts[:: self._stride]
        half, third = len(cuts) // 2, len(cuts) // 3
        for index, cut in enumerate(cuts):
            number = self._first + index
            if number % RESTART == 0 and index:
                sender = self._restart()
            if third < half and index in (third, half):
                sender.pause(index == third)
            wish: PauseMode | None = {2 * half - 3: "off", 2 * half - 2: "on"}.get(index) if half > 4 else None  # type: ignore[assignment]
            history = self._session.history[:cut]
            self._send(sender, number, history, wish)
            if index in (half + 2, half + 4):  # a fork of this request, and a rewind to an earlier one
                earlier = cut if index == half + 2 else cuts[max(0, index - 3)]
                self._send(sender, number + 1, [*history[:earlier], *self._other_end(index)])
        return self._digest.digest()

    def _restart(self) -> Sender:
        sender = Sender(self._profile, self._cache, self._clock, self._store)
        sender.read_pauses()
        return sender

    def _other_end(self, index: int) -> Iterator[dict[str, Any]]:
        text = f"No, do something else: {index}."
        if self._session.format == "gemini":
            yield {"role": "user", "parts": [{"text": text}]}
        else:
            yield {"role": "user", "content": text}

    def _body(self, history: list[dict[str, Any]]) -> bytes:
        key = FORMATS[self._session.format].history_key
        head = {"model": self._model} if self._model else {}
        return msgspec.json.encode({**head, key: history})

    def _send(self, sender: Sender, number: int, history: list[dict[str, Any]], wish: PauseMode | None = None) -> None:
        self._clock.now += 3700.0 if number % LONG_IDLE == 0 else STEP
        format, body = self._session.format, self._body(history)
        if number % PREVIEW == 0:
            counted = sender.request(format, body, counts=True)
            self._note(b"count", counted, sender.rewrite(counted, at_once=False))
        job = sender.request(format, body, wish)
        self._store.failing = number % FAILING_STORE == 0
        if number % LATE == 0:
            outcome = sender.rewrite_late(job) if number % (2 * LATE) == 0 else sender.give_up(job)
        else:
            outcome = sender.rewrite(job, at_once=number % 2 == 0)
        sent = self._note(b"sent", job, outcome)
        if number % REJECTED == 0:
            rejected = self._resend(sender, number, job, outcome, sent)
            if rejected is None:
                return
            outcome = rejected
        if number % LOST:
            sender.accepted(outcome)
        self._store.failing = False
        if number % LOST:
            tokens = len(sent) // 4
            sender.answered(outcome, tokens, max(0, tokens - 500), number % 31 == 0)

    def _resend(
        self, sender: Sender, number: int, job: LiveRequest, outcome: RewriteResult, sent: bytes
    ) -> RewriteResult | None:
        """All bodies are rejected but the second, or in some requests the last."""
        tried, current = [sent], outcome
        while True:
            again = sender.rejected(job, current, tried, number % (2 * REJECTED) == 0)
            if again is None:
                return None
            current = again
            tried.append(self._note(b"again", job, current))
            if number % (3 * REJECTED):
                return current

    def _note(self, what: bytes, job: LiveRequest, outcome: RewriteResult) -> bytes:
        body = job.body if outcome.body is None else outcome.body
        self._digest.update(b"\n" + what + b"\0" + outcome.result.encode() + b"\0" + body)
        self.bodies += 1
        return body


def live_digest(session: Recorded, profile: str, stride: int) -> tuple[int, bytes]:
    """The number of bodies that are sent for a history, and the digest of all of them and of the rows stored."""
    scripts = [Script(session, profile, cache, stride) for cache in CACHE_MODES]
    found = b"".join(script.run() for script in scripts)
    return sum(script.bodies for script in scripts), hashlib.sha256(found).digest()
