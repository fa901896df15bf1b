"""Clients that take their time, and clients that stop sending and still listen."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.support.raw import PATIENCE, Peer, answering, asked, connect, proxied

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
GET = b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n"
SHORT = 0.3


@contextmanager
def short(**times: float) -> Iterator[None]:
    """With other times than usual."""
    with pytest.MonkeyPatch.context() as patch:
        for name, seconds in times.items():
            patch.setattr(f"ibidem.proxy.edge.server_protocol.{name}", seconds)
        yield


def half_closed(client: Peer, request: bytes) -> None:
    client.send(request)
    client.sock.shutdown(socket.SHUT_WR)


REQUESTS = {
    "passing": GET,
    "passing, with a body": b"PUT /v1/files HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\n\r\nbody",
    "passing, in chunks": b"PUT /v1/files HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"1\r\nx\r\n0\r\n\r\n",
    "rewritten": b"POST /v1/messages HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{}",
    "old": b"GET /v1/models HTTP/1.0\r\n\r\n",
}


@pytest.mark.parametrize("wait", [0.0, 0.2])
@pytest.mark.parametrize("request_", REQUESTS.values(), ids=REQUESTS)
def test_who_stops_sending_is_answered(request_: bytes, wait: float) -> None:
    def script(peer: Peer) -> None:
        peer.message()
        time.sleep(wait)
        peer.send(OK)

    with proxied(script) as (_, proxy), connect(proxy.url) as client:
        half_closed(client, request_)
        found = client.rest().replace(CONTINUE, b"")  # on a busy machine it may take long
        assert found.startswith(b"HTTP/1.")
        assert found.endswith(b"\r\n\r\nok")


@pytest.mark.slow
@pytest.mark.parametrize("request_", REQUESTS.values(), ids=REQUESTS)
def test_who_stops_sending_and_waits_long_gets_signs_of_life_at_most(request_: bytes) -> None:
    def script(peer: Peer) -> None:
        peer.message()
        time.sleep(0.5)
        peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nsl")
        time.sleep(0.5)
        peer.send(b"ow")

    with (
        short(POLL_SECONDS=0.02, PROBE_SECONDS=0.1, QUIET_SECONDS=0.1),
        proxied(script) as (_, proxy),
        connect(proxy.url) as client,
    ):
        half_closed(client, request_)
        found = client.rest()
        signs = found.count(CONTINUE)
        assert signs == (0 if b"HTTP/1.0" in request_ else 1)
        assert found.removeprefix(CONTINUE * signs).startswith(b"HTTP/1.")
        assert found.endswith(b"\r\n\r\nslow")


def test_requests_that_were_sent_at_once_are_all_answered_to_who_stops_sending() -> None:
    with proxied(answering(OK, OK, OK)) as (_, proxy), connect(proxy.url) as client:
        half_closed(client, 3 * GET)
        assert client.rest() == 3 * OK


def test_a_page_is_shown_to_who_stops_sending() -> None:
    with proxied(answering(OK)) as (_, proxy), connect(proxy.url) as client:
        half_closed(client, b"GET /ibidem/health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        assert client.rest().startswith(b"HTTP/1.1 200 ")


@pytest.mark.slow
@pytest.mark.parametrize("begun", [False, True])
@pytest.mark.parametrize("request_", [GET, REQUESTS["rewritten"]])
def test_who_is_gone_is_not_taken_for_one_who_stops_sending(request_: bytes, begun: bool) -> None:
    there = threading.Event()

    def script(peer: Peer) -> str:
        peer.message()
        if begun:
            peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n")
        there.set()
        peer.wait_until_gone()
        return "gone"

    with proxied(script) as (server, proxy), connect(proxy.url) as client:
        client.send(request_)
        assert there.wait(PATIENCE)
        if begun:
            client.until(b"\r\n\r\n")
        client.close()
        assert server.next() == "gone"


# ── heads ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("before", [b"", GET], ids=["at first", "after another"])
def test_a_head_that_does_not_come_to_its_end_ends_the_connection(before: bytes) -> None:
    with short(HEAD_TIME=SHORT), proxied(answering(OK)) as (_, proxy), connect(proxy.url) as client:
        if before:
            client.send(before)
            assert client.exactly(len(OK)) == OK
        client.send(b"GET /v1/models HTTP/1.1\r\nHost: he")
        assert client.rest().startswith(b"HTTP/1.1 408 ")


def trickle(client: Peer, data: bytes) -> None:
    for byte in data:
        client.send(bytes([byte]))
        time.sleep(0.01)


def test_a_head_that_comes_byte_by_byte_gets_no_more_time() -> None:
    with short(HEAD_TIME=SHORT), proxied(answering(OK)) as (server, proxy), connect(proxy.url) as client:
        with pytest.raises(ConnectionError):
            trickle(client, b"GET /v1/models HTTP/1.1\r\n" + b"A: b\r\n" * 1000)
        assert server.seen.empty()


def test_many_who_send_half_a_head_keep_nobody_out() -> None:
    with short(HEAD_TIME=SHORT), proxied(answering(OK)) as (_, proxy):
        slow = [connect(proxy.url) for _ in range(100)]
        for each in slow:
            each.send(b"POST /v1/messages HTTP/1.1\r\n")
        assert asked(proxy, GET)[1] == b"ok"
        for each in slow:
            assert each.rest().startswith(b"HTTP/1.1 408 ")
            each.close()


@pytest.mark.slow
def test_a_body_and_an_answer_may_take_longer_than_a_head() -> None:
    go = threading.Event()

    def script(peer: Peer) -> None:
        peer.message()
        time.sleep(3 * SHORT)
        peer.send(OK)
        peer.message()
        assert go.wait(PATIENCE)
        peer.send(OK)
        peer.message()
        peer.send(OK)

    with short(HEAD_TIME=SHORT), proxied(script) as (_, proxy), connect(proxy.url) as client:
        client.send(b"PUT /v1/files HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\n\r\nbo")
        time.sleep(3 * SHORT)
        client.send(b"dy")
        assert client.exactly(len(OK)) == OK
        time.sleep(3 * SHORT)  # it may also wait before it asks again
        client.send(GET)
        client.send(GET[:20])
        time.sleep(3 * SHORT)  # who is answered is not cut off for the next head
        client.send(GET[20:])
        go.set()
        assert client.exactly(2 * len(OK)) == 2 * OK


def test_an_empty_line_begins_no_head() -> None:
    with short(HEAD_TIME=SHORT), proxied(answering(OK, OK)) as (_, proxy), connect(proxy.url) as client:
        client.send(GET)
        assert client.exactly(len(OK)) == OK
        client.send(b"\r\n")
        time.sleep(3 * SHORT)
        client.send(GET)
        assert client.exactly(len(OK)) == OK
