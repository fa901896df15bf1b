"""What a scripted provider answers: what it says, and how the answer travels.

>>> [Says("hello"), Calls(("Read", {"file_path": "a.py"})), Thinks("hm", then=Says("done")), Fails(429, retry_after=7)]

The other words change how an answer travels, and fit into each other: `Slow(Gzips(Says("hello")), chunk_delay=0.1)`.
Each makes an `Answer`, which is a frozen value: it may be given as often as one likes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple


class Spoken(NamedTuple):
    text: str


class Thought(NamedTuple):
    text: str
    signature: str = ""
    """What the provider signs it with; one and the same if not given."""


class Called(NamedTuple):
    tool: str
    arguments: Mapping[str, Any]
    input: str = ""
    """Text for a custom tool, which has no arguments (OpenAI Responses only)."""


AnswerPart = Spoken | Thought | Called
Header = tuple[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextManagement:
    """What the provider did to the context of one request before the model saw it. `testing.clearing` makes these."""

    visible: Mapping[str, Any]
    """The request as the model sees it. The provider counts the tokens of this one."""
    applied_edits: tuple[Mapping[str, Any], ...] | None = None
    """Edits that the response reports. None if the request asked for no edits: the response then has no such field."""
    summary: str = ""
    """Text of the compaction block that the response starts with. Empty if nothing was compacted."""
    summarized: Mapping[str, Any] | None = None
    """The request that the summary was made of, if the provider bills that as a step of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A chunk is one event of a stream, or a whole body."""

    parts: tuple[AnswerPart, ...] = ()
    status: int = 200
    message: str = ""
    """Of an error."""
    headers: tuple[Header, ...] = ()
    """Sent after the provider's own, in this case and order, duplicates and all."""
    wait: float = 0.0
    """Seconds before the first byte."""
    chunk_delay: float = 0.0
    """Seconds before each chunk but the first."""
    pings: int = 0
    """Signs of life among the events, besides those that the provider always sends."""
    reset_after: int | None = None
    """The connection is reset after so many chunks; after 0 nothing was answered at all."""
    half: bool = False
    """Half of the bytes come, then the connection is closed; the promised length is that of the whole."""
    gzip: bool = False
    raw: bytes | None = None
    """These bytes and nothing else, then the connection is closed."""
    context_management: ContextManagement | None = None


def Says(text: str) -> Answer:
    return Answer(parts=(Spoken(text),))


DEFAULT_ANSWER = Says("That is all there is to say, and it is said in one sentence.")
"""When the script is at its end."""


def Calls(*calls: tuple[str, Mapping[str, Any] | str], says: str | None = None) -> Answer:
    """Call tools, each given by name and arguments, after an optional text. A string is the input of a custom tool."""
    made = (Called(tool, given) if isinstance(given, Mapping) else Called(tool, {}, given) for tool, given in calls)
    return Answer(parts=(*(() if says is None else (Spoken(says),)), *made))


def Thinks(text: str, then: Answer = DEFAULT_ANSWER) -> Answer:
    """Reasons first, signed or encrypted in the provider's own way."""
    return replace(then, parts=(Thought(text), *then.parts))


def Fails(status: int, retry_after: int | None = None, message: str = "as the script wants it") -> Answer:
    """An error in the provider's own words."""
    headers = () if retry_after is None else (("retry-after", str(retry_after)),)
    return Answer(status=status, message=message, headers=headers)


def Resets(answer: Answer = DEFAULT_ANSWER, *, after_chunks: int = 3) -> Answer:
    return replace(answer, reset_after=after_chunks)


def Halves(answer: Answer = DEFAULT_ANSWER) -> Answer:
    return replace(answer, half=True)


def Slow(answer: Answer = DEFAULT_ANSWER, *, chunk_delay: float = 0.0, wait: float = 0.0) -> Answer:
    return replace(answer, chunk_delay=chunk_delay, wait=wait)


def Pings(times: int, answer: Answer = DEFAULT_ANSWER) -> Answer:
    return replace(answer, pings=times)


def Gzips(answer: Answer = DEFAULT_ANSWER) -> Answer:
    return replace(answer, gzip=True)


def Headed(*headers: Header, answer: Answer = DEFAULT_ANSWER) -> Answer:
    return replace(answer, headers=(*answer.headers, *headers))


def Raw(data: bytes) -> Answer:
    """These very bytes, status line and all."""
    return Answer(raw=data)
