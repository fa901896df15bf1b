"""Driver: execute the commands of an `Exchange` between the client's connection and the upstream's."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import cached_property
from typing import TYPE_CHECKING, Any

from aiohttp import StreamReader, web

from ...billing.collapse import NO_VERDICT, Verdict, judge
from ...live.conversation import Counted
from ...live.fallback import has_signed_thinking
from ...live.policy import WISH_HEADER, wish
from ...live.types import LiveRequest, RewriteResult
from ...providers.headers import Headers, first, login_kind
from ...providers.routes import asks_a_model, carries_conversations, client_session
from .. import commands, events
from ..books import records
from ..books.rows import TrialNote
from ..books.taken import Taken
from ..exchange import Exchange
from ..experiment import session_in, trial_note
from ..states import State
from .client_side import CONTINUE, ClientDisconnected, ClientResponse, NoResponse, error_response, pairs
from .tunnel import tunnel
from .upstreams import Broken, Link, unread, why

if TYPE_CHECKING:
    from .app import Proxy

UNSEEN_WEBSOCKET = "a conversation uses a WebSocket and cannot be rewritten: start the proxy with --no-websockets"


class Driver:
    """Driver of one exchange, with its two connections."""

    def __init__(self, proxy: Proxy, request: web.BaseRequest, headers: Headers, target: str) -> None:
        self.proxy = proxy
        self.request = request
        self.headers = headers
        self.target = target
        settings = proxy.settings
        self.exchange = Exchange(settings.max_body, settings.websockets, settings.resend, proxy.default_upstreams)
        self.started = self._ended = proxy.clock.monotonic()
        self.response: web.StreamResponse | None = None
        self.outcome: RewriteResult | None = None
        self.record: records.ExchangeRow | None = None
        self._job: LiveRequest | None = None
        self._trial: TrialNote | None = None
        """Trial data, if there is a trial."""
        self._tried: list[bytes] = []
        """Bodies that the provider rejected."""
        self._taken: Taken | None = None
        """Capture of this exchange, if it is recorded."""
        self._link: Link | None = None
        self._passing: asyncio.Task[None] | None = None

    async def run(self) -> web.StreamResponse:
        """Run the exchange until its end."""
        try:
            await self._do(self._start())
            if self.exchange.rewrites:
                await self._take_in()
            elif self._link is not None and not self.exchange.over:
                await self._pass_on(self._link)
            while self._link is not None and not self.exchange.over:
                await self._answer(self._link)
        except (asyncio.CancelledError, ClientDisconnected, ConnectionError) as error:
            await self._do(events.ClientGone())
            if isinstance(error, asyncio.CancelledError):
                raise
        finally:
            self._let_go()
            self._ended = self.proxy.clock.monotonic()
            # Accounting waits for nothing of the client: run it after the response is written.
            asyncio.get_running_loop().call_soon(self._afterwards, "close", self._close)
        return self.response or NoResponse()

    def _start(self) -> events.RequestStarted:
        request = self.request
        version = (request.version.major, request.version.minor)
        return events.RequestStarted(request.method, self.target, self.headers, version, request.keep_alive)

    async def _do(self, event: events.Event) -> None:
        """Pass an event to the exchange and execute its commands. All commands are executed here."""
        for command in self.exchange.handle(event):
            waiting = _CARRIED_OUT[type(command)](self, command)
            if waiting is not None:
                await waiting

    def _send_upstream(self, command: commands.SendUpstream) -> None:
        if self._link is not None:
            self._link.send(command.data)

    def _end_upstream(self, _: commands.EndUpstream) -> None:
        if self._link is not None:
            self._link.end()

    def _start_answer(self, command: commands.StartAnswer) -> None:
        self.response = ClientResponse(self.request, command)

    def _send_answer(self, command: commands.SendAnswer) -> None:
        self._client_response.send(command.data)
        if self._taken is not None:
            self._taken.hear(command.data)

    def _end_answer(self, _: commands.EndAnswer) -> None:
        self._client_response.end()

    async def _tunnel(self, _: commands.Tunnel) -> None:
        self._client_response.flush()
        if carries_conversations(self.target):
            with self.proxy.guarded("event"):
                self.proxy.records.event("websocket", self.proxy.clock.time(), UNSEEN_WEBSOCKET)
        assert self._link is not None
        await tunnel(self.request, self._link)

    def _cancel_upstream(self, _: commands.CancelUpstream) -> None:
        self._let_go()

    def _reset_client(self, _: commands.ResetClient) -> None:
        self._client_response.reset()

    def _refuse(self, command: commands.Refuse) -> None:
        if self.exchange.status:  # rejected by the proxy: log the reason
            self._begin()
        self.response = error_response(command.status, command.message, dict(command.headers))
        if command.last:
            self.response.force_close()

    @property
    def _client_response(self) -> ClientResponse:
        assert isinstance(self.response, ClientResponse)
        return self.response

    # ── the request ─────────────────────────────────────────────────────────────────────────────────────────────────

    async def _take_in(self) -> None:
        """Read a body that is held until it is complete."""
        if self.exchange.over:
            return
        self._invite()
        content = self.request.content
        try:
            while not content.at_eof() and (data := await content.readany()):
                await self._do(events.RequestChunk(data))
                if self.exchange.over:
                    return
        except web.RequestPayloadError as error:
            await self._do(events.RequestBroken(why(error)))
            return
        await self._do(events.RequestEnded())

    async def _pass_on(self, link: Link) -> None:
        """Forward a body as it arrives. The upstream may respond before it is complete."""
        if self.request.body_exists:
            link.flush()
            self._passing = asyncio.ensure_future(self._pass(link))
        else:
            await self._do(events.RequestEnded())

    async def _pass(self, link: Link) -> None:
        self._invite()
        read = self.request.content.readany
        try:
            while not self.exchange.over and (data := await read()):
                await self._do(events.RequestChunk(data))
                await link.drain()
            await self._do(events.RequestEnded())
        except web.RequestPayloadError as error:
            await self._do(events.RequestBroken(why(error)))
        except ConnectionError:  # one side has closed; the task that waits for the response gets the error too
            return
        except Exception as error:
            self.proxy.report_fault(error, "pass")
            self._let_go()  # the upstream will not respond to an incomplete request

    def _invite(self) -> None:
        """Send `100 Continue` if the client waits for it before sending its body."""
        waits = first(self.headers, "expect").lower() == "100-continue" and self.request.version >= (1, 1)
        if waits and self.request.transport is not None:
            self.request.transport.write(CONTINUE)

    async def _rewrite(self, command: commands.Rewrite) -> None:
        body = command.body
        route = self.exchange.route
        assert route is not None
        assert route.format is not None
        encoding = first(self.headers, "content-encoding").strip().lower()
        most = self.proxy.settings.max_body
        tosses = self.proxy.coin is not None
        job = LiveRequest(
            route.format,
            client_session(self.headers) or (session_in(body) if tosses else ""),
            encoding,
            body,
            self.proxy.clock.time(),
            route.counts,
            most,
            model=route.model,
            wish=wish(first(self.headers, WISH_HEADER)),
        )
        upstream = self.proxy.settings.upstreams.get(route.provider, "")
        self._taken = self.proxy.recorder.begin(job, self._client, route.target.partition("?")[0], upstream)
        self.outcome = await self.proxy.rewrite(job)
        self._trial = trial_note(self.proxy.coin, job, self.proxy.settings.profile) if tosses else None
        retryable = self.outcome.body is None and not self.proxy.settings.observe and has_signed_thinking(job)
        if self.proxy.settings.resend and (retryable or self.outcome.body is not None):
            self._job = job
        await self._do(events.Rewritten(self.outcome.body, retryable))
        # `new` is computed lazily: do it now, while the request is on its way.
        asyncio.get_running_loop().call_soon(self._afterwards, "new part", self.outcome.new)

    async def _resend(self, command: commands.Resend) -> None:
        """Send another body after a rejection."""
        kind = command.kind
        job, outcome = self._job, self.outcome
        assert job is not None
        assert outcome is not None
        self._tried.append(job.body if outcome.body is None else outcome.body)
        found = await self.proxy.retry(job, outcome, kind, self._tried, command.names_thinking)
        if found is None:
            await self._do(events.Resent(None))
            return
        self.outcome = found
        if self._taken is not None:
            self._taken.refused.append(self._tried[-1])
        if self.record is not None:
            with self.proxy.guarded("resent"):
                self.proxy.records.resent(self.record, outcome, found, kind, self.proxy.clock.time())
        await self._do(events.Resent(job.body if found.body is None else found.body, found.beta))

    # ── the response ────────────────────────────────────────────────────────────────────────────────────────────────

    async def _connect(self, command: commands.Connect) -> None:
        if self.record is None:
            self._begin()
        try:
            self._link = await self.proxy.upstreams.connect(command.provider, command.region)
        except Broken as error:
            await self._broke(error)
            return
        self._link.start(command.method, command.target, command.headers, command.chunked)

    async def _answer(self, link: Link) -> None:
        try:
            message, content = await link.answer()
        except Broken as error:
            await self._broke(error)
            return
        if self.exchange.over:  # the request has failed meanwhile
            return
        if self.record is not None:
            self.record.first_byte_ms = 1e3 * (self.proxy.clock.monotonic() - self.started)
        if self.outcome is not None and 200 <= message.code < 300:
            self.proxy.accepted(self.outcome)
        headers = Headers(pairs(message.raw_headers))
        if self._taken is not None:
            self._taken.packed = first(headers, "content-encoding")
        await self._do(events.AnswerStarted(message.code, message.reason or "", headers))
        if message.code == 101:
            await self._do(events.AnswerEnded())
            return
        if self.exchange.state is not State.REFUSED:
            self._job = None
            self._tried.clear()
        if not self.exchange.over:
            await self._pass_answer(link, content)

    async def _pass_answer(self, link: Link, content: StreamReader) -> None:
        """Forward the body in chunks until it ends or fails. For a rejection, the end decides what to do."""
        try:
            data = content.read_nowait()  # data that is already here is sent in one piece with the head
            if not data:
                self._flush()
                data = await content.readany()
            while data:
                await self._do(events.AnswerChunk(data))
                if isinstance(self.response, ClientResponse) and self.response.unsent:
                    await self.response.drain()
                data = b"" if content.at_eof() else await content.readany()
            broken = link.broke_off()
        except Broken as error:
            broken = error
            await self._do(events.AnswerChunk(unread(content)))
        if broken is not None:
            await self._broke(broken)
        elif not self.exchange.over:
            if self._passing is None or self._passing.done():
                link.release()
                self._link = None
            await self._do(events.AnswerEnded())

    def _flush(self) -> None:
        if isinstance(self.response, ClientResponse):
            self.response.flush()

    async def _broke(self, error: BaseException) -> None:
        route = self.exchange.route
        assert route is not None
        host = self.proxy.upstreams.host(route.provider, route.region)
        await self._do(events.UpstreamFailed(f"{host}: {why(error)}"))

    def _let_go(self) -> None:
        if self._passing is not None and self._passing is not asyncio.current_task():
            self._passing.cancel()
        if self._link is not None:
            self._link.cancel()
            self._link = None

    # ── accounting ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _begin(self) -> None:
        route = self.exchange.route
        assert route is not None
        path = route.target.partition("?")[0]
        with self.proxy.guarded("begin"):
            self.record = self.proxy.records.begin(
                path,
                self._counted,
                self.proxy.clock.time(),
                self._client,
                route.format or "",
                self.exchange.received,
                self._kind,
                login_kind(self.headers) == "plan",
            )
            self.record.reason = self.record.reason or route.note

    @property
    def _kind(self) -> str:
        """Kind of the request: `model`, `count`, `signed` (a model call that cannot be changed), or `other`."""
        route = self.exchange.route
        assert route is not None
        if route.format is not None:
            return "count" if route.counts else "model"
        posted = self.request.method == "POST"
        return "signed" if posted and not route.note and asks_a_model(self.target) else "other"

    @cached_property
    def _client(self) -> str:
        return first(self.headers, "user-agent").partition(" ")[0]

    @property
    def _counted(self) -> RewriteResult | None:
        """Rewrite result, if the request is part of a conversation. A token count is not."""
        route, outcome = self.exchange.route, self.outcome
        if route is None or outcome is None or (route.counts and outcome.result != "failed open"):
            return None
        return outcome

    def _afterwards(self, what: str, work: Callable[[], object]) -> None:
        with self.proxy.guarded(what):
            work()

    def _close(self) -> None:
        record, exchange, outcome = self.record, self.exchange, self._counted
        verdict = NO_VERDICT
        if record is not None:
            with self.proxy.guarded("end"):
                record.total_ms = 1e3 * (self._ended - self.started)
                record.reason = record.reason or exchange.failure
                if not exchange.rewrites:
                    record.bytes_in, record.bytes_out = exchange.received, exchange.sent
                verdict = self._judged(record)
                self.proxy.records.end(record, outcome, exchange.status, exchange.usage, verdict)
                record.trial = self._trial
            self._tell(record, verdict)
        if self._taken is not None:
            with self.proxy.guarded("record"):
                self._hand_over(self._taken)
        if outcome is not None and exchange.usage is not None:
            usage = exchange.usage
            summary = exchange.summary
            counted = Counted(usage.input - summary.input, usage.read - summary.read, exchange.cleared)
            if record is not None and self.proxy.settings.observe:  # the size that it would have had after rewriting
                counted = Counted(usage.input - record.removed)
            self.proxy.remember(outcome, counted, verdict.collapsed)

    def _tell(self, record: records.ExchangeRow, verdict: Verdict) -> None:
        """Report the finished exchange to the log, the usage database and telemetry."""
        proxy = self.proxy
        if proxy.log_file is not None:
            with proxy.guarded("log"):
                proxy.write_log(record)
        if proxy.gains is not None:
            with proxy.guarded("ledger"):
                proxy.keep(record, client_session(self.headers), verdict.lost)
        if proxy.telemetry.tells:
            with proxy.guarded("telemetry"):
                proxy.telemetry.ended(record, self.exchange, first(self.headers, "traceparent"), proxy.clock.time())

    def _hand_over(self, taken: Taken) -> None:
        """Pass the exchange to the recorder, if its request was sent."""
        exchange, outcome = self.exchange, self.outcome
        if self.record is None or outcome is None:
            return
        taken.went, taken.model = outcome.body, outcome.model
        taken.status, taken.usage = exchange.status, exchange.usage
        taken.conversation = outcome.conversation.id if outcome.conversation is not None else ""
        taken.answered = self.proxy.clock.time()
        if not self.proxy.settings.observe:  # when observing, `would_have_paid` is the cost with Ibidem
            taken.would_have_paid = self.record.would_have_paid
        self.proxy.recorder.take(taken)

    def _judged(self, record: records.ExchangeRow) -> Verdict:
        outcome, usage = self._counted, self.exchange.usage
        history = self.proxy.records.cache_history(outcome) if outcome is not None else None
        if outcome is None or usage is None or history is None:
            return NO_VERDICT
        return judge(history, usage, outcome.model, record.at, bool(outcome.revision))


_CARRIED_OUT: dict[type[commands.Command], Callable[[Driver, Any], Awaitable[None] | None]] = {
    commands.Connect: Driver._connect,
    commands.SendUpstream: Driver._send_upstream,
    commands.EndUpstream: Driver._end_upstream,
    commands.Rewrite: Driver._rewrite,
    commands.Resend: Driver._resend,
    commands.StartAnswer: Driver._start_answer,
    commands.SendAnswer: Driver._send_answer,
    commands.EndAnswer: Driver._end_answer,
    commands.Tunnel: Driver._tunnel,
    commands.CancelUpstream: Driver._cancel_upstream,
    commands.ResetClient: Driver._reset_client,
    commands.Refuse: Driver._refuse,
}
"""Method by command. Most are plain functions, because creating coroutines that never wait would be slow."""
