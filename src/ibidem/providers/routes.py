"""Provider and wire format of a request, from its path and its headers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import NamedTuple
from urllib.parse import unquote

from .addresses import AWS_REGION, PROVIDERS
from .headers import index_headers

HeaderPairs = Iterable[tuple[str, str]]
NO_REGIONS: Mapping[str, str] = MappingProxyType({})


class Route(NamedTuple):
    """Upstream of a request, and how to read its body."""

    provider: str
    """Name of the upstream. Empty if no prefix, path, header or credential assigns the request to a provider."""
    target: str
    """Path and query, as the upstream gets them."""
    format: str | None = None
    """Wire format of the body; None if the request is forwarded unchanged."""
    counts: bool = False
    """True if the request only counts tokens. Such a request is not billed."""
    model: str = ""
    """Model, if the path names it."""
    region: str = ""
    """Region of the host, if the path or the environment names it."""
    body_key: str = ""
    """JSON key that a body in this format has. Without it in the body the format is not known."""
    note: str = ""
    """Reason why a request to a model is forwarded unchanged."""


class _RouteRule(NamedTuple):
    path: re.Pattern[str]
    provider: str
    format: str
    counts: bool = False
    version: str = ""
    """Start of the path. Some SDKs omit it, so it is added."""
    body_key: str = ""


MAX_PATHS = 256
"""Paths (without query) whose routes are cached. Most clients use one."""
MAX_MODEL_LENGTH = 200
"""Maximum characters of a model name in a path."""

_PROJECT = "projects/[^/]+/locations/[^/]+/"
_VERTEX = rf"(?:/.*)?/(?:{_PROJECT})?publishers/anthropic/models"
_GOOGLE = rf"(?:/.*)?/(?:{_PROJECT})?publishers/google/models/(?P<model>[^/]+)"
_VERSION = r"(?:-v\d+(?:(?::|%3A)\d+)?)?"
_BEDROCK = rf"(?:/.*)?/model/(?P<model>(?:[a-z-]+\.)?anthropic\.[^/]+?){_VERSION}"
_ARN = rf"(?:/.*)?/model/arn(?i::|%3A)[^/]*?(?i:/|%2F)(?P<model>[^/%]+?){_VERSION}"
_INVOKE = "/(?:invoke|invoke-with-response-stream)"
_GENERATE = ":(?:generateContent|streamGenerateContent)"

ROUTES = (
    _RouteRule(re.compile(r"(?:/v1)?/messages"), "anthropic", "anthropic", version="/v1"),
    _RouteRule(re.compile(r"(?:/v1)?/messages/count_tokens"), "anthropic", "anthropic", True, version="/v1"),
    _RouteRule(re.compile(r"/v1(?:beta|alpha)/.*/chat/completions|/v1beta/chat/completions"), "gemini", "openai-chat"),
    _RouteRule(re.compile(rf"(?:/.*)?/{_PROJECT}endpoints/[^/]+/chat/completions"), "vertex", "openai-chat"),
    _RouteRule(re.compile(r"(?:/.*)?/chat/completions"), "openai", "openai-chat"),
    _RouteRule(re.compile(r"(?:/.*)?/responses"), "openai", "openai-responses"),
    _RouteRule(re.compile(r"(?:/.*)?/responses/input_tokens"), "openai", "openai-responses", True),
    _RouteRule(re.compile(rf"{_GOOGLE}{_GENERATE}"), "vertex", "gemini"),
    _RouteRule(re.compile(rf"{_GOOGLE}:countTokens"), "vertex", "gemini", True),
    _RouteRule(re.compile(rf"/.*/models/(?P<model>[^/]+){_GENERATE}"), "gemini", "gemini"),
    _RouteRule(re.compile(r"/.*/models/(?P<model>[^/]+):countTokens"), "gemini", "gemini", True),
    _RouteRule(re.compile(rf"{_VERTEX}/count-tokens:rawPredict"), "vertex", "anthropic", True),
    _RouteRule(re.compile(rf"{_VERTEX}/(?P<model>[^/:]+):(?:rawPredict|streamRawPredict)"), "vertex", "anthropic"),
    _RouteRule(re.compile(rf"{_BEDROCK}{_INVOKE}"), "bedrock", "anthropic"),
    _RouteRule(re.compile(rf"{_ARN}{_INVOKE}"), "bedrock", "anthropic", body_key="anthropic_version"),
)
"""Requests that carry a conversation, always with POST. The first rule that matches counts."""

PREFIXES = {f"/{name}/": name for name in PROVIDERS if name != "chatgpt"}
"""Provider by the first segment of a path, for clients whose paths are ambiguous. ChatGPT has a header instead."""

PROVIDER_HEADERS = (
    ("anthropic-version", "anthropic"),
    ("anthropic-beta", "anthropic"),
    ("x-goog-api-key", "gemini"),
    ("x-goog-api-client", "gemini"),
    ("openai-organization", "openai"),
    ("openai-beta", "openai"),
    ("chatgpt-account-id", "openai"),
    ("x-api-key", "anthropic"),
)
"""Headers that only one provider's clients send, the most reliable first."""

