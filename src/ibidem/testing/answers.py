"""The responses of a mock provider: their content, and how they are sent.

>>> [Says("hello"), Calls(("Read", {"file_path": "a.py"})), Thinks("hm", then=Says("done")), Fails(429, retry_after=7)]

The other words change how a response is sent, and can be nested: `Slow(Gzips(Says("hello")), chunk_delay=0.1)`. Each
returns an `Answer`, a frozen value that can be used any number of times.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple


class TextPart(NamedTuple):
    """A text of the model."""

    text: str


class ThinkingPart(NamedTuple):
    """Thinking of the model."""

    text: str
    signature: str = ""
    """The provider's signature; empty for a constant one."""


class CallPart(NamedTuple):
    """A tool call of the model."""

    tool: str
    arguments: Mapping[str, Any]
    input: str = ""
    """Text for a custom tool, which has no named arguments (OpenAI Responses only)."""


AnswerPart = TextPart | ThinkingPart | CallPart
Header = tuple[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextManagement:
    """What the provider did to the context of one request before the model saw it. `testing.clearing` creates these."""

    visible: Mapping[str, Any]
    """The request as the model sees it. The provider counts its tokens."""
    applied_edits: tuple[Mapping[str, Any], ...] | None = None
    """Edits that the response reports. None if the request asked for no edits: the response then has no such field."""
    summary: str = ""
    """Text of the compaction block that the response starts with. Empty if nothing was compacted."""
    summarized: Mapping[str, Any] | None = None
    """The request from which the summary was made, if the provider bills that as a separate step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One response. A chunk is one event of a stream, or a whole body."""

    parts: tuple[AnswerPart, ...] = ()
    status: int = 200
    message: str = ""
    """Text of an error."""
    headers: tuple[Header, ...] = ()
    """Headers sent after the provider's own, with this case, order and duplicates."""
    wait: float = 0.0
    """Seconds before the first byte."""
    chunk_delay: float = 0.0
    """Seconds before each chunk except the first."""
    pings: int = 0
    """Number of ping events, in addition to those that the provider always sends."""
    reset_after: int | None = None
    """Reset the connection after this number of chunks; after 0, no byte is sent."""
    half: bool = False
    """Close the connection after half of the bytes. The promised length is that of the whole."""
    gzip: bool = False
    raw: bytes | None = None
    """Send only these bytes, then close the connection."""
    context_management: ContextManagement | None = None


def Says(text: str) -> Answer:
    """Send a text."""
    return Answer(parts=(TextPart(text),))


DEFAULT_ANSWER = Says("That is all there is to say, and it is said in one sentence.")
"""Response after the end of the script."""


def Calls(*calls: tuple[str, Mapping[str, Any] | str], says: str | None = None) -> Answer:
    """Call tools, each given by name and arguments, after an optional text. A string is the input of a custom tool."""
    parts = (
        CallPart(tool, arguments) if isinstance(arguments, Mapping) else CallPart(tool, {}, arguments)
        for tool, arguments in calls
    )
    return Answer(parts=(*(() if says is None else (TextPart(says),)), *parts))


def Thinks(text: str, then: Answer = DEFAULT_ANSWER) -> Answer:
    """Send thinking before another response, signed or encrypted as the provider does it."""
    return replace(then, parts=(ThinkingPart(text), *then.parts))


def Fails(status: int, retry_after: int | None = None, message: str = "as the script wants it") -> Answer:
    """Send an error in the provider's format."""
    headers = () if retry_after is None else (("retry-after", str(retry_after)),)
    return Answer(status=status, message=message, headers=headers)


def Resets(answer: Answer = DEFAULT_ANSWER, *, after_chunks: int = 3) -> Answer:
    """Reset the connection after some chunks of a response."""
    return replace(answer, reset_after=after_chunks)


def Halves(answer: Answer = DEFAULT_ANSWER) -> Answer:
    """Send the first half of a response, then close the connection."""
    return replace(answer, half=True)


def Slow(answer: Answer = DEFAULT_ANSWER, *, chunk_delay: float = 0.0, wait: float = 0.0) -> Answer:
    """Send a response with delays."""
    return replace(answer, chunk_delay=chunk_delay, wait=wait)


def Pings(times: int, answer: Answer = DEFAULT_ANSWER) -> Answer:
    """Add ping events to a streamed response."""
    return replace(answer, pings=times)


def Gzips(answer: Answer = DEFAULT_ANSWER) -> Answer:
    """Compress a response."""
    return replace(answer, gzip=True)


def Headed(*headers: Header, answer: Answer = DEFAULT_ANSWER) -> Answer:
    """Add headers to a response."""
    return replace(answer, headers=(*answer.headers, *headers))


def Raw(data: bytes) -> Answer:
    """Send exactly these bytes, including the status line."""
    return Answer(raw=data)
