"""Description of a provider for trials (`TrialProvider`), and its parsed response (`ModelReply`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from ...billing.usage import Usage
from ...model import ToolCall, string_or_empty
from ...recordings.log_file import decode_row
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


def _return_body(body: Json, ends: Sequence[int]) -> Json:
    return body


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialProvider:
    """Data and functions that the requests and responses of one provider need."""

    format: str
    """Wire format, a name of `ibidem.formats`."""
    price_list_name: str
    """Name of the provider in the price list."""
    base_url: str
    exclusive_agents: tuple[str, ...] = ()
    """Agents that always use this provider, unless configured otherwise."""
    base_variables: tuple[str, ...]
    """Environment variables for the base URL, as in the provider's SDKs."""
    key_variables: tuple[str, ...]
    token_variables: tuple[str, ...] = ()
    """Environment variables for subscription tokens, which are rejected with an explanation."""
    is_subscription: Callable[[str], bool] = lambda _: False
    """Return whether a key is a subscription token."""
    path_for: Callable[[str], str]
    """Return the path of a model below the base URL."""
    auth_headers: Callable[[str], dict[str, str]]
    """Return the headers for a key."""
    forwarded_fields: frozenset[str]
    """Recorded request parameters that are sent."""
    build_fields: Callable[[Json, str, str], Json]
    """Return the request parameters to send, from the recorded ones, the model and a cache key."""
    output_limit: Callable[[Mapping[str, Any]], int]
    """Return the maximum output tokens for these request parameters, including thinking."""
    has_thinking: Callable[[Mapping[str, Any]], bool]
    """Return whether these request parameters enable thinking."""
    disable_thinking: Callable[[Json], Json]
    """Return the request parameters without thinking."""
    client_tools: Callable[[Mapping[str, Any]], list[Any]]
    """Return the tools that run at the client."""
    declare_tools: Callable[[Sequence[UsedTool]], list[Any]]
    """Return the declarations of used tools."""
    remove_thinking: Callable[[Json], Json | None]
    """Return a history entry without thinking, or None if it is then empty."""
    add_breakpoints: Callable[[Json, Sequence[int]], Json] = _return_body
    """Return a body with cache breakpoints after these numbers of history entries, and before the history."""
    parse_reply: Callable[[Sequence[Json]], ModelReply] = field(default=lambda _: ModelReply())
    """Parse the events of a response."""


MAX_OUTPUT = 8192
"""Maximum output tokens of a call, without the thinking budget of the request."""


def parse_events(data: bytes) -> list[Json]:
    """Return the JSON objects in a stream of server-sent events."""
    events = []
    for line in data.split(b"\n"):
        if line.startswith(b"data:"):
            value = decode_row(line[5:].strip())
            if isinstance(value, dict):
                events.append(value)
    return events


def to_tool_call(name: Any, arguments: Any, number: int = 0) -> ToolCall:
    """Return a call in a response as a `ToolCall`, like those in histories."""
    return ToolCall(f"answer-{number}", string_or_empty(name), arguments, (), ())


def read_count(value: Any, *path: str) -> int:
    """Return the positive integer at a path of nested objects, or 0."""
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0


def parse_openai_usage(usage: Any, side_in: str, side_out: str) -> Usage | None:
    """Return the usage in OpenAI's layout, whose input tokens include cache reads, or None without usage."""
    if not isinstance(usage, dict):
        return None
    details = f"{side_in}_tokens_details"
    total, read = read_count(usage, f"{side_in}_tokens"), read_count(usage, details, "cached_tokens")
    write_tokens = read_count(usage, details, "cache_write_tokens")
    reasoning = read_count(usage, f"{side_out}_tokens_details", "reasoning_tokens")
    output = read_count(usage, f"{side_out}_tokens")
    return Usage(max(0, total - read - write_tokens), read, write_tokens, output=output, reasoning=reasoning)


def iter_dicts(value: Any) -> Iterable[Json]:
    """Return the objects in a list, or an empty tuple for other values."""
    return (item for item in value if isinstance(item, dict)) if isinstance(value, list) else ()
