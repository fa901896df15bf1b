"""The scripted provider: the providers' own SDKs understand it, and every byte it sends was chosen."""

from __future__ import annotations

import asyncio
import gzip
import http.client
import json
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import aiohttp
import pytest

from ibidem.testing import (
    Answer,
    Calls,
    Fails,
    Gzips,
    Halves,
    Headed,
    Pings,
    Raw,
    Resets,
    Says,
    Slow,
    Thinks,
    Upstream,
    by_turn,
)
from ibidem.tokens import counter_for
from ibidem.wire import zstd
from tests.support.sdks import AGENTS, BODIES, PATHS, alone, dechunked

LONG = "x = compute(x)\n" * 2000
TALK = (
    Thinks(
        "The file must be read before it is known.", then=Calls(("Read", {"file_path": "a.py"}), says="Let me look.")
    ),
    Says("It is as it should be: nothing to do. 🦀"),
)


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch) -> None:
    alone(monkeypatch)


def post(upstream: Upstream, format: str = "anthropic", stream: bool = True, **headers: str) -> bytes:
    """One request over a connection of its own, and the answer's body."""
    connection = http.client.HTTPConnection(upstream.url.removeprefix("http://"), timeout=30)
    try:
        body = json.dumps({**BODIES[format], "stream": stream})
        connection.request("POST", PATHS[format], body, {"content-type": "application/json", **headers})
        return connection.getresponse().read()
    finally:
        connection.close()


def raw(upstream: Upstream, data: bytes) -> bytes:
    """What comes back for these bytes until the other side closes."""
    host, port = upstream.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), 30) as connection:
        connection.sendall(data)
        got = b""
        while piece := connection.recv(1 << 16):
            got += piece
        return got


# ── the SDKs ────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.slow
@pytest.mark.parametrize("stream", [False, True], ids=["plain", "stream"])
@pytest.mark.parametrize("format", AGENTS)
def test_an_sdk_hears_what_the_script_says(format: str, stream: bool) -> None:
    with Upstream(TALK, strict=True) as upstream:
        agent = AGENTS[format](upstream.url, stream)
        agent.say("Look at a.py")
        first = agent.ask()
        agent.answer([(ident, tool, LONG) for ident, tool, _ in first.calls])
        second = agent.ask()
        agent.say("Are you sure?")
        third = agent.ask()
        agent.close()
    assert first.text == "Let me look."
    assert first.thoughts == "The file must be read before it is known."
    assert [call[1:] for call in first.calls] == [("Read", {"file_path": "a.py"})]
    assert second.text == "It is as it should be: nothing to do. 🦀"
    assert third.text == "That is all there is to say, and it is said in one sentence."
    assert second.read == 0, "nothing that long was sent before"
    assert third.read > second.input * 0.98, "what was sent before is read"
    assert third.input > third.read


ERRORS: dict[str, Callable[[Any], tuple[int, str, Any]]] = {
    "anthropic": lambda e: (e.status_code, e.body["error"]["message"], e.response.headers),
    "openai-chat": lambda e: (e.status_code, e.body["message"], e.response.headers),
    "openai-responses": lambda e: (e.status_code, e.body["message"], e.response.headers),
    "gemini": lambda e: (e.code, e.message, e.response.headers),
}


@pytest.mark.slow
@pytest.mark.parametrize("status", [400, 429, 500, 529])
@pytest.mark.parametrize("format", AGENTS)
def test_an_sdk_reads_errors(format: str, status: int) -> None:
    with Upstream([Fails(status, retry_after=7, message="not now")]) as upstream:
        agent = AGENTS[format](upstream.url)
        agent.say("go")
        with pytest.raises(Exception, match="not now") as caught:  # of whatever type the SDK has for it
            agent.ask()
        agent.close()
    code, message, headers = ERRORS[format](caught.value)
    assert (code, message, headers["retry-after"]) == (status, "not now", "7")


