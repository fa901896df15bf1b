"""The providers' own SDKs through the proxy: upstream gets less, and the SDK notices nothing."""

from __future__ import annotations

import http.client
import json
import socket
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from itertools import pairwise
from typing import Any

import pytest

import ibidem
from ibidem.proxy.edge.server import BackgroundServer
from ibidem.proxy.settings import Settings
from ibidem.testing import (
    Answer,
    Calls,
    Fails,
    Gzips,
    Halves,
    Headed,
    Pings,
    Resets,
    Says,
    Seen,
    Slow,
    Thinks,
    Upstream,
    by_turn,
)
from tests.support.sdks import AGENTS, BODIES, PATHS, Agent, Heard, alone, dechunked

pytestmark = pytest.mark.slow  # the SDKs take seconds to import, and are no quicker at work

READ = ("a.py", "b.py", "a.py", "b.py", "a.py")
"""Files that the scripted model reads, one in each turn; the last time the first has changed."""

TALK = (
    Thinks("I should look first.", then=Calls(("Read", {"file_path": "a.py"}), says="Let me look.")),
    *(Calls(("Read", {"file_path": name})) for name in READ[1:-1]),
    Thinks("Once more.", then=Calls(("Read", {"file_path": "a.py"}))),
    Says("It is as it should be: nothing to do. 🦀"),
)


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch) -> None:
    alone(monkeypatch)


@contextmanager
def through_proxy(upstream: Upstream, **settings: Any) -> Iterator[str]:
    upstreams = dict.fromkeys(Settings().upstreams, upstream.url)
    patient = 60_000.0  # no test here is about a machine that is slow
    told = Settings(port=0, upstreams=upstreams, store="memory:", budget_ms=patient, **settings)
    with BackgroundServer(told) as proxy:
        yield proxy.url


def text_of(name: str, owner: str, changed: bool) -> str:
    lines = [f"def {name[0]}_{number}(argument): return argument * {number}  # of {owner} ü" for number in range(120)]
    if changed:
        lines[60] = "def changed(): return None"
    return "\n".join(lines)


def work(agent: Agent, owner: str = "one") -> list[Heard]:
    """Turns until the model calls no more."""
    agent.say(f"Look at the files of {owner}.")
    heard = [agent.ask()]
    while heard[-1].calls:
        turn = len(heard) - 1
        texts = [text_of(call[2]["file_path"], owner, turn == len(READ) - 1) for call in heard[-1].calls]
        results = [(ident, tool, text) for (ident, tool, _), text in zip(heard[-1].calls, texts, strict=True)]
        agent.answer(results)
        heard.append(agent.ask())
    agent.close()
    return heard


def bodies(seen: list[Seen]) -> list[str]:
    return [each.body.decode() for each in seen]


def headers(seen: Seen) -> list[tuple[str, str]]:
    """All but those that are about a connection and not about the request."""
    return [pair for pair in seen.headers if pair[0].lower() not in ("host", "connection", "content-length")]


@pytest.mark.parametrize("stream", [False, True], ids=["plain", "stream"])
@pytest.mark.parametrize("format", AGENTS)
def test_an_agent_works_as_without_us_and_upstream_gets_less(format: str, stream: bool) -> None:
    with Upstream(TALK, strict=True) as direct:
        expected = work(AGENTS[format](direct.url, stream))
        originals = direct.seen
    with Upstream(TALK, strict=True) as upstream, through_proxy(upstream) as url:
        heard = work(AGENTS[format](url, stream))
        sent = upstream.seen
    assert [each.whole for each in heard] == [each.whole for each in expected]
    assert len(sent) == len(originals) == len(READ) + 1
    for theirs, ours in zip(bodies(originals), bodies(sent), strict=True):
        assert ibidem.expand(ours, format=format) == theirs
    assert [len(a.body) < len(b.body) for a, b in zip(sent, originals, strict=True)] == [False] * 3 + [True] * 3
    assert "[ibidem " in bodies(sent)[-1]
    assert len(sent[-1].body) < 0.6 * len(originals[-1].body)
    assert heard[-1].input < 0.6 * expected[-1].input
    assert [headers(each) for each in sent] == [headers(each) for each in originals]
    assert [each.target for each in sent] == [each.target for each in originals]


@pytest.mark.parametrize("format", AGENTS)
def test_what_was_sent_once_is_sent_the_same_and_read_from_the_cache(format: str) -> None:
    with Upstream(TALK) as upstream, through_proxy(upstream) as url:
        heard = work(AGENTS[format](url))
        histories = [each.json[ibidem.formats.format_named(format).history_key] for each in upstream.seen]
    for before, after in pairwise(histories):
        assert after[: len(before)] == before
    assert all(after.read >= before.input * 0.85 for before, after in pairwise(heard[1:]))


