"""The seat of an adapter: requests of any number of conversations come by, and are sent rewritten.

It goes by what the proxy goes by (`Conversations`, `Rewriter`, the way out of `fallback`), without its sockets: which
conversation a request goes on is read off the request, so one seat serves a whole program, from any thread. Nothing in
here raises after it was made: what cannot be rewritten is sent as it came (law 12).
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakKeyDictionary

from .. import formats
from ..billing.lifetimes import CacheMode, checked_mode
from ..billing.thinking import signs_thinking
from ..engine.marking import CacheSettings
from ..engine.session import Session
from ..errors import UsageError
from ..proxy.clock import SYSTEM_CLOCK
from ..proxy.conversation import AnsweredRequest, Counted
from ..proxy.conversations import Conversations
from ..proxy.fallback import continue_without_thinking, fall_back, next_body
from ..proxy.outcome import Job, Outcome
from ..proxy.rewriter import Rewriter
from ..store import MemoryStore, StoreError
from ..store.recall import checked_store, default_store
from ..strategies import profiles
from ._aside import LONG_BYTES, later
from ._aside import aside as aside
from ._turns import ShadowTurn as ShadowTurn
from ._turns import Turn as Turn
from ._turns import failed_open
from ._turns import failing_open as failing_open
from ._turns import safely as safely
from ._versions import bounded as bounded
from ._versions import missing as missing

if TYPE_CHECKING:
    from ..billing.usage import Usage
    from ..proxy.conversation import LiveConversation
    from ..store import Store
    from ._shadow import Shadow

log = logging.getLogger("ibidem")
T = TypeVar("T")

MAX_CONVERSATIONS, MAX_MEMORY = 1000, 256 * 2**20
"""Conversations that a seat remembers, and bytes that they may take: as in the proxy."""
MAX_BODY = 100 * 2**20
PATIENCE_SECONDS = 5.0
"""Seconds that a request waits for another of its conversation."""
WITHOUT_THINKING = frozenset({"openai-chat"})
"""Formats in which signed thinking is not seen: it is in fields of the framework's, or not in the shadow at all."""