@pytest.mark.slow
def test_sizes_are_told_without_an_answer() -> None:
    with Upstream([Says("The first answer.")]) as upstream:
        told = []
        asks: dict[str, Callable[[Any], int]] = {
            "anthropic": lambda client: (
                client.messages.count_tokens(model="claude-test", messages=MESSAGES).input_tokens
            ),
            "openai-responses": lambda client: client.responses.input_tokens.count(input=LONG).input_tokens,
            "gemini": lambda client: client.models.count_tokens(model="gemini-test", contents=LONG).total_tokens,
        }
        for format, ask in asks.items():
            agent = AGENTS[format](upstream.url)
            told.append(ask(agent.client))
            agent.close()
        size = counter_for()(LONG)
        assert all(size <= each <= size + 10 for each in told), (size, told)
        assert b"first answer" in post(upstream, stream=False), "no answer was used up"


MESSAGES: Any = [{"role": "user", "content": LONG}]


# ── what goes over the wire ─────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("format", AGENTS)
def test_the_same_script_gives_the_same_bytes(format: str) -> None:
    answers = []
    for _ in range(2):
        with Upstream([Pings(2, TALK[0])]) as upstream:
            post(upstream, format)
            answers.append(upstream.seen[0].answer)
    assert answers[0] == answers[1]
    assert answers[0].count(b"ping") >= 2


def test_a_gemini_stream_that_is_not_asked_to_be_events_is_an_array() -> None:
    with Upstream([Pings(3, TALK[0])]) as upstream:
        body = json.dumps(BODIES["gemini"]).encode()
        head = (
            b"POST /v1beta/models/m:streamGenerateContent HTTP/1.1\r\nConnection: close\r\nContent-Length: %d\r\n\r\n"
        )
        got = raw(upstream, head % len(body) + body)
        chunks = json.loads(dechunked(got))
        assert len(chunks) > 3
        assert chunks[-1]["candidates"][0]["finishReason"] == "STOP"


def test_other_paths_say_what_they_saw_in_order_and_case() -> None:
    with Upstream() as upstream:
        head = "PUT /v9/any?x=%20y HTTP/1.1\nhOsT: here\nX-Odd: 1\nx-odd: 2\nContent-Length: 3\nConnection: close\n\n"
        asked = head.replace("\n", "\r\n").encode() + b"abc"
        said = json.loads(raw(upstream, asked).partition(b"\r\n\r\n")[2])
        assert said["method"] == "PUT"
        assert said["target"] == "/v9/any?x=%20y"
        assert said["body"] == 3
        names = [["hOsT", "here"], ["X-Odd", "1"], ["x-odd", "2"], ["Content-Length", "3"], ["Connection", "close"]]
        assert said["headers"] == names
        assert [list(header) for header in upstream.seen[0].headers] == names


def test_head_is_answered_without_a_body() -> None:
    with Upstream() as upstream:
        got = raw(upstream, b"HEAD / HTTP/1.1\r\nConnection: close\r\n\r\n")
        assert got.startswith(b"HTTP/1.1 200 OK\r\n")
        assert got.endswith(b"\r\n\r\n")
        assert upstream.seen[0].answered


def test_headers_are_sent_as_they_are_spelled() -> None:
    odd = (("Set-Cookie", "a=1"), ("X-Odd-CASE", "Ü"), ("Set-Cookie", "b=2"))
    with Upstream([Headed(*odd, answer=Says("hi"))]) as upstream:
        post(upstream, stream=False)
        head = upstream.seen[0].answer.partition(b"\r\n\r\n")[0].decode("latin-1")
    lines = head.split("\r\n")
    assert lines[-3:] == ["Set-Cookie: a=1", "X-Odd-CASE: Ü", "Set-Cookie: b=2"]


@pytest.mark.parametrize("stream", [False, True], ids=["plain", "stream"])
def test_answers_may_be_compressed(stream: bool) -> None:
    with Upstream([Says("hello"), Gzips(Says("hello"))]) as upstream:
        plain, packed = post(upstream, stream=stream), post(upstream, stream=stream)
        assert gzip.decompress(packed).replace(b"000002", b"000001") == plain
        assert b"content-encoding: gzip" in upstream.seen[1].answer


