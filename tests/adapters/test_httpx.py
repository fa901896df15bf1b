"""The transport for httpx and httpx2: what is rewritten, what passes untouched, and what is read in passing."""

from __future__ import annotations

import asyncio
import gc
import gzip
import json
import os
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import httpx2
import pytest

import ibidem
from ibidem.adapters.httpx import BOUNDS, Answered, Transport, install
from ibidem.errors import IbidemError, UsageError
from ibidem.store import MemoryStore
from ibidem.store.store import JournalPage
from ibidem.testing import Answer, Calls, Fails, Gzips, Says, Seen, Slow, Upstream, conv
from tests.support.evict import EAGER_PROFILE
from tests.support.sdks import KEY, PATHS

FAMILIES: dict[str, Any] = {"httpx": httpx, "httpx2": httpx2}
TEXT = "\n".join(f"def step_{number}(value): return value * {number}  # ü" for number in range(150))
SCRIPT = ("u:look", "a:>1", f"r1:{TEXT}", "a:>2", f"r2:{TEXT}")


@pytest.fixture(params=FAMILIES)
def family(request: pytest.FixtureRequest) -> Any:
    return FAMILIES[request.param]


@pytest.fixture
def upstream() -> Iterator[Upstream]:
    with Upstream() as found:
        yield found


def body(format: str = "anthropic", *lines: str) -> bytes:
    request = conv(*(lines or SCRIPT), format=format)
    return json.dumps(request, ensure_ascii=False).encode()


def target(format: str) -> str:
    return PATHS[format].replace("streamGenerateContent?alt=sse&", "generateContent?")


@pytest.mark.parametrize("format", PATHS)
def test_a_conversation_is_rewritten_in_every_format(family: Any, upstream: Upstream, format: str) -> None:
    given = body(format)
    with family.Client(transport=Transport(), base_url=upstream.url) as client:
        assert client.post(target(format), content=given).status_code == 200
    sent = upstream.seen[0].body
    assert len(sent) < 0.7 * len(given)
    assert ibidem.expand(sent.decode(), format=format).encode() == given
    assert int(upstream.seen[0].header("content-length") or 0) == len(sent)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("format", PATHS)
def test_one_object_serves_sync_and_async_clients_and_event_loops(family: Any, upstream: Upstream, format: str) -> None:
    transport = Transport()

    async def ask() -> int:
        async with family.AsyncClient(transport=transport, base_url=upstream.url) as client:
            return int((await client.post(target(format), content=body(format))).status_code)

    with family.Client(transport=transport, base_url=upstream.url) as client:
        client.post(target(format), content=body(format))
    assert [asyncio.run(ask()) for _ in range(3)] == [200] * 3
    assert len({each.body for each in upstream.seen}) == 1


PREFIXES = ("/v1/messages", "/anthropic/v1/messages", "/any/base/messages", "/messages?beta=true", "/x/v1/messages")


@pytest.mark.parametrize("path", PREFIXES)
def test_only_the_end_of_a_path_counts(upstream: Upstream, path: str) -> None:
    with httpx2.Client(transport=Transport(), base_url=upstream.url) as client:
        client.post(path, content=body())
    assert b"[ibidem " in upstream.seen[0].body


UNTOUCHED = (
    "/model/anthropic.claude-x/invoke",
    "/model/anthropic.claude-x/converse",
    "/v1/threads/thread_1/messages",
    "/v1/messages/batches",
    "/v1/files",
    "/v1/embeddings",
    "/v1beta/models/gemini-x:embedContent",
)


@pytest.mark.parametrize("path", UNTOUCHED)
def test_other_routes_pass_untouched(upstream: Upstream, path: str) -> None:
    with httpx2.Client(transport=Transport(), base_url=upstream.url) as client:
        client.post(path, content=body())
    assert upstream.seen[0].body == body()


@pytest.mark.parametrize(
    "headers",
    [
        {"authorization": "AWS4-HMAC-SHA256 Credential=x"},
        {"x-amz-content-sha256": "0" * 64},
        {"content-digest": "sha-256=:x:"},
        {"content-md5": "x"},
        {"signature": "sig1=:x:"},
        {"authorization": 'Signature version="1",keyId="x"', "x-content-sha256": "x"},
        {"authorization": "HMAC-SHA256 Credential=x"},
        {"authorization": "TC3-HMAC-SHA256 Credential=x"},
        {"x-ms-content-sha256": "x"},
    ],
)
def test_what_is_signed_passes_untouched(upstream: Upstream, headers: dict[str, str]) -> None:
    with httpx2.Client(transport=Transport(), base_url=upstream.url) as client:
        client.post("/v1/messages", content=body(), headers=headers)
        client.post("/v1/messages?X-Amz-Signature=x", content=body())
    assert [each.body for each in upstream.seen] == [body()] * 2