ODD = (("Set-Cookie", "a=1"), ("X-Odd-CASE", "yes"), ("set-cookie", "b=2"))


@pytest.mark.parametrize("answer", [TALK[0], Pings(3, TALK[1]), Gzips(TALK[-1]), Headed(*ODD, answer=Says("hi"))])
@pytest.mark.parametrize("format", AGENTS)
def test_a_stream_is_the_same_bytes_and_has_the_same_headers(format: str, answer: Answer) -> None:
    got = []
    with ExitStack() as stack:
        direct, upstream = stack.enter_context(Upstream([answer])), stack.enter_context(Upstream([answer]))
        for url in (direct.url, stack.enter_context(through_proxy(upstream))):
            connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=30)
            connection.request("POST", PATHS[format], json.dumps({**BODIES[format], "stream": True}))
            response = connection.getresponse()
            framing = ("transfer-encoding", "connection")
            told = [pair for pair in response.getheaders() if pair[0].lower() not in framing]
            got.append((response.status, response.reason, told, response.read()))
            connection.close()
    assert got[0] == got[1]
    assert len(got[0][3]) > 100


@pytest.mark.parametrize("status", [400, 401, 413, 429, 500, 503, 529])
@pytest.mark.parametrize("format", AGENTS)
def test_an_error_reaches_the_sdk_as_it_is(format: str, status: int) -> None:
    caught = []
    with ExitStack() as stack:
        script = [Fails(status, retry_after=7, message="not now: ü")]
        direct, upstream = stack.enter_context(Upstream(script)), stack.enter_context(Upstream(script))
        for url in (direct.url, stack.enter_context(through_proxy(upstream))):
            agent = AGENTS[format](url)
            agent.say("go")
            with pytest.raises(Exception, match="not now: ü") as error:  # of whatever type the SDK has for it
                agent.ask()
            agent.close()
            sdk_error: Any = error.value
            told = {name: value for name, value in sdk_error.response.headers.items() if name.lower() != "connection"}
            caught.append((type(error.value), str(error.value), told))
    assert caught[0] == caught[1]
    assert caught[0][2]["retry-after"] == "7"


def test_a_retry_is_the_same_request() -> None:
    with Upstream([*TALK[:4], Fails(529, retry_after=0), *TALK[4:]]) as upstream, through_proxy(upstream) as url:
        agent = AGENTS["anthropic"](url)
        agent.client.max_retries = 1
        work(agent)
        sent = bodies(upstream.seen)
    assert len(sent) == len(TALK) + 1
    assert sent[4] == sent[5]


FAULTS = {"reset": Resets(TALK[-1], after_chunks=4), "half": Halves(TALK[-1]), "nothing": Resets(after_chunks=0)}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("format", AGENTS)
def test_an_answer_that_breaks_off_is_no_whole_answer(format: str, fault: str) -> None:
    """The SDK sees a failure, as it would without us; never an answer that only looks complete."""
    caught = []
    with ExitStack() as stack:
        direct, upstream = (stack.enter_context(Upstream([FAULTS[fault]])) for _ in range(2))
        for url in (direct.url, stack.enter_context(through_proxy(upstream))):
            agent = AGENTS[format](url, stream=True)
            agent.say("go")
            with pytest.raises(Exception) as error:  # noqa: PT011  # each SDK has its own, or its transport's
                agent.ask()
            agent.close()
            caught.append(type(error.value))
        assert len(upstream.seen) == 1
    if fault == "half":
        assert caught[0] is caught[1]


@pytest.mark.parametrize("fault", ["reset", "half"])
@pytest.mark.parametrize("format", AGENTS)
def test_what_came_before_an_answer_broke_off_came_through(format: str, fault: str) -> None:
    with Upstream([FAULTS[fault]]) as upstream, through_proxy(upstream) as url:
        body = json.dumps({**BODIES[format], "stream": True}).encode()
        host, port = url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port)), 30) as connection:
            connection.sendall(b"POST %b HTTP/1.1\r\nHost: %b\r\n" % (PATHS[format].encode(), host.encode()))
            connection.sendall(b"Content-Length: %d\r\n\r\n%b" % (len(body), body))
            got = b""
            with suppress(ConnectionResetError):
                while piece := connection.recv(1 << 16):
                    got += piece
        sent = upstream.seen[0].answer
    assert dechunked(got) == dechunked(sent)
    assert len(dechunked(got)) > 100