def test_a_script_may_choose_every_byte() -> None:
    odd = b"HTTP/1.1 299 Strange\r\nContent-Length: 2\r\n\r\nok and more"
    with Upstream([Raw(odd)]) as upstream:
        body = json.dumps(BODIES["anthropic"]).encode()
        assert raw(upstream, b"POST /v1/messages HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % len(body) + body) == odd


@pytest.mark.parametrize(("coding", "pack"), [("gzip", gzip.compress), ("zstd", zstd.compress)])
def test_compressed_and_chunked_requests_are_understood(coding: str, pack: Callable[[bytes], bytes]) -> None:
    body = pack(json.dumps(BODIES["anthropic"]).encode())
    with Upstream([Says("hello")]) as upstream:
        connection = http.client.HTTPConnection(upstream.url.removeprefix("http://"), timeout=30)
        headers = {"content-encoding": coding, "transfer-encoding": "chunked"}
        connection.request("POST", "/v1/messages", iter([body[:10], body[10:]]), headers, encode_chunked=True)
        assert b"hello" in connection.getresponse().read()
        connection.close()
        assert upstream.seen[0].body == body
        assert upstream.seen[0].json == BODIES["anthropic"]


def test_a_body_that_is_no_json_is_refused_in_the_providers_words() -> None:
    with Upstream() as upstream:
        got = raw(upstream, b"POST /v1/messages HTTP/1.1\r\nConnection: close\r\nContent-Length: 3\r\n\r\n{x}")
        assert got.startswith(b"HTTP/1.1 400 ")
        assert json.loads(got.partition(b"\r\n\r\n")[2])["error"]["type"] == "invalid_request_error"


def test_websockets_are_echoed() -> None:
    async def talk(url: str) -> list[Any]:
        heard: list[Any] = []
        async with aiohttp.ClientSession() as session, session.ws_connect(f"{url}/ws/any") as socket:
            for message in ("hello", "x" * 70_000, "ü" * 200):
                await socket.send_str(message)
                heard.append(await socket.receive_str(timeout=30))
            await socket.send_bytes(b"\x00\xff")
            heard.append(await socket.receive_bytes(timeout=30))
            await socket.ping()
        async with aiohttp.ClientSession() as session:
            with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
                await session.ws_connect(f"{url}/v1/responses")
        return [*heard, refused.value.status]

    with Upstream() as upstream:
        assert asyncio.run(talk(upstream.url)) == ["hello", "x" * 70_000, "ü" * 200, b"\x00\xff", 426]
        assert upstream.messages[0] == b"hello"


# ── what goes wrong ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_reset_comes_after_so_many_chunks() -> None:
    with Upstream([Resets(Says(LONG), after_chunks=4)]) as upstream:
        with pytest.raises(ConnectionResetError):
            post(upstream)
        events = upstream.wait_until(lambda seen: seen[0].answered)[0].answer.count(b"event: ")
        assert events == 4


def test_a_reset_before_the_first_byte_answers_nothing() -> None:
    with Upstream([Resets(after_chunks=0)]) as upstream:
        with pytest.raises(ConnectionResetError):
            post(upstream)
        assert upstream.wait_until(lambda seen: seen[0].answered)[0].answer == b""


@pytest.mark.parametrize("stream", [False, True], ids=["length", "chunks"])
def test_half_an_answer_is_half_an_answer(stream: bool) -> None:
    with Upstream([Says("hello world"), Halves(Says("hello world"))]) as upstream:
        whole = post(upstream, stream=stream)
        with pytest.raises(http.client.IncompleteRead):
            post(upstream, stream=stream)
        half = upstream.wait_until(lambda seen: seen[1].answered)[1].answer.partition(b"\r\n\r\n")[2]
        sent = upstream.seen[0].answer.partition(b"\r\n\r\n")[2]
        end = len(b"0\r\n\r\n") if stream else 0
        assert len(half) == (len(sent) - end) // 2
        came = dechunked(b"\r\n\r\n" + half) if stream else half
        assert whole.startswith(came.replace(b"000002", b"000001"))


def test_a_client_that_goes_away_is_noticed_at_once() -> None:
    with Upstream([Slow(Says(LONG), chunk_delay=600)]) as upstream:
        connection = http.client.HTTPConnection(upstream.url.removeprefix("http://"), timeout=30)
        connection.request("POST", "/v1/messages", json.dumps({**BODIES["anthropic"], "stream": True}))
        answer = connection.getresponse()
        assert answer.readline().startswith(b"event: message_start")
        assert not upstream.seen[0].gone
        answer.close()
        connection.close()
        seen = upstream.wait_until(lambda seen: seen[0].gone)[0]
        assert seen.gone_at is not None
        assert not seen.answered


def test_a_client_that_goes_away_before_all_was_asked_is_seen_with_what_came() -> None:
    with Upstream() as upstream:
        host, port = upstream.url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port)), 30) as connection:
            connection.sendall(b"POST /v1/messages HTTP/1.1\r\nContent-Length: 100\r\n\r\nhalf of it")
        seen = upstream.wait_for(1)[0]
        assert (seen.body, seen.whole, seen.gone) == (b"half of it", False, True)


