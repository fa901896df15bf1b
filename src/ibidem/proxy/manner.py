"""In what manner conversations are rewritten: by which strategies, and what their provider is asked to keep.

What goes through the proxy is rewritten as the settings say. A request that is only rewritten here and sent by its
client (`compacting`) may ask for another profile, and gets no marks for a cache: who sends it has put its own there; it
takes part in no trial, since nobody here learns what comes of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from ..engine.marking import CacheSettings
from ..store import MemoryStore, StoreError
from ..store.guarded import GuardedStore
from ..strategies import profiles
from ..strategies.strategy import Strategy
from .coin import Coin, Toss
from .conversation import Key


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

    def __init__(self, usual: Manner, coin: Coin | None = None) -> None:
        self.usual, self.coin = usual, coin
        self._measured = replace(usual.unmarked, measured=True)
        self._asked: dict[str, Manner] = {}

    def toss(self, key: Key, name: str) -> Toss | None:
        """On which side of a trial a conversation is that has this name in the store."""
        return self.coin.toss(key[1] or name) if self.coin is not None and not key[2:] else None

    def of(self, key: Key, toss: Toss | None = None) -> Manner:
        """Raises IbidemError for a profile that does not exist."""
        asked = "".join(key[2:])
        if not asked:
            return self._measured if toss is not None and toss.arm == "measure" else self.usual
        found = self._asked.get(asked)
        if found is None:
            found = self._asked[asked] = Manner(asked, sees_responses=False)
        return found
