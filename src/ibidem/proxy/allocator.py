"""Settings of glibc's memory allocator, to reduce the memory of the proxy. No effect with other C libraries.

glibc gives each thread its own arena, and other threads cannot use memory that is freed in it. Requests are rewritten
in several threads, and conversations are created and evicted, so most arenas would soon be mostly free memory. Because
of the GIL, only one thread runs Python code at a time, so a single arena causes no contention.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from functools import cache
from typing import Any

M_ARENA_MAX = -8
"""Constant from malloc.h."""

_trim_lock = threading.Lock()


@cache
def _find_function(name: str) -> Callable[..., Any] | None:
    """Return a function of the C library, or None if it does not exist."""
    try:
        function: Callable[..., Any] = getattr(ctypes.CDLL(None), name)
        return function
    except (AttributeError, OSError, TypeError):  # TypeError: on Windows
        return None


def use_one_arena() -> bool:
    """Use one arena for all later allocations. Return whether this succeeded."""
    set_option = _find_function("mallopt")
    return set_option is not None and bool(set_option(M_ARENA_MAX, 1))


def return_free_memory() -> None:
    """Return free memory to the system. This takes some milliseconds, so it runs in a thread."""
    if _find_function("malloc_trim") is not None and _trim_lock.acquire(blocking=False):
        threading.Thread(target=_trim_memory, name="ibidem-memory", daemon=True).start()


def _trim_memory() -> None:
    try:
        if (trim := _find_function("malloc_trim")) is not None:
            trim(ctypes.c_size_t(0))
    finally:
        _trim_lock.release()