def test_an_upstream_stops_while_answers_are_under_way() -> None:
    ended: list[str] = []

    def ask() -> None:
        try:
            post(upstream)
        except (OSError, http.client.HTTPException) as error:
            ended.append(type(error).__name__)

    with Upstream([Slow(wait=600)]) as upstream:
        asking = threading.Thread(target=ask, daemon=True)
        asking.start()
        upstream.wait_for(1)
    asking.join(30)
    assert len(ended) == 1


def test_a_script_that_fails_fails_the_test() -> None:
    def script(_: object) -> Answer:
        raise ZeroDivisionError("in the script")

    with pytest.raises(ZeroDivisionError), Upstream(script) as upstream:
        assert b"in the script" in post(upstream)


def test_what_does_not_come_is_not_waited_for_for_ever() -> None:
    with Upstream() as upstream, pytest.raises(TimeoutError, match="request 1 did not happen"):
        upstream.wait_for(1, patience=0.01)


# ── conversations and the prompt cache ──────────────────────────────────────────────────────────────────────────────


@pytest.mark.slow
def test_many_conversations_at_once_each_hear_their_own_answers() -> None:
    def converse(url: str, format: str, heard: list[str]) -> None:
        agent = AGENTS[format](url, stream=True)
        agent.say("go")
        first = agent.ask()
        agent.answer([(ident, tool, "nothing") for ident, tool, _ in first.calls])
        heard.append(agent.ask().text)
        agent.close()

    with Upstream(by_turn(TALK)) as upstream:
        heard: list[str] = []
        threads = [threading.Thread(target=converse, args=(upstream.url, f, heard)) for f in [*AGENTS] * 3]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert heard == ["It is as it should be: nothing to do. 🦀"] * 12
        assert len(upstream.seen) == 24


MARK = {"cache_control": {"type": "ephemeral"}}
MARK_1H = {"cache_control": {"type": "ephemeral", "ttl": "1h"}}


def spent(upstream: Upstream, *blocks: dict[str, Any], key: str = "a", model: str = "claude-test") -> tuple[int, ...]:
    """Tokens of a request: fresh, written, read."""
    content = [{"type": "text", **block} for block in blocks]
    body = {**BODIES["anthropic"], "model": model, "messages": [{"role": "user", "content": content}]}
    connection = http.client.HTTPConnection(upstream.url.removeprefix("http://"), timeout=30)
    connection.request("POST", "/v1/messages", json.dumps(body), {"x-api-key": key})
    usage = json.loads(connection.getresponse().read()).get("usage", {})
    connection.close()
    names = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
    return tuple(usage.get(name, 0) for name in names)


