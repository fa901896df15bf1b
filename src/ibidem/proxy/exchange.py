"""State machine of one request and its response: events in, commands out. No socket, no clock, no await.

    client   ──RequestStarted, RequestChunk…, RequestEnded────▶  Exchange  ──Connect, SendUpstream…, EndUpstream──▶
    upstream ──ResponseStarted, ResponseChunk…, ResponseEnded─▶  Exchange  ──StartResponse, SendResponse…, EndResponse─▶

A request with a conversation is held until it is complete, and then rewritten (`Rewrite`). The result
(`RequestRewritten`) is sent; if it is late, the original is. Other requests are forwarded as they arrive.
A response is never changed; its token counts are read while it is forwarded. It is held back only if the provider
rejects a rewritten request: then the exchange requests another body (`Resend`, `ResendReady`). If every body is
rejected, the client gets the first rejection, because that one names the cause.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from ..billing.usage import Usage
from ..providers.default_upstreams import DefaultUpstreams
from ..providers.headers import (
    HeaderList,
    add_beta,
    build_client_headers,
    build_upstream_headers,
    first_header,
    is_websocket_upgrade,
)
from ..providers.rejections import MAX_HELD_BYTES, REJECTION_STATUSES, Rejection
from ..providers.routes import Route, carries_conversations, find_route
from ..providers.usage_reader import UsageReader
from . import commands, events
from .states import NEXT_STATES, REQUEST_INCOMPLETE, RESPONSE_STARTED, UNCONNECTED, State

REVERSE_PROXY_ONLY = "this is a reverse proxy: set it as the base URL of a provider, not as HTTP_PROXY"
CLIENT_GONE = "the client went away"
MISDIRECTED = 400
"""Status for a request that no upstream may get. Clients retry after 421, but not after 400."""
UNKNOWN_BODY = "the body is not in Anthropic's format"
NO_WEBSOCKETS = "requests in a WebSocket cannot be rewritten: use HTTP"


class Exchange(msgspec.Struct):
    """State machine of one exchange. Pass events to `handle` in order, and execute the commands it returns in order."""

    max_body: int
    websockets: bool = True
    resend: bool = False
    """True if a rejected request is sent again if it was rewritten."""
    defaults: DefaultUpstreams = DefaultUpstreams()
    """Upstreams that the user has not set. They get only requests that belong to their provider."""
    state: State = State.IDLE
    route: Route | None = None
    status: int = 0
    """Status of the response; 0 before it starts. `MISDIRECTED` if the proxy rejected the request."""
    usage: Usage | None = None
    """Token counts of the provider, known after the response."""
    cleared: bool = False
    """True if the provider reported that it had cleared tool results."""
    summary: Usage = Usage()
    """Tokens of compactions by the provider. They are part of the usage, not of the context."""
    answered_by: str = ""
    """Model that the response names next to its token counts."""
    failure: str = ""
    """Why the exchange was aborted; empty if it was not."""
    received: int = 0
    sent: int = 0
    """Bytes of the request body, as received and as sent."""
    request: events.RequestStarted | None = None
    upgrades: bool = False
    """True if the request asks for a WebSocket."""
    rewrites: bool = False
    """True if the request contains a conversation and is held until it is complete."""
    over: bool = False
    _held: list[bytes] = []
    _refusal: Rejection | None = None
    """Last rejection, until a response is forwarded."""
    _first_refusal: Rejection | None = None
    _beta: str = ""
    """Feature that the next body requires in its `anthropic-beta` header."""
    _reader: UsageReader | None = None

    def handle(self, event: events.Event) -> list[commands.Command]:
        """Process an event and return the commands to execute. Events after the end have no effect."""
        if self.over:
            return []
        kind = type(event)
        if kind not in NEXT_STATES[self.state]:
            raise ValueError(f"{kind.__name__} while {self.state.value}")
        return _HANDLERS[kind](self, event)

    # ── the request ─────────────────────────────────────────────────────────────────────────────────────────────────

    def _start_request(self, event: events.RequestStarted) -> list[commands.Command]:
        self.request = event
        self.route = find_route(event.method, event.target, event.headers, self.defaults.regions)
        self.rewrites = self.route.format is not None
        if not event.target.startswith("/"):
            return self._end_with_error(400, REVERSE_PROXY_ONLY)
        if why := self.defaults.reason_to_reject(self.route, event.headers):
            self.status = MISDIRECTED
            return self._end_with_error(MISDIRECTED, why)
        length = first_header(event.headers, "content-length")
        if length.isdecimal() and int(length) > self.max_body:
            return self._reject_large_request()
        self.upgrades = is_websocket_upgrade(event.method, event.headers)
        if self.upgrades and not self.websockets and carries_conversations(event.target):
            return self._end_with_error(426, NO_WEBSOCKETS, (("Upgrade", "HTTP/1.1"),))
        self.state = State.HOLDING if self.rewrites else State.PASSING
        return [] if self.rewrites else [self._connect_command()]

    def _take_request_chunk(self, event: events.RequestChunk) -> list[commands.Command]:
        data = event.data
        self.received += len(data)
        if self.received > self.max_body:
            return self._reject_large_request()
        if self.state is State.HOLDING:
            self._held.append(data)
            return []
        self.sent += len(data)
        return [commands.SendUpstream(data)]

    def _reject_large_request(self) -> list[commands.Command]:
        return self._end_with_error(
            413, f"the request is larger than {self.max_body:,} bytes: allow more with --max-body"
        )

    def _reject_broken_request(self, event: events.RequestBroken) -> list[commands.Command]:
        return self._end_with_error(400, event.why)

    def _end_request(self, _: events.RequestEnded) -> list[commands.Command]:
        if self.state is State.HOLDING:
            return self._rewrite_held_body()
        self.state = State.ANSWERING if self.state is State.EARLY else State.WAITING
        return [commands.EndUpstream()]

    def _rewrite_held_body(self) -> list[commands.Command]:
        """Rewrite the body. Forward it unchanged if it is not in the format that the path suggests."""
        assert self.route is not None
        body = b"".join(self._held)
        if f'"{self.route.body_key}"'.encode() in body or not self.route.body_key:
            self.state = State.REWRITING
            return [commands.Rewrite(body)]
        self.route = self.route._replace(format=None, note=UNKNOWN_BODY)
        self.rewrites = False
        self._held.clear()
        return self._send_body(body, False)

    def _send_rewritten(self, event: events.RequestRewritten) -> list[commands.Command]:
        data = b"".join(self._held) if event.body is None else event.body
        self._held.clear()
        return self._send_body(data, self.resend and (event.body is not None or event.is_retryable))

    def _send_again(self, event: events.ResendReady) -> list[commands.Command]:
        self._beta = event.beta
        return self._forward_rejection() if event.body is None else self._send_body(event.body, True)

    def _send_body(self, body: bytes, is_retryable: bool) -> list[commands.Command]:
        """Send a complete request. With `is_retryable`, another body is tried if this one is rejected."""
        self.state = State.TRYING if is_retryable else State.WAITING
        self.sent = len(body)
        return [self._connect_command(len(body)), commands.SendUpstream(body), commands.EndUpstream()]

    def _connect_command(self, length: int | None = None) -> commands.Connect:
        assert self.request is not None
        assert self.route is not None
        headers, chunked = build_upstream_headers(self.request.headers, length, self.upgrades)
        if self._beta:
            headers = add_beta(headers, self._beta)
        route = self.route
        return commands.Connect(route.provider, self.request.method, route.target, headers, chunked, route.region)

    # ── the response ────────────────────────────────────────────────────────────────────────────────────────────────

    def _handle_response(self, event: events.ResponseStarted) -> list[commands.Command]:
        if event.status == 101 and not self.upgrades:
            return self._end_with_error(502, "the upstream switched to another protocol without a request for it")
        if self.state is State.TRYING and event.status in REJECTION_STATUSES:
            self.state = State.REFUSED
            self._refusal = Rejection(event.status, event.reason, event.headers)
            self._first_refusal = self._first_refusal or self._refusal
            return []
        return self._start_response(event)

    def _start_response(self, event: events.ResponseStarted) -> list[commands.Command]:
        assert self.request is not None
        self.status = event.status
        self._refusal = self._first_refusal = None
        if event.status == 101:
            self.state = State.TUNNELLING
            return [commands.StartResponse(101, event.reason, event.headers, last=True), commands.Tunnel()]
        self.state = State.EARLY if self.state is State.PASSING else State.ANSWERING
        self._read_usage(event)
        request = self.request
        # After a rejected upgrade, it is unclear whether the client sends HTTP or frames: close the connection.
        keeps_alive = request.keep_alive and not self.upgrades
        headers, chunked, last = build_client_headers(
            event.headers, request.method, event.status, request.version, keeps_alive
        )
        return [commands.StartResponse(event.status, event.reason, headers, chunked, last)]

    def _read_usage(self, event: events.ResponseStarted) -> None:
        assert self.route is not None
        if self.route.format is not None and not self.route.counts and 200 <= event.status < 300:
            kind, encoding = (
                first_header(event.headers, "content-type"),
                first_header(event.headers, "content-encoding"),
            )
            self._reader = UsageReader(self.route.format, kind, encoding)

    def _forward_response_chunk(self, event: events.ResponseChunk) -> list[commands.Command]:
        data = event.data
        if self.state is State.REFUSED:
            assert self._refusal is not None
            self._refusal.body += data
            return self._start_rejection() if len(self._refusal.body) > MAX_HELD_BYTES else []
        if self._reader is not None:
            self._reader.feed(data)
        return [commands.SendResponse(data)]

    def _end_response(self, _: events.ResponseEnded | None = None) -> list[commands.Command]:
        if self.state is not State.REFUSED:
            self._finish_exchange()
            return [commands.EndResponse()]
        assert self._refusal is not None
        kind = self._refusal.error_kind
        if kind is None:
            return self._forward_rejection()
        self.state = State.RETRYING
        return [commands.Resend(kind, self._refusal.is_about_thinking)]

    def _start_rejection(self) -> list[commands.Command]:
        """Start to forward the rejection to the client, with the part of its body that has arrived."""
        assert self._refusal is not None
        rejection = self._refusal
        head = events.ResponseStarted(rejection.status, rejection.reason, rejection.headers)
        return [*self._start_response(head), commands.SendResponse(bytes(rejection.body))]

    def _forward_rejection(self) -> list[commands.Command]:
        """Forward the first rejection to the client, complete."""
        self._refusal = self._first_refusal
        return [*self._start_rejection(), *self._end_response()]

    # ── the end ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def _close_client(self, _: events.ClientClosed) -> list[commands.Command]:
        connected = self.state not in UNCONNECTED
        self._finish_exchange(CLIENT_GONE)
        return [commands.CancelUpstream()] if connected else []

    def _handle_upstream_failure(self, event: events.UpstreamFailed) -> list[commands.Command]:
        return self._fail_upstream(event.why)

    def _fail_upstream(self, why: str) -> list[commands.Command]:
        if self.state is State.REFUSED:
            return [*self._start_rejection(), *self._fail_upstream(why)]
        if self._refusal is not None:  # a retry failed, but there is the first rejection to forward
            return self._forward_rejection()
        has_started, unread = self.state in RESPONSE_STARTED, self.state in REQUEST_INCOMPLETE
        self._finish_exchange(why)
        return [commands.ResetClient()] if has_started else [commands.SendError(502, why, last=unread)]

    def _end_with_error(self, status: int, why: str, headers: HeaderList = ()) -> list[commands.Command]:
        """End the exchange with an error of our own, whatever the upstream responds."""
        has_started, connected = self.state in RESPONSE_STARTED, self.state not in UNCONNECTED
        self._finish_exchange(why)
        command = commands.ResetClient() if has_started else commands.SendError(status, why, headers, last=True)
        return [commands.CancelUpstream(), command] if connected else [command]

    def _finish_exchange(self, failure: str = "") -> None:
        self.state, self.over = State.OVER, True
        self.failure = failure
        self._held.clear()
        if self._reader is not None:
            self.usage, self.answered_by = self._reader.finish(), self._reader.model
            self.cleared, self.summary = self._reader.cleared_tool_uses > 0, self._reader.compaction


_HANDLERS: dict[type[events.Event], Callable[[Exchange, Any], list[commands.Command]]] = {
    events.RequestStarted: Exchange._start_request,
    events.RequestChunk: Exchange._take_request_chunk,
    events.RequestEnded: Exchange._end_request,
    events.RequestBroken: Exchange._reject_broken_request,
    events.RequestRewritten: Exchange._send_rewritten,
    events.ResendReady: Exchange._send_again,
    events.ResponseStarted: Exchange._handle_response,
    events.ResponseChunk: Exchange._forward_response_chunk,
    events.ResponseEnded: Exchange._end_response,
    events.UpstreamFailed: Exchange._handle_upstream_failure,
    events.ClientClosed: Exchange._close_client,
}
"""Handler by event type. A test checks that it is complete."""
