"""What is no conversation goes through as it came, byte for byte, in both directions."""

from __future__ import annotations

import hashlib
import threading

import pytest

from ibidem.proxy.edge.server import BackgroundServer
from ibidem.store import MemoryStore
from tests.support.raw import PATIENCE, Peer, Server, answering, asked, connect, proxied, to

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"

ODD_HEADERS = (
    b"X-Odd-CASE: 1\r\n"
    b"x-odd-case: 2\r\n"
    b"accept: a\r\n"
    b"Accept: b\r\n"
    b"cookie: one=1; two=2\r\n"
    b"COOKIE: three=3\r\n"
    b"X-Empty:\r\n"
    b'X-Marks: "\t;,=%20+\\\r\n'
    b"X-Latin: caf\xe9\r\n"
    b"X-UTF8: caf\xc3\xa9\r\n"
    b'if-none-match: W/"x"\r\n'
)
"""An empty value is written with a blank by us, as it may be."""

SENT_HEADERS = ODD_HEADERS.replace(b"X-Empty:\r\n", b"X-Empty: \r\n")

METHODS = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "PURGE", "PROPFIND", "TRACE", "LOCK", "M-SEARCH"]


@pytest.mark.parametrize("method", METHODS)
def test_a_request_without_a_body_is_the_same_on_the_other_side(method: str) -> None:
    with proxied(answering(OK)) as (server, proxy):
        line = f"{method} /v1/files HTTP/1.1\r\n".encode()
        head, body = asked(proxy, line + b"Host: localhost\r\n" + ODD_HEADERS + b"\r\n", method)
        assert server.next() == [(line + b"Host: " + server.host + b"\r\n" + SENT_HEADERS + b"\r\n", b"")]
        assert head == b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n"
        assert body == (b"" if method == "HEAD" else b"ok")


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "GET"])
@pytest.mark.parametrize("body", [b"", b"x", b"\x00\xff\r\n\r\n" * 1000])
def test_a_request_with_a_body_is_the_same_on_the_other_side(method: str, body: bytes) -> None:
    with proxied(answering(OK)) as (server, proxy):
        line = f"{method} /v1/files HTTP/1.1\r\n".encode()
        length = f"a: 1\r\ncontent-LENGTH: {len(body)}\r\nb: 2\r\n\r\n".encode()
        asked(proxy, line + b"Host: localhost\r\n" + length + body)
        assert server.next() == [(line + b"Host: " + server.host + b"\r\n" + length, body)]


def test_a_body_in_chunks_goes_on_in_chunks() -> None:
    with proxied(answering(OK)) as (server, proxy):
        headers = b"a: 1\r\ntransfer-encoding: chunked\r\nb: 2\r\n\r\n"
        with connect(proxy.url) as client:
            client.send(b"PUT /v1/files HTTP/1.1\r\nHost: localhost\r\n" + headers + b"5;x=y\r\nhello\r\n")
            client.send(b"6\r\n world\r\n0\r\nTrailer: dropped\r\n\r\n")
            assert client.message("PUT")[1] == b"ok"
        head, body = server.next()[0]
        assert head == b"PUT /v1/files HTTP/1.1\r\nHost: " + server.host + b"\r\n" + headers
        assert body == b"hello world"


TARGETS = [
    "/v1/files/a%2Fb?x=%20y&&z",
    "/",
    "/?",
    "/v1/files?",
    "//double//slashes/",
    "/a/../b/./c",
    "/a;b=c,d:e@f!$'()*+",
    "/%E2%82%AC?%zz=%",
    '/x?y?z=[1]&{2}|^`\\"<>',
    "/x?a=b#c",
    "/" + "long/" * 10_000,
]


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target[:30])
def test_a_target_stays_as_it_is(target: str) -> None:
    with proxied(answering(OK)) as (server, proxy):
        asked(proxy, f"GET {target} HTTP/1.1\r\nHost: localhost\r\nX-Api-Key: k\r\n\r\n".encode())
        assert server.next()[0][0].split(b"\r\n")[0] == f"GET {target} HTTP/1.1".encode()


