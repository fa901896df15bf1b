"""A recorded session: the requests an agent sent, as far as its log tells.

A context only grows until something rewrites it. So a run of requests is one history and the lengths at which it was
sent; what rewrites the context (a compaction, a rewind) starts a new segment. Segments share the messages they have in
common, so a session takes no more memory than its log. What an agent is known to mend before it sends (unanswered
calls, orphan results, empty texts) is mended in its reader; nothing else is, and `ibidem.validate` will name it. A
request whose answer was not logged is no request.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from .. import formats
from ..billing.usage import Usage

Json = dict[str, Any]

Cause = Literal["start", "compaction", "micro-compaction", "rewind"]
"""What a segment begins with: nothing, a summary, a history with results cleared, or the part that was kept."""


@dataclass(frozen=True, slots=True)
class RecordedRequest:
    """One request: the first `length` entries of its segment's history. Times are Unix seconds."""

    length: int
    model: str = ""
    """Empty where the log does not say."""
    at: float | None = None
    """When it was sent: the time of the last thing it contains."""
    answered: float | None = None
    """When its answer was complete."""
    usage: Usage | None = None
    answer: str = ""
    """The id of its answer, where there is one: a resumed session's log repeats the answers of the one it goes on."""
    billed: Usage | None = None
    """What was counted where something else was sent than the history says: it tells what was paid, and no size."""
    otherwise: float | None = None
    """Dollars that its input would have cost as it came, where our own proxy sent it and reckoned that."""
    effort: str = ""
    """The effort setting; empty if the log does not contain it."""


@dataclass(slots=True)
class RecordedSegment:
    """A stretch over which the context only grew. Its first `inherited` entries were sent in an earlier segment."""

    history: list[Json] = field(default_factory=list)
    requests: list[RecordedRequest] = field(default_factory=list)
    inherited: int = 0
    cause: Cause = "start"

    @property
    def apart(self) -> bool:
        """No other segment has an entry of it, and its entries are not kept as values."""
        return False


class Skipped(NamedTuple):
    """A line of a log that could not be used."""

    line: int
    why: str


class RequestBody(NamedTuple):
    """A request as it was sent, in its provider's format."""

    body: Json
    sent: RecordedRequest


@dataclass(slots=True)
class Recording:
    """One conversation with one agent. A sub-agent's is a session of its own."""

    agent: str
    format: str
    segments: list[RecordedSegment]
    path: str = ""
    """The file it was read from."""
    name: str = ""
    """Tells sessions of one file apart; empty where there is one only."""
    id: str = ""
    """As the agent itself prints it, to resume the session; empty where the log does not say."""
    title: str = ""
    """Its first prompt, on one line; empty where there is none."""
    project: str = ""
    """What was worked on: a folder or a task, where the log says."""
    host: str = ""
    """The host that its requests went to, where the recording says."""
    head: Json = field(default_factory=dict)
    """What every request carried beside its history (system prompt, tools), where the log says."""
    skipped: list[Skipped] = field(default_factory=list)
    """Lines of the file that could not be used; on its first session only."""

    @property
    def models(self) -> list[str]:
        """In the order of their first use."""
        return list(dict.fromkeys(sent.model for segment in self.segments for sent in segment.requests if sent.model))

    @property
    def length(self) -> int:
        """How many requests were sent."""
        return sum(len(segment.requests) for segment in self.segments)

    def requests(self) -> Iterator[RequestBody]:
        """Every request in turn. A body is made when it is asked for and shares its messages with the others."""
        key = formats.named(self.format).history_key
        for segment in self.segments:
            for sent in segment.requests:
                model = {"model": sent.model} if sent.model else {}
                yield RequestBody({**model, **self.head, key: segment.history[: sent.length]}, sent)


def by_model(entry: Json) -> bool:
    """Whether the model said it: a message of its role, or an item that is no message, no output and no request."""
    if "role" in entry:
        return entry["role"] in ("assistant", "model")
    kind = str(entry.get("type"))
    return not kind.endswith("_output") and kind not in ("agent_message", "compaction_trigger")
