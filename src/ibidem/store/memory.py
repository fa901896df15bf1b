"""Store in the memory of the process, for tests and for programs that need no persistent store.

After a fork, each process has its own copy. The store cannot be pickled.
"""

from __future__ import annotations

import math
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice

from ..errors import one_line
from .limits import MOST_NOTES, MOST_ORIGINALS, MOST_PLACES, MOST_SESSIONS, Limits, SizeWarning, Slice, slice_bytes
from .packing import Packed, original, pack, packed, unpack, whole
from .store import (
    MEMORY_TARGET,
    NO_NOTES,
    Notes,
    NotesPlace,
    Store,
    StoreStats,
    collision,
    first_unknown,
    known_references,
    new_log,
)


@dataclass(frozen=True, slots=True)
class _Kept:
    """An original as stored."""

    body: bytes
    size: int
    added: float


@dataclass(slots=True)
class _Session:
    """State, references and journal of a session."""

    used: float
    state: bytes | None = None
    refs: set[str] = field(default_factory=set)
    notes: deque[bytes] = field(default_factory=deque)
    place: NotesPlace = NO_NOTES
    """End of the journal."""


@dataclass(kw_only=True, eq=False)
class MemoryStore(Store):
    """Store in memory. Its content is lost when the object is deleted."""

    limits: Limits = field(default_factory=Limits)
    clock: Callable[[], float] = time.time
    where: str = MEMORY_TARGET

    def __post_init__(self) -> None:
        self._lock = threading.RLock()
        self._told = SizeWarning()
        self._clear()

    def _clear(self) -> None:
        self._originals: dict[str, _Kept] = {}
        self._places: dict[str, list[str]] = {}
        self._sessions: dict[str, _Session] = {}
        self._links: Counter[str] = Counter()
        self._loose: set[str] = set()
        """Originals that no session references."""
        self._stored = self._states = 0
        """Stored bytes of originals, and of states and journals."""

    def put(self, session: str, originals: Mapping[str, str]) -> None:
        new = packed(self.where, originals)
        with self._lock:
            now = self.clock()
            missing = [each for each in new if not self._holds(each)]
            for each in missing:
                earlier = self._originals.get(each.ref)
                added = earlier.added if earlier else now
                self._stored += len(each.body) - (len(earlier.body) if earlier else 0)
                self._originals[each.ref] = _Kept(each.body, each.size, added)
            used = self._use(session, now)
            self._link(used, set(originals) - used.refs)
            self._forget_some(now, sum(len(each.body) for each in missing))

    def _holds(self, new: Packed) -> bool:
        kept = self._originals.get(new.ref)
        text = original(new.ref, kept.body) if kept else None
        if text is not None and text != new.text:
            raise collision(self.where, new.ref)
        return text is not None

    def get(self, refs: Iterable[str]) -> dict[str, str]:
        with self._lock:
            kept = {ref: self._originals[ref].body for ref in refs if ref in self._originals}
        texts = {ref: original(ref, body) for ref, body in kept.items()}
        return {ref: text for ref, text in texts.items() if text is not None}

    def place(self, places: Mapping[str, str]) -> None:
        with self._lock:
            for ref, place in places.items():
                if ref in self._originals:
                    line = one_line(place)
                    earlier = [each for each in self._places.get(ref, ()) if each != line]
                    self._places[ref] = [*earlier, line][-MOST_PLACES:]

    def places(self, ref: str) -> list[str]:
        with self._lock:
            return [*self._places.get(ref, ())]

    def refs(self, session: str) -> set[str]:
        with self._lock:
            found = self._sessions.get(session)
            return set() if found is None else set(found.refs)

    def save(self, session: str, state: bytes, refs: Collection[str]) -> None:
        body, live = pack(state), known_references(self.where, refs)
        with self._lock:
            now = self.clock()
            used = self._use(session, now)
            self._states += len(body) - len(used.state or b"")
            used.state = body
            self._unlink(used, used.refs - live)
            self._link(used, live - used.refs)
            self._forget_some(now, len(body))

    def load(self, session: str) -> bytes | None:
        with self._lock:
            if session not in self._sessions:
                return None
            body = self._use(session, self.clock()).state
        return None if body is None else unpack(body)

    def note(self, session: str, rows: Sequence[bytes], since: NotesPlace) -> Notes:
        bodies = [pack(row) for row in rows]
        with self._lock:
            now = self.clock()
            used = self._use(session, now)
            if used.place != since:
                return Notes(_since(used, since), used.place)
            used.notes.extend(bodies)
            used.place = NotesPlace(since.log or new_log(), since.end + len(rows))
            added = sum(map(len, bodies))
            self._states += added
            while len(used.notes) > MOST_NOTES:
                self._states -= len(used.notes.popleft())
            self._forget_some(now, added)
            return Notes([], used.place, added=True)

    def notes(self, session: str, since: NotesPlace = NO_NOTES) -> Notes:
        with self._lock:
            if session not in self._sessions:
                return Notes([], NO_NOTES)
            used = self._use(session, self.clock())
            return Notes(_since(used, since), used.place)

    def forget(self, session: str) -> int:
        with self._lock:
            self._end(session)
            return self._drop(self._loose)

    def forget_all(self) -> int:
        with self._lock:
            count = len(self._originals)
            self._clear()
            return count

    def forget_older(self, seconds: float) -> int:
        with self._lock:
            before = self.clock() - seconds
            for name in [name for name, each in self._sessions.items() if each.used < before]:
                self._end(name)
            return self._drop([ref for ref in self._loose if self._originals[ref].added < before])

    def prune(self) -> int:
        count, done = 0, False
        while not done:
            with self._lock:
                found = self._forget_some(self.clock(), 0)
            count, done = count + found.originals, found.done
        return count

    def stats(self) -> StoreStats:
        with self._lock:
            kept = self._originals.values()
            return StoreStats(
                originals=len(kept),
                sessions=len(self._sessions),
                bytes_stored=self._stored,
                bytes_states=self._states,
                bytes_original=sum(each.size for each in kept),
                oldest=min((each.added for each in kept), default=None),
                newest=max((each.added for each in kept), default=None),
            )

    def close(self) -> None:
        """Do nothing: there are no files or connections to close. The content stays available."""

    def _use(self, name: str, now: float) -> _Session:
        session = self._sessions.setdefault(name, _Session(now))
        session.used = max(session.used, now)  # a clock that is set back must not make the session look unused
        return session

    def _link(self, session: _Session, refs: set[str]) -> None:
        session.refs |= refs
        self._links.update(refs)
        self._loose -= refs

    def _unlink(self, session: _Session, refs: set[str]) -> None:
        session.refs = session.refs - refs
        self._links.subtract(refs)
        for ref in refs:
            if not self._links[ref]:
                del self._links[ref]
                if ref in self._originals:
                    self._loose.add(ref)

    def _end(self, name: str) -> None:
        if session := self._sessions.pop(name, None):
            self._states -= len(session.state or b"") + sum(map(len, session.notes))
            self._unlink(session, session.refs)

    def _forget_some(self, now: float, added: int) -> Slice:
        """Delete one batch beyond the limits, after a write of `added_bytes`."""
        found = _MemoryPruning(self, slice_bytes(added)).run(self.limits, now)
        self._told(self.where, self.limits, found)
        return found

    def _drop(self, refs: Collection[str]) -> int:
        gone = list(refs)
        for ref in gone:
            self._stored -= len(self._originals.pop(ref).body)
            self._places.pop(ref, None)
        self._loose.difference_update(gone)
        return len(gone)


