"""Requests to a proxy whose upstreams are not set: to which host they are sent, and which are refused."""

from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import pytest

from ibidem.providers.addresses import PROVIDERS
from ibidem.proxy.edge.server import BackgroundServer
from ibidem.proxy.settings import Settings, load_settings
from ibidem.store import MemoryStore
from ibidem.testing import Says, Upstream
from ibidem.testing.scripts import build
from tests.support.hops import Authority, http_proxy, pump
from tests.support.proxied import turns
from tests.support.raw import Peer, Server

ANTHROPIC, OPENAI = "api.anthropic.com", "api.openai.com"
GEMINI, VERTEX = "generativelanguage.googleapis.com", "aiplatform.googleapis.com"
IRELAND, SYDNEY = (f"bedrock-runtime.{region}.amazonaws.com" for region in ("eu-west-1", "ap-southeast-2"))
CHAT, RESPONSES = "openai-chat", "openai-responses"
WHOLE = turns(8)
PLACE = "/v1/projects/p/locations/{}/publishers"
GENERATE = "google/models/gemini-3-pro:generateContent"
SONNET = "/model/eu.anthropic.claude-sonnet-4-5-20250929-v1:0"
ARN = "/model/arn%3Aaws%3Abedrock%3Aap-southeast-2%3A12%3Aapplication-inference-profile%2Fx7"
VERSION = {"anthropic-version": "2023-06-01"}
SIGNED = {"Authorization": "AWS4-HMAC-SHA256 Credential=x, SignedHeaders=host, Signature=y"}


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


class Sent(NamedTuple):
    """A request, and the host that gets it."""

    path: str
    headers: dict[str, str]
    host: str
    target: str = ""
    """The path there, if it is another."""
    format: str = ""
    """Format of the body, if it is rewritten."""
    method: str = "POST"


