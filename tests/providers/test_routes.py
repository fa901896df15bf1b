"""Where requests go, and which of them are rewritten."""

from __future__ import annotations

import pytest

from ibidem.providers.routes import Route, carries_conversations, client_session_name, find_route

A, OAI, G = "anthropic", "openai", "gemini"
CHAT, RESPONSES = "openai-chat", "openai-responses"
MODEL = "/v1beta/models/gemini-3-pro"
V, B = "vertex", "bedrock"
CLAUDE = "/v1/projects/p/locations/us-east5/publishers/anthropic/models/claude-x@1"
GOOGLES = "/v1/projects/p/locations/eu/publishers/google/models/gemini-3-pro:generateContent"
ARN = "arn%3Aaws%3Abedrock%3Aap-southeast-2%3A1234%3A{}"
CONVERSE = "Converse: ibidem does not rewrite this format"
SONNET = "claude-sonnet-4-5-20250929"

CONVERSATIONS = [
    ("/v1/messages", A, A),
    ("/v1/messages?beta=true", A, A),
    ("/v1/chat/completions", OAI, CHAT),
    ("/chat/completions", OAI, CHAT),
    ("/api/v1/chat/completions", OAI, CHAT),
    ("/openai/deployments/gpt/chat/completions?api-version=1", OAI, CHAT),
    ("/v1/responses", OAI, RESPONSES),
    ("/responses", OAI, RESPONSES),
    ("/backend-api/codex/responses", OAI, RESPONSES),
    (f"{MODEL}:generateContent", G, G),
    (f"{MODEL}:streamGenerateContent?alt=sse", G, G),
    ("/v1/models/gemini-3-pro:generateContent?key=k", G, G),
    ("/v1/projects/p/locations/l/publishers/google/models/gemini-3-pro:streamGenerateContent", V, G),
    ("/v1beta1/publishers/google/models/gemini-3-pro:generateContent?key=k", V, G),
    ("/v1/projects/p/locations/l/endpoints/openapi/chat/completions", V, CHAT),
    ("/v1beta/openai/chat/completions", G, CHAT),
]


def named(target: str) -> str:
    return "gemini-3-pro" if "/models/" in target else ""


@pytest.mark.parametrize(("target", "provider", "format"), CONVERSATIONS)
def test_a_conversation_is_known_by_its_path(target: str, provider: str, format: str) -> None:
    sent = target.removeprefix("/openai") if target.startswith("/openai/") else target
    region = "l" if "/locations/" in target else ""
    assert find_route("POST", target, ()) == Route(provider, sent, format, model=named(target), region=region)


@pytest.mark.parametrize(
    ("target", "provider", "format"),
    [
        ("/v1/messages/count_tokens", A, A),
        ("/v1/messages/count_tokens?beta=true", A, A),
        ("/v1/responses/input_tokens", OAI, RESPONSES),
        (f"{MODEL}:countTokens", G, G),
    ],
)
def test_who_only_asks_for_a_size_is_known(target: str, provider: str, format: str) -> None:
    assert find_route("POST", target, ()) == Route(provider, target, format, counts=True, model=named(target))


@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "DELETE", "OPTIONS", "post"])
@pytest.mark.parametrize("target", [target for target, _, _ in CONVERSATIONS])
def test_only_what_is_posted_is_rewritten(method: str, target: str) -> None:
    assert find_route(method, target, ()).format is None


PASSING = [
    ("POST", "/v1/messages/batches", (), A),
    ("POST", "/v1/messages/batches", (("anthropic-version", "2023-06-01"),), A),
    ("GET", "/v1/responses/resp_1", (), OAI),
    ("DELETE", "/v1/responses/resp_1", (), OAI),
    ("POST", "/v1/responses/compact", (), OAI),
    ("POST", "/v1/responses/resp_1/cancel", (), OAI),
    ("GET", "/v1/models", (), OAI),
    ("GET", "/v1/models", (("Authorization", "Bearer x"),), OAI),
    ("GET", "/v1/models", (("Anthropic-Version", "2023-06-01"), ("X-Api-Key", "x")), A),
    ("GET", "/v1/models", (("x-api-key", "x"),), A),
    ("GET", "/v1/models", (("X-Goog-Api-Key", "x"),), G),
    ("GET", "/v1/models?pageSize=5&key=x", (), G),
    ("GET", "/v1/models?monkey=x", (), OAI),
    ("GET", "/v1beta/models", (), G),
    ("POST", "/upload/v1beta/files?uploadType=resumable", (), G),
    ("POST", "/api/event_logging/batch", (), ""),
    ("POST", "/api/event_logging/batch", (("anthropic-beta", "x"),), A),
    ("POST", "/api/event_logging/batch", (("Authorization", "Bearer sk-ant-oat01-x"),), A),
    ("GET", "/v1/models", (("Authorization", "bearer sk-ant-oat01-x"),), A),
    ("GET", "/v2/things", (("Authorization", "Bearer sk-proj-x"),), OAI),
    ("GET", "/v2/things", (("Authorization", "Bearer sk-x"),), ""),
    ("GET", "/v2/models", (("Authorization", "Bearer sk-x"),), OAI),
    ("GET", "/v1/responses/resp_1?stream=true", (), OAI),
    ("POST", "/api/chat", (), ""),
    ("POST", "/v1internal:generateContent", (("Authorization", "Bearer ya29.x"),), ""),
    ("GET", "/api/v1/models", (), OAI),
    ("POST", "/v1/embeddings", (), OAI),
    ("POST", "/v1/messages/", (), A),
    ("GET", "/v1/messages", (), A),
    ("POST", "/V1/messages", (), ""),
    ("POST", "/v1/%6Dessages", (), ""),
    ("GET", "/", (), ""),
    ("OPTIONS", "*", (), ""),
]


