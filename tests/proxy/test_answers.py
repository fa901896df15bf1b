"""No answer that was made for one request reaches another, whatever else comes on the connection it came on."""

from __future__ import annotations

import queue
import random
import re
import threading
import time
from collections import Counter
from collections.abc import Callable

import pytest

from tests.support.raw import PATIENCE, Peer, Script, asked, connect, proxied

LATE = b"HTTP/1.1 408 Request Timeout\r\nContent-Length: 4\r\n\r\nlate"
STRAYS = {
    "a 408": LATE,
    "a 408 and the end": b"HTTP/1.1 408 Request Timeout\r\nConnection: close\r\nContent-Length: 0\r\n\r\n",
    "a 503": b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 2\r\n\r\nno",
    "an answer": b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nnot yours",
    "a sign of life": b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n",
    "no HTTP": b"\x00\xff\x00",
    "half a head": b"HTTP/1.1 200 OK\r\nContent-Le",
}
DELAYS = {"in the same packet": 0.0, "0.5 ms later": 0.0005, "5 ms later": 0.005, "200 ms later": 0.2}


def answer(peer: Peer) -> tuple[str, bytes]:
    """What is asked for next, and an answer that is made for it alone."""
    head, _ = peer.message()
    name = re.split(rb"[ ?]", head)[1].rsplit(b"/", 1)[1]
    return name.decode(), b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(name), name)


def straying(stray: bytes, delay: float, often: int = 1, sent: queue.Queue[None] | None = None) -> Script:
    """Behind every so many answers comes what nobody asked for. Returns the names of what was asked for."""

    def script(peer: Peer) -> list[str]:
        seen: list[str] = []
        try:
            while True:
                name, made = answer(peer)
                seen.append(name)
                wanted = len(seen) % often == 0
                peer.send(made + stray if wanted and not delay else made)
                if wanted and delay:
                    time.sleep(delay)
                    peer.send(stray)
                if sent is not None:
                    sent.put(None)
        except (EOFError, ConnectionError):
            return seen

    return script


def put(client: Peer, name: str, path: str = "/v1/files") -> tuple[int, str]:
    client.send(f"PUT {path}/{name} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\n\r\nx".encode())
    head, body = client.message("PUT")
    return int(head.split(b" ")[1]), body.decode()


@pytest.mark.sampled(6)
@pytest.mark.parametrize("delay", DELAYS.values(), ids=DELAYS)
@pytest.mark.parametrize("stray", STRAYS.values(), ids=STRAYS)
def test_what_comes_unasked_while_nobody_waits_is_heard_by_nobody(stray: bytes, delay: float) -> None:
    sent: queue.Queue[None] = queue.Queue()
    with proxied(straying(stray, delay, sent=sent)) as (_, proxy), connect(proxy.url) as client:
        for number in range(4):
            assert put(client, f"n{number}") == (200, f"n{number}")
            sent.get(timeout=PATIENCE)


@pytest.mark.slow
@pytest.mark.parametrize("delay", DELAYS.values(), ids=DELAYS)
@pytest.mark.parametrize("stray", ["a 408", "a 408 and the end"])
def test_a_408_that_meets_a_request_is_heard_by_nobody_either(stray: str, delay: float) -> None:
    """It may come before the next request is written or after: that one is asked again, on a new connection."""
    with proxied(straying(STRAYS[stray], delay)) as (_, proxy), connect(proxy.url) as client:
        for number in range(20):
            assert put(client, f"n{number}") == (200, f"n{number}")


@pytest.mark.parametrize("stray", ["a 503", "no HTTP"])
def test_an_error_that_meets_a_request_ends_that_one_alone(stray: str) -> None:
    """Its own answer comes late, and by then nobody may be waiting there."""
    meets = threading.Event()

    def script(peer: Peer) -> None:
        try:
            for number in range(100):
                name, made = answer(peer)
                if name == "meets":
                    peer.send(STRAYS[stray])
                    assert meets.wait(PATIENCE)
                    peer.send(made)
                    return
                peer.send(made)
                assert number < 99
        except (EOFError, ConnectionError):
            return

    with proxied(script) as (_, proxy), connect(proxy.url) as client:
        assert put(client, "before") == (200, "before")
        assert put(client, "meets")[0] >= 500
        for number in range(3):
            assert put(client, f"n{number}") == (200, f"n{number}")
            meets.set()


