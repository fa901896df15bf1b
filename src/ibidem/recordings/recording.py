"""Data model of a recorded session: the requests that an agent sent, rebuilt from its log.

A context only grows until something rewrites it. So a segment stores one history and the length of each request. A
compaction or a rewind starts a new segment. Segments share their common messages, so a session needs no more memory
than its log. If an agent is known to repair its history before sending (calls without a result, orphan results, empty
texts), its reader does the same. Other problems stay, and `ibidem.validate` reports them. A request without a logged
response is omitted.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from .. import formats
from ..billing.usage import Usage

Json = dict[str, Any]

Cause = Literal["start", "compaction", "micro-compaction", "rewind"]
"""Why a segment starts: with a new session, a summary, cleared results, or a return to an earlier message."""


@dataclass(frozen=True, slots=True)
class RecordedRequest:
    """One request: the first `length` entries of its segment's history. Times are Unix seconds."""

    length: int
    model: str = ""
    """Empty if the log does not have it."""
    at: float | None = None
    """Time of the request, taken from its last logged message."""
    answered: float | None = None
    """Time when the response was complete."""
    usage: Usage | None = None
    answer: str = ""
    """Id of the response. It identifies responses that the log of a resumed session repeats."""
    billed: Usage | None = None
    """Usage of a rewritten request. It shows the cost, but not the size of this history."""
    otherwise: float | None = None
    """Baseline: input cost in dollars without Ibidem, if Ibidem's proxy recorded it."""
    effort: str = ""
    """Effort setting; empty if the log does not have it."""


@dataclass(slots=True)
class RecordedSegment:
    """Requests in which the context only grew. The first `inherited` entries were sent in an earlier segment."""

    history: list[Json] = field(default_factory=list)
    requests: list[RecordedRequest] = field(default_factory=list)
    inherited: int = 0
    cause: Cause = "start"

    @property
    def is_compressed(self) -> bool:
        """True if the history is compressed in memory and shares no entry with another segment."""
        return False


class SkippedLine(NamedTuple):
    """A line of a log that could not be used."""

    line: int
    why: str


class RequestBody(NamedTuple):
    """A request as it was sent, in its provider's format."""

    body: Json
    request: RecordedRequest


@dataclass(slots=True)
class Recording:
    """One conversation with one agent. The conversation of a subagent is a separate session."""

    agent: str
    format: str
    segments: list[RecordedSegment]
    path: str = ""
    """File of the log."""
    name: str = ""
    """Name of this session within its file; empty if the file has only one."""
    id: str = ""
    """Session id that the agent prints, to resume the session; empty if the log does not have it."""
    title: str = ""
    """Title in the log, or the first prompt, on one line; empty if there is none."""
    project: str = ""
    """Folder or task, if the log has it."""
    host: str = ""
    """Host that received the requests, if the recording has it."""
    head: Json = field(default_factory=dict)
    """Request parameters, such as system prompt and tools, if the log has them."""
    skipped: list[SkippedLine] = field(default_factory=list)
    """Unusable lines of the file; only on its first session."""

    @property
    def models(self) -> list[str]:
        """Names of the models, in the order of their first use."""
        return list(
            dict.fromkeys(request.model for segment in self.segments for request in segment.requests if request.model)
        )

    @property
    def length(self) -> int:
        """Number of requests."""
        return sum(len(segment.requests) for segment in self.segments)

    def requests(self) -> Iterator[RequestBody]:
        """Yield every request. Bodies are created on demand and share their messages."""
        key = formats.format_named(self.format).history_key
        for segment in self.segments:
            for sent in segment.requests:
                model = {"model": sent.model} if sent.model else {}
                yield RequestBody({**model, **self.head, key: segment.history[: sent.length]}, sent)


def is_model_entry(entry: Json) -> bool:
    """Return True if the model wrote this entry: a message with its role, or an item such as a call or reasoning."""
    if "role" in entry:
        return entry["role"] in ("assistant", "model")
    kind = str(entry.get("type"))
    return not kind.endswith("_output") and kind not in ("agent_message", "compaction_trigger")