def test_the_path_of_a_base_url_is_put_before_the_target() -> None:
    with proxied(answering(OK), "/prefix/v2/") as (server, proxy):
        asked(proxy, b"GET /v1/models?x=1 HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert server.next()[0][0].startswith(b"GET /prefix/v2/v1/models?x=1 HTTP/1.1\r\n")


ANSWERS: dict[str, tuple[bytes, bytes]] = {
    "order, case and duplicates": (
        b"Set-Cookie: a=1\r\nX-Odd-CASE: 1\r\nset-cookie: b=2; Path=/\r\nContent-Length: 2\r\nx-odd-case: caf\xe9\r\n",
        b"ok",
    ),
    "nothing but a length": (b"content-length: 2\r\n", b"ok"),
    "an empty body": (b"Content-Length: 0\r\n", b""),
    "chunks": (b"a: 1\r\ntransfer-encoding: chunked\r\nb: 2\r\n", b"2\r\nok\r\n0\r\n\r\n"),
    "compressed, as it is": (b"Content-Encoding: gzip\r\nContent-Length: 4\r\n", b"\x1f\x8bno"),
    "brotli, as it is": (b"Content-Encoding: br\r\nContent-Length: 2\r\n", b"no"),
    "a redirect, not followed": (b"Location: /elsewhere\r\nContent-Length: 0\r\n", b""),
    "dates and servers of its own": (b"Date: then\r\nServer: theirs\r\nContent-Length: 0\r\n", b""),
}
STATUSES = [
    b"200 OK",
    b"201 ",
    b"307 Temporary Redirect",
    b"404 Nicht gef\xc3\xbchrt",
    b"418 \xe9",
    b"429 Slow Down",
    b"529 Overloaded",
]


@pytest.mark.parametrize(("headers", "body"), ANSWERS.values(), ids=ANSWERS)
@pytest.mark.parametrize("status", STATUSES)
def test_an_answer_is_the_same_on_this_side(status: bytes, headers: bytes, body: bytes) -> None:
    answer = b"HTTP/1.1 " + status + b"\r\n" + headers + b"\r\n" + body
    with proxied(answering(answer)) as (_, proxy), connect(proxy.url) as client:
        client.send(b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert client.exactly(len(answer)) == answer


@pytest.mark.parametrize(
    ("method", "answer"),
    [
        ("GET", b"HTTP/1.1 204 No Content\r\nX: 1\r\n\r\n"),
        ("DELETE", b"HTTP/1.1 204 No Content\r\n\r\n"),
        ("GET", b'HTTP/1.1 304 Not Modified\r\nETag: "x"\r\nContent-Length: 123\r\n\r\n'),
        ("HEAD", b"HTTP/1.1 200 OK\r\nContent-Length: 123\r\nContent-Type: text/plain\r\n\r\n"),
        ("HEAD", b"HTTP/1.1 404 Not Found\r\nTransfer-Encoding: chunked\r\n\r\n"),
    ],
)
def test_answers_without_a_body_end_with_their_head(method: str, answer: bytes) -> None:
    with proxied(answering(answer, OK)) as (_, proxy), connect(proxy.url) as client:
        for expected in (answer, OK if method != "HEAD" else OK[:-2]):
            client.send(f"{method} /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
            assert client.exactly(len(expected)) == expected


def test_an_answer_that_ends_with_the_connection_ends_here_too() -> None:
    def script(peer: Peer) -> None:
        peer.message()
        peer.send(b"HTTP/1.1 200 OK\r\nA: 1\r\n\r\nall of it")

    with proxied(script) as (_, proxy):
        head, body = asked(proxy, b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert head == b"HTTP/1.1 200 OK\r\nA: 1\r\nTransfer-Encoding: chunked\r\n\r\n"
        assert body == b"all of it"


def test_signs_of_life_before_an_answer_are_not_the_answer() -> None:
    early = b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n"
    with proxied(answering(early + OK)) as (_, proxy):
        assert asked(proxy, b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n")[1] == b"ok"


def test_an_old_client_gets_an_old_answer() -> None:
    chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n"
    with proxied(answering(chunked)) as (_, proxy), connect(proxy.url) as client:
        client.send(b"GET /v1/models HTTP/1.0\r\n\r\n")
        assert client.rest() == b"HTTP/1.0 200 OK\r\n\r\nok"


def test_an_old_client_may_stay() -> None:
    with proxied(answering(OK, OK)) as (_, proxy), connect(proxy.url) as client:
        for _ in range(2):
            client.send(b"GET /v1/models HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
            expected = b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\nConnection: keep-alive\r\n\r\nok"
            assert client.exactly(len(expected)) == expected


def test_a_client_that_wants_to_end_is_let_go() -> None:
    with proxied(answering(OK)) as (_, proxy), connect(proxy.url) as client:
        client.send(b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        assert client.rest() == b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok"


def test_connections_are_used_again_on_both_sides() -> None:
    with proxied(answering(OK, OK, OK)) as (server, proxy), connect(proxy.url) as client:
        for number in range(3):
            client.send(
                f"PUT /v1/files/{number} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\n\r\n{number}".encode()
            )
            assert client.message("PUT")[1] == b"ok"
        assert [body for _, body in server.next()] == [b"0", b"1", b"2"]


def test_a_connection_that_upstream_has_closed_is_not_used_again() -> None:
    closing = OK.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")
    with proxied(answering(closing)) as (server, proxy), connect(proxy.url) as client:
        for _ in range(3):
            client.send(b"PUT /v1/files HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\n\r\nx")
            assert client.message("PUT") == (OK[:-2], b"ok")
            assert len(server.next()) == 1


@pytest.mark.parametrize("path", ["/v1/files", "/v1/messages"])
def test_who_asks_whether_to_send_its_body_is_told(path: str) -> None:
    with proxied(answering(OK)) as (server, proxy), connect(proxy.url) as client:
        head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n"
        client.send(head.encode())
        assert client.until(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        client.send(b"body")
        assert client.message("POST")[1] == b"ok"
        seen, body = server.next()[0]
        assert body == b"body"
        assert b"xpect" not in seen


LARGE = 20 * 2**20


def test_large_bodies_pass_both_ways_without_being_held() -> None:
    piece = bytes(range(256)) * 256
    read = threading.Event()

    def script(peer: Peer) -> str:
        peer.until(b"\r\n\r\n")
        digest = hashlib.sha256()
        for _ in range(LARGE // len(piece)):
            digest.update(peer.exactly(len(piece)))
        peer.send(f"HTTP/1.1 200 OK\r\nContent-Length: {LARGE}\r\n\r\n".encode())
        peer.send(piece)
        assert read.wait(PATIENCE)  # the rest is not sent before the first was read: it cannot be held
        for _ in range(LARGE // len(piece) - 1):
            peer.send(piece)
        return digest.hexdigest()

    expected = hashlib.sha256(piece * (LARGE // len(piece))).hexdigest()
    with proxied(script) as (server, proxy), connect(proxy.url) as client:
        client.send(f"PUT /v1/files HTTP/1.1\r\nHost: localhost\r\nContent-Length: {LARGE}\r\n\r\n".encode())
        for _ in range(LARGE // len(piece)):
            client.send(piece)
        client.until(b"\r\n\r\n")
        digest = hashlib.sha256(client.exactly(len(piece)))
        read.set()
        for _ in range(LARGE // len(piece) - 1):
            digest.update(client.exactly(len(piece)))
        assert digest.hexdigest() == expected == server.next()


def test_a_body_passes_before_it_is_complete() -> None:
    arrived = threading.Event()

    def script(peer: Peer) -> bytes:
        peer.until(b"\r\n\r\n")
        assert peer.exactly(5) == b"first"
        arrived.set()
        body = peer.exactly(6)
        peer.send(OK)
        return body

    with proxied(script) as (server, proxy), connect(proxy.url) as client:
        client.send(b"PUT /v1/files HTTP/1.1\r\nHost: localhost\r\nContent-Length: 11\r\n\r\nfirst")
        assert arrived.wait(PATIENCE)
        client.send(b"second")
        assert client.message("PUT")[1] == b"ok"
        assert server.next() == b"second"


def test_upstream_may_answer_before_the_body_is_complete() -> None:
    def script(peer: Peer) -> None:
        peer.until(b"\r\n\r\n")
        peer.send(b"HTTP/1.1 401 No\r\nContent-Length: 2\r\n\r\nno")
        peer.wait_until_gone()

    with proxied(script) as (_, proxy), connect(proxy.url) as client:
        client.send(b"PUT /v1/files HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\nfirst")
        assert client.message("PUT") == (b"HTTP/1.1 401 No\r\nContent-Length: 2\r\n\r\n", b"no")


def test_requests_that_are_sent_at_once_are_answered_one_by_one() -> None:
    with proxied(answering(OK, OK)) as (server, proxy), connect(proxy.url) as client:
        client.send(
            b"GET /v1/files/a HTTP/1.1\r\nHost: localhost\r\n\r\nGET /v1/files/b HTTP/1.1\r\nHost: localhost\r\n\r\n"
        )
        assert client.exactly(2 * len(OK)) == 2 * OK
        assert [head.split(b" ")[1] for head, _ in server.next()] == [b"/v1/files/a", b"/v1/files/b"]


@pytest.mark.parametrize(
    "request_line", [b"GET http://example.com/v1/models HTTP/1.1", b"CONNECT example.com:443 HTTP/1.1"]
)
def test_it_is_no_forward_proxy(request_line: bytes) -> None:
    with proxied(answering(OK)) as (server, proxy):
        head, body = asked(proxy, request_line + b"\r\nHost: example.com\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 400 ")
        assert b"base URL" in body
        assert server.seen.empty()


@pytest.mark.parametrize(
    "broken",
    [
        b"GET / HTTP/1.1\r\nHost: localhost\r\nAuthorization : secret\r\n\r\n",
        b"NONSENSE\r\n\r\n",
        b"POST /v1/files HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"POST /v1/messages HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nnot a chunk",
        b"POST /v1/files HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nnot a chunk",
    ],
)
def test_what_is_not_http_is_refused_and_ends_the_connection(broken: bytes) -> None:
    def script(peer: Peer) -> None:
        peer.wait_until_gone()  # at most the head comes, and then nobody is there any more

    with proxied(script) as (_, proxy), connect(proxy.url) as client:
        client.send(broken)
        assert client.rest().startswith(b"HTTP/1.")


SWITCH = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n"


@pytest.mark.slow
@pytest.mark.parametrize("way", ["to the client", "to upstream", "back through a tunnel", "through a tunnel"])
def test_who_is_slow_is_waited_for_and_nothing_piles_up(way: str) -> None:
    """More than all buffers hold is sent to who does not read: it must come to a halt."""
    most, piece = 200 * 2**20, bytes(2**18)
    done = threading.Event()

    def pour(peer: Peer) -> int:
        peer.sock.settimeout(2.0)
        sent = 0
        try:
            while sent < most:
                sent += peer.sock.send(piece)
        except TimeoutError:
            pass
        return sent

    there = way in ("to upstream", "through a tunnel")
    tunnel = "tunnel" in way
    sized = f"HTTP/1.1 200 OK\r\nContent-Length: {most}\r\n\r\n".encode()

    def script(peer: Peer) -> int:
        peer.until(b"\r\n\r\n")
        if tunnel or not there:
            peer.send(SWITCH if tunnel else sized)
        if not there:
            return pour(peer)
        done.wait(PATIENCE)
        return 0

    ask = "Upgrade: websocket\r\nConnection: Upgrade" if tunnel else f"Content-Length: {most if there else 0}"
    with proxied(script, max_body=most) as (server, proxy), connect(proxy.url) as client:
        client.send(f"{'GET' if tunnel else 'PUT'} /v1/files HTTP/1.1\r\nHost: localhost\r\n{ask}\r\n\r\n".encode())
        if tunnel:
            client.until(b"\r\n\r\n")
        sent = pour(client) if there else server.next()
        done.set()
        assert sent < most / 4


def env_proxy(monkeypatch: pytest.MonkeyPatch, server: Server) -> None:
    for name in ("http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    for name in ("http_proxy", "https_proxy"):
        monkeypatch.setenv(name, f"http://user:s3cret@{server.host.decode()}")


def test_the_proxy_of_this_machine_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    with Server(answering(OK)) as server:
        env_proxy(monkeypatch, server)
        with BackgroundServer(to("http://upstream.example/base"), MemoryStore()) as proxy:
            assert asked(proxy, b"GET /v1/models?x HTTP/1.1\r\nHost: localhost\r\nA: b\r\n\r\n")[1] == b"ok"
        head = server.next()[0][0]
        assert head.startswith(b"GET http://upstream.example/base/v1/models?x HTTP/1.1\r\nHost: upstream.example\r\n")
        assert b"\r\nProxy-Authorization: Basic dXNlcjpzM2NyZXQ=\r\n" in head


def test_the_proxy_of_this_machine_is_asked_for_a_tunnel(monkeypatch: pytest.MonkeyPatch) -> None:
    with Server(answering(b"HTTP/1.1 407 No\r\nContent-Length: 0\r\n\r\n")) as server:
        env_proxy(monkeypatch, server)
        with BackgroundServer(to("https://upstream.example"), MemoryStore()) as proxy:
            head, body = asked(proxy, b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\nA: b\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 502 ")
        assert b"s3cret" not in body
        head = server.next()[0][0]
        assert head.startswith(b"CONNECT upstream.example:443 HTTP/1.1\r\n")
        assert b"\r\nProxy-Authorization: Basic dXNlcjpzM2NyZXQ=\r\n" in head
        assert b"A: b" not in head


def test_the_proxy_of_this_machine_is_not_used_for_what_it_excludes(monkeypatch: pytest.MonkeyPatch) -> None:
    with Server(lambda peer: pytest.fail("nobody should come")) as server:
        env_proxy(monkeypatch, server)
        with proxied(answering(OK)) as (_, proxy):
            assert asked(proxy, b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n")[1] == b"ok"