def test_an_sdk_that_stops_listening_ends_the_request_upstream() -> None:
    with Upstream([Slow(Says("word " * 1000), chunk_delay=600)]) as upstream, through_proxy(upstream) as url:
        agent = AGENTS["anthropic"](url)
        asked: Any = {**BODIES["anthropic"]}
        with agent.client.messages.stream(**asked) as events:
            assert next(iter(events)).type == "message_start"
            assert not upstream.seen[0].gone
        assert upstream.wait_until(lambda seen: seen[0].gone)[0].gone_at is not None
        agent.close()


def test_count_tokens_counts_what_would_be_sent() -> None:
    with Upstream(TALK) as upstream, through_proxy(upstream) as url:
        agent = AGENTS["anthropic"](url)
        heard = work(agent)
        again = AGENTS["anthropic"](url)
        tools: Any = [{"name": "Read", "description": "reads", "input_schema": {"type": "object"}}]
        told = again.client.messages.count_tokens(model="claude-test", messages=agent.history[:-1], tools=tools)
        again.close()
        *_, sent, counted = upstream.seen
        assert counted.path == "/v1/messages/count_tokens"
        assert counted.json["messages"] == sent.json["messages"]
        assert len(counted.body) < 0.6 * len(ibidem.expand(counted.text.decode(), format="anthropic"))
        assert abs(told.input_tokens - heard[-1].input) < 60


def test_agents_at_the_same_time_do_not_mix() -> None:
    def run(url: str, format: str, owner: str) -> None:
        heard = work(AGENTS[format](url, stream=owner[-1] in "02468"), owner)
        ended[owner] = heard[-1].text

    ended: dict[str, str] = {}
    with Upstream(by_turn(TALK), strict=True) as upstream, through_proxy(upstream) as url:
        owners = [(format, f"{format} {number}") for number in range(3) for format in AGENTS]
        threads = [threading.Thread(target=run, args=(url, *each)) for each in owners]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(120)
        seen = bodies(upstream.seen)
    assert ended == {owner: "It is as it should be: nothing to do. 🦀" for _, owner in owners}
    for format, owner in owners:
        mine = [body for body in seen if f"Look at the files of {owner}." in body]
        assert len(mine) == len(TALK)
        for body in mine:
            whole = ibidem.expand(body, format=format)
            assert not any(f"# of {other}" in whole for _, other in owners if other != owner)
        last = max((ibidem.expand(body, format=format) for body in mine), key=len)
        assert last.count(f"# of {owner} ") == 120 * len(READ) - 1
        assert any(len(body) < 0.6 * len(last) for body in mine[-1:])


@pytest.mark.parametrize("profile", ibidem.PROFILES)
@pytest.mark.parametrize("format", AGENTS)
def test_with_every_profile_an_agent_comes_to_its_end(format: str, profile: str) -> None:
    with Upstream(TALK, strict=True) as upstream, through_proxy(upstream, profile=profile) as url:
        heard = work(AGENTS[format](url, stream=True))
        assert len(upstream.seen) == len(TALK)
        sizes = [len(each.body) for each in upstream.seen]
    assert heard[-1].text == "It is as it should be: nothing to do. 🦀"
    # The model signs its thinking, so codetether's passes edit nothing in front of that of the active tool loop.
    is_bound = format == "anthropic" and profile.startswith("codetether")
    assert sizes[-1] < (40_000 if is_bound else 30_000), "five files of 8 KB, two of them different"


@pytest.mark.parametrize("stream", [False, True], ids=["plain", "stream"])
@pytest.mark.parametrize("format", AGENTS)
def test_the_page_counts_what_the_provider_told_the_sdk(format: str, stream: bool) -> None:
    with Upstream(TALK) as upstream, through_proxy(upstream) as url:
        heard = work(AGENTS[format](url, stream))
        deadline = time.monotonic() + 30
        while True:  # the last answer is counted when it has ended, which the SDK may know before us
            with urllib.request.urlopen(f"{url}/ibidem/api/state", timeout=30) as response:
                totals = json.load(response)["totals"]
            if totals["input"] >= sum(each.input for each in heard) or time.monotonic() > deadline:
                break
    assert totals["requests"] == len(heard)
    assert totals["input"] == sum(each.input for each in heard)
    assert totals["read"] == sum(each.read for each in heard)
    assert 0 < totals["paid"] < totals["would_have_paid"]


def test_an_observer_sends_what_it_gets() -> None:
    with Upstream(TALK) as direct:
        work(AGENTS["anthropic"](direct.url))
        originals = bodies(direct.seen)
    with Upstream(TALK) as upstream, through_proxy(upstream, observe=True) as url:
        work(AGENTS["anthropic"](url))
        assert bodies(upstream.seen) == originals
