"""Whom a hint would be untrue for.

A gateway sees one connection, and not who asks on it. Where several contexts of a client share it, a text that one of
them was sent is hinted at in another that never saw it. Clients tell their name when they connect; what they do beyond
that is known here, and a client that does not say who it is gets no hints at all.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..model import one_line

SHARE_A_CONNECTION = ("claude-code", "cursor", "gemini-cli", "goose", "opencode", "visual studio code")
"""Names of clients begin so whose subagents call tools on the connection of the main agent."""
NO_NAME = ("mcp",)
"""What libraries call every program that does not say who it is: it may have subagents too."""
RUN_SCRIPTS = ("codex",)
"""Of clients whose model writes programs that call tools: a program would get the hint in place of its data."""
CONTEXT_KEYS = ("sessionId", "threadId", "windowId")
"""What some clients send with a call, in `_meta`: a thread is one context, and a window is what it holds between two
compactions."""


def why_no_hints(client: str | None, *, codex: bool, no_subagents: bool) -> str:
    """One line for the user; empty where a hint can be true."""
    if client is None:
        return "hints are off: the client did not say who it is"
    name, shown = client.casefold(), one_line(client[:64])
    if name.startswith(RUN_SCRIPTS) and not codex:
        return f"hints are off for {shown}: its scripts would get them in place of data (--codex turns them on)"
    if name in NO_NAME and not no_subagents:
        return f"hints are off for {shown}: any program may be called so (--no-subagents turns them on)"
    if name.startswith(SHARE_A_CONNECTION) and not no_subagents:
        own = "its plugin is the way there, or " if name.startswith("claude-code") else ""
        return f"hints are off for {shown}: its subagents share this connection ({own}--no-subagents turns them on)"
    return ""


def context_of(client: str, meta: Mapping[str, Any]) -> tuple[str, ...] | None:
    """What one context is told apart by; None where this client's contexts are told apart, and this one is not."""
    found = tuple(f"{key}={meta[key]}" for key in CONTEXT_KEYS if isinstance(meta.get(key), str))
    if not found and client.casefold().startswith(RUN_SCRIPTS):
        return None
    return found
