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
from ..billing.cache_ttl import CacheMode, validate_cache_mode
from ..billing.thinking_size import signs_thinking
from ..engine.breakpoint_placement import CacheSettings
from ..engine.session import Session
from ..errors import UsageError
from ..live import MAX_BODY as MAX_BODY
from ..live import SYSTEM_CLOCK, Live, LiveRequest, ProviderCount, RewriteResult
from ..store import MemoryStore, StoreError
from ..store.recall import check_store, default_store
from ..strategies import profiles
from ._offload import LONG_BYTES, run_later
from ._offload import run_in_thread as run_in_thread
from ._pending import MirroredRequest as MirroredRequest
from ._pending import PendingRequest as PendingRequest
from ._pending import call_or_default as call_or_default
from ._pending import log_errors as log_errors
from ._pending import pass_through_result
from ._requirements import check_tested_version as check_tested_version
from ._requirements import missing_framework_error as missing_framework_error

if TYPE_CHECKING:
    from ..billing.usage import Usage
    from ..store import Store
    from ._wire_mirror import WireMirror

log = logging.getLogger("ibidem")
T = TypeVar("T")

MAX_WAIT_SECONDS = 5.0
"""Maximum time that a request waits for another request of the same conversation."""
FORMATS_WITHOUT_THINKING = frozenset({"openai-chat"})
"""Formats without visible signed thinking: it is in fields of the framework, or missing in the mirrored history."""


