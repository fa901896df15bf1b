"""What the C library does with memory that was freed, where that is glibc; nothing happens anywhere else.

glibc gives each thread an arena of its own, and what is freed in one of them serves no other thread. Requests are
rewritten in several threads, and conversations come and go, so most of these arenas would be holes after some minutes.
Only one thread runs Python code at a time: a single arena keeps nobody waiting.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from functools import cache
from typing import Any

M_ARENA_MAX = -8
"""As in malloc.h."""

_giving_back = threading.Lock()


@cache
def _function(name: str) -> Callable[..., Any] | None:
    """None where the C library has none of that name."""
    try:
        found: Callable[..., Any] = getattr(ctypes.CDLL(None), name)
        return found
    except (AttributeError, OSError, TypeError):  # TypeError: on Windows
        return None


def use_one_arena() -> bool:
    """For memory that is asked for from now on. Returns whether it is done."""
    set_option = _function("mallopt")
    return set_option is not None and bool(set_option(M_ARENA_MAX, 1))


def give_back() -> None:
    """What is free, to the system. That may take some milliseconds, and nobody waits for it."""
    if _function("malloc_trim") is not None and _giving_back.acquire(blocking=False):
        threading.Thread(target=_trim, name="ibidem-memory", daemon=True).start()


def _trim() -> None:
    try:
        if (trim := _function("malloc_trim")) is not None:
            trim(ctypes.c_size_t(0))
    finally:
        _giving_back.release()
