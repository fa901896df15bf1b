"""The proxy as a whole: what is rewritten and what is not, its limits, its pages, and faults in its own books."""

from __future__ import annotations

import asyncio
import gzip
import json
import subprocess
import sys
import threading
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ibidem.errors import IbidemError
from ibidem.live import live as rewriter
from ibidem.live.types import RewriteResult
from ibidem.providers import usage_reader
from ibidem.proxy import warmup
from ibidem.proxy.accounting import live_stats
from ibidem.proxy.edge.app import WORKERS, Proxy
from ibidem.proxy.edge.server import BackgroundServer, run_loop
from ibidem.proxy.page.admin_pages import AdminPages
from ibidem.store import MemoryStore, reference
from ibidem.testing import Says, Upstream, conv
from ibidem.wire import zstd
from tests.support.raw import PATIENCE, Peer, answering, asked, connect, proxied, to

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
FILE = "\n".join(f"{number:6}→    line {number} of the file, number {number * 7919 % 1009}" for number in range(1, 200))
PATHS = {
    "anthropic": "/v1/messages?beta=true",
    "openai-chat": "/v1/chat/completions",
    "openai-responses": "/v1/responses",
    "gemini": "/v1beta/models/gemini-3-pro:generateContent",
}


def twice(format: str = "anthropic") -> bytes:
    """A file that is read two times."""
    script = ("u:read it", "a>1", f"r1:{FILE}", "a>2", f"r2:{FILE}", "a:done", "u:thanks")
    return json.dumps(conv(*script, format=format)).encode()


def post(path: str, body: bytes, *headers: str) -> bytes:
    lines = [f"POST {path} HTTP/1.1", "Host: localhost", *headers, f"Content-Length: {len(body)}", "", ""]
    return "\r\n".join(lines).encode() + body


