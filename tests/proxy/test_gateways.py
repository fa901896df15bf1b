"""Other base URLs than the providers' own: what stands before the path is the upstream's, and the end of it tells."""

from __future__ import annotations

import http.client
import json
from urllib.parse import urlsplit

import pytest

import ibidem
from ibidem.proxy.edge.server import BackgroundServer
from ibidem.proxy.settings import load_settings
from ibidem.testing import Says, Upstream, conv

FILE = "\n".join(f"def function_{number}(argument): return argument * {number}" for number in range(120))
A, CHAT, RESPONSES, G = "anthropic", "openai-chat", "openai-responses", "gemini"

GATEWAYS = {
    "OpenRouter": ("openai", "/api", "/v1/chat/completions", "/api/v1/chat/completions", CHAT),
    "OpenRouter for Anthropic's SDK": ("anthropic", "/api", "/v1/messages", "/api/v1/messages", A),
    "LiteLLM": ("openai", "", "/chat/completions", "/chat/completions", CHAT),
    "LiteLLM for Anthropic's SDK": ("anthropic", "", "/v1/messages?beta=true", "/v1/messages?beta=true", A),
    "LiteLLM for Google's SDK": (
        "gemini",
        "",
        "/v1beta/models/g:generateContent",
        "/v1beta/models/g:generateContent",
        G,
    ),
    "Azure OpenAI": (
        "openai",
        "/openai",
        "/openai/deployments/d/chat/completions?api-version=1",
        "/openai/deployments/d/chat/completions?api-version=1",
        CHAT,
    ),
    "Azure OpenAI, v1": ("openai", "/openai", "/openai/v1/responses", "/openai/v1/responses", RESPONSES),
    "Azure Foundry": ("anthropic", "/anthropic", "/anthropic/v1/messages", "/anthropic/v1/messages", A),
    "Cloudflare": (
        "anthropic",
        "/v1/account/gateway/anthropic",
        "/v1/messages",
        "/v1/account/gateway/anthropic/v1/messages",
        A,
    ),
    "Cloudflare for OpenAI's SDK": (
        "openai",
        "/v1/account/gateway/openai",
        "/openai/chat/completions",
        "/v1/account/gateway/openai/chat/completions",
        CHAT,
    ),
    "Groq": ("openai", "/openai", "/v1/chat/completions", "/openai/v1/chat/completions", CHAT),
    "Google's for OpenAI's SDK": (
        "gemini",
        "",
        "/v1beta/openai/chat/completions",
        "/v1beta/openai/chat/completions",
        CHAT,
    ),
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("provider", "base", "path", "expected", "format"), GATEWAYS.values(), ids=GATEWAYS)
def test_behind_a_gateway_requests_are_rewritten_too(
    provider: str, base: str, path: str, expected: str, format: str
) -> None:
    body = json.dumps(conv("u:Look.", "a>1", f"r1:{FILE}", "a>2", f"r2:{FILE}", "a>3", f"r3:{FILE}", format=format))
    with Upstream(lambda _: Says("ok")) as gateway:
        told = load_settings({"upstream": [f"{provider}={gateway.url}{base}"], "port": 0, "store": "memory:"})
        with BackgroundServer(told) as proxy:
            connection = http.client.HTTPConnection(urlsplit(proxy.url).netloc, timeout=60)
            connection.request("POST", path, body, {"authorization": "Bearer x"})
            answer = connection.getresponse()
            assert answer.status == 200, answer.read()
            connection.close()
        (seen,) = gateway.seen
    assert seen.target == expected
    assert seen.header("authorization") == "Bearer x"
    assert seen.text.count(b"def function_77") == 1
    assert json.loads(ibidem.expand(seen.text, format=format)) == json.loads(body)
