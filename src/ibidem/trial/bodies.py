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
from ..billing.thinking import signs_thinking
from ..calls import arguments
from ..model import Thinking, ToolCall
from ..recordings import Recording
from ..recordings.recording import Json
from ..tokens import BYTES_PER_TOKEN, TokenCounter, counter
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


class Arm(StrEnum):
    """Variant of a request: original (A) or rewritten (B)."""

    ORIGINAL = "A"
    REWRITTEN = "B"


class ThinkingRung(IntEnum):
    """Amount of thinking to send, in both variants. If the provider rejects it, the trial uses the next level."""

    KEPT = 0
    STRIPPED = 1
    """Recorded thinking is omitted. The setting for new thinking is unchanged."""
    OFF = 2

    @property
    def words(self) -> str:
        """Text for reports."""
        return RUNG_WORDS[self]


RUNG_WORDS = (
    "recorded thinking is sent, if there is any",
    "recorded thinking is omitted in both variants",
    "recorded thinking is omitted in both variants, and thinking is turned off",
)


@dataclass(frozen=True, slots=True)
class SessionHead:
    """Request parameters of a session: all fields except the history. Both variants use them."""

    fields: Json
    whole: bool
    """The recording has them complete, with tools."""
    rung: ThinkingRung
    """First thinking level to try."""
    lacking: tuple[str, ...]
    """Parts that were filled in or omitted, as text."""


def session_head(session: Recording, model: str) -> SessionHead:
    """Collect the request parameters of a session, and fill in the tools if they are not recorded."""
    provider = TRIAL_PROVIDERS[session.format]
    fields = {key: value for key, value in session.head.items() if key in provider.fields}
    whole = bool(session.head.get("tools"))
    lacking = []
    if whole:
        own = provider.own_tools(session.head)
        if len(own) < len(session.head["tools"]):
            lacking.append("tools that run at the provider are omitted")
        fields["tools"] = own
        if left := sorted(session.head.keys() - provider.fields - IGNORED):
            lacking.append(f"fields of recorded requests that are not sent: {', '.join(left)}")
    else:
        fields.pop("tool_choice", None)
        fields["tools"] = provider.declared(used_tools(session))
        lacking.append("tools are not in the logs: used tools are declared from their calls")
        lacking.append("settings (thinking, effort, temperature) are not in the logs: the model's defaults are used")
    if not fields["tools"]:
        del fields["tools"]
    if not any(key in session.head for key in SYSTEM_FIELDS) and not (whole and _instructed(session)):
        lacking.append("the system prompt is not in the logs: none is sent")
    return SessionHead(fields, whole, _rung(session, provider, model, whole=whole), tuple(lacking))


IGNORED = frozenset({"model", "stream", "metadata", "store", "user", "stream_options"})
"""Fields that can be omitted without an effect on the model."""


def _instructed(session: Recording) -> bool:
    first = session.segments[0].history[:1]
    return bool(first) and first[0].get("role") in ("system", "developer")


def _rung(session: Recording, provider: TrialProvider, model: str, *, whole: bool) -> ThinkingRung:
    """Return the first thinking level to try.

    Thinking is sent only if the trial's model signed every part and its signature does not cover rewritten text.
    """
    thoughts = list(_thoughts(session))
    if not thoughts:
        return ThinkingRung.KEPT
    asked = whole and provider.thinks(session.head)
    if not asked or not all(part.signed for part in thoughts) or set(session.models) - {model}:
        return ThinkingRung.STRIPPED
    return ThinkingRung.STRIPPED if signs_thinking(model) else ThinkingRung.KEPT


def _thoughts(session: Recording) -> Iterator[Thinking]:
    dialect = formats.named(session.format)
    for segment in session.segments:
        for index in range(segment.inherited, len(segment.history)):
            message = dialect.read(index, segment.history[index])
            yield from (part for part in message.parts if isinstance(part, Thinking))


def used_tools(session: Recording) -> list[UsedTool]:
    """Return the tools that were called, in the order of their first calls, with schemas inferred from the calls."""
    dialect = formats.named(session.format)
    made: dict[str, list[ToolCall]] = {}
    for segment in session.segments:
        for index in range(segment.inherited, len(segment.history)):
            for call in dialect.read(index, segment.history[index]).calls:
                if call.name and not call.bound:
                    made.setdefault(call.name, []).append(call)
    return [UsedTool(name, _schema(calls)) for name, calls in made.items()]


def _schema(calls: Sequence[ToolCall]) -> Json | None:
    given = [found for call in calls if (found := arguments(call)) is not None]
    if not given:
        return None
    counts = Counter(str(key) for each in given for key in each)
    properties = {key: _property(each[key] for each in given if key in each) for key in sorted(counts)}
    required = [key for key in properties if counts[key] == len(given)]
    return {"type": "object", "properties": properties, "required": required}


