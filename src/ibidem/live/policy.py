"""How conversations are rewritten: by which strategies and cache settings, and which of them are paused.

Requests through the proxy are rewritten as its settings say. A request that is only rewritten here and sent by its
client (the compact endpoint) may ask for another profile. It gets no cache breakpoints, because its client has set its
own, and it is in no experiment, because its response is not seen.

A paused conversation gets no new edits: what its provider has stays as it was sent, and new messages are sent as they
came. A pause of all conversations also counts for later ones. Pauses are in memory and in one log in the store, by the
name that a conversation has there, so replicas agree and a restart keeps them. A conversation that is evicted from
memory comes back with another id, so names of paused ones are kept. A branch of a paused conversation is paused too.
"""

from __future__ import annotations

import json
import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal, NamedTuple, Protocol

from ..engine.marking import CacheSettings
from ..store import MemoryStore, StoreError
from ..store.guarded import GuardedStore
from ..store.store import NO_NOTES, Store
from ..strategies import profiles
from ..strategies.strategy import Strategy
from .conversation import Assignment, Key


class NothingKept(MemoryStore):
    """For requests that go out as they came: no marker points at a text of theirs, so none is kept."""

    def put(self, session: str, originals: Mapping[str, str]) -> None:
        pass


class OnlyStored(MemoryStore):
    """For working out how earlier requests were sent: a text that the store does not have was not evicted then."""

    def __init__(self, store: GuardedStore, seconds: float) -> None:
        super().__init__()
        self._real, self._seconds = store, seconds

    def put(self, session: str, originals: Mapping[str, str]) -> None:
        with self._real.until(self._seconds):
            if len(self._real.get(originals)) < len(originals):
                raise StoreError(self.where, "a text was never stored: it stays where it is")

    def get(self, refs: Iterable[str]) -> dict[str, str]:
        with self._real.until(self._seconds):
            found: dict[str, str] = self._real.get(refs)
            return found


class Experiment(Protocol):
    """Assigns conversations to variants, of which one is only measured."""

    def assign(self, format: str, name: str) -> Assignment:
        """The variant of a conversation, by the client's name for it or else its name in the store."""
        ...


@dataclass(frozen=True)
class Manner:
    profile: str
    cache: CacheSettings = field(default_factory=CacheSettings)
    sees_responses: bool = True
    """Ibidem sees what the provider answers."""
    measured: bool = False
    """It goes as it came, for a trial: nothing of it is sent, and so nothing is kept."""
    strategies: tuple[Strategy, ...] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "strategies", tuple(profiles.named(self.profile)))

    @cached_property
    def revises(self) -> bool:
        """It may change what was sent before."""
        return not all(each.final for each in self.strategies)

    @property
    def asks_to_keep(self) -> bool:
        """Requests may be sent with other marks or lifetimes than their client's."""
        return bool(self.cache)

    @property
    def unmarked(self) -> Manner:
        """Likewise, with nothing asked of a cache."""
        return replace(self, cache=CacheSettings())

    @cached_property
    def remembers(self) -> bool:
        """It matters when requests came, and what their provider counted."""
        return self.revises or self.asks_to_keep

    @cached_property
    def quick(self) -> bool:
        """What it takes is known: nobody else's code has a part in it, and no store is asked."""
        return self.profile in profiles.PROFILES and not self.remembers


class Manners:
    """By the key of a conversation. Each is made when it is first asked for; there are no more than profiles."""

    def __init__(self, usual: Manner, experiment: Experiment | None = None) -> None:
        self.usual, self.experiment = usual, experiment
        self._measured = replace(usual.unmarked, measured=True)
        self._asked: dict[str, Manner] = {}

    def assign(self, key: Key, name: str) -> Assignment | None:
        """The variant of a conversation that has this name in the store; None if it is in no experiment."""
        return self.experiment.assign(key[0], key[1] or name) if self.experiment is not None and not key[2:] else None

    def of(self, key: Key, assignment: Assignment | None = None) -> Manner:
        """Raises IbidemError for a profile that does not exist."""
        asked = "".join(key[2:])
        if not asked:
            return self._measured if assignment is not None and assignment.measured else self.usual
        found = self._asked.get(asked)
        if found is None:
            found = self._asked[asked] = Manner(asked, sees_responses=False)
        return found


