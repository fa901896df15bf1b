"""Checks of requests that would go to the default upstream of a provider.

A credential may only reach a host that its client would have sent it to. If a path, a header or a key belongs to
another provider, the request is rejected, and the message names the option to set. If the user has set an upstream, it
gets all requests of its provider: a gateway may accept any key and any path.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import NamedTuple, Self
from urllib.parse import urlsplit

from ..errors import one_line
from .addresses import PROVIDERS, REGION_VARIABLES
from .headers import HeaderList, index_headers
from .routes import MAX_PATHS, NO_REGIONS, OPENAI_PATHS, Route

MAX_SHOWN_PATH = 100
"""Maximum characters of a path in an error message."""


class _Owner(NamedTuple):
    name: str
    providers: tuple[str, ...] = ()
    """Providers whose default upstream serves this owner's paths and credentials."""
    url: str = "URL"
    """Upstream that the error message recommends."""


_AZURE = _Owner("Azure OpenAI", url="https://NAME.openai.azure.com/openai")
_OPENROUTER = _Owner("OpenRouter", ("openrouter",), "https://openrouter.ai/api")
_BEDROCK = _Owner("Amazon Bedrock", ("bedrock",))
_GOOGLE = _Owner("Google", ("gemini", "vertex"))
_VERTEX = _Owner("Google Vertex AI", ("vertex",))
_GITHUB = _Owner("GitHub")

PATHS = (
    (re.compile(r"(?:/openai)?/deployments/"), _AZURE),
    (re.compile(r"/v1internal[:/]"), _Owner("Gemini Code Assist", url="https://cloudcode-pa.googleapis.com")),
    # The default upstream of OpenRouter has `/api` already.
    (re.compile(r"/api/v1/"), _OPENROUTER._replace(providers=(), url="https://openrouter.ai")),
    (
        re.compile(r"/api/(?:chat|generate|embed|embeddings|tags|show|ps|pull|version)/?$"),
        _Owner("Ollama", url="http://localhost:11434"),
    ),
    (re.compile(r".*/publishers/|/v1/projects/|/v1beta1/"), _VERTEX),
    (re.compile(r"/model/.+/(?:invoke|converse)"), _BEDROCK),
    (re.compile(r"/backend-api/"), _Owner("ChatGPT")),
)
"""Paths that belong to one service."""

SERVED_PATHS = {
    "openai": re.compile(rf"/v1/|/{OPENAI_PATHS}|/?$"),
    "gemini": re.compile(r"/(?:upload/|download/)?v1(?:beta|alpha)?/|/?$"),
    "vertex": re.compile(r"/v1(?:beta1)?/|/?$"),
}
"""Start of the paths that a default upstream serves, for providers whose paths are recognized after any prefix."""

HEADERS = {"api-key": _AZURE, "x-goog-api-key": _GOOGLE}
"""Headers for credentials of one service."""

KEYS: Mapping[str, _Owner] = MappingProxyType(
    {
        "sk-ant-": _Owner("Anthropic", ("anthropic",)),
        "sk-proj-": _Owner("OpenAI", ("openai", "chatgpt")),
        "sk-svcacct-": _Owner("OpenAI", ("openai", "chatgpt")),
        "sk-admin-": _Owner("OpenAI", ("openai", "chatgpt")),
        "sk-or-": _OPENROUTER,
        "sk-kimi-": _Owner("Kimi", ("moonshot",)),
        "ABSK": _BEDROCK,
        "bedrock-api-key-": _BEDROCK,
        "ya29.": _GOOGLE,
        "AIza": _GOOGLE,
        "AQ.": _GOOGLE,
        "gsk_": _Owner("Groq", url="https://api.groq.com/openai"),
        "xai-": _Owner("xAI", url="https://api.x.ai"),
        "nvapi-": _Owner("NVIDIA"),
        "pplx-": _Owner("Perplexity"),
        "csk-": _Owner("Cerebras"),
        "fw_": _Owner("Fireworks"),
        "hf_": _Owner("Hugging Face"),
        "ghp_": _GITHUB,
        "gho_": _GITHUB,
        "ghu_": _GITHUB,
        "ghs_": _GITHUB,
        "github_pat_": _GITHUB,
        "tid=": _GITHUB,  # session token of Copilot
    }
)
"""Start of keys and tokens that one service issues."""

