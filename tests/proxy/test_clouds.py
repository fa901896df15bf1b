"""Anthropic's models on other clouds: paths name model and region, and what is signed is not touched."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

import ibidem
from ibidem.providers.addresses import PROVIDERS, url_in_region
from ibidem.proxy.edge.server import BackgroundServer
from ibidem.proxy.settings import Settings
from ibidem.store import MemoryStore
from ibidem.testing import Calls, Says, Upstream, by_turn
from tests.support.hops import Authority, http_proxy, socks_proxy
from tests.support.raw import Server, answering, asked
from tests.support.sdks import KEY, Anthropic, alone

VERTEX = "/v1/projects/p/locations/us-east5/publishers/anthropic/models"
BEDROCK = "/model/us.anthropic.claude-sonnet-4-5-20250929-v1:0"
FILE = "\n".join(f"def function_{number}(argument): return argument * {number}" for number in range(120))
SIGNED = {"Authorization": "AWS4-HMAC-SHA256 Credential=x, SignedHeaders=host, Signature=y"}


@contextmanager
def through_proxy(upstream: Upstream, **settings: Any) -> Iterator[str]:
    upstreams = dict.fromkeys(PROVIDERS, upstream.url)
    told = Settings(port=0, upstreams=upstreams, store="memory:", budget_ms=60_000.0, **settings)
    with BackgroundServer(told) as proxy:
        yield proxy.url


def conversation(reads: int) -> dict[str, Any]:
    """The same file, read so many times. The model is not in it."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": "Look at it."}]
    for number in range(reads):
        call = {"type": "tool_use", "id": f"t{number}", "name": "Read", "input": {"from": number}}
        result = {"type": "tool_result", "tool_use_id": f"t{number}", "content": FILE}
        messages += [{"role": "assistant", "content": [call]}, {"role": "user", "content": [result]}]
    return {"anthropic_version": "2023", "max_tokens": 9, "messages": messages}


def post(url: str, path: str, body: Any, **headers: str) -> bytes:
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=60)
    connection.request("POST", path, json.dumps(body), headers)
    answer = connection.getresponse()
    data = answer.read()
    connection.close()
    assert answer.status == 200, data
    return data


def page(url: str) -> Any:
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=60)
    connection.request("GET", "/ibidem/api/state")
    found = json.loads(connection.getresponse().read())
    connection.close()
    return found


PATHS = {
    "vertex": (f"{VERTEX}/claude-opus-4-1@20250805:rawPredict", "claude-opus-4-1@20250805"),
    "vertex, stream": (f"{VERTEX}/claude-opus-4-1%4020250805:streamRawPredict", "claude-opus-4-1@20250805"),
    "bedrock": (f"{BEDROCK}/invoke", "us.anthropic.claude-sonnet-4-5-20250929"),
    "bedrock, stream": (f"{BEDROCK}/invoke-with-response-stream", "us.anthropic.claude-sonnet-4-5-20250929"),
}


@pytest.mark.parametrize(("path", "model"), PATHS.values(), ids=PATHS)
@pytest.mark.parametrize("profile", ["lossless", "recoverable"])
def test_what_is_said_twice_goes_once_and_the_bill_is_that_of_the_model_in_the_path(
    path: str, model: str, profile: str
) -> None:
    with Upstream(lambda _: Says("ok")) as upstream, through_proxy(upstream, profile=profile) as url:
        answers = [post(url, path, conversation(reads)) for reads in (1, 2, 3)]
        state = page(url)
        seen = upstream.seen
    assert [each.target for each in seen] == [path] * 3
    for reads, each in enumerate(seen, 1):
        assert json.loads(ibidem.expand(each.text, format="anthropic")) == conversation(reads)
    assert seen[-1].text.count(b"def function_77") == 1
    assert all(answers)
    (found,) = state["conversations"]
    assert found["model"] == model
    assert 0 < state["totals"]["paid"] < state["totals"]["would_have_paid"]


@pytest.mark.parametrize("path", [each for each, _ in PATHS.values()], ids=PATHS)
@pytest.mark.parametrize("headers", [SIGNED, {"X-Amz-Content-Sha256": "x"}, {"content-md5": "x"}], ids=str)
def test_what_is_signed_is_sent_as_it_came(path: str, headers: dict[str, str]) -> None:
    body = conversation(3)
    with Upstream(lambda _: Says("ok")) as upstream, through_proxy(upstream) as url:
        for _ in range(2):
            post(url, path, body, **headers)
        post(url, f"{path}?X-Amz-Signature=x", body)
        seen = upstream.seen
    assert [each.body for each in seen] == [json.dumps(body).encode()] * 3


