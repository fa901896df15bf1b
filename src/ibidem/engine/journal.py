"""What is known of the requests of a conversation beside their messages: when they came, and how they went out.

Each note is bound to a digest of the history that was sent. So what was noted for one branch of a conversation (a
fork, a rewind, another run of the same prompt) says nothing about another, and any replica that is given the notes and
a history decides as the one before it did.
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
"""Notes of version 5 lack the fields about caches, which have defaults."""
SENT_EDITION = 3
"""Raised when what is sent for the same history and notes changes. Notes that do not say are of the first."""
POSITION_DIGITS = 16
MAX_NOTES = 8192
"""Notes that are kept of a conversation, the newest."""

RARE_FIELDS = 2
"""Last fields of a note that are stored only if they are set: older versions wrote rows without them."""

MAX_REFUSALS = 2
"""After so many rewritten requests that a provider refused, nothing new is rewritten in a conversation."""

Position = tuple[int, str]
"""Messages, and the digest of what they say."""

NOWHERE: Position = (0, "")
"""Of requests whose history is not followed."""


def previous_length(length: int, role: Callable[[int], str]) -> int:
    """Messages of the request before one with so many: those before the model was heard last. `role` is by index."""
    heard = False
    for index in range(length - 1, -1, -1):
        if role(index) == "assistant":
            heard = True
        elif heard:
            return index + 1
    return 0


@dataclass(frozen=True, slots=True)
class Ranges:
    """Numbers from one on and below another, in order and apart."""

    all: tuple[tuple[int, float], ...] = ()

    def __contains__(self, number: object) -> bool:
        return isinstance(number, int) and any(first <= number < last for first, last in self.all)

    def __or__(self, other: tuple[int, float]) -> Ranges:
        """With one more."""
        apart = [each for each in self.all if each[1] < other[0] or other[1] < each[0]]
        near = [other, *(each for each in self.all if each not in apart)]
        whole = (min(first for first, _ in near), max(last for _, last in near))
        return Ranges(tuple(sorted([*apart, whole])))


class Note(NamedTuple):
    """Of one request."""

    moment: Moment
    as_is: int | None = None
    """From this message on it went out as it came."""
    at: float | None = None
    """When it was answered, in seconds since 1970."""
    context: int | None = None
    """Input tokens, as the provider counted them."""
    stopped: bool = False
    """Nothing that was sent is changed from here on."""
    refused: bool = False
    """As it was planned, its provider refused it."""
    cached: int | None = None
    """Of its input tokens, those that the provider read from its cache."""
    kept: Kept | None = None
    """For how long the provider was asked to keep it; None where that is left to the client."""
    removed: float = 0.0
    """Our count of what edits took out of it."""
    spent: float = 0.0
    """What changing what had been sent had cost by then, in prices of fresh tokens."""
    cleared: bool = False
    """When it was answered, the provider had cleared results of earlier calls."""
    thinking_dropped: int = 0
    """Number of messages that were sent without their thinking, because the provider rejected it."""

    def merged(self, other: Note) -> Note:
        """With what another replica noted of the same request: what is known of its answer, and how it went out."""
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
        """The request was not sent as planned, or the provider did more than answer it."""
        return self.as_is is not None or self.refused or self.cleared or self.thinking_dropped > 0

    @property
    def values(self) -> tuple[Any, ...]:
        """Fields after the moment, as they are stored. The last two are rare, and omitted if they say nothing."""
        used = next((len(self) - after for after in range(RARE_FIELDS) if self[-1 - after]), len(self) - RARE_FIELDS)
        return self[1:used]


def _note(moment: Moment, *rest: Any) -> Note:
    note = Note(moment, *rest)
    return note if note.kept is None else note._replace(kept=Kept(*note.kept))


def _moment_values(moment: Moment) -> Moment | tuple[Any, ...]:
    """Return the values of a row. The last one is written only if it says something, so that other rows stay equal."""
    return moment if moment.new_settings else moment[:-1]


class Journal:
    """Notes, and a history that is followed along them."""

    def __init__(self) -> None:
        self.notes: dict[Position, Note] = {}
        self._foreign: dict[Position, int] = {}
        """Of requests that another edition noted: which."""
        self._odd: set[Position] = set()
        """Of requests that went out otherwise than planned."""
        self._unsaved: dict[Position, None] = {}
        """Those that were noted since the notes were saved, in that order."""
        self.begin()

    def begin(self) -> None:
        """Follow a history from its start."""
        self._chain = hashlib.sha256()
        self.positions: list[Position] = []
        """Of each message of the history."""

    def __len__(self) -> int:
        """Messages of the history that is followed."""
        return len(self.positions)

    def follow(self, substances: Iterable[bytes]) -> None:
        """More messages of the history."""
        for substance in substances:
            self._chain.update(substance)
            self.positions.append((len(self.positions) + 1, self._chain.hexdigest()[:POSITION_DIGITS]))

    def note(self, position: Position | None = None, **fields: Any) -> None:
        """About the request that ends here, or at a place."""
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
        """Whether the history that is followed went by there."""
        return 0 < position[0] <= len(self.positions) and self.positions[position[0] - 1] == position

    @property
    def position(self) -> Position | None:
        return self.positions[-1] if self.positions else None

    @property
    def here(self) -> Note | None:
        """Of the request that ends here, if it was sent before."""
        return self.notes.get(self.positions[-1]) if self.positions else None

    @property
    def last(self) -> tuple[int, Note] | None:
        """Of the last request before it: its messages, and the note."""
        for index in range(len(self.positions) - 2, -1, -1):
            if (note := self.notes.get(self.positions[index])) is not None:
                return index + 1, note
        return None

    @property
    def before(self) -> Note | None:
        """Of the last request before it."""
        last = self.last
        return None if last is None else last[1]

    @property
    def foreign(self) -> int | None:
        """Messages of the last request of this history that another edition noted; None if there is none."""
        if not self._foreign:
            return None
        return max((position[0] for position in self._foreign if self.followed(position)), default=None)

    @property
    def refused(self) -> bool:
        """A request of this history was refused as it was planned."""
        return any(self.notes[position].refused and self.followed(position) for position in self._odd)

    @property
    def any_refused(self) -> bool:
        """A request of any history was."""
        return any(self.notes[position].refused for position in self._odd)

    def moments(self, since: int = 0) -> dict[int, Moment]:
        """By length of the history, from that length on."""
        found = ((position, self.notes.get(position)) for position in self.positions[max(0, since - 1) :])
        return {position[0]: note.moment for position, note in found if note is not None}

    @property
    def as_is(self) -> Ranges:
        """Messages that were sent as they came: the provider knows them that way, and so they stay."""
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
        """Something is noted that a history alone does not tell, whatever the profile."""
        return bool(self._odd)

    def dump(self) -> bytes:
        kept = list(self.notes.items())[-MAX_NOTES:]
        rows = [[*position, _moment_values(note.moment), *note.values] for position, note in kept]
        state: dict[str, Any] = {"version": STATE_VERSION, "sent": SENT_EDITION, "notes": rows}
        if foreign := [[*position, self._foreign[position]] for position, _ in kept if position in self._foreign]:
            state["foreign"] = foreign
        return json.dumps(state, separators=(",", ":")).encode()

    def load(self, state: bytes) -> None:
        """Add the notes of another. Raises IbidemError for what is none."""
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
            raise IbidemError(f"this is no state of a session ({error}): begin without one") from None
        for position, note in rows:
            self._learn(position, note, others.get(position, edition))

    # ── as rows, one for each note: those that are new are added to what a store has of them ─────────────────────────

    def unsaved(self) -> dict[Position, Note]:
        """What no row says yet."""
        return {position: self.notes[position] for position in self._unsaved}

    def row(self, position: Position, note: Note) -> bytes:
        edition = self._foreign.get(position, SENT_EDITION)
        values = [STATE_VERSION, edition, *position, _moment_values(note.moment), *note.values]
        return json.dumps(values, separators=(",", ":")).encode()

    def saved(self, notes: Mapping[Position, Note]) -> None:
        """Rows say this now. What was noted meanwhile has still to be saved."""
        for position, note in notes.items():
            if self.notes.get(position) is note:
                self._unsaved.pop(position, None)

    def forgotten(self) -> None:
        """No row says anything any more."""
        self._unsaved = dict.fromkeys(list(self.notes)[-MAX_NOTES:])

    def learn(self, rows: Iterable[bytes]) -> dict[Position, bytes]:
        """Add what rows say, each more than those before. Returns the last of each request.

        Whoever wrote a row knew all before it, so it counts in place of them. One of another version is left out.
        """
        found: dict[Position, bytes] = {}
        for row in rows:
            try:
                edition, position, note = _parsed(row)
            except (ValueError, TypeError) as error:
                log.warning("a conversation goes on without one of its notes: %s", one_line(str(error)))
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
    """The edition that wrote it, the request, and the note. Raises ValueError or TypeError for what is none."""
    version, edition, length, digest, moment, *rest = json.loads(row)
    if version not in READABLE_VERSIONS:
        raise ValueError(f"version {version!r} instead of {STATE_VERSION}")
    return int(edition), (int(length), str(digest)), _note(Moment(*moment), *rest)
