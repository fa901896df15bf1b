"""Store on a Redis server, for several machines. Its durability depends on the server's configuration.

Each write is one call of the script `redis.lua`. Each read is one command, for any number of originals.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass, field
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from ..environment import install_command
from ..errors import one_line
from .limits import MOST_NOTES, MOST_ORIGINALS, MOST_PLACES, MOST_SESSIONS, Limits, SizeWarning, Slice, slice_bytes
from .packing import Packed, original, pack, packed, unpack, whole
from .store import (
    NO_NOTES,
    Notes,
    NotesPlace,
    Store,
    StoreError,
    StoreStats,
    collision,
    encoded,
    is_reference,
    known_references,
    new_log,
)

if TYPE_CHECKING:
    import redis

CONNECT_SECONDS = 5.0
ANSWER_SECONDS = 15.0
DROPPING = "allkeys-"
"""Prefix of eviction policies that delete any key when the server runs out of memory."""


@dataclass(eq=False)
class RedisStore(Store):
    """Store on a Redis server, for any number of machines."""

    url: str = field(repr=False)  # it may contain a password
    _: KW_ONLY
    prefix: str = "{ibidem}:"
    """Prefix of every key. The braces are a hash tag, which puts all keys on one node of a cluster behind a proxy."""
    limits: Limits = field(default_factory=Limits)
    """Limits of the store. The clocks of all clients should agree to within these times."""
    clock: Callable[[], float] = time.time

    def __post_init__(self) -> None:
        self.where = _without_secrets(self.url)
        self._lock = threading.Lock()
        self._client: redis.Redis | None = None
        self._script: Any = None
        """Script object of the client. Registering it for each call would hash the whole script each time."""
        self._trusted = False
        self._told = SizeWarning()

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuilt, (self.url, self.prefix, self.limits, self.clock)

    def put(self, session: str, originals: Mapping[str, str]) -> None:
        new = packed(self.where, originals)
        self._trust()
        seen: dict[str, bytes] = {}
        while True:
            now = self.clock()
            rows = [part for each in new for part in (each.ref, each.body, each.size, seen.get(each.ref, b""))]
            slice_ = self._slice(now, sum(len(each.body) for each in new))
            verdict, *others = self._run("put", encoded(session), repr(now), *slice_, *rows)
            if verdict != b"others":
                self._forgot(others)
                return
            new, seen = self._compared(new, {ref.decode() for ref in others})

    def _slice(self, now: float, added: int) -> tuple[str | int, ...]:
        """Return the arguments with which the script deletes one batch beyond the limits."""
        limits = self.limits
        limit = "" if limits.max_bytes is None else limits.max_bytes
        times = repr(limits.over_before(now)), repr(limits.idle_before(now))
        return *times, limit, MOST_SESSIONS, MOST_ORIGINALS, slice_bytes(added)

    def _forgot(self, counts: Iterable[int]) -> Slice:
        originals, sessions, excess, done = map(int, counts)
        found = Slice(originals, sessions, excess, bool(done))
        self._told(self.where, self.limits, found)
        return found

    def _compared(self, new: list[Packed], others: set[str]) -> tuple[list[Packed], dict[str, bytes]]:
        """Return the originals to store again, after the script found other bytes under their references.

        The stored bytes may be another encoding of the same text, or damaged. Raises StoreError for another text.
        """
        bodies, again, seen = self._bodies(others), [], {}
        for each in new:
            body = bodies.get(each.ref)
            if body is not None:
                text = original(each.ref, body)
                if text is None:
                    seen[each.ref] = body
                elif text == each.text:
                    each = each._replace(body=body)
                else:
                    raise collision(self.where, each.ref)
            again.append(each)
        return again, seen

    def get(self, refs: Iterable[str]) -> dict[str, str]:
        texts = {ref: original(ref, body) for ref, body in self._bodies(refs).items()}
        return {ref: text for ref, text in texts.items() if text is not None}

    def _bodies(self, refs: Iterable[str]) -> dict[str, bytes]:
        asked = sorted({ref for ref in refs if is_reference(ref)})
        if not asked:
            return {}
        with self._in_words():
            bodies: list[bytes | None] = self._opened().hmget(self.prefix + "body", asked)
        return {ref: body for ref, body in zip(asked, bodies, strict=True) if body is not None}

    def place(self, places: Mapping[str, str]) -> None:
        if places:
            pairs = [part for ref, place in places.items() for part in (ref, encoded(one_line(place)))]
            self._run("place", MOST_PLACES, *pairs)

    def places(self, ref: str) -> list[str]:
        with self._in_words():
            found: bytes | None = self._opened().hget(self.prefix + "places", ref)
        return found.decode("utf-8", "surrogatepass").split("\n") if found else []

    def refs(self, session: str) -> set[str]:
        with self._in_words():
            found: set[bytes] = self._opened().smembers(self.prefix.encode() + b"refs:" + encoded(session))
        return {ref.decode() for ref in found}

    def save(self, session: str, state: bytes, refs: Collection[str]) -> None:
        live = known_references(self.where, refs)
        self._trust()
        body, now = pack(state), self.clock()
        self._forgot(self._run("save", encoded(session), repr(now), *self._slice(now, len(body)), body, *live))

    def load(self, session: str) -> bytes | None:
        body = self._run("load", encoded(session), repr(self.clock()))
        return None if body is None else unpack(body)

    def note(self, session: str, rows: Sequence[bytes], since: NotesPlace) -> Notes:
        self._trust()
        bodies, now = [pack(row) for row in rows], self.clock()
        slice_ = self._slice(now, sum(map(len, bodies)))
        known = since.log, since.end, new_log(), MOST_NOTES
        added, log, end, others, *counts = self._run("note", encoded(session), repr(now), *slice_, *known, *bodies)
        if added:
            self._forgot(counts)
        return Notes(whole(others), NotesPlace(log.decode(), end), bool(added))

    def notes(self, session: str, since: NotesPlace = NO_NOTES) -> Notes:
        log, end, bodies = self._run("notes", encoded(session), repr(self.clock()), since.log, since.end)
        return Notes(whole(bodies), NotesPlace(log.decode(), end))

    def forget(self, session: str) -> int:
        return int(self._run("forget", encoded(session)))

    def forget_all(self) -> int:
        return int(self._run("forget_all"))

    def forget_older(self, seconds: float) -> int:
        return int(self._run("forget_older", repr(self.clock() - seconds)))

    def prune(self) -> int:
        count, done = 0, False
        while not done:
            found = self._forgot(self._run("prune", *self._slice(self.clock(), 0)))
            count, done = count + found.originals, found.done
        return count

    def stats(self) -> StoreStats:
        with self._in_words(), self._opened().pipeline() as batch:
            batch.hlen(self.prefix + "body")
            batch.zcard(self.prefix + "used")
            batch.hmget(self.prefix + "totals", ["stored", "size", "states"])
            batch.zrange(self.prefix + "added", 0, 0, withscores=True)
            batch.zrange(self.prefix + "added", -1, -1, withscores=True)
            originals, sessions, (stored, size, states), oldest, newest = batch.execute()
        first, last = (float(found[0][1]) if found else None for found in (oldest, newest))
        return StoreStats(originals, sessions, int(stored or 0), int(size or 0), first, last, int(states or 0))

    def close(self) -> None:
        with self._lock:
            client, self._client = self._client, None
        if client is not None:
            client.close()

    def _trust(self) -> None:
        """Raise StoreError if the server may evict keys. Without permission to check it, trust the operator."""
        if self._trusted:
            return
        with self._in_words():
            from redis.exceptions import NoPermissionError

            try:
                memory: dict[str, Any] = self._opened().info("memory")
            except NoPermissionError:
                memory = {}
        policy = str(memory.get("maxmemory_policy", ""))
        if memory.get("maxmemory") and policy.startswith(DROPPING):
            way_out = "set maxmemory-policy to noeviction"
            raise StoreError(self.where, f"this server deletes keys when its memory is full ({policy}): {way_out}")
        self._trusted = True

    def _run(self, verb: str, *args: str | bytes | int) -> Any:
        with self._in_words():
            self._opened()
            return self._script(keys=[self.prefix], args=[verb, *args])

    def _opened(self) -> Any:  # redis-py's return types are unions with those of its asynchronous client
        with self._lock:
            if self._client is None:
                self._client = _connected(self.url, self.where)
                self._script = self._client.register_script(_script())
            return self._client

    @contextmanager
    def _in_words(self) -> Iterator[None]:
        try:
            import redis
        except ModuleNotFoundError:
            raise StoreError(self.where, f"needs: {install_command('redis')}") from None
        try:
            yield
        except redis.RedisError as error:
            said = str(error).rstrip(".")
            raise StoreError(self.where, f"{said}: check that the server runs and takes writes") from error


def _rebuilt(url: str, prefix: str, limits: Limits, clock: Callable[[], float]) -> RedisStore:
    return RedisStore(url, prefix=prefix, limits=limits, clock=clock)


def _connected(url: str, where: str) -> redis.Redis:
    import redis

    try:
        if "://" not in where:
            raise ValueError
        # redis-py connects when needed, and separately in each process.
        return redis.Redis.from_url(url, socket_connect_timeout=CONNECT_SECONDS, socket_timeout=ANSWER_SECONDS)
    except ValueError:
        signs = "in a password write / ? # @ as %2F %3F %23 %40"
        raise StoreError(
            where, f"not the address of a Redis server: use one like redis://localhost:6379/0; {signs}"
        ) from None


def _without_secrets(url: str) -> str:
    """Return a URL for messages, without user, password and options."""
    try:
        parts = urlsplit(url)
        if parts.netloc and "@" in url and "@" not in parts.netloc:  # an unescaped / ? or # in the password
            return parts.scheme
        port = f":{parts.port}" if parts.port else ""
    except ValueError:
        return "redis"
    path = parts.path if parts.scheme == "unix" or parts.path[1:].isdigit() else ""
    return f"{parts.scheme}://{parts.hostname or ''}{port}{path}"


@cache
def _script() -> str:
    return resources.files(__package__).joinpath("redis.lua").read_text()
