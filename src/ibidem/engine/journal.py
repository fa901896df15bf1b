"""Facts about the requests of a conversation that a history does not contain: time, usage, how they were sent.

Each entry has a digest of the history that was sent. So entries of one branch of a conversation (a fork, a rewind,
another run of the same prompt) do not affect another. Any replica with the same entries and history decides the same.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Any, NamedTuple

from ..billing.budget import Moment
from ..billing.lifetimes import Kept
from ..errors import IbidemError, one_line

log = logging.getLogger("ibidem")

STATE_VERSION = 6
READABLE_VERSIONS = (5, STATE_VERSION)
"""Entries of version 5 lack the fields about caches, which have defaults."""
SENT_EDITION = 3
"""Rewrite version. Raise it if the same history and entries are sent differently. The default in old entries is 1."""
POSITION_DIGITS = 16
MAX_NOTES = 8192
"""Maximum entries of a conversation that are saved, the newest."""

RARE_FIELDS = 2
"""Number of last fields of an entry that are stored only if set, because older versions wrote rows without them."""

MAX_REFUSALS = 2
"""After this many rejected requests, no new text of the conversation is rewritten."""

Position = tuple[int, str]
"""Number of messages, and the digest of their content."""

NOWHERE: Position = (0, "")
"""Position of requests whose history is not tracked."""


def previous_length(length: int, role: Callable[[int], str]) -> int:
    """Return the length of the previous request: the messages before the model's last response.

    `length` is that of the current request, and `role` returns the role of a message by index.
    """
    heard = False
    for index in range(length - 1, -1, -1):
        if role(index) == "assistant":
            heard = True
        elif heard:
            return index + 1
    return 0


@dataclass(frozen=True, slots=True)
class Ranges:
    """Ranges of message indexes (end exclusive), sorted and without overlap."""

    all: tuple[tuple[int, float], ...] = ()

    def __contains__(self, number: object) -> bool:
        return isinstance(number, int) and any(first <= number < last for first, last in self.all)

    def __or__(self, other: tuple[int, float]) -> Ranges:
        """Return the ranges with one more."""
        apart = [each for each in self.all if each[1] < other[0] or other[1] < each[0]]
        near = [other, *(each for each in self.all if each not in apart)]
        whole = (min(first for first, _ in near), max(last for _, last in near))
        return Ranges(tuple(sorted([*apart, whole])))


class Note(NamedTuple):
    """Facts about one request."""

    moment: Moment
    as_is: int | None = None
    """Index of the first message that was sent unchanged."""
    at: float | None = None
    """Time of the response, in seconds since 1970."""
    context: int | None = None
    """Input tokens, as the provider counted them."""
    stopped: bool = False
    """True if text that was sent is not revised from here on."""
    refused: bool = False
    """True if the provider rejected the rewritten request."""
    cached: int | None = None
    """Input tokens that the provider read from its cache."""
    kept: Kept | None = None
    """The TTL decision; None if the TTL is left to the client."""
    removed: float = 0.0
    """Estimated tokens that edits removed."""
    spent: float = 0.0
    """Cost of all revisions until then, in tokens at the input price."""
    cleared: bool = False
    """True if the provider had cleared results of earlier calls when it responded."""
    thinking_dropped: int = 0
    """Number of messages that were sent without their thinking, because the provider rejected it."""

    def merged(self, other: Note) -> Note:
        """Return the entry merged with another replica's entry of the same request."""
        found = other if self.at is None and other.at is not None else self
        firsts = [each.as_is for each in (self, other) if each.as_is is not None]
        return found._replace(
            as_is=min(firsts, default=None),
            stopped=self.stopped or other.stopped,
            refused=self.refused or other.refused,
            cleared=self.cleared or other.cleared,
            thinking_dropped=max(self.thinking_dropped, other.thinking_dropped),
        )

    @property
    def unusual(self) -> bool:
        """True if the request was not sent as planned, or the provider rejected it or cleared results."""
        return self.as_is is not None or self.refused or self.cleared or self.thinking_dropped > 0

    @property
    def values(self) -> tuple[Any, ...]:
        """Fields after `moment`, as stored. The last two are omitted if they have their defaults."""
        used = next((len(self) - after for after in range(RARE_FIELDS) if self[-1 - after]), len(self) - RARE_FIELDS)
        return self[1:used]


