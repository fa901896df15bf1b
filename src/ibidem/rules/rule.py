"""What a rule is, and how it says where it is broken."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from ..model import Conversation, Message, Path

ANTHROPIC = "anthropic"
CHAT = "openai-chat"
RESPONSES = "openai-responses"
GEMINI = "gemini"
EVERY = frozenset({ANTHROPIC, CHAT, RESPONSES, GEMINI})


@dataclass(frozen=True, slots=True)
class Violation:
    """A demand of the provider that this request does not meet."""

    rule: str
    """Its name: a heading of docs/providers.md."""
    position: str
    """Where, in the request's own names: `messages[3].content[0]`."""
    message: str
    """What is wrong there, as a sentence."""

    def __str__(self) -> str:
        return f"{self.position}: {self.message} [{self.rule}]"


class Rule(Protocol):
    """One demand. Positions are those of the history as given; an inserted message is named after its neighbour."""

    @property
    def name(self) -> str:
        """The heading of docs/providers.md under which its source stands."""

    @property
    def formats(self) -> frozenset[str]:
        """Names of the formats that make this demand."""

    def violations(self, conv: Conversation) -> Iterable[Violation]: ...


def sets_output(message: Message) -> bool:
    """Whether it is a system message that says nothing and sets something for the turns after it, wherever it stands
    (https://platform.claude.com/docs/build-with-claude/effort-per-message)."""
    wire = message.wire
    return message.role == "system" and not message.parts and isinstance(wire, dict) and "output_config" in wire


def at(conv: Conversation, message: Message | None = None, path: Path = ()) -> str:
    """The position as people write it."""
    where = conv.dialect.history_key
    if message is not None:
        steps: Path = (message.index, *path) if message.index >= 0 else ("(inserted)",)
        for step in steps:
            where += f"[{step}]" if isinstance(step, int) else f".{step}"
    return where
