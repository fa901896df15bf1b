"""The response format of each provider, one file per provider, and the paths of their APIs.

An `UpstreamDialect` turns a scripted response (`testing.answers`) into a provider's JSON and stream of events, with
usage fields and error messages. `route_for` selects a dialect by path.

The formats follow the providers' documentation and recorded responses, so that the SDKs in tests/proxy/test_sdks.py
accept them. A new provider is a file with a `DIALECT` and its rows in `PATHS`; the request side is `ibidem.formats`.
Tests: tests/testing/test_upstream.py.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from . import anthropic, gemini, openai_chat, openai_responses
from .dialect import Reply, UpstreamDialect

__all__ = ["Reply", "UpstreamDialect", "UpstreamRoute", "route_for"]


class UpstreamRoute(NamedTuple):
    """The dialect and the kind of request for a path."""

    dialect: UpstreamDialect
    kind: str
    """`answer`, `stream` (requested by the path) or `count`."""
    model: str | None = None
    """Model in the path, if it is there."""


PATHS: tuple[tuple[str, UpstreamDialect, str], ...] = (
    (r"/messages", anthropic.DIALECT, "answer"),
    (r"/messages/count_tokens", anthropic.DIALECT, "count"),
    (r"/chat/completions", openai_chat.DIALECT, "answer"),
    (r"/responses", openai_responses.DIALECT, "answer"),
    (r"/responses/input_tokens", openai_responses.DIALECT, "count"),
    (r"/models/(?P<model>[^/:]+):generateContent", gemini.DIALECT, "answer"),
    (r"/models/(?P<model>[^/:]+):streamGenerateContent", gemini.DIALECT, "stream"),
    (r"/models/(?P<model>[^/:]+):countTokens", gemini.DIALECT, "count"),
    (r"/publishers/anthropic/models/count-tokens:rawPredict", anthropic.DIALECT, "count"),
    (r"/publishers/anthropic/models/(?P<model>[^/:]+):rawPredict", anthropic.DIALECT, "answer"),
    (r"/publishers/anthropic/models/(?P<model>[^/:]+):streamRawPredict", anthropic.DIALECT, "stream"),
    (r"/model/(?P<model>[^/]+)/invoke", anthropic.DIALECT, "answer"),
    (r"/model/(?P<model>[^/]+)/invoke-with-response-stream", anthropic.BEDROCK_DIALECT, "stream"),
)
"""Ends of paths. The part before is the client's base URL."""

_PATHS = tuple((re.compile(f".*{end}"), dialect, kind) for end, dialect, kind in PATHS)


def route_for(path: str) -> UpstreamRoute | None:
    """Return the route of a path; None if it belongs to no provider."""
    for pattern, dialect, kind in _PATHS:
        if (match := pattern.fullmatch(path)) is not None:
            return UpstreamRoute(dialect, kind, match.groupdict().get("model"))
    return None
