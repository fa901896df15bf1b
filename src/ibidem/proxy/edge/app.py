"""What lives as long as the proxy, and decides who is answered by whom."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
import threading
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import asdict
from functools import partial
from typing import IO, Any, Self

from aiohttp import web

from ...billing.lifetimes import Pauses
from ...engine.journal import Position
from ...engine.marking import CacheSettings
from ...environment import store_target
from ...model import IbidemError
from ...store import Limits, Store, open_store
from ..books import records
from ..books.gains import GainsWriter
from ..books.records import Records
from ..books.taken import recorder_of
from ..clock import SYSTEM_CLOCK, Clock
from ..conversation import Counted, Deviation, LiveConversation
from ..conversations import Conversations
from ..fallback import bare, fall_back, replayed
from ..outcome import Job, Outcome
from ..page import pages, switching
from ..rewriter import Rewriter, whereabouts
from ..settings import Settings
from ..warmup import load, rehearse
from .client_side import error_response, head, page_response, pairs
from .driver import Driver
from .switched import switch
from .upstreams import Upstreams, egress_of
from .workers import Workers

log = logging.getLogger("ibidem")

WORKERS, LARGE_WORKERS, FALLBACK_WORKERS, NOTE_WORKERS = 4, 2, 2, 2
"""Threads: that rewrite requests, and large ones; for what cannot be rewritten; and for what is noted afterwards.

