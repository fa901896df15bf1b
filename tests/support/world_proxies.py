"""The proxies of a world: real ones, over HTTP, each started, stopped and killed as the world wants it."""

from __future__ import annotations

import asyncio
import http.client
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch
from urllib.parse import urlsplit

from msgspec.structs import replace

import ibidem
from ibidem.billing.revision_budget import CachePricing
from ibidem.engine.session import Session
from ibidem.proxy import warmup
from ibidem.proxy.edge.app import Proxy
from ibidem.proxy.edge.server import BackgroundServer
from ibidem.proxy.settings import Settings
from ibidem.store import Store, guarded
from tests.support.evict import NO_CLOCKS
from tests.support.proxied import Clock
from tests.support.world_provider import RUN_HEADER
from tests.support.world_store import CallCounter, StoreLink

PATIENCE = 30.0
LONGEST_PAUSE = 0.2
EAGER = (ibidem.Evict(**NO_CLOCKS, economy=CachePricing(read=1.0, write=1.0), mask=3),)
"""Evicts whatever it may with each request, as if nothing was cached."""
PROFILES = {
    **{name: name for name in ("lossless", "balanced", "recoverable", "aggressive")},
    "eager": f"{__name__}:EAGER",
}
"""Setting of the proxy by name of the profile."""
_RUNS = count(1)


class WorldClock(Clock):
    """Time of day and monotonic time move together when the world pauses."""

    def __init__(self) -> None:
        super().__init__()
        self._start = self.now

    def monotonic(self) -> float:
        return time.perf_counter() + self.now - self._start


class Slowness:
    """Delay of the next request that a thread rewrites."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._lock = threading.Lock()

    def take(self) -> float:
        with self._lock:
            found, self.seconds = self.seconds, 0.0
        return found


@contextmanager
def quick_start(slowness: Slowness, pause: float) -> Iterator[list[Proxy]]:
    """Start proxies without the work that a process does once. Yields the proxies, in the order of their start.

    `pause`: seconds for which a store is not asked after a fault. A world is shorter than the usual ones.
    """
    made: list[Proxy] = []
    compact = Session.compact

    def slowly(self: Session, *args: Any, **more: Any) -> Any:
        if asyncio._get_running_loop() is None:  # an event loop must not be held up
            time.sleep(slowness.take())
        return compact(self, *args, **more)

    with (
        patch.object(Proxy, "start_background", lambda proxy: made.append(proxy)),
        patch.object(warmup, "load_data", lambda: None),
        patch.object(warmup, "rehearse_rewrite", lambda _: None),
        patch.object(Session, "compact", slowly),
        patch.object(guarded, "FIRST_PAUSE", pause),
        patch.object(guarded, "LONGEST_PAUSE", max(pause, LONGEST_PAUSE)),
    ):
        yield made


@dataclass
class Reply:
    """What the client got; a status of 0 if the connection broke."""

    status: int
    body: bytes = b""
    seconds: float = 0.0

    @property
    def content(self) -> list[Any]:
        found: list[Any] = json.loads(self.body)["content"]
        return found


class Setting(NamedTuple):
    """What all proxies of a world share."""

    settings: Settings
    store: Store
    calls: CallCounter
    clock: Clock
    folder: Path
    made: list[Proxy]
    on_loss: Callable[[], None]
    """Called when the store loses data."""
    on_death: Callable[[str], None]
    """Called with the name of a process when that is killed."""


class Replica:
    """One place where a proxy runs, with one process after the other."""

    def __init__(self, number: int, shared: Setting) -> None:
        self.number = number
        self._shared = shared
        self._ended: list[threading.Thread] = []
        self.start()

    def start(self) -> None:
        shared = self._shared
        self.run = f"r{next(_RUNS)}"
        self.link = StoreLink(shared.store, shared.calls, shared.on_loss, partial(shared.on_death, self.run))
        self._log = shared.folder / f"{self.run}.jsonl"
        settings = replace(shared.settings, json_log=str(self._log))
        self._running = BackgroundServer(settings, self.link, clock=shared.clock)
        self._running.__enter__()
        self._proxy = shared.made[-1]
        self._rows = 0
        self._connection: http.client.HTTPConnection | None = None

    # ── requests ────────────────────────────────────────────────────────────────────────────────────────────────────

    def connect(self) -> http.client.HTTPConnection:
        parts = urlsplit(self._running.url)
        return http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=PATIENCE)

    def send(self, body: bytes, headers: dict[str, str], target: str = "/v1/messages", own: bool = False) -> Reply:
        """`own`: over a connection of its own, as a thread needs it."""
        connection = self.connect() if own else self._connection or self.connect()
        started = time.perf_counter()
        try:
            connection.request("POST", target, body, self.headers(headers))
            with connection.getresponse() as answer:
                found = Reply(answer.status, answer.read(), time.perf_counter() - started)
        except (OSError, http.client.HTTPException):
            connection.close()
            return Reply(0)
        if own:
            connection.close()
        else:
            self._connection = connection
        return found

    def headers(self, more: dict[str, str]) -> dict[str, str]:
        return {"content-type": "application/json", "x-api-key": "k", RUN_HEADER: self.run, **more}

    def switch(self, way: str, conversation: str | None) -> int:
        asked = {"all": True} if conversation is None else {"conversation": conversation}
        return self.send(json.dumps(asked).encode(), {}, f"/ibidem/api/{way}").status

    def settled(self, rows: int) -> list[dict[str, Any]]:
        """Wait for the log rows of so many requests, and for everything that is noted after them."""
        self._rows += rows
        asyncio.run_coroutine_threadsafe(self._quiet(self._rows), self._running._loop).result(PATIENCE)
        lines = self._log.read_bytes().splitlines()
        return [json.loads(line) for line in lines[len(lines) - rows :]] if rows else []

    async def _quiet(self, rows: int) -> None:
        deadline = time.monotonic() + PATIENCE
        while self._log.read_bytes().count(b"\n") < rows or self._at_work:
            assert time.monotonic() < deadline, "a request was never logged"
            await asyncio.sleep(0.0005)

    @property
    def _at_work(self) -> bool:
        workers = [getattr(self._proxy, name, None) for name in ("_workers", "_large")]
        return bool(self._proxy._background) or any(each is not None and each.stuck for each in workers)

    # ── the end ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def restart(self) -> None:
        """Stop the process as a signal would, and start another."""
        self._disconnect()
        self._running.stop()
        self.start()

    def kill(self) -> None:
        """Start another process. The store has nothing that this one had not written when its connection died."""
        self.link.die()
        self._disconnect()
        ending = threading.Thread(target=partial(_end, self._running), daemon=True)
        ending.start()
        self._ended.append(ending)
        self.start()

    def stop(self) -> None:
        self._disconnect()
        self._running.stop()
        for each in self._ended:
            each.join(PATIENCE)

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def _end(running: BackgroundServer) -> None:
    with suppress(Exception):
        running.stop()
