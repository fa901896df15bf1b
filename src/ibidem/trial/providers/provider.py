"""What there is to know of a provider to ask it, and what it answers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from ...billing.usage import Usage
from ...model import ToolCall, string
from ...recordings.log import decoded
from ...recordings.recording import Json

StopReason = Literal["ok", "truncated", "refused", "failed"]
"""How an answer ended. All but the first are dropped and counted."""


class UsedTool(NamedTuple):
    """A tool as far as its calls tell."""

    name: str
    schema: Json | None
    """Of its arguments; None if they are free text."""


@dataclass(frozen=True, slots=True)
class ModelReply:
    calls: tuple[ToolCall, ...] = ()
    text: str = ""
    stop: StopReason = "failed"
    usage: Usage | None = None
    """None where the answer does not say: then it is paid for as if it had cost the most that it could."""


def _unmarked(body: Json, ends: Sequence[int]) -> Json:
    return body


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialProvider:
    format: str
    """As in `ibidem.formats`."""
    house: str
    """In the price list."""
    base: str
    clients: tuple[str, ...] = ()
    """Agents that ask this provider and nobody else, unless somebody leads them elsewhere."""
    base_variables: tuple[str, ...]
    """What moves it, as in the SDKs of the provider."""
    key_variables: tuple[str, ...]
    token_variables: tuple[str, ...] = ()
    """What subscriptions are used with: a reason to say why that does not do."""
    subscription: Callable[[str], bool] = lambda _: False
    """Whether a key is none that may be used for this."""
    address: Callable[[str], str]
    """Where a model is asked, below the base."""
    headers: Callable[[str], dict[str, str]]
    """With a key."""
    fields: frozenset[str]
    """Of a recorded request, beside its history, that are sent again."""
    head: Callable[[Json, str, str], Json]
    """Fields to send, from those recorded: with the model, a name for the cache, and a limit to the output."""
    limit: Callable[[Mapping[str, Any]], int]
    """Tokens of output that such a head allows, thinking with it."""
    thinks: Callable[[Mapping[str, Any]], bool]
    """Whether such a head asks for thinking."""
    quiet: Callable[[Json], Json]
    """A head without thinking."""
    own_tools: Callable[[Mapping[str, Any]], list[Any]]
    """Those among its tools that the client runs."""
    declared: Callable[[Sequence[UsedTool]], list[Any]]
    without_thinking: Callable[[Json], Json | None]
    """An entry of a history without thinking; None if nothing is left of it."""
    marked: Callable[[Json, Sequence[int]], Json] = _unmarked
    """A body that asks to be kept up to the end of these lengths of its history, and its head as well."""
    reply: Callable[[Sequence[Json]], ModelReply] = field(default=lambda _: ModelReply())
    """What the events of an answer say."""


MAX_OUTPUT = 8192
"""Tokens that an answer may take, beside a budget for thinking that the request names."""


def events_in(data: bytes) -> list[Json]:
    """The JSON values of a stream of server-sent events."""
    found = []
    for line in data.split(b"\n"):
        if line.startswith(b"data:"):
            value = decoded(line[5:].strip())
            if isinstance(value, dict):
                found.append(value)
    return found


def called(name: Any, given: Any, number: int = 0) -> ToolCall:
    """A call of an answer, as calls of histories are."""
    return ToolCall(f"answer-{number}", string(name), given, (), ())


def number_in(found: Any, *path: str) -> int:
    for name in path:
        found = found.get(name) if isinstance(found, dict) else None
    return found if isinstance(found, int) and not isinstance(found, bool) and found > 0 else 0


def openai_usage(found: Any, side_in: str, side_out: str) -> Usage | None:
    """Where what was read from the cache is part of the input."""
    if not isinstance(found, dict):
        return None
    details = f"{side_in}_tokens_details"
    total, read = number_in(found, f"{side_in}_tokens"), number_in(found, details, "cached_tokens")
    written = number_in(found, details, "cache_write_tokens")
    reasoning = number_in(found, f"{side_out}_tokens_details", "reasoning_tokens")
    output = number_in(found, f"{side_out}_tokens")
    return Usage(max(0, total - read - written), read, written, output=output, reasoning=reasoning)


def each_dict(value: Any) -> Iterable[Json]:
    return (each for each in value if isinstance(each, dict)) if isinstance(value, list) else ()
