"""Work that others need not wait for: where an event loop runs, it is done in a thread."""

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
"""Bytes from which on a request is worked on in a thread where others wait for the event loop."""
MAX_THREADS = 16


@cache
def _threads(process: int) -> ThreadPoolExecutor:
    """Our own: those of the event loop may all be waiting for an answer to what we work on."""
    return ThreadPoolExecutor(MAX_THREADS, "ibidem")


async def aside(size: int, function: Callable[..., T], *args: Any) -> T:
    """In a thread if there is much to do, so that the event loop goes on; trio has none that we could ask."""
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        return function(*args)
    if size <= LONG_BYTES:
        return function(*args)
    try:
        working = loop.run_in_executor(_threads(os.getpid()), partial(copy_context().run, function, *args))
    except RuntimeError:  # at the end of a program there are no more threads
        return function(*args)
    return await working


def later(function: Callable[..., None], *args: Any) -> None:
    """In a thread where others wait for an event loop. The program waits for it at its end."""
    try:
        asyncio.get_running_loop()
        _threads(os.getpid()).submit(function, *args)
    except RuntimeError:
        function(*args)
