"""Totals of a `compact` run over its requests."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ...engine.pipeline import Compacted
from ...strategies.profiles import profile_strategies, strategy_labels
from ...tokens import counter_for, encoding_for
from ...wire import open_document
from ..command_errors import reword_for_cli
from ..request_input import InputRequest

MAX_COUNTED_BYTES = 32 << 20
"""Largest input, in bytes, whose tokens are counted. Counting takes much longer than rewriting."""


@dataclass(slots=True)
class BeforeAfter:
    """A number before and after rewriting."""

    before: int = 0
    after: int = 0

    def add(self, before: int, after: int) -> None:
        self.before += before
        self.after += after

    @property
    def saved(self) -> float:
        """Removed share, 0 to 1; negative if the number grew."""
        return 1 - self.after / self.before if self.before else 0.0


class SkippedRequest(NamedTuple):
    """A request that was not rewritten, or could not be read, with the reason."""

    position: str
    reason: str
    read: bool = True


@dataclass(slots=True)
class CompactSummary:
    """Totals of the requests in a file."""

    file: str
    profile: str
    expected_bytes: int = 0
    """Size of the file in bytes; 0 if unknown."""
    requests: int = 0
    formats: dict[str, None] = field(default_factory=dict)
    """Names of wire formats, in order of appearance."""
    encodings: dict[str, None] = field(default_factory=dict)
    messages: BeforeAfter = field(default_factory=BeforeAfter)
    size: BeforeAfter = field(default_factory=BeforeAfter)
    """Bytes of the requests as JSON text. Strategies count only the content that the model reads."""
    tokens: BeforeAfter | None = field(default_factory=BeforeAfter)
    """Tokens of the requests as JSON text; None if the input is too large to count."""
    strategies: dict[str, Counter[str]] = field(default_factory=dict)
    left: list[SkippedRequest] = field(default_factory=list)
    full_texts: dict[str, None] = field(default_factory=dict)
    """Lines about texts that are sent in full although they were sent before."""

    def __post_init__(self) -> None:
        names = strategy_labels(profile_strategies(self.profile))
        self.strategies = {name: Counter(hits=0, bytes=0, tokens=0) for name in names}

    def add(self, request: InputRequest, result: Compacted) -> None:
        """Add a request and its result."""
        self.requests += 1
        self.formats |= {result.format: None} if result.format else {}
        self.messages.add(*_message_counts(result))
        self.size.add(len(request.data), len(result.request))
        self._count_tokens(request.data, result)
        for name, strategy_savings in result.stats.strategies.items():
            self.strategies[name].update(strategy_savings.as_dict())
        prefix = "" if request.line is None else f"{request.position.capitalize()}: "
        self.full_texts |= dict.fromkeys(f"{prefix}{line}" for line in result.plan.full_text_lines)
        if result.reason:
            self.left.append(SkippedRequest(request.position, reword_for_cli(result.reason)))

    def add_unreadable(self, request: InputRequest, why: str) -> None:
        """Add a request that could not be read."""
        self.left.append(SkippedRequest(request.position, why, read=False))

    @property
    def has_started(self) -> bool:
        """A request was added."""
        return bool(self.requests or self.left)

    @property
    def unreadable_count(self) -> int:
        """Number of requests that could not be read."""
        return sum(not skipped_request.read for skipped_request in self.left)

    def _count_tokens(self, data: bytes, result: Compacted) -> None:
        model = _model_name(result)
        self.encodings[encoding_for(model)] = None
        if self.tokens is None or max(self.expected_bytes, self.size.before) > MAX_COUNTED_BYTES:
            self.tokens = None
            return
        count = counter_for(model)
        before = count(data.decode("utf-8", "replace"))
        unchanged = result.request is data
        self.tokens.add(before, before if unchanged else count(result.request.decode("utf-8", "replace")))

    def as_dict(self) -> dict[str, Any]:
        """Return the object for `--json`."""
        return {
            "file": self.file,
            "format": ", ".join(self.formats) or None,
            "profile": self.profile,
            "requests": self.requests,
            "messages": self.messages.before,
            "bytes": {"before": self.size.before, "after": self.size.after},
            "tokens": {
                "before": self.tokens and self.tokens.before,
                "after": self.tokens and self.tokens.after,
            },
            "strategies": {name: dict(strategy_savings) for name, strategy_savings in self.strategies.items()},
            "left_as_it_came": [
                {"position": skipped_request.position, "reason": skipped_request.reason}
                for skipped_request in self.left
            ],
            "sent_in_full": list(self.full_texts),
        }


def _message_counts(result: Compacted) -> tuple[int, int]:
    after = len(result.conversation.messages) if result.conversation else _count_entries(result.request)
    message_edits = [edit for edit in result.plan if not edit.path]
    dropped = len({edit.message for edit in message_edits if edit.op == "drop"})
    inserted = sum(edit.op in ("before", "after") for edit in message_edits)
    return after + dropped - inserted, after


def _count_entries(data: bytes) -> int:
    """Count the messages of a request whose format is ambiguous. All formats that it may have use the same field."""
    value = open_document(data).value
    history = value.get("messages") if isinstance(value, dict) else value
    return len(history) if isinstance(history, list) else 0


def _model_name(result: Compacted) -> str | None:
    model = result.conversation.head.get("model") if result.conversation else None
    return model if isinstance(model, str) else None
