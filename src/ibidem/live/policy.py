"""How conversations are rewritten: with which strategies and cache settings, and which of them are paused.

Requests through the proxy use the profile of its settings. A request that is only rewritten here and sent by its client
(the compact endpoint) may ask for another profile. It gets no cache breakpoints, because its client has set its own. It
is in no experiment, because its response is not seen.

A paused conversation gets no new edits. Its sent prefix stays as it was sent, and new messages are sent unchanged. A
pause of all conversations also applies to later ones. Pauses are in memory and in one log in the store, under the name
that a conversation has there, so replicas agree and a restart keeps them. A conversation that is evicted from memory
returns with another id, so the names of paused ones are stored. A branch of a paused conversation is paused too.
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

from ..engine.breakpoint_placement import CacheSettings
from ..store import MemoryStore, StoreError
from ..store.guarded import GuardedStore
from ..store.store import JOURNAL_START, Store
from ..strategies import profiles
from ..strategies.strategy import Strategy
from .conversation import Assignment, ConversationKey


class NullStore(MemoryStore):
    """Store for requests that are sent unchanged. They contain no marker, so no original must be stored."""

    def put(self, session: str, originals: Mapping[str, str]) -> None:
        pass


class ReplayStore(MemoryStore):
    """Store for reconstructing how earlier requests were sent. A text that it does not have was not evicted then."""

    def __init__(self, store: GuardedStore, seconds: float) -> None:
        super().__init__()
        self._real, self._seconds = store, seconds

    def put(self, session: str, originals: Mapping[str, str]) -> None:
        with self._real.time_limit(self._seconds):
            if len(self._real.get(originals)) < len(originals):
                raise StoreError(self.where, "a text was never stored: it stays where it is")

    def get(self, refs: Iterable[str]) -> dict[str, str]:
        with self._real.time_limit(self._seconds):
            originals: dict[str, str] = self._real.get(refs)
            return originals


class Experiment(Protocol):
    """Assigns conversations to variants, of which one is only measured."""

    def assign_variant(self, format: str, name: str) -> Assignment:
        """Return the variant of a conversation. `name` is the client's name for it, or else its name in the store."""
        ...


@dataclass(frozen=True)
class RewritePolicy:
    """The strategies and cache settings of a conversation."""

    profile: str
    cache: CacheSettings = field(default_factory=CacheSettings)
    sees_responses: bool = True
    """True if Ibidem sees the provider's responses."""
    is_observed: bool = False
    """True if an experiment sends the requests unchanged. No originals are stored then."""
    strategies: tuple[Strategy, ...] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "strategies", tuple(profiles.profile_strategies(self.profile)))

    @cached_property
    def can_revise(self) -> bool:
        """True if a strategy may change text that was already sent."""
        return not all(each.final for each in self.strategies)

    @property
    def sets_cache_directives(self) -> bool:
        """True if requests may be sent with other cache breakpoints or TTLs than their client's."""
        return bool(self.cache)

    @property
    def without_breakpoints(self) -> RewritePolicy:
        """The same policy without cache directives."""
        return replace(self, cache=CacheSettings())

    @cached_property
    def needs_journal(self) -> bool:
        """True if times of requests and the provider's counts matter, so that the journal is needed."""
        return self.can_revise or self.sets_cache_directives

    @cached_property
    def is_fast(self) -> bool:
        """True if the time for a rewrite is predictable: only strategies of Ibidem, and no store calls."""
        return self.profile in profiles.PROFILES and not self.needs_journal


class RewritePolicies:
    """Rewrite policies by conversation key. Each is created on first use, at most one per profile."""

    def __init__(self, default: RewritePolicy, experiment: Experiment | None = None) -> None:
        self.default, self.experiment = default, experiment
        self._observing = replace(default.without_breakpoints, is_observed=True)
        self._by_profile: dict[str, RewritePolicy] = {}

    def assign_variant(self, key: ConversationKey, name: str) -> Assignment | None:
        """Return the variant of the conversation with this name in the store; None without an experiment."""
        return (
            self.experiment.assign_variant(key[0], key[1] or name)
            if self.experiment is not None and not key[2:]
            else None
        )

    def policy_for(self, key: ConversationKey, assignment: Assignment | None = None) -> RewritePolicy:
        """Return the policy of a conversation. Raises IbidemError for an unknown profile."""
        profile = "".join(key[2:])
        if not profile:
            return self._observing if assignment is not None and assignment.is_observed else self.default
        policy = self._by_profile.get(profile)
        if policy is None:
            policy = self._by_profile[profile] = RewritePolicy(profile, sees_responses=False)
        return policy


