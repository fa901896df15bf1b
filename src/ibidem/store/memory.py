"""A store that lives as long as its object: for tests, and for programs that need no second run.

After a fork each process has its own; it cannot be pickled.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field

from .packing import Packed, original, pack, packed, unpack
from .store import Store, StoreStats, collision, full, known_references

HERE = "memory:"


@dataclass(frozen=True, slots=True)
class _Kept:
    body: bytes
    size: int
    added: float


@dataclass(slots=True)
class _Session:
    used: float
    state: bytes | None = None
    refs: set[str] = field(default_factory=set)


@dataclass(kw_only=True, eq=False)
class MemoryStore(Store):
    max_bytes: int | None = None
    """Of originals as they are kept; None is no limit."""
    max_age: float | None = None
    """Seconds for which a session is live after its last use; None is for ever."""
    clock: Callable[[], float] = time.time
    where: str = HERE

    def __post_init__(self) -> None:
        self._lock = threading.RLock()
        self._clear()

    def _clear(self) -> None:
        self._originals: dict[str, _Kept] = {}
        self._sessions: dict[str, _Session] = {}
        self._links: Counter[str] = Counter()
        self._loose: set[str] = set()
        """Originals that no session references."""

    def put(self, session: str, originals: Mapping[str, str]) -> None:
        new = packed(self.where, originals)
        with self._lock:
            now = self.clock()
            missing = [each for each in new if not self._holds(each)]
            if self.max_age is not None:
                self._expire(now - self.max_age, session, originals)
            self._make_room(missing, originals)
            for each in missing:
                earlier = self._originals.get(each.ref)
                added = earlier.added if earlier else now
                self._originals[each.ref] = _Kept(each.body, each.size, added)
            used = self._use(session, now)
            self._link(used, set(originals) - used.refs)

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

    def save(self, session: str, state: bytes, refs: Collection[str]) -> None:
        body, live = pack(state), known_references(self.where, refs)
        with self._lock:
            used = self._use(session, self.clock())
            used.state = body
            self._unlink(used, used.refs - live)
            self._link(used, live - used.refs)

    def load(self, session: str) -> bytes | None:
        with self._lock:
            if session not in self._sessions:
                return None
            body = self._use(session, self.clock()).state
        return None if body is None else unpack(body)

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
            return self._expire(self.clock() - seconds)

    def stats(self) -> StoreStats:
        with self._lock:
            kept = self._originals.values()
            return StoreStats(
                originals=len(kept),
                sessions=len(self._sessions),
                bytes_stored=self._stored(),
                bytes_original=sum(each.size for each in kept),
                oldest=min((each.added for each in kept), default=None),
                newest=max((each.added for each in kept), default=None),
            )

    def close(self) -> None:
        """Nothing to give back: what was put is still there afterwards."""

    def _use(self, name: str, now: float) -> _Session:
        session = self._sessions.setdefault(name, _Session(now))
        session.used = max(session.used, now)  # a clock that is set back must not age what is in use
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
            self._unlink(session, session.refs)

    def _expire(self, before: float, using: str | None = None, keep: Collection[str] = ()) -> int:
        """Remove what was last used before that, but for the session and the originals that are being put."""
        for name in [name for name, each in self._sessions.items() if each.used < before and name != using]:
            self._end(name)
        return self._drop({ref for ref in self._loose if self._originals[ref].added < before} - set(keep))

    def _make_room(self, new: list[Packed], keep: Collection[str]) -> None:
        if self.max_bytes is None:
            return
        replaced = sum(len(self._originals[each.ref].body) for each in new if each.ref in self._originals)
        excess = self._stored() + sum(len(each.body) for each in new) - replaced - self.max_bytes
        victims = set()
        for ref in sorted(self._loose - set(keep), key=lambda ref: self._originals[ref].added):
            if excess <= 0:
                break
            victims.add(ref)
            excess -= len(self._originals[ref].body)
        if new and excess > 0:
            raise full(self.where, self.max_bytes)
        self._drop(victims)

    def _drop(self, refs: Collection[str]) -> int:
        gone = list(refs)
        for ref in gone:
            del self._originals[ref]
        self._loose.difference_update(gone)
        return len(gone)

    def _stored(self) -> int:
        return sum(len(each.body) for each in self._originals.values())