SENT = {
    # rows of the table in which the request may be sent
    "Vertex, Gemini": Sent(
        f"{PLACE.format('europe-west4')}/{GENERATE}", bearer("ya29.x"), f"europe-west4-{VERTEX}", format="gemini"
    ),
    "Vertex, Gemini, global": Sent(f"{PLACE.format('global')}/{GENERATE}", bearer("ya29.x"), VERTEX, format="gemini"),
    "Vertex, Gemini, no project": Sent(f"/v1/publishers/{GENERATE}?key=AIzax", {}, VERTEX, format="gemini"),
    "Vertex, Gemini, key": Sent(f"/v1beta1/publishers/{GENERATE}", {"x-goog-api-key": "AQ.x"}, VERTEX, format="gemini"),
    "Vertex, chat": Sent(
        "/v1beta1/projects/p/locations/us-east5/endpoints/openapi/chat/completions",
        bearer("ya29.x"),
        f"us-east5-{VERTEX}",
        format=CHAT,
    ),
    "Vertex, other": Sent(
        f"{PLACE.format('us-east5')}/google/models/x:predict",
        {**bearer("ya29.x"), "x-goog-api-client": "gl-python/3"},
        f"us-east5-{VERTEX}",
    ),
    "Vertex, Claude": Sent(
        f"{PLACE.format('us')}/anthropic/models/claude-x:rawPredict",
        bearer("ya29.x"),
        "aiplatform.us.rep.googleapis.com",
        format="anthropic",
    ),
    "Bedrock": Sent(f"{SONNET}/invoke", bearer("ABSKx"), IRELAND, format="anthropic"),
    "Bedrock, short key": Sent(f"{SONNET}/invoke", bearer("bedrock-api-key-x"), IRELAND, format="anthropic"),
    "Bedrock, ARN": Sent(f"{ARN}/invoke", bearer("ABSKx"), SYDNEY, format="anthropic"),
    "Bedrock, Converse": Sent(f"{SONNET}/converse-stream", bearer("ABSKx"), IRELAND),
    "Bedrock, Converse, ARN": Sent(f"{ARN}/converse", bearer("ABSKx"), SYDNEY),
    # what always worked: paths without a prefix
    "Anthropic": Sent("/v1/messages", {"x-api-key": "sk-ant-api03-x", **VERSION}, ANTHROPIC, format="anthropic"),
    "Anthropic, unknown key": Sent("/v1/messages?beta=true", {"x-api-key": "k"}, ANTHROPIC, format="anthropic"),
    "Anthropic, login": Sent("/v1/messages", bearer("sk-ant-oat01-x"), ANTHROPIC, format="anthropic"),
    "Anthropic, count": Sent("/v1/messages/count_tokens", bearer("x"), ANTHROPIC, format="anthropic"),
    "Anthropic, models": Sent("/v1/models", {"x-api-key": "k", **VERSION}, ANTHROPIC, method="GET"),
    "Anthropic, login, models": Sent("/v1/models", bearer("sk-ant-oat01-x"), ANTHROPIC, method="GET"),
    "Anthropic, files": Sent("/v1/files/f1", {"x-api-key": "k", **VERSION}, ANTHROPIC, method="DELETE"),
    "Claude Code, telemetry": Sent("/api/event_logging/batch", {"x-api-key": "k", **VERSION}, ANTHROPIC),
    "Claude Code, profile": Sent("/api/oauth/profile", bearer("sk-ant-oat01-x"), ANTHROPIC, method="GET"),
    "OpenAI, chat": Sent("/v1/chat/completions", bearer("sk-proj-x"), OPENAI, format=CHAT),
    "OpenAI, unknown key": Sent("/v1/chat/completions", bearer("sk-x"), OPENAI, format=CHAT),
    "OpenAI, responses": Sent("/v1/responses", bearer("sk-svcacct-x"), OPENAI, format=RESPONSES),
    "OpenAI, models": Sent("/v1/models", bearer("sk-x"), OPENAI, method="GET"),
    "OpenAI, embeddings": Sent("/v1/embeddings", bearer("sk-x"), OPENAI),
    "OpenAI, stored response": Sent("/v1/responses/r1", bearer("sk-x"), OPENAI, method="DELETE"),
    "ChatGPT": Sent(
        "/v1/responses",
        {**bearer("eyJx"), "chatgpt-account-id": "a"},
        "chatgpt.com",
        "/backend-api/codex/responses",
        RESPONSES,
    ),
    "ChatGPT, models": Sent(
        "/openai/v1/models",
        {**bearer("eyJx"), "chatgpt-account-id": "a"},
        "chatgpt.com",
        "/backend-api/codex/models",
        method="GET",
    ),
    "Gemini": Sent("/v1beta/models/gemini-3-pro:generateContent", {"x-goog-api-key": "AIzax"}, GEMINI, format="gemini"),
    "Gemini, OAuth": Sent("/v1beta/models/gemini-3-pro:generateContent", bearer("ya29.x"), GEMINI, format="gemini"),
    "Gemini, chat": Sent("/v1beta/openai/chat/completions", bearer("AIzax"), GEMINI, format=CHAT),
    "Gemini, models": Sent("/v1beta/models?key=AIzax", {}, GEMINI, method="GET"),
    "Gemini, upload": Sent("/upload/v1beta/files", {"x-goog-api-key": "AIzax"}, GEMINI),
    # the same with the prefixes that `wrap` sets
    "/anthropic": Sent("/anthropic/v1/messages", {"x-api-key": "k"}, ANTHROPIC, "/v1/messages", "anthropic"),
    "/anthropic, root": Sent("/anthropic/", {}, ANTHROPIC, "/", method="HEAD"),
    "/anthropic, chat": Sent(
        "/anthropic/v1/chat/completions", bearer("sk-ant-x"), ANTHROPIC, "/v1/chat/completions", CHAT
    ),
    "/openai": Sent("/openai/v1/chat/completions", bearer("sk-proj-x"), OPENAI, "/v1/chat/completions", CHAT),
    "/openai, other": Sent("/openai/v1/new/thing", bearer("sk-x"), OPENAI, "/v1/new/thing"),
    "/gemini": Sent("/gemini/v1beta/cachedContents", {"x-goog-api-key": "x"}, GEMINI, "/v1beta/cachedContents"),
    "/vertex": Sent(
        f"/vertex{PLACE.format('us-east5')}/anthropic/models/claude-x:streamRawPredict",
        bearer("ya29.x"),
        f"us-east5-{VERTEX}",
        f"{PLACE.format('us-east5')}/anthropic/models/claude-x:streamRawPredict",
        "anthropic",
    ),
    "/bedrock": Sent(
        f"/bedrock{SONNET}/invoke-with-response-stream",
        bearer("ABSKx"),
        IRELAND,
        f"{SONNET}/invoke-with-response-stream",
        "anthropic",
    ),
    "/bedrock, chat": Sent(
        "/bedrock/openai/v1/chat/completions", bearer("ABSKx"), IRELAND, "/openai/v1/chat/completions", CHAT
    ),
    "/moonshot": Sent("/moonshot/v1/chat/completions", bearer("sk-x"), "api.moonshot.ai", "/v1/chat/completions", CHAT),
    "/openrouter, chat": Sent(
        "/openrouter/v1/chat/completions", bearer("sk-or-x"), "openrouter.ai", "/api/v1/chat/completions", CHAT
    ),
    "/openrouter, messages": Sent(
        "/openrouter/v1/messages", bearer("sk-or-x"), "openrouter.ai", "/api/v1/messages", "anthropic"
    ),
}