class Seat:
    """Rewrites requests with a profile. `session` is for one conversation by hand; else conversations are recognised.

    `store` keeps what a profile lets go; it is the user's own if none is given, and none is opened for profiles that
    let nothing go. `cache`: see docs/caching.md.
    """

    def __init__(
        self,
        profile: str = "lossless",
        *,
        session: Session | None = None,
        store: Store | None = None,
        cache: CacheMode = "off",
    ) -> None:
        self._cache = CacheSettings(checked_mode(cache))
        strategies = profiles.named(profile)
        checked_store(store)
        if not isinstance(session, Session | None):
            raise UsageError(f"session: {session!r} is no session: pass ibidem.Session(), or leave it out")
        if session is not None and self._cache:
            raise UsageError("cache: a session has a setting of its own: pass ibidem.Session(cache=…)")
        self._profile = profile
        self._session = session
        self._store = store
        self._final = all(each.final for each in strategies)
        self._lock = threading.Lock()
        self._rewriters: dict[str, Rewriter] = {}
        self._homes: WeakKeyDictionary[LiveConversation, Rewriter] = WeakKeyDictionary()
        """Whose each conversation is."""
        self._asks = not self._final if session is None else session.revises
        """Whether a store is asked while a request waits."""
        self.now = SYSTEM_CLOCK.time

    def __deepcopy__(self, memo: dict[int, Any]) -> Seat:
        """Copies of what holds it go on with the same conversations."""
        return self

    # ── histories ───────────────────────────────────────────────────────────────────────────────────────────────────

    def rewrite(
        self,
        format: str,
        history: list[Any],
        *,
        model: str = "",
        conversation: str = "",
        head: Mapping[str, Any] | None = None,
    ) -> Turn:
        """A history in a wire format. `head` has other fields of the request, `conversation` what names it."""
        job = safely(self._job, format, history, model, conversation, head, otherwise=None)
        if job is None:
            return Turn(self, Outcome(result="failed open"), history)
        return self._turn(job, model, history, head)

    async def arewrite(
        self,
        format: str,
        history: list[Any],
        *,
        model: str = "",
        conversation: str = "",
        head: Mapping[str, Any] | None = None,
    ) -> Turn:
        """As `rewrite`, without holding up the event loop where there is much to do."""
        job = safely(self._job, format, history, model, conversation, head, otherwise=None)
        if job is None:
            return Turn(self, Outcome(result="failed open"), history)
        return await self.aside(len(job.body), self._turn, job, model, history, head)

    async def aside(self, size: int, function: Callable[..., T], *args: Any) -> T:
        """As the function `aside`, and in any case where a store is asked: nobody knows how long that takes."""
        return await aside(LONG_BYTES + 1 if self._asks else size, function, *args)

    def rewrite_shadow(self, shadow: Shadow, *, model: str = "", conversation: str = "") -> ShadowTurn:
        if not shadow.named:
            return self._untouched(shadow)
        return ShadowTurn(self.rewrite(shadow.format, shadow.history, model=model, conversation=conversation), shadow)

    async def arewrite_shadow(self, shadow: Shadow, *, model: str = "", conversation: str = "") -> ShadowTurn:
        if not shadow.named:
            return self._untouched(shadow)
        turn = await self.arewrite(shadow.format, shadow.history, model=model, conversation=conversation)
        return ShadowTurn(turn, shadow)

    def _untouched(self, shadow: Shadow) -> ShadowTurn:
        return ShadowTurn(Turn(self, Outcome(result="unchanged"), shadow.history), shadow)

    def _job(
        self, format: str, history: list[Any], model: str, conversation: str, head: Mapping[str, Any] | None
    ) -> Job:
        named = {"model": model} if model else {}
        body = _json({**(head or {}), **named, formats.named(format).history_key: history})
        return self.job(format, body, conversation)

    def _turn(self, job: Job, model: str, history: list[Any], head: Mapping[str, Any] | None = None) -> Turn:
        outcome = self.outcome(job, model)
        self.accepted(outcome)  # what a provider refuses is not seen from here
        return Turn(self, outcome, history, job, head)

    # ── bytes ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def job(
        self,
        format: str,
        body: bytes,
        conversation: str = "",
        encoding: str = "",
        counts: bool = False,
        model: str = "",
    ) -> Job:
        """`model` is for bodies that do not name it."""
        seconds = PATIENCE_SECONDS
        return Job(format, conversation, encoding, body, self.now(), counts, MAX_BODY, seconds, seconds, model=model)

    def outcome(self, job: Job, model: str = "") -> Outcome:
        """What is sent for a request: `Outcome.body`, or the request as it came where that is None."""
        try:
            if self._session is not None:
                return self._by_session(self._session, job)
            rewriter = self._rewriter(job.format, model)
            found = rewriter.rewrite(job)
            if job.conversation is not None:
                self._homes[job.conversation] = rewriter
            if found.result == "failed open" and not found.theirs:
                log.warning("request sent without new edits: %s", found.reason)
                found = fall_back(rewriter.conversations, job, found)
            return continue_without_thinking(rewriter.conversations, job, found) or found
        except Exception as error:
            return failed_open(error)

    def _by_session(self, session: Session, job: Job) -> Outcome:
        if job.encoding not in ("", "identity") or job.counts:
            return Outcome(result="unchanged")
        with self._lock:
            compacted = session.compact(job.body, at=job.at)
            place = None if compacted.reason else session.position
        if compacted.reason:
            log.warning("request sent as it came: %s", compacted.reason.partition(":")[0])
        changed = compacted.request is not job.body
        return Outcome(
            result="rewritten" if changed else "unchanged",
            body=compacted.request if changed else None,
            reason=compacted.reason,
            edits=compacted.plan.edits,
            marks=compacted.marks,
            kept=compacted.kept,
            model=_model(job),
            place=place,
        )

    def _rewriter(self, format: str, model: str) -> Rewriter:
        """Thinking that is signed against what was sent cannot stay where that is revised; where it is not seen,
        nothing is revised."""
        unseen = format in WITHOUT_THINKING and not self._final and signs_thinking(model)
        profile = "lossless" if unseen else self._profile
        with self._lock:
            found = self._rewriters.get(profile)
            if found is None:
                final = unseen or self._final
                store = self._store or (MemoryStore() if final else default_store())
                conversations = Conversations(profile, store, MAX_CONVERSATIONS, MAX_MEMORY, cache=self._cache)
                found = self._rewriters[profile] = Rewriter(conversations, False, MAX_BODY, books=False)
            return found

    def _home(self, conversation: LiveConversation) -> Conversations:
        found = self._homes.get(conversation)
        return (found or self._rewriter(conversation.key[0], conversation.model)).conversations

    # ── what became of it ───────────────────────────────────────────────────────────────────────────────────────────

    def instead(
        self, job: Job, rejected: Outcome, kind: str, tried: Sequence[bytes], names_thinking: bool
    ) -> Outcome | None:
        """The next body for a request that the provider rejected; None if all of them were rejected."""
        log.warning("a request was rejected: %s", kind)
        conversation = rejected.conversation or job.conversation
        if conversation is not None:
            home = self._home(conversation)
        else:
            home = self._rewriter(job.format, rejected.model).conversations
            if self._session is not None and rejected.body is not None:
                with failing_open():
                    self._session.sent_otherwise(job.body, 0, refused=True, at=job.at)
        return safely(next_body, home, job, rejected, kind, tried, names_thinking, otherwise=None)

    def accepted(self, outcome: Outcome) -> None:
        """The provider takes a request: the conversation goes on in that way."""
        with failing_open():
            if outcome.conversation is not None:
                outcome.conversation.accept(outcome.sent, outcome.deviation)
            elif outcome.deviation is not None:
                with suppress(StoreError):  # it was told why the request went so
                    for rewriter in list(self._rewriters.values()):
                        rewriter.conversations.adopt(outcome.sent, outcome.deviation)

    def refuse(self, outcome: Outcome) -> None:
        """The provider refused a request that cannot be sent again from here: later ones get no marks."""
        with failing_open():
            found, place = outcome.conversation, outcome.place
            session = self._session if found is None else found.session
            if session is None or place is None:
                return
            session.refuse(place)
            if found is not None:
                later(_save, self._home(found), found)

    def answered(
        self, outcome: Outcome, context: int | None = None, cached: int | None = None, cleared: bool = False
    ) -> None:
        """What the provider counted, for profiles that go by it, and whether it cleared tool results."""
        with failing_open():
            found, at = outcome.conversation, self.now()
            if outcome.place is None:
                return
            if self._session is not None:
                self._session.answered(at=at, context=context, cached=cached, position=outcome.place, cleared=cleared)
            elif found is not None and (found.session.remembers or cleared):
                conversations = self._home(found)
                found.inbox.append(AnsweredRequest(outcome.place, at, Counted(context, cached, cleared), False))
                later(_save, conversations, found)

    def charged(self, outcome: Outcome, usage: Usage, cleared: bool = False) -> None:
        self.answered(outcome, usage.input, usage.read, cleared)


def _save(conversations: Conversations, conversation: LiveConversation) -> None:
    with failing_open(), conversation.lock:
        conversations.settle(conversation)
        conversations.save(conversation)


def _json(value: Any) -> bytes:
    """What a plan is made from. Objects that a framework has among its messages are asked for their fields."""
    import msgspec

    try:
        return msgspec.json.encode(value, enc_hook=_fields)
    except (TypeError, ValueError, OverflowError):  # lone surrogates, long numbers
        return json.dumps(value, default=_fields).encode()


def _model(job: Job) -> str:
    """Who is asked, by a request that nobody looked at more closely."""
    import msgspec

    try:
        named = msgspec.json.decode(job.body, type=dict[str, msgspec.Raw]).get("model", b'""')
        return job.model or msgspec.json.decode(named, type=str)
    except (msgspec.MsgspecError, ValueError):
        return ""


def _fields(value: Any) -> Any:
    dump = getattr(value, "model_dump", None)
    if dump is None:
        raise TypeError(f"{type(value).__name__} is no JSON")
    return dump(mode="json", exclude_none=True)
