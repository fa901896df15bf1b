"""The running proxy: dispatch requests, rewrite them in threads with time limits, and close everything at the end."""

from __future__ import annotations

import asyncio
import errno
import gc
import json
import logging
import os
import sys
import threading
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict
from functools import cache, partial
from typing import IO, Any, Self

from aiohttp import web
from msgspec.structs import replace

from ...billing.cache_ttl import IdleTimes
from ...billing.input_estimate import NO_INPUT, InputEstimate, LazyInputEstimate
from ...engine.breakpoint_placement import CacheSettings
from ...environment import store_target
from ...errors import IbidemError
from ...live.conversation import AnsweredRequest, LiveConversation, ProviderCount, SentRequest, UnreportedSend
from ...live.fallback import (
    after_rejections,
    continue_without_thinking,
    fall_back,
    needs_known_start,
    next_body,
    original_result,
    rebuild_sent_prefix,
)
from ...live.live import Rewriter
from ...live.pool import TooLate, Workers, WorkerTask
from ...live.recognition import Conversations
from ...live.types import SYSTEM_CLOCK, Clock, LiveRequest, RewriteResult, error_location
from ...providers.default_upstreams import DefaultUpstreams
from ...providers.headers import Headers
from ...store import Limits, Store, open_store
from ..accounting import live_stats
from ..accounting.capture import open_recorder
from ..accounting.error_barrier import ErrorBarrier
from ..accounting.live_stats import LiveStats
from ..accounting.telemetry import open_telemetry
from ..accounting.usage_writer import UsageWriter
from ..allocator import return_free_memory, use_one_arena
from ..claude_hooks import ToolHooks
from ..compact_endpoint import is_compact_request
from ..experiment import RandomAssigner, is_only_measured, load_shared_key
from ..page import admin_pages, pause_control
from ..settings import Settings
from ..warmup import WarmUp
from .admin_routes import handle_admin
from .compact_route import handle_compact
from .exchange_driver import Driver
from .response_writer import decode_headers, error_response, page_response
from .upstreams import Upstreams, find_egress

log = logging.getLogger("ibidem")

WORKERS, LARGE_WORKERS, FALLBACK_WORKERS, NOTE_WORKERS = 4, 2, 4, 2
"""Threads to rewrite requests, to rewrite large requests, for fallbacks, and to save journals.

Fallbacks have their own threads, because they must not wait for anything. Large requests have their own, so that a
client with many of them delays only itself.
"""
LARGE_BYTES = 2**20
"""Size above which a request is large."""
CLOSING_SECONDS = 2.0
"""Minimum time limit for a fallback."""
MAX_WAIT_SECONDS = 20.0
"""Maximum wait of a request that the provider would reject in any other form, which ends the agent's turn."""
NOTE_SECONDS = 15.0
"""Maximum wait of a journal entry for a busy conversation, and of the proxy's end for journal entries."""
THINKING_DROPPED = (
    "The provider rejected the thinking of a conversation, because the proxy no longer knows how its earlier requests "
    "were sent. It continues without that thinking. Start a new conversation to use thinking again."
)
START_SECONDS = 0.25
"""Maximum time that the start waits for pauses in the store."""
PAUSE_SECONDS = 1.0
"""Time between two reads of the pauses of other replicas."""
PAUSED = "All conversations are paused in the store. Run `ibidem on --all` to rewrite requests again."
PRUNE_SECONDS = 6 * 3600.0
"""Time between two deletions of expired data in the store."""
Fallback = Callable[[Conversations, LiveRequest, RewriteResult], RewriteResult | None]
SWITCH_SECONDS = 0.0005
"""Switch interval of threads. Short, because forwarding needs many short turns while other threads rewrite."""
GARBAGE = (7000, 20, 2)
"""Thresholds of the garbage collector: ten times the default for new objects, because a request leaves about a hundred
objects for later ones. Full collections are four times rarer, because requests and conversations leave no cycles."""
BUSY_REASON = "busy: earlier requests take too long"