def test_an_answer_that_comes_before_its_request_is_complete_is_the_last_on_its_connection() -> None:
    early, complete = threading.Event(), threading.Event()

    def script(peer: Peer) -> int:
        count = 0
        try:
            while True:
                head = peer.until(b"\r\n\r\n")
                count += 1
                if b"/early" not in head:
                    peer.exactly(1)
                    peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
                    continue
                peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nfor")
                early.set()
                assert complete.wait(PATIENCE)
        except (EOFError, ConnectionError):
            return count

    with proxied(script) as (server, proxy), connect(proxy.url) as client:
        assert put(client, "n") == (200, "ok")
        client.send(b"PUT /v1/files/early HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\nx")
        assert early.wait(PATIENCE)
        assert client.until(b"for").startswith(b"HTTP/1.1 200 ")
        client.send(b"y")
        complete.set()
        assert put(client, "n") == (200, "ok")
        assert server.next() == 2, "the third was asked elsewhere"


def test_a_408_on_a_new_connection_is_the_answer() -> None:
    def script(peer: Peer) -> None:
        peer.message()
        peer.send(LATE)

    with proxied(script) as (server, proxy), connect(proxy.url) as client:
        assert put(client, "n") == (408, "late")
        server.next()
        assert server.seen.empty(), "it was asked once"


@pytest.mark.parametrize(
    ("path", "size"), [("/v1/files", 0), ("/v1/files", 30_000), ("/v1/messages", 0), ("/v1/messages", 3_000_000)]
)
def test_a_408_on_a_connection_that_was_used_is_answered_with_the_same_request_on_a_new_one(
    path: str, size: int
) -> None:
    def script(peer: Peer) -> list[bytes]:
        bodies = []
        try:
            while True:
                head, body = peer.message()
                bodies.append(head + body)
                peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok" if len(bodies) == 1 else LATE)
        except (EOFError, ConnectionError):
            return bodies

    request = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {size}\r\n\r\n".encode() + b"x" * size
    with proxied(script) as (server, proxy), connect(proxy.url) as client:
        for _ in range(2):
            client.send(request)
            assert client.message("POST")[1] == b"ok"
        first, again = server.next()[:2]
        assert first == again
    assert server.next() == [first]


def test_a_body_that_is_not_in_hand_any_more_is_not_sent_again() -> None:
    def script(peer: Peer) -> int:
        count = 0
        try:
            while True:
                peer.message()
                count += 1
                peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok" if count == 1 else LATE)
        except (EOFError, ConnectionError):
            return count

    with proxied(script) as (server, proxy), connect(proxy.url) as client:
        assert put(client, "n") == (200, "ok")
        client.send(b"PUT /v1/files/large HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3000000\r\n\r\n")
        for _ in range(30):
            client.send(b"x" * 100_000)
            time.sleep(0.001)
        assert client.message("PUT")[1] == b"late"
        assert server.next() == 2


