"""What every store promises.

A text that is taken out of a conversation after it was sent goes to a store first, under a reference that stands in its
place from then on. Losing a text that a conversation still refers to is the one fault that cannot be made good, so
every doubt is decided for keeping: a store that cannot promise says so, and the text stays where it was.

An original belongs to the sessions that reference it. `put`, `save`, `load`, `note` and `notes` are uses of a session,
`get` and `refs` are none. A session is *live* for `Limits.live_for` seconds after its last use, a day unless told
otherwise: it loses nothing unasked, and neither does another that shares an original with it. What goes unasked, with a
`put`, a `save`, a `note` or a `prune`, is

- sessions that were not used for `Limits.max_age`, each whole, with its state and notes;
- originals that no session references, first put before that;
- where originals, states and notes take more than `Limits.max_bytes`, as they are stored: originals that no session
  references, the oldest first, then sessions that are not live, the least recently used first, with all that
  no other references, as many as it takes. If that is not enough the limit is exceeded, and that is told.

A reference that a session names is kept even where its original is missing, and protects it when it is put again.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, Self

from ..errors import IbidemError
from .limits import Limits
from .naming import REFERENCE_DIGITS, reference

__all__ = ["Limits", "Store", "StoreError", "StoreStats", "reference"]

MEMORY_TARGET = "memory:"
"""How a store in the memory of this process is named."""

_REFERENCE = re.compile(f"[0-9a-f]{{{REFERENCE_DIGITS}}}")


class StoreError(IbidemError):
    """The store cannot do it: which store, and what to do. What was to be stored must stay where it is."""

    def __init__(self, where: str, what: str) -> None:
        super().__init__(where, what)
        self.where = where
        self.what = what

    def __str__(self) -> str:
        return f"{self.where}: {self.what}"


@dataclass(frozen=True, slots=True)
class StoreStats:
    originals: int
    sessions: int
    """Those that are over count until they are removed."""
    bytes_stored: int
    """What the originals take as they are kept."""
    bytes_original: int
    """What they take as UTF-8."""
    oldest: float | None
    """When the first of the originals that are there was put, in seconds since 1970; None where there is none."""
    newest: float | None
    bytes_states: int = 0
    """What states and notes take as they are kept: the limit is for them and the originals together."""

    @property
    def bytes_kept(self) -> int:
        return self.bytes_stored + self.bytes_states


class NotesPlace(NamedTuple):
    """Up to where the notes of a session are known."""

    log: str = ""
    """Which they are: those of a session that was forgotten and goes on are others. Empty where there are none."""
    end: int = 0
    """How many there were, those included that the store let go."""


NO_NOTES = NotesPlace()


class Notes(NamedTuple):
    """What a store answers about notes."""

    rows: list[bytes]
    """Those since the place that was named, in their order, as far as they are whole."""
    place: NotesPlace
    """Where they end now."""
    added: bool = False
    """Whether what was given was added."""


class Store(Protocol):
    """Safe to use from several threads; SQLite and Redis also from several processes at once."""

    where: str
    """Its name in messages, without secrets."""
    limits: Limits

    def put(self, session: str, originals: Mapping[str, str]) -> None:
        """Keep these texts, by their references, for this session, beside those it has.

        When it returns they are durable: in SQLite they survive a loss of power, in Redis whatever the server is set up
        to survive. Raises StoreError if anything failed, and then nothing of it counts: a part of it may be there, and
        the same call may be made again. It also raises if a key is not the reference of its text, and if another text
        has the same reference. A damaged original is replaced.
        """
        ...

    def get(self, refs: Iterable[str]) -> dict[str, str]:
        """Those that are there and whole: each is compared with its reference."""
        ...

    def place(self, places: Mapping[str, str]) -> None:
        """Remember in which place originals stood, by reference, for whoever asks for one: a line each.

        Of an original the last `MOST_PLACES` are kept, as long as it is; places of one that is not there are not.
        """
        ...

    def places(self, ref: str) -> list[str]:
        """Where an original stood, the newest place last; conversations that share it share its places."""
        ...

    def refs(self, session: str) -> set[str]:
        """The references that a session names, also those whose originals are missing; none if it is not known."""
        ...

    def save(self, session: str, state: bytes, refs: Collection[str]) -> None:
        """The state of a conversation and the references that are live in it: both replace the earlier ones, at once.

        As durable as `put`.
        """
        ...

    def load(self, session: str) -> bytes | None:
        """The state saved last; None where there is none, or it is damaged."""
        ...

    def note(self, session: str, rows: Sequence[bytes], since: NotesPlace) -> Notes:
        """Add notes behind all others, if these end where the caller knows them to, and else tell what others added.

        So nobody adds a note without having seen all before it. As durable as `put`. The newest `MOST_NOTES` are kept.
        """
        ...

    def notes(self, session: str, since: NotesPlace = NO_NOTES) -> Notes:
        """The notes since then; all that are kept if they are others than the caller knows."""
        ...

    def forget(self, session: str) -> int:
        """Drop a session and every original that no session references then; how many these were.

        SQLite overwrites what is dropped, and what a backup or a file system keeps of it is out of reach.
        """
        ...

    def forget_all(self) -> int:
        """Drop everything, whether live or not; how many originals that were."""
        ...

    def forget_older(self, seconds: float) -> int:
        """Drop sessions not used for so long, and originals first put before that which no session references then."""
        ...

    def prune(self) -> int:
        """Drop what the limits say may go, in slices, so that others are not kept waiting; how many originals."""
        ...

    def stats(self) -> StoreStats: ...

    def close(self) -> None:
        """Give back files and connections. A later call opens them again."""
        ...

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def first_unknown(place: NotesPlace, since: NotesPlace) -> int:
    """The number of the first note that one who knows them up to `since` does not know."""
    return min(since.end, place.end) if since.log == place.log else 0


def new_log() -> str:
    return os.urandom(8).hex()


def encoded(text: str) -> bytes:
    """UTF-8; a lone surrogate, which a JSON escape can carry, is kept."""
    return text.encode("utf-8", "surrogatepass")


def is_reference(text: str) -> bool:
    return _REFERENCE.fullmatch(text) is not None


def known_references(where: str, refs: Iterable[str]) -> set[str]:
    """References, each once. Raises StoreError for one that no text can have."""
    found = set(refs)
    for ref in found:
        if not is_reference(ref):
            raise StoreError(where, f"{ref!r} is no reference: those have 12 hex digits")
    return found


def collision(where: str, ref: str) -> StoreError:
    return StoreError(where, f"another text already has the reference {ref}: this one cannot be stored")
