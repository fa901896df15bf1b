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

from ...billing.input_estimate import NOTHING_NEW, NewPart, Reckoned
from ...billing.lifetimes import Pauses
from ...engine.marking import CacheSettings
from ...environment import store_target
from ...errors import IbidemError
from ...live.conversation import AnsweredRequest, Counted, Deviation, LiveConversation, SentRequest
from ...live.fallback import (
    after_rejections,
    bare,
    continue_without_thinking,
    fall_back,
    needs_known_start,
    next_body,
    replayed,
)
from ...live.live import Rewriter
from ...live.pool import Errand, TooLate, Workers
from ...live.recognition import Conversations
from ...live.types import SYSTEM_CLOCK, Clock, LiveRequest, RewriteResult, whereabouts
from ...providers.default_upstreams import DefaultUpstreams
from ...providers.headers import Headers
from ...store import Limits, Store, open_store
from ..allocator import give_back, use_one_arena
from ..books import records
from ..books.gains import GainsWriter
from ..books.guard import Guard
from ..books.records import Records
from ..books.taken import recorder_of
from ..books.telemetry import telemetry_of
from ..compacting import is_compact
from ..experiment import Coin, is_measured, shared_key
from ..hooks import ToolHooks
from ..page import pages, switching
from ..settings import Settings
from ..warmup import WarmUp
from .client_side import error_response, page_response, pairs
from .compacted import compacted
from .driver import Driver
from .own_pages import answered
from .upstreams import Upstreams, egress_of

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
        pauses: Pauses | None = None,
        gains: GainsWriter | None = None,
    ) -> None:
        """`pauses`: idle times of the user so far, to choose a TTL. `gains`: writer for the usage database."""
        self.settings = settings
        self.clock = clock
        self.egress = egress_of(settings.upstreams)  # may raise, so before anything is opened
        self.default_upstreams = DefaultUpstreams.among(settings.upstreams, settings.regions)
        self.telemetry = telemetry_of(settings)  # may raise too
        self.log_file = _opened_log(settings.json_log) if settings.json_log else None
        self._log_full = False
        limits = Limits.of(settings.store_days, settings.store_bytes)
        self.store = store or open_store(settings.store or store_target(), limits=limits)
        self.coin = Coin(shared_key(self.store), settings.trial) if settings.trial is not None else None
        # Processes that share a port get requests for each other's pages, so ids must be unique among them.
        prefix = f"p{os.getpid()}-" if settings.reuse_port else ""
        most = int((1 - records.PAGE_SHARE) * settings.memory_mb * 2**20)
        self.conversations = Conversations(
            settings.profile,
            self.store,
            settings.conversations,
            most,
            settings.observe,
            CacheSettings(settings.asks_to_keep, pauses or Pauses()),
            prefix,
            self.coin,
            give_back,
        )
        self.rewriter = Rewriter(self.conversations, settings.observe, settings.max_body, settings.max_rewrite, clock)
        self.started = clock.time()
        self.records = Records(settings, self.started, prefix)
        self.gains = gains
        self.recorder = recorder_of(settings, clock)
        self.hooks = ToolHooks()
        off = partial(switching.shown, self.conversations)
        self.pages = pages.Pages(settings, self.records, self.store, clock.time, gains, off)
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
        self.guarded: Callable[[str], Guard] = cache(partial(Guard, self.report_fault))
        """Error barrier by part of the accounting. Cached, because a request uses several."""
        self.faults: set[str] = set()
        """Errors that were already reported."""

    async def __aenter__(self) -> Self:
        self.upstreams = Upstreams(self.settings.upstreams, self.egress)
        loop = self.loop = asyncio.get_running_loop()
        self.recorder.start(lambda text: loop.call_soon_threadsafe(self._say_of_recording, text))
        self.conversations.switched = self._note_switched
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

    def warm(self) -> None:
        """Start the background work."""
        self._warmup.started()
        threading.Thread(target=self._tidy, daemon=True).start()
        if self.telemetry.trouble:
            log.warning(self.telemetry.trouble)
            self.records.event("telemetry", self.clock.time(), self.telemetry.trouble)

    def get_ready(self, rehearse: bool) -> None:
        """Load what rewriting needs. With `rehearse`, also run the rehearsal, because a request will come soon."""
        self._warmup.request_came()
        if rehearse:
            self._warmup.request_went()

    def _tidy(self) -> None:
        """Delete expired data in the store from time to time. Writes do that too, but there may be none."""
        while True:
            try:
                if self.coin is not None:
                    self.coin.keep(self.store)
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
            return await self._handle(request)
        except Exception as error:
            self.report_fault(error, "handle")
            return error_response(500, "error in the proxy: see its log")

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        given, target = Headers(pairs(request.raw_headers)), request.raw_path
        headers = given.lasts
        if pages.OWN_NAME in target:
            if is_compact(target):
                return await compacted(self, request, target, headers)
            if pages.is_own_page(target):
                return await answered(self, request, target, headers)
        if pages.is_rebound(self.settings, target, headers):
            refusal = error_response(
                403, "unknown host name for this proxy: use the address that it printed, or set a token"
            )
            refusal.force_close()
            return refusal
        if pages.is_foreign_websocket(self.settings, target, headers):
            refusal = error_response(
                403, "a web page of another site may not open a WebSocket here: set a token to allow it"
            )
            refusal.force_close()
            return refusal
        if (door := pages.front_door(request.method, target, headers)) is not None:
            return page_response(door)
        if not pages.has_token(self.settings, target, headers):
            refusal = error_response(401, "this proxy needs its token: send it as the header x-ibidem-token")
            refusal.force_close()  # the body is not read
            return refusal
        self._warmup.request_came()
        return await Driver(self, request, given, pages.without_token(self.settings, target)).run()

    # ── rewriting ───────────────────────────────────────────────────────────────────────────────────────────────────

    async def rewrite(self, job: LiveRequest) -> RewriteResult:
        """Rewrite a request within its time budget. After an error, the result is the fallback. Never raises."""
        self.hooks.request_came(job.named)
        self._read_pauses()
        try:
            found = await self._rewrite(job)
        except Exception as error:
            self.report_fault(error, "rewrite")
            found = RewriteResult(result="failed open", reason=f"{type(error).__name__} in the proxy")
        self._warmup.request_went()
        if found.theirs:
            log.info("request forwarded unchanged: %s", found.reason)
        elif found.result == "failed open":
            log.warning("request sent without new edits: %s", found.reason)
        goes_on = found.result in ("failed open", "off") and not found.theirs
        return await self._without_dropped(job, await self._fall_back(job, found) if goes_on else found)

    # ── pauses ──────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _read_first_pauses(self) -> None:
        self._pauses_read = self.clock.monotonic()
        await self._in_note_pool(self.conversations.read_pauses)
        if self.conversations.all_off:
            self.records.event("switch", self.clock.time(), PAUSED)
            log.warning(PAUSED)

    def _read_pauses(self) -> None:
        """Read pauses of other replicas in the background. They apply from the next request on."""
        now = self.clock.monotonic()
        if now - self._pauses_read >= PAUSE_SECONDS:
            self._pauses_read = now
            self._in_background(self._in_note_pool(self.conversations.read_pauses))

    def note_pause(self, name: str, off: bool) -> None:
        """Store a pause of a conversation, or of all (no name), for other replicas."""
        self._in_background(self._in_note_pool(partial(self.conversations.note_pause, name, off)))

    def _note_switched(self, found: LiveConversation) -> None:
        """Store that a request has paused or resumed its conversation. Called in any thread."""
        self.loop.call_soon_threadsafe(self.note_pause, found.name, found.off)

    async def _without_dropped(self, job: LiveRequest, found: RewriteResult) -> RewriteResult:
        """Continue a conversation without its thinking, if that was rejected."""
        conversation = found.conversation or job.conversation
        if conversation is None or not conversation.thinking_dropped:
            return found
        return await self._in_time(self._fallback_pool, continue_without_thinking, job, found, CLOSING_SECONDS) or found

    async def _rewrite(self, job: LiveRequest) -> RewriteResult:
        large = len(job.body) > LARGE_BYTES
        if not large and self._warmup.over and (found := self.rewriter.rewrite_warm(job)) is not None:
            return found
        workers = self._large if large else self._workers
        budget = job.budget = self.settings.budget_ms / 1e3 + self._warmup.allowance
        job.patience = budget + MAX_WAIT_SECONDS  # upper bound; `finish` waits until the job ends
        if workers.exhausted(budget):
            return RewriteResult(result="failed open", reason=BUSY_REASON)
        try:
            work = partial(self.rewriter.rewrite, job)
            return await workers.finish(work, budget, job.end, partial(self._more_time, job, budget))
        except TooLate as error:
            job.late = error.errand
            return RewriteResult(result="failed open", reason="time-out" if error.errand else BUSY_REASON, took=budget)

    async def _more_time(self, job: LiveRequest, budget: float) -> float:
        """Return extra seconds for a request that the provider would reject in any other form.

        That is the case if the model signs thinking, and the proxy does not know how earlier messages were sent.
        """
        if budget >= MAX_WAIT_SECONDS or self.settings.observe or is_measured(self.coin, job):
            return 0.0
        if not needs_known_start(job):
            return 0.0
        failed = RewriteResult(result="failed open")
        known = await self._in_time(self._fallback_pool, fall_back, job, failed, CLOSING_SECONDS)
        return 0.0 if known is not None and known.first_new else MAX_WAIT_SECONDS - budget

    async def _fall_back(self, job: LiveRequest, failed: RewriteResult) -> RewriteResult:
        """Return the body to send after a failure: with the sent prefix if known, else unchanged."""
        if self.settings.observe:
            return failed
        budget = self.settings.budget_ms / 1e3
        if is_measured(self.coin, job):
            return replace(bare(job, failed), sent=None, deviation=None)
        known = await self._in_time(self._fallback_pool, fall_back, job, failed, max(budget, CLOSING_SECONDS)) or failed
        if failed.took >= budget:  # rebuilding the prefix would take as long as the rewrite that was too slow
            return known
        return await self._in_time(self._fallback_pool, replayed, job, known, budget) or known

    async def _in_time(
        self, pool: ThreadPoolExecutor, work: Fallback, job: LiveRequest, failed: RewriteResult, patience: float
    ) -> RewriteResult | None:
        working = pool.submit(work, self.conversations, job, failed)
        waiting = asyncio.wrap_future(working)
        try:
            await asyncio.wait((waiting,), timeout=patience)
            if waiting.done():
                return await waiting
            working.cancel()
        except IbidemError as error:
            log.debug("a request is sent unchanged: %s", error)
        except Exception as error:
            self.report_fault(error, "way out")
        return None

    async def retry(
        self, job: LiveRequest, rejected: RewriteResult, kind: str, tried: Sequence[bytes], names_thinking: bool
    ) -> RewriteResult | None:
        """Return the next body for a request that the provider rejected; None if there is no other."""
        log.warning("the provider rejected a request: %s", kind)
        if is_measured(self.coin, job):
            return None
        if isinstance(job.late, Errand):
            workers = self._large if len(job.body) > LARGE_BYTES else self._workers
            await workers.wait(job.late, self.settings.budget_ms / 1e3)

        def choose(conversations: Conversations, job: LiveRequest, rejected: RewriteResult) -> RewriteResult | None:
            return next_body(conversations, job, rejected, kind, tried, names_thinking)

        found = await self._in_time(self._fallback_pool, choose, job, rejected, MAX_WAIT_SECONDS)
        if found is None or found.new is not NOTHING_NEW:
            return found
        return replace(found, new=NewPart(known=Reckoned(asked=rejected.new().asked)))

    async def write_again(self, job: LiveRequest, count: int) -> RewriteResult:
        """Return the next body for a client that sends it itself, after `count` rejections."""
        failed = RewriteResult(result="failed open", reason="refused by the provider, as the client says")

        def write(conversations: Conversations, job: LiveRequest, failed: RewriteResult) -> RewriteResult:
            return after_rejections(conversations, job, count)

        return await self._in_time(self._fallback_pool, write, job, failed, MAX_WAIT_SECONDS) or failed

    def accepted(self, outcome: RewriteResult) -> None:
        """Store how an accepted request was sent, so that later requests start with the same bytes."""
        found, deviation = outcome.conversation, outcome.deviation
        if found is not None:
            found.accept(outcome.sent, deviation)
        if outcome.thinking_dropped:
            log.warning(THINKING_DROPPED)
            self.records.event("thinking", self.clock.time(), THINKING_DROPPED, found.id if found is not None else "")
        if deviation is not None:
            self._in_background(self._settle(found, outcome.sent, deviation))

    async def _settle(
        self, found: LiveConversation | None, sent: SentRequest | None, deviation: Deviation | None = None
    ) -> None:
        """Apply the inbox of a conversation to its session, and save it. No request waits for this."""

        def work() -> None:
            own = found
            if own is None and deviation is not None:
                own = self.conversations.adopt(sent, deviation)
            if own is not None and own.lock.acquire(timeout=NOTE_SECONDS):
                try:
                    self.conversations.settle(own)
                    self.conversations.save(own, in_background=True)
                finally:
                    own.lock.release()

        await self._in_note_pool(work, found.id if found is not None else "")

    async def _in_note_pool(self, work: Callable[[], None], conversation: str = "") -> None:
        try:
            await asyncio.get_running_loop().run_in_executor(self._note_pool, work)
        except IbidemError as error:
            self.records.event("store", self.clock.time(), str(error), conversation)
        except Exception as error:
            self.report_fault(error, "remember")

    def _in_background(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    def remember(self, outcome: RewriteResult, counted: Counted, collapsed: bool) -> None:
        """Store the usage of a response for the next request of its conversation. The store is written later."""
        found = outcome.conversation
        if found is None or not (self.conversations.remembers or counted.cleared):
            return
        if outcome.place is None:  # the request is unknown, so its counts cannot be assigned
            counted = Counted(cleared=counted.cleared)
        found.inbox.append(AnsweredRequest(outcome.place, self.clock.time(), counted, collapsed))
        self._in_background(self._settle(found, None))

    # ── logs ────────────────────────────────────────────────────────────────────────────────────────────────────────

    def write_log(self, exchange: records.ExchangeRow) -> None:
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
            self.records.event("log", self.clock.time(), text)
        self._log_full = True

    def _stop_log(self, error: Exception) -> None:
        self.log_file = None
        text = f"{self.settings.json_log}: {error}: logging to this file has stopped"
        self.records.event("log", self.clock.time(), text)

    def keep(self, exchange: records.ExchangeRow, session: str, lost: bool) -> None:
        """Store a model call in the usage database, if there is one."""
        if self.gains is not None and exchange.kind in ("model", "signed"):
            self.gains.note(exchange, session, lost, self.settings.observe)

    def _say_of_recording(self, text: str) -> None:
        self.records.event("record", self.clock.time(), text)

    def report_fault(self, error: Exception, what: str) -> None:
        """Report an error of the proxy once, without its message, which may quote a client's text."""
        found = f"{what}: {whereabouts(error)}"
        if found not in self.faults:
            self.faults.add(found)
            log.error("error in the proxy (requests continue): %s", found)
            with suppress(Exception):
                self.records.event("error", self.clock.time(), found)


def append_row(file: IO[bytes], row: bytes) -> None:
    """Write `row` in one call, because other processes may append to the file. Raises OSError if it does not fit."""
    written = file.write(row)
    file.flush()
    if written == len(row):
        return
    handle = file.fileno()
    end = os.lseek(handle, 0, os.SEEK_CUR)
    if os.fstat(handle).st_size == end:  # Remove the partial row, unless another process has appended since.
        os.ftruncate(handle, end - written)
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _opened_log(name: str) -> IO[bytes]:
    if name == "-":
        return sys.stdout.buffer
    try:
        return os.fdopen(os.open(name, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600), "ab", buffering=0)
    except OSError as error:
        raise IbidemError(f"{name}: cannot be written ({error.strerror}): name another with --json-log") from None