def test_uploads_are_not_read_ahead(family: Any, upstream: Upstream) -> None:
    """Piece after piece is asked for while it is sent."""
    asked: list[int] = []

    class Inner(family.BaseTransport):  # type: ignore[misc]
        def handle_request(self, request: Any) -> Any:
            assert not asked
            return family.Response(200, content=b"".join(request.stream)[:0])

    def pieces() -> Iterator[bytes]:
        for number in range(3):
            asked.append(number)
            yield b"x" * 1000

    with family.Client(transport=Transport(inner=Inner())) as client:
        client.post(f"{upstream.url}/v1/files", content=pieces())
        assert asked == [0, 1, 2]
        asked.clear()
        client.post(f"{upstream.url}/v1/messages", content=pieces(), headers={"content-type": "multipart/form-data"})
    assert asked == [0, 1, 2]


def test_a_body_that_comes_in_pieces_is_rewritten_too(family: Any, upstream: Upstream) -> None:
    given = body()

    def pieces() -> Iterator[bytes]:
        yield given[:1000]
        yield given[1000:]

    async def apieces() -> AsyncIterator[bytes]:
        for piece in pieces():
            yield piece

    async def ask() -> None:
        async with family.AsyncClient(transport=Transport(), base_url=upstream.url) as client:
            await client.post("/v1/messages", content=apieces())

    with family.Client(transport=Transport(), base_url=upstream.url) as client:
        client.post("/v1/messages", content=pieces())
    asyncio.run(ask())
    for each in upstream.seen:
        assert ibidem.expand(each.body.decode(), format="anthropic").encode() == given
        assert each.header("transfer-encoding") is None


def test_headers_are_sent_as_they_came(family: Any, upstream: Upstream) -> None:
    headers = [(b"X-Title", "Größe".encode()), (b"X-Two", b"1"), (b"X-Two", b"2")]
    with family.Client(transport=Transport(), base_url=upstream.url) as client:
        client.post("/v1/messages", content=body(), headers=headers)
    with family.Client(base_url=upstream.url) as client:
        client.post("/v1/messages", content=body(), headers=headers)
    ours, plain = ([each for each in seen.headers if each[0] != "Content-Length"] for seen in upstream.seen)
    assert ours == plain
    assert b"[ibidem " in upstream.seen[0].body


def test_requests_may_be_of_a_class_of_ones_own(family: Any, upstream: Upstream) -> None:
    class Mine(family.Request):  # type: ignore[misc]
        def __init__(self, url: str) -> None:
            super().__init__("POST", url, content=body())

    with family.Client(transport=Transport()) as client:
        assert client.send(Mine(f"{upstream.url}/v1/messages")).status_code == 200
    assert b"[ibidem " in upstream.seen[0].body


def test_packed_bodies_stay_packed_and_unknown_encodings_untouched(upstream: Upstream) -> None:
    with httpx2.Client(transport=Transport(), base_url=upstream.url) as client:
        client.post("/v1/messages", content=gzip.compress(body()), headers={"content-encoding": "gzip"})
        client.post("/v1/messages", content=b"odd" + body(), headers={"content-encoding": "x-odd"})
    packed, odd = upstream.seen
    assert ibidem.expand(packed.text.decode(), format="anthropic").encode() == body()
    assert len(packed.text) < 0.7 * len(body())
    assert odd.body == b"odd" + body()


@pytest.mark.parametrize("given", [b"", b"{", b"[]", b'{"messages": 1}', b'{"messages": [1, null]}', b"\xff\xfe"])
def test_what_is_no_conversation_passes_untouched(upstream: Upstream, given: bytes) -> None:
    with httpx2.Client(transport=Transport(), base_url=upstream.url) as client:
        client.post("/v1/messages", content=given)
    assert upstream.seen[0].body == given


def test_a_size_is_asked_of_what_would_be_sent(upstream: Upstream) -> None:
    with httpx2.Client(transport=Transport(), base_url=upstream.url) as client:
        client.post("/v1/messages/count_tokens", content=body())
        client.post("/v1/messages", content=body())
    assert upstream.seen[0].body == upstream.seen[1].body != body()


# ── refusals ────────────────────────────────────────────────────────────────────────────────────────────────────────