MAX_NAMES = 10_000
"""Names of paused conversations that are stored after they were evicted from memory."""

PAUSE_HEADER = "x-ibidem"
"""Request header that pauses (`off`) or resumes (`on`) its conversation, starting with that request."""

PauseMode = Literal["on", "off"]


def parse_pause_header(value: str) -> PauseMode | None:
    """Parse the pause header. Other values than `on` and `off` give None and have no effect."""
    mode = value.strip().lower()
    return "off" if mode == "off" else "on" if mode == "on" else None


class PauseState:
    """Pauses of conversations that are not in memory. Changed under the lock of `Conversations`."""

    def __init__(self) -> None:
        self.all_off = False
        """True if new conversations start paused."""
        self._paused_names: OrderedDict[str, None] = OrderedDict()
        self._remote_names: OrderedDict[str, None] = OrderedDict()
        """Names of conversations that were paused or resumed in another process."""

    def set_all(self, off: bool) -> None:
        """Pause or resume all conversations, also later ones."""
        self.all_off = off
        self._paused_names.clear()

    def record_evicted(self, name: str, off: bool) -> None:
        """Record that a conversation was evicted from memory."""
        if off:
            _add_name(self._paused_names, name)

    def record_remote(self, names: Iterable[str], off: bool) -> None:
        """Record that another process paused or resumed conversations with these names."""
        for name in names:
            _add_name(self._remote_names, name)
            if off:
                _add_name(self._paused_names, name)
            else:
                self.record_resumed(name)

    def record_resumed(self, name: str) -> None:
        """Record that a conversation was resumed."""
        self._paused_names.pop(name, None)

    def is_remote(self, name: str) -> bool:
        return name in self._remote_names

    def starts_off(self, name: str, has_history: bool, parent_off: bool) -> bool:
        """Return True if a new conversation starts paused.

        `has_history` means that its first request has a history. It may be an evicted conversation or a branch of one.
        """
        return self.all_off or (has_history and (parent_off or name in self._paused_names))


def _add_name(names: OrderedDict[str, None], name: str) -> None:
    names[name] = None
    names.move_to_end(name)
    if len(names) > MAX_NAMES:
        names.popitem(last=False)


log = logging.getLogger("ibidem")

LOG_NAME = "ibidem-pause"
"""Session of the store that contains the log."""
MAX_TRIES = 64
"""How often another process may write first before this one gives up."""


class Pause(NamedTuple):
    """One entry of the log: a conversation was paused or resumed."""

    name: str
    """Name of the conversation in the store; empty for all, also later ones."""
    off: bool


class PauseLog:
    """The pause log in the store, as far as this process has read it. Safe to use from several threads."""

    def __init__(self, store: Store, apply: Callable[[Pause], None]) -> None:
        self._store, self._apply = store, apply
        self._position = JOURNAL_START
        self._lock = threading.Lock()

    def apply_new(self) -> None:
        """Apply pauses that other processes added. Raises StoreError."""
        with self._lock:
            page = self._store.notes(LOG_NAME, self._position)
            self._position = page.place
            self._apply_all(page.rows)

    def add(self, pause: Pause) -> None:
        """Add a pause that was made here. Raises StoreError."""
        row = json.dumps([pause.name, pause.off], separators=(",", ":")).encode()
        with self._lock:
            for _ in range(MAX_TRIES):
                page = self._store.note(LOG_NAME, [row], self._position)
                self._position = page.place
                if page.added:
                    return
                self._apply_all(page.rows)
                self._apply(pause)  # again, because it now comes after theirs

    def _apply_all(self, rows: Iterable[bytes]) -> None:
        for row in rows:
            try:
                name, off = json.loads(row)
                pause = Pause(str(name), bool(off))
            except (ValueError, TypeError):
                log.warning("skipping a pause in the store that cannot be read")
                continue
            self._apply(pause)