_KEY = re.compile(rf"(?:(?i:Bearer) +)?({'|'.join(map(re.escape, KEYS))})")
_QUERY_KEY = re.compile(r"(?:^|&)key=([^&]*)")
_KEY_HEADERS = ("authorization", "x-api-key", *HEADERS)
_AWS_SIGNED = re.compile(r"AWS4-")


class DefaultUpstreams(NamedTuple):
    """Upstreams that the user has not set."""

    bases: Mapping[str, str] = NO_REGIONS
    """Default URL by provider. Empty if there is none."""
    regions: Mapping[str, str] = NO_REGIONS
    """Region by provider, for requests that do not name one."""

    @classmethod
    def from_upstreams(cls, upstreams: Mapping[str, str], regions: Mapping[str, str]) -> Self:
        """Select the providers in `upstreams` that have their default URL."""
        bases = {name: upstreams.get(name, "") for name in PROVIDERS}
        return cls({name: base for name, base in bases.items() if base in ("", PROVIDERS[name])}, regions)

    def reason_to_reject(self, route: Route, headers: HeaderList) -> str:
        """Return why a request must not be forwarded, and what to do. Empty if it may be forwarded."""
        path, _, query = route.target.partition("?")
        provider = route.provider
        if not provider:
            return _unknown_provider_message(path)
        base = self.bases.get(provider)
        if base is None:
            return ""
        if reason := _check_path(provider, base, path):
            return reason
        if reason := _check_credentials(provider, base, query, headers):
            return reason
        if provider in REGION_VARIABLES and not route.region:
            variable = REGION_VARIABLES[provider][0]
            option = _upstream_option(provider, base)
            return f"the region of {provider} is unknown. Set {variable}, or the upstream: {option}"
        return ""


def _unknown_provider_message(path: str) -> str:
    path_text = one_line(path[:MAX_SHOWN_PATH])
    if owner := next((owner for form, owner in PATHS if form.match(path)), None):
        return (
            f"the path {path_text} belongs to {owner.name}. Put a provider's name in front, such as "
            f"/openai{path_text}, and set the upstream of that provider: {_upstream_option('openai', owner.url)}"
        )
    return (
        f"unknown provider for the path {path_text}. Put the provider's name in front, such as /openai{path_text}. "
        "If the provider's own host does not serve the path, set the upstream too: --upstream openai=URL"
    )


@lru_cache(MAX_PATHS)
def _check_path(provider: str, base: str, path: str) -> str:
    if not base:
        return f"{provider} has no default upstream. Set it: {_upstream_option(provider)}"
    path_text = one_line(path[:MAX_SHOWN_PATH])
    owner = next((owner for form, owner in PATHS if form.match(path) and provider not in owner.providers), None)
    if owner is not None:
        return _wrong_owner_message(f"the path {path_text}", owner, provider, base)
    served_paths = SERVED_PATHS.get(provider)
    if served_paths is not None and not served_paths.match(path):
        option = _upstream_option(provider)
        return f"{_host_name(base)} does not serve the path {path_text}. Set the upstream that does: {option}"
    return ""


def _check_credentials(provider: str, base: str, query: str, headers: HeaderList) -> str:
    present = index_headers(headers).firsts
    if _AWS_SIGNED.match(present.get("authorization", "")) or "X-Amz-Signature=" in query:
        return (
            f"the request is signed with AWS credentials for another host than {_host_name(base)}, which would reject "
            f"it. Use a bearer token (AWS_BEARER_TOKEN_BEDROCK), or set the upstream: {_upstream_option(provider)}"
        )
    for name, owner in HEADERS.items():
        if name in present and provider not in owner.providers:
            return _wrong_owner_message(f"the header {name}", owner, provider, base)
    for text in _iter_credentials(present, query):
        key = _KEY.match(text)
        if key is not None and provider not in KEYS[key[1]].providers:
            return _wrong_owner_message(f"the credential ({key[1]}…)", KEYS[key[1]], provider, base)
    return ""


def _iter_credentials(present: Mapping[str, str], query: str) -> Iterator[str]:
    for name in _KEY_HEADERS:
        if name in present:
            yield present[name]
    if "key=" in query:
        yield from _QUERY_KEY.findall(query)


def _wrong_owner_message(what: str, owner: _Owner, provider: str, base: str) -> str:
    option = _upstream_option(provider, owner.url)
    return f"{what} belongs to {owner.name}, and {_host_name(base)} would get it. Set the upstream: {option}"


def _upstream_option(provider: str, url: str = "URL") -> str:
    return f"--upstream {provider}={url}"


def _host_name(base: str) -> str:
    return urlsplit(base).netloc