class Refused(NamedTuple):
    """A request that is refused, and words of the message."""

    path: str
    headers: dict[str, str]
    words: str
    """Of the cause."""
    option: str
    assigned: bool = True
    """Whether it is sent once the upstream is set."""


REFUSED = {
    # rows of the table in which the request may not be sent
    "Code Assist": Refused(
        "/v1internal:generateContent",
        bearer("ya29.x"),
        "belongs to Gemini Code Assist",
        "openai=https://cloudcode-pa.googleapis.com",
        False,
    ),
    "Code Assist, header": Refused(
        "/v1internal:streamGenerateContent?alt=sse",
        {**bearer("ya29.x"), "x-goog-api-client": "gl-node/22"},
        "belongs to Gemini Code Assist",
        "gemini=https://cloudcode-pa.googleapis.com",
    ),
    "Azure": Refused(
        "/openai/deployments/n/chat/completions?api-version=1",
        {"api-key": "k"},
        "the path /deployments/n/chat/completions belongs to Azure OpenAI",
        "openai=https://NAME.openai.azure.com/openai",
    ),
    "Azure, Entra": Refused(
        "/openai/deployments/n/chat/completions",
        bearer("eyJx"),
        "Azure OpenAI",
        "openai=https://NAME.openai.azure.com/",
    ),
    "Azure, v1": Refused(
        "/openai/v1/responses",
        {"api-key": "k"},
        "the header api-key belongs to Azure OpenAI",
        "openai=https://NAME.openai.azure.com/openai",
    ),
    "Azure, Claude": Refused("/anthropic/v1/messages", {"api-key": "k"}, "the header api-key", "anthropic="),
    "Mantle": Refused(
        "/anthropic/v1/messages",
        bearer("ABSKx"),
        "(ABSK…) belongs to Amazon Bedrock, and api.anthropic.com",
        "anthropic=URL",
    ),
    "Bedrock, chat": Refused(
        "/openai/v1/chat/completions",
        bearer("ABSKx"),
        "(ABSK…) belongs to Amazon Bedrock, and api.openai.com",
        "openai=URL",
    ),
    "OpenRouter, messages": Refused(
        "/api/v1/messages", bearer("sk-or-v1-x"), "belongs to OpenRouter", "openai=https://openrouter.ai"
    ),
    "OpenRouter, chat": Refused(
        "/api/v1/chat/completions", bearer("sk-or-v1-x"), "belongs to OpenRouter", "openai=https://openrouter.ai"
    ),
    "OpenRouter, key": Refused(
        "/v1/chat/completions",
        bearer("sk-or-v1-x"),
        "(sk-or-…) belongs to OpenRouter",
        "openai=https://openrouter.ai/api",
    ),
    "Ollama": Refused("/api/chat", {}, "belongs to Ollama", "openai=http://localhost:11434", False),
    "Ollama, key": Refused("/api/chat", {"x-api-key": "k"}, "belongs to Ollama", "anthropic=http://localhost:11434"),
    "Bedrock, SigV4": Refused(
        f"{SONNET}/invoke", SIGNED, "signed with AWS credentials for another host", "bedrock=URL"
    ),
    "Bedrock, SigV4, ARN": Refused(f"{ARN}/invoke", SIGNED, "signed with AWS credentials", "bedrock=URL"),
    "Bedrock, SigV4, query": Refused(
        f"{SONNET}/converse?X-Amz-Signature=x", {}, "signed with AWS credentials", "bedrock=URL"
    ),
    # other paths
    "root": Refused("/", {}, "unknown provider for the path /.", "openai=URL", False),
    "unknown": Refused("/v2/things", bearer("x"), "unknown provider for the path /v2/things", "openai=URL", False),
    "gateway": Refused(
        "/compatible-mode/v1/chat/completions", bearer("sk-x"), "api.openai.com does not serve", "openai=URL"
    ),
    "gateway, models": Refused("/api/paas/v4/models", bearer("x"), "api.openai.com does not serve", "openai=URL"),
    "gateway, Gemini": Refused("/gw/models/m:generateContent", {}, "does not serve", "gemini=URL"),
    "gateway, Vertex": Refused(
        f"/gw{PLACE.format('us')[3:]}/anthropic/models/m:rawPredict", bearer("x"), "does not serve", "vertex=URL"
    ),
    "ChatGPT, no account": Refused("/backend-api/codex/responses", bearer("eyJx"), "belongs to ChatGPT", "openai=URL"),
    "/gemini, Vertex": Refused(
        f"/gemini/v1beta1/publishers/{GENERATE}", {"x-goog-api-key": "x"}, "belongs to Google Vertex AI", "gemini=URL"
    ),
    "/anthropic, Bedrock": Refused(
        f"/anthropic{SONNET}/invoke", bearer("x"), "belongs to Amazon Bedrock", "anthropic="
    ),
    # other credentials
    "Anthropic's at OpenAI": Refused("/v1/chat/completions", bearer("sk-ant-x"), "belongs to Anthropic", "openai=URL"),
    "Anthropic's at OpenAI, header": Refused(
        "/v1/chat/completions", {"x-api-key": "sk-ant-x"}, "belongs to Anthropic", "openai=URL"
    ),
    "Anthropic's at Bedrock": Refused(f"{SONNET}/invoke", bearer("sk-ant-x"), "belongs to Anthropic", "bedrock=URL"),
    "OpenAI's at Anthropic": Refused("/v1/messages", bearer("sk-proj-x"), "belongs to OpenAI", "anthropic=URL"),
    "OpenAI's at Moonshot": Refused("/moonshot/v1/models", bearer("sk-proj-x"), "belongs to OpenAI", "moonshot=URL"),
    "Google's at Anthropic": Refused("/v1/messages", {"x-goog-api-key": "x"}, "belongs to Google", "anthropic=URL"),
    "Google's at OpenAI": Refused("/v1/chat/completions?key=AIzax", {}, "(AIza…) belongs to Google", "openai=URL"),
    "Google's token at OpenAI": Refused("/v1/responses", bearer("ya29.x"), "(ya29.…) belongs to Google", "openai=URL"),
    "Copilot": Refused("/chat/completions", bearer("tid=x;exp=1"), "(tid=…) belongs to GitHub", "openai=URL"),
    "Groq": Refused("/openai/v1/chat/completions", bearer("gsk_x"), "to Groq", "openai=https://api.groq.com/openai"),
    # providers without a default
    "/foundry": Refused("/foundry/v1/messages", {"x-api-key": "k"}, "no default upstream", "foundry=URL"),
    "/mantle": Refused("/mantle/v1/messages", bearer("ABSKx"), "no default upstream", "mantle=URL"),
    "/anthropic-aws": Refused("/anthropic-aws/v1/messages", {}, "no default upstream", "anthropic-aws=URL"),
    "/anthropic-google": Refused("/anthropic-google/v1/messages", {}, "no default upstream", "anthropic-google=URL"),
}


