"""`POST /ibidem/v1/compact`: what comes back is what the library would send, and whatever is wrong, what came."""

from __future__ import annotations

import gzip
import http.client
import json
import os
import re
import shutil
import subprocess
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

import ibidem
from ibidem.formats import FORMATS
from ibidem.live.live import Rewriter
from ibidem.proxy.compact_endpoint import COMPACT_PATH, is_local_client
from ibidem.store import MemoryStore
from ibidem.store.recall import recall
from tests.support.proxied import Clock, Talk, dumped, growing, requests, stale, talk, waited_for

PATIENT = {"IBIDEM_PATIENCE_MS": "30000", "PATH": os.environ.get("PATH", "")}
EXAMPLES = Path(__file__).parents[2] / "examples"


@dataclass
class Given:
    """An answer of the endpoint."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def outcome(self) -> str:
        return self.headers.get("x-ibidem-outcome", "")

    @property
    def reason(self) -> str:
        return self.headers.get("x-ibidem-reason", "")


def post(found: Talk, body: bytes, *, method: str = "POST", **headers: str) -> Given:
    parts = urlsplit(found.proxy.url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=60)
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    try:
        connection.request(method, COMPACT_PATH, body, sent)
        with connection.getresponse() as answer:
            return Given(answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read())
    finally:
        connection.close()


def test_a_slash_too_many_changes_nothing() -> None:
    body = last("anthropic")
    with talk() as found:
        given = post(found, body)
        for path in (f"/{COMPACT_PATH}", f"//{COMPACT_PATH}/", f"/{COMPACT_PATH}?a=b"):
            assert found.ask("POST", path, body) == (200, given.body)
        assert given.outcome == "rewritten"
        assert not found.upstream.seen


def last(format: str, count: int = 8) -> bytes:
    return dumped([*growing(format, count)][-1])


@pytest.mark.parametrize("format", FORMATS)
def test_it_gives_back_what_the_library_would_send(format: str) -> None:
    """Turn by turn: the bytes of `compact` and of a `Session`, each the beginning of the next."""
    session = ibidem.Session(format=format)
    with talk() as found:
        for body in map(dumped, growing(format, 8)):
            given = post(found, body, x_ibidem_format=format, x_ibidem_conversation="one")
            assert (given.status, given.headers["content-type"]) == (200, "application/json")
            assert given.body == ibidem.compact(body, format=format).request == session.compact(body).request
            assert (given.outcome == "rewritten") is (given.body != body)
            assert int(given.headers["x-ibidem-bytes-before"]) == len(body)
            assert int(given.headers["x-ibidem-bytes-after"]) == len(given.body)
        assert int(given.headers["x-ibidem-tokens-after"]) < int(given.headers["x-ibidem-tokens-before"])
        assert ibidem.expand(given.body, format=format) == body
        told = post(found, body)
        assert (told.body, told.headers["x-ibidem-format"]) == (given.body, format), "the body tells its format"
    assert not found.upstream.seen


def test_what_a_profile_lets_go_is_in_the_store_and_stays_gone() -> None:
    """As a session decides it; also after the proxy was started anew."""
    store, mine, clock = MemoryStore(), MemoryStore(), Clock()
    bodies = [dumped(each) for each in requests("anthropic", *stale(6), model="claude-sonnet-4-5")]
    session = ibidem.Session(profile="recoverable", format="anthropic", store=mine)
    asked = {"x_ibidem_profile": "recoverable", "x_ibidem_conversation": "mine"}
    points = len(bodies) // 2, len(bodies)
    given, begin = [], 0
    for end in points:
        with talk(store=store, clock=clock) as found:
            for body in bodies[begin:end]:
                clock.now += 5
                given.append(post(found, body, **asked).body)
                assert given[-1] == session.compact(body, at=clock.now).request
            assert post(found, body, x_ibidem_conversation="mine").body == ibidem.compact(body).request
        begin = end
    assert len(given[-1]) < len(ibidem.compact(bodies[-1]).request), "something was let go"
    assert ibidem.expand(given[-1], format="anthropic", store=store) == bodies[-1]
    assert any(recall(each, store=store) for each in _refs(given[-1], store))


def _refs(body: bytes, store: MemoryStore) -> list[str]:
    found = {each.decode() for each in re.findall(rb"\b[0-9a-f]{12}\b", body)}
    return [*store.get(found)]


def test_a_body_comes_back_packed_as_it_came() -> None:
    body = last("anthropic")
    with talk() as found:
        given = post(found, gzip.compress(body), content_encoding="gzip")
        assert given.headers["content-encoding"] == "gzip"
        assert gzip.decompress(given.body) == ibidem.compact(body).request
        odd = post(found, b"\x00" + body, content_encoding="nobody-knows")
    assert (odd.body, odd.outcome) == (b"\x00" + body, "failed open")
    assert "encoding" in odd.reason


DEEP = b'{"model":"claude-sonnet-4-5","messages":' + b"[" * 100_000 + b"]" * 100_000 + b"}"
ROWS = last("anthropic")
GIVEN_BACK = {
    "a format nobody knows": (ROWS, {"x_ibidem_format": "morse"}, "unknown format"),
    "a profile nobody knows": (ROWS, {"x_ibidem_profile": "os:system"}, "unknown profile"),
    "a body of no format": (b'{"hello": 1}', {}, "no conversation"),
    "a body of several": (b'{"messages":[{"role":"user","content":"hi"}]}', {}, "more than one format"),
    "nested too deeply": (DEEP, {}, "cannot be read"),
    "nested too deeply, in a format": (DEEP, {"x_ibidem_format": "anthropic"}, "no history"),
    "a history that is none": (b'{"messages":[1,2,null]}', {"x_ibidem_format": "anthropic"}, ""),
}


@pytest.mark.parametrize(("body", "headers", "reason"), GIVEN_BACK.values(), ids=GIVEN_BACK)
def test_what_cannot_be_rewritten_comes_back_and_says_why(body: bytes, headers: dict[str, str], reason: str) -> None:
    with talk() as found:
        given = post(found, body, **headers)
    assert (given.status, given.body, given.outcome) == (200, body, "unchanged")
    assert reason in given.reason


def test_duplicate_keys_are_read_as_the_library_reads_them() -> None:
    twice = ROWS[:-1] + b',"messages":' + json.dumps(json.loads(ROWS)["messages"][:3]).encode() + b"}"
    with talk() as found:
        given = post(found, twice, x_ibidem_format="anthropic")
    assert given.status == 200
    assert given.body in (twice, ibidem.compact(twice, format="anthropic").request)


def test_a_huge_body_comes_back_as_it_came() -> None:
    body = b'{"model":"claude-sonnet-4-5","messages":[{"role":"user","content":"' + b"x" * 50_000_000 + b'"}]}'
    with talk() as found:
        given = post(found, body)
    assert (given.status, given.outcome, given.body == body) == (200, "failed open", True)
    assert "too large" in given.reason
    with talk(max_body=len(ROWS) - 1) as found:
        assert post(found, ROWS).status == 413


@pytest.mark.parametrize("body", [b"", b"hello", b"[1]", b'"x"', b'{"messages":', b'{"a":"\xff"}', b"\xff\xfe{}"])
def test_only_what_is_no_json_object_is_refused(body: bytes) -> None:
    with talk() as found:
        for headers in ({}, {"x_ibidem_format": "gemini"}, {"x_ibidem_format": "morse"}):
            given = post(found, body, **headers)
            assert given.status == 400
            assert "not a JSON object" in json.loads(given.body)["error"]
            assert b"\n" not in given.body


def test_who_may_ask() -> None:
    with talk(token="secret") as found:
        assert post(found, ROWS).status == 401
        assert post(found, ROWS, x_ibidem_token="other").status == 401
        mine = {"x_ibidem_token": "secret"}
        assert post(found, ROWS, **mine).outcome == "rewritten"
        assert post(found, ROWS, **mine, origin="https://example.com").status == 403
        assert post(found, ROWS, **mine, host="example.com").status == 403
        assert "gemini" in json.loads(post(found, b"", method="GET", **mine).body)["formats"]
        assert post(found, b"", method="GET").status == 401
        asked = post(found, b"", method="PUT", **mine)
        assert (asked.status, asked.headers["allow"]) == (405, "POST, GET, HEAD")


@pytest.mark.parametrize("peer", ["127.0.0.1", "127.8.9.1", "::1", "::ffff:127.0.0.1"])
def test_peers_of_this_machine(peer: str) -> None:
    assert is_local_client(peer)


@pytest.mark.parametrize("peer", ["", "192.168.1.7", "::ffff:10.0.0.1", "fe80::1%eth0", "localhost.example.com"])
def test_peers_of_another(peer: str) -> None:
    assert not is_local_client(peer)


def test_it_is_counted_and_nothing_is_said_of_money() -> None:
    with talk() as found:
        for body in map(dumped, growing("anthropic", 6)):
            post(found, body, user_agent="mine/1.0")
        post(found, b"nothing")
        state = found.settled(7)
        metrics = found.ask("GET", "/ibidem/metrics")[1].decode()
        line = found.service.stats.summary_line
    counted = state["totals"]["compacted"]
    assert counted["requests"] == state["totals"]["unpriced"] == 7
    assert counted["rewritten"] == state["totals"]["rewritten"] > 0
    assert counted["bytes_out"] < counted["bytes_in"]
    assert state["totals"]["paid"] == state["totals"]["would_have_paid"] == state["totals"]["removed"] == 0
    (row,) = state["conversations"]
    assert (row["client"], row["requests"], row["paid"]) == ("mine/1.0", 7, 0)
    assert "\nibidem_paid_dollars_total " not in metrics
    assert f'ibidem_compact_requests_total{{outcome="rewritten"}} {counted["rewritten"]}\n' in metrics
    assert line == "7 requests returned to the client, which sends them: their cost is not known"


def test_the_switch_and_observing_hold_here_too() -> None:
    with talk() as found:
        assert post(found, ROWS, x_ibidem="off").outcome == "off"
        found.ask("POST", "/ibidem/api/off", b'{"all": true}')
        assert post(found, ROWS, x_ibidem_conversation="another").body == ROWS
        found.ask("POST", "/ibidem/api/on", b'{"all": true}')
        assert post(found, ROWS, x_ibidem_conversation="a third").outcome == "rewritten"
    with talk(observe=True) as found:
        given = post(found, ROWS)
    assert (given.body, given.outcome) == (ROWS, "observed")
    assert given.headers["x-ibidem-tokens-after"] == given.headers["x-ibidem-tokens-before"]


def test_over_budget_it_goes_on_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was given back before stays so, and what is new comes back as it came."""
    bodies, held = [*map(dumped, growing("anthropic", 8))], threading.Event()
    works = Rewriter._rewrite_match

    def stuck(self: Rewriter, *given: Any) -> Any:
        held.wait(30)
        return works(self, *given)

    with talk(budget_ms=1500.0) as found:
        for body in bodies[:6]:
            before = post(found, body)
        monkeypatch.setattr(Rewriter, "_rewrite_match", stuck)
        given = post(found, bodies[6])
        held.set()
        monkeypatch.undo()
        after = post(found, bodies[7])
    assert before.outcome == "rewritten"
    assert (given.status, given.outcome, given.reason) == (200, "failed open", "time-out")
    sent = [json.loads(each.body)["messages"] for each in (before, given, after)]
    assert sent[1] == sent[0] + json.loads(bodies[6])["messages"][len(sent[0]) :]
    assert sent[2][: len(sent[1])] == sent[1], "and that stays too"