Those for what cannot be rewritten wait for nobody, so they are always there. Large requests have their own, so that who
sends many of them waits for himself alone.
"""
LARGE_BYTES = 2**20
"""Bytes from which on a request is large."""
CLOSING_SECONDS = 2.0
"""Seconds that what is to be remembered may still take at the end, and at least that the way out may take."""
PRUNE_SECONDS = 6 * 3600.0
"""Seconds after which what the store need not keep is forgotten again."""
Fallback = Callable[[Conversations, Job, Outcome], Outcome | None]
SWITCH_SECONDS = 0.0005
"""Seconds after which a thread that works lets others have a turn: to pass something on takes many short ones."""
BUSY_REASON = "busy: earlier requests take too long"
STATE_SECONDS, KEEPALIVE_SECONDS = 0.5, 15.0
"""Seconds between two states that a page is told, and after which it is told that we are still there."""


class Proxy:
    def __init__(
        self,
        settings: Settings,
        store: Store | None = None,
        clock: Clock = SYSTEM_CLOCK,
        pauses: Pauses | None = None,
        gains: GainsWriter | None = None,
    ) -> None:
        """`pauses` are those of the user so far, for how long a cache is to be kept; `gains` keeps figures."""
        self.settings = settings
        self.clock = clock
        self.egress = egress_of(settings.upstreams)  # before anything is opened: it may be that there is none
        self._log = _opened_log(settings.json_log) if settings.json_log else None
        limits = Limits.of(settings.store_days, settings.store_bytes)
        self.store = store or open_store(settings.store or store_target(), limits=limits)
        most = settings.memory_mb * 2**20
        self.conversations = Conversations(
            settings.profile,
            self.store,
            settings.conversations,
            most,
            settings.observe,
            CacheSettings(settings.asks_to_keep, pauses or Pauses()),
        )
        self.rewriter = Rewriter(self.conversations, settings.observe, settings.max_body, settings.max_rewrite, clock)
        self.started = clock.time()
        self.records = Records(settings, self.started)
        self.gains = gains
        self.recorder = recorder_of(settings, clock)
        off = partial(switching.state, self.conversations)
        self.pages = pages.Pages(settings, self.records, self.store, clock.time, gains, off)
        self._workers = Workers(WORKERS, "ibidem", clock)
        self._large = Workers(LARGE_WORKERS, "ibidem-large", clock)
        self._fallback_pool = ThreadPoolExecutor(FALLBACK_WORKERS, "ibidem-out")
        self._note_pool = ThreadPoolExecutor(NOTE_WORKERS, "ibidem-notes")
        self._rehearsed = False
        self.stopping = asyncio.Event()
        self._closing = threading.Event()
        self._background: set[asyncio.Task[None]] = set()
        self.faults: set[str] = set()
        """What went wrong in our own bookkeeping, told once each."""

    async def __aenter__(self) -> Self:
        self.upstreams = Upstreams(self.settings.upstreams, self.egress)
        loop = asyncio.get_running_loop()
        self.recorder.start(lambda text: loop.call_soon_threadsafe(self._say_of_recording, text))
        sys.setswitchinterval(min(SWITCH_SECONDS, sys.getswitchinterval()))
        return self

    async def __aexit__(self, *exception: object) -> None:
        self._closing.set()
        await self.upstreams.close()
        if self._background:
            await asyncio.wait(self._background, timeout=CLOSING_SECONDS)
        await asyncio.get_running_loop().run_in_executor(None, self.recorder.close)
        for pool in (self._workers.pool, self._large.pool, self._fallback_pool, self._note_pool):
            pool.shutdown(wait=False, cancel_futures=True)
        if self._log is not None and self._log is not sys.stdout:
            self._log.close()
        self.store.close()

    def warm(self) -> None:
        """What the first request would wait for, done while there is none."""
        threading.Thread(target=load, daemon=True).start()
        threading.Thread(target=self._tidy, daemon=True).start()

    def _tidy(self) -> None:
        """Forget what the store need not keep, also where nothing is written to it, which would do that too."""
        while True:
            try:
                self.store.prune()
            except IbidemError as error:
                log.warning("nothing was forgotten: %s", error)
            except Exception as error:
                self.report_fault(error, "tidy")
            if self._closing.wait(PRUNE_SECONDS):
                return

    # ── who is answered by whom ─────────────────────────────────────────────────────────────────────────────────────

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        try:
            return await self._handle(request)
        except Exception as error:
            self.report_fault(error, "handle")
            return error_response(500, "an error in the proxy itself: it is in its log")

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        headers, target = head(pairs(request.raw_headers)), request.raw_path
        if pages.is_own_page(target):
            return await self._page(request, target, headers)
        if pages.is_rebound(self.settings, target, headers):
            refusal = error_response(
                403, "this name is not the proxy's own: use the address that it printed, or set a token"
            )
            refusal.force_close()
            return refusal
        if (door := pages.front_door(request.method, target, headers)) is not None:
            return page_response(door)
        if not pages.has_token(self.settings, target, headers):
            refusal = error_response(401, "this proxy needs its token: send it as the header x-ibidem-token")
            refusal.force_close()  # the body is not read
            return refusal
        return await Driver(self, request, pages.without_token(self.settings, target)).run()

    async def _page(self, request: web.BaseRequest, target: str, headers: Mapping[str, str]) -> web.StreamResponse:
        found = pages.page_refusal(self.settings, target, headers)
        texts = pages.may_see_texts(self.settings, target, headers)
        if found is None and request.method == "GET" and target.partition("?")[0] == pages.LIVE_PATH:
            return await self._live(request, texts)
        off = switching.asked_off(request.method, target)
        if found is None and off is not None:
            found = await switch(self, request, headers, off)
        if found is None:
            found = await self._found(request.method, target, texts)
        answer = page_response(found)
        if request.body_exists:
            answer.force_close()
        return answer

    async def _found(self, method: str, target: str, texts: bool) -> pages.Page:
        try:
            if pages.is_slow(target):
                return await asyncio.get_running_loop().run_in_executor(None, self.pages.answer, method, target, texts)
            return self.pages.answer(method, target, texts)
        except Exception as error:
            self.report_fault(error, "page")
            return pages.text(500, "an error in the proxy itself: it is in its log\n")

    async def _live(self, request: web.BaseRequest, texts: bool) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "Cache-Control": "no-store"})
        await response.prepare(request)
        seen, quiet = -1, 0.0
        while not self.stopping.is_set():
            if self.records.changes != seen:
                seen, quiet = self.records.changes, 0.0
                await response.write(f"event: state\ndata: {json.dumps(self.pages.state(texts))}\n\n".encode())
            elif quiet >= KEEPALIVE_SECONDS:
                quiet = 0.0
                await response.write(b": still here\n\n")
            with suppress(TimeoutError):
                await asyncio.wait_for(self.stopping.wait(), STATE_SECONDS)
            quiet += STATE_SECONDS
        return response

    # ── rewriting ───────────────────────────────────────────────────────────────────────────────────────────────────

    async def rewrite(self, job: Job) -> Outcome:
        """In time, or not at all. Never raises."""
        try:
            found = await self._rewrite(job)
        except Exception as error:
            self.report_fault(error, "rewrite")
            found = Outcome(result="failed open", reason=f"{type(error).__name__} in the proxy")
        if not self._rehearsed:
            self._rehearsed = True
            threading.Thread(target=rehearse, args=(self.settings.profile,), daemon=True).start()
        if found.theirs:
            log.info("request sent as it came: %s", found.reason)
        elif found.result == "failed open":
            log.warning("request sent without new edits: %s", found.reason)
        goes_on = found.result in ("failed open", "off") and not found.theirs
        return await self._fall_back(job, found) if goes_on else found

    async def _rewrite(self, job: Job) -> Outcome:
        workers = self._large if len(job.body) > LARGE_BYTES else self._workers
        budget = job.patience = self.settings.budget_ms / 1e3
        if workers.exhausted(budget):
            return Outcome(result="failed open", reason=BUSY_REASON)
        working = workers.pool.submit(self.rewriter.rewrite, job)
        waiting = asyncio.wrap_future(working)
        try:
            await asyncio.wait((waiting,), timeout=budget)
            if waiting.done() or not job.end():  # or it was done at the last moment
                return await waiting
        except asyncio.CancelledError:
            job.end()
            workers.give_up(working, waiting)
            raise
        begun = workers.give_up(working, waiting)
        return Outcome(result="failed open", reason="time-out" if begun else BUSY_REASON, took=budget)

    async def _fall_back(self, job: Job, failed: Outcome) -> Outcome:
        """What is sent after all: what earlier requests sent, and then what came. In time too, or as it came."""
        if self.settings.observe:
            return failed
        budget = self.settings.budget_ms / 1e3
        known = await self._in_time(self._fallback_pool, fall_back, job, failed, max(budget, CLOSING_SECONDS)) or failed
        if failed.took >= budget:  # that would take as long as what there was no time for
            return known
        return await self._in_time(self._note_pool, replayed, job, known, budget) or known

    async def _in_time(
        self, pool: ThreadPoolExecutor, work: Fallback, job: Job, failed: Outcome, patience: float
    ) -> Outcome | None:
        working = pool.submit(work, self.conversations, job, failed)
        waiting = asyncio.wrap_future(working)
        try:
            await asyncio.wait((waiting,), timeout=patience)
            if waiting.done():
                return await waiting
            working.cancel()
        except IbidemError as error:
            log.debug("a request goes as it came: %s", error)
        except Exception as error:
            self.report_fault(error, "way out")
        return None

    async def retry(self, job: Job, refused: Outcome, kind: str, tried: Sequence[bytes]) -> Outcome | None:
        """What is sent instead of what the provider refused; None if all of that was refused."""
        log.warning("a rewritten request was refused: %s", kind)
        told = f"refused by the provider: {kind}"
        conversation = refused.conversation
        failed = Outcome(
            result="failed open",
            reason=told,
            refused=True,
            took=refused.took,
            conversation=conversation,
            asked=refused.asked,
        )
        found = await self._fall_back(job, failed)
        if found.body is not None and found.body not in tried:
            return found
        return bare(job, failed) if job.body not in tried else None

    def accepted(self, outcome: Outcome) -> None:
        """The provider takes a request: the conversation goes on in that way."""
        found, deviation = outcome.conversation, outcome.deviation
        if found is not None:
            found.accept(outcome.sent, deviation)
        if deviation is not None:
            self._in_background(self._settle(found, deviation))

    async def _settle(self, found: LiveConversation | None, deviation: Deviation) -> None:
        """Whoever has the conversation does it at the end, or before the next request: nobody is waited for here."""

        def work() -> None:
            own = found or self.conversations.adopt(deviation)
            if own.lock.acquire(blocking=False):
                try:
                    self.conversations.settle(own)
                    self.conversations.save(own)
                finally:
                    own.lock.release()

        await self._noted(found.id if found is not None else "", work)

    async def _noted(self, conversation: str, work: Callable[[], None]) -> None:
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

    def remember(self, outcome: Outcome, counted: Counted, collapsed: bool) -> None:
        """What the answer told about a conversation, for profiles that go by it. Nobody waits for that."""
        found = outcome.conversation
        if found is not None and self.conversations.remembers:
            if outcome.place is None:  # of which request it is, is not known
                counted = Counted()
            self._in_background(self._remember(found, outcome.place, self.clock.time(), counted, collapsed))

    async def _remember(
        self, found: LiveConversation, place: Position | None, at: float, counted: Counted, collapsed: bool
    ) -> None:

        def work() -> None:
            with found.lock:
                self.conversations.settle(found)
                found.session.answered(at=at, context=counted.context, cached=counted.cached, position=place)
                if collapsed:
                    found.session.stop_revising(place)
                self.conversations.save(found)

        await self._noted(found.id, work)

    # ── what is written down ────────────────────────────────────────────────────────────────────────────────────────

    def write_log(self, exchange: records.ExchangeRow) -> None:
        if self._log is None:
            return
        try:
            # A file may have the rows of several proxies.
            whose = {"started": self.started, "observe": self.settings.observe}
            self._log.write(json.dumps(asdict(exchange) | whose) + "\n")
            self._log.flush()
        except (OSError, ValueError) as error:
            self._log = None
            self.records.event(
                "log", self.clock.time(), f"{self.settings.json_log}: {error}: nothing more is written to it"
            )

    def keep(self, exchange: records.ExchangeRow, session: str, lost: bool) -> None:
        if self.gains is not None and exchange.kind in ("model", "signed"):
            self.gains.note(exchange, session, lost, self.settings.observe)

    def _say_of_recording(self, text: str) -> None:
        self.records.event("record", self.clock.time(), text)

    @contextmanager
    def guarded(self, what: str) -> Iterator[None]:
        """What goes wrong in our own books never reaches an exchange."""
        try:
            yield
        except Exception as error:
            self.report_fault(error, what)

    def report_fault(self, error: Exception, what: str) -> None:
        """Told once, and without its message: that may quote what a client sent."""
        found = f"{what}: {whereabouts(error)}"
        if found not in self.faults:
            self.faults.add(found)
            log.error("an error in the proxy itself, requests go on: %s", found)
            with suppress(Exception):
                self.records.event("error", self.clock.time(), found)


def _opened_log(name: str) -> IO[str]:
    if name == "-":
        return sys.stdout
    try:
        return os.fdopen(os.open(name, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600), "a", encoding="utf-8")
    except OSError as error:
        raise IbidemError(f"{name}: cannot be written ({error.strerror}): name another with --json-log") from None
