"""Build the requests of a trial: a recorded or rewritten history, and the request parameters.

Recordings of `ibidem proxy --record` contain complete requests. Logs of agents have no system prompt and no tools, and
mostly no signatures of thinking. Providers require a declaration for each tool that a history calls, so tools are
declared from their calls. Unsigned thinking is removed. Both variants get the same parameters, so that they are
comparable. Parts that were filled in or omitted are reported.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from typing import Any

from .. import formats
from ..billing.thinking_size import signs_thinking
from ..model import Thinking, ToolCall
from ..recordings import Recording
from ..recordings.recording import Json
from ..tokens import BYTES_PER_TOKEN, TokenCounter, counter_for
from ..tool_arguments import arguments_by_name
from .providers import TRIAL_PROVIDERS, TrialProvider, UsedTool

SYSTEM_FIELDS = ("system", "instructions", "systemInstruction", "system_instruction")
"""Request fields with the system prompt. In some formats it is in the first messages instead."""
SCHEMA_TYPES: Mapping[type, str] = {
    str: "string",
    bool: "boolean",
    int: "integer",
    float: "number",
    list: "array",
    dict: "object",
}
BLOCK_TOKENS = 4
"""Estimated tokens of a block in addition to its texts."""
IMAGE_TOKENS = 1600
"""Estimated tokens of an image."""
SEALED_KEYS = frozenset({"signature", "encrypted_content", "thoughtSignature", "thought_signature"})
"""Keys of encrypted strings. Their length does not determine their tokens, so they are not counted."""


UNSIZED_KEYS = frozenset({"fileData", "file_data", "file_id", "file_url", "fileUri", "file_uri"})
"""Keys of files that the provider stores or downloads."""


class Variant(StrEnum):
    """Variant of a request: original (A) or rewritten (B)."""

    ORIGINAL = "A"
    REWRITTEN = "B"


class ThinkingLevel(IntEnum):
    """Amount of thinking to send, in both variants. If the provider rejects it, the trial uses the next level."""

    KEPT = 0
    STRIPPED = 1
    """Recorded thinking is omitted. The setting for new thinking is unchanged."""
    OFF = 2

    @property
    def description(self) -> str:
        """Text for reports."""
        return LEVEL_DESCRIPTIONS[self]


LEVEL_DESCRIPTIONS = (
    "recorded thinking is sent, if there is any",
    "recorded thinking is omitted in both variants",
    "recorded thinking is omitted in both variants, and thinking is turned off",
)


@dataclass(frozen=True, slots=True)
class SessionParameters:
    """Request parameters of a session: all fields except the history. Both variants use them."""

    fields: Json
    has_tools: bool
    """The recording has them complete, with tools."""
    first_level: ThinkingLevel
    """First thinking level to try."""
    notes: tuple[str, ...]
    """Parts that were filled in or omitted, as text."""


def collect_parameters(session: Recording, model: str) -> SessionParameters:
    """Collect the request parameters of a session, and fill in the tools if they are not recorded."""
    provider = TRIAL_PROVIDERS[session.format]
    fields = {key: value for key, value in session.head.items() if key in provider.forwarded_fields}
    has_tools = bool(session.head.get("tools"))
    notes = []
    if has_tools:
        client_tools = provider.client_tools(session.head)
        if len(client_tools) < len(session.head["tools"]):
            notes.append("tools that run at the provider are omitted")
        fields["tools"] = client_tools
        if omitted_fields := sorted(session.head.keys() - provider.forwarded_fields - IGNORED):
            notes.append(f"fields of recorded requests that are not sent: {', '.join(omitted_fields)}")
    else:
        fields.pop("tool_choice", None)
        fields["tools"] = provider.declare_tools(find_used_tools(session))
        notes.append("tools are not in the logs: used tools are declared from their calls")
        notes.append("settings (thinking, effort, temperature) are not in the logs: the model's defaults are used")
    if not fields["tools"]:
        del fields["tools"]
    if not any(key in session.head for key in SYSTEM_FIELDS) and not (has_tools and _has_instructions(session)):
        notes.append("the system prompt is not in the logs: none is sent")
    return SessionParameters(
        fields, has_tools, _first_level(session, provider, model, has_tools=has_tools), tuple(notes)
    )


IGNORED = frozenset({"model", "stream", "metadata", "store", "user", "stream_options"})
"""Fields that can be omitted without an effect on the model."""


def _has_instructions(session: Recording) -> bool:
    first = session.segments[0].history[:1]
    return bool(first) and first[0].get("role") in ("system", "developer")


def _first_level(session: Recording, provider: TrialProvider, model: str, *, has_tools: bool) -> ThinkingLevel:
    """Return the first thinking level to try.

    Thinking is sent only if the trial's model signed every part and its signature does not cover rewritten text.
    """
    parts = list(_thinking_parts(session))
    if not parts:
        return ThinkingLevel.KEPT
    has_enabled_thinking = has_tools and provider.has_thinking(session.head)
    if not has_enabled_thinking or not all(part.signed for part in parts) or set(session.models) - {model}:
        return ThinkingLevel.STRIPPED
    return ThinkingLevel.STRIPPED if signs_thinking(model) else ThinkingLevel.KEPT


def _thinking_parts(session: Recording) -> Iterator[Thinking]:
    dialect = formats.format_named(session.format)
    for segment in session.segments:
        for index in range(segment.inherited, len(segment.history)):
            message = dialect.read_message(index, segment.history[index])
            yield from (part for part in message.parts if isinstance(part, Thinking))


def find_used_tools(session: Recording) -> list[UsedTool]:
    """Return the tools that were called, in the order of their first calls, with schemas inferred from the calls."""
    dialect = formats.format_named(session.format)
    calls_by_name: dict[str, list[ToolCall]] = {}
    for segment in session.segments:
        for index in range(segment.inherited, len(segment.history)):
            for call in dialect.read_message(index, segment.history[index]).calls:
                if call.name and not call.bound:
                    calls_by_name.setdefault(call.name, []).append(call)
    return [UsedTool(name, _infer_schema(calls)) for name, calls in calls_by_name.items()]


def _infer_schema(calls: Sequence[ToolCall]) -> Json | None:
    call_arguments = [values for call in calls if (values := arguments_by_name(call)) is not None]
    if not call_arguments:
        return None
    counts = Counter(str(key) for each in call_arguments for key in each)
    properties = {key: _infer_property(each[key] for each in call_arguments if key in each) for key in sorted(counts)}
    required_keys = [key for key in properties if counts[key] == len(call_arguments)]
    return {"type": "object", "properties": properties, "required": required_keys}


def _infer_property(values: Iterable[Any]) -> Json:
    """Return the schema of values with a common type, or an empty one. Some providers require the items of a list."""
    value_list = list(values)
    types = sorted({SCHEMA_TYPES[type(value)] for value in value_list if type(value) in SCHEMA_TYPES})
    if len(types) != 1:
        return {}
    inside = [each for value in value_list if isinstance(value, list) for each in value]
    return {"type": types[0], **({"items": _infer_property(inside)} if types[0] == SCHEMA_TYPES[list] else {})}


@dataclass(frozen=True, slots=True)
class RequestBuilder:
    """Builds the request bodies of one session."""

    format: str
    parameters: SessionParameters
    model: str
    cache_key: str = ""
    """Cache key to send, for providers that use one."""

    @property
    def provider(self) -> TrialProvider:
        """Provider of the wire format."""
        return TRIAL_PROVIDERS[self.format]

    def request_fields(self, level: ThinkingLevel) -> Json:
        """Return the request parameters at a thinking level."""
        recorded_fields = (
            self.provider.disable_thinking(self.parameters.fields)
            if level is ThinkingLevel.OFF
            else self.parameters.fields
        )
        return self.provider.build_fields(recorded_fields, self.model, self.cache_key)

    def build_body(self, history: Sequence[Json], level: ThinkingLevel, prefix_length: int = 0) -> Json:
        """Return the request body for a history, with cache breakpoints.

        `prefix_length` is the history length of the point before, which is in the provider's cache.
        """
        key = formats.format_named(self.format).history_key
        entries = self.sent_entries(history, level)
        ends = [len(self.sent_entries(history[:prefix_length], level))] if prefix_length else []
        return self.provider.add_breakpoints({**self.request_fields(level), key: entries}, [*ends, len(entries)])

    def sent_entries(self, history: Sequence[Json], level: ThinkingLevel) -> list[Json]:
        """Return the history as it is sent at a thinking level."""
        if level is ThinkingLevel.KEPT:
            return list(history)
        return [
            stripped_entry for entry in history if (stripped_entry := self.provider.remove_thinking(entry)) is not None
        ]

    def output_limit(self, level: ThinkingLevel) -> int:
        """Return the maximum output tokens of a request."""
        return self.provider.output_limit(self.request_fields(level))


class EntrySizes:
    """Token counter for history entries, which counts each entry once."""

    def __init__(self, count: TokenCounter | None = None) -> None:
        self._count = count or counter_for()
        self._known: dict[int, tuple[Any, int]] = {}
        """Entry and count by the entry's id. The reference keeps the id from being reused."""

    def count_entries(self, entries: Iterable[Any]) -> int:
        """Return the tokens of these entries."""
        return sum(map(self._count_entry, entries))

    def count_shared(self, first: Sequence[Any], second: Sequence[Any]) -> int:
        """Return the tokens of the common prefix of two histories."""
        total = 0
        for mine, theirs in zip(first, second, strict=False):
            if mine is not theirs and mine != theirs:
                break
            total += self._count_entry(mine)
        return total

    def _count_entry(self, entry: Any) -> int:
        if id(entry) not in self._known:
            self._known[id(entry)] = entry, self.count_value(entry)
        return self._known[id(entry)][1]

    def count_value(self, value: Any) -> int:
        """Return the estimated tokens of any JSON value: its texts, and a few for each block."""
        total, waiting = 0, [value]
        while waiting:
            item = waiting.pop()
            if isinstance(item, str):
                total += IMAGE_TOKENS if item.startswith("data:image/") else self._count(item)
            elif isinstance(item, dict):
                total += BLOCK_TOKENS
                picture = item.get("type") == "base64"
                total += _media_tokens(item) if picture else IMAGE_TOKENS * (item.get("type") == "url")
                waiting += [
                    each for key, each in item.items() if key not in SEALED_KEYS and not (picture and key == "data")
                ]
            elif isinstance(item, list):
                waiting += item
            elif item is not None:
                total += 1
        return total


def refers_to_files(entry: Any) -> bool:
    """Return whether an entry refers to an external file, whose tokens are unknown."""
    waiting = [entry]
    while waiting:
        item = waiting.pop()
        if isinstance(item, dict):
            source = item.get("source")
            if UNSIZED_KEYS & item.keys() or (
                item.get("type") == "document" and isinstance(source, dict) and source.get("type") == "url"
            ):
                return True
            waiting += item.values()
        elif isinstance(item, list):
            waiting += item
    return False


def _media_tokens(source: Json) -> int:
    """Return the estimated tokens of an image or document.

    A document counts as if its bytes were text. A lower estimate could exceed the budget.
    """
    data, kind = source.get("data"), source.get("media_type")
    if not isinstance(data, str) or not isinstance(kind, str) or kind.startswith("image/"):
        return IMAGE_TOKENS
    return max(IMAGE_TOKENS, len(data) // BYTES_PER_TOKEN)