def page(proxy: BackgroundServer, path: str) -> tuple[bytes, bytes]:
    return asked(proxy, f"GET /ibidem/{path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())


def state(proxy: BackgroundServer) -> Any:
    return json.loads(page(proxy, "api/state")[1])


# ── rewriting ───────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("format", PATHS)
def test_a_conversation_is_rewritten_on_its_way_out(format: str) -> None:
    with Upstream() as upstream, BackgroundServer(to(upstream.url), MemoryStore()) as proxy:
        head, _ = asked(proxy, post(PATHS[format], twice(format), "a: 1"), "POST")
        assert head.startswith(b"HTTP/1.1 200 ")
        seen = upstream.seen[0]
        assert seen.target == PATHS[format]
        assert len(seen.body) < 0.7 * len(twice(format))
        assert seen.headers[1:] == [("a", "1"), ("Content-Length", str(len(seen.body)))]
        found = state(proxy)
        assert (found["totals"]["rewritten"], found["totals"]["failed_open"]) == (1, 0)
        assert found["totals"]["input"] > 0


def test_who_asks_for_a_size_is_told_that_of_what_would_be_sent() -> None:
    with Upstream() as upstream, BackgroundServer(to(upstream.url), MemoryStore()) as proxy:
        asked(proxy, post("/v1/messages/count_tokens", twice()), "POST")
        asked(proxy, post("/v1/messages", twice()), "POST")
        counted, sent = upstream.seen
        assert counted.body == sent.body
        assert len(sent.body) < len(twice())


def test_a_conversation_in_chunks_gets_a_length() -> None:
    body = twice()
    with (
        Upstream() as upstream,
        BackgroundServer(to(upstream.url), MemoryStore()) as proxy,
        connect(proxy.url) as client,
    ):
        client.send(
            b"POST /v1/messages HTTP/1.1\r\nHost: localhost\r\na: 1\r\nTransfer-Encoding: chunked\r\nb: 2\r\n\r\n"
        )
        for start in range(0, len(body), 1000):
            piece = body[start : start + 1000]
            client.send(b"%x\r\n%b\r\n" % (len(piece), piece))
        client.send(b"0\r\n\r\n")
        assert client.message("POST")[0].startswith(b"HTTP/1.1 200 ")
        seen = upstream.seen[0]
        assert len(seen.body) < len(body)
        assert seen.headers[1:] == [("a", "1"), ("Content-Length", str(len(seen.body))), ("b", "2")]


def _brotli(data: bytes) -> bytes:
    packed: bytes = pytest.importorskip("brotli").compress(data)
    return packed


def _unbrotli(data: bytes) -> bytes:
    unpacked: bytes = pytest.importorskip("brotli").decompress(data)
    return unpacked


CODES: dict[str, tuple[Callable[[bytes], bytes], Callable[[bytes], bytes]]] = {
    "gzip": (gzip.compress, gzip.decompress),
    "deflate": (zlib.compress, zlib.decompress),
    "zstd": (zstd.compress, zstd.decompress),
    "br": (_brotli, _unbrotli),
}


@pytest.mark.parametrize("encoding", CODES)
def test_a_compressed_request_is_rewritten_and_compressed_again(encoding: str) -> None:
    pack, unpack = CODES[encoding]
    packed = pack(twice())
    with proxied(answering(OK, OK)) as (server, proxy), connect(proxy.url) as client:
        for request in (post("/v1/messages", twice()), post("/v1/messages", packed, f"Content-Encoding: {encoding}")):
            client.send(request)
            assert client.message("POST")[1] == b"ok"
        (_, plain), (head, body) = server.next()
        assert f"\r\nContent-Encoding: {encoding}\r\n".encode() in head
        assert len(plain) < len(twice())
        assert unpack(body) == plain


UNREADABLE: dict[str, tuple[bytes, tuple[str, ...]]] = {
    "no JSON": (b"this is no JSON", ()),
    "half of it": (twice()[:-10], ()),
    "no object": (b"[1, 2]", ()),
    "no messages": (b'{"model": "m"}', ()),
    "messages that are none": (b'{"messages": "all of them"}', ()),
    "nothing": (b"", ()),
    "bytes": (bytes(range(256)), ()),
    "an encoding that is not known": (twice(), ("Content-Encoding: compress",)),
    "two encodings": (gzip.compress(gzip.compress(twice())), ("Content-Encoding: gzip, gzip",)),
    "not in the encoding it says": (twice(), ("Content-Encoding: gzip",)),
    "a bomb": (gzip.compress(bytes(50 * 2**20), 1), ("Content-Encoding: gzip",)),
    "another bomb": (zstd.compress(bytes(200 * 2**20)), ("Content-Encoding: zstd",)),
    "very deep": (b'{"messages": ' + b"[" * 100_000, ()),
}


@pytest.mark.parametrize(("body", "headers"), UNREADABLE.values(), ids=UNREADABLE)
def test_what_cannot_be_read_goes_out_as_it_came(body: bytes, headers: tuple[str, ...]) -> None:
    with proxied(answering(OK), max_body=2**20) as (server, proxy):
        assert asked(proxy, post("/v1/messages", body, *headers), "POST")[1] == b"ok"
        head, seen = server.next()[0]
        assert seen == body
        assert f"\r\nContent-Length: {len(body)}\r\n".encode() in head
        assert state(proxy)["totals"]["requests"] == 1


def test_observing_changes_nothing() -> None:
    with proxied(answering(OK), observe=True) as (server, proxy):
        asked(proxy, post("/v1/messages", twice()), "POST")
        assert server.next()[0][1] == twice()


# ── limits ──────────────────────────────────────────────────────────────────────────────────────────────────────────

LIMIT = 10_000


@pytest.mark.parametrize("path", ["/v1/messages", "/v1/files"])
def test_a_request_that_says_it_is_too_large_is_refused(path: str) -> None:
    with proxied(answering(OK), max_body=LIMIT) as (server, proxy):
        with connect(proxy.url) as client:
            client.send(post(path, b"x" * (LIMIT + 1)))
            answer = client.rest()
        assert answer.startswith(b"HTTP/1.1 413 ")
        assert b"larger than 10,000 bytes: allow more with --max-body" in answer
        assert server.seen.empty()
        assert asked(proxy, post(path, b"x" * LIMIT), "POST")[1] == b"ok"


@pytest.mark.parametrize("path", ["/v1/messages", "/v1/files"])
def test_a_request_that_turns_out_too_large_is_refused(path: str) -> None:
    def script(peer: Peer) -> str:
        peer.wait_until_gone()
        return "gone"

    with proxied(script, max_body=LIMIT) as (server, proxy), connect(proxy.url) as client:
        client.send(f"POST {path} HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n".encode())
        for _ in range(11):
            client.send(b"3e8\r\n" + b"x" * 1000 + b"\r\n")
        client.send(b"0\r\n\r\n")
        answer = client.rest()
        assert answer.startswith(b"HTTP/1.1 413 ")
        assert b"allow more with --max-body" in answer
        if path == "/v1/files":
            assert server.next() == "gone"
        else:
            assert server.seen.empty()


def test_who_asks_first_is_refused_before_it_sends() -> None:
    with proxied(answering(OK), max_body=LIMIT) as (_, proxy), connect(proxy.url) as client:
        client.send(
            b"POST /v1/messages HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nContent-Length: 99999\r\n\r\n"
        )
        assert client.until(b"\r\n").startswith(b"HTTP/1.1 413 ")


# ── pages ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_health_and_metrics_and_the_page() -> None:
    with proxied(answering(OK)) as (_, proxy):
        asked(proxy, post("/v1/messages", twice()), "POST")
        assert json.loads(page(proxy, "health")[1])["status"] == "ok"
        assert b"ibidem_requests_total" in page(proxy, "metrics")[1]
        head, body = page(proxy, "")
        assert b"text/html" in head
        assert b"<html" in body
        conversation = json.loads(page(proxy, "api/conversation/c1")[1])
        assert [each["path"] for each in conversation["exchanges"]] == ["/v1/messages"]
        exchange = json.loads(page(proxy, f"api/exchange/{conversation['exchanges'][0]['id']}")[1])
        assert exchange["kept"]
        assert exchange["edits"][0]["before"]


@pytest.mark.parametrize(
    "path", ["api/conversation/none", "api/exchange/none", "recall/none", "nothing", "api/nothing"]
)
def test_what_is_not_there_is_said_to_be_missing(path: str) -> None:
    with proxied(answering(OK)) as (_, proxy):
        head, body = page(proxy, path)
        assert head.startswith(b"HTTP/1.1 404 ")
        assert 0 < len(body) < 200
        assert body.endswith(b"\n")


@pytest.mark.parametrize("text", ["plain", "two\nlines\r\n", "ünïcödé → \u2028 \U0001f600", " ", "x" * 10**6])
def test_a_text_that_was_let_go_comes_back_byte_for_byte(text: str) -> None:
    store = MemoryStore()
    ref = reference(text)
    store.put("a conversation", {ref: text})
    with Upstream() as upstream, BackgroundServer(to(upstream.url), store) as proxy:
        head, body = page(proxy, f"recall/{ref}")
        assert head.startswith(b"HTTP/1.1 200 ")
        assert b"text/plain; charset=utf-8" in head
        assert body == text.encode()


def test_a_page_is_told_what_happens_while_it_happens() -> None:
    with (
        Upstream(lambda _: Says("ok")) as upstream,
        BackgroundServer(to(upstream.url), MemoryStore()) as proxy,
        connect(proxy.url) as client,
    ):
        client.send(b"GET /ibidem/api/live HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert b"text/event-stream" in client.until(b"\r\n\r\n")

        def told() -> Any:
            client.until(b"event: state\ndata: ")
            return json.loads(client.until(b"\n\n"))

        assert told()["totals"]["requests"] == 0
        asked(proxy, post("/v1/messages", twice()), "POST")
        while (found := told())["totals"]["input"] == 0:
            pass
        assert found["totals"]["requests"] == 1


def test_the_last_word_counts_everything() -> None:
    with Upstream(lambda _: Says("ok")) as upstream, BackgroundServer(to(upstream.url), MemoryStore()) as proxy:
        for _ in range(3):
            asked(proxy, post("/v1/messages", twice()), "POST")
        summary = proxy.stop()
        assert summary.line().startswith("3 requests")
        assert summary.state["totals"]["requests"] == 3


# ── faults of our own ───────────────────────────────────────────────────────────────────────────────────────────────


class Fault(Exception):
    """With something that nobody should read: SECRET."""


def fault(*_: Any, **__: Any) -> Any:
    raise Fault("SECRET")


SEAMS: dict[str, tuple[Any, str]] = {
    "records, at the beginning": (live_stats.LiveStats, "begin_exchange"),
    "records, at the end": (live_stats.LiveStats, "end_exchange"),
    "records, at an event": (live_stats.LiveStats, "add_event"),
    "the log": (Proxy, "write_log"),
    "the rewriter": (rewriter.Rewriter, "rewrite_request"),
    "inside of the rewriter": (rewriter.Rewriter, "_find_and_rewrite"),
    "the reader of usage": (usage_reader.UsageReader, "_split_data"),
    "the counts in it": (usage_reader, "_reported_counts"),
    "the warming up": (warmup, "LiveStats"),
    "the state of the page": (AdminPages, "state"),
}


@pytest.mark.parametrize(("place", "name"), SEAMS.values(), ids=SEAMS)
def test_a_fault_in_our_own_books_breaks_no_exchange(
    place: Any, name: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with Upstream(lambda _: Says("ok")) as upstream, BackgroundServer(to(upstream.url), MemoryStore()) as proxy:
        monkeypatch.setattr(place, name, fault)
        for _ in range(3):
            head, body = asked(proxy, post("/v1/messages", twice()), "POST")
            assert head.startswith(b"HTTP/1.1 200 ")
            assert b'"usage"' in body
            assert asked(proxy, b"GET /v1/files HTTP/1.1\r\nHost: localhost\r\n\r\n")[0].startswith(b"HTTP/1.1 200 ")
            page(proxy, "api/state")
        assert len(upstream.seen) == 6
        monkeypatch.undo()
        told = [record.getMessage() for record in caplog.records if "error in the proxy" in record.getMessage()]
        assert len(told) == len(set(told)) <= 2  # once each
        assert all("SECRET" not in text for text in told)


def test_a_fault_in_a_page_is_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    with proxied(answering(OK)) as (_, proxy):
        monkeypatch.setattr(AdminPages, "state", fault)
        monkeypatch.setattr(AdminPages, "_recall_page", fault)
        for path in ("api/state", "metrics", "recall/x"):
            head, body = page(proxy, path)
            assert head.startswith(b"HTTP/1.1 500 ")
            assert b"SECRET" not in body
        monkeypatch.undo()
        assert state(proxy)["events"][0]["kind"] == "error"


def test_what_takes_too_long_goes_out_as_it_came(monkeypatch: pytest.MonkeyPatch) -> None:
    done = threading.Event()

    def stuck(self: Any, job: Any) -> Any:
        done.wait(PATIENCE)
        return RewriteResult(result="unchanged")

    with Upstream(lambda _: Says("ok")) as upstream:
        with BackgroundServer(to(upstream.url, budget_ms=20), MemoryStore()) as proxy:
            monkeypatch.setattr(rewriter.Rewriter, "rewrite_request", stuck)
            for _ in range(WORKERS + 2):
                assert asked(proxy, post("/v1/messages", twice()), "POST")[0].startswith(b"HTTP/1.1 200 ")
            found = {each["reason"]: each["count"] for each in state(proxy)["failures"]}
            assert found == {"time-out": WORKERS, "busy: earlier requests take too long": 2}
            monkeypatch.undo()
            done.set()
            for number in range(1000):  # and it recovers; what went as it came stays so
                other = twice().replace(b"read it", b"read %03d" % number)
                asked(proxy, post("/v1/messages", other), "POST")
                if state(proxy)["totals"]["rewritten"]:
                    break
        assert {len(seen.body) for seen in upstream.seen[: WORKERS + 2]} == {len(twice())}
        assert len(upstream.seen[-1].body) < len(twice())


# ── starting ────────────────────────────────────────────────────────────────────────────────────────────────────────

IDLE = """
import http.client, json, sys, time
from ibidem import tokens
from ibidem.billing import prices
from ibidem.proxy.edge.server import BackgroundServer
from ibidem.proxy.settings import Settings
from ibidem.store import MemoryStore
from ibidem.testing import Says, Upstream
budget, body = float(sys.argv[1]), sys.stdin.buffer.read()
never = ("rich", "ibidem.recordings")

def loaded(patience):
    end = time.monotonic() + patience
    while not (tokens._counters and prices._list_price.cache_info().currsize) and time.monotonic() < end:
        time.sleep(0.01)
    return [bool(tokens._counters), *(name in sys.modules for name in ("genai_prices", *never))]

with Upstream(lambda _: Says("ok")) as upstream:
    settings = Settings(port=0, budget_ms=budget, upstreams={"anthropic": upstream.url})
    with BackgroundServer(settings, MemoryStore()) as proxy:
        told = [loaded(30 if budget < 1000 else 0.3)]
        asked = http.client.HTTPConnection(proxy.url.partition("//")[2])
        asked.request("POST", "/v1/messages", body)
        asked.getresponse().read()
        asked.close()
        told.append(loaded(30))
    told.append(len(upstream.seen[0].body) < len(body))
print(json.dumps(told))
"""


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("budget", "before"),
    [
        pytest.param(2000, False, id="what rewriting needs is loaded with the first request, which is rewritten"),
        pytest.param(999, True, id="where it may take little time, it is loaded before"),
    ],
)
def test_a_proxy_that_nobody_uses_is_light(budget: int, before: bool) -> None:
    command = [sys.executable, "-W", "error", "-c", IDLE, str(budget)]
    ran = subprocess.run(command, input=twice(), capture_output=True, timeout=120)
    assert ran.stderr == b""
    never = [False] * 2
    assert json.loads(ran.stdout) == [[before] * 2 + never, [True] * 2 + never, True]


def test_the_first_request_may_take_as_long_as_loading_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """Here that is five times as long as any other request may take."""
    ready, rewrite = threading.Event(), rewriter.Rewriter.rewrite_request

    def slow(self: Any, job: Any) -> Any:
        ready.wait(PATIENCE)
        return rewrite(self, job)

    def loading() -> None:
        time.sleep(0.5)
        ready.set()

    monkeypatch.setattr(warmup, "load_data", loading)
    monkeypatch.setattr(rewriter.Rewriter, "rewrite_request", slow)
    monkeypatch.setattr(warmup, "LOADING_SECONDS", PATIENCE)
    monkeypatch.setattr(warmup, "HURRIED_MS", 100)
    with Upstream(lambda _: Says("ok")) as upstream:
        with BackgroundServer(to(upstream.url, budget_ms=100), MemoryStore()) as proxy:
            asked(proxy, post("/v1/messages", twice()), "POST")
        assert len(upstream.seen[0].body) < len(twice())


def test_it_runs_with_or_without_the_faster_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    async def name() -> str:
        return type(asyncio.get_running_loop()).__module__

    monkeypatch.setitem(sys.modules, "uvloop", None)
    assert run_loop(name()).startswith("asyncio")
    monkeypatch.undo()
    pytest.importorskip("uvloop")
    assert run_loop(name()).startswith("uvloop")
    with (
        Upstream(lambda _: Says("ok")) as upstream,
        BackgroundServer(to(upstream.url), MemoryStore(), run_loop) as proxy,
    ):
        for _ in range(3):
            assert asked(proxy, post("/v1/messages", twice()), "POST")[0].startswith(b"HTTP/1.1 200 ")
        assert len(upstream.seen[-1].body) < len(twice())


def test_a_log_that_cannot_be_written_is_said_before_anything_is_opened(tmp_path: Path) -> None:
    with (
        pytest.raises(IbidemError, match="name another with --json-log"),
        BackgroundServer(to("", json_log=str(tmp_path))),
    ):
        pass
