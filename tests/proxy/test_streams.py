"""Answers on their way: unbuffered, unmodified, and broken off where they break. And what is no HTTP any more."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import os
import threading
import time
from collections.abc import Callable
from typing import Any

import aiohttp
import pytest
from aiohttp.base_protocol import BaseProtocol

from ibidem.proxy.edge.server import BackgroundServer
from ibidem.proxy.edge.upstreams import pending_bytes
from ibidem.store import MemoryStore
from ibidem.testing import Fails, Gzips, Halves, Pings, Resets, Says, Slow, Upstream, conv
from tests.support.raw import PATIENCE, Peer, Script, answering, asked, connect, proxied, to

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
BODY = json.dumps(conv("u:hello there", "a:hi", "u:go on")).encode()
POSTS = ["/v1/messages", "/v1/files"]
"""A conversation, and what passes."""


def post(path: str, body: bytes = BODY, headers: str = "") -> bytes:
    return f"POST {path} HTTP/1.1\r\nHost: localhost\r\n{headers}Content-Length: {len(body)}\r\n\r\n".encode() + body


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


@pytest.mark.parametrize("path", POSTS)
def test_each_piece_reaches_the_client_before_upstream_sends_the_next(path: str) -> None:
    read = threading.Semaphore(0)
    pieces = [b"event: message_start\ndata: {}\n\n", b"event: ping\ndata: {}\n\n", b"data: ", b'{"x": 1}', b"\n\n"]

    def script(peer: Peer) -> None:
        peer.message()
        peer.send(HEAD)
        for piece in pieces:
            assert read.acquire(timeout=PATIENCE)
            peer.send(chunk(piece))
        assert read.acquire(timeout=PATIENCE)
        peer.send(b"0\r\n\r\n")

    with proxied(script) as (_, proxy), connect(proxy.url) as client:
        client.send(post(path))
        assert client.exactly(len(HEAD)) == HEAD  # the head does not wait for a body
        for piece in pieces:
            read.release()
            assert client.exactly(len(chunk(piece))) == chunk(piece)
        read.release()
        assert client.exactly(5) == b"0\r\n\r\n"


ANSWERS = {
    "plain": Says("hello"),
    "pings": Pings(5, Says("hello")),
    "gzip": Gzips(Says("hello")),
    "slow": Slow(Says("hello"), chunk_delay=0.01, wait=0.2),
    "429": Fails(429, retry_after=7),
    "529": Fails(529),
    "400": Fails(400),
}
PROVIDERS = {
    "anthropic": "/v1/messages?beta=true",
    "openai-chat": "/v1/chat/completions",
    "openai-responses": "/v1/responses",
    "gemini": "/v1beta/models/gemini-3-pro:streamGenerateContent?alt=sse",
}


def unframed(data: bytes) -> tuple[bytes, bytes]:
    """Head and body of an answer in bytes."""
    head, _, body = data.partition(b"\r\n\r\n")
    if b"transfer-encoding: chunked" not in head.lower():
        return head, body
    found = b""
    while (size := int(body.partition(b"\r\n")[0], 16)) > 0:
        body = body.partition(b"\r\n")[2]
        found, body = found + body[:size], body[size + 2 :]
    return head, found


@pytest.mark.parametrize("answer", ANSWERS.values(), ids=ANSWERS)
def test_every_byte_of_a_stream_is_the_same_on_both_sides(answer: Any) -> None:
    with Upstream(lambda _: answer) as upstream, BackgroundServer(to(upstream.url), MemoryStore()) as proxy:
        for format, path in PROVIDERS.items():
            body = conv("u:hello there", "a:hi", "u:go on", format=format) | {"stream": True}
            head, got = asked(proxy, post(path, json.dumps(body).encode()), "POST")
            seen = upstream.wait_until(lambda seen: bool(seen) and seen[-1].answered)[-1]
            assert (head.removesuffix(b"\r\n\r\n"), got) == unframed(seen.answer)
        assert len(upstream.seen) == len(PROVIDERS)


# ── clients that go away ────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.slow
@pytest.mark.parametrize("path", POSTS)
@pytest.mark.parametrize("stage", ["before the answer", "in the answer", "between head and body"])
@pytest.mark.parametrize("how", ["close", "reset"])
def test_a_client_that_goes_away_cancels_upstream(path: str, stage: str, how: str) -> None:
    asked_for = threading.Event()

    def script(peer: Peer) -> str:
        peer.message()
        if stage != "before the answer":
            peer.send(HEAD)
        if stage == "in the answer":
            peer.send(chunk(b"data: 1\n\n"))
        asked_for.set()
        peer.wait_until_gone()
        return "gone"

    with proxied(script) as (server, proxy), connect(proxy.url) as client:
        client.send(post(path))
        assert asked_for.wait(PATIENCE)
        if stage != "before the answer":
            client.exactly(len(HEAD))
        getattr(client, how)()
        assert server.next() == "gone"


def test_a_client_that_goes_away_while_it_sends_cancels_upstream() -> None:
    def script(peer: Peer) -> str:
        peer.until(b"\r\n\r\nhalf")
        arrived.set()
        peer.wait_until_gone()
        return "gone"

    arrived = threading.Event()
    with proxied(script) as (server, proxy), connect(proxy.url) as client:
        client.send(b"PUT /v1/files HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\nhalf")
        assert arrived.wait(PATIENCE)
        client.close()
        assert server.next() == "gone"


def test_half_a_conversation_reaches_nobody(caplog: pytest.LogCaptureFixture) -> None:
    with proxied(answering(b"")) as (server, proxy):
        with connect(proxy.url) as client:
            client.send(b"POST /v1/messages HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\nhalf")
        with connect(proxy.url) as client:  # who comes later is served, so the first was dealt with
            client.send(b"GET /ibidem/health HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert client.message("GET")[0].startswith(b"HTTP/1.1 200 ")
        assert server.seen.empty()
    assert "error" not in caplog.text  # it is the client's own affair


def test_upstream_sees_the_end_of_a_slow_stream_at_once() -> None:
    slow = Slow(Says("a long story " * 50), chunk_delay=0.01)
    with Upstream([slow]) as upstream, BackgroundServer(to(upstream.url), MemoryStore()) as proxy:
        with connect(proxy.url) as client:
            client.send(post("/v1/messages", json.dumps(conv("u:hi") | {"stream": True}).encode()))
            client.until(b"message_start")
        seen = upstream.wait_until(lambda seen: bool(seen) and seen[0].gone)[0]
        assert not seen.answered


# ── upstreams that break off ────────────────────────────────────────────────────────────────────────────────────────


def broken(how: str) -> Script:
    def script(peer: Peer) -> None:
        peer.message()
        getattr(peer, how)()

    return script


@pytest.mark.parametrize("path", POSTS)
@pytest.mark.parametrize("how", ["close", "reset"])
def test_an_upstream_that_does_not_answer_is_told_of(path: str, how: str) -> None:
    with proxied(broken(how)) as (_, proxy), connect(proxy.url) as client:
        client.send(post(path))
        head, body = client.message("POST")
        assert head.startswith(b"HTTP/1.1 502 ")
        told = json.loads(body)
        assert told["type"] == "error"
        assert told["error"]["message"].startswith("ibidem: 127.0.0.1: ")
        client.send(b"GET /ibidem/health HTTP/1.1\r\nHost: localhost\r\n\r\n")  # the connection is still good
        assert client.message("GET")[0].startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize("path", POSTS)
def test_an_upstream_that_is_not_there_is_told_of(path: str) -> None:
    with proxied(answering(b"")) as (server, _):
        pass
    with BackgroundServer(to(server.url), MemoryStore()) as proxy:
        head, body = asked(proxy, post(path))
        assert head.startswith(b"HTTP/1.1 502 ")
        assert "127.0.0.1" in json.loads(body)["error"]["message"]


def test_an_upstream_that_does_not_speak_http_is_told_of() -> None:
    with proxied(answering(b"220 mail.example.com ESMTP\r\n\r\n")) as (_, proxy):
        head, body = asked(proxy, post("/v1/messages"))
        assert head.startswith(b"HTTP/1.1 502 ")
        assert json.loads(body)["error"]["type"] == "ibidem_proxy_error"


SIZED = b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n"
BARE = b"HTTP/1.1 200 OK\r\n\r\n"
HALVES = {
    "chunks, then the end": (HEAD, "close"),
    "chunks, then a reset": (HEAD, "reset"),
    "a length, then the end": (SIZED, "close"),
    "a length, then a reset": (SIZED, "reset"),
    "no length, then a reset": (BARE, "reset"),
}


@pytest.mark.parametrize(("head", "how"), HALVES.values(), ids=HALVES)
@pytest.mark.parametrize("version", ["1.1", "1.0"])
def test_an_answer_that_breaks_off_breaks_off_here_too(head: bytes, how: str, version: str) -> None:
    read = threading.Event()
    half = b"data: half of it\n\n"

    def script(peer: Peer) -> None:
        peer.message()
        peer.send(head + (chunk(half) if head is HEAD else half))
        assert read.wait(PATIENCE)
        getattr(peer, how)()

    with proxied(script) as (_, proxy), connect(proxy.url) as client:
        client.send(post("/v1/messages").replace(b"HTTP/1.1", f"HTTP/{version}".encode(), 1))
        got = client.until(half)
        read.set()
        if b"\r\nContent-Length" not in got and b"chunked" not in got:
            with pytest.raises(ConnectionResetError):  # nothing else tells it from an end
                client.rest()
        else:
            assert b"0\r\n\r\n" not in client.rest()  # it ends, and not as it should


@pytest.mark.parametrize("answer", [Resets(Says("x" * 500)), Halves(Says("x" * 500))], ids=["resets", "halves"])
@pytest.mark.parametrize("stream", [True, False])
def test_a_client_library_sees_that_an_answer_broke_off(answer: Any, stream: bool) -> None:
    if answer.reset_after is not None and not stream:
        answer = Halves(Says("x" * 500))

    async def ask(url: str) -> None:
        async with aiohttp.ClientSession() as session:
            body = conv("u:hi") | {"stream": stream}
            async with session.post(f"{url}/v1/messages", json=body) as response:
                assert response.status == 200
                with pytest.raises(aiohttp.ClientPayloadError):
                    await response.read()

    with Upstream([answer]) as upstream, BackgroundServer(to(upstream.url), MemoryStore()) as proxy:
        asyncio.run(ask(proxy.url))


def test_what_came_before_it_broke_off_is_passed_on_to_a_slow_client() -> None:
    half = os.urandom(12 * 2**20 + 12345)

    def script(peer: Peer) -> None:
        peer.message()
        peer.send(f"HTTP/1.1 200 OK\r\nContent-Length: {2 * len(half)}\r\n\r\n".encode() + half)

    with proxied(script) as (_, proxy), connect(proxy.url, narrow=True) as client:
        client.send(post("/v1/files"))
        client.until(b"\r\n\r\n")
        assert client.rest() == half


def test_what_waits_to_be_passed_on_outlives_the_error_behind_it() -> None:
    async def broken_off() -> list[bytes]:
        loop = asyncio.get_running_loop()
        content = aiohttp.StreamReader(BaseProtocol(loop), 2**16, loop=loop)
        for piece in (b"some", b"more"):
            content.feed_data(piece)
        content.set_exception(aiohttp.ClientPayloadError())
        with pytest.raises(aiohttp.ClientPayloadError):
            await content.readany()
        return [pending_bytes(content), pending_bytes(content)]

    assert asyncio.run(broken_off()) == [b"somemore", b""]


def test_what_was_not_sent_yet_is_not_sent_after_the_client_went_away() -> None:
    gone = threading.Event()
    body = json.dumps(conv("u:" + "x" * 12 * 2**20)).encode()

    def script(peer: Peer) -> int:
        peer.until(b"\r\n\r\n")
        assert gone.wait(PATIENCE)
        with contextlib.suppress(ConnectionError):
            return len(peer.rest())
        return 0

    with proxied(script) as (server, proxy):
        with connect(proxy.url) as client:
            client.send(post("/v1/messages", body))
            wait_for(lambda: exchanges(proxy) and exchanges(proxy)[0]["status"] == 0)
        wait_for(lambda: exchanges(proxy)[0]["reason"] == "the client went away")
        gone.set()
        assert server.next() < len(body)


def exchanges(proxy: BackgroundServer) -> list[Any]:
    answer = asked(proxy, b"GET /ibidem/api/conversation/c1 HTTP/1.1\r\nHost: localhost\r\n\r\n")
    found: list[Any] = json.loads(answer[1])["exchanges"] if answer[0].startswith(b"HTTP/1.1 200 ") else []
    return found


def wait_for(condition: Callable[[], Any]) -> None:
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.01)


# ── WebSockets ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_websocket_goes_through() -> None:
    large = os.urandom(3 * 2**19)
    messages: list[Any] = ["hello", large, "", "ünïcode", *(str(number) for number in range(100))]

    async def talk(url: str) -> None:
        headers = {"Authorization": "Bearer key", "X-Ibidem-Token": "t"}
        async with (
            aiohttp.ClientSession(headers=headers) as session,
            session.ws_connect(f"{url}/ws/v1/responses?x=%20", max_msg_size=0) as socket,
        ):
            for message in messages:
                await (socket.send_str if isinstance(message, str) else socket.send_bytes)(message)
                assert (await socket.receive(PATIENCE)).data == message
            await socket.ping()
            await socket.send_str("last")
            assert (await socket.receive(PATIENCE)).data == "last"

    with Upstream() as upstream, BackgroundServer(to(upstream.url), MemoryStore()) as proxy:
        asyncio.run(talk(proxy.url))
        seen = upstream.wait_until(lambda seen: bool(seen) and seen[0].answered)[0]
        assert seen.target == "/ws/v1/responses?x=%20"
        assert seen.header("authorization") == "Bearer key"
        assert seen.header("x-ibidem-token") is None
        assert f"http://{seen.header('host')}" == upstream.url
        assert len(upstream.messages) == len(messages) + 1


KEY = base64.b64encode(b"0123456789abcdef").decode()
UPGRADE = (
    f"GET /v1/realtime HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nX-Key: {KEY}\r\n\r\n"
)
SWITCH = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nX-Odd: 1\r\n\r\n"


def test_bytes_right_behind_both_handshakes_are_not_lost() -> None:
    def script(peer: Peer) -> bytes:
        head = peer.until(b"\r\n\r\n")
        peer.send(SWITCH + b"and early back")
        return head + peer.exactly(9)

    with proxied(script) as (server, proxy), connect(proxy.url) as client:
        client.send(UPGRADE.encode() + b"too early")
        assert client.rest() == SWITCH + b"and early back"
        host = UPGRADE.encode().replace(b"Host: localhost", b"Host: " + server.host)
        assert server.next() == host + b"too early"


def test_much_passes_through_a_tunnel_at_once_in_both_directions() -> None:
    size = 8 * 2**20
    there, back = os.urandom(size), os.urandom(size)

    def script(peer: Peer) -> bytes:
        peer.until(b"\r\n\r\n")
        peer.send(SWITCH)
        writing = threading.Thread(target=peer.send, args=(back,))
        writing.start()
        found = peer.exactly(size)
        writing.join(PATIENCE)
        return found

    with proxied(script) as (server, proxy), connect(proxy.url) as client:
        client.send(UPGRADE.encode())
        client.exactly(len(SWITCH))
        writing = threading.Thread(target=client.send, args=(there,))
        writing.start()
        assert client.exactly(size) == back
        writing.join(PATIENCE)
        assert server.next() == there


def _client_ends(peer: Peer) -> str:
    peer.until(b"\r\n\r\n")
    peer.send(SWITCH)
    peer.wait_until_gone()
    return "gone"


def _upstream_ends(peer: Peer) -> str:
    peer.until(b"\r\n\r\n")
    peer.send(SWITCH + b"bye")
    return "gone"


@pytest.mark.parametrize("script", [_client_ends, _upstream_ends])
def test_a_tunnel_ends_when_either_side_ends_it(script: Callable[[Peer], str]) -> None:
    with proxied(script) as (server, proxy), connect(proxy.url) as client:
        client.send(UPGRADE.encode())
        client.exactly(len(SWITCH))
        if script is _client_ends:
            client.close()
        else:
            assert client.rest() == b"bye"
        assert server.next() == "gone"


@pytest.mark.parametrize("how", ["close", "reset"])
def test_an_upgrade_that_is_not_answered_is_told_of(how: str) -> None:
    with proxied(broken(how)) as (_, proxy):
        assert asked(proxy, UPGRADE.encode())[0].startswith(b"HTTP/1.1 502 ")


def test_after_a_declined_upgrade_nothing_goes_around_us() -> None:
    declined = b"HTTP/1.1 426 Upgrade Required\r\nContent-Length: 2\r\n\r\nno"
    with proxied(answering(declined)) as (_, proxy), connect(proxy.url) as client:
        client.send(UPGRADE.encode())
        expected = declined.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")
        assert client.rest() == expected


def test_upgrades_can_be_refused() -> None:
    with proxied(answering(b""), websockets=False) as (server, proxy):
        head, body = asked(proxy, UPGRADE.replace("realtime", "responses").encode())
        assert head.startswith(b"HTTP/1.1 426 ")
        assert b"use HTTP" in body
        assert server.seen.empty()


# ── the end ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_stopping_ends_what_is_open_in_bounded_time() -> None:
    def script(peer: Peer) -> str:
        peer.message()
        peer.send(HEAD + chunk(b"data: 1\n\n"))
        peer.wait_until_gone()
        return "gone"

    with proxied(script) as (server, proxy), connect(proxy.url) as client, connect(proxy.url) as page:
        client.send(post("/v1/messages"))
        client.until(b"data: 1")
        page.send(b"GET /ibidem/api/live HTTP/1.1\r\nHost: localhost\r\n\r\n")
        page.until(b"event: state")
        stopping = threading.Thread(target=proxy.stop)
        stopping.start()
        stopping.join(PATIENCE / 3)
        assert not stopping.is_alive()
        assert server.next() == "gone"
        assert b"0\r\n\r\n" not in client.rest()[-5:]
        assert page.rest().endswith(b"\r\n0\r\n\r\n")  # the page is told that it is over
