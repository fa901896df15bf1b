"""The protocol of a store, with its guarantees.

Before a sent text is evicted from a conversation, its original is stored under a reference. The marker in the
conversation has this reference. Losing an original that a conversation still needs cannot be repaired. So a store that
cannot store it raises an error, and the text stays in the conversation.

An original belongs to the sessions that reference it. `put`, `save`, `load`, `note` and `notes` count as a use of a
session, `get` and `refs` do not. A session is *live* for `Limits.live_for` seconds after its last use (default: a day).
Originals of a live session are only deleted by `forget`, `forget_all` and `forget_older`. `put`, `save`, `note` and
`prune` delete:

- sessions that were not used for `Limits.max_age`, with their state and journal;
- originals that no session references and that were first stored before that;
- if the stored bytes exceed `Limits.max_bytes`: unreferenced originals, the oldest first, then sessions that are not
  live, the least recently used first, with the originals that only they reference. If that is not enough, the store
  exceeds the limit and logs a warning.

The reference of a missing original is stored with its session. It protects the original if that is stored again.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, Self

from ..errors import IbidemError
from .references import REFERENCE_DIGITS, reference
from .retention import Limits

__all__ = ["Limits", "Store", "StoreError", "StoreStats", "reference"]

MEMORY_TARGET = "memory:"
"""Name of a store in the memory of this process."""

_REFERENCE = re.compile(f"[0-9a-f]{{{REFERENCE_DIGITS}}}")


class StoreError(IbidemError):
    """A store operation failed. The message names the store and what to do. Texts that were not stored must stay in the
    conversation."""

    def __init__(self, where: str, what: str) -> None:
        super().__init__(where, what)
        self.where = where
        self.what = what

    def __str__(self) -> str:
        return f"{self.where}: {self.what}"


@dataclass(frozen=True, slots=True)
class StoreStats:
    """Numbers and sizes of a store's content."""

    originals: int
    sessions: int
    """Number of sessions. Expired ones count until they are deleted."""
    bytes_stored: int
    """Size of the originals as stored, usually compressed."""
    bytes_original: int
    """Size of the originals as UTF-8."""
    oldest: float | None
    """Time when the oldest original was first stored, in seconds since 1970; None without originals."""
    newest: float | None
    bytes_states: int = 0
    """Size of states and journals as stored. `Limits.max_bytes` applies to these and the originals together."""

    @property
    def bytes_kept(self) -> int:
        """Size of originals, states and journals as stored."""
        return self.bytes_stored + self.bytes_states


class JournalPosition(NamedTuple):
    """Position in the journal of a session, up to which a caller knows its entries."""

    log: str = ""
    """Id of the journal. A session that was deleted and continues has another one. Empty without entries."""
    end: int = 0
    """Number of entries so far, including those that the store has deleted."""


JOURNAL_START = JournalPosition()


class JournalPage(NamedTuple):
    """Journal entries of a session since a position."""

    rows: list[bytes]
    """Entries since that position, in order, without damaged ones."""
    place: JournalPosition
    """End of the journal."""
    added: bool = False
    """The entries of the caller were added."""


class Store(Protocol):
    """Storage for originals, states and journals. Safe to use from several threads.

    SQLite and Redis stores are also safe to use from several processes.
    """

    where: str
    """Name of the store in messages, without secrets."""
    limits: Limits

    def put(self, session: str, originals: Mapping[str, str]) -> None:
        """Store texts by their references, and add the references to those of the session.

        When it returns, the texts are durable. In SQLite they survive a power loss, in Redis it depends on the server.
        Raises StoreError on any failure. Some texts may then be stored, and the call can be repeated. It also raises if
        a key is not the reference of its text, or if another text has the same reference. A damaged original is
        replaced.
        """
        ...

    def get(self, refs: Iterable[str]) -> dict[str, str]:
        """Return the texts of these references, without missing and damaged ones."""
        ...

    def place(self, places: Mapping[str, str]) -> None:
        """Store the position of originals in their conversation, by reference, as one line of text each.

        Each original has its last `MOST_PLACES` positions. Positions of missing originals are not stored.
        """
        ...

    def places(self, ref: str) -> list[str]:
        """Return the stored positions of an original in all conversations, the newest last."""
        ...

    def refs(self, session: str) -> set[str]:
        """Return the references of a session, including those of missing originals; empty for an unknown session."""
        ...

    def save(self, session: str, state: bytes, refs: Collection[str]) -> None:
        """Replace the state of a session and its references, in one transaction. It is as durable as `put`."""
        ...

    def load(self, session: str) -> bytes | None:
        """Return the last saved state, or None if it is missing or damaged."""
        ...

    def note(self, session: str, rows: Sequence[bytes], since: JournalPosition) -> JournalPage:
        """Append journal entries if the journal ends at `since`. If not, return the entries since then.

        So a caller can only append after it has read all earlier entries. It is as durable as `put`. The newest
        `MOST_NOTES` entries are stored.
        """
        ...

    def notes(self, session: str, since: JournalPosition = JOURNAL_START) -> JournalPage:
        """Return the journal entries since a position, or all entries if `since` is from another journal."""
        ...

    def forget(self, session: str) -> int:
        """Delete a session and the originals that only it references. Return the number of deleted originals.

        SQLite overwrites the deleted data. Copies in backups or in the file system are not deleted.
        """
        ...

    def forget_all(self) -> int:
        """Delete all content, also of live sessions. Return the number of deleted originals."""
        ...

    def forget_older(self, seconds: float) -> int:
        """Delete sessions without a use for this time, and unreferenced originals of that age.

        Return the number of deleted originals.
        """
        ...

    def prune(self) -> int:
        """Delete all content beyond the limits, in batches that block other callers only briefly.

        Return the number of deleted originals.
        """
        ...

    def stats(self) -> StoreStats:
        """Return numbers and sizes of the content."""
        ...

    def close(self) -> None:
        """Close files and connections. A later call opens them again."""
        ...

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def first_unknown(place: JournalPosition, since: JournalPosition) -> int:
    """Return the number of the first journal entry after `since`. In another journal it is 0."""
    return min(since.end, place.end) if since.log == place.log else 0


def new_journal_id() -> str:
    """Return a random id for a new journal."""
    return os.urandom(8).hex()


def encode_text(text: str) -> bytes:
    """Encode a text as UTF-8, including lone surrogates, which JSON escapes can produce."""
    return text.encode("utf-8", "surrogatepass")


def is_reference(text: str) -> bool:
    return _REFERENCE.fullmatch(text) is not None


def known_references(where: str, refs: Iterable[str]) -> set[str]:
    """Return the references as a set. Raises StoreError for a malformed one."""
    references = set(refs)
    for ref in references:
        if not is_reference(ref):
            raise StoreError(where, f"{ref!r} is not a reference: pass 12 hex digits")
    return references


def collision_error(where: str, ref: str) -> StoreError:
    return StoreError(where, f"another text already has the reference {ref}: this one cannot be stored")
