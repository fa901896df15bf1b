"""Providers, their default URLs and regions, and which URLs a user may set."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any
from urllib.parse import urlsplit

from ..errors import IbidemError, one_line

PROVIDERS: Mapping[str, str] = MappingProxyType(
    {
        "anthropic": "https://api.anthropic.com",
        "openai": "https://api.openai.com",
        "gemini": "https://generativelanguage.googleapis.com",
        "chatgpt": "https://chatgpt.com/backend-api/codex",  # Codex with a ChatGPT login
        "vertex": "https://REGION-aiplatform.googleapis.com",  # Claude on Google's cloud
        "bedrock": "https://bedrock-runtime.REGION.amazonaws.com",  # Claude on Amazon's
        "foundry": "",  # Claude on Azure: the host has the name of a resource
        "mantle": "",  # Claude on Amazon's cloud, in Anthropic's format
        "anthropic-aws": "",  # Anthropic's own service, billed by AWS
        "anthropic-google": "",  # Anthropic's own service, billed by Google Cloud
        "moonshot": "https://api.moonshot.ai",
        "openrouter": "https://openrouter.ai/api",
    }
)
"""Default base URL by provider name. Empty if the user has to set it. `REGION` stands for the region of a request."""

_MULTI_REGIONS = {
    PROVIDERS["vertex"]: {
        "": "https://aiplatform.googleapis.com",
        "global": "https://aiplatform.googleapis.com",
        "us": "https://aiplatform.us.rep.googleapis.com",
        "eu": "https://aiplatform.eu.rep.googleapis.com",
    },
    PROVIDERS["bedrock"]: {"": PROVIDERS["bedrock"]},
}
"""URLs of locations that are not a single region, by default URL with `REGION`."""

AWS_REGION = r"[a-z]{2,3}(?:-[a-z]+){1,3}-\d{1,2}"

REGION_VARIABLES = {"bedrock": ("AWS_REGION", "AWS_DEFAULT_REGION")}
"""Environment variables with the region of a provider. The first that is set counts."""

ALIASES = {"openai-chat": "openai", "openai-responses": "openai"}
"""Wire formats that share an upstream."""


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach `host`."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


def url_in_region(base: str, region: str) -> str:
    """Return the URL for a region. A URL that the user has set is the same for all regions."""
    if base not in _MULTI_REGIONS:
        return base
    return _MULTI_REGIONS[base].get(region) or base.replace("REGION", region)


def environment_regions(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the region by provider, for providers with a valid region in the environment."""
    by_provider = {
        provider: next((environment[name] for name in names if environment.get(name)), "")
        for provider, names in REGION_VARIABLES.items()
    }
    return {provider: text for provider, text in by_provider.items() if re.fullmatch(AWS_REGION, text)}


def normalize_base_url(text: str) -> str:
    """Return an upstream's URL without trailing slashes.

    Raises ValueError with the reason. The message does not contain the text, because it may hold a password.
    """
    try:
        parts = urlsplit(text)
        wrong = parts.scheme not in ("http", "https") or not parts.hostname or parts.port == 0
    except ValueError:
        wrong = True
    if wrong or not text.isprintable() or " " in text or "\\" in text:
        raise ValueError("invalid URL. Use one like https://api.example.com")
    if parts.username is not None or parts.password is not None:
        raise ValueError("the URL has a user or password. Remove them: the client sends its own credentials")
    if "?" in text or "#" in text:
        raise ValueError("the URL has a query or fragment. Remove it")
    return text.rstrip("/")


def _parse_upstream(name: str, url: Any, where: str) -> tuple[str, str]:
    provider = ALIASES.get(name, name)
    if provider not in PROVIDERS:
        raise IbidemError(
            f"{where}: unknown provider {one_line(name)!r}. Use one of {', '.join((*PROVIDERS, *ALIASES))}"
        )
    try:
        return provider, normalize_base_url(url if isinstance(url, str) else "")
    except ValueError as error:
        raise IbidemError(f"{where}: {error}") from None


def parse_upstreams(settings: Iterable[tuple[str, Any, str]]) -> dict[str, str]:
    """Return the base URL by provider, from (name, URL, source of the setting)."""
    bases: dict[str, str] = {}
    for name, url, where in settings:
        provider, base = _parse_upstream(name, url, where)
        if bases.setdefault(provider, base) != base:
            raise IbidemError(
                f"{where}: {provider} already has a different upstream. All formats of a provider share one"
            )
    return bases
