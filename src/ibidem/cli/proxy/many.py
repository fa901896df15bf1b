"""`ibidem proxy --workers N`: the parent of several processes, and what each of these is started with.

A worker is told by its parent what it needs, tokens and all, over a socket that it inherits: nothing of that is on its
command line. It finds its modules where its parent did, and never in the folder that it happens to be started in.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from ...environment import store_target
from ...errors import IbidemError, one_line
from ...proxy.edge.fleet import Fleet
from ...proxy.edge.peers import Channel, FirstWords, Peers
from ...proxy.settings import Settings
from ...store.store import MEMORY_TARGET
from ..errors import InputError, say, warnings_said
from .serving import as_input_error, loop_runner, not_served, served

if TYPE_CHECKING:
    from ...proxy.address import Address, Summary

START = "import json, sys; sys.path[:] = json.loads(sys.argv.pop(1)); from {} import work; work(int(sys.argv[1]))"


def run_many(settings: Settings, announce: Callable[[Address], None], reread: Callable[[], Settings]) -> Summary:
    """`reread` gives the settings as they are now, for who asks for that."""
    if os.name == "nt":
        raise InputError("workers", "more than one cannot share a port on Windows: use --workers 1")
    _refuse_memory(settings)
    return asyncio.run(_until_stopped(settings, announce, reread))


def _refuse_memory(settings: Settings) -> None:
    if (settings.store or store_target()) == MEMORY_TARGET:
        raise InputError(
            "workers",
            "a store in memory cannot be shared: name a file or a redis:// URL with --store, or use --workers 1",
        )


async def _until_stopped(
    settings: Settings, announce: Callable[[Address], None], reread: Callable[[], Settings]
) -> Summary:
    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    command = (sys.executable, "-P", "-c", START.format(__name__), json.dumps(sys.path))
    fleet = Fleet(settings, command, say)

    def asked(number: int) -> None:
        if stop.is_set():  # who asks again wants it to end at once
            fleet.kill()
            loop.remove_signal_handler(number)
            os.kill(os.getpid(), number)
        stop.set()

    def reload() -> None:
        try:
            fleet.reload_soon(_within(settings, reread()))
        except InputError as error:
            fleet.note(f"the settings are not taken: {error}")

    loop.add_signal_handler(signal.SIGUSR1, reload)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, asked, number)
    try:
        return await fleet.run(announce, stop)
    except OSError as error:
        raise not_served(error, settings) from None
    except IbidemError as error:
        raise as_input_error(error) from None


def _within(running: Settings, found: Settings) -> Settings:
    """As the parent can take them: it has one port, and so many places."""
    _refuse_memory(found)
    fixed = {name: getattr(running, name) for name in ("host", "port", "workers")}
    if changed := [name for name, value in fixed.items() if getattr(found, name) != value]:
        say(f"settings: {', '.join(changed)} stay as they are until the proxy is started again")
    return replace(found, **fixed)


def work(number: int) -> None:
    """What a worker does; `number` is that of its end of the socket to its parent."""
    # A terminal sends these to all of us: the parent says what to do.
    for asked in (signal.SIGINT, signal.SIGHUP, signal.SIGUSR1):
        signal.signal(asked, signal.SIG_IGN)
    with warnings_said():
        loop_runner()(_work(socket.socket(fileno=number)))


async def _work(parent: socket.socket) -> None:
    channel = await Channel.over(parent)
    told = await channel.receive()
    if told is None:
        return
    first = FirstWords(**told)
    peers, settings, stop = Peers(channel, first), Settings(**first.settings), asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    try:
        await served(settings, peers.ready, stop, peers=peers, hand=socket.socket(fileno=first.hand))
    except InputError as error:
        await peers.fail(error.message)
    except Exception as error:  # of whatever package it is, it is told once, and in a line
        await peers.fail(one_line(f"{type(error).__name__}: {error}"))
