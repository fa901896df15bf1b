"""Requests and responses of each provider: one file per wire format, and one table.

A `TrialProvider` is data and a few functions without I/O: the address, the variables with the key, the recorded fields
to send, the declaration of tools, the removal of thinking, and the parser for event streams (`ModelReply`).

Only fields that every account may send are sent. Fields are omitted in both variants if they need a beta header or
identify a user. Tools that run at the provider are omitted, too, because the usage does not include their cost. A new
format is a file with a `PROVIDER` and a row in `TRIAL_PROVIDERS`. Tests: tests/trial/test_ask.py.
"""

from __future__ import annotations

from . import anthropic, gemini, openai_chat, openai_responses
from .provider import ModelReply, StopReason, TrialProvider, UsedTool

TRIAL_PROVIDERS: dict[str, TrialProvider] = {
    each.PROVIDER.format: each.PROVIDER for each in (anthropic, openai_chat, openai_responses, gemini)
}
"""Provider of each wire format."""

__all__ = ["TRIAL_PROVIDERS", "ModelReply", "StopReason", "TrialProvider", "UsedTool"]