def _property(values: Iterable[Any]) -> Json:
    """Return the schema of values with a common type, or an empty one. Some providers require the items of a list."""
    known = list(values)
    types = sorted({SCHEMA_TYPES[type(value)] for value in known if type(value) in SCHEMA_TYPES})
    if len(types) != 1:
        return {}
    inside = [each for value in known if isinstance(value, list) for each in value]
    return {"type": types[0], **({"items": _property(inside)} if types[0] == SCHEMA_TYPES[list] else {})}


@dataclass(frozen=True, slots=True)
class Asker:
    """Builds the request bodies of one session."""

    format: str
    head: SessionHead
    model: str
    cache_name: str = ""
    """Cache key to send, for providers that use one."""

    @property
    def provider(self) -> TrialProvider:
        """Provider of the wire format."""
        return TRIAL_PROVIDERS[self.format]

    def fields(self, rung: ThinkingRung) -> Json:
        """Return the request parameters at a thinking level."""
        kept = self.provider.quiet(self.head.fields) if rung is ThinkingRung.OFF else self.head.fields
        return self.provider.head(kept, self.model, self.cache_name)

    def body(self, history: Sequence[Json], rung: ThinkingRung, before: int = 0) -> Json:
        """Return the request body for a history, with cache breakpoints.

        `prefix_length` is the history length of the point before, which is in the provider's cache.
        """
        key = formats.named(self.format).history_key
        entries = self.entries(history, rung)
        ends = [len(self.entries(history[:before], rung))] if before else []
        return self.provider.marked({**self.fields(rung), key: entries}, [*ends, len(entries)])

    def entries(self, history: Sequence[Json], rung: ThinkingRung) -> list[Json]:
        """Return the history as it is sent at a thinking level."""
        if rung is ThinkingRung.KEPT:
            return list(history)
        return [left for entry in history if (left := self.provider.without_thinking(entry)) is not None]

    def limit(self, rung: ThinkingRung) -> int:
        """Return the maximum output tokens of a request."""
        return self.provider.limit(self.fields(rung))


class EntrySizes:
    """Token counter for history entries, which counts each entry once."""

    def __init__(self, count: TokenCounter | None = None) -> None:
        self._count = count or counter()
        self._known: dict[int, tuple[Any, int]] = {}
        """Entry and count by the entry's id. The reference keeps the id from being reused."""

    def of(self, entries: Iterable[Any]) -> int:
        """Return the tokens of these entries."""
        return sum(map(self._one, entries))

    def shared(self, one: Sequence[Any], other: Sequence[Any]) -> int:
        """Return the tokens of the common prefix of two histories."""
        total = 0
        for mine, theirs in zip(one, other, strict=False):
            if mine is not theirs and mine != theirs:
                break
            total += self._one(mine)
        return total

    def _one(self, entry: Any) -> int:
        if id(entry) not in self._known:
            self._known[id(entry)] = entry, self.value(entry)
        return self._known[id(entry)][1]

    def value(self, value: Any) -> int:
        """Return the estimated tokens of any JSON value: its texts, and a few for each block."""
        total, waiting = 0, [value]
        while waiting:
            one = waiting.pop()
            if isinstance(one, str):
                total += IMAGE_TOKENS if one.startswith("data:image/") else self._count(one)
            elif isinstance(one, dict):
                total += BLOCK_TOKENS
                picture = one.get("type") == "base64"
                total += _picture_tokens(one) if picture else IMAGE_TOKENS * (one.get("type") == "url")
                waiting += [
                    each for key, each in one.items() if key not in SEALED_KEYS and not (picture and key == "data")
                ]
            elif isinstance(one, list):
                waiting += one
            elif one is not None:
                total += 1
        return total


def has_unsized(entry: Any) -> bool:
    """Return whether an entry refers to an external file, whose tokens are unknown."""
    waiting = [entry]
    while waiting:
        one = waiting.pop()
        if isinstance(one, dict):
            source = one.get("source")
            if UNSIZED_KEYS & one.keys() or (
                one.get("type") == "document" and isinstance(source, dict) and source.get("type") == "url"
            ):
                return True
            waiting += one.values()
        elif isinstance(one, list):
            waiting += one
    return False


def _picture_tokens(source: Json) -> int:
    """Return the estimated tokens of an image or document.

    A document counts as if its bytes were text. A lower estimate could exceed the budget.
    """
    data, kind = source.get("data"), source.get("media_type")
    if not isinstance(data, str) or not isinstance(kind, str) or kind.startswith("image/"):
        return IMAGE_TOKENS
    return max(IMAGE_TOKENS, len(data) // BYTES_PER_TOKEN)
