"""A store that several proxies share, and each proxy's connection to it, which fails, hangs or forgets on demand."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Literal, NamedTuple, TypeVar

from ibidem.store import Store, StoreError
from ibidem.store.store import JOURNAL_START, JournalPage, JournalPosition, StoreStats

T = TypeVar("T")
FaultKind = Literal["fail", "hang", "forget", "wipe", "die"]
Action = Callable[[], None]
CONNECTION = "shared store"


def _ignore() -> None:
    pass


class Fault(NamedTuple):
    """A fault of a connection, counted in its calls."""

    kind: FaultKind
    first: int = 1
    """Number of the first call that it hits; the next call is number 1."""
    calls: int = 1
    """How many it hits."""
    seconds: float = 0.0
    """Delay of a call that hangs. The call succeeds after it."""


class CallCounter:
    """Store calls, and the fault of one or some of them."""

    def __init__(self, fault: Fault | None = None) -> None:
        self.calls = 0
        self.hits = 0
        """Calls that a fault hit."""
        self._lock = threading.Lock()
        self._fault = fault
        self._armed_at = 0

    def arm(self, fault: Fault | None) -> None:
        """Set the fault of the calls to come."""
        with self._lock:
            self._fault, self._armed_at = fault, self.calls

    def count(self) -> Fault | None:
        """Count a call. Return the fault that hits it."""
        with self._lock:
            self.calls += 1
            fault, number = self._fault, self.calls - self._armed_at
            if fault is None or not fault.first <= number < fault.first + fault.calls:
                return None
            self.hits += 1
            return fault


class StoreLink(Store):
    """The connection of one proxy process to a shared store.

    A process that was killed writes nothing more: after `die`, every call raises.
    """

    def __init__(self, store: Store, every: CallCounter, on_loss: Action = _ignore, on_death: Action = _ignore) -> None:
        """`every` counts the calls of all connections. `on_loss` is called when the store loses data, `on_death` when
        the process is killed."""
        self.where, self.limits = CONNECTION, store.limits
        self.own = CallCounter()
        self.dead = False
        self._every, self._store, self._on_loss, self._on_death = every, store, on_loss, on_death

    def die(self) -> None:
        if not self.dead:
            self.dead = True
            self._on_death()

    def _call(self, session: str, work: Callable[[], T]) -> T:
        if not self.dead:
            for fault in (self._every.count(), self.own.count()):
                if fault is not None:
                    self._break(fault, session)
        if self.dead:
            raise StoreError(self.where, "the process was killed")
        return work()

    def _break(self, fault: Fault, session: str) -> None:
        if fault.kind == "die":
            self.die()
        elif fault.kind == "fail":
            raise StoreError(self.where, "a fault of the test")
        elif fault.kind == "hang":
            time.sleep(fault.seconds)
        else:
            self._on_loss()
            if fault.kind == "forget" and session:
                self._store.forget(session)
            else:
                self._store.forget_all()

    def put(self, session: str, originals: Mapping[str, str]) -> None:
        self._call(session, lambda: self._store.put(session, originals))

    def get(self, refs: Iterable[str]) -> dict[str, str]:
        return self._call("", lambda: self._store.get(refs))

    def place(self, places: Mapping[str, str]) -> None:
        self._call("", lambda: self._store.place(places))

    def places(self, ref: str) -> list[str]:
        return self._call("", lambda: self._store.places(ref))

    def refs(self, session: str) -> set[str]:
        return self._call(session, lambda: self._store.refs(session))

    def save(self, session: str, state: bytes, refs: Collection[str]) -> None:
        self._call(session, lambda: self._store.save(session, state, refs))

    def load(self, session: str) -> bytes | None:
        return self._call(session, lambda: self._store.load(session))

    def note(self, session: str, rows: Sequence[bytes], since: JournalPosition) -> JournalPage:
        return self._call(session, lambda: self._store.note(session, rows, since))

    def notes(self, session: str, since: JournalPosition = JOURNAL_START) -> JournalPage:
        return self._call(session, lambda: self._store.notes(session, since))

    def forget(self, session: str) -> int:
        return self._call(session, lambda: self._store.forget(session))

    def forget_all(self) -> int:
        return self._call("", self._store.forget_all)

    def forget_older(self, seconds: float) -> int:
        return self._call("", lambda: self._store.forget_older(seconds))

    def prune(self) -> int:
        return 0

    def stats(self) -> StoreStats:
        return self._store.stats()

    def close(self) -> None:
        """Leave the shared store open for the other connections."""
