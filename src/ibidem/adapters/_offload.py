"""Run long work in a thread if there is an event loop, so that other tasks continue."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import cache, partial
from typing import Any, TypeVar

T = TypeVar("T")

LONG_BYTES = 2**17
"""Requests larger than this are processed in a thread if there is an event loop. In bytes."""
MAX_THREADS = 16


@cache
def _threads(process: int) -> ThreadPoolExecutor:
    """Return our own thread pool. The threads of the event loop's pool may all be waiting for our result."""
    return ThreadPoolExecutor(MAX_THREADS, "ibidem")


async def run_in_thread(size: int, function: Callable[..., T], *args: Any) -> T:
    """Call a function, in a thread if `size` is large, so that the event loop continues. Under trio: no thread."""
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        return function(*args)
    if size <= LONG_BYTES:
        return function(*args)
    try:
        future = loop.run_in_executor(_threads(os.getpid()), partial(copy_context().run, function, *args))
    except RuntimeError:  # no new threads while the interpreter shuts down
        return function(*args)
    return await future


def run_later(function: Callable[..., None], *args: Any) -> None:
    """Call a function later in a thread if there is an event loop, else now. The program waits for it at exit."""
    try:
        asyncio.get_running_loop()
        _threads(os.getpid()).submit(function, *args)
    except RuntimeError:
        function(*args)
