"""Rewrite the requests of an adapter, for any number of conversations.

Like the proxy, it uses `Live`, which recognizes the conversation from the request. So one `RequestRewriter` serves a
whole program, from any thread. After its creation, no method raises. A request that cannot be rewritten is sent without
new edits (invariant 12).
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from .. import formats
from ..billing.lifetimes import CacheMode, checked_mode
from ..billing.thinking import signs_thinking
from ..engine.marking import CacheSettings
from ..engine.session import Session
from ..errors import UsageError
from ..live import MAX_BODY as MAX_BODY
from ..live import SYSTEM_CLOCK, Counted, Live, LiveRequest, RewriteResult
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
    from ..store import Store
    from ._shadow import Shadow

log = logging.getLogger("ibidem")
T = TypeVar("T")

PATIENCE_SECONDS = 5.0
"""Maximum time that a request waits for another request of the same conversation."""
WITHOUT_THINKING = frozenset({"openai-chat"})
"""Formats without visible signed thinking: it is in fields of the framework, or missing in the mirrored history."""


class Seat:
    """Rewrite requests with a profile.

    With `session`, all requests belong to one conversation. Otherwise, conversations are recognized. `store` is for the
    originals of evicted text. Without it, the user's default store is opened if the profile evicts. `cache` selects
    prompt caching (docs/caching.md).
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
            raise UsageError(f"session: {session!r} is not a session: pass ibidem.Session(), or omit it")
        if session is not None and self._cache:
            raise UsageError("cache: not allowed with session=, which has this setting: pass ibidem.Session(cache=…)")
        self._profile = profile
        self._session = session
        self._store = store
        self._final = all(each.final for each in strategies)
        self._lock = threading.Lock()
        self._lives: dict[str, Live] = {}
        """Live rewriters by profile. If thinking is not visible, `lossless` is used in addition."""
        self._asks = not self._final if session is None else session.revises
        """True if rewriting a request may access a store, which can be slow."""
        self.now = SYSTEM_CLOCK.time

    def __deepcopy__(self, memo: dict[int, Any]) -> Seat:
        """Return the same object, so that copies of its owner continue the same conversations."""
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
        """Rewrite a history in a wire format. `head` are request parameters, `conversation` is its id, if known."""
        job = safely(self._job, format, history, model, conversation, head, otherwise=None)
        if job is None:
            return Turn(self, RewriteResult(result="failed open"), history)
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
        """Rewrite a history like `rewrite`, in a thread if it is long, so that the event loop continues."""
        job = safely(self._job, format, history, model, conversation, head, otherwise=None)
        if job is None:
            return Turn(self, RewriteResult(result="failed open"), history)
        return await self.aside(len(job.body), self._turn, job, model, history, head)

    async def aside(self, size: int, function: Callable[..., T], *args: Any) -> T:
        """Call a function like `run_in_thread`, always in a thread if a store is used, because it may be slow."""
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
        return ShadowTurn(Turn(self, RewriteResult(result="unchanged"), shadow.history), shadow)

    def _job(
        self, format: str, history: list[Any], model: str, conversation: str, head: Mapping[str, Any] | None
    ) -> LiveRequest:
        named = {"model": model} if model else {}
        body = _json({**(head or {}), **named, formats.named(format).history_key: history})
        return self.job(format, body, conversation)

    def _turn(self, job: LiveRequest, model: str, history: list[Any], head: Mapping[str, Any] | None = None) -> Turn:
        outcome = self.outcome(job, model)
        self.accepted(outcome)  # these adapters do not see rejections
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
    ) -> LiveRequest:
        """Return the rewriting task for a request body. `model` is for bodies without a model name."""
        seconds = PATIENCE_SECONDS
        return LiveRequest(
            format, conversation, encoding, body, self.now(), counts, MAX_BODY, seconds, seconds, model=model
        )

    def outcome(self, job: LiveRequest, model: str = "") -> RewriteResult:
        """Rewrite a request body. If `RewriteResult.body` is None, send the original."""
        try:
            if self._session is not None:
                return self._by_session(self._session, job)
            return self._live(job.format, model).rewrite(job)
        except Exception as error:
            return failed_open(error)

    def _by_session(self, session: Session, job: LiveRequest) -> RewriteResult:
        if job.encoding not in ("", "identity") or job.counts:
            return RewriteResult(result="unchanged")
        with self._lock:
            compacted = session.compact(job.body, at=job.at)
            place = None if compacted.reason else session.position
        if compacted.reason:
            log.warning("request sent unchanged: %s", compacted.reason.partition(":")[0])
        changed = compacted.request is not job.body
        return RewriteResult(
            result="rewritten" if changed else "unchanged",
            body=compacted.request if changed else None,
            reason=compacted.reason,
            edits=compacted.plan.edits,
            marks=compacted.marks,
            kept=compacted.kept,
            model=_model(job),
            place=place,
            job=job,
        )

    def _live(self, format: str, model: str) -> Live:
        """Return the live rewriter for a request.

        A revision makes signed thinking invalid, because the signature covers the text that was sent. If the thinking
        is not visible here, it cannot be removed, so the profile is `lossless`, which never revises.
        """
        unseen = format in WITHOUT_THINKING and not self._final and signs_thinking(model)
        profile = "lossless" if unseen else self._profile
        with self._lock:
            live = self._lives.get(profile)
            if live is None:
                final = unseen or self._final
                store = self._store or (MemoryStore() if final else default_store())
                live = self._lives[profile] = Live.for_profile(
                    profile, store, cache=self._cache, run_later=later, on_fault=_report_fault
                )
            return live

    def _live_of(self, outcome: RewriteResult) -> Live:
        """Return the live rewriter that rewrote a request."""
        for live in list(self._lives.values()):
            if live.has(outcome):
                return live
        job = outcome.job
        return self._live(job.format if job is not None else "", outcome.model)

    # ── results ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def instead(self, rejected: RewriteResult, kind: str, names_thinking: bool) -> RewriteResult | None:
        """Return the next body for a request that the provider rejected; None if all bodies were rejected."""
        job = rejected.job
        if self._session is not None and job is not None and rejected.body is not None:
            with failing_open():
                self._session.sent_otherwise(job.body, 0, refused=True, at=job.at)
        return self._live_of(rejected).refused(rejected, kind, names_thinking)

    def accepted(self, outcome: RewriteResult) -> None:
        """Record that the provider accepted a request. The conversation continues in this form."""
        with failing_open():
            if outcome.conversation is not None or outcome.deviation is not None:
                self._live_of(outcome).accepted(outcome)

    def sent_as_it_came(self, outcome: RewriteResult) -> RewriteResult:
        """Record that the original was sent, because the provider or the framework rejected the rewritten request."""
        return self._live_of(outcome).sent_as_it_came(outcome, refused=True)

    def refuse(self, outcome: RewriteResult) -> None:
        """Record the rejection of a request that cannot be sent again here. Later ones get no cache breakpoints."""
        with failing_open():
            if self._session is not None and outcome.place is not None:
                self._session.refuse(outcome.place)
            elif outcome.conversation is not None:
                self._live_of(outcome).without_breakpoints(outcome)

    def answered(
        self, outcome: RewriteResult, context: int | None = None, cached: int | None = None, cleared: bool = False
    ) -> None:
        """Record the input tokens that the provider reported, and whether it cleared tool results."""
        with failing_open():
            if outcome.place is None:
                return
            if self._session is not None:
                self._session.answered(
                    at=self.now(), context=context, cached=cached, position=outcome.place, cleared=cleared
                )
            elif outcome.conversation is not None:
                self._live_of(outcome).answered(outcome, Counted(context, cached, cleared), at=self.now())

    def charged(self, outcome: RewriteResult, usage: Usage, cleared: bool = False) -> None:
        self.answered(outcome, usage.input, usage.read, cleared)


def _report_fault(error: Exception, what: str) -> None:
    """Log an error, except a store's, which is already logged with the request."""
    if not isinstance(error, StoreError):
        failed_open(error)


def _json(value: Any) -> bytes:
    """Encode a request as JSON for planning. Framework objects in it are converted to their fields."""
    import msgspec

    try:
        return msgspec.json.encode(value, enc_hook=_fields)
    except (TypeError, ValueError, OverflowError):  # lone surrogates, long numbers
        return json.dumps(value, default=_fields).encode()


def _model(job: LiveRequest) -> str:
    """Return the model name in a request body, without parsing the rest."""
    import msgspec

    try:
        named = msgspec.json.decode(job.body, type=dict[str, msgspec.Raw]).get("model", b'""')
        return job.model or msgspec.json.decode(named, type=str)
    except (msgspec.MsgspecError, ValueError):
        return ""


def _fields(value: Any) -> Any:
    dump = getattr(value, "model_dump", None)
    if dump is None:
        raise TypeError(f"{type(value).__name__} is not JSON")
    return dump(mode="json", exclude_none=True)
