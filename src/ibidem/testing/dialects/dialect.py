"""The parts of a provider's response format."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ...billing.usage import Usage
from ..answers import AnswerPart, ContextManagement, Header
from ..prompt_cache import Unit

CREATED = 1_700_000_000
"""Creation time in every response. It is constant, so that a script always gives the same bytes."""

PIECE_CHARACTERS = 16
"""Characters of text per event."""


@dataclass(frozen=True, slots=True)
class Reply:
    """One response with the facts for writing it."""

    number: int
    """Number of the response, from 1. Ids contain it."""
    model: str
    request: Mapping[str, Any]
    parts: tuple[AnswerPart, ...]
    usage: Usage
    sse: bool = True
    """True if a stream consists of events; False for one long JSON value."""
    context_management: ContextManagement | None = None
    compaction: Usage | None = None
    """Usage of the step that made the summary, if the provider bills it separately."""

    @property
    def summary(self) -> str:
        """Text of the compaction block that starts the response; empty without one."""
        return self.context_management.summary if self.context_management is not None else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class UpstreamDialect:
    """How one provider writes its responses."""

    provider: str
    """The provider's name in `cache_rules.CACHING`."""
    format: str
    """The format's name in `ibidem.formats`."""
    units: Callable[[Mapping[str, Any]], list[Unit]]
    """Return the units of a request for the prompt cache."""
    whole: Callable[[Reply], Any]
    """Return the response as one JSON value."""
    events: Callable[[Reply], Iterator[bytes]]
    """Yield the response as a stream."""
    ping: bytes
    error: Callable[[int, str], Any]
    count_response: Callable[[Usage], Any]
    """Return the response to a request that only counts tokens."""
    headers: Callable[[int], tuple[Header, ...]]
    """Return the headers of each response, by its number."""
    stream_type: str = "text/event-stream; charset=utf-8"
    cache_key: Callable[[Mapping[str, Any]], str] = lambda _: ""
    """Return the request's cache key."""
    find_rejection: Callable[[Mapping[str, Any]], str] = lambda _: ""
    """Return the provider's error message for invalid cache directives; empty if all are valid."""


def split_text(text: str, size: int = PIECE_CHARACTERS) -> Iterator[str]:
    """Yield a text in pieces, one per event."""
    for start in range(0, len(text), size):
        yield text[start : start + size]


def compact_json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def present_units(*values: tuple[str, Any]) -> list[Unit]:
    """Return one unit for each value that is not empty."""
    return [Unit({name: value}) for name, value in values if value]


def named_event(kind: str, value: Mapping[str, Any]) -> bytes:
    """Return a server-sent event with its name in both fields."""
    return f"event: {kind}\ndata: {compact_json({'type': kind, **value})}\n\n".encode("utf-8", "surrogatepass")


def data_event(value: Any) -> bytes:
    return f"data: {compact_json(value)}\n\n".encode("utf-8", "surrogatepass")


def as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
