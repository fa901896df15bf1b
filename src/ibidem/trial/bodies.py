"""What is sent: the recorded history of a point, or the rewritten one, with all that stands beside it in a request.

Recordings of `ibidem proxy --record` hold whole requests. Logs of agents hold neither system prompt nor tools, and
mostly no signatures of thinking: providers want tools declared that a history calls, so those are declared from their
calls, and thinking is taken out. Both arms are sent alike, so that they can be compared; what was filled in or left
out is told.
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
"""Where instructions stand beside a history. In some formats they are its first messages."""
SCHEMA_TYPES: Mapping[type, str] = {
    str: "string",
    bool: "boolean",
    int: "integer",
    float: "number",
    list: "array",
    dict: "object",
}
BLOCK_TOKENS = 4
"""Tokens that a block takes beside its texts, about."""
IMAGE_TOKENS = 1600
"""Tokens of an image, about."""
SEALED_KEYS = frozenset({"signature", "encrypted_content", "thoughtSignature", "thought_signature"})
"""Strings that count for nothing by their length."""


UNSIZED_KEYS = frozenset({"fileData", "file_data", "file_id", "file_url", "fileUri", "file_uri"})
"""By which a request names files that the provider has, or fetches."""


class Arm(StrEnum):
    ORIGINAL = "A"
    REWRITTEN = "B"


class ThinkingRung(IntEnum):
    """What is sent of thinking, in both arms. Where a provider refuses it, the whole trial goes on one rung below."""

    KEPT = 0
    STRIPPED = 1
    """None is sent back. Whether the model may think is as it was recorded."""
    OFF = 2

    @property
    def words(self) -> str:
        return RUNG_WORDS[self]


RUNG_WORDS = (
    "recorded thinking is sent, as far as there is any",
    "recorded thinking is left out in both arms",
    "recorded thinking is left out in both arms, and the model is not asked to think",
)


@dataclass(frozen=True, slots=True)
class SessionHead:
    """What every request of a session carries beside its history, in both arms."""

    fields: Json
    whole: bool
    """It was recorded, tools and all."""
    rung: ThinkingRung
    """The highest that may be tried."""
    lacking: tuple[str, ...]
    """What was filled in or left out, in words."""


def session_head(session: Recording, model: str) -> SessionHead:
    provider = TRIAL_PROVIDERS[session.format]
    fields = {key: value for key, value in session.head.items() if key in provider.fields}
    whole = bool(session.head.get("tools"))
    lacking = []
    if whole:
        own = provider.own_tools(session.head)
        if len(own) < len(session.head["tools"]):
            lacking.append("tools that the provider runs are not offered")
        fields["tools"] = own
        if left := sorted(session.head.keys() - provider.fields - IGNORED):
            lacking.append(f"fields of recorded requests that are not sent: {', '.join(left)}")
    else:
        fields.pop("tool_choice", None)
        fields["tools"] = provider.declared(used_tools(session))
        lacking.append("tools are not in the logs: those that were used are declared from their calls")
        lacking.append("settings (thinking, effort, temperature) are not in the logs: the model's own are used")
    if not fields["tools"]:
        del fields["tools"]
    if not any(key in session.head for key in SYSTEM_FIELDS) and not (whole and _instructed(session)):
        lacking.append("the system prompt is not in the logs: none is sent")
    return SessionHead(fields, whole, _rung(session, provider, model, whole=whole), tuple(lacking))


IGNORED = frozenset({"model", "stream", "metadata", "store", "user", "stream_options"})
"""Fields whose absence changes nothing for the model."""


def _instructed(session: Recording) -> bool:
    first = session.segments[0].history[:1]
    return bool(first) and first[0].get("role") in ("system", "developer")


def _rung(session: Recording, provider: TrialProvider, model: str, *, whole: bool) -> ThinkingRung:
    """Thinking is sent back only where all of it is signed, by the model that is asked, and not against what is
    rewritten."""
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
    """Tools that were called, in the order of their first calls, with arguments as those calls have them."""
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
    """The type that all values have. A list says what is in it, as some providers demand."""
    known = list(values)
    types = sorted({SCHEMA_TYPES[type(value)] for value in known if type(value) in SCHEMA_TYPES})
    if len(types) != 1:
        return {}
    inside = [each for value in known if isinstance(value, list) for each in value]
    return {"type": types[0], **({"items": _property(inside)} if types[0] == SCHEMA_TYPES[list] else {})}


@dataclass(frozen=True, slots=True)
class Asker:
    """Makes bodies of one session."""

    format: str
    head: SessionHead
    model: str
    cache_name: str = ""
    """By which a provider finds what it keeps, where it wants one."""

    @property
    def provider(self) -> TrialProvider:
        return TRIAL_PROVIDERS[self.format]

    def fields(self, rung: ThinkingRung) -> Json:
        kept = self.provider.quiet(self.head.fields) if rung is ThinkingRung.OFF else self.head.fields
        return self.provider.head(kept, self.model, self.cache_name)

    def body(self, history: Sequence[Json], rung: ThinkingRung, before: int = 0) -> Json:
        """`before` is the length of the history up to which the point before it was asked."""
        key = formats.named(self.format).history_key
        entries = self.entries(history, rung)
        ends = [len(self.entries(history[:before], rung))] if before else []
        return self.provider.marked({**self.fields(rung), key: entries}, [*ends, len(entries)])

    def entries(self, history: Sequence[Json], rung: ThinkingRung) -> list[Json]:
        if rung is ThinkingRung.KEPT:
            return list(history)
        return [left for entry in history if (left := self.provider.without_thinking(entry)) is not None]

    def limit(self, rung: ThinkingRung) -> int:
        """Tokens of output that are allowed."""
        return self.provider.limit(self.fields(rung))


class EntrySizes:
    """Tokens of entries of histories, each counted once."""

    def __init__(self, count: TokenCounter | None = None) -> None:
        self._count = count or counter()
        self._known: dict[int, tuple[Any, int]] = {}
        """By the id of an entry, which is held: what is gone may leave its id to another."""

    def of(self, entries: Iterable[Any]) -> int:
        return sum(map(self._one, entries))

    def shared(self, one: Sequence[Any], other: Sequence[Any]) -> int:
        """Tokens of the entries with which both begin."""
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
        """Tokens of any value: its texts, and a little for each block."""
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
    """Whether it names a file that lies elsewhere, of which nobody here can say what it costs."""
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
    """Of an image, whatever its bytes; of a document as many as its bytes would be as text, or no budget would hold."""
    data, kind = source.get("data"), source.get("media_type")
    if not isinstance(data, str) or not isinstance(kind, str) or kind.startswith("image/"):
        return IMAGE_TOKENS
    return max(IMAGE_TOKENS, len(data) // BYTES_PER_TOKEN)
