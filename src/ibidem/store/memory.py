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
    MEMORY_TARGET,
    JournalPage,
    JournalPosition,
    Store,
    StoreStats,
    collision_error,
    first_unknown,
    known_references,
    new_journal_id,
)
from .value_codec import EncodedValue, decode_original, decode_value, encode_originals, encode_value, valid_values


@dataclass(frozen=True, slots=True)
class _StoredText:
    """An original as stored."""

    body: bytes
    size: int
    added: float


@dataclass(slots=True)
class _SessionRecord:
    """State, references and journal of a session."""

    last_use: float
    state: bytes | None = None
    refs: set[str] = field(default_factory=set)
    notes: deque[bytes] = field(default_factory=deque)
    place: JournalPosition = JOURNAL_START
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
        self._clear_all()

    def _clear_all(self) -> None:
        self._originals: dict[str, _StoredText] = {}
        self._places: dict[str, list[str]] = {}
        self._sessions: dict[str, _SessionRecord] = {}
        self._links: Counter[str] = Counter()
        self._loose: set[str] = set()
        """Originals that no session references."""
        self._stored = self._states = 0
        """Stored bytes of originals, and of states and journals."""

    def put(self, session: str, originals: Mapping[str, str]) -> None:
        new = encode_originals(self.where, originals)
        with self._lock:
            now = self.clock()
            missing = [each for each in new if not self._has_text(each)]
            for each in missing:
                earlier = self._originals.get(each.ref)
                added_time = earlier.added if earlier else now
                self._stored += len(each.body) - (len(earlier.body) if earlier else 0)
                self._originals[each.ref] = _StoredText(each.body, each.size, added_time)
            session_record = self._use_session(session, now)
            self._add_links(session_record, set(originals) - session_record.refs)
            self._prune_batch(now, sum(len(each.body) for each in missing))

    def _has_text(self, new: EncodedValue) -> bool:
        stored_text = self._originals.get(new.ref)
        text = decode_original(new.ref, stored_text.body) if stored_text else None
        if text is not None and text != new.text:
            raise collision_error(self.where, new.ref)
        return text is not None

    def get(self, refs: Iterable[str]) -> dict[str, str]:
        with self._lock:
            bodies = {ref: self._originals[ref].body for ref in refs if ref in self._originals}
        texts = {ref: decode_original(ref, body) for ref, body in bodies.items()}
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
            session_record = self._sessions.get(session)
            return set() if session_record is None else set(session_record.refs)

    def save(self, session: str, state: bytes, refs: Collection[str]) -> None:
        body, live = encode_value(state), known_references(self.where, refs)
        with self._lock:
            now = self.clock()
            session_record = self._use_session(session, now)
            self._states += len(body) - len(session_record.state or b"")
            session_record.state = body
            self._remove_links(session_record, session_record.refs - live)
            self._add_links(session_record, live - session_record.refs)
            self._prune_batch(now, len(body))

    def load(self, session: str) -> bytes | None:
        with self._lock:
            if session not in self._sessions:
                return None
            body = self._use_session(session, self.clock()).state
        return None if body is None else decode_value(body)

    def note(self, session: str, rows: Sequence[bytes], since: JournalPosition) -> JournalPage:
        bodies = [encode_value(row) for row in rows]
        with self._lock:
            now = self.clock()
            session_record = self._use_session(session, now)
            if session_record.place != since:
                return JournalPage(_entries_since(session_record, since), session_record.place)
            session_record.notes.extend(bodies)
            session_record.place = JournalPosition(since.log or new_journal_id(), since.end + len(rows))
            added_bytes = sum(map(len, bodies))
            self._states += added_bytes
            while len(session_record.notes) > MOST_NOTES:
                self._states -= len(session_record.notes.popleft())
            self._prune_batch(now, added_bytes)
            return JournalPage([], session_record.place, added=True)

    def notes(self, session: str, since: JournalPosition = JOURNAL_START) -> JournalPage:
        with self._lock:
            if session not in self._sessions:
                return JournalPage([], JOURNAL_START)
            session_record = self._use_session(session, self.clock())
            return JournalPage(_entries_since(session_record, since), session_record.place)

    def forget(self, session: str) -> int:
        with self._lock:
            self._end_session(session)
            return self._drop_originals(self._loose)

    def forget_all(self) -> int:
        with self._lock:
            count = len(self._originals)
            self._clear_all()
            return count

    def forget_older(self, seconds: float) -> int:
        with self._lock:
            before = self.clock() - seconds
            for name in [name for name, record in self._sessions.items() if record.last_use < before]:
                self._end_session(name)
            return self._drop_originals([ref for ref in self._loose if self._originals[ref].added < before])

    def prune(self) -> int:
        count, is_complete = 0, False
        while not is_complete:
            with self._lock:
                batch = self._prune_batch(self.clock(), 0)
            count, is_complete = count + batch.originals, batch.is_complete
        return count

    def stats(self) -> StoreStats:
        with self._lock:
            stored_texts = self._originals.values()
            return StoreStats(
                originals=len(stored_texts),
                sessions=len(self._sessions),
                bytes_stored=self._stored,
                bytes_states=self._states,
                bytes_original=sum(text.size for text in stored_texts),
                oldest=min((each.added for each in stored_texts), default=None),
                newest=max((each.added for each in stored_texts), default=None),
            )

    def close(self) -> None:
        """Do nothing: there are no files or connections to close. The content stays available."""

    def _use_session(self, name: str, now: float) -> _SessionRecord:
        session = self._sessions.setdefault(name, _SessionRecord(now))
        session.last_use = max(session.last_use, now)  # a clock that is set back must not make the session look unused
        return session

    def _add_links(self, session: _SessionRecord, refs: set[str]) -> None:
        session.refs |= refs
        self._links.update(refs)
        self._loose -= refs

    def _remove_links(self, session: _SessionRecord, refs: set[str]) -> None:
        session.refs = session.refs - refs
        self._links.subtract(refs)
        for ref in refs:
            if not self._links[ref]:
                del self._links[ref]
                if ref in self._originals:
                    self._loose.add(ref)

    def _end_session(self, name: str) -> None:
        if session := self._sessions.pop(name, None):
            self._states -= len(session.state or b"") + sum(map(len, session.notes))
            self._remove_links(session, session.refs)

    def _prune_batch(self, now: float, added_bytes: int) -> PrunedBatch:
        """Delete one batch beyond the limits, after a write of `added_bytes`."""
        batch = _MemoryPruner(self, batch_bytes(added_bytes)).prune_batch(self.limits, now)
        self._told(self.where, self.limits, batch)
        return batch

    def _drop_originals(self, refs: Collection[str]) -> int:
        dropped_refs = list(refs)
        for ref in dropped_refs:
            self._stored -= len(self._originals.pop(ref).body)
            self._places.pop(ref, None)
        self._loose.difference_update(dropped_refs)
        return len(dropped_refs)


