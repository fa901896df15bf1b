"""Requests on their way to a provider: recognize the conversation, rewrite, remember what was sent, fall back.

- `Live` is what callers use. It takes a `LiveRequest`, gives a `RewriteResult` (the body to send, or why the original
  is sent), and is told what became of it.
- `recognition` has the conversations in use, and finds the one that a request continues.
- `conversation` is one of them, with its session and a frozen history of accepted requests.
- `policy` says how conversations are rewritten, which are paused, and which an experiment only measures.
- `fallback` has the other ways to write a request, after an error, a time-out or a rejection.
- `pool` has the threads for event loops. Nothing else knows event loops.

Nothing in here knows sockets, accounting or the settings of the proxy.
"""

from .conversation import Counted
from .fallback import has_signed_thinking
from .live import MAX_BODY, Live
from .types import SYSTEM_CLOCK, Clock, LiveRequest, RewriteResult, whereabouts

__all__ = [
    "MAX_BODY",
    "SYSTEM_CLOCK",
    "Clock",
    "Counted",
    "Live",
    "LiveRequest",
    "RewriteResult",
    "has_signed_thinking",
    "whereabouts",
]
