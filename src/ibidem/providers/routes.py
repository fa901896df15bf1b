"""Where a request goes, and whether it is one that can be rewritten: read off its path and its headers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import NamedTuple
from urllib.parse import unquote

from .addresses import AWS_REGION, PROVIDERS
from .headers import known

HeaderPairs = Iterable[tuple[str, str]]
NO_REGIONS: Mapping[str, str] = MappingProxyType({})


class Route(NamedTuple):
    provider: str
    """Name of the upstream. Empty if no prefix, path, header or credential assigns the request to a provider."""
    target: str
    """Path and query, as the upstream gets them."""
    format: str | None = None
    """The wire format of its body; None for what passes untouched."""
    counts: bool = False
    """It only asks how many tokens there are: nothing is answered, and nothing is billed."""
    model: str = ""
    """Who is asked, where the path says so."""
    region: str = ""
    """Region of the host, if the path or the environment names it."""
    body_key: str = ""
    """JSON key that a body in this format has. Without it in the body the format is not known."""
    note: str = ""
    """Reason why a request to a model is forwarded unchanged."""


class _Rule(NamedTuple):
    path: re.Pattern[str]
    provider: str
    format: str
    counts: bool = False
    version: str = ""
    """What its path begins with, though some SDKs leave it out."""
    body_key: str = ""


MAX_PATHS = 256
"""Paths whose routes are remembered, without what may stand behind them: most clients have one."""
MAX_MODEL_LENGTH = 200
"""Characters of a name in a path."""

_PROJECT = "projects/[^/]+/locations/[^/]+/"
_VERTEX = rf"(?:/.*)?/(?:{_PROJECT})?publishers/anthropic/models"
_GOOGLE = rf"(?:/.*)?/(?:{_PROJECT})?publishers/google/models/(?P<model>[^/]+)"
_VERSION = r"(?:-v\d+(?:(?::|%3A)\d+)?)?"
_BEDROCK = rf"(?:/.*)?/model/(?P<model>(?:[a-z-]+\.)?anthropic\.[^/]+?){_VERSION}"
_ARN = rf"(?:/.*)?/model/arn(?i::|%3A)[^/]*?(?i:/|%2F)(?P<model>[^/%]+?){_VERSION}"
_INVOKE = "/(?:invoke|invoke-with-response-stream)"
_GENERATE = ":(?:generateContent|streamGenerateContent)"

ROUTES = (
    _Rule(re.compile(r"(?:/v1)?/messages"), "anthropic", "anthropic", version="/v1"),
    _Rule(re.compile(r"(?:/v1)?/messages/count_tokens"), "anthropic", "anthropic", True, version="/v1"),
    _Rule(re.compile(r"/v1(?:beta|alpha)/.*/chat/completions|/v1beta/chat/completions"), "gemini", "openai-chat"),
    _Rule(re.compile(rf"(?:/.*)?/{_PROJECT}endpoints/[^/]+/chat/completions"), "vertex", "openai-chat"),
    _Rule(re.compile(r"(?:/.*)?/chat/completions"), "openai", "openai-chat"),
    _Rule(re.compile(r"(?:/.*)?/responses"), "openai", "openai-responses"),
    _Rule(re.compile(r"(?:/.*)?/responses/input_tokens"), "openai", "openai-responses", True),
    _Rule(re.compile(rf"{_GOOGLE}{_GENERATE}"), "vertex", "gemini"),
    _Rule(re.compile(rf"{_GOOGLE}:countTokens"), "vertex", "gemini", True),
    _Rule(re.compile(rf"/.*/models/(?P<model>[^/]+){_GENERATE}"), "gemini", "gemini"),
    _Rule(re.compile(r"/.*/models/(?P<model>[^/]+):countTokens"), "gemini", "gemini", True),
    _Rule(re.compile(rf"{_VERTEX}/count-tokens:rawPredict"), "vertex", "anthropic", True),
    _Rule(re.compile(rf"{_VERTEX}/(?P<model>[^/:]+):(?:rawPredict|streamRawPredict)"), "vertex", "anthropic"),
    _Rule(re.compile(rf"{_BEDROCK}{_INVOKE}"), "bedrock", "anthropic"),
    _Rule(re.compile(rf"{_ARN}{_INVOKE}"), "bedrock", "anthropic", body_key="anthropic_version"),
)
"""Requests that carry a conversation, the first that fits. They are all sent by POST."""

PREFIXES = {f"/{name}/": name for name in PROVIDERS if name != "chatgpt"}
"""Provider by the first segment of a path, for clients whose other paths do not tell. ChatGPT is told by a header."""

TELLING_HEADERS = (
    ("anthropic-version", "anthropic"),
    ("anthropic-beta", "anthropic"),
    ("x-goog-api-key", "gemini"),
    ("x-goog-api-client", "gemini"),
    ("openai-organization", "openai"),
    ("openai-beta", "openai"),
    ("chatgpt-account-id", "openai"),
    ("x-api-key", "anthropic"),
)
"""Headers that only one provider's clients send, the surest first."""