MAX_NAMES = 10_000
"""Names of conversations that are remembered after they were let go."""

WISH_HEADER = "x-ibidem"
"""By which a request says what is to become of its conversation, from itself on: `on` or `off`."""

Wish = Literal["on", "off"]


def wish(value: str) -> Wish | None:
    """What a header says; None for anything else, which changes nothing."""
    found = value.strip().lower()
    return "off" if found == "off" else "on" if found == "on" else None


class Switch:
    """What is known of it beside the conversations in use. Changed under the lock of who has these."""

    def __init__(self) -> None:
        self.all_off = False
        """Those that begin now are off."""
        self._gone: OrderedDict[str, None] = OrderedDict()
        self._elsewhere: OrderedDict[str, None] = OrderedDict()
        """Names of conversations that another process had when one of them was switched."""

    def turn_all(self, off: bool) -> None:
        self.all_off = off
        self._gone.clear()

    def let_go(self, name: str, off: bool) -> None:
        """One of this name is not in use any more."""
        if off:
            _remember(self._gone, name)

    def hear(self, names: Iterable[str], off: bool) -> None:
        """Another process has conversations of these names, and they were switched."""
        for name in names:
            _remember(self._elsewhere, name)
            if off:
                _remember(self._gone, name)
            else:
                self.forget(name)

    def forget(self, name: str) -> None:
        """One of this name is on again."""
        self._gone.pop(name, None)

    def is_elsewhere(self, name: str) -> bool:
        return name in self._elsewhere

    def begins_off(self, name: str, further: bool, parent_off: bool) -> bool:
        """`further`: it comes with a history, so that it may be one that was here before, or a branch of its parent."""
        return self.all_off or (further and (parent_off or name in self._gone))


def _remember(names: OrderedDict[str, None], name: str) -> None:
    names[name] = None
    names.move_to_end(name)
    if len(names) > MAX_NAMES:
        names.popitem(last=False)


log = logging.getLogger("ibidem")

LOG_NAME = "ibidem-pause"
"""Session of the store that has the log."""
MAX_TRIES = 64
"""How often others may be faster, one after the other."""


class Pause(NamedTuple):
    """One change."""

    name: str
    """Name of the conversation in the store; empty for all, also later ones."""
    off: bool


class PauseLog:
    """The log, as far as this process knows it. Safe to use from several threads."""

    def __init__(self, store: Store, apply: Callable[[Pause], None]) -> None:
        self._store, self._apply = store, apply
        self._place = NO_NOTES
        self._lock = threading.Lock()

    def read(self) -> None:
        """Apply what others added. Raises StoreError."""
        with self._lock:
            found = self._store.notes(LOG_NAME, self._place)
            self._place = found.place
            self._apply_all(found.rows)

    def add(self, pause: Pause) -> None:
        """Add a change that was made here. Raises StoreError."""
        row = json.dumps([pause.name, pause.off], separators=(",", ":")).encode()
        with self._lock:
            for _ in range(MAX_TRIES):
                found = self._store.note(LOG_NAME, [row], self._place)
                self._place = found.place
                if found.added:
                    return
                self._apply_all(found.rows)
                self._apply(pause)  # it comes after theirs

    def _apply_all(self, rows: Iterable[bytes]) -> None:
        for row in rows:
            try:
                name, off = json.loads(row)
                pause = Pause(str(name), bool(off))
            except (ValueError, TypeError):
                log.warning("a pause in the store cannot be read: it is skipped")
                continue
            self._apply(pause)