def test_who_hangs_up_sends_what_came() -> None:
    """So the conversation goes on from that: its provider has it in its cache."""
    bodies, held = [*map(dumped, growing("anthropic", 8))], threading.Event()
    works = Rewriter._rewrite_match

    def stuck(self: Rewriter, *given: Any) -> Any:
        held.wait(30)
        return works(self, *given)

    with talk() as found, pytest.MonkeyPatch.context() as patch:
        patch.setattr(Rewriter, "_rewrite_match", stuck)
        parts = urlsplit(found.proxy.url)
        connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=60)
        connection.request("POST", COMPACT_PATH, bodies[6])
        waited_for(lambda: len(found.service.conversations))
        connection.close()
        time.sleep(0.2)
        held.set()
        waited_for(lambda: found.state["totals"]["requests"])
        patch.undo()
        given = post(found, bodies[7])
    came, sent = (json.loads(each)["messages"] for each in (bodies[6], given.body))
    assert sent[: len(came)] == came


@pytest.mark.skipif(shutil.which("node") is None, reason="needs node")
def test_the_example_in_javascript(tmp_path: Path) -> None:
    """It gives back what the library would send; and, where nobody answers cleanly, what it was given."""
    client = EXAMPLES / "compact_client.mjs"
    assert len(client.read_text().splitlines()) <= 30

    def run(url: str, body: bytes = ROWS) -> bytes:
        command, variables = ["node", str(client), "anthropic", "one"], {"IBIDEM_URL": url, **PATIENT}
        return subprocess.run(command, input=body, env=variables, stdout=-1, check=True, timeout=60).stdout

    with talk() as found:
        assert run(found.proxy.url) == ibidem.compact(ROWS).request
        assert run(found.proxy.url, b"hello") == b"hello"
    assert run(found.proxy.url) == ROWS, "it is gone"