PROVIDER_KEYS = re.compile(r"(?i:Bearer +)(?:(?P<anthropic>sk-ant-)|(?P<openai>sk-(?:proj|svcacct|admin)-))")
"""`Authorization` values with keys that only one provider issues."""

SIGNATURE_SUFFIXES = ("x-amz-date", "content-sha256", "content-md5", "digest", "signature")
"""Ends of header names that sign a request or contain a checksum of its body. A changed body would not match."""

SIGNED_AUTHORIZATION = re.compile(r"AWS4|Signature |\S*HMAC", re.IGNORECASE)
"""Start of `Authorization` values that are valid for one body only: of Amazon, Oracle and other clouds."""

CLOUD_PROVIDERS = (
    (re.compile(r".*/publishers/|/v1/projects/|/v1beta1/"), "vertex"),
    (re.compile(r"/model/[^/]+/|/inference-profiles\b"), "bedrock"),
)
"""Paths that are more reliable than headers: clouds that serve Anthropic's models get Anthropic's headers too."""

OPENAI_PATHS = (
    "(?:chat/completions|completions|responses|conversations|models|embeddings|files|uploads|images|audio|videos"
    "|moderations|batches|fine_tuning|vector_stores|assistants|threads|containers|evals|realtime|organization)(?:/|$)"
)
"""Paths of OpenAI's API after `/v1/`. Gateways serve them after other prefixes."""

PATH_PROVIDERS = (
    (re.compile(r"/v1beta/|/v1alpha/|/(?:upload|download)/v1beta/"), "gemini"),
    (re.compile(r"/v1/messages(?:/|$)|/v1/complete$|/v1/organizations/"), "anthropic"),
    (re.compile(rf"/api/v1/|(?:/.*)?/{OPENAI_PATHS}"), "openai"),
)
"""Paths of one provider's API. The first that matches counts."""

QUERY_PROVIDERS = ((re.compile(r"(?:.*&)?key=", re.DOTALL), "gemini"),)
"""Queries of one provider's clients. Only Google's clients put their key there."""

REGIONS = {
    "vertex": re.compile(r".*/locations/(?P<region>[a-z]+(?:-[a-z]+\d{1,2})?)/"),
    "bedrock": re.compile(rf".*/model/arn(?i::|%3A)[^/]*?bedrock(?i::|%3A)(?P<region>{AWS_REGION})(?i::|%3A)"),
}
"""Region in a path, by provider."""

UNREAD_FORMATS = (
    (re.compile(r"(?:/.*)?/model/.+/converse(?:-stream)?"), "Converse: ibidem does not rewrite this format"),
)
"""Paths that call a model in a format that is forwarded unchanged, with the reason for the log."""


class _LoginUpstream(NamedTuple):
    """Upstream for another kind of login, which the client indicates by a header."""

    header: str
    provider: str
    removed_prefix: str
    """Start of the path that this upstream does not have."""


LOGIN_UPSTREAMS = {"openai": _LoginUpstream("chatgpt-account-id", "chatgpt", "/v1")}
"""Codex sends this header for users who log in with ChatGPT."""