class Proxy:
    """Running proxy. Use it as an async context manager, and pass requests to `handle`."""

    def __init__(
        self,
        settings: Settings,
        store: Store | None = None,
        clock: Clock = SYSTEM_CLOCK,
        pauses: IdleTimes | None = None,
        gains: UsageWriter | None = None,
    ) -> None:
        """`pauses`: idle times of the user so far, to choose a TTL. `gains`: writer for the usage database."""
        self.settings = settings
        self.clock = clock
        self.egress = find_egress(settings.upstreams)  # may raise, so before anything is opened
        self.default_upstreams = DefaultUpstreams.from_upstreams(settings.upstreams, settings.regions)
        self.telemetry = open_telemetry(settings)  # may raise too
        self.log_file = _open_log(settings.json_log) if settings.json_log else None
        self._log_full = False
        limits = Limits.of(settings.store_days, settings.store_bytes)
        self.store = store or open_store(settings.store or store_target(), limits=limits)
        self.assigner = (
            RandomAssigner(load_shared_key(self.store), settings.trial) if settings.trial is not None else None
        )
        # Processes that share a port get requests for each other's pages, so ids must be unique among them.
        prefix = f"p{os.getpid()}-" if settings.reuse_port else ""
        memory_bytes = int((1 - live_stats.PAGE_SHARE) * settings.memory_mb * 2**20)
        self.conversations = Conversations(
            settings.profile,
            self.store,
            settings.conversations,
            memory_bytes,
            settings.observe,
            CacheSettings(settings.cache_mode, pauses or IdleTimes()),
            prefix,
            self.assigner,
            return_free_memory,
        )
        self.rewriter = Rewriter(self.conversations, settings.observe, settings.max_body, settings.max_rewrite, clock)
        self.started = clock.time()
        self.stats = LiveStats(settings, self.started, prefix)
        self.gains = gains
        self.recorder = open_recorder(settings, clock)
        self.hooks = ToolHooks()
        off = partial(pause_control.conversation_state, self.conversations)
        self.pages = admin_pages.AdminPages(settings, self.stats, self.store, clock.time, gains, off)
        self._workers = Workers(WORKERS, "ibidem", clock)
        self._large = Workers(LARGE_WORKERS, "ibidem-large", clock)
        self._fallback_pool = ThreadPoolExecutor(FALLBACK_WORKERS, "ibidem-out")
        self._note_pool = ThreadPoolExecutor(NOTE_WORKERS, "ibidem-notes")
        self._warmup = WarmUp(settings)
        self.stopping = asyncio.Event()
        self._closing = threading.Event()
        self._background: set[asyncio.Task[None]] = set()
        self._pauses_read = -PAUSE_SECONDS
        """Time when pauses of other replicas were read last."""
        self.guarded: Callable[[str], ErrorBarrier] = cache(partial(ErrorBarrier, self.report_fault))
        """Error barrier by part of the accounting. Cached, because a request uses several."""
        self.faults: set[str] = set()
        """Errors that were already reported."""

    async def __aenter__(self) -> Self:
        self.upstreams = Upstreams(self.settings.upstreams, self.egress)
        loop = self.loop = asyncio.get_running_loop()
        self.recorder.start(lambda text: loop.call_soon_threadsafe(self._report_recording, text))
        self.conversations.on_pause_change = self._store_switched
        self._in_background(self._read_first_pauses())
        await asyncio.wait(self._background, timeout=START_SECONDS)
        sys.setswitchinterval(min(SWITCH_SECONDS, sys.getswitchinterval()))
        gc.set_threshold(*max(GARBAGE, gc.get_threshold()))
        use_one_arena()
        return self

    async def __aexit__(self, *exception: object) -> None:
        self._closing.set()
        await self.upstreams.close()
        if self._background:
            await asyncio.wait(self._background, timeout=NOTE_SECONDS)
        await asyncio.get_running_loop().run_in_executor(None, self.recorder.close)
        for workers in (self._workers, self._large):
            workers.pool.shutdown()
        for pool in (self._fallback_pool, self._note_pool):
            pool.shutdown(wait=False, cancel_futures=True)
        if self.log_file is not None and self.settings.json_log != "-":
            self.log_file.close()
        self.store.close()

    def start_background(self) -> None:
        """Start the background work."""
        self._warmup.start_early()
        threading.Thread(target=self._prune_store, daemon=True).start()
        if self.telemetry.trouble:
            log.warning(self.telemetry.trouble)
            self.stats.add_event("telemetry", self.clock.time(), self.telemetry.trouble)

    def get_ready(self, rehearse: bool) -> None:
        """Load what rewriting needs. With `rehearse`, also run the rehearsal, because a request will come soon."""
        self._warmup.begin_loading()
        if rehearse:
            self._warmup.begin_rehearsal()

    def _prune_store(self) -> None:
        """Delete expired data in the store from time to time. Writes do that too, but there may be none."""
        while True:
            try:
                if self.assigner is not None:
                    self.assigner.save_key(self.store)
                self.store.prune()
            except IbidemError as error:
                log.warning("expired data was not deleted from the store: %s", error)
            except Exception as error:
                self.report_fault(error, "tidy")
            if self._closing.wait(PRUNE_SECONDS):
                return

    # ── dispatch ────────────────────────────────────────────────────────────────────────────────────────────────────

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """Respond to a request. Never raises."""
        try:
            return await self._dispatch_request(request)
        except Exception as error:
            self.report_fault(error, "handle")
            return error_response(500, "error in the proxy: see its log")

    async def _dispatch_request(self, request: web.BaseRequest) -> web.StreamResponse:
        indexed, target = Headers(decode_headers(request.raw_headers)), request.raw_path
        headers = indexed.lasts
        if admin_pages.OWN_NAME in target:
            if is_compact_request(target):
                return await handle_compact(self, request, target, headers)
            if admin_pages.is_own_page(target):
                return await handle_admin(self, request, target, headers)
        if admin_pages.is_rebound(self.settings, target, headers):
            refusal = error_response(
                403, "unknown host name for this proxy: use the address that it printed, or set a token"
            )
            refusal.force_close()
            return refusal
        if admin_pages.is_foreign_websocket(self.settings, target, headers):
            refusal = error_response(
                403, "a web page of another site may not open a WebSocket here: set a token to allow it"
            )
            refusal.force_close()
            return refusal
        if (redirect := admin_pages.redirect_browser(request.method, target, headers)) is not None:
            return page_response(redirect)
        if not admin_pages.has_token(self.settings, target, headers):
            refusal = error_response(401, "this proxy needs its token: send it as the header x-ibidem-token")
            refusal.force_close()  # the body is not read
            return refusal
        self._warmup.begin_loading()
        return await Driver(self, request, indexed, admin_pages.remove_tokens(self.settings, target)).run_exchange()

    # ── rewriting ───────────────────────────────────────────────────────────────────────────────────────────────────

    async def rewrite_request(self, job: LiveRequest) -> RewriteResult:
        """Rewrite a request within its time budget. After an error, the result is the fallback. Never raises."""
        self.hooks.note_proxied_session(job.client_name)
        self._read_pauses()
        try:
            result = await self._rewrite_in_time(job)
        except Exception as error:
            self.report_fault(error, "rewrite")
            result = RewriteResult(result="failed open", reason=f"{type(error).__name__} in the proxy")
        self._warmup.begin_rehearsal()
        if result.is_client_fault:
            log.info("request forwarded unchanged: %s", result.reason)
        elif result.result == "failed open":
            log.warning("request sent without new edits: %s", result.reason)
        needs_fallback = result.result in ("failed open", "off") and not result.is_client_fault
        return await self._without_rejected_thinking(
            job, await self._fall_back(job, result) if needs_fallback else result
        )

    # ── pauses ──────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _read_first_pauses(self) -> None:
        self._pauses_read = self.clock.monotonic()
        await self._in_note_pool(self.conversations.read_pauses)
        if self.conversations.all_off:
            self.stats.add_event("switch", self.clock.time(), PAUSED)
            log.warning(PAUSED)

    def _read_pauses(self) -> None:
        """Read pauses of other replicas in the background. They apply from the next request on."""
        now = self.clock.monotonic()
        if now - self._pauses_read >= PAUSE_SECONDS:
            self._pauses_read = now
            self._in_background(self._in_note_pool(self.conversations.read_pauses))

    def store_pause(self, name: str, off: bool) -> None:
        """Store a pause of a conversation, or of all (no name), for other replicas."""
        self._in_background(self._in_note_pool(partial(self.conversations.add_pause, name, off)))

    def _store_switched(self, conversation: LiveConversation) -> None:
        """Store that a request has paused or resumed its conversation. Called in any thread."""
        self.loop.call_soon_threadsafe(self.store_pause, conversation.name, conversation.is_paused)

    async def _without_rejected_thinking(self, job: LiveRequest, result: RewriteResult) -> RewriteResult:
        """Continue a conversation without its thinking, if that was rejected."""
        conversation = result.conversation or job.conversation
        if conversation is None or not conversation.thinking_dropped:
            return result
        return (
            await self._in_time(self._fallback_pool, continue_without_thinking, job, result, CLOSING_SECONDS) or result
        )

    async def _rewrite_in_time(self, job: LiveRequest) -> RewriteResult:
        large = len(job.body) > LARGE_BYTES
        if not large and self._warmup.is_complete and (result := self.rewriter.rewrite_warm(job)) is not None:
            return result
        workers = self._large if large else self._workers
        budget = job.budget = self.settings.budget_ms / 1e3 + self._warmup.allowance
        job.patience = budget + MAX_WAIT_SECONDS  # upper bound; `finish` waits until the job ends
        if workers.is_exhausted(budget):
            return RewriteResult(result="failed open", reason=BUSY_REASON)
        try:
            work = partial(self.rewriter.rewrite_request, job)
            return await workers.run_task(work, budget, job.try_end, partial(self._extra_seconds, job, budget))
        except TooLate as error:
            job.late_result = error.errand
            return RewriteResult(
                result="failed open", reason="time-out" if error.errand else BUSY_REASON, seconds=budget
            )

    async def _extra_seconds(self, job: LiveRequest, budget: float) -> float:
        """Return extra seconds for a request that the provider would reject in any other form.

        That is the case if the model signs thinking, and the proxy does not know how earlier messages were sent.
        """
        if budget >= MAX_WAIT_SECONDS or self.settings.observe or is_only_measured(self.assigner, job):
            return 0.0
        if not needs_known_start(job):
            return 0.0
        failed = RewriteResult(result="failed open")
        fallback = await self._in_time(self._fallback_pool, fall_back, job, failed, CLOSING_SECONDS)
        return 0.0 if fallback is not None and fallback.first_new else MAX_WAIT_SECONDS - budget

    async def _fall_back(self, job: LiveRequest, failed: RewriteResult) -> RewriteResult:
        """Return the body to send after a failure: with the sent prefix if known, else unchanged."""
        if self.settings.observe:
            return failed
        budget = self.settings.budget_ms / 1e3
        if is_only_measured(self.assigner, job):
            return replace(original_result(job, failed), sent_request=None, unreported_send=None)
        fallback = (
            await self._in_time(self._fallback_pool, fall_back, job, failed, max(budget, CLOSING_SECONDS)) or failed
        )
        if failed.seconds >= budget:  # rebuilding the prefix would take as long as the rewrite that was too slow
            return fallback
        return await self._in_time(self._fallback_pool, rebuild_sent_prefix, job, fallback, budget) or fallback

    async def _in_time(
        self, pool: ThreadPoolExecutor, work: Fallback, job: LiveRequest, failed: RewriteResult, patience: float
    ) -> RewriteResult | None:
        working = pool.submit(work, self.conversations, job, failed)
        awaitable = asyncio.wrap_future(working)
        try:
            await asyncio.wait((awaitable,), timeout=patience)
            if awaitable.done():
                return await awaitable
            working.cancel()
        except IbidemError as error:
            log.debug("a request is sent unchanged: %s", error)
        except Exception as error:
            self.report_fault(error, "way out")
        return None

    async def retry_request(
        self,
        job: LiveRequest,
        rejected: RewriteResult,
        kind: str,
        rejected_bodies: Sequence[bytes],
        names_thinking: bool,
    ) -> RewriteResult | None:
        """Return the next body for a request that the provider rejected; None if there is no other."""
        log.warning("the provider rejected a request: %s", kind)
        if is_only_measured(self.assigner, job):
            return None
        if isinstance(job.late_result, WorkerTask):
            workers = self._large if len(job.body) > LARGE_BYTES else self._workers
            await workers.wait_for_task(job.late_result, self.settings.budget_ms / 1e3)

        def choose_body(
            conversations: Conversations, job: LiveRequest, rejected: RewriteResult
        ) -> RewriteResult | None:
            return next_body(conversations, job, rejected, kind, rejected_bodies, names_thinking)

        next_result = await self._in_time(self._fallback_pool, choose_body, job, rejected, MAX_WAIT_SECONDS)
        if next_result is None or next_result.new_input is not NO_INPUT:
            return next_result
        return replace(
            next_result, new_input=LazyInputEstimate(initial=InputEstimate(asked=rejected.new_input().asked))
        )

    async def next_client_body(self, job: LiveRequest, count: int) -> RewriteResult:
        """Return the next body for a client that sends it itself, after `count` rejections."""
        failed = RewriteResult(result="failed open", reason="refused by the provider, as the client says")

        def write_body(conversations: Conversations, job: LiveRequest, failed: RewriteResult) -> RewriteResult:
            return after_rejections(conversations, job, count)

        return await self._in_time(self._fallback_pool, write_body, job, failed, MAX_WAIT_SECONDS) or failed

    def accept_request(self, outcome: RewriteResult) -> None:
        """Store how an accepted request was sent, so that later requests start with the same bytes."""
        conversation, deviation = outcome.conversation, outcome.unreported_send
        if conversation is not None:
            conversation.record_accepted(outcome.sent_request, deviation)
        if outcome.thinking_dropped:
            log.warning(THINKING_DROPPED)
            self.stats.add_event(
                "thinking", self.clock.time(), THINKING_DROPPED, conversation.id if conversation is not None else ""
            )
        if deviation is not None:
            self._in_background(self._settle_conversation(conversation, outcome.sent_request, deviation))

    async def _settle_conversation(
        self,
        conversation: LiveConversation | None,
        sent_request: SentRequest | None,
        deviation: UnreportedSend | None = None,
    ) -> None:
        """Apply the inbox of a conversation to its session, and save it. No request waits for this."""

        def settle_and_save() -> None:
            live = conversation
            if live is None and deviation is not None:
                live = self.conversations.adopt_request(sent_request, deviation)
            if live is not None and live.lock.acquire(timeout=NOTE_SECONDS):
                try:
                    self.conversations.apply_inbox(live)
                    self.conversations.save_journal(live, in_background=True)
                finally:
                    live.lock.release()

        await self._in_note_pool(settle_and_save, conversation.id if conversation is not None else "")

    async def _in_note_pool(self, work: Callable[[], None], conversation: str = "") -> None:
        try:
            await asyncio.get_running_loop().run_in_executor(self._note_pool, work)
        except IbidemError as error:
            self.stats.add_event("store", self.clock.time(), str(error), conversation)
        except Exception as error:
            self.report_fault(error, "remember")

    def _in_background(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    def store_usage(self, outcome: RewriteResult, provider_count: ProviderCount, collapsed: bool) -> None:
        """Store the usage of a response for the next request of its conversation. The store is written later."""
        conversation = outcome.conversation
        if conversation is None or not (self.conversations.needs_journal or provider_count.has_cleared_results):
            return
        if outcome.position is None:  # the request is unknown, so its counts cannot be assigned
            provider_count = ProviderCount(has_cleared_results=provider_count.has_cleared_results)
        conversation.inbox.append(AnsweredRequest(outcome.position, self.clock.time(), provider_count, collapsed))
        self._in_background(self._settle_conversation(conversation, None))

    # ── logs ────────────────────────────────────────────────────────────────────────────────────────────────────────

    def write_log(self, exchange: live_stats.ExchangeRow) -> None:
        """Write a request to the JSON log, if there is one."""
        if self.log_file is None:
            return
        try:
            # Several proxies may write to one file, so each row identifies its run.
            whose = {"started": self.started, "observe": self.settings.observe}
            append_row(self.log_file, json.dumps(asdict(exchange) | whose).encode() + b"\n")
            self._log_full = False
        except OSError as error:
            if error.errno == errno.ENOSPC:
                self._report_full_log(error)
            else:
                self._stop_log(error)
        except ValueError as error:
            self._stop_log(error)

    def _report_full_log(self, error: OSError) -> None:
        """Drop the row and report it once. The next row is tried again, because a full disk may get room."""
        if not self._log_full:
            text = f"{self.settings.json_log}: {error}: requests are not logged until there is room"
            self.stats.add_event("log", self.clock.time(), text)
        self._log_full = True

    def _stop_log(self, error: Exception) -> None:
        self.log_file = None
        message = f"{self.settings.json_log}: {error}: logging to this file has stopped"
        self.stats.add_event("log", self.clock.time(), message)

    def write_usage(self, exchange: live_stats.ExchangeRow, session: str, is_lost: bool) -> None:
        """Store a model call in the usage database, if there is one."""
        if self.gains is not None and exchange.kind in ("model", "signed"):
            self.gains.note(exchange, session, is_lost, self.settings.observe)

    def _report_recording(self, text: str) -> None:
        self.stats.add_event("record", self.clock.time(), text)

    def report_fault(self, error: Exception, what: str) -> None:
        """Report an error of the proxy once, without its message, which may quote a client's text."""
        fault = f"{what}: {error_location(error)}"
        if fault not in self.faults:
            self.faults.add(fault)
            log.error("error in the proxy (requests continue): %s", fault)
            with suppress(Exception):
                self.stats.add_event("error", self.clock.time(), fault)


def append_row(file: IO[bytes], row: bytes) -> None:
    """Write `row` in one call, because other processes may append to the file. Raises OSError if it does not fit."""
    written_bytes = file.write(row)
    file.flush()
    if written_bytes == len(row):
        return
    handle = file.fileno()
    end = os.lseek(handle, 0, os.SEEK_CUR)
    if os.fstat(handle).st_size == end:  # Remove the partial row, unless another process has appended since.
        os.ftruncate(handle, end - written_bytes)
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _open_log(name: str) -> IO[bytes]:
    if name == "-":
        return sys.stdout.buffer
    try:
        return os.fdopen(os.open(name, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600), "ab", buffering=0)
    except OSError as error:
        raise IbidemError(f"{name}: cannot be written ({error.strerror}): name another with --json-log") from None