TELLING_KEYS = re.compile(r"(?i:Bearer +)(?:(?P<anthropic>sk-ant-)|(?P<openai>sk-(?:proj|svcacct|admin)-))")
"""Authorizations with keys that only one provider issues."""

SIGNATURES = ("x-amz-date", "content-sha256", "content-md5", "digest", "signature")
"""What headers end with of requests that are signed, or whose body has a checksum: another body would not fit."""

SIGNING = re.compile(r"AWS4|Signature |\S*HMAC", re.IGNORECASE)
"""How authorizations begin that hold for one body alone: Amazon's, Oracle's, those of other clouds."""

CLOUD_PROVIDERS = (
    (re.compile(r".*/publishers/|/v1/projects/|/v1beta1/"), "vertex"),
    (re.compile(r"/model/[^/]+/|/inference-profiles\b"), "bedrock"),
)
"""Paths that say more than a header: who serves Anthropic's models sees Anthropic's headers."""

OPENAI_PATHS = (
    "(?:chat/completions|completions|responses|conversations|models|embeddings|files|uploads|images|audio|videos"
    "|moderations|batches|fine_tuning|vector_stores|assistants|threads|containers|evals|realtime|organization)(?:/|$)"
)
"""Paths of OpenAI's API behind `/v1/`. Gateways serve them behind other paths."""

PATH_PROVIDERS = (
    (re.compile(r"/v1beta/|/v1alpha/|/(?:upload|download)/v1beta/"), "gemini"),
    (re.compile(r"/v1/messages(?:/|$)|/v1/complete$|/v1/organizations/"), "anthropic"),
    (re.compile(rf"/api/v1/|(?:/.*)?/{OPENAI_PATHS}"), "openai"),
)
"""Paths of one provider's API; the first that fits."""

QUERY_PROVIDERS = ((re.compile(r"(?:.*&)?key=", re.DOTALL), "gemini"),)
"""Queries of one provider's clients: only Google's put their key there."""

REGIONS = {
    "vertex": re.compile(r".*/locations/(?P<region>[a-z]+(?:-[a-z]+\d{1,2})?)/"),
    "bedrock": re.compile(rf".*/model/arn(?i::|%3A)[^/]*?bedrock(?i::|%3A)(?P<region>{AWS_REGION})(?i::|%3A)"),
}
"""Region in a path, by provider."""

UNREAD_FORMATS = (
    (re.compile(r"(?:/.*)?/model/.+/converse(?:-stream)?"), "Converse: ibidem does not rewrite this format"),
)
"""Paths that call a model in a format that is forwarded unchanged, and what the log says."""


class _Account(NamedTuple):
    """Another upstream for those who log in in another way, which their clients tell by a header."""

    header: str
    provider: str
    without: str
    """What the paths of that upstream do not begin with."""


ACCOUNTS = {"openai": _Account("chatgpt-account-id", "chatgpt", "/v1")}
"""Codex sends it for those who log in with ChatGPT."""