class Client(NamedTuple):
    proxy: str
    provider: Upstream

    def ask(self, method: str, path: str, body: bytes, headers: dict[str, str]) -> tuple[int, str]:
        connection = http.client.HTTPConnection(urlsplit(self.proxy).netloc, timeout=60)
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        found = answer.status, answer.read().decode(errors="replace")
        connection.close()
        return found


@contextmanager
def serving(settings: Settings, provider: Upstream) -> Iterator[Client]:
    with BackgroundServer(settings, MemoryStore()) as proxy:
        yield Client(proxy.url, provider)


def without_upstreams(**environment: str) -> Settings:
    return load_settings({"port": 0, "budget_ms": 60_000.0}, environment)


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Upstream]:
    """The mock provider under the name of every host, behind an HTTPS proxy: no other host can be reached."""
    authority = Authority(tmp_path_factory.mktemp("authority"))

    with Upstream(lambda _: Says("ok")) as provider:
        address = urlsplit(provider.url)

        def forward(peer: Peer) -> None:
            with socket.create_connection((address.hostname or "", address.port or 0)) as there:
                pump(peer.sock, there)

        names = sorted({each.host for each in SENT.values()})
        with (
            Server(authority.secured(forward, *names)) as secure,
            Server(http_proxy(secure)) as hop,
            pytest.MonkeyPatch.context() as patch,
        ):
            for name in ("no_proxy", "https_proxy", "all_proxy", "http_proxy"):
                patch.delenv(name, raising=False)
                patch.delenv(name.upper(), raising=False)
            patch.setenv("SSL_CERT_FILE", str(authority.file))
            patch.setenv("HTTPS_PROXY", f"http://{hop.host.decode()}")
            yield provider