@pytest.mark.parametrize(("method", "target", "headers", "provider"), PASSING)
def test_everything_else_passes(method: str, target: str, headers: tuple[tuple[str, str], ...], provider: str) -> None:
    assert find_route(method, target, headers) == Route(provider, target)


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("/anthropic/v1/messages", Route(A, "/v1/messages", A)),
        ("/anthropic/v1/chat/completions", Route(A, "/v1/chat/completions", CHAT)),
        ("/openai/v1/responses?x=1", Route(OAI, "/v1/responses?x=1", RESPONSES)),
        ("/openai/v1/messages", Route(OAI, "/v1/messages", A)),
        (f"/gemini{MODEL}:generateContent", Route(G, f"{MODEL}:generateContent", G, model="gemini-3-pro")),
        (f"/vertex{CLAUDE}:rawPredict", Route(V, f"{CLAUDE}:rawPredict", A, model="claude-x@1", region="us-east5")),
        (f"/vertex{GOOGLES}", Route(V, GOOGLES, G, model="gemini-3-pro", region="eu")),
        ("/vertex/v1/projects", Route(V, "/v1/projects")),
        ("/bedrock/guardrails", Route(B, "/guardrails")),
        ("/gemini/", Route(G, "/")),
        ("/anthropic/x/../y?z=%20", Route(A, "/x/../y?z=%20")),
        ("/anthropics/v1/files", Route(OAI, "/anthropics/v1/files")),
        ("/anthropic", Route(A, "/")),
        ("/anthropic?x=1", Route(A, "/?x=1")),
        ("/anthropic/messages?beta=true", Route(A, "/v1/messages?beta=true", A)),
        ("/foundry/v1/messages", Route("foundry", "/v1/messages", A)),
        ("/mantle/v1/messages", Route("mantle", "/v1/messages", A)),
        ("/anthropic-aws/v1/messages", Route("anthropic-aws", "/v1/messages", A)),
        ("/anthropic-google/v1/messages", Route("anthropic-google", "/v1/messages", A)),
        ("/moonshot/v1/chat/completions", Route("moonshot", "/v1/chat/completions", CHAT)),
        ("/openrouter/v1/chat/completions", Route("openrouter", "/v1/chat/completions", CHAT)),
        ("/openrouter/v1/responses", Route("openrouter", "/v1/responses", RESPONSES)),
        ("/openrouter/v1/messages", Route("openrouter", "/v1/messages", A)),
    ],
)
def test_a_name_before_the_path_decides_and_is_taken_off(target: str, expected: Route) -> None:
    headers = (("x-goog-api-key", "says otherwise"),) if expected.format else ()
    assert find_route("POST", target, headers) == expected


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ((), ""),
        ((("X-Claude-Code-Session-Id", "s1"),), "s1"),
        ((("Session_Id", "s2"),), "s2"),
        ((("session_id", ""), ("conversation_id", "s3")), "s3"),
        ((("cookie", "s4"),), ""),
    ],
)
def test_a_client_may_name_its_conversation(headers: tuple[tuple[str, str], ...], expected: str) -> None:
    assert client_session_name(headers) == expected


@pytest.mark.parametrize("target", ["/v1/responses", "/responses"])
def test_who_logged_in_with_chatgpt_has_an_upstream_of_their_own(target: str) -> None:
    assert find_route("POST", target, (("ChatGPT-Account-Id", "x"),)) == Route("chatgpt", "/responses", RESPONSES)
    assert find_route("GET", "/v1/models", (("chatgpt-account-id", "x"),)) == Route("chatgpt", "/models")
    assert find_route("POST", "/v1/messages", (("chatgpt-account-id", "x"),)).provider == A


