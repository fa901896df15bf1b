"""One request and its answer, as a state machine: events in, commands out. No socket, no clock, no await.

    client   ──RequestStarted, RequestChunk…, RequestEnded──▶  Exchange  ──Connect, SendUpstream…, EndUpstream──▶
    upstream ──AnswerStarted, AnswerChunk…, AnswerEnded─────▶  Exchange  ──StartAnswer, SendAnswer…, EndAnswer───▶

A request that carries a conversation is held until it is complete, and handed out to be rewritten (`Rewrite`); what
comes back (`Rewritten`), and if nothing comes back in time the original, is sent. Everything else passes as it comes.
An answer is never changed, and what it says of tokens is read in passing. It is held only where a rewritten request is
refused: then what to send instead is asked for (`Resend`, `Resent`), and the last refusal is what the client gets.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import assert_never

from ..billing.usage import Usage
from .headers import HeaderList, first, for_client, for_upstream, wants_websocket
from .refusals import MAX_HELD_BYTES, REFUSAL_STATUSES, Refusal
from .routes import Route, carries_conversations, route
from .usage import UsageReader

# ── events ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class RequestStarted:
    method: str
    target: str
    headers: HeaderList
    version: tuple[int, int] = (1, 1)
    keep_alive: bool = True
    """Whether the client wants to go on with its connection afterwards."""


@dataclass(frozen=True, slots=True)
class RequestChunk:
    data: bytes


@dataclass(frozen=True, slots=True)
class RequestEnded:
    pass


@dataclass(frozen=True, slots=True)
class RequestBroken:
    """Its body is not what its headers promise."""

    why: str


@dataclass(frozen=True, slots=True)
class Rewritten:
    """What is to be sent instead; None sends the original."""

    body: bytes | None


@dataclass(frozen=True, slots=True)
class Resent:
    """What is to be sent instead of what was refused; None if there is nothing else."""

    body: bytes | None
    last: bool = False
    """The answer to it is passed on whatever it is."""


@dataclass(frozen=True, slots=True)
class AnswerStarted:
    status: int
    reason: str
    headers: HeaderList


@dataclass(frozen=True, slots=True)
class AnswerChunk:
    data: bytes


@dataclass(frozen=True, slots=True)
class AnswerEnded:
    pass


@dataclass(frozen=True, slots=True)
class UpstreamFailed:
    """It could not be reached, or broke off."""

    why: str


@dataclass(frozen=True, slots=True)
class ClientGone:
    pass


Event = (
    RequestStarted
    | RequestChunk
    | RequestEnded
    | RequestBroken
    | Rewritten
    | Resent
    | AnswerStarted
    | AnswerChunk
    | AnswerEnded
    | UpstreamFailed
    | ClientGone
)


# ── commands ────────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Connect:
    """Open the upstream and send it this, with a `Host` of its own. The body follows, in chunks if `chunked`."""

    provider: str
    method: str
    target: str
    headers: HeaderList
    chunked: bool = False


@dataclass(frozen=True, slots=True)
class SendUpstream:
    data: bytes


@dataclass(frozen=True, slots=True)
class EndUpstream:
    pass


@dataclass(frozen=True, slots=True)
class Rewrite:
    body: bytes


@dataclass(frozen=True, slots=True)
class Resend:
    """The provider refused what was sent, and calls that so."""

    kind: str


@dataclass(frozen=True, slots=True)
class StartAnswer:
    status: int
    reason: str
    headers: HeaderList
    chunked: bool = False
    """The body is sent in chunks."""
    last: bool = False
    """The connection ends with it."""


@dataclass(frozen=True, slots=True)
class SendAnswer:
    data: bytes


@dataclass(frozen=True, slots=True)
class EndAnswer:
    pass


@dataclass(frozen=True, slots=True)
class Tunnel:
    """From here on both sides say what they like. Bytes pass as they come until one of them ends it."""


@dataclass(frozen=True, slots=True)
class CancelUpstream:
    """Nobody listens any more: let go of the upstream at once."""


@dataclass(frozen=True, slots=True)
class ResetClient:
    """The answer broke off in the middle: so does ours."""


@dataclass(frozen=True, slots=True)
class Refuse:
    """An answer of our own, because no upstream gave one."""

    status: int
    message: str
    headers: HeaderList = ()
    last: bool = False
    """The connection ends with it: the rest of the request is not read."""


Command = (
    Connect
    | SendUpstream
    | EndUpstream
    | Rewrite
    | Resend
    | StartAnswer
    | SendAnswer
    | EndAnswer
    | Tunnel
    | CancelUpstream
    | ResetClient
    | Refuse
)

REVERSE_PROXY_ONLY = "this is a reverse proxy: name it as the base URL of a provider, not as HTTP_PROXY"
NO_WEBSOCKETS = "nothing can be rewritten in a WebSocket: use HTTP"


@dataclass(slots=True)
class Exchange:
    """Feed it events in the order they happen; carry out what it returns, in order."""

    max_body: int
    websockets: bool = True
    resend: bool = False
    """What is refused is sent again, if it was rewritten."""
    route: Route | None = None
    status: int = 0
    """Of the answer; 0 before there is one."""
    usage: Usage | None = None
    """What the provider counted, once the answer is over."""
    failure: str = ""
    """Why it broke off."""
    over: bool = False
    received: int = 0
    sent: int = 0
    """Bytes of the request's body, as it came and as it was sent."""
    answered: int = 0
    """Bytes of the answer's body."""
    request: RequestStarted | None = None
    upgrades: bool = False
    """It asks for a WebSocket."""
    _connected: bool = False
    _complete: bool = False
    """All of the request is here."""
    _held: list[bytes] = field(default_factory=list)
    _again: bool = False
    """What is on its way may be sent again."""
    _refusal: Refusal | None = None
    """The last."""
    holds: bool = False
    """The answer waits here."""
    _reader: UsageReader | None = None

    def handle(self, event: Event) -> list[Command]:
        """What comes after the end changes nothing any more."""
        if self.over:
            return []
        match event:
            case AnswerChunk(data):  # first: there are many of them
                if self.holds:
                    return self._hold(data)
                self.answered += len(data)
                if self._reader is not None:
                    self._reader.feed(data)
                return [SendAnswer(data)]
            case RequestStarted():
                return self._started(event)
            case RequestChunk(data):
                return self._chunk(data)
            case RequestEnded():
                return self._ended()
            case RequestBroken(why):
                return self._give_up(400, why)
            case Rewritten(body):
                return self._rewritten(body)
            case Resent(body, last):
                return self._resent(body, last)
            case AnswerStarted():
                return self._answer(event)
            case AnswerEnded():
                if self.holds:
                    return self._refused()
                self._finish()
                return [EndAnswer()]
            case UpstreamFailed(why):
                return self._failed(why)
            case ClientGone():
                self._finish("the client went away")
                return [CancelUpstream()] if self._connected else []
        assert_never(event)

    @property
    def rewrites(self) -> bool:
        return self.route is not None and self.route.format is not None

    # ── the request ─────────────────────────────────────────────────────────────────────────────────────────────────

    def _started(self, event: RequestStarted) -> list[Command]:
        self.request = event
        self.route = route(event.method, event.target, event.headers)
        if not event.target.startswith("/"):
            return self._give_up(400, REVERSE_PROXY_ONLY)
        length = first(event.headers, "content-length")
        if length.isdecimal() and int(length) > self.max_body:
            return self._too_large()
        self.upgrades = wants_websocket(event.method, event.headers)
        if self.upgrades and not self.websockets and carries_conversations(event.target):
            return self._give_up(426, NO_WEBSOCKETS, (("Upgrade", "HTTP/1.1"),))
        return [] if self.rewrites else [self._connect()]

    def _chunk(self, data: bytes) -> list[Command]:
        self.received += len(data)
        if self.received > self.max_body:
            return self._too_large()
        if self.rewrites:
            self._held.append(data)
            return []
        self.sent += len(data)
        return [SendUpstream(data)]

    def _too_large(self) -> list[Command]:
        return self._give_up(413, f"the request is larger than {self.max_body:,} bytes: allow more with --max-body")

    def _ended(self) -> list[Command]:
        self._complete = True
        return [Rewrite(b"".join(self._held))] if self.rewrites else [EndUpstream()]

    def _rewritten(self, body: bytes | None) -> list[Command]:
        data = b"".join(self._held) if body is None else body
        self._held.clear()
        self._again = self.resend and body is not None
        self.sent = len(data)
        return [self._connect(len(data)), SendUpstream(data), EndUpstream()]

    def _connect(self, length: int | None = None) -> Connect:
        assert self.request is not None
        assert self.route is not None
        self._connected = True
        headers, chunked = for_upstream(self.request.headers, length, self.upgrades)
        return Connect(self.route.provider, self.request.method, self.route.target, headers, chunked)

    # ── the answer ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _answer(self, event: AnswerStarted) -> list[Command]:
        assert self.request is not None
        if event.status == 101 and not self.upgrades:
            return self._give_up(502, "upstream speaks another protocol now, which nobody asked for")
        if self._again and event.status in REFUSAL_STATUSES:
            self._refusal, self.holds = Refusal(event.status, event.reason, event.headers), True
            return []
        return self._start_answer(event)

    def _start_answer(self, event: AnswerStarted) -> list[Command]:
        assert self.request is not None
        self.status = event.status
        if event.status == 101:
            return [StartAnswer(101, event.reason, event.headers, last=True), Tunnel()]
        self._read_usage(event)
        asked = self.request
        keeps = asked.keep_alive and not self.upgrades  # what follows a refused upgrade is anybody's guess
        headers, chunked, last = for_client(event.headers, asked.method, event.status, asked.version, keeps)
        return [StartAnswer(event.status, event.reason, headers, chunked, last)]

    def _hold(self, data: bytes) -> list[Command]:
        assert self._refusal is not None
        self._refusal.body += data
        return self._let_through() if len(self._refusal.body) > MAX_HELD_BYTES else []

    def _refused(self) -> list[Command]:
        """All of it is here."""
        assert self._refusal is not None
        kind = self._refusal.kind
        return [Resend(kind)] if kind is not None else self._resent(None, True)

    def _resent(self, body: bytes | None, last: bool) -> list[Command]:
        if body is None:
            return [*self._let_through(), *self.handle(AnswerEnded())]
        self.holds, self._again = False, not last
        self.sent = len(body)
        return [self._connect(len(body)), SendUpstream(body), EndUpstream()]

    def _let_through(self) -> list[Command]:
        """The refusal is what the client gets."""
        assert self._refusal is not None
        refused, self._refusal = self._refusal, None
        self.holds = self._again = False
        self.answered += len(refused.body)
        head = AnswerStarted(refused.status, refused.reason, refused.headers)
        return [*self._start_answer(head), SendAnswer(bytes(refused.body))]

    def _read_usage(self, event: AnswerStarted) -> None:
        assert self.route is not None
        if self.route.format is not None and not self.route.counts and 200 <= event.status < 300:
            kind, encoding = (first(event.headers, name) for name in ("content-type", "content-encoding"))
            self._reader = UsageReader(self.route.format, kind, encoding)

    # ── the end ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def _failed(self, why: str) -> list[Command]:
        if self._refusal is not None and self.status == 0:
            broken = self.holds  # and else it was another try that came to nothing: there is an answer
            return [*self._let_through(), *(self._failed(why) if broken else self.handle(AnswerEnded()))]
        begun, unread = self.status > 0, not self._complete
        self._finish(why)
        return [ResetClient()] if begun else [Refuse(502, why, last=unread)]

    def _give_up(self, status: int, why: str, headers: HeaderList = ()) -> list[Command]:
        """It cannot go on, whatever upstream says to it."""
        begun, connected = self.status > 0, self._connected
        self._finish(why)
        told = ResetClient() if begun else Refuse(status, why, headers, last=True)
        return [CancelUpstream(), told] if connected else [told]

    def _finish(self, failure: str = "") -> None:
        self.over = True
        self.failure = failure
        self._held.clear()
        if self._reader is not None:
            self.usage = self._reader.finish()