def find_route(method: str, target: str, headers: HeaderPairs, regions: Mapping[str, str] = NO_REGIONS) -> Route:
    """Return the route of a request. `regions` has the region by provider for paths that do not name one."""
    path, separator, query = target.partition("?")
    provider, path = _split_provider_prefix(path)
    result = _match_conversation(path, provider) if method == "POST" else None
    if result is not None and separator:
        result = result._replace(target=result.target + separator + query)
    if result is None:
        result = Route(
            provider or _identify_provider(path, query, headers),
            path + separator + query,
            note=_unread_format_note(method, path),
        )
    elif is_signed(headers, query):
        result = result._replace(format=None, counts=False)
    if result.provider in REGIONS:
        region_match = REGIONS[result.provider].match(path)
        result = result._replace(region=region_match["region"] if region_match else regions.get(result.provider, ""))
    login = LOGIN_UPSTREAMS.get(result.provider)
    if login is not None and login.header in index_headers(headers).firsts:
        return result._replace(provider=login.provider, target=result.target.removeprefix(login.removed_prefix))
    return result


def _unread_format_note(method: str, path: str) -> str:
    return next((note for form, note in UNREAD_FORMATS if method == "POST" and form.fullmatch(path)), "")


def _split_provider_prefix(path: str) -> tuple[str | None, str]:
    """Split a path into the provider in its first segment, or None, and the rest."""
    first, _, rest = path[1:].partition("/")
    provider = PREFIXES.get(f"/{first}/") if path.startswith("/") else None
    return (None, path) if provider is None else (provider, f"/{rest}")


@lru_cache(MAX_PATHS)
def _match_conversation(path: str, provider: str | None) -> Route | None:
    for rule in ROUTES:
        if match := rule.path.fullmatch(path):
            versioned = path if path.startswith(rule.version) else rule.version + path
            model = _model_in_path(match)
            return Route(provider or rule.provider, versioned, rule.format, rule.counts, model, body_key=rule.body_key)
    return None


def is_signed(headers: HeaderPairs, query: str) -> bool:
    """Return whether a request is signed, so that a changed byte makes it invalid. Amazon's clients do that."""
    if "X-Amz-Signature=" in query:
        return True
    indexed = index_headers(headers)
    for low, (_, value) in zip(indexed.lows, indexed, strict=True):
        if low.endswith(SIGNATURE_SUFFIXES) or (low == "authorization" and SIGNED_AUTHORIZATION.match(value)):
            return True
    return False


def route_by_suffix(path: str) -> Route | None:
    """Return the route of a POST by the end of its path, after any base URL. None if it is forwarded unchanged.

    Bedrock is excluded, because Amazon's own clients sign their requests.
    """
    for rule in (each for each in ROUTES if each.provider != "bedrock"):
        match = re.fullmatch(f".*(?:{rule.path.pattern})", f"/v1{path}")
        if match is not None and "/threads/" not in path:
            return Route(rule.provider, path, rule.format, rule.counts, _model_in_path(match))
    return None


def _model_in_path(match: re.Match[str]) -> str:
    return unquote(match.groupdict().get("model") or "")[:MAX_MODEL_LENGTH]


def carries_conversations(target: str) -> bool:
    """Return whether requests with this path contain a conversation. The method is ignored."""
    return find_route("POST", target, ()).format is not None


def calls_model(target: str) -> bool:
    """Return whether a POST to this path calls a model, instead of only counting tokens."""
    match = find_route("POST", target, ())
    return match.format is not None and not match.counts


def _identify_provider(path: str, query: str, headers: HeaderPairs) -> str:
    """Return the provider of a request without a prefix, or an empty string if it is unclear."""
    for start, provider in CLOUD_PROVIDERS:
        if start.match(path):
            return provider
    present = index_headers(headers).firsts
    for sign, provider in PROVIDER_HEADERS:
        if sign in present:
            return provider
    if key := PROVIDER_KEYS.match(present.get("authorization", "")):
        return key.lastgroup or ""
    for text, table in ((query, QUERY_PROVIDERS), (path, PATH_PROVIDERS)):
        for start, provider in table:
            if start.match(text):
                return provider
    return ""


SESSION_HEADERS = ("x-claude-code-session-id", "session_id", "session-id", "conversation_id", "x-session-id")
"""Headers in which clients name their session."""


def client_session_name(headers: HeaderPairs) -> str:
    """Return the client's name for its session, or an empty string."""
    by_name = index_headers(headers).lasts
    return next((by_name[name] for name in SESSION_HEADERS if by_name.get(name)), "")