def refusing(times: int = 1) -> Callable[[Seen], Answer]:
    """A provider that does not take markers, so many times."""
    left = [times]

    def answer(seen: Seen) -> Answer:
        if b"[ibidem " in seen.body and left[0]:
            left[0] -= 1
            return Fails(400, message="not like this")
        return Says("yes")

    return answer


@pytest.mark.parametrize("asynchronous", [False, True])
def test_what_a_provider_refuses_is_sent_as_it_came_and_stays_so(family: Any, asynchronous: bool) -> None:
    longer = [*SCRIPT, "a:fine", "u:more", "a:>3", f"r3:{TEXT}"]
    with Upstream(refusing(1)) as upstream:
        transport = Transport()

        async def ask(content: bytes) -> int:
            async with family.AsyncClient(transport=transport, base_url=upstream.url) as client:
                return int((await client.post("/v1/messages", content=content)).status_code)

        def statuses() -> list[int]:
            if asynchronous:
                return [asyncio.run(ask(content)) for content in (body(), body("anthropic", *longer))]
            with family.Client(transport=transport, base_url=upstream.url) as client:
                both = (body(), body("anthropic", *longer))
                return [client.post("/v1/messages", content=content).status_code for content in both]

        assert statuses() == [200, 200]
        refused, bare, later = upstream.seen
    assert b"[ibidem " in refused.body
    assert bare.body == body()
    assert later.json["messages"][:5] == bare.json["messages"][:5], "what was taken once is not changed"
    assert ibidem.expand(later.json, format="anthropic") == conv(*longer, format="anthropic")


def test_a_refusal_that_is_not_about_us_reaches_the_client(family: Any) -> None:
    with (
        Upstream(lambda _: Fails(400, message="prompt is too long: 9 tokens > 8 maximum")) as upstream,
        family.Client(transport=Transport(), base_url=upstream.url) as client,
    ):
        answer = client.post("/v1/messages", content=body())
        assert answer.status_code == 400
        assert "too long" in answer.json()["error"]["message"]
        assert len(upstream.seen) == 1


@pytest.mark.parametrize("answer", [Fails(400, message="prompt is too long"), Gzips(Fails(400, message="no"))])
def test_a_refusal_is_read_by_its_client_as_any_other(family: Any, answer: Answer) -> None:
    with Upstream(lambda _: answer) as upstream, family.Client(base_url=upstream.url) as plain:
        with plain.stream("POST", "/v1/messages", content=body()) as response:
            expected = b"".join(response.iter_raw())
        with family.Client(transport=Transport(), base_url=upstream.url) as client:
            with client.stream("POST", "/v1/messages", content=body()) as response:
                assert b"".join(response.iter_raw()) == expected
            assert client.post("/v1/messages", content=body()).elapsed.total_seconds() > 0

        async def ask() -> bytes:
            async with (
                family.AsyncClient(transport=Transport(), base_url=upstream.url) as client,
                client.stream("POST", "/v1/messages", content=body()) as response,
            ):
                return b"".join([piece async for piece in response.aiter_raw()])

        assert asyncio.run(ask()) == expected


def test_a_refusal_of_a_transport_that_has_all_of_it_is_read(family: Any) -> None:
    seen: list[bytes] = []

    def answer(request: Any) -> Any:
        seen.append(request.content)
        return family.Response(400 if b"[ibidem " in request.content else 200, json={"error": {"type": "bad"}})

    with family.Client(transport=Transport(inner=family.MockTransport(answer)), base_url="http://some.test") as client:
        assert client.post("/v1/messages", content=body()).status_code == 200
    assert seen[1] == body() != seen[0]


# ── usage ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.sampled(12)
@pytest.mark.parametrize("answer", [Says("hi"), Gzips(Says("hi")), Calls(("read", {"path": "a"}))])
@pytest.mark.parametrize("format", PATHS)
@pytest.mark.parametrize("stream", [False, True])
def test_what_was_charged_is_told_once(family: Any, format: str, stream: bool, answer: Answer) -> None:
    told: list[Answered] = []
    given = body(format)
    if stream:
        given = given[:-1] + b', "stream": true, "stream_options": {"include_usage": true}}'
    with (
        Upstream([answer]) as upstream,
        family.Client(transport=Transport(on_usage=told.append), base_url=upstream.url) as client,
    ):
        got = client.post(PATHS[format] if stream else target(format), content=given)
        assert got.status_code == 200
    (one,) = told
    assert one.usage.input > 1000
    assert (one.format, one.result, one.reason) == (format, "rewritten", "")
    assert one.bytes_sent < 0.7 * one.bytes_before
    assert one.bytes_before == len(given)


