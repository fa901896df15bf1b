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
from .retention import (
    MOST_NOTES,
    MOST_ORIGINALS,
    MOST_PLACES,
    MOST_SESSIONS,
    Limits,
    PrunedBatch,
    SizeWarning,
    batch_bytes,
)
from .store import (
    JOURNAL_START,
    JournalPage,
    JournalPosition,
    Store,
    StoreError,
    StoreStats,
    collision_error,
    encode_text,
    is_reference,
    known_references,
    new_journal_id,
)
from .value_codec import EncodedValue, decode_original, decode_value, encode_originals, encode_value, valid_values

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
        return _rebuild_store, (self.url, self.prefix, self.limits, self.clock)

    def put(self, session: str, originals: Mapping[str, str]) -> None:
        new = encode_originals(self.where, originals)
        self._check_eviction_policy()
        conflicting_bodies: dict[str, bytes] = {}
        while True:
            now = self.clock()
            rows = [
                part for each in new for part in (each.ref, each.body, each.size, conflicting_bodies.get(each.ref, b""))
            ]
            slice_ = self._batch_arguments(now, sum(len(each.body) for each in new))
            verdict, *conflicts = self._run_script("put", encode_text(session), repr(now), *slice_, *rows)
            if verdict != b"others":
                self._read_batch(conflicts)
                return
            new, conflicting_bodies = self._resolve_conflicts(new, {ref.decode() for ref in conflicts})

    def _batch_arguments(self, now: float, added_bytes: int) -> tuple[str | int, ...]:
        """Return the arguments with which the script deletes one batch beyond the limits."""
        limits = self.limits
        limit = "" if limits.max_bytes is None else limits.max_bytes
        times = repr(limits.over_before(now)), repr(limits.idle_before(now))
        return *times, limit, MOST_SESSIONS, MOST_ORIGINALS, batch_bytes(added_bytes)

    def _read_batch(self, counts: Iterable[int]) -> PrunedBatch:
        """Convert the counts that the script returns after deleting a batch. Log a warning, once, if the store is still
        above its size limit and nothing more can be deleted."""
        originals, sessions, excess, is_complete = map(int, counts)
        batch = PrunedBatch(originals, sessions, excess, bool(is_complete))
        self._told(self.where, self.limits, batch)
        return batch

    def _resolve_conflicts(
        self, new: list[EncodedValue], others: set[str]
    ) -> tuple[list[EncodedValue], dict[str, bytes]]:
        """Return the originals to store again, after the script found other bytes under their references.

        The stored bytes may be another encoding of the same text, or damaged. Raises StoreError for another text.
        """
        bodies, again, damaged_bodies = self._read_bodies(others), [], {}
        for value in new:
            body = bodies.get(value.ref)
            if body is not None:
                text = decode_original(value.ref, body)
                if text is None:
                    damaged_bodies[value.ref] = body
                elif text == value.text:
                    value = value._replace(body=body)
                else:
                    raise collision_error(self.where, value.ref)
            again.append(value)
        return again, damaged_bodies

    def get(self, refs: Iterable[str]) -> dict[str, str]:
        texts = {ref: decode_original(ref, body) for ref, body in self._read_bodies(refs).items()}
        return {ref: text for ref, text in texts.items() if text is not None}

    def _read_bodies(self, refs: Iterable[str]) -> dict[str, bytes]:
        requested_refs = sorted({ref for ref in refs if is_reference(ref)})
        if not requested_refs:
            return {}
        with self._translate_errors():
            bodies: list[bytes | None] = self._open_client().hmget(self.prefix + "body", requested_refs)
        return {ref: body for ref, body in zip(requested_refs, bodies, strict=True) if body is not None}

    def place(self, places: Mapping[str, str]) -> None:
        if places:
            pairs = [part for ref, place in places.items() for part in (ref, encode_text(one_line(place)))]
            self._run_script("place", MOST_PLACES, *pairs)

    def places(self, ref: str) -> list[str]:
        with self._translate_errors():
            lines: bytes | None = self._open_client().hget(self.prefix + "places", ref)
        return lines.decode("utf-8", "surrogatepass").split("\n") if lines else []

    def refs(self, session: str) -> set[str]:
        with self._translate_errors():
            members: set[bytes] = self._open_client().smembers(self.prefix.encode() + b"refs:" + encode_text(session))
        return {ref.decode() for ref in members}

    def save(self, session: str, state: bytes, refs: Collection[str]) -> None:
        live = known_references(self.where, refs)
        self._check_eviction_policy()
        body, now = encode_value(state), self.clock()
        self._read_batch(
            self._run_script(
                "save", encode_text(session), repr(now), *self._batch_arguments(now, len(body)), body, *live
            )
        )

    def load(self, session: str) -> bytes | None:
        body = self._run_script("load", encode_text(session), repr(self.clock()))
        return None if body is None else decode_value(body)

    def note(self, session: str, rows: Sequence[bytes], since: JournalPosition) -> JournalPage:
        self._check_eviction_policy()
        bodies, now = [encode_value(row) for row in rows], self.clock()
        slice_ = self._batch_arguments(now, sum(map(len, bodies)))
        position_args = since.log, since.end, new_journal_id(), MOST_NOTES
        is_added, log, end, others, *counts = self._run_script(
            "note", encode_text(session), repr(now), *slice_, *position_args, *bodies
        )
        if is_added:
            self._read_batch(counts)
        return JournalPage(valid_values(others), JournalPosition(log.decode(), end), bool(is_added))

    def notes(self, session: str, since: JournalPosition = JOURNAL_START) -> JournalPage:
        log, end, bodies = self._run_script("notes", encode_text(session), repr(self.clock()), since.log, since.end)
        return JournalPage(valid_values(bodies), JournalPosition(log.decode(), end))

    def forget(self, session: str) -> int:
        return int(self._run_script("forget", encode_text(session)))

    def forget_all(self) -> int:
        return int(self._run_script("forget_all"))

    def forget_older(self, seconds: float) -> int:
        return int(self._run_script("forget_older", repr(self.clock() - seconds)))

    def prune(self) -> int:
        count, is_complete = 0, False
        while not is_complete:
            batch = self._read_batch(self._run_script("prune", *self._batch_arguments(self.clock(), 0)))
            count, is_complete = count + batch.originals, batch.is_complete
        return count

    def stats(self) -> StoreStats:
        with self._translate_errors(), self._open_client().pipeline() as batch:
            batch.hlen(self.prefix + "body")
            batch.zcard(self.prefix + "used")
            batch.hmget(self.prefix + "totals", ["stored", "size", "states"])
            batch.zrange(self.prefix + "added", 0, 0, withscores=True)
            batch.zrange(self.prefix + "added", -1, -1, withscores=True)
            originals, sessions, (stored_bytes, size, states), oldest, newest = batch.execute()
        first, last = (float(rows[0][1]) if rows else None for rows in (oldest, newest))
        return StoreStats(originals, sessions, int(stored_bytes or 0), int(size or 0), first, last, int(states or 0))

    def close(self) -> None:
        with self._lock:
            client, self._client = self._client, None
        if client is not None:
            client.close()

    def _check_eviction_policy(self) -> None:
        """Raise StoreError if the server may evict keys. Without permission to check it, trust the operator."""
        if self._trusted:
            return
        with self._translate_errors():
            from redis.exceptions import NoPermissionError

            try:
                memory: dict[str, Any] = self._open_client().info("memory")
            except NoPermissionError:
                memory = {}
        policy = str(memory.get("maxmemory_policy", ""))
        if memory.get("maxmemory") and policy.startswith(DROPPING):
            advice = "set maxmemory-policy to noeviction"
            raise StoreError(self.where, f"this server deletes keys when its memory is full ({policy}): {advice}")
        self._trusted = True

    def _run_script(self, verb: str, *args: str | bytes | int) -> Any:
        with self._translate_errors():
            self._open_client()
            return self._script(keys=[self.prefix], args=[verb, *args])

    def _open_client(self) -> Any:  # redis-py's return types are unions with those of its asynchronous client
        with self._lock:
            if self._client is None:
                self._client = _create_client(self.url, self.where)
                self._script = self._client.register_script(_load_script())
            return self._client

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        try:
            import redis
        except ModuleNotFoundError:
            raise StoreError(self.where, f"needs: {install_command('redis')}") from None
        try:
            yield
        except redis.RedisError as error:
            problem = str(error).rstrip(".")
            raise StoreError(self.where, f"{problem}: check that the server runs and takes writes") from error


def _rebuild_store(url: str, prefix: str, limits: Limits, clock: Callable[[], float]) -> RedisStore:
    return RedisStore(url, prefix=prefix, limits=limits, clock=clock)


def _create_client(url: str, where: str) -> redis.Redis:
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
def _load_script() -> str:
    return resources.files(__package__).joinpath("redis.lua").read_text()