def _note(moment: Moment, *rest: Any) -> Note:
    note = Note(moment, *rest)
    return note if note.kept is None else note._replace(kept=Kept(*note.kept))


def _moment_values(moment: Moment) -> Moment | tuple[Any, ...]:
    """Return the values for a row. The last one is written only if it is set: other rows stay as they were."""
    return moment if moment.new_settings else moment[:-1]


class Journal:
    """Entries of all branches of a conversation, and the positions of one history."""

    def __init__(self) -> None:
        self.notes: dict[Position, Note] = {}
        self._foreign: dict[Position, int] = {}
        """Rewrite version of the requests that another version of Ibidem recorded."""
        self._odd: set[Position] = set()
        """Positions of the unusual entries."""
        self._unsaved: dict[Position, None] = {}
        """Positions recorded since the last save, in that order."""
        self.begin()

    def begin(self) -> None:
        """Start a history at its first message."""
        self._chain = hashlib.sha256()
        self.positions: list[Position] = []
        """Position after each message of the history."""

    def __len__(self) -> int:
        """Number of messages of the history."""
        return len(self.positions)

    def follow(self, substances: Iterable[bytes]) -> None:
        """Append messages to the history, by the digests of their content."""
        for substance in substances:
            self._chain.update(substance)
            self.positions.append((len(self.positions) + 1, self._chain.hexdigest()[:POSITION_DIGITS]))

    def note(self, position: Position | None = None, **fields: Any) -> None:
        """Record facts about the request at `position`, or the current one."""
        here = position or self.positions[-1]
        before = self.notes.get(here)
        note = (before or Note(Moment()))._replace(**fields)
        if note != before:
            self._set(here, note)
            self._unsaved[here] = None

    def _set(self, position: Position, note: Note) -> None:
        self.notes[position] = note
        if note.unusual:
            self._odd.add(position)
        else:
            self._odd.discard(position)

    def followed(self, position: Position) -> bool:
        """Return True if the position is part of the history."""
        return 0 < position[0] <= len(self.positions) and self.positions[position[0] - 1] == position

    @property
    def position(self) -> Position | None:
        """Position of the current request."""
        return self.positions[-1] if self.positions else None

    @property
    def here(self) -> Note | None:
        """Entry of the current request, if it was sent before."""
        return self.notes.get(self.positions[-1]) if self.positions else None

    @property
    def last(self) -> tuple[int, Note] | None:
        """Length and entry of the previous request."""
        for index in range(len(self.positions) - 2, -1, -1):
            if (note := self.notes.get(self.positions[index])) is not None:
                return index + 1, note
        return None

    @property
    def before(self) -> Note | None:
        """Entry of the previous request."""
        last = self.last
        return None if last is None else last[1]

    @property
    def foreign(self) -> int | None:
        """Length of the last request of this history with another rewrite version; None if there is no such request."""
        if not self._foreign:
            return None
        return max((position[0] for position in self._foreign if self.followed(position)), default=None)

    @property
    def refused(self) -> bool:
        """True if the provider rejected a rewritten request of this history."""
        return any(self.notes[position].refused and self.followed(position) for position in self._odd)

    @property
    def any_refused(self) -> bool:
        """True if the provider rejected a rewritten request of any history."""
        return any(self.notes[position].refused for position in self._odd)

    def moments(self, since: int = 0) -> dict[int, Moment]:
        """Return the context of each request from length `length` on, by length of the history."""
        found = ((position, self.notes.get(position)) for position in self.positions[max(0, since - 1) :])
        return {position[0]: note.moment for position, note in found if note is not None}

    @property
    def as_is(self) -> Ranges:
        """Messages that were sent unchanged. They stay so, because the provider may have cached them."""
        found = [(position, self.notes[position]) for position in sorted(self._odd) if self.followed(position)]
        went: list[tuple[int, float]] = [
            (note.as_is, position[0]) for position, note in found if note.as_is is not None and note.as_is < position[0]
        ]
        refused = [position[0] for position, note in found if note.refused]
        went += [(length, float("inf")) for length in refused[MAX_REFUSALS - 1 :]]
        return reduce(Ranges.__or__, went, Ranges())

    @property
    def cleared_at(self) -> list[int]:
        """Lengths of the history when the provider reported that it had cleared results."""
        return sorted(at[0] for at in self._odd if self.notes[at].cleared and self.followed(at))

    @property
    def thinking_dropped(self) -> int:
        """Number of messages of this history that are sent without their thinking."""
        found = (self.notes[position].thinking_dropped for position in self._odd if self.followed(position))
        return max(found, default=0)

    @property
    def unusual(self) -> bool:
        """True if there are unusual entries, which matter for every profile."""
        return bool(self._odd)

    def dump(self) -> bytes:
        """Return all entries as one state, for `load`."""
        kept = list(self.notes.items())[-MAX_NOTES:]
        rows = [[*position, _moment_values(note.moment), *note.values] for position, note in kept]
        state: dict[str, Any] = {"version": STATE_VERSION, "sent": SENT_EDITION, "notes": rows}
        if foreign := [[*position, self._foreign[position]] for position, _ in kept if position in self._foreign]:
            state["foreign"] = foreign
        return json.dumps(state, separators=(",", ":")).encode()

    def load(self, state: bytes) -> None:
        """Add the entries of another journal's state. Raises IbidemError if it is not valid."""
        try:
            found = json.loads(state)
            if found["version"] not in READABLE_VERSIONS:
                raise ValueError(f"version {found['version']!r} instead of {STATE_VERSION}")
            rows = [
                ((int(n), str(digest)), _note(Moment(*moment), *rest)) for n, digest, moment, *rest in found["notes"]
            ]
            edition = int(found.get("sent", 1))
            others = {(int(n), str(digest)): int(other) for n, digest, other in found.get("foreign", ())}
        except (ValueError, TypeError, AttributeError, LookupError) as error:
            raise IbidemError(f"this is not a state of a session ({error}): start without it") from None
        for position, note in rows:
            self._learn(position, note, others.get(position, edition))

    # ── Rows: one for each entry, so that a store only needs the new ones ────────────────────────────────────────────

    def unsaved(self) -> dict[Position, Note]:
        """Return the entries that are not in a row yet."""
        return {position: self.notes[position] for position in self._unsaved}

    def row(self, position: Position, note: Note) -> bytes:
        """Return an entry as a row of the store."""
        edition = self._foreign.get(position, SENT_EDITION)
        values = [STATE_VERSION, edition, *position, _moment_values(note.moment), *note.values]
        return json.dumps(values, separators=(",", ":")).encode()

    def saved(self, notes: Mapping[Position, Note]) -> None:
        """Mark entries as saved. Entries that changed meanwhile stay unsaved."""
        for position, note in notes.items():
            if self.notes.get(position) is note:
                self._unsaved.pop(position, None)

    def forgotten(self) -> None:
        """Mark all entries as unsaved, because the store lost its rows."""
        self._unsaved = dict.fromkeys(list(self.notes)[-MAX_NOTES:])

    def learn(self, rows: Iterable[bytes]) -> dict[Position, bytes]:
        """Add the entries of rows, in their order. Return the last row of each request.

        Each writer has read all earlier rows, so a row replaces earlier rows of its request. Rows of an unknown version
        are skipped.
        """
        found: dict[Position, bytes] = {}
        for row in rows:
            try:
                edition, position, note = _parsed(row)
            except (ValueError, TypeError) as error:
                log.warning("a stored entry of a conversation was skipped: %s", one_line(str(error)))
                continue
            found[position] = row
            if position in self._unsaved:
                self._learn(position, note, edition)
                continue
            if position not in self.notes and edition != SENT_EDITION:
                self._foreign[position] = edition
            self._set(position, note)
        return found

    def _learn(self, position: Position, note: Note, edition: int) -> None:
        known = self.notes.get(position)
        if known is None and edition != SENT_EDITION:
            self._foreign[position] = edition
        merged = note if known is None else known.merged(note)
        if merged != known:
            self._set(position, merged)
            self._unsaved[position] = None


def _parsed(row: bytes) -> tuple[int, Position, Note]:
    """Return the rewrite version, position and entry of a row. Raises ValueError or TypeError if it is not valid."""
    version, edition, length, digest, moment, *rest = json.loads(row)
    if version not in READABLE_VERSIONS:
        raise ValueError(f"version {version!r} instead of {STATE_VERSION}")
    return int(edition), (int(length), str(digest)), _note(Moment(*moment), *rest)