def _entries_since(session: _SessionRecord, since: JournalPosition) -> list[bytes]:
    deleted_count = session.place.end - len(session.notes)
    unknown = islice(session.notes, max(0, first_unknown(session.place, since) - deleted_count), None)
    return valid_values(unknown)


class _MemoryPruner:
    """Deletes one batch beyond the limits. The caller has the store's lock."""

    def __init__(self, store: MemoryStore, most: int) -> None:
        self._store = store
        self._most = most
        self._bytes = self._originals = self._sessions = 0

    def prune_batch(self, limits: Limits, now: float) -> PrunedBatch:
        store, before = self._store, limits.over_before(now)
        while not self._is_full and self._end_oldest_session(before):
            pass
        self._drop_oldest(before, math.inf)
        excess = limits.excess(store._stored + store._states)
        while excess and not self._is_full:
            self._drop_oldest(math.inf, excess)
            excess = limits.excess(store._stored + store._states)
            if excess and not self._is_full and not self._end_oldest_session(limits.idle_before(now)):
                break
        return PrunedBatch(self._originals, self._sessions, excess, not self._is_full)

    @property
    def _is_full(self) -> bool:
        return self._sessions >= MOST_SESSIONS or self._originals >= MOST_ORIGINALS or self._bytes >= self._most

    def _end_oldest_session(self, before: float) -> bool:
        """Delete the least recently used session if its last use was before this time. Return whether it was."""
        sessions = self._store._sessions
        name = min(sessions, key=lambda name: sessions[name].last_use, default=None)
        if name is None or sessions[name].last_use >= before:
            return False
        self._store._end_session(name)
        self._sessions += 1
        return True

    def _drop_oldest(self, before: float, bytes_wanted: float) -> None:
        """Delete the oldest unreferenced originals from before this time, until `bytes_wanted` or the batch size."""
        originals, victims = self._store._originals, []
        old = [ref for ref in self._store._loose if originals[ref].added < before]
        for ref in sorted(old, key=lambda ref: originals[ref].added)[: max(0, MOST_ORIGINALS - self._originals)]:
            if bytes_wanted <= 0 or self._bytes >= self._most:
                break
            victims.append(ref)
            bytes_wanted -= len(originals[ref].body)
            self._bytes += len(originals[ref].body)
        self._originals += self._store._drop_originals(victims)