def route(method: str, target: str, headers: HeaderPairs, regions: Mapping[str, str] = NO_REGIONS) -> Route:
    """Return the route of a request. `regions` has the region by provider for paths that do not name one."""
    path, mark, query = target.partition("?")
    named, path = _named(path)
    found = _conversation(path, named) if method == "POST" else None
    if found is not None and mark:
        found = found._replace(target=found.target + mark + query)
    if found is None:
        found = Route(named or _provider(path, query, headers), path + mark + query, note=_note(method, path))
    elif is_signed(headers, query):
        found = found._replace(format=None, counts=False)
    if found.provider in REGIONS:
        place = REGIONS[found.provider].match(path)
        found = found._replace(region=place["region"] if place else regions.get(found.provider, ""))
    account = ACCOUNTS.get(found.provider)
    if account is not None and account.header in known(headers).firsts:
        return found._replace(provider=account.provider, target=found.target.removeprefix(account.without))
    return found


def _note(method: str, path: str) -> str:
    return next((note for form, note in UNREAD_FORMATS if method == "POST" and form.fullmatch(path)), "")


def _named(path: str) -> tuple[str | None, str]:
    """The provider that stands before a path, and what is left of that."""
    first, _, rest = path[1:].partition("/")
    found = PREFIXES.get(f"/{first}/") if path.startswith("/") else None
    return (None, path) if found is None else (found, f"/{rest}")


@lru_cache(MAX_PATHS)
def _conversation(path: str, named: str | None) -> Route | None:
    for rule in ROUTES:
        if match := rule.path.fullmatch(path):
            versioned = path if path.startswith(rule.version) else rule.version + path
            model = _model(match)
            return Route(named or rule.provider, versioned, rule.format, rule.counts, model, body_key=rule.body_key)
    return None


def is_signed(headers: HeaderPairs, query: str) -> bool:
    """Whether it is void once a byte of it is changed, as what Amazon's credentials were used for."""
    if "X-Amz-Signature=" in query:
        return True
    found = known(headers)
    for low, (_, value) in zip(found.lows, found, strict=True):
        if low.endswith(SIGNATURES) or (low == "authorization" and SIGNING.match(value)):
            return True
    return False


def at_end(path: str) -> Route | None:
    """Of what is posted there, where only the end of a path counts, whatever base URL stands before it.

    None for what passes untouched. Amazon's own clients sign what they send.
    """
    for rule in (each for each in ROUTES if each.provider != "bedrock"):
        match = re.fullmatch(f".*(?:{rule.path.pattern})", f"/v1{path}")
        if match is not None and "/threads/" not in path:
            return Route(rule.provider, path, rule.format, rule.counts, _model(match))
    return None


def _model(match: re.Match[str]) -> str:
    return unquote(match.groupdict().get("model") or "")[:MAX_MODEL_LENGTH]


def carries_conversations(target: str) -> bool:
    """Whether requests with this path do, however they are sent."""
    return route("POST", target, ()).format is not None


def asks_a_model(target: str) -> bool:
    """Whether what is posted there gets an answer of a model, and not only a size."""
    found = route("POST", target, ())
    return found.format is not None and not found.counts


def _provider(path: str, query: str, headers: HeaderPairs) -> str:
    """Return the provider of a request without a prefix, or nothing if none is certain."""
    for start, provider in CLOUD_PROVIDERS:
        if start.match(path):
            return provider
    present = known(headers).firsts
    for sign, provider in TELLING_HEADERS:
        if sign in present:
            return provider
    if key := TELLING_KEYS.match(present.get("authorization", "")):
        return key.lastgroup or ""
    for text, table in ((query, QUERY_PROVIDERS), (path, PATH_PROVIDERS)):
        for start, provider in table:
            if start.match(text):
                return provider
    return ""


SESSION_HEADERS = ("x-claude-code-session-id", "session_id", "session-id", "conversation_id", "x-session-id")
"""By which clients name a conversation."""


def client_session(headers: HeaderPairs) -> str:
    """What the client calls its conversation, if it says."""
    found = known(headers).lasts
    return next((found[name] for name in SESSION_HEADERS if found.get(name)), "")