@pytest.fixture(scope="module")
def client(hosts: Upstream) -> Iterator[Client]:
    with serving(without_upstreams(AWS_REGION="eu-west-1"), hosts) as found:
        yield found


def body_in(format: str) -> bytes:
    body: Any = build(WHOLE, format or "anthropic", {})
    return json.dumps({**body, "anthropic_version": "bedrock-2023-05-31"} if format == "anthropic" else body).encode()


@pytest.mark.parametrize("sent", SENT.values(), ids=SENT)
def test_a_request_is_sent_to_the_host_that_its_client_would_use(client: Client, sent: Sent) -> None:
    body = body_in(sent.format)
    count = len(client.provider.seen)
    client.ask(sent.method, sent.path, b"" if sent.method in ("GET", "HEAD") else body, sent.headers)
    (seen,) = client.provider.seen[count:]
    assert (seen.header("host"), seen.target) == (sent.host, sent.target or sent.path)
    assert {name: seen.header(name) for name in sent.headers} == sent.headers
    if sent.format:
        assert len(seen.body) < len(body)
    elif seen.body:
        assert seen.body == body


@pytest.mark.parametrize("refused", REFUSED.values(), ids=REFUSED)
def test_a_request_of_another_provider_is_refused_with_the_option_to_set(client: Client, refused: Refused) -> None:
    count = len(client.provider.seen)
    status, text = client.ask("POST", refused.path, body_in(""), refused.headers)
    message = json.loads(text)["error"]["message"]
    assert status == 400
    assert refused.words in message
    assert f"--upstream {refused.option}" in message
    assert client.provider.seen[count:] == []