def test_who_stops_listening_is_told_nothing_and_loses_nothing(upstream: Upstream) -> None:
    told: list[Answered] = []
    with (
        Upstream([Slow(Says("word " * 500), chunk_delay=0.01)]) as slow,
        httpx2.Client(transport=Transport(on_usage=told.append), base_url=slow.url) as client,
        client.stream("POST", "/v1/messages", content=body()[:-1] + b', "stream": true}') as answer,
    ):
        assert next(answer.iter_lines())
    assert [each.usage.output for each in told] in ([], [1], [0]), "the first event tells the input"


def test_a_listener_that_fails_hurts_nobody(upstream: Upstream) -> None:
    def fail(_: Answered) -> None:
        raise RuntimeError("mine")

    with httpx2.Client(transport=Transport(on_usage=fail), base_url=upstream.url) as client:
        assert client.post("/v1/messages", content=body()).json()["content"]


# ── conversations ───────────────────────────────────────────────────────────────────────────────────────────────────


def test_recoverable_lets_go_after_a_pause_and_goes_on_from_the_store(upstream: Upstream) -> None:
    texts = ["\n".join(f"{line} of {number}: {hash((line, number))}" for line in range(150)) for number in range(12)]
    lines = ["u:look", *(part for n, text in enumerate(texts) for part in (f"a:>{n}", f"r{n}:{text}"))]
    store, clock = MemoryStore(), [1e9]

    def ask(transport: Transport, count: int) -> bytes:
        transport.rewriter.now = lambda: clock[0]
        clock[0] += 20
        with httpx2.Client(transport=transport, base_url=upstream.url) as client:
            client.post("/v1/messages", content=body("anthropic", *lines[:count]))
        return upstream.seen[-1].body

    transport = Transport(EAGER_PROFILE, store=store)
    for count in range(3, len(lines) - 2, 2):
        ask(transport, count)
    clock[0] += 7200.0
    shorter = ask(transport, len(lines) - 2)
    whole = body("anthropic", *lines[: len(lines) - 2])
    assert len(shorter) < 0.6 * len(whole)
    again = ask(Transport(EAGER_PROFILE, store=store), len(lines))
    assert json.loads(again)["messages"][: len(lines) - 2] == json.loads(shorter)["messages"]
    assert ibidem.expand(again.decode(), format="anthropic", store=store).encode() == body("anthropic", *lines)


def test_a_session_of_ones_own_is_used(upstream: Upstream) -> None:
    session = ibidem.Session(format="anthropic")
    with httpx2.Client(transport=Transport(session=session), base_url=upstream.url) as client:
        client.post("/v1/messages", content=body())
    assert upstream.seen[0].body == ibidem.compact(body()).request
    assert session.position is not None


def test_a_session_of_ones_own_is_told_of_its_own_answers_alone(upstream: Upstream) -> None:
    told: list[Answered] = []
    session = ibidem.Session("recoverable", format="anthropic", store=MemoryStore())
    named = json.dumps({**json.loads(body()), "model": "claude-x"}).encode()
    with httpx2.Client(transport=Transport(session=session, on_usage=told.append), base_url=upstream.url) as client:
        client.post("/v1/messages", content=named)
        state = session.state()
        client.post("/v1/messages", content=gzip.compress(b"{}"), headers={"content-encoding": "gzip"})
    assert session.state() == state
    assert told[0].model == "claude-x"


def test_usage_is_kept_where_a_gateway_serves_a_model_that_signs_its_thinking(upstream: Upstream) -> None:
    """In the store in which the conversation is."""
    store, model = MemoryStore(), "claude-opus-5-5"
    given = json.dumps({**json.loads(body("openai-chat")), "model": model}).encode()
    transport = Transport("recoverable", store=store)
    job = transport.rewriter.make_job("openai-chat", given)
    outcome = transport.rewriter.rewrite_body(job)
    assert outcome.conversation is not None
    before = store.notes(outcome.conversation.name)
    transport.rewriter.record_input_tokens(outcome, 5000, 100)
    assert store.notes(outcome.conversation.name) != before


def test_a_slow_store_does_not_hold_up_the_event_loop(upstream: Upstream) -> None:
    threads: set[int] = set()

    class Told(MemoryStore):
        def notes(self, *given: Any) -> JournalPage:
            threads.add(threading.get_ident())
            return super().notes(*given)

        def save(self, *given: Any) -> None:
            threads.add(threading.get_ident())
            super().save(*given)

    told: list[int] = []

    async def ask() -> None:
        transport = Transport("recoverable", store=Told(), on_usage=lambda _: told.append(threading.get_ident()))
        async with httpx2.AsyncClient(transport=transport, base_url=upstream.url) as client:
            await client.post("/v1/messages", content=body())

    asyncio.run(ask())
    assert threads
    assert threading.get_ident() not in threads
    assert told == [threading.get_ident()]