def _since(session: _Session, since: NotesPlace) -> list[bytes]:
    let_go = session.place.end - len(session.notes)
    unknown = islice(session.notes, max(0, first_unknown(session.place, since) - let_go), None)
    return whole(unknown)


class _MemoryPruning:
    """Deletes one batch beyond the limits. The caller has the store's lock."""

    def __init__(self, store: MemoryStore, most: int) -> None:
        self._store = store
        self._most = most
        self._bytes = self._originals = self._sessions = 0

    def run(self, limits: Limits, now: float) -> Slice:
        store, before = self._store, limits.over_before(now)
        while not self._spent and self._end_one(before):
            pass
        self._drop(before, math.inf)
        excess = limits.excess(store._stored + store._states)
        while excess and not self._spent:
            self._drop(math.inf, excess)
            excess = limits.excess(store._stored + store._states)
            if excess and not self._spent and not self._end_one(limits.idle_before(now)):
                break
        return Slice(self._originals, self._sessions, excess, not self._spent)

    @property
    def _spent(self) -> bool:
        return self._sessions >= MOST_SESSIONS or self._originals >= MOST_ORIGINALS or self._bytes >= self._most

    def _end_one(self, before: float) -> bool:
        """Delete the least recently used session if its last use was before this time. Return whether it was."""
        sessions = self._store._sessions
        name = min(sessions, key=lambda name: sessions[name].used, default=None)
        if name is None or sessions[name].used >= before:
            return False
        self._store._end(name)
        self._sessions += 1
        return True

    def _drop(self, before: float, wanted: float) -> None:
        """Delete the oldest unreferenced originals from before this time, until `bytes_wanted` or the batch size."""
        kept, victims = self._store._originals, []
        old = [ref for ref in self._store._loose if kept[ref].added < before]
        for ref in sorted(old, key=lambda ref: kept[ref].added)[: max(0, MOST_ORIGINALS - self._originals)]:
            if wanted <= 0 or self._bytes >= self._most:
                break
            victims.append(ref)
            wanted -= len(kept[ref].body)
            self._bytes += len(kept[ref].body)
        self._originals += self._store._drop(victims)
