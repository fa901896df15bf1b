"""Description of a provider for trials (`TrialProvider`), and its parsed response (`ModelReply`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from ...billing.usage import Usage
from ...model import ToolCall, string
from ...recordings.log import decoded
from ...recordings.recording import Json

StopReason = Literal["ok", "truncated", "refused", "failed"]
"""How a response ended. All except `ok` are dropped and counted."""


class UsedTool(NamedTuple):
    """A tool with the schema that its recorded calls imply."""

    name: str
    schema: Json | None
    """Schema of the arguments; None if they are free text."""


@dataclass(frozen=True, slots=True)
class ModelReply:
    """A parsed response of the model."""

    calls: tuple[ToolCall, ...] = ()
    text: str = ""
    stop: StopReason = "failed"
    usage: Usage | None = None
    """Usage by the provider's count. If it is None, the run log counts the maximum cost."""


def _unmarked(body: Json, ends: Sequence[int]) -> Json:
    return body


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialProvider:
    """Data and functions that the requests and responses of one provider need."""

    format: str
    """Wire format, a name of `ibidem.formats`."""
    house: str
    """Name of the provider in the price list."""
    base: str
    clients: tuple[str, ...] = ()
    """Agents that always use this provider, unless configured otherwise."""
    base_variables: tuple[str, ...]
    """Environment variables for the base URL, as in the provider's SDKs."""
    key_variables: tuple[str, ...]
    token_variables: tuple[str, ...] = ()
    """Environment variables for subscription tokens, which are rejected with an explanation."""
    subscription: Callable[[str], bool] = lambda _: False
    """Return whether a key is a subscription token."""
    address: Callable[[str], str]
    """Return the path of a model below the base URL."""
    headers: Callable[[str], dict[str, str]]
    """Return the headers for a key."""
    fields: frozenset[str]
    """Recorded request parameters that are sent."""
    head: Callable[[Json, str, str], Json]
    """Return the request parameters to send, from the recorded ones, the model and a cache key."""
    limit: Callable[[Mapping[str, Any]], int]
    """Return the maximum output tokens for these request parameters, including thinking."""
    thinks: Callable[[Mapping[str, Any]], bool]
    """Return whether these request parameters enable thinking."""
    quiet: Callable[[Json], Json]
    """Return the request parameters without thinking."""
    own_tools: Callable[[Mapping[str, Any]], list[Any]]
    """Return the tools that run at the client."""
    declared: Callable[[Sequence[UsedTool]], list[Any]]
    """Return the declarations of used tools."""
    without_thinking: Callable[[Json], Json | None]
    """Return a history entry without thinking, or None if it is then empty."""
    marked: Callable[[Json, Sequence[int]], Json] = _unmarked
    """Return a body with cache breakpoints after these numbers of history entries, and before the history."""
    reply: Callable[[Sequence[Json]], ModelReply] = field(default=lambda _: ModelReply())
    """Parse the events of a response."""


MAX_OUTPUT = 8192
"""Maximum output tokens of a call, without the thinking budget of the request."""


def events_in(data: bytes) -> list[Json]:
    """Return the JSON objects in a stream of server-sent events."""
    found = []
    for line in data.split(b"\n"):
        if line.startswith(b"data:"):
            value = decoded(line[5:].strip())
            if isinstance(value, dict):
                found.append(value)
    return found


def called(name: Any, given: Any, number: int = 0) -> ToolCall:
    """Return a call in a response as a `ToolCall`, like those in histories."""
    return ToolCall(f"answer-{number}", string(name), given, (), ())


def number_in(found: Any, *path: str) -> int:
    """Return the positive integer at a path of nested objects, or 0."""
    for name in path:
        found = found.get(name) if isinstance(found, dict) else None
    return found if isinstance(found, int) and not isinstance(found, bool) and found > 0 else 0


def openai_usage(found: Any, side_in: str, side_out: str) -> Usage | None:
    """Return the usage in OpenAI's layout, whose input tokens include cache reads, or None without usage."""
    if not isinstance(found, dict):
        return None
    details = f"{side_in}_tokens_details"
    total, read = number_in(found, f"{side_in}_tokens"), number_in(found, details, "cached_tokens")
    written = number_in(found, details, "cache_write_tokens")
    reasoning = number_in(found, f"{side_out}_tokens_details", "reasoning_tokens")
    output = number_in(found, f"{side_out}_tokens")
    return Usage(max(0, total - read - written), read, written, output=output, reasoning=reasoning)


def each_dict(value: Any) -> Iterable[Json]:
    """Return the objects in a list, or an empty tuple for other values."""
    return (each for each in value if isinstance(each, dict)) if isinstance(value, list) else ()