def test_a_connection_that_ends_while_it_is_taken_is_no_error_where_asking_twice_does_no_harm() -> None:
    def script(peer: Peer) -> int:
        _, made = answer(peer)
        peer.send(made)
        peer.until(b"\r\n\r\n")
        return 1

    with proxied(script) as (server, proxy), connect(proxy.url) as client:
        for name in ("a", "b"):
            client.send(f"GET /v1/models/{name} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
            assert client.message("GET")[1] == name.encode()
        assert server.next() == 1
        client.send(b"POST /v1/files/c HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n")
        assert client.message("POST")[0].startswith(b"HTTP/1.1 502 "), "it may have been done"


@pytest.mark.parametrize("kind", ["length", "chunks"])
def test_connections_are_still_used_again(kind: str) -> None:
    def script(peer: Peer) -> int:
        count = 0
        try:
            while True:
                name, made = answer(peer)
                count += 1
                chunks = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%b\r\n0\r\n\r\n"
                peer.send(made if kind == "length" else chunks % (len(name), name.encode()))
        except (EOFError, ConnectionError):
            return count

    with proxied(script) as (server, proxy), connect(proxy.url) as client:
        for number in range(50):
            assert put(client, f"n{number}") == (200, f"n{number}")
    assert server.next() == 50
    assert server.seen.empty()


def test_who_answers_unasked_is_asked_once_on_each_connection(caplog: pytest.LogCaptureFixture) -> None:
    with proxied(straying(STRAYS["an answer"], 0.0, often=3)) as (server, proxy), connect(proxy.url) as client:
        for number in range(9):
            assert put(client, f"n{number}") == (200, f"n{number}")
    found = [server.next() for _ in range(7)]
    assert sorted(map(len, found)) == [1] * 6 + [3]
    assert [each.message for each in caplog.records if "without a request" in each.message] == [
        "127.0.0.1 sends responses without a request: its connections are no longer reused"
    ]


STRICT = {
    "bytes behind its end": (b"200 OK\r\nContent-Length: 2\r\n\r\nok", b"xyz", b"ok"),
    "bytes behind its last chunk": (
        b"200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
        b"HTTP/1.1 4",
        b"2\r\nok\r\n0\r\n\r\n",
    ),
    "a 204 with a length": (b"204 No Content\r\nContent-Length: 5\r\n\r\n", b"hello", b""),
    "a 204 with a body": (b"204 No Content\r\n\r\n", b"hello", b""),
    "a 204 with a body that looks like an answer": (b"204 No Content\r\n\r\n", LATE, b""),
    "a 304 with a body": (b"304 Not Modified\r\nContent-Length: 5\r\n\r\n", b"hello", b""),
}


@pytest.mark.sampled(8)
@pytest.mark.parametrize("delay", DELAYS.values(), ids=DELAYS)
@pytest.mark.parametrize(("made", "behind", "body"), STRICT.values(), ids=STRICT)
def test_an_answer_ends_where_a_strict_client_ends_it(made: bytes, behind: bytes, body: bytes, delay: float) -> None:
    sent: queue.Queue[None] = queue.Queue()

    def script(peer: Peer) -> int:
        peer.message()
        peer.send(b"HTTP/1.1 " + made + (b"" if delay else behind))
        if delay:
            time.sleep(delay)
            peer.send(behind)
        sent.put(None)
        try:
            peer.until(b"\r\n\r\n")
        except (EOFError, ConnectionError):
            return 1
        return 2

    with proxied(script) as (server, proxy), connect(proxy.url) as client:
        for _ in range(3):
            client.send(b"POST /v1/files HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n")
            assert client.until(b"\r\n\r\n").startswith(b"HTTP/1.1 " + made[:4])
            assert client.exactly(len(body)) == body
            sent.get(timeout=PATIENCE)
    assert [server.next() for _ in range(3)] == [1, 1, 1]


def test_a_body_in_broken_chunks_breaks_off_here_too() -> None:
    def script(peer: Peer) -> None:
        peer.message()
        peer.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n")
        time.sleep(0.05)
        peer.send(b"no chunk\r\n")
        peer.wait_until_gone()

    with proxied(script) as (_, proxy), connect(proxy.url) as client:
        client.send(b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert client.rest().endswith(b"\r\n\r\n2\r\nok\r\n")


def chance(rng: random.Random) -> tuple[bytes, float]:
    kinds = [
        STRAYS[name] for name in ("a 408", "a 408 and the end", "a 503", "a sign of life", "no HTTP", "half a head")
    ]
    return rng.choice(kinds), rng.choice(list(DELAYS.values())[:3])


def at_random(seed: int, share: float, delays: Callable[[random.Random], tuple[bytes, float]] = chance) -> Script:
    """An upstream that sends what nobody asked for behind that share of its answers."""
    rng, lock = random.Random(seed), threading.Lock()

    def script(peer: Peer) -> int:
        strays = 0
        try:
            while True:
                _, made = answer(peer)
                with lock:
                    stray, delay = delays(rng) if rng.random() < share else (b"", 0.0)
                strays += bool(stray)
                peer.send(made if delay else made + stray)
                if delay:
                    time.sleep(delay)
                    peer.send(stray)
        except (EOFError, ConnectionError):
            return strays

    return script


def storm(proxy: str, clients: int, requests: int) -> Counter[str]:
    """Many clients at once, each with many requests: how many got their own answer, an error, another's."""
    counts: Counter[str] = Counter()

    def ask(client: int) -> None:
        for number in range(requests):
            name = f"c{client}n{number}"
            with connect(proxy) as peer:
                status, body = put(peer, name)
            counts["own" if body == name else "error" if status >= 400 else "crossed"] += 1

    threads = [threading.Thread(target=ask, args=(client,)) for client in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10 * PATIENCE)
    return counts


def test_many_clients_get_their_own_answers_while_strays_come_at_random() -> None:
    with proxied(at_random(1, 0.3)) as (_, proxy):
        counts = storm(proxy.url, clients=8, requests=50)
    assert counts["crossed"] == 0
    assert counts["own"] + counts["error"] == 400
    assert counts["own"] > 200


def test_a_reader_of_models_is_answered_after_a_storm() -> None:
    with proxied(at_random(2, 0.5)) as (_, proxy):
        storm(proxy.url, clients=4, requests=10)
        request = b"GET /v1/models/mine HTTP/1.1\r\nHost: localhost\r\n\r\n"
        found = [asked(proxy, request) for _ in range(8)]  # what is said unasked may still spoil one of them
        answered = [body for head, body in found if head.startswith(b"HTTP/1.1 200")]
        assert set(answered) == {b"mine"}
