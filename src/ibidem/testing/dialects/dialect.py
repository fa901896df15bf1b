"""What a provider's way of speaking consists of."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ...billing.usage import Usage
from ..answers import AnswerPart, ContextManagement, Header
from ..prompt_cache import Unit

CREATED = 1_700_000_000
"""The time that every answer states: the same script gives the same bytes."""

PIECE_CHARACTERS = 16
"""Characters of a text that one event carries."""


@dataclass(frozen=True, slots=True)
class Reply:
    """What is to be said, and what there is to know for saying it."""

    number: int
    """Of the answer, from 1: ids are made of it."""
    model: str
    request: Mapping[str, Any]
    parts: tuple[AnswerPart, ...]
    usage: Usage
    sse: bool = True
    """Whether a stream is of events, rather than one long JSON value."""
    context_management: ContextManagement | None = None
    compaction: Usage | None = None
    """Usage of the step that made the summary, if the provider bills it separately."""

    @property
    def summary(self) -> str:
        """Text of the compaction block that the answer starts with; empty if there is none."""
        return self.context_management.summary if self.context_management is not None else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class UpstreamDialect:
    provider: str
    """As in `caching.CACHING`."""
    format: str
    """As in `ibidem.formats`."""
    units: Callable[[Mapping[str, Any]], list[Unit]]
    whole: Callable[[Reply], Any]
    """The answer as one JSON value."""
    events: Callable[[Reply], Iterator[bytes]]
    """The answer as a stream."""
    ping: bytes
    error: Callable[[int, str], Any]
    counted: Callable[[Usage], Any]
    """What is said when only the size was asked for."""
    headers: Callable[[int], tuple[Header, ...]]
    """That this provider sends with each answer, by its number."""
    stream_type: str = "text/event-stream; charset=utf-8"
    cache_key: Callable[[Mapping[str, Any]], str] = lambda _: ""
    """What a request calls the cache that it wants to be found in."""
    refusal: Callable[[Mapping[str, Any]], str] = lambda _: ""
    """What is wrong with what a request asks its provider to keep, in the provider's words; empty if nothing is."""


def pieces(text: str, size: int = PIECE_CHARACTERS) -> Iterator[str]:
    for start in range(0, len(text), size):
        yield text[start : start + size]


def dumps(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def named(*values: tuple[str, Any]) -> list[Unit]:
    """One unit for each of these that there is."""
    return [Unit({name: value}) for name, value in values if value]


def event(kind: str, value: Mapping[str, Any]) -> bytes:
    """A server-sent event that says its name twice."""
    return f"event: {kind}\ndata: {dumps({'type': kind, **value})}\n\n".encode("utf-8", "surrogatepass")


def data(value: Any) -> bytes:
    return f"data: {dumps(value)}\n\n".encode("utf-8", "surrogatepass")


def listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
