"""The state machine of one exchange, by playbooks: these events, in this order, lead to these commands."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from ibidem.billing.usage import Usage
from ibidem.providers.headers import build_client_headers, build_upstream_headers
from ibidem.proxy.commands import (
    CancelUpstream,
    Command,
    Connect,
    EndResponse,
    EndUpstream,
    Resend,
    ResetClient,
    Rewrite,
    SendError,
    SendResponse,
    SendUpstream,
    StartResponse,
    Tunnel,
)
from ibidem.proxy.events import (
    ClientClosed,
    Event,
    RequestBroken,
    RequestChunk,
    RequestEnded,
    RequestRewritten,
    RequestStarted,
    ResendReady,
    ResponseChunk,
    ResponseEnded,
    ResponseStarted,
    UpstreamFailed,
)
from ibidem.proxy.exchange import NO_WEBSOCKETS, REVERSE_PROXY_ONLY, Exchange
from ibidem.proxy.states import NEXT_STATES, State

Play = list[tuple[Event, list[Command]]]

MOST = 100
LENGTH = (("Content-Length", "9"),)
ASKS = RequestStarted("POST", "/v1/messages", LENGTH)
"""Carries a conversation, so it is held."""
PASSES = RequestStarted("PUT", "/v1/files/1", LENGTH)
TOO_LARGE = SendError(413, "the request is larger than 100 bytes: allow more with --max-body", last=True)
JSON = (("Content-Type", "application/json"), ("Content-Length", "2"))


def asked(length: int = 9, more: Sequence[tuple[str, str]] = ()) -> Connect:
    return Connect("anthropic", "POST", "/v1/messages", [("Content-Length", str(length)), *more])


PROFILE = "/model/arn:aws:bedrock:us-west-2:1:application-inference-profile%2Fx7/invoke"
CONNECTED: Play = [
    (ASKS, []),
    (RequestChunk(b"original!"), []),
    (RequestEnded(), [Rewrite(b"original!")]),
    (RequestRewritten(b"short"), [asked(5), SendUpstream(b"short"), EndUpstream()]),
]
STREAMING: Play = [
    *CONNECTED,
    (ResponseStarted(200, "OK", JSON), [StartResponse(200, "OK", list(JSON))]),
    (ResponseChunk(b"{"), [SendResponse(b"{")]),
]
PASSING: Play = [
    (PASSES, [Connect("openai", "PUT", "/v1/files/1", list(LENGTH))]),
    (RequestChunk(b"four"), [SendUpstream(b"four")]),
]

PLAYS: dict[str, Play] = {
    "a conversation is held, rewritten and sent, and its answer passes": [
        *STREAMING,
        (ResponseChunk(b"}"), [SendResponse(b"}")]),
        (ResponseEnded(), [EndResponse()]),
    ],
    "nothing came back from rewriting: the original is sent": [
        (ASKS, []),
        (RequestChunk(b"orig"), []),
        (RequestChunk(b"inal!"), []),
        (RequestEnded(), [Rewrite(b"original!")]),
        (RequestRewritten(None), [asked(), SendUpstream(b"original!"), EndUpstream()]),
    ],
    "an empty conversation request goes out empty": [
        (RequestStarted("POST", "/v1/messages", ()), []),
        (RequestEnded(), [Rewrite(b"")]),
        (
            RequestRewritten(None),
            [Connect("anthropic", "POST", "/v1/messages", []), SendUpstream(b""), EndUpstream()],
        ),
    ],
    "a body in the format that an ARN may stand for is rewritten": [
        (RequestStarted("POST", PROFILE, ()), []),
        (RequestChunk(b'{"anthropic_'), []),
        (RequestChunk(b'version":"x"}'), []),
        (RequestEnded(), [Rewrite(b'{"anthropic_version":"x"}')]),
    ],
    "a body in another format is forwarded unchanged": [
        (RequestStarted("POST", PROFILE, ()), []),
        (RequestChunk(b'{"text":'), []),
        (RequestChunk(b'"x"}'), []),
        (
            RequestEnded(),
            [
                Connect("bedrock", "POST", PROFILE, [], region="us-west-2"),
                SendUpstream(b'{"text":"x"}'),
                EndUpstream(),
            ],
        ),
        (ResponseStarted(400, "No", JSON), [StartResponse(400, "No", list(JSON))]),
    ],
    "who asks for a size is rewritten in the same way": [
        (RequestStarted("POST", "/v1/messages/count_tokens", LENGTH), []),
        (RequestChunk(b"original!"), []),
        (RequestEnded(), [Rewrite(b"original!")]),
        (
            RequestRewritten(b"short"),
            [
                Connect("anthropic", "POST", "/v1/messages/count_tokens", [("Content-Length", "5")]),
                SendUpstream(b"short"),
                EndUpstream(),
            ],
        ),
    ],
    "everything else passes as it comes": [
        *PASSING,
        (RequestChunk(b"five!"), [SendUpstream(b"five!")]),
        (RequestEnded(), [EndUpstream()]),
        (ResponseStarted(404, "Not Found", JSON), [StartResponse(404, "Not Found", list(JSON))]),
        (ResponseChunk(b"{}"), [SendResponse(b"{}")]),
        (ResponseEnded(), [EndResponse()]),
    ],
    "upstream may answer before the request is complete": [
        *PASSING,
        (ResponseStarted(401, "No", JSON), [StartResponse(401, "No", list(JSON))]),
        (RequestChunk(b"five!"), [SendUpstream(b"five!")]),
        (ResponseEnded(), [EndResponse()]),
        (RequestChunk(b"more"), []),
        (RequestEnded(), []),
    ],
    "HEAD has headers and no body": [
        (
            RequestStarted("HEAD", "/v1/models", (("anthropic-version", "x"),)),
            [Connect("anthropic", "HEAD", "/v1/models", [("anthropic-version", "x")])],
        ),
        (RequestEnded(), [EndUpstream()]),
        (ResponseStarted(200, "OK", JSON), [StartResponse(200, "OK", list(JSON))]),
        (ResponseEnded(), [EndResponse()]),
    ],
    "a declared length that is too large is refused before anything is read": [
        (RequestStarted("POST", "/v1/messages", (("content-length", "101"),)), [TOO_LARGE]),
        (RequestChunk(b"x"), []),
    ],
    "also one that would pass": [
        (RequestStarted("PUT", "/v1/files/1", (("content-length", "101"),)), [TOO_LARGE]),
    ],
    "a length at the limit is fine": [
        (RequestStarted("POST", "/v1/messages", (("content-length", "100"),)), []),
    ],
    "a body that turns out too large is refused": [
        (RequestStarted("POST", "/v1/messages", (("Transfer-Encoding", "chunked"),)), []),
        (RequestChunk(b"x" * 100), []),
        (RequestChunk(b"x"), [TOO_LARGE]),
        (RequestChunk(b"x"), []),
        (RequestEnded(), []),
    ],
    "if it was being passed on, upstream is let go of": [
        *PASSING,
        (RequestChunk(b"x" * 97), [CancelUpstream(), TOO_LARGE]),
        (ResponseStarted(200, "OK", ()), []),
    ],
    "if upstream is answering it already, the client sees it break": [
        *PASSING,
        (ResponseStarted(200, "OK", JSON), [StartResponse(200, "OK", list(JSON))]),
        (RequestChunk(b"x" * 97), [CancelUpstream(), ResetClient()]),
    ],
    "a request whose body is not what it says is refused": [
        (ASKS, []),
        (RequestBroken("no chunk"), [SendError(400, "no chunk", last=True)]),
    ],
    "and upstream does not get the half of it": [
        *PASSING,
        (RequestBroken("no chunk"), [CancelUpstream(), SendError(400, "no chunk", last=True)]),
    ],
    "upstream cannot be reached": [
        *CONNECTED,
        (UpstreamFailed("no route"), [SendError(502, "no route")]),
        (ResponseStarted(200, "OK", ()), []),
    ],
    "upstream cannot be reached while the body is on its way: the rest is not read": [
        *PASSING,
        (UpstreamFailed("no route"), [SendError(502, "no route", last=True)]),
    ],
    "upstream breaks off in its answer": [
        *STREAMING,
        (UpstreamFailed("reset"), [ResetClient()]),
        (ResponseEnded(), []),
    ],
    "upstream breaks off before the first byte of its answer": [
        *CONNECTED,
        (ResponseStarted(200, "OK", JSON), [StartResponse(200, "OK", list(JSON))]),
        (UpstreamFailed("reset"), [ResetClient()]),
    ],
    "a client that goes while it is read from leaves nothing to cancel": [
        (ASKS, []),
        (ClientClosed(), []),
        (RequestEnded(), []),
    ],
    "a client that goes while its request is rewritten leaves nothing to cancel": [
        *CONNECTED[:3],
        (ClientClosed(), []),
        (RequestRewritten(b"short"), []),
    ],
    "a client that goes before the answer cancels upstream": [
        *CONNECTED,
        (ClientClosed(), [CancelUpstream()]),
        (ResponseStarted(200, "OK", ()), []),
    ],
    "a client that goes in the answer cancels upstream": [
        *STREAMING,
        (ClientClosed(), [CancelUpstream()]),
        (ResponseChunk(b"}"), []),
        (ResponseEnded(), []),
    ],
    "a client that goes while its body passes cancels upstream": [
        *PASSING,
        (ClientClosed(), [CancelUpstream()]),
    ],
    "after the end nothing changes any more": [
        *STREAMING,
        (ResponseEnded(), [EndResponse()]),
        (ClientClosed(), []),
        (UpstreamFailed("late"), []),
        (ResponseChunk(b"late"), []),
        (ResponseEnded(), []),
        (RequestRewritten(b"late"), []),
        (RequestBroken("late"), []),
    ],
    "who takes it for a forward proxy is told": [
        (RequestStarted("GET", "http://example.com/", ()), [SendError(400, REVERSE_PROXY_ONLY, last=True)]),
    ],
    "so is who wants a tunnel": [
        (RequestStarted("CONNECT", "example.com:443", ()), [SendError(400, REVERSE_PROXY_ONLY, last=True)]),
    ],
}


REFUSED = b'{"type": "error", "error": {"type": "invalid_request_error", "message": "thinking was changed"}}'
TOO_LONG = REFUSED.replace(b"thinking was changed", b"prompt is too long: 212,000 tokens > 200,000")
HEADERS = (("Content-Type", "application/json"), ("Content-Length", "97"))
HELD_BACK: Play = [
    *CONNECTED,
    (ResponseStarted(400, "Bad Request", HEADERS), []),
    (ResponseChunk(REFUSED[:50]), []),
    (ResponseChunk(REFUSED[50:]), []),
    (ResponseEnded(), [Resend("invalid_request_error", names_thinking=True)]),
]
TOLD: list[Command] = [StartResponse(400, "Bad Request", list(HEADERS)), SendResponse(REFUSED)]

REFUSALS: dict[str, Play] = {
    "a refusal is held, and what is sent instead is answered": [
        *HELD_BACK,
        (ResendReady(b"other"), [asked(5), SendUpstream(b"other"), EndUpstream()]),
        (ResponseStarted(200, "OK", JSON), [StartResponse(200, "OK", list(JSON))]),
        (ResponseChunk(b"{}"), [SendResponse(b"{}")]),
        (ResponseEnded(), [EndResponse()]),
    ],
    "there is nothing else to be sent": [
        *HELD_BACK,
        (ResendReady(None), [*TOLD, EndResponse()]),
    ],
    "what is sent instead is refused too, and so is the last": [
        *HELD_BACK,
        (ResendReady(b"other"), [asked(5), SendUpstream(b"other"), EndUpstream()]),
        *HELD_BACK[-4:],
        (ResendReady(b"original!"), [asked(9), SendUpstream(b"original!"), EndUpstream()]),
        (ResponseStarted(422, "No", JSON), []),
        (ResponseChunk(b"{}"), []),
        (ResponseEnded(), [Resend("unknown")]),
        (ResendReady(None), [*TOLD, EndResponse()]),
    ],
    "the original is refused, and may have been sent otherwise before": [
        *CONNECTED[:-1],
        (RequestRewritten(None, is_retryable=True), [asked(9), SendUpstream(b"original!"), EndUpstream()]),
        *HELD_BACK[-4:],
        (
            ResendReady(b"other", "new-beta"),
            [asked(5, [("anthropic-beta", "new-beta")]), SendUpstream(b"other"), EndUpstream()],
        ),
        (ResponseStarted(200, "OK", JSON), [StartResponse(200, "OK", list(JSON))]),
        (ResponseEnded(), [EndResponse()]),
    ],
    "what is sent instead reaches nobody: the refusal is the answer": [
        *HELD_BACK,
        (ResendReady(b"other"), [asked(5), SendUpstream(b"other"), EndUpstream()]),
        (UpstreamFailed("no route"), [*TOLD, EndResponse()]),
    ],
    "a refusal for length is passed on": [
        *CONNECTED,
        (ResponseStarted(400, "Bad Request", HEADERS), []),
        (ResponseChunk(TOO_LONG), []),
        (ResponseEnded(), [TOLD[0], SendResponse(TOO_LONG), EndResponse()]),
    ],
    "one that is too long to be held is passed on as it comes": [
        *CONNECTED,
        (ResponseStarted(400, "Bad Request", HEADERS), []),
        (ResponseChunk(b"x" * 65_536), []),
        (ResponseChunk(b"y"), [TOLD[0], SendResponse(b"x" * 65_536 + b"y")]),
        (ResponseChunk(b"z"), [SendResponse(b"z")]),
        (ResponseEnded(), [EndResponse()]),
    ],
    "one that breaks off is passed on, and breaks off": [
        *HELD_BACK[:-2],
        (UpstreamFailed("reset"), [TOLD[0], SendResponse(REFUSED[:50]), ResetClient()]),
    ],
    "a client that goes while a refusal is held": [
        *HELD_BACK[:-1],
        (ClientClosed(), [CancelUpstream()]),
        (ResponseEnded(), []),
    ],
    "other errors are none": [
        *CONNECTED,
        (ResponseStarted(529, "Overloaded", HEADERS), [StartResponse(529, "Overloaded", list(HEADERS))]),
    ],
    "a request that went as it came is not sent again": [
        *CONNECTED[:3],
        (RequestRewritten(None), [asked(), SendUpstream(b"original!"), EndUpstream()]),
        (ResponseStarted(400, "Bad Request", HEADERS), [TOLD[0]]),
    ],
}


@pytest.mark.parametrize("play", REFUSALS.values(), ids=REFUSALS)
def test_what_is_refused_is_sent_again(play: Play) -> None:
    played(Exchange(MOST, resend=True), play)


def test_nothing_is_sent_again_where_that_is_not_wanted() -> None:
    played(Exchange(MOST), [*CONNECTED, (ResponseStarted(400, "Bad Request", HEADERS), [TOLD[0]])])


def played(exchange: Exchange, play: Play) -> None:
    for number, (event, expected) in enumerate(play):
        assert exchange.handle(event) == expected, f"step {number}: {event}"


@pytest.mark.parametrize("play", PLAYS.values(), ids=PLAYS)
def test_the_playbook_holds(play: Play) -> None:
    played(Exchange(MOST), play)


ENDS: dict[str, tuple[Play, str, int]] = {
    "well": ([*STREAMING, (ResponseEnded(), [EndResponse()])], "", 200),
    "the client went": ([*STREAMING, (ClientClosed(), [CancelUpstream()])], "the client went away", 200),
    "upstream failed": ([*CONNECTED, (UpstreamFailed("why"), [SendError(502, "why")])], "why", 0),
}


@pytest.mark.parametrize(("play", "failure", "status"), ENDS.values(), ids=ENDS)
def test_what_happened_is_known_afterwards(play: Play, failure: str, status: int) -> None:
    exchange = Exchange(MOST)
    played(exchange, play)
    assert (exchange.over, exchange.failure, exchange.status) == (True, failure, status)
    assert (exchange.received, exchange.sent) == (9, 5)


USED = b'{"usage": {"input_tokens": 7, "output_tokens": 2}}'


@pytest.mark.parametrize(
    ("target", "status", "expected"),
    [
        ("/v1/messages", 200, Usage(fresh=7, output=2)),
        ("/v1/messages", 429, None),
        ("/v1/messages/count_tokens", 200, None),
        ("/v1/files", 200, None),
    ],
)
@pytest.mark.parametrize("end", [ResponseEnded(), ClientClosed(), UpstreamFailed("why")])
def test_usage_is_read_from_what_is_billed(target: str, status: int, expected: Usage | None, end: Event) -> None:
    exchange = Exchange(MOST)
    exchange.handle(RequestStarted("POST", target, ()))
    exchange.handle(RequestEnded())
    if exchange.rewrites:
        exchange.handle(RequestRewritten(None))
    exchange.handle(ResponseStarted(status, "", (("content-type", "application/json"),)))
    exchange.handle(ResponseChunk(USED))
    exchange.handle(end)
    assert exchange.usage == expected


UPGRADE = (("Host", "here"), ("Upgrade", "WebSocket"), ("Connection", "keep-alive, Upgrade"), ("X-Ibidem-Token", "t"))
SWITCHED = (("Upgrade", "websocket"), ("Connection", "Upgrade"), ("Sec-WebSocket-Accept", "x"))


def test_an_upgrade_becomes_a_tunnel() -> None:
    started = RequestStarted("GET", "/v1/realtime", UPGRADE)
    connect = Connect("openai", "GET", "/v1/realtime", list(UPGRADE[1:3]))
    answer = StartResponse(101, "Switching", SWITCHED, last=True)
    play: Play = [
        (started, [connect]),
        (RequestEnded(), [EndUpstream()]),
        (ResponseStarted(101, "Switching", SWITCHED), [answer, Tunnel()]),
    ]
    played(Exchange(MOST), [*play, (ResponseEnded(), [EndResponse()])])
    played(Exchange(MOST), [*play, (ClientClosed(), [CancelUpstream()])])


def test_an_upgrade_that_upstream_declines_is_answered_and_nothing_more_goes_through() -> None:
    exchange = Exchange(MOST)
    exchange.handle(RequestStarted("GET", "/v1/realtime", UPGRADE))
    headers = [("Content-Length", "0"), ("Connection", "close")]
    assert exchange.handle(ResponseStarted(426, "No", headers[:1])) == [StartResponse(426, "No", headers, last=True)]


def test_an_upgrade_is_refused_where_it_is_not_wanted() -> None:
    refusal = SendError(426, NO_WEBSOCKETS, (("Upgrade", "HTTP/1.1"),), last=True)
    played(Exchange(MOST, websockets=False), [(RequestStarted("GET", "/v1/responses", UPGRADE), [refusal])])
    passed = Exchange(MOST, websockets=False).handle(RequestStarted("GET", "/v1/realtime", UPGRADE))
    assert [type(command) for command in passed] == [Connect]  # no conversation goes there


@pytest.mark.parametrize(
    ("method", "more"),
    [
        ("POST", ()),
        ("GET", (("Content-Length", "5"),)),
        ("GET", (("Transfer-Encoding", "chunked"),)),
    ],
)
def test_an_upgrade_with_a_body_is_not_taken_up(method: str, more: tuple[tuple[str, str], ...]) -> None:
    exchange = Exchange(MOST)
    (connect,) = exchange.handle(RequestStarted(method, "/v1/files", (*UPGRADE, *more)))
    assert isinstance(connect, Connect)
    assert connect.headers == list(more)


def test_a_conversation_that_asks_for_an_upgrade_has_the_length_of_what_is_sent() -> None:
    exchange = Exchange(MOST)
    exchange.handle(RequestStarted("POST", "/v1/messages", (*UPGRADE, *LENGTH)))
    exchange.handle(RequestChunk(b"original!"))
    exchange.handle(RequestEnded())
    assert exchange.handle(RequestRewritten(b"short"))[0] == asked(5)


def test_an_upstream_that_switches_unasked_is_not_followed() -> None:
    exchange = Exchange(MOST)
    exchange.handle(RequestStarted("GET", "/v1/models", ()))
    cancelled, refused = exchange.handle(ResponseStarted(101, "Switching", SWITCHED))
    assert cancelled == CancelUpstream()
    assert isinstance(refused, SendError)
    assert refused.status == 502


def test_another_upgrade_is_not_taken_up() -> None:
    headers = (("Connection", "Upgrade, HTTP2-Settings"), ("Upgrade", "h2c"), ("HTTP2-Settings", "x"), ("A", "b"))
    commands = Exchange(MOST, websockets=False).handle(RequestStarted("GET", "/v1/models", headers))
    assert commands == [Connect("openai", "GET", "/v1/models", [("A", "b")])]


Pairs = list[tuple[str, str]]

REQUEST_HEADERS: dict[str, tuple[Pairs, int | None, Pairs, bool]] = {
    "case, order and duplicates stay": (
        [("X-Odd-CASE", "1"), ("accept", "*/*"), ("x-odd-case", "2"), ("Accept", "b")],
        None,
        [("X-Odd-CASE", "1"), ("accept", "*/*"), ("x-odd-case", "2"), ("Accept", "b")],
        False,
    ),
    "Host and the tokens are not copied": (
        [("HOST", "here"), ("a", "b"), ("X-IBIDEM-token", "secret"), ("x-ibidem-PAGE-token", "secret")],
        None,
        [("a", "b")],
        False,
    ),
    "hop-by-hop headers are dropped, and those that Connection names": (
        [
            ("Connection", "close, X-Mine"),
            ("connection", "x-too"),
            ("X-Mine", "1"),
            ("x-TOO", "2"),
            ("Keep-Alive", "5"),
            ("TE", "trailers"),
            ("Trailer", "x"),
            ("Upgrade", "h2c"),
            ("Expect", "100-continue"),
            ("Proxy-Authorization", "secret"),
            ("Proxy-Connection", "close"),
            ("kept", "yes"),
        ],
        None,
        [("kept", "yes")],
        False,
    ),
    "the length is replaced in its place": (
        [("a", "1"), ("content-LENGTH", "9"), ("b", "2")],
        5,
        [("a", "1"), ("content-LENGTH", "5"), ("b", "2")],
        False,
    ),
    "a body that passes keeps its length": ([("Content-Length", "9")], None, [("Content-Length", "9")], False),
    "a body that passes in chunks goes on in chunks": (
        [("a", "1"), ("transfer-encoding", "chunked"), ("b", "2")],
        None,
        [("a", "1"), ("transfer-encoding", "chunked"), ("b", "2")],
        True,
    ),
    "a body that came in chunks and was held has a length": (
        [("a", "1"), ("transfer-encoding", "chunked"), ("b", "2")],
        5,
        [("a", "1"), ("Content-Length", "5"), ("b", "2")],
        False,
    ),
    "Connection cannot take the length away": (
        [("Connection", "content-length"), ("Content-Length", "9")],
        None,
        [("Content-Length", "9")],
        False,
    ),
    "no length is made up": ([], 0, [], False),
}


@pytest.mark.parametrize(("given", "length", "expected", "chunked"), REQUEST_HEADERS.values(), ids=REQUEST_HEADERS)
def test_headers_of_a_request(given: Pairs, length: int | None, expected: Pairs, chunked: bool) -> None:
    assert build_upstream_headers(given, length, is_upgrade=False) == (expected, chunked)


CHUNKED = ("Transfer-Encoding", "chunked")
CLOSE = ("Connection", "close")
Told = tuple[Pairs, bool, bool]

ANSWER_HEADERS: dict[str, tuple[Pairs, tuple[str, int, tuple[int, int], bool], Told]] = {
    "case, order and duplicates stay": (
        [("Set-Cookie", "a"), ("content-length", "1"), ("set-cookie", "b"), ("X-Odd-CASE", "c")],
        ("GET", 200, (1, 1), True),
        ([("Set-Cookie", "a"), ("content-length", "1"), ("set-cookie", "b"), ("X-Odd-CASE", "c")], False, False),
    ),
    "what is said between neighbours is dropped": (
        [("Connection", "keep-alive, x"), ("X", "1"), ("Keep-Alive", "5"), ("Content-Length", "1")],
        ("GET", 200, (1, 1), True),
        ([("Content-Length", "1")], False, False),
    ),
    "chunks stay chunks, told in the same place": (
        [("a", "1"), ("transfer-encoding", "chunked"), ("b", "2")],
        ("GET", 200, (1, 1), True),
        ([("a", "1"), ("transfer-encoding", "chunked"), ("b", "2")], True, False),
    ),
    "chunks outweigh a length": (
        [("Content-Length", "1"), CHUNKED],
        ("GET", 200, (1, 1), True),
        ([CHUNKED], True, False),
    ),
    "an end that only the connection told is told by chunks": (
        [("a", "1")],
        ("GET", 200, (1, 1), True),
        ([("a", "1"), CHUNKED], True, False),
    ),
    "an old client is told by the end of the connection": (
        [("a", "1"), CHUNKED],
        ("GET", 200, (1, 0), True),
        ([("a", "1")], False, True),
    ),
    "an old client may go on after a length": (
        [("Content-Length", "1")],
        ("GET", 200, (1, 0), True),
        ([("Content-Length", "1"), ("Connection", "keep-alive")], False, False),
    ),
    "an old client that does not want to": (
        [("Content-Length", "1")],
        ("GET", 200, (1, 0), False),
        ([("Content-Length", "1")], False, True),
    ),
    "a client that wants to end": (
        [("Content-Length", "1")],
        ("GET", 200, (1, 1), False),
        ([("Content-Length", "1"), CLOSE], False, True),
    ),
    "HEAD keeps the length of what it does not get": (
        [("Content-Length", "123")],
        ("HEAD", 200, (1, 1), True),
        ([("Content-Length", "123")], False, False),
    ),
    "HEAD keeps how it would have been sent": ([CHUNKED], ("HEAD", 200, (1, 1), True), ([CHUNKED], False, False)),
    "204 has nothing": ([("a", "1"), CHUNKED], ("GET", 204, (1, 1), True), ([("a", "1")], False, False)),
    "304 keeps its length": (
        [("Content-Length", "123")],
        ("GET", 304, (1, 1), True),
        ([("Content-Length", "123")], False, False),
    ),
}


@pytest.mark.parametrize(("given", "asked", "expected"), ANSWER_HEADERS.values(), ids=ANSWER_HEADERS)
def test_headers_of_an_answer(given: Pairs, asked: tuple[str, int, tuple[int, int], bool], expected: Told) -> None:
    assert build_client_headers(given, *asked) == expected


# ── the table of states ─────────────────────────────────────────────────────────────────────────────────────────────

Step = tuple[State, type[Event], State]
STEPS = {
    (state, event, after) for state, found in NEXT_STATES.items() for event, every in found.items() for after in every
}
EVENTS: dict[type[Event], tuple[Event, ...]] = {
    RequestStarted: (
        ASKS,
        PASSES,
        RequestStarted("POST", PROFILE, ()),
        RequestStarted("GET", "/v1/realtime", UPGRADE),
        RequestStarted("GET", "else", ()),
    ),
    RequestChunk: (RequestChunk(b"x"), RequestChunk(b"x" * (MOST + 1))),
    RequestRewritten: (RequestRewritten(None), RequestRewritten(b"short")),
    ResendReady: (ResendReady(None), ResendReady(b"other")),
    ResponseStarted: (
        ResponseStarted(200, "OK", JSON),
        ResponseStarted(400, "No", JSON),
        ResponseStarted(101, "", SWITCHED),
    ),
    ResponseChunk: (ResponseChunk(b"x"), ResponseChunk(TOO_LONG), ResponseChunk(b"x" * 70_000)),
    RequestBroken: (RequestBroken("why"),),
    UpstreamFailed: (UpstreamFailed("why"),),
    **{kind: (kind(),) for kind in (RequestEnded, ResponseEnded, ClientClosed)},
}


def walked(*, depth: int = 8) -> set[Step]:
    """Every step that an exchange can take, by trying all events that the table allows, wherever it may be."""
    found: set[Step] = set()
    before: list[tuple[Event, ...]] = [()]
    for _ in range(depth):
        after: dict[object, tuple[Event, ...]] = {}
        for events in before:
            for kind in NEXT_STATES[at(events).state]:
                for event in EVENTS[kind]:
                    exchange = at((*events, event))
                    found.add((at(events).state, kind, exchange.state))
                    after[exchange.state, exchange.upgrades, event] = (*events, event)
        before = list(after.values())
    return found


def at(events: tuple[Event, ...]) -> Exchange:
    exchange = Exchange(MOST, resend=True)
    for event in events:
        exchange.handle(event)
    return exchange


def test_the_table_of_states_is_what_an_exchange_does() -> None:
    assert walked() == STEPS


def test_an_event_that_the_table_does_not_know_is_a_mistake() -> None:
    with pytest.raises(ValueError, match="ResponseStarted while no request yet"):
        Exchange(MOST).handle(ResponseStarted(200, "OK", JSON))


def drawn() -> str:
    """The table as the documents show it."""
    lines = []
    for state, events in NEXT_STATES.items():
        lines.append(f"{state.name:11}{state.value}")
        lines += [
            f"{'':11}{one.__name__:17}→ {' | '.join(each.name for each in found)}" for one, found in events.items()
        ]
    return "\n".join(lines)


def test_the_documents_show_the_table_of_states() -> None:
    text = (Path(__file__).parents[2] / "docs" / "architecture.md").read_text(encoding="utf-8")
    assert drawn() in text, f"docs/architecture.md should have:\n\n{drawn()}"
