"""Requests on their way to a provider: recognize the conversation, rewrite, record what was sent, fall back.

- `Live` is the interface for callers. It takes a `LiveRequest` and returns a `RewriteResult`: the body to send, or why
  the original is sent. The caller then reports the provider's response.
- `recognition` has the conversations in memory and finds the one that a request continues.
- `conversation` is one of them, with its session and a frozen history of accepted requests.
- `policy` decides how conversations are rewritten, which are paused, and which an experiment only measures.
- `fallback` has the other ways to write a request, after an error, a timeout or a rejection.
- `pool` has the threads for event loops. No other module here depends on an event loop.

This package does not depend on sockets, accounting or the settings of the proxy.
"""

from .conversation import ProviderCount
from .fallback import has_signed_thinking
from .live import MAX_BODY, Live
from .types import SYSTEM_CLOCK, Clock, LiveRequest, RewriteResult, error_location

__all__ = [
    "MAX_BODY",
    "SYSTEM_CLOCK",
    "Clock",
    "Live",
    "LiveRequest",
    "ProviderCount",
    "RewriteResult",
    "error_location",
    "has_signed_thinking",
]
