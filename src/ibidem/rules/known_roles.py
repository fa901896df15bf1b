"""Only roles that the provider knows."""

from __future__ import annotations

from collections.abc import Iterator

from ..model import Conversation
from .rule import ANTHROPIC, CHAT, EVERY, GEMINI, RESPONSES, Violation, at

KNOWN_ROLES: dict[str, frozenset[str]] = {
    ANTHROPIC: frozenset({"user", "assistant", "system"}),
    CHAT: frozenset({"system", "developer", "user", "assistant", "tool", "function"}),
    RESPONSES: frozenset({"system", "developer", "user", "assistant"}),
    GEMINI: frozenset({"user", "model", "function"}),
}


class KnownRoles:
    name = "known-roles"
    formats = EVERY

    def violations(self, conv: Conversation) -> Iterator[Violation]:
        known = KNOWN_ROLES[conv.dialect.name]
        for message in conv.messages:
            role = message.wire.get("role") if isinstance(message.wire, dict) else None
            if isinstance(role, str) and role not in known:
                yield Violation(
                    self.name, at(conv, message), f"Unknown role {role!r}: one of {', '.join(sorted(known))}."
                )