class RequestRewriter:
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
        self._cache = CacheSettings(validate_cache_mode(cache))
        strategies = profiles.profile_strategies(profile)
        check_store(store)
        if not isinstance(session, Session | None):
            raise UsageError(f"session: {session!r} is not a session: pass ibidem.Session(), or omit it")
        if session is not None and self._cache:
            raise UsageError("cache: not allowed with session=, which has this setting: pass ibidem.Session(cache=…)")
        self._profile = profile
        self._session = session
        self._store = store
        self._never_revises = all(each.final for each in strategies)
        self._lock = threading.Lock()
        self._lives: dict[str, Live] = {}
        """Live rewriters by profile. If thinking is not visible, `lossless` is used in addition."""
        self._uses_store = not self._never_revises if session is None else session.revises
        """True if rewriting a request may access a store, which can be slow."""
        self.now = SYSTEM_CLOCK.time

    def __deepcopy__(self, memo: dict[int, Any]) -> RequestRewriter:
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
    ) -> PendingRequest:
        """Rewrite a history in a wire format. `head` are request parameters, `conversation` is its id, if known."""
        job = call_or_default(self._history_job, format, history, model, conversation, head, default=None)
        if job is None:
            return PendingRequest(self, RewriteResult(result="failed open"), history)
        return self._pending_request(job, model, history, head)

    async def arewrite(
        self,
        format: str,
        history: list[Any],
        *,
        model: str = "",
        conversation: str = "",
        head: Mapping[str, Any] | None = None,
    ) -> PendingRequest:
        """Rewrite a history like `rewrite`, in a thread if it is long, so that the event loop continues."""
        job = call_or_default(self._history_job, format, history, model, conversation, head, default=None)
        if job is None:
            return PendingRequest(self, RewriteResult(result="failed open"), history)
        return await self.run_in_thread(len(job.body), self._pending_request, job, model, history, head)

    async def run_in_thread(self, size: int, function: Callable[..., T], *args: Any) -> T:
        """Call a function like `run_in_thread`, always in a thread if a store is used, because it may be slow."""
        return await run_in_thread(LONG_BYTES + 1 if self._uses_store else size, function, *args)

    def rewrite_mirror(self, mirror: WireMirror, *, model: str = "", conversation: str = "") -> MirroredRequest:
        if not mirror.is_identifiable:
            return self._unchanged_mirror(mirror)
        return MirroredRequest(
            self.rewrite(mirror.format, mirror.history, model=model, conversation=conversation), mirror
        )

    async def arewrite_mirror(self, mirror: WireMirror, *, model: str = "", conversation: str = "") -> MirroredRequest:
        if not mirror.is_identifiable:
            return self._unchanged_mirror(mirror)
        pending = await self.arewrite(mirror.format, mirror.history, model=model, conversation=conversation)
        return MirroredRequest(pending, mirror)

    def _unchanged_mirror(self, mirror: WireMirror) -> MirroredRequest:
        return MirroredRequest(PendingRequest(self, RewriteResult(result="unchanged"), mirror.history), mirror)

    def _history_job(
        self, format: str, history: list[Any], model: str, conversation: str, head: Mapping[str, Any] | None
    ) -> LiveRequest:
        model_field = {"model": model} if model else {}
        body = _encode_request({**(head or {}), **model_field, formats.format_named(format).history_key: history})
        return self.make_job(format, body, conversation)

    def _pending_request(
        self, job: LiveRequest, model: str, history: list[Any], head: Mapping[str, Any] | None = None
    ) -> PendingRequest:
        outcome = self.rewrite_body(job, model)
        self.record_acceptance(outcome)  # these adapters do not see rejections
        return PendingRequest(self, outcome, history, job, head)

    # ── bytes ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def make_job(
        self,
        format: str,
        body: bytes,
        conversation: str = "",
        encoding: str = "",
        counts: bool = False,
        model: str = "",
    ) -> LiveRequest:
        """Return the rewriting task for a request body. `model` is for bodies without a model name."""
        seconds = MAX_WAIT_SECONDS
        return LiveRequest(
            format, conversation, encoding, body, self.now(), counts, MAX_BODY, seconds, seconds, model=model
        )

    def rewrite_body(self, job: LiveRequest, model: str = "") -> RewriteResult:
        """Rewrite a request body. If `RewriteResult.body` is None, send the original."""
        try:
            if self._session is not None:
                return self._rewrite_in_session(self._session, job)
            return self._live_for(job.format, model).rewrite_request(job)
        except Exception as error:
            return pass_through_result(error)

    def _rewrite_in_session(self, session: Session, job: LiveRequest) -> RewriteResult:
        if job.encoding not in ("", "identity") or job.is_count_only:
            return RewriteResult(result="unchanged")
        with self._lock:
            result = session.compact(job.body, at=job.at)
            position = None if result.reason else session.position
        if result.reason:
            log.warning("request sent unchanged: %s", result.reason.partition(":")[0])
        is_changed = result.request is not job.body
        return RewriteResult(
            result="rewritten" if is_changed else "unchanged",
            body=result.request if is_changed else None,
            reason=result.reason,
            edits=result.plan.edits,
            cache_additions=result.marks,
            ttl_decision=result.kept,
            model=_model_name(job),
            position=position,
            job=job,
        )

    def _live_for(self, format: str, model: str) -> Live:
        """Return the live rewriter for a request.

        A revision makes signed thinking invalid, because the signature covers the text that was sent. If the thinking
        is not visible here, it cannot be removed, so the profile is `lossless`, which never revises.
        """
        has_hidden_thinking = format in FORMATS_WITHOUT_THINKING and not self._never_revises and signs_thinking(model)
        profile = "lossless" if has_hidden_thinking else self._profile
        with self._lock:
            live = self._lives.get(profile)
            if live is None:
                never_revises = has_hidden_thinking or self._never_revises
                store = self._store or (MemoryStore() if never_revises else default_store())
                live = self._lives[profile] = Live.for_profile(
                    profile, store, cache=self._cache, run_later=run_later, on_fault=_report_fault
                )
            return live

    def _live_that_rewrote(self, outcome: RewriteResult) -> Live:
        """Return the live rewriter that rewrote a request."""
        for live in list(self._lives.values()):
            if live.has_conversation_of(outcome):
                return live
        job = outcome.job
        return self._live_for(job.format if job is not None else "", outcome.model)

    # ── results ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def next_attempt(self, rejected_result: RewriteResult, kind: str, names_thinking: bool) -> RewriteResult | None:
        """Return the next body for a request that the provider rejected; None if all bodies were rejected."""
        job = rejected_result.job
        if self._session is not None and job is not None and rejected_result.body is not None:
            with log_errors():
                self._session.sent_otherwise(job.body, 0, refused=True, at=job.at)
        return self._live_that_rewrote(rejected_result).report_rejected(rejected_result, kind, names_thinking)

    def record_acceptance(self, outcome: RewriteResult) -> None:
        """Record that the provider accepted a request. The conversation continues in this form."""
        with log_errors():
            if outcome.conversation is not None or outcome.unreported_send is not None:
                self._live_that_rewrote(outcome).report_accepted(outcome)

    def record_fallback(self, outcome: RewriteResult) -> RewriteResult:
        """Record that the original was sent, because the provider or the framework rejected the rewritten request."""
        return self._live_that_rewrote(outcome).report_sent_unchanged(outcome, is_rejected=True)

    def record_rejection(self, outcome: RewriteResult) -> None:
        """Record the rejection of a request that cannot be sent again here. Later ones get no cache breakpoints."""
        with log_errors():
            if self._session is not None and outcome.position is not None:
                self._session.refuse(outcome.position)
            elif outcome.conversation is not None:
                self._live_that_rewrote(outcome).report_breakpoint_rejection(outcome)

    def record_input_tokens(
        self,
        outcome: RewriteResult,
        context_tokens: int | None = None,
        cached_tokens: int | None = None,
        has_cleared_results: bool = False,
    ) -> None:
        """Record the input tokens that the provider reported, and whether it cleared tool results."""
        with log_errors():
            if outcome.position is None:
                return
            if self._session is not None:
                self._session.answered(
                    at=self.now(),
                    context=context_tokens,
                    cached=cached_tokens,
                    position=outcome.position,
                    cleared=has_cleared_results,
                )
            elif outcome.conversation is not None:
                self._live_that_rewrote(outcome).report_usage(
                    outcome, ProviderCount(context_tokens, cached_tokens, has_cleared_results), time=self.now()
                )

    def record_usage(self, outcome: RewriteResult, usage: Usage, has_cleared_results: bool = False) -> None:
        self.record_input_tokens(outcome, usage.input, usage.read, has_cleared_results)


def _report_fault(error: Exception, what: str) -> None:
    """Log an error, except a store's, which is already logged with the request."""
    if not isinstance(error, StoreError):
        pass_through_result(error)


def _encode_request(value: Any) -> bytes:
    """Encode a request as JSON for planning. Framework objects in it are converted to their fields."""
    import msgspec

    try:
        return msgspec.json.encode(value, enc_hook=_object_fields)
    except (TypeError, ValueError, OverflowError):  # lone surrogates, long numbers
        return json.dumps(value, default=_object_fields).encode()


def _model_name(job: LiveRequest) -> str:
    """Return the model name in a request body, without parsing the rest."""
    import msgspec

    try:
        raw_model = msgspec.json.decode(job.body, type=dict[str, msgspec.Raw]).get("model", b'""')
        return job.model or msgspec.json.decode(raw_model, type=str)
    except (msgspec.MsgspecError, ValueError):
        return ""


def _object_fields(value: Any) -> Any:
    dump = getattr(value, "model_dump", None)
    if dump is None:
        raise TypeError(f"{type(value).__name__} is not JSON")
    return dump(mode="json", exclude_none=True)
