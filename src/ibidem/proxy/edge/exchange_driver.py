"""Driver: execute the commands of an `Exchange` between the client's connection and the upstream's."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import cached_property
from typing import TYPE_CHECKING, Any

from aiohttp import StreamReader, web

from ...billing.cache_loss import NO_VERDICT, CacheVerdict, judge_cache
from ...live.conversation import ProviderCount
from ...live.fallback import has_signed_thinking
from ...live.policy import PAUSE_HEADER, parse_pause_header
from ...live.types import LiveRequest, RewriteResult
from ...providers.headers import Headers, first_header, login_kind
from ...providers.routes import calls_model, carries_conversations, client_session_name
from .. import commands, events
from ..accounting import live_stats
from ..accounting.capture import CapturedExchange
from ..accounting.exchange_rows import TrialData
from ..exchange import Exchange
from ..experiment import session_in_body, trial_row
from ..states import State
from .response_writer import CONTINUE, ClientDisconnected, ClientResponse, NoResponse, decode_headers, error_response
from .tunnel import run_tunnel
from .upstreams import UPSTREAM_ERRORS, UpstreamConnection, describe_error, pending_bytes

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
        self.started = self._end_time = proxy.clock.monotonic()
        self.response: web.StreamResponse | None = None
        self.outcome: RewriteResult | None = None
        self.row: live_stats.ExchangeRow | None = None
        self._job: LiveRequest | None = None
        self._trial: TrialData | None = None
        """Trial data, if there is a trial."""
        self._rejected_bodies: list[bytes] = []
        """Bodies that the provider rejected."""
        self._capture: CapturedExchange | None = None
        """Capture of this exchange, if it is recorded."""
        self._link: UpstreamConnection | None = None
        self._forward_task: asyncio.Task[None] | None = None

    async def run_exchange(self) -> web.StreamResponse:
        """Run the exchange until its end."""
        try:
            await self._handle_event(self._start_event())
            if self.exchange.rewrites:
                await self._hold_body()
            elif self._link is not None and not self.exchange.over:
                await self._forward_body(self._link)
            while self._link is not None and not self.exchange.over:
                await self._read_response(self._link)
        except (asyncio.CancelledError, ClientDisconnected, ConnectionError) as error:
            await self._handle_event(events.ClientClosed())
            if isinstance(error, asyncio.CancelledError):
                raise
        finally:
            self._release_upstream()
            self._end_time = self.proxy.clock.monotonic()
            # Accounting waits for nothing of the client: run it after the response is written.
            asyncio.get_running_loop().call_soon(self._run_guarded, "close", self._close_record)
        return self.response or NoResponse()

    def _start_event(self) -> events.RequestStarted:
        request = self.request
        version = (request.version.major, request.version.minor)
        return events.RequestStarted(request.method, self.target, self.headers, version, request.keep_alive)

    async def _handle_event(self, event: events.Event) -> None:
        """Pass an event to the exchange and execute its commands. All commands are executed here."""
        for command in self.exchange.handle(event):
            coroutine = _COMMAND_METHODS[type(command)](self, command)
            if coroutine is not None:
                await coroutine

    def _send_upstream(self, command: commands.SendUpstream) -> None:
        if self._link is not None:
            self._link.send_chunk(command.data)

    def _end_upstream(self, _: commands.EndUpstream) -> None:
        if self._link is not None:
            self._link.end_request()

    def _start_response(self, command: commands.StartResponse) -> None:
        self.response = ClientResponse(self.request, command)

    def _send_response(self, command: commands.SendResponse) -> None:
        self._client_response.send_chunk(command.data)
        if self._capture is not None:
            self._capture.add_chunk(command.data)

    def _end_response(self, _: commands.EndResponse) -> None:
        self._client_response.end_body()

    async def _run_tunnel(self, _: commands.Tunnel) -> None:
        self._client_response.flush_head()
        if carries_conversations(self.target):
            with self.proxy.guarded("event"):
                self.proxy.stats.add_event("websocket", self.proxy.clock.time(), UNSEEN_WEBSOCKET)
        assert self._link is not None
        await run_tunnel(self.request, self._link)

    def _cancel_upstream(self, _: commands.CancelUpstream) -> None:
        self._release_upstream()

    def _reset_client(self, _: commands.ResetClient) -> None:
        self._client_response.abort_response()

    def _send_error(self, command: commands.SendError) -> None:
        if self.exchange.status:  # rejected by the proxy: log the reason
            self._begin_record()
        self.response = error_response(command.status, command.message, dict(command.headers))
        if command.last:
            self.response.force_close()

    @property
    def _client_response(self) -> ClientResponse:
        assert isinstance(self.response, ClientResponse)
        return self.response

    # ── the request ─────────────────────────────────────────────────────────────────────────────────────────────────

    async def _hold_body(self) -> None:
        """Read a body that is held until it is complete."""
        if self.exchange.over:
            return
        self._send_continue()
        content = self.request.content
        try:
            while not content.at_eof() and (data := await content.readany()):
                await self._handle_event(events.RequestChunk(data))
                if self.exchange.over:
                    return
        except web.RequestPayloadError as error:
            await self._handle_event(events.RequestBroken(describe_error(error)))
            return
        await self._handle_event(events.RequestEnded())

    async def _forward_body(self, link: UpstreamConnection) -> None:
        """Forward a body as it arrives. The upstream may respond before it is complete."""
        if self.request.body_exists:
            link.flush_head()
            self._forward_task = asyncio.ensure_future(self._forward_chunks(link))
        else:
            await self._handle_event(events.RequestEnded())

    async def _forward_chunks(self, link: UpstreamConnection) -> None:
        self._send_continue()
        read_chunk = self.request.content.readany
        try:
            while not self.exchange.over and (data := await read_chunk()):
                await self._handle_event(events.RequestChunk(data))
                await link.wait_until_drained()
            await self._handle_event(events.RequestEnded())
        except web.RequestPayloadError as error:
            await self._handle_event(events.RequestBroken(describe_error(error)))
        except ConnectionError:  # one side has closed; the task that waits for the response gets the error too
            return
        except Exception as error:
            self.proxy.report_fault(error, "pass")
            self._release_upstream()  # the upstream will not respond to an incomplete request

    def _send_continue(self) -> None:
        """Send `100 Continue` if the client waits for it before sending its body."""
        waits = first_header(self.headers, "expect").lower() == "100-continue" and self.request.version >= (1, 1)
        if waits and self.request.transport is not None:
            self.request.transport.write(CONTINUE)

    async def _rewrite_body(self, command: commands.Rewrite) -> None:
        body = command.body
        route = self.exchange.route
        assert route is not None
        assert route.format is not None
        encoding = first_header(self.headers, "content-encoding").strip().lower()
        max_body = self.proxy.settings.max_body
        is_trial = self.proxy.assigner is not None
        job = LiveRequest(
            route.format,
            client_session_name(self.headers) or (session_in_body(body) if is_trial else ""),
            encoding,
            body,
            self.proxy.clock.time(),
            route.counts,
            max_body,
            model=route.model,
            pause_mode=parse_pause_header(first_header(self.headers, PAUSE_HEADER)),
        )
        upstream = self.proxy.settings.upstreams.get(route.provider, "")
        self._capture = self.proxy.recorder.begin_capture(
            job, self._client_name, route.target.partition("?")[0], upstream
        )
        self.outcome = await self.proxy.rewrite_request(job)
        self._trial = trial_row(self.proxy.assigner, job, self.proxy.settings.profile) if is_trial else None
        retryable = self.outcome.body is None and not self.proxy.settings.observe and has_signed_thinking(job)
        if self.proxy.settings.resend and (retryable or self.outcome.body is not None):
            self._job = job
        await self._handle_event(events.RequestRewritten(self.outcome.body, retryable))
        # `new` is computed lazily: do it now, while the request is on its way.
        asyncio.get_running_loop().call_soon(self._run_guarded, "new part", self.outcome.new_input)

    async def _resend_request(self, command: commands.Resend) -> None:
        """Send another body after a rejection."""
        kind = command.kind
        job, outcome = self._job, self.outcome
        assert job is not None
        assert outcome is not None
        self._rejected_bodies.append(job.body if outcome.body is None else outcome.body)
        next_result = await self.proxy.retry_request(job, outcome, kind, self._rejected_bodies, command.names_thinking)
        if next_result is None:
            await self._handle_event(events.ResendReady(None))
            return
        self.outcome = next_result
        if self._capture is not None:
            self._capture.rejected_bodies.append(self._rejected_bodies[-1])
        if self.row is not None:
            with self.proxy.guarded("resent"):
                self.proxy.stats.resend_exchange(self.row, outcome, next_result, kind, self.proxy.clock.time())
        await self._handle_event(
            events.ResendReady(job.body if next_result.body is None else next_result.body, next_result.beta)
        )

    # ── the response ────────────────────────────────────────────────────────────────────────────────────────────────

    async def _connect_upstream(self, command: commands.Connect) -> None:
        if self.row is None:
            self._begin_record()
        try:
            self._link = await self.proxy.upstreams.connect_provider(command.provider, command.region)
        except UPSTREAM_ERRORS as error:
            await self._fail_upstream(error)
            return
        self._link.start_request(command.method, command.target, command.headers, command.chunked)

    async def _read_response(self, link: UpstreamConnection) -> None:
        try:
            message, content = await link.read_response()
        except UPSTREAM_ERRORS as error:
            await self._fail_upstream(error)
            return
        if self.exchange.over:  # the request has failed meanwhile
            return
        if self.row is not None:
            self.row.first_byte_ms = 1e3 * (self.proxy.clock.monotonic() - self.started)
        if self.outcome is not None and 200 <= message.code < 300:
            self.proxy.accept_request(self.outcome)
        headers = Headers(decode_headers(message.raw_headers))
        if self._capture is not None:
            self._capture.content_encoding = first_header(headers, "content-encoding")
        await self._handle_event(events.ResponseStarted(message.code, message.reason or "", headers))
        if message.code == 101:
            await self._handle_event(events.ResponseEnded())
            return
        if self.exchange.state is not State.REFUSED:
            self._job = None
            self._rejected_bodies.clear()
        if not self.exchange.over:
            await self._forward_response(link, content)

    async def _forward_response(self, link: UpstreamConnection, content: StreamReader) -> None:
        """Forward the body in chunks until it ends or fails. For a rejection, the end decides what to do."""
        try:
            data = content.read_nowait()  # data that is already here is sent in one piece with the head
            if not data:
                self._flush_head()
                data = await content.readany()
            while data:
                await self._handle_event(events.ResponseChunk(data))
                if isinstance(self.response, ClientResponse) and self.response.unsent_bytes:
                    await self.response.drain()
                data = b"" if content.at_eof() else await content.readany()
            failure = link.closing_error()
        except UPSTREAM_ERRORS as error:
            failure = error
            await self._handle_event(events.ResponseChunk(pending_bytes(content)))
        if failure is not None:
            await self._fail_upstream(failure)
        elif not self.exchange.over:
            if self._forward_task is None or self._forward_task.done():
                link.release_connection()
                self._link = None
            await self._handle_event(events.ResponseEnded())

    def _flush_head(self) -> None:
        if isinstance(self.response, ClientResponse):
            self.response.flush_head()

    async def _fail_upstream(self, error: BaseException) -> None:
        route = self.exchange.route
        assert route is not None
        host = self.proxy.upstreams.host_name(route.provider, route.region)
        await self._handle_event(events.UpstreamFailed(f"{host}: {describe_error(error)}"))

    def _release_upstream(self) -> None:
        if self._forward_task is not None and self._forward_task is not asyncio.current_task():
            self._forward_task.cancel()
        if self._link is not None:
            self._link.abort_connection()
            self._link = None

    # ── accounting ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _begin_record(self) -> None:
        route = self.exchange.route
        assert route is not None
        path = route.target.partition("?")[0]
        with self.proxy.guarded("begin"):
            self.row = self.proxy.stats.begin_exchange(
                path,
                self._conversation_result,
                self.proxy.clock.time(),
                self._client_name,
                route.format or "",
                self.exchange.received,
                self._request_kind,
                login_kind(self.headers) == "plan",
            )
            self.row.reason = self.row.reason or route.note

    @property
    def _request_kind(self) -> str:
        """Kind of the request: `model`, `count`, `signed` (a model call that cannot be changed), or `other`."""
        route = self.exchange.route
        assert route is not None
        if route.format is not None:
            return "count" if route.counts else "model"
        posted = self.request.method == "POST"
        return "signed" if posted and not route.note and calls_model(self.target) else "other"

    @cached_property
    def _client_name(self) -> str:
        return first_header(self.headers, "user-agent").partition(" ")[0]

    @property
    def _conversation_result(self) -> RewriteResult | None:
        """Rewrite result, if the request is part of a conversation. A token count is not."""
        route, outcome = self.exchange.route, self.outcome
        if route is None or outcome is None or (route.counts and outcome.result != "failed open"):
            return None
        return outcome

    def _run_guarded(self, what: str, work: Callable[[], object]) -> None:
        with self.proxy.guarded(what):
            work()

    def _close_record(self) -> None:
        record, exchange, outcome = self.row, self.exchange, self._conversation_result
        verdict = NO_VERDICT
        if record is not None:
            with self.proxy.guarded("end"):
                record.total_ms = 1e3 * (self._end_time - self.started)
                record.reason = record.reason or exchange.failure
                if not exchange.rewrites:
                    record.bytes_in, record.bytes_out = exchange.received, exchange.sent
                verdict = self._judge_cache(record)
                self.proxy.stats.end_exchange(record, outcome, exchange.status, exchange.usage, verdict)
                record.trial = self._trial
            self._report_record(record, verdict)
        if self._capture is not None:
            with self.proxy.guarded("record"):
                self._queue_capture(self._capture)
        if outcome is not None and exchange.usage is not None:
            usage = exchange.usage
            summary = exchange.summary
            provider_count = ProviderCount(usage.input - summary.input, usage.read - summary.read, exchange.cleared)
            if record is not None and self.proxy.settings.observe:  # the size that it would have had after rewriting
                provider_count = ProviderCount(usage.input - record.removed)
            self.proxy.store_usage(outcome, provider_count, verdict.collapsed)

    def _report_record(self, record: live_stats.ExchangeRow, verdict: CacheVerdict) -> None:
        """Report the finished exchange to the log, the usage database and telemetry."""
        proxy = self.proxy
        if proxy.log_file is not None:
            with proxy.guarded("log"):
                proxy.write_log(record)
        if proxy.gains is not None:
            with proxy.guarded("ledger"):
                proxy.write_usage(record, client_session_name(self.headers), verdict.lost)
        if proxy.telemetry.is_active:
            with proxy.guarded("telemetry"):
                proxy.telemetry.report_exchange(
                    record, self.exchange, first_header(self.headers, "traceparent"), proxy.clock.time()
                )

    def _queue_capture(self, capture: CapturedExchange) -> None:
        """Pass the exchange to the recorder, if its request was sent."""
        exchange, outcome = self.exchange, self.outcome
        if self.row is None or outcome is None:
            return
        capture.sent_body, capture.model = outcome.body, outcome.model
        capture.status, capture.usage = exchange.status, exchange.usage
        capture.conversation = outcome.conversation.id if outcome.conversation is not None else ""
        capture.response_time = self.proxy.clock.time()
        if not self.proxy.settings.observe:  # when observing, `would_have_paid` is the cost with Ibidem
            capture.would_have_paid = self.row.would_have_paid
        self.proxy.recorder.queue_capture(capture)

    def _judge_cache(self, record: live_stats.ExchangeRow) -> CacheVerdict:
        outcome, usage = self._conversation_result, self.exchange.usage
        history = self.proxy.stats.cache_history(outcome) if outcome is not None else None
        if outcome is None or usage is None or history is None:
            return NO_VERDICT
        return judge_cache(history, usage, outcome.model, record.at, bool(outcome.revision_reason))


_COMMAND_METHODS: dict[type[commands.Command], Callable[[Driver, Any], Awaitable[None] | None]] = {
    commands.Connect: Driver._connect_upstream,
    commands.SendUpstream: Driver._send_upstream,
    commands.EndUpstream: Driver._end_upstream,
    commands.Rewrite: Driver._rewrite_body,
    commands.Resend: Driver._resend_request,
    commands.StartResponse: Driver._start_response,
    commands.SendResponse: Driver._send_response,
    commands.EndResponse: Driver._end_response,
    commands.Tunnel: Driver._run_tunnel,
    commands.CancelUpstream: Driver._cancel_upstream,
    commands.ResetClient: Driver._reset_client,
    commands.SendError: Driver._send_error,
}
"""Method by command. Most are plain functions, because creating coroutines that never wait would be slow."""