WITH_URL = {name: each for name, each in REFUSED.items() if "=http" in each.option and each.assigned}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("refused", WITH_URL.values(), ids=WITH_URL)
def test_the_option_leads_to_the_path_that_the_service_serves(client: Client, refused: Refused) -> None:
    _, text = client.ask("POST", refused.path, body_in(""), refused.headers)
    name, _, url = json.loads(text)["error"]["message"].rpartition("--upstream ")[2].partition("=")
    with Upstream(lambda _: Says("ok")) as provider:
        there = f"{name}={provider.url}{urlsplit(url).path}"
        with serving(load_settings({"port": 0, "budget_ms": 60_000.0, "upstream": [there]}), provider) as found:
            found.ask("POST", refused.path, body_in(""), refused.headers)
        (seen,) = provider.seen
    # Clients of OpenRouter may have `/api` in their base URL or not.
    assert seen.target.removeprefix("/api") == refused.path.removeprefix("/api")


@pytest.fixture(scope="module")
def gateway() -> Iterator[Client]:
    with Upstream(lambda _: Says("ok")) as provider:
        upstreams = [f"{name}={provider.url}" for name in PROVIDERS]
        with serving(load_settings({"port": 0, "budget_ms": 60_000.0, "upstream": upstreams}), provider) as found:
            yield found


@pytest.mark.parametrize("refused", REFUSED.values(), ids=REFUSED)
def test_an_upstream_that_is_set_gets_every_request_of_its_provider(gateway: Client, refused: Refused) -> None:
    count = len(gateway.provider.seen)
    status, text = gateway.ask("POST", refused.path, body_in(""), refused.headers)
    assert len(gateway.provider.seen) - count == refused.assigned
    assert refused.assigned or (status == 400 and "--upstream" in text)


@pytest.mark.parametrize(
    ("environment", "host"),
    [
        ({"AWS_DEFAULT_REGION": "us-west-2"}, "us-west-2"),
        ({"AWS_REGION": "eu-west-1", "AWS_DEFAULT_REGION": "us-west-2"}, "eu-west-1"),
        ({"AWS_REGION": "x.example/"}, ""),
        ({}, ""),
    ],
    ids=str,
)
def test_the_region_of_bedrock_comes_from_the_environment(environment: dict[str, str], host: str) -> None:
    settings = without_upstreams(**environment)
    assert settings.regions == ({"bedrock": host} if host else {})


def test_bedrock_without_a_region_is_refused_unless_the_path_has_one(hosts: Upstream) -> None:
    with serving(without_upstreams(), hosts) as client:
        count = len(hosts.seen)
        status, text = client.ask("POST", f"{SONNET}/invoke", body_in("anthropic"), bearer("ABSKx"))
        assert status == 400
        assert "Set AWS_REGION" in text
        assert "--upstream bedrock=https://bedrock-runtime.REGION.amazonaws.com" in text
        assert hosts.seen[count:] == []
        client.ask("POST", f"{ARN}/invoke", body_in("anthropic"), bearer("ABSKx"))
        assert [each.header("host") for each in hosts.seen[count:]] == [SYDNEY]


def test_the_log_has_the_reason_of_each_request_that_is_not_rewritten(hosts: Upstream, tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    settings = load_settings({"port": 0, "json_log": str(log)}, {"AWS_REGION": "eu-west-1"})
    with BackgroundServer(settings, MemoryStore()) as proxy:
        client = Client(proxy.url, hosts)
        client.ask("POST", f"{SONNET}/converse", b"{}", bearer("ABSKx"))
        client.ask("POST", f"{ARN}/invoke", b'{"inputText":"x"}', bearer("ABSKx"))
        client.ask("POST", "/v1/chat/completions", b"{}", bearer("sk-ant-x"))
        line = proxy.stop().line()
    rows = [json.loads(line) for line in log.read_text().splitlines()]
    assert [(row["reason"].partition(":")[0], row["kind"], row["status"] == 400) for row in rows] == [
        ("Converse", "other", False),
        ("the body is not in Anthropic's format", "other", False),
        (
            "the credential (sk-ant-…) belongs to Anthropic, and api.openai.com would get it. Set the upstream",
            "model",
            True,
        ),
    ]
    assert line == "1 request, no cost: all responses were errors (400)"