@pytest.mark.parametrize(("target", "carries"), [("/v1/responses?x=1", True), ("/v1/realtime", False)])
def test_what_carries_conversations_is_known_by_its_path(target: str, carries: bool) -> None:
    assert carries_conversations(target) is carries


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        (f"{CLAUDE}:rawPredict", Route(V, f"{CLAUDE}:rawPredict", A, False, "claude-x@1", "us-east5")),
        (f"{CLAUDE}:streamRawPredict", Route(V, f"{CLAUDE}:streamRawPredict", A, False, "claude-x@1", "us-east5")),
        (
            "/gw" + CLAUDE[3:] + ":rawPredict",
            Route(V, f"/gw{CLAUDE[3:]}:rawPredict", A, False, "claude-x@1", "us-east5"),
        ),
        (
            CLAUDE.replace("claude-x@1", "count-tokens:rawPredict"),
            Route(V, CLAUDE.replace("claude-x@1", "count-tokens:rawPredict"), A, True, "", "us-east5"),
        ),
        (f"{CLAUDE}:predict", Route(V, f"{CLAUDE}:predict", region="us-east5")),
        (CLAUDE.replace("us-east5", "x.y") + ":predict", Route(V, CLAUDE.replace("us-east5", "x.y") + ":predict")),
        (
            f"/model/anthropic.{SONNET}-v1:0/invoke",
            Route(B, f"/model/anthropic.{SONNET}-v1:0/invoke", A, model=f"anthropic.{SONNET}"),
        ),
        (
            f"/model/eu.anthropic.{SONNET}-v1%3A0/invoke-with-response-stream",
            Route(
                B, f"/model/eu.anthropic.{SONNET}-v1%3A0/invoke-with-response-stream", A, model=f"eu.anthropic.{SONNET}"
            ),
        ),
        (
            "/model/us.anthropic.claude-x/invoke",
            Route(B, "/model/us.anthropic.claude-x/invoke", A, model="us.anthropic.claude-x"),
        ),
        ("/model/amazon.nova-pro-v1:0/invoke", Route(B, "/model/amazon.nova-pro-v1:0/invoke")),
        (
            "/model/us.anthropic.claude-x/converse-stream",
            Route(B, "/model/us.anthropic.claude-x/converse-stream", note=CONVERSE),
        ),
        (
            f"/model/{ARN.format('inference-profile')}%2Fus.anthropic.{SONNET}-v1%3A0/invoke",
            Route(
                B,
                f"/model/{ARN.format('inference-profile')}%2Fus.anthropic.{SONNET}-v1%3A0/invoke",
                A,
                model=f"us.anthropic.{SONNET}",
                region="ap-southeast-2",
                body_key="anthropic_version",
            ),
        ),
        (
            f"/model/{ARN.format('application-inference-profile')}/x7/converse",
            Route(
                B,
                f"/model/{ARN.format('application-inference-profile')}/x7/converse",
                region="ap-southeast-2",
                note=CONVERSE,
            ),
        ),
        ("/model/us.anthropic.claude-x/count-tokens", Route(B, "/model/us.anthropic.claude-x/count-tokens")),
        ("/inference-profiles?type=x", Route(B, "/inference-profiles?type=x")),
    ],
)
def test_anthropics_models_on_other_clouds_are_known_by_path_whatever_headers_say(target: str, expected: Route) -> None:
    headers = (("anthropic-version", "2023-06-01"), ("Authorization", "Bearer x"))
    assert find_route("POST", target, headers) == expected


def test_a_region_of_the_path_is_stronger_than_one_of_the_environment() -> None:
    regions = {B: "eu-west-1"}
    assert find_route("POST", "/model/x/invoke", (), regions).region == "eu-west-1"
    assert find_route("POST", f"/model/{ARN.format('prompt')}%2Fx/invoke", (), regions).region == "ap-southeast-2"
    assert find_route("POST", "/v1/publishers/google/models/x:predict", (), regions).region == ""


@pytest.mark.parametrize("target", [*(target for target, _, _ in CONVERSATIONS), f"{CLAUDE}:rawPredict"])
@pytest.mark.parametrize(
    "header",
    [("authorization", "AWS4-HMAC-SHA256 Credential=x"), ("X-Amz-Content-SHA256", "x"), ("Content-Digest", "x")],
)
def test_what_is_signed_passes_to_the_same_place(target: str, header: tuple[str, str]) -> None:
    open_, signed = find_route("POST", target, ()), find_route("POST", target, (header,))
    assert signed == open_._replace(format=None, counts=False)