def test_a_marked_beginning_is_written_once_and_then_read() -> None:
    with Upstream() as upstream:
        size = sum(spent(upstream, {"text": LONG}))
        assert spent(upstream, {"text": LONG}) == (size, 0, 0), "without a mark nothing is kept"
        assert spent(upstream, {"text": LONG, **MARK}) == (0, size, 0)
        assert spent(upstream, {"text": LONG, **MARK}) == (0, 0, size)
        fresh, written, read = spent(upstream, {"text": LONG}, {"text": "more", **MARK})
        assert (fresh, read) == (0, size), "the mark has moved, the beginning is the same"
        assert 0 < written < 40
        fresh, written, read = spent(upstream, {"text": LONG, **MARK}, {"text": "other"})
        assert (written, read) == (0, size)
        assert 0 < fresh < 40


@pytest.mark.parametrize(
    ("why", "change"),
    [
        ("another key", {"key": "b"}),
        ("another model", {"model": "claude-other"}),
        ("another text", {"text": LONG + "."}),
    ],
)
def test_nothing_is_read_for(why: str, change: dict[str, str]) -> None:
    with Upstream() as upstream:
        spent(upstream, {"text": LONG, **MARK})
        text = change.pop("text", LONG)
        assert spent(upstream, {"text": text, **MARK}, **change)[2] == 0, why


def test_a_shared_cache_knows_no_keys() -> None:
    with Upstream(shared=True) as upstream:
        size = sum(spent(upstream, {"text": LONG, **MARK}))
        assert spent(upstream, {"text": LONG, **MARK}, key="b") == (0, 0, size)


def test_what_is_kept_is_forgotten_unless_it_is_used() -> None:
    now = [1000.0]
    with Upstream(clock=lambda: now[0]) as upstream:
        size = sum(spent(upstream, {"text": LONG, **MARK}))
        for passed, read in ((299, size), (299, size), (301, 0)):
            now[0] += passed
            assert spent(upstream, {"text": LONG, **MARK})[2] == read
        now[0] += 301
        assert spent(upstream, {"text": LONG, **MARK_1H}) == (0, size, 0)
        now[0] += 3599
        assert spent(upstream, {"text": LONG, **MARK_1H})[2] == size


def test_what_failed_is_not_kept() -> None:
    with Upstream([Fails(529)]) as upstream:
        spent(upstream, {"text": LONG, **MARK})
        assert spent(upstream, {"text": LONG, **MARK})[2] == 0


def test_a_mark_looks_back_over_twenty_blocks() -> None:
    with Upstream() as upstream:
        size = sum(spent(upstream, {"text": LONG, **MARK}))
        near = [{"text": f"{number}"} for number in range(19)]
        assert spent(upstream, {"text": LONG}, *near, {"text": "end", **MARK})[2] == size
        far = [{"text": f"far {number}"} for number in range(20)]
        assert spent(upstream, {"text": LONG}, *far, {"text": "end", **MARK})[2] == 0


@pytest.mark.slow
@pytest.mark.parametrize(("model", "charges"), [("gpt-5", False), ("gpt-5.6-sol", True)])
def test_writes_to_an_automatic_cache_are_told_where_they_cost(model: str, charges: bool) -> None:
    with Upstream() as upstream:
        agent = AGENTS["openai-responses"](upstream.url)
        usages = [agent.client.responses.create(model=model, input=LONG).usage for _ in range(2)]
        agent.close()
    told = [usage.input_tokens_details for usage in usages]
    assert [each.cached_tokens > 7000 for each in told] == [False, True]
    assert [each.cache_write_tokens > 0 for each in told] == [charges, charges]
    assert told[1].cache_write_tokens < 128


@pytest.mark.slow
def test_requests_that_a_provider_refuses_are_refused_where_that_is_wanted() -> None:
    from anthropic import BadRequestError  # takes a second, and every run collects these tests

    with Upstream(strict=True) as upstream:
        agent = AGENTS["anthropic"](upstream.url)
        agent.answer([("nobody-asked", "Read", "x")])
        with pytest.raises(BadRequestError, match="nobody-asked"):
            agent.ask()
        agent.close()


def test_importing_loads_neither_a_server_nor_a_generator() -> None:
    code = "import sys, ibidem.testing; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"aiohttp", "hypothesis", "asyncio"} & set(loaded)
