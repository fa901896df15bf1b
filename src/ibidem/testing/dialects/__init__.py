"""Each provider's own way of answering, one file for each, and the paths they answer at.

An `UpstreamDialect` turns what a script says (`testing.answers`) into a provider's JSON and its stream of events, with
usage in its fields, and words its errors. `asked` says from a path who is spoken to.

They answer as the providers' documentation and recorded answers have it, so that the SDKs of tests/proxy/test_sdks.py
take them for the real ones. A new provider is a file with a `DIALECT` and its rows in `PATHS`; the request side is
`ibidem.formats`. Tests: tests/testing/test_upstream.py.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from . import anthropic, gemini, openai_chat, openai_responses
from .dialect import Reply, UpstreamDialect

__all__ = ["Reply", "UpstreamDialect", "UpstreamRoute", "asked"]


class UpstreamRoute(NamedTuple):
    dialect: UpstreamDialect
    kind: str
    """`answer`, `stream` (asked for by the path) or `count`."""
    model: str | None = None
    """Where the path names it."""


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
"""Ends of paths: what stands before them is the client's base URL."""

_PATHS = tuple((re.compile(f".*{end}"), dialect, kind) for end, dialect, kind in PATHS)


def asked(path: str) -> UpstreamRoute | None:
    for pattern, dialect, kind in _PATHS:
        if (match := pattern.fullmatch(path)) is not None:
            return UpstreamRoute(dialect, kind, match.groupdict().get("model"))
    return None