@pytest.mark.parametrize(
    ("model", "says_how_long"),
    [("us.anthropic.claude-sonnet-4-5-20250929-v1:0", True), ("us.anthropic.claude-opus-4-1-20250805-v1:0", False)],
)
def test_marks_say_how_long_only_where_that_cloud_takes_it(model: str, says_how_long: bool) -> None:
    """What a model's own provider takes, others may refuse: then a whole conversation would go without marks."""
    tools = [{"name": "Read", "description": FILE * 9, "input_schema": {"type": "object"}}]
    with Upstream(lambda _: Says("ok")) as upstream, through_proxy(upstream, cache="auto") as url:
        post(url, f"/model/{model}/invoke", {**conversation(1), "tools": tools})
        (seen,) = upstream.seen
    assert b'"cache_control"' in seen.body
    assert (b'"ttl"' in seen.body) == says_how_long


class OnVertex(Anthropic):
    def connect(self) -> Any:
        import anthropic

        about: Any = {"region": "global", "project_id": "p", "access_token": KEY, "max_retries": 0}
        return anthropic.AnthropicVertex(base_url=f"{self.url}/v1", **about)


@pytest.mark.slow
@pytest.mark.parametrize("stream", [False, True], ids=["plain", "stream"])
def test_the_sdk_for_vertex_works_as_without_us(stream: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    alone(monkeypatch)
    talk = by_turn([Calls(("Read", {"file_path": name})) for name in ("a", "b", "a", "b")] + [Says("done")])
    heard = []
    with Upstream(talk) as direct, Upstream(talk) as upstream, through_proxy(upstream) as url:
        for address in (direct.url, url):
            agent = OnVertex(address, stream)
            agent.say("Look.")
            said = [agent.ask()]
            while said[-1].calls:
                agent.answer([(ident, tool, FILE + given["file_path"]) for ident, tool, given in said[-1].calls])
                said.append(agent.ask())
            heard.append([each.whole for each in said])
            counted = agent.client.messages.count_tokens(model="claude-test", messages=agent.history)
            assert counted.input_tokens > 0
            agent.close()
        theirs, ours = direct.seen, upstream.seen
    assert heard[0] == heard[1]
    assert [each.target for each in ours] == [each.target for each in theirs]
    assert ours[-1].path.endswith("/locations/global/publishers/anthropic/models/count-tokens:rawPredict")
    for mine, original in zip(ours, theirs, strict=True):
        assert json.loads(ibidem.expand(mine.text, format="anthropic")) == original.json
    assert all(len(each[0].body) < 0.7 * len(each[1].body) for each in list(zip(ours, theirs, strict=True))[-2:])
    assert {each.header("authorization") for each in ours} == {f"Bearer {KEY}"}


@pytest.mark.parametrize(
    ("region", "host"),
    [
        ("us-east5", "us-east5-aiplatform.googleapis.com"),
        ("europe-west1", "europe-west1-aiplatform.googleapis.com"),
        ("global", "aiplatform.googleapis.com"),
        ("", "aiplatform.googleapis.com"),
        ("us", "aiplatform.us.rep.googleapis.com"),
        ("eu", "aiplatform.eu.rep.googleapis.com"),
    ],
)
def test_each_region_has_a_host_of_its_own_unless_an_address_was_set(region: str, host: str) -> None:
    assert url_in_region(PROVIDERS["vertex"], region) == f"https://{host}"
    assert (
        url_in_region("https://us-east5-aiplatform.googleapis.com", region)
        == "https://us-east5-aiplatform.googleapis.com"
    )
    assert url_in_region("https://gw.example/vertex", region) == "https://gw.example/vertex"
    assert url_in_region(PROVIDERS["anthropic"], region) == PROVIDERS["anthropic"]


@pytest.mark.sampled(1)
@pytest.mark.parametrize("scheme", ["http", "socks5"])
@pytest.mark.parametrize("region", ["us-east5", "global"])
def test_a_region_is_reached_through_the_proxy_that_is_set(
    scheme: str, region: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = urlsplit(url_in_region(PROVIDERS["vertex"], region)).hostname or ""
    authority = Authority(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.file))
    ok = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
    target = VERTEX.replace("us-east5", region) + "/claude-x:rawPredict"
    body = json.dumps(conversation(2)).encode()
    request = f"POST {target} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body
    with Server(authority.secured(answering(ok), host)) as upstream:
        script = http_proxy(upstream) if scheme == "http" else socks_proxy(upstream, host=host)
        with Server(script) as hop:
            monkeypatch.setenv("HTTPS_PROXY", f"{scheme}://{hop.host.decode()}")
            with BackgroundServer(Settings(port=0, budget_ms=60_000.0), MemoryStore()) as proxy:
                assert asked(proxy, request)[1] == b"ok"
            way = hop.next()
            head = upstream.next()[0][0]
    assert way == f"{host}:443" if scheme == "socks5" else way[0].startswith(f"CONNECT {host}:443 ".encode())
    assert head.startswith(f"POST {target} HTTP/1.1\r\nHost: {host}\r\n".encode())
