"""Who answers, where they are, and what an address may be."""

from __future__ import annotations

import ipaddress
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
        "chatgpt": "https://chatgpt.com/backend-api/codex",  # Codex, for those who log in with ChatGPT
        "vertex": "https://REGION-aiplatform.googleapis.com",  # Claude on Google's cloud
        "bedrock": "https://bedrock-runtime.us-east-1.amazonaws.com",  # Claude on Amazon's
    }
)
"""Who answers, by the name that upstreams are set by. For `REGION` stands the region that a request names."""

_WITHOUT_REGION = {
    "global": "https://aiplatform.googleapis.com",
    "us": "https://aiplatform.us.rep.googleapis.com",
    "eu": "https://aiplatform.eu.rep.googleapis.com",
}
"""Where those are that are no single region."""

ALIASES = {"openai-chat": "openai", "openai-responses": "openai"}
"""Wire formats that share an upstream."""


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach it."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


def in_region(base: str, region: str) -> str:
    """An upstream for requests that name a region, or none. One that was set to a place of its own is there for all."""
    if base != PROVIDERS["vertex"]:
        return base
    return _WITHOUT_REGION.get(region or "global") or base.replace("REGION", region)


def base_url(text: str) -> str:
    """An upstream's URL as it is kept. Raises ValueError with what is wrong; the text itself is not in it."""
    try:
        parts = urlsplit(text)
        wrong = parts.scheme not in ("http", "https") or not parts.hostname or parts.port == 0
    except ValueError:
        wrong = True
    if wrong or not text.isprintable() or " " in text or "\\" in text:
        raise ValueError("this is no URL: use one like https://api.example.com")
    if parts.username is not None or parts.password is not None:
        raise ValueError("a URL with a user or password: leave these out, the client sends its own credentials")
    if "?" in text or "#" in text:
        raise ValueError("a URL with a query or fragment: leave that out")
    return text.rstrip("/")


def _upstream(name: str, url: Any, where: str) -> tuple[str, str]:
    provider = ALIASES.get(name, name)
    if provider not in PROVIDERS:
        raise IbidemError(f"{where}: unknown format {one_line(name)!r}: use one of {', '.join((*PROVIDERS, *ALIASES))}")
    try:
        return provider, base_url(url if isinstance(url, str) else "")
    except ValueError as error:
        raise IbidemError(f"{where}: {error}") from None


def upstreams(given: Iterable[tuple[str, Any, str]]) -> dict[str, str]:
    """From (format, URL, where it was said)."""
    found: dict[str, str] = {}
    for name, url, where in given:
        provider, base = _upstream(name, url, where)
        if found.setdefault(provider, base) != base:
            raise IbidemError(f"{where}: {provider} has another upstream already: all its formats share one")
    return found
