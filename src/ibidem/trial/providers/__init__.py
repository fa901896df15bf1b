"""How each provider is asked, and how its answers are read: one file for each wire format, one table.

A `TrialProvider` is data and a few functions without I/O: where requests go, which variables hold the key, which fields
of a recorded request are sent again, how tools are declared that a log only shows in use, how thinking is taken out,
and what a stream of events says (`ModelReply`).

Only fields that every account may send are sent: what needs a beta header, names a user, or has the provider run tools
of its own, for money that no usage tells, is left out in both arms alike. A new format is a file with a `PROVIDER` and
a row in `TRIAL_PROVIDERS`. Tests: tests/trial/test_ask.py.
"""

from __future__ import annotations

from . import anthropic, gemini, openai_chat, openai_responses
from .provider import ModelReply, StopReason, TrialProvider, UsedTool

TRIAL_PROVIDERS: dict[str, TrialProvider] = {
    each.PROVIDER.format: each.PROVIDER for each in (anthropic, openai_chat, openai_responses, gemini)
}
"""By wire format."""

__all__ = ["TRIAL_PROVIDERS", "ModelReply", "StopReason", "TrialProvider", "UsedTool"]
