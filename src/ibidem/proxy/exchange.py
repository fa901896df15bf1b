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
from ..providers.headers import HeaderList, first, for_client, for_upstream, wants_websocket, with_beta
from ..providers.rejections import MAX_HELD_BYTES, REFUSAL_STATUSES, Refusal
from ..providers.routes import Route, carries_conversations, route
from ..providers.usage_reader import UsageReader
from . import commands, events
from .states import BEGUN, NEXT_STATES, UNCONNECTED, UNREAD, State

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
    _refusal: Refusal | None = None
    """Last rejection, until a response is forwarded."""
    _first_refusal: Refusal | None = None
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

    def _started(self, event: events.RequestStarted) -> list[commands.Command]:
        self.request = event
        self.route = route(event.method, event.target, event.headers, self.defaults.regions)
        self.rewrites = self.route.format is not None
        if not event.target.startswith("/"):
            return self._give_up(400, REVERSE_PROXY_ONLY)
        if why := self.defaults.refusal(self.route, event.headers):
            self.status = MISDIRECTED
            return self._give_up(MISDIRECTED, why)
        length = first(event.headers, "content-length")
        if length.isdecimal() and int(length) > self.max_body:
            return self._too_large()
        self.upgrades = wants_websocket(event.method, event.headers)
        if self.upgrades and not self.websockets and carries_conversations(event.target):
            return self._give_up(426, NO_WEBSOCKETS, (("Upgrade", "HTTP/1.1"),))
        self.state = State.HOLDING if self.rewrites else State.PASSING
        return [] if self.rewrites else [self._connect()]

    def _chunk(self, event: events.RequestChunk) -> list[commands.Command]:
        data = event.data
        self.received += len(data)
        if self.received > self.max_body:
            return self._too_large()
        if self.state is State.HOLDING:
            self._held.append(data)
            return []
        self.sent += len(data)
        return [commands.SendUpstream(data)]

    def _too_large(self) -> list[commands.Command]:
        return self._give_up(413, f"the request is larger than {self.max_body:,} bytes: allow more with --max-body")

    def _broken(self, event: events.RequestBroken) -> list[commands.Command]:
        return self._give_up(400, event.why)

    def _ended(self, _: events.RequestEnded) -> list[commands.Command]:
        if self.state is State.HOLDING:
            return self._held_body()
        self.state = State.ANSWERING if self.state is State.EARLY else State.WAITING
        return [commands.EndUpstream()]

    def _held_body(self) -> list[commands.Command]:
        """Rewrite the body. Forward it unchanged if it is not in the format that the path suggests."""
        assert self.route is not None
        body = b"".join(self._held)
        if f'"{self.route.body_key}"'.encode() in body or not self.route.body_key:
            self.state = State.REWRITING
            return [commands.Rewrite(body)]
        self.route = self.route._replace(format=None, note=UNKNOWN_BODY)
        self.rewrites = False
        self._held.clear()
        return self._send(body, False)

    def _rewritten(self, event: events.Rewritten) -> list[commands.Command]:
        data = b"".join(self._held) if event.body is None else event.body
        self._held.clear()
        return self._send(data, self.resend and (event.body is not None or event.is_retryable))

    def _resent(self, event: events.Resent) -> list[commands.Command]:
        self._beta = event.beta
        return self._pass_refusal() if event.body is None else self._send(event.body, True)

    def _send(self, body: bytes, again: bool) -> list[commands.Command]:
        """Send a complete request. With `again`, another body is tried if this one is rejected."""
        self.state = State.TRYING if again else State.WAITING
        self.sent = len(body)
        return [self._connect(len(body)), commands.SendUpstream(body), commands.EndUpstream()]

    def _connect(self, length: int | None = None) -> commands.Connect:
        assert self.request is not None
        assert self.route is not None
        headers, chunked = for_upstream(self.request.headers, length, self.upgrades)
        if self._beta:
            headers = with_beta(headers, self._beta)
        way = self.route
        return commands.Connect(way.provider, self.request.method, way.target, headers, chunked, way.region)

    # ── the response ────────────────────────────────────────────────────────────────────────────────────────────────

    def _answer(self, event: events.AnswerStarted) -> list[commands.Command]:
        if event.status == 101 and not self.upgrades:
            return self._give_up(502, "the upstream switched to another protocol without a request for it")
        if self.state is State.TRYING and event.status in REFUSAL_STATUSES:
            self.state = State.REFUSED
            self._refusal = Refusal(event.status, event.reason, event.headers)
            self._first_refusal = self._first_refusal or self._refusal
            return []
        return self._start_answer(event)

    def _start_answer(self, event: events.AnswerStarted) -> list[commands.Command]:
        assert self.request is not None
        self.status = event.status
        self._refusal = self._first_refusal = None
        if event.status == 101:
            self.state = State.TUNNELLING
            return [commands.StartAnswer(101, event.reason, event.headers, last=True), commands.Tunnel()]
        self.state = State.EARLY if self.state is State.PASSING else State.ANSWERING
        self._read_usage(event)
        asked = self.request
        # After a rejected upgrade, it is unclear whether the client sends HTTP or frames: close the connection.
        keeps = asked.keep_alive and not self.upgrades
        headers, chunked, last = for_client(event.headers, asked.method, event.status, asked.version, keeps)
        return [commands.StartAnswer(event.status, event.reason, headers, chunked, last)]

    def _read_usage(self, event: events.AnswerStarted) -> None:
        assert self.route is not None
        if self.route.format is not None and not self.route.counts and 200 <= event.status < 300:
            kind, encoding = first(event.headers, "content-type"), first(event.headers, "content-encoding")
            self._reader = UsageReader(self.route.format, kind, encoding)

    def _answer_chunk(self, event: events.AnswerChunk) -> list[commands.Command]:
        data = event.data
        if self.state is State.REFUSED:
            assert self._refusal is not None
            self._refusal.body += data
            return self._let_through() if len(self._refusal.body) > MAX_HELD_BYTES else []
        if self._reader is not None:
            self._reader.feed(data)
        return [commands.SendAnswer(data)]

    def _answer_ended(self, _: events.AnswerEnded | None = None) -> list[commands.Command]:
        if self.state is not State.REFUSED:
            self._finish()
            return [commands.EndAnswer()]
        assert self._refusal is not None
        kind = self._refusal.kind
        if kind is None:
            return self._pass_refusal()
        self.state = State.RETRYING
        return [commands.Resend(kind, self._refusal.names_thinking)]

    def _let_through(self) -> list[commands.Command]:
        """Start to forward the rejection to the client, with the part of its body that has arrived."""
        assert self._refusal is not None
        refused = self._refusal
        head = events.AnswerStarted(refused.status, refused.reason, refused.headers)
        return [*self._start_answer(head), commands.SendAnswer(bytes(refused.body))]

    def _pass_refusal(self) -> list[commands.Command]:
        """Forward the first rejection to the client, complete."""
        self._refusal = self._first_refusal
        return [*self._let_through(), *self._answer_ended()]

    # ── the end ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def _gone(self, _: events.ClientGone) -> list[commands.Command]:
        connected = self.state not in UNCONNECTED
        self._finish(CLIENT_GONE)
        return [commands.CancelUpstream()] if connected else []

    def _upstream_failed(self, event: events.UpstreamFailed) -> list[commands.Command]:
        return self._failed(event.why)

    def _failed(self, why: str) -> list[commands.Command]:
        if self.state is State.REFUSED:
            return [*self._let_through(), *self._failed(why)]
        if self._refusal is not None:  # a retry failed, but there is the first rejection to forward
            return self._pass_refusal()
        begun, unread = self.state in BEGUN, self.state in UNREAD
        self._finish(why)
        return [commands.ResetClient()] if begun else [commands.Refuse(502, why, last=unread)]

    def _give_up(self, status: int, why: str, headers: HeaderList = ()) -> list[commands.Command]:
        """End the exchange with an error of our own, whatever the upstream responds."""
        begun, connected = self.state in BEGUN, self.state not in UNCONNECTED
        self._finish(why)
        told = commands.ResetClient() if begun else commands.Refuse(status, why, headers, last=True)
        return [commands.CancelUpstream(), told] if connected else [told]

    def _finish(self, failure: str = "") -> None:
        self.state, self.over = State.OVER, True
        self.failure = failure
        self._held.clear()
        if self._reader is not None:
            self.usage, self.answered_by = self._reader.finish(), self._reader.model
            self.cleared, self.summary = self._reader.cleared_tool_uses > 0, self._reader.compaction


_HANDLERS: dict[type[events.Event], Callable[[Exchange, Any], list[commands.Command]]] = {
    events.RequestStarted: Exchange._started,
    events.RequestChunk: Exchange._chunk,
    events.RequestEnded: Exchange._ended,
    events.RequestBroken: Exchange._broken,
    events.Rewritten: Exchange._rewritten,
    events.Resent: Exchange._resent,
    events.AnswerStarted: Exchange._answer,
    events.AnswerChunk: Exchange._answer_chunk,
    events.AnswerEnded: Exchange._answer_ended,
    events.UpstreamFailed: Exchange._upstream_failed,
    events.ClientGone: Exchange._gone,
}
"""Handler by event type. A test checks that it is complete."""
