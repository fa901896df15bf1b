"""Demands of the providers, one class each, and the `Violation`s they report.

A class names the formats that make its demand. Its source is in docs/providers.md, under its `name`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from ..model import (
    MALFORMED_KIND,
    NO_OBJECT_KIND,
    STORED_KIND,
    Conversation,
    Message,
    Opaque,
    Part,
    Path,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
)
from .pairing import Pairing, pair_calls

ANTHROPIC = "anthropic"
CHAT = "openai-chat"
RESPONSES = "openai-responses"
GEMINI = "gemini"
EVERY = frozenset({ANTHROPIC, CHAT, RESPONSES, GEMINI})


@dataclass(frozen=True, slots=True)
class Violation:
    """A demand of the provider that this request does not meet."""

    rule: str
    """Name of the rule: a heading of docs/providers.md."""
    position: str
    """Position in the request: `messages[3].content[0]`."""
    message: str
    """The fault, as a sentence."""

    def __str__(self) -> str:
        return f"{self.position}: {self.message} [{self.rule}]"


class Rule(Protocol):
    """One demand. Positions are those of the history as given; an inserted message is named after its neighbour."""

    @property
    def name(self) -> str:
        """Heading of docs/providers.md that gives the source of the demand."""

    @property
    def formats(self) -> frozenset[str]:
        """Names of the formats that make this demand."""

    def find_violations(self, conv: Conversation) -> Iterable[Violation]:
        """Return each violation of this rule in the conversation."""
        ...


def sets_output(message: Message) -> bool:
    """Return True for a system message without content that sets the output of later turns. It may be at any position
    (https://platform.claude.com/docs/build-with-claude/effort-per-message)."""
    wire = message.wire
    return message.role == "system" and not message.parts and isinstance(wire, dict) and "output_config" in wire


def position_text(conv: Conversation, message: Message | None = None, path: Path = ()) -> str:
    """Return the position in the notation of `Violation.position`."""
    text = conv.dialect.history_key
    if message is not None:
        steps: Path = (message.index, *path) if message.index >= 0 else ("(inserted)",)
        for step in steps:
            text += f"[{step}]" if isinstance(step, int) else f".{step}"
    return text


class MessageStructure:
    """A message is an object with a role and content of the right type."""

    name = "shape"
    formats = EVERY

    def find_violations(self, conv: Conversation) -> Iterator[Violation]:
        for message in conv.messages:
            if message.role == MALFORMED_KIND:
                yield Violation(
                    self.name, position_text(conv, message), "This is not a message: an object with a role is expected."
                )
            for part in message.parts:
                if type(part) is ToolResult:
                    yield from self._find_malformed(conv, message, part.segments)
                elif type(part) is Opaque:
                    yield from self._find_malformed(conv, message, (part,))

    def _find_malformed(self, conv: Conversation, message: Message, parts: Iterable[Part]) -> Iterator[Violation]:
        for part in parts:
            if type(part) is Opaque and part.kind == MALFORMED_KIND and part.path:
                yield Violation(
                    self.name, position_text(conv, message, part.path), "The content here is of no known type."
                )


class HistoryNotEmpty:
    """A request has at least one message."""

    name = "history-not-empty"
    formats = EVERY

    def find_violations(self, conv: Conversation) -> Iterator[Violation]:
        if conv.whole and not conv.messages and not conv.server_history:
            yield Violation(self.name, position_text(conv), "The history is empty.")


KNOWN_ROLES: dict[str, frozenset[str]] = {
    ANTHROPIC: frozenset({"user", "assistant", "system"}),
    CHAT: frozenset({"system", "developer", "user", "assistant", "tool", "function"}),
    RESPONSES: frozenset({"system", "developer", "user", "assistant"}),
    GEMINI: frozenset({"user", "model", "function"}),
}


class KnownRoles:
    """A message has a role that the provider knows."""

    name = "known-roles"
    formats = EVERY

    def find_violations(self, conv: Conversation) -> Iterator[Violation]:
        known_roles = KNOWN_ROLES[conv.dialect.name]
        for message in conv.messages:
            role = message.wire.get("role") if isinstance(message.wire, dict) else None
            if isinstance(role, str) and role not in known_roles:
                yield Violation(
                    self.name,
                    position_text(conv, message),
                    f"Unknown role {role!r}: one of {', '.join(sorted(known_roles))}.",
                )


class FirstIsUser:
    """The first message is from the user."""

    name = "first-is-user"
    formats = frozenset({ANTHROPIC})

    def find_violations(self, conv: Conversation) -> Iterator[Violation]:
        if conv.messages and conv.messages[0].speaker != "user":
            first = conv.messages[0]
            yield Violation(
                self.name, position_text(conv, first), f"The first message must be the user's, not {first.role!r}."
            )


class AlternatingRoles:
    """User and assistant messages alternate. A system message between them does not count."""

    name = "alternating-roles"
    formats = frozenset({ANTHROPIC})

    def find_violations(self, conv: Conversation) -> Iterator[Violation]:
        previous_speaker = ""
        for message in conv.messages:
            if message.role == "system":
                continue
            if message.speaker == previous_speaker:
                yield Violation(self.name, position_text(conv, message), f"Two {previous_speaker} messages in a row.")
            previous_speaker = message.speaker


class SystemMessages:
    """A system message between the turns holds text only and follows a user message."""

    name = "system-messages"
    formats = frozenset({ANTHROPIC})

    def find_violations(self, conv: Conversation) -> Iterator[Violation]:
        previous_speaker = ""
        for message in conv.messages:
            if sets_output(message):
                continue
            if message.role == "system":
                if previous_speaker != "user":
                    yield Violation(
                        self.name, position_text(conv, message), "A system message must follow a user message."
                    )
                if not all(isinstance(part, Text) for part in message.parts):
                    yield Violation(self.name, position_text(conv, message), "A system message holds text only.")
            previous_speaker = message.speaker


class LastIsNotAssistant:
    """The last message is not from the assistant. Current models reject such a history."""

    name = "last-is-not-assistant"
    formats = frozenset({ANTHROPIC})

    def find_violations(self, conv: Conversation) -> Iterator[Violation]:
        if conv.messages and conv.messages[-1].role == "assistant":
            yield Violation(
                self.name, position_text(conv, conv.messages[-1]), "The last message must not be the assistant's."
            )


WHERE_ANSWERED = {"next": "in the next message", "following": "right after it", "later": "anywhere after it"}


class CallsAnswered:
    """Every call has a result where the provider expects it."""

    name = "calls-answered"
    formats = EVERY

    def find_unpaired(self, conv: Conversation, pairing: Pairing) -> Iterator[Violation]:
        place = WHERE_ANSWERED[conv.dialect.answers]
        for missing in pairing.unanswered:
            message, call = conv.messages[missing.position], missing.call
            yield Violation(
                self.name, position_text(conv, message, call.path), f"Call {call.id!r} has no result {place}."
            )


ORPHAN_REASONS = {
    "unknown": "answers no call in this request",
    "misplaced": "is not at the position where the provider expects it",
    "duplicate": "answers a call that has its result already",
}


class ResultsAnswer:
    """Every result answers one call, at the position the provider expects, and no call has two results."""

    name = "results-answer-calls"
    formats = EVERY

    def find_unpaired(self, conv: Conversation, pairing: Pairing) -> Iterator[Violation]:
        for stray in pairing.strays:
            message, result = conv.messages[stray.position], stray.result
            reason = ORPHAN_REASONS[stray.reason]
            yield Violation(
                self.name,
                position_text(conv, message, result.path),
                f"Result {result.call_id!r} {reason}.",
            )


class UniqueIds:
    """A call id is used once."""

    name = "unique-call-ids"
    formats = frozenset({ANTHROPIC})

    def find_violations(self, conv: Conversation) -> Iterator[Violation]:
        seen_ids: set[str] = set()
        for message in conv.messages:
            for call in message.calls:
                if call.id in seen_ids:
                    yield Violation(
                        self.name, position_text(conv, message, call.path), f"Call id {call.id!r} was used before."
                    )
                seen_ids.add(call.id)


class ResultsFirst:
    """In a message with results, the results come first."""

    name = "results-first"
    formats = frozenset({ANTHROPIC})

    def find_violations(self, conv: Conversation) -> Iterator[Violation]:
        for message in conv.messages:
            other = False
            for part in message.parts:
                if isinstance(part, ToolResult) and other:
                    yield Violation(
                        self.name, position_text(conv, message, part.path), "A result must come before other content."
                    )
                other = other or not isinstance(part, ToolResult)


class ThinkingBeforeCalls:
    """Thinking comes before the calls of its turn."""

    name = "thinking-before-calls"
    formats = frozenset({ANTHROPIC})

    def find_violations(self, conv: Conversation) -> Iterator[Violation]:
        for message in conv.messages:
            has_call = False
            for part in message.parts:
                has_call = has_call or isinstance(part, ToolCall)
                if has_call and isinstance(part, Thinking):
                    yield Violation(
                        self.name,
                        position_text(conv, message, part.path),
                        "Thinking must come before the calls of its turn.",
                    )


class ReasoningBeforeItem:
    """Reasoning comes directly before the item it produced."""

    name = "reasoning-before-its-item"
    formats = frozenset({RESPONSES})

    def find_violations(self, conv: Conversation) -> Iterator[Violation]:
        following = [*conv.messages[1:], None]
        for message, next_message in zip(conv.messages, following, strict=False):
            thinks = any(isinstance(part, Thinking) for part in message.parts)
            if thinks and (next_message is None or next_message.role not in ("assistant", STORED_KIND)):
                yield Violation(
                    self.name, position_text(conv, message), "The item that this reasoning produced must follow it."
                )


class CallArguments:
    """Call arguments have the type that the provider parses: an object or a string."""

    name = "call-arguments"
    formats = EVERY

    def find_violations(self, conv: Conversation) -> Iterator[Violation]:
        expected_type = dict if conv.dialect.object_arguments else str
        for message in conv.messages:
            for call in message.calls:
                if not call.bound and not isinstance(call.input, expected_type):
                    expected_text = "a JSON object" if expected_type is dict else "a string"
                    yield Violation(
                        self.name,
                        position_text(conv, message, call.input_path),
                        f"Call arguments must be {expected_text}.",
                    )


class TextNotEmpty:
    """A text is not empty."""

    name = "text-not-empty"
    formats = frozenset({ANTHROPIC, GEMINI})

    def find_violations(self, conv: Conversation) -> Iterator[Violation]:
        is_blank_empty = conv.dialect.blank_is_empty
        for message in conv.messages:
            for part in message.parts:
                if (
                    isinstance(part, Text)
                    and not part.bound
                    and not (part.text.strip() if is_blank_empty else part.text)
                ):
                    yield Violation(self.name, position_text(conv, message, part.path), "The text is empty.")


class ResultNotEmpty:
    """A result has content."""

    name = "result-not-empty"
    formats = frozenset({ANTHROPIC, CHAT})

    def find_violations(self, conv: Conversation) -> Iterator[Violation]:
        for message in conv.messages:
            for result in message.results:
                if not result.segments and _has_content(message.wire, result):
                    yield Violation(
                        self.name, position_text(conv, message, result.path), "The result's content is empty."
                    )
                elif not conv.dialect.silent_results and _is_blank(result):
                    yield Violation(self.name, position_text(conv, message, result.path), "The result's text is empty.")


def _has_content(wire: Any, result: ToolResult) -> bool:
    """Return True if the result has the key `content`. Anthropic accepts a result without it, but not an empty list."""
    for step in result.path:
        wire = wire[step]
    return "content" in wire


def _is_blank(result: ToolResult) -> bool:
    return all(isinstance(segment, Text) and not segment.text for segment in result.segments)


class ContentOrCalls:
    """An assistant message has content or calls."""

    name = "content-or-calls"
    formats = frozenset({CHAT})

    def find_violations(self, conv: Conversation) -> Iterator[Violation]:
        for message in conv.messages:
            if message.role == "assistant" and not message.parts and not _has_other_content(message.wire):
                yield Violation(
                    self.name, position_text(conv, message), "The assistant message has no content and no tool calls."
                )


def _has_other_content(wire: Any) -> bool:
    return any(wire.get(field) for field in ("function_call", "refusal", "audio"))


class PartsNotEmpty:
    """A message has content."""

    name = "parts-not-empty"
    formats = frozenset({ANTHROPIC, GEMINI})

    def find_violations(self, conv: Conversation) -> Iterator[Violation]:
        for message in conv.messages:
            if not message.parts and not sets_output(message):
                yield Violation(self.name, position_text(conv, message), "The message has no content.")


class ResponseObject:
    """A function response is an object."""

    name = "response-is-object"
    formats = frozenset({GEMINI})

    def find_violations(self, conv: Conversation) -> Iterator[Violation]:
        for message in conv.messages:
            for result in message.results:
                if any(isinstance(segment, Opaque) and segment.kind == NO_OBJECT_KIND for segment in result.segments):
                    yield Violation(
                        self.name, position_text(conv, message, result.path), "`response` must be an object."
                    )


class CompactionFirst:
    """A compaction block comes first in its message."""

    name = "compaction-first"
    formats = frozenset({ANTHROPIC})

    def find_violations(self, conv: Conversation) -> Iterator[Violation]:
        for message in conv.messages:
            for position, part in enumerate(message.parts):
                if isinstance(part, Opaque) and part.kind == "compaction" and position:
                    yield Violation(
                        self.name, position_text(conv, message, part.path), "A compaction block must come first."
                    )


MAX_BREAKPOINTS = 4


class BreakpointLimit:
    """At most four cache breakpoints, one-hour TTLs first; none on thinking, empty text or a deferred tool."""

    name = "cache-marks"
    formats = frozenset({ANTHROPIC})

    def find_violations(self, conv: Conversation) -> Iterator[Violation]:
        breakpoints = list(_cache_breakpoints(conv))
        if len(breakpoints) > MAX_BREAKPOINTS:
            yield Violation(
                self.name,
                breakpoints[MAX_BREAKPOINTS][0],
                f"{len(breakpoints)} cache breakpoints; the maximum is {MAX_BREAKPOINTS}.",
            )
        short = False
        for position, block in breakpoints:
            long = isinstance(block["cache_control"], dict) and block["cache_control"].get("ttl") == "1h"
            if long and short:
                yield Violation(self.name, position, "A one-hour cache breakpoint comes after a five-minute one.")
            short = short or not long
            if block.get("type") in ("thinking", "redacted_thinking") or block.get("text") == "":
                yield Violation(self.name, position, "Thinking and empty text cannot have a cache breakpoint.")
            if block.get("defer_loading"):
                yield Violation(self.name, position, "A tool that is loaded later cannot have a cache breakpoint.")


def _cache_breakpoints(conv: Conversation) -> Iterator[tuple[str, dict[str, Any]]]:
    """Blocks with a breakpoint in the order of the prefix: tools, system, messages, then the request as its end."""
    for field in ("tools", "system"):
        blocks = conv.head.get(field)
        for number, block in enumerate(blocks if isinstance(blocks, list) else ()):
            if _has_breakpoint(block):
                yield f"{field}[{number}]", block
    for message in conv.messages:
        content = message.wire.get("content") if isinstance(message.wire, dict) else None
        for number, block in enumerate(content if isinstance(content, list) else ()):
            if not isinstance(block, dict):
                continue
            if block.get("cache_control"):
                yield position_text(conv, message, ("content", number)), block
            if isinstance(inner := block.get("content"), list):
                for below, segment in enumerate(inner):
                    if _has_breakpoint(segment):
                        yield position_text(conv, message, ("content", number, "content", below)), segment
    if _has_breakpoint(conv.head):
        yield "cache_control", {"cache_control": conv.head["cache_control"]}


def _has_breakpoint(block: Any) -> bool:
    return isinstance(block, Mapping) and bool(block.get("cache_control"))


RULES: tuple[Rule | CallsAnswered | ResultsAnswer, ...] = (
    MessageStructure(),
    HistoryNotEmpty(),
    KnownRoles(),
    FirstIsUser(),
    AlternatingRoles(),
    SystemMessages(),
    LastIsNotAssistant(),
    CallsAnswered(),
    ResultsAnswer(),
    UniqueIds(),
    ResultsFirst(),
    ThinkingBeforeCalls(),
    ReasoningBeforeItem(),
    CallArguments(),
    TextNotEmpty(),
    ResultNotEmpty(),
    ContentOrCalls(),
    PartsNotEmpty(),
    ResponseObject(),
    CompactionFirst(),
    BreakpointLimit(),
)


def violations(conv: Conversation) -> list[Violation]:
    """Return all violations for which the provider would reject the conversation."""
    rules = [rule for rule in RULES if conv.dialect.name in rule.formats]
    if not rules:
        return []
    pairing = pair_calls(conv)  # computed once for the rules that need it
    results: list[Violation] = []
    for rule in rules:
        results.extend(
            rule.find_unpaired(conv, pairing)
            if isinstance(rule, CallsAnswered | ResultsAnswer)
            else rule.find_violations(conv)
        )
    return results