@pytest.mark.parametrize("wrong", [{"profile": "tight"}, {"session": "one"}, {"store": "file"}])
def test_settings_that_are_none_are_told_at_once(wrong: dict[str, Any]) -> None:
    with pytest.raises(IbidemError):
        Transport(**wrong)


# ── closing ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_client_that_closes_does_not_break_off_what_another_reads(family: Any) -> None:
    transport = Transport()
    with Upstream([Slow(Says("word " * 200), chunk_delay=0.005)]) as upstream:
        one, other = (family.Client(transport=transport, base_url=upstream.url) for _ in range(2))
        given = body()[:-1] + b', "stream": true}'
        with one.stream("POST", "/v1/messages", content=given) as answer:
            other.close()
            assert b"message_stop" in answer.read()
        one.post("/v1/messages", content=body())
        one.close()


def open_sockets() -> int:
    found = (os.path.realpath(each) for each in Path("/proc/self/fd").iterdir())
    return sum("socket:" in each for each in found)


@pytest.mark.sampled(1)
@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="open files are not listed here")
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_client_that_outlives_its_event_loops_leaves_no_connections(family: Any, upstream: Upstream) -> None:
    transport = Transport()
    client = family.AsyncClient(transport=transport, base_url=upstream.url)

    async def ask() -> None:
        await client.post("/v1/messages", content=body())

    asyncio.run(ask())
    before = open_sockets()
    for _ in range(10):
        asyncio.run(ask())
    assert len(transport._pools._all) == 1
    until = time.monotonic() + 10.0
    while gc.collect() >= 0 and open_sockets() > before + 2:  # the provider closes its own when it comes to it
        assert time.monotonic() < until
        time.sleep(0.01)
    transport._pools._all.clear()
    gc.collect()  # here, where nobody minds the warning


def test_what_is_below_is_entered_and_left(family: Any) -> None:
    done: list[str] = []

    class Inner(family.HTTPTransport, family.AsyncHTTPTransport):  # type: ignore[misc]
        def __enter__(self) -> Any:
            done.append("in")
            return self

        def __exit__(self, *_: object) -> None:
            done.append("out")

        async def __aenter__(self) -> Any:
            done.append("in")
            return self

        async def __aexit__(self, *_: object) -> None:
            done.append("out")

    async def ask() -> None:
        async with install(family.AsyncClient(transport=Inner())):
            pass

    with install(family.Client(transport=Inner())):
        pass
    asyncio.run(ask())
    assert done == ["in", "out"] * 2


# ── clients that exist ──────────────────────────────────────────────────────────────────────────────────────────────


def test_install_changes_a_client_that_exists(family: Any, upstream: Upstream) -> None:
    with install(family.Client(base_url=upstream.url)) as client:
        client.post("/v1/messages", content=body())
        install(client)  # twice is once
        client.post("/v1/messages", content=body())
    assert len({each.body for each in upstream.seen}) == 1
    assert b"[ibidem " in upstream.seen[0].body


def test_install_keeps_the_proxies_of_a_client(family: Any, upstream: Upstream) -> None:
    """What is mounted is rewritten too, by the same conversations."""
    mounted = {"http://other.test": family.HTTPTransport(proxy=upstream.url)}
    with install(family.Client(mounts=mounted)) as client:
        client.post("http://other.test/v1/messages", content=body())
    assert upstream.seen[0].target.startswith("http://other.test")
    assert b"[ibidem " in upstream.seen[0].body


def test_install_finds_the_client_of_an_sdk(upstream: Upstream) -> None:
    import openai

    with install(openai.OpenAI(base_url=f"{upstream.url}/v1", api_key=KEY), on_usage=lambda _: None) as client:
        client.chat.completions.create(**conv(*SCRIPT, format="openai-chat"))
    assert b"[ibidem " in upstream.seen[0].body


def test_install_says_what_it_cannot_do() -> None:
    with pytest.raises(UsageError, match="create the client with Transport"):
        install(object())


def test_install_refuses_a_version_that_is_not_known(family: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(BOUNDS, family.__name__, "0.1")
    with family.Client() as client, pytest.raises(UsageError, match="create the client with Transport"):
        install(client)
