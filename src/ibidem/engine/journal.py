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

from ..billing.cache_ttl import TtlDecision
from ..billing.revision_budget import RequestContext
from ..errors import IbidemError, one_line

log = logging.getLogger("ibidem")

STATE_VERSION = 6
READABLE_VERSIONS = (5, STATE_VERSION)
"""Entries of version 5 lack the fields about caches, which have defaults."""
SENT_EDITION = 3
"""Rewrite version. Raise it if the same history and entries are sent differently. The default in old entries is 1."""
POSITION_DIGITS = 16
MAX_ENTRIES = 8192
"""Maximum entries of a conversation that are saved, the newest."""

RARE_FIELDS = 2
"""Number of last fields of an entry that are stored only if set, because older versions wrote rows without them."""

MAX_REJECTIONS = 2
"""After this many rejected requests, no new text of the conversation is rewritten."""

Position = tuple[int, str]
"""Number of messages, and the digest of their content."""

NOWHERE: Position = (0, "")
"""Position of requests whose history is not tracked."""


def previous_request_length(length: int, role: Callable[[int], str]) -> int:
    """Return the length of the previous request: the messages before the model's last response.

    `length` is that of the current request, and `role` returns the role of a message by index.
    """
    has_model_spoken = False
    for index in range(length - 1, -1, -1):
        if role(index) == "assistant":
            has_model_spoken = True
        elif has_model_spoken:
            return index + 1
    return 0


@dataclass(frozen=True, slots=True)
class IndexRanges:
    """Ranges of message indexes (end exclusive), sorted and without overlap."""

    ranges: tuple[tuple[int, float], ...] = ()

    def __contains__(self, number: object) -> bool:
        return isinstance(number, int) and any(first <= number < last for first, last in self.ranges)

    def __or__(self, other: tuple[int, float]) -> IndexRanges:
        """Return the ranges with one more."""
        apart = [each for each in self.ranges if each[1] < other[0] or other[1] < each[0]]
        near = [other, *(each for each in self.ranges if each not in apart)]
        whole = (min(first for first, _ in near), max(last for _, last in near))
        return IndexRanges(tuple(sorted([*apart, whole])))


class JournalEntry(NamedTuple):
    """Facts about one request."""

    moment: RequestContext
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
    kept: TtlDecision | None = None
    """The TTL decision; None if the TTL is left to the client."""
    removed: float = 0.0
    """Estimated tokens that edits removed."""
    spent: float = 0.0
    """Cost of all revisions until then, in tokens at the input price."""
    cleared: bool = False
    """True if the provider had cleared results of earlier calls when it responded."""
    thinking_dropped: int = 0
    """Number of messages that were sent without their thinking, because the provider rejected it."""

    def merge_with(self, other: JournalEntry) -> JournalEntry:
        """Return the entry merged with another replica's entry of the same request."""
        entry = other if self.at is None and other.at is not None else self
        firsts = [each.as_is for each in (self, other) if each.as_is is not None]
        return entry._replace(
            as_is=min(firsts, default=None),
            stopped=self.stopped or other.stopped,
            refused=self.refused or other.refused,
            cleared=self.cleared or other.cleared,
            thinking_dropped=max(self.thinking_dropped, other.thinking_dropped),
        )

    @property
    def is_unusual(self) -> bool:
        """True if the request was not sent as planned, or the provider rejected it or cleared results."""
        return self.as_is is not None or self.refused or self.cleared or self.thinking_dropped > 0

    @property
    def stored_values(self) -> tuple[Any, ...]:
        """Fields after `moment`, as stored. The last two are omitted if they have their defaults."""
        field_count = next(
            (len(self) - after for after in range(RARE_FIELDS) if self[-1 - after]), len(self) - RARE_FIELDS
        )
        return self[1:field_count]


def _make_entry(moment: RequestContext, *rest: Any) -> JournalEntry:
    entry = JournalEntry(moment, *rest)
    return entry if entry.kept is None else entry._replace(kept=TtlDecision(*entry.kept))


def _moment_values(moment: RequestContext) -> RequestContext | tuple[Any, ...]:
    """Return the values for a row. The last one is written only if it is set: other rows stay as they were."""
    return moment if moment.new_settings else moment[:-1]


class Journal:
    """Entries of all branches of a conversation, and the positions of one history."""

    def __init__(self) -> None:
        self.entries: dict[Position, JournalEntry] = {}
        self._foreign_versions: dict[Position, int] = {}
        """Rewrite version of the requests that another version of Ibidem recorded."""
        self._unusual_positions: set[Position] = set()
        """Positions of the unusual entries."""
        self._unsaved_positions: dict[Position, None] = {}
        """Positions recorded since the last save, in that order."""
        self.restart()

    def restart(self) -> None:
        """Start a history at its first message."""
        self._chain = hashlib.sha256()
        self.positions: list[Position] = []
        """Position after each message of the history."""

    def __len__(self) -> int:
        """Number of messages of the history."""
        return len(self.positions)

    def follow_messages(self, digests: Iterable[bytes]) -> None:
        """Append messages to the history, by the digests of their content."""
        for substance in digests:
            self._chain.update(substance)
            self.positions.append((len(self.positions) + 1, self._chain.hexdigest()[:POSITION_DIGITS]))

    def record_entry(self, position: Position | None = None, **fields: Any) -> None:
        """Record facts about the request at `position`, or the current one."""
        target = position or self.positions[-1]
        previous = self.entries.get(target)
        entry = (previous or JournalEntry(RequestContext()))._replace(**fields)
        if entry != previous:
            self._set_entry(target, entry)
            self._unsaved_positions[target] = None

    def _set_entry(self, position: Position, entry: JournalEntry) -> None:
        self.entries[position] = entry
        if entry.is_unusual:
            self._unusual_positions.add(position)
        else:
            self._unusual_positions.discard(position)

    def has_position(self, position: Position) -> bool:
        """Return True if the position is part of the history."""
        return 0 < position[0] <= len(self.positions) and self.positions[position[0] - 1] == position

    @property
    def position(self) -> Position | None:
        """Position of the current request."""
        return self.positions[-1] if self.positions else None

    @property
    def current_entry(self) -> JournalEntry | None:
        """Entry of the current request, if it was sent before."""
        return self.entries.get(self.positions[-1]) if self.positions else None

    @property
    def last_request(self) -> tuple[int, JournalEntry] | None:
        """Length and entry of the previous request."""
        for index in range(len(self.positions) - 2, -1, -1):
            if (note := self.entries.get(self.positions[index])) is not None:
                return index + 1, note
        return None

    @property
    def previous_entry(self) -> JournalEntry | None:
        """Entry of the previous request."""
        last = self.last_request
        return None if last is None else last[1]

    @property
    def foreign_length(self) -> int | None:
        """Length of the last request of this history with another rewrite version; None if there is no such request."""
        if not self._foreign_versions:
            return None
        return max((position[0] for position in self._foreign_versions if self.has_position(position)), default=None)

    @property
    def has_rejection(self) -> bool:
        """True if the provider rejected a rewritten request of this history."""
        return any(
            self.entries[position].refused and self.has_position(position) for position in self._unusual_positions
        )

    @property
    def has_any_rejection(self) -> bool:
        """True if the provider rejected a rewritten request of any history."""
        return any(self.entries[position].refused for position in self._unusual_positions)

    def request_contexts(self, length: int = 0) -> dict[int, RequestContext]:
        """Return the context of each request from length `length` on, by length of the history."""
        entries = ((position, self.entries.get(position)) for position in self.positions[max(0, length - 1) :])
        return {position[0]: note.moment for position, note in entries if note is not None}

    @property
    def unchanged_ranges(self) -> IndexRanges:
        """Messages that were sent unchanged. They stay so, because the provider may have cached them."""
        unusual_entries = [
            (position, self.entries[position])
            for position in sorted(self._unusual_positions)
            if self.has_position(position)
        ]
        ranges: list[tuple[int, float]] = [
            (note.as_is, position[0])
            for position, note in unusual_entries
            if note.as_is is not None and note.as_is < position[0]
        ]
        rejected_lengths = [position[0] for position, note in unusual_entries if note.refused]
        ranges += [(length, float("inf")) for length in rejected_lengths[MAX_REJECTIONS - 1 :]]
        return reduce(IndexRanges.__or__, ranges, IndexRanges())

    @property
    def cleared_lengths(self) -> list[int]:
        """Lengths of the history when the provider reported that it had cleared results."""
        return sorted(at[0] for at in self._unusual_positions if self.entries[at].cleared and self.has_position(at))

    @property
    def dropped_thinking_count(self) -> int:
        """Number of messages of this history that are sent without their thinking."""
        counts = (
            self.entries[position].thinking_dropped
            for position in self._unusual_positions
            if self.has_position(position)
        )
        return max(counts, default=0)

    @property
    def is_unusual(self) -> bool:
        """True if there are unusual entries, which matter for every profile."""
        return bool(self._unusual_positions)

    def dump(self) -> bytes:
        """Return all entries as one state, for `load`."""
        entries = list(self.entries.items())[-MAX_ENTRIES:]
        rows = [[*position, _moment_values(note.moment), *note.stored_values] for position, note in entries]
        state: dict[str, Any] = {"version": STATE_VERSION, "sent": SENT_EDITION, "notes": rows}
        if foreign := [
            [*position, self._foreign_versions[position]]
            for position, _ in entries
            if position in self._foreign_versions
        ]:
            state["foreign"] = foreign
        return json.dumps(state, separators=(",", ":")).encode()

    def load(self, state: bytes) -> None:
        """Add the entries of another journal's state. Raises IbidemError if it is not valid."""
        try:
            fields = json.loads(state)
            if fields["version"] not in READABLE_VERSIONS:
                raise ValueError(f"version {fields['version']!r} instead of {STATE_VERSION}")
            rows = [
                ((int(n), str(digest)), _make_entry(RequestContext(*moment), *rest))
                for n, digest, moment, *rest in fields["notes"]
            ]
            version = int(fields.get("sent", 1))
            others = {(int(n), str(digest)): int(other) for n, digest, other in fields.get("foreign", ())}
        except (ValueError, TypeError, AttributeError, LookupError) as error:
            raise IbidemError(f"this is not a state of a session ({error}): start without it") from None
        for position, note in rows:
            self._merge_entry(position, note, others.get(position, version))

    # ── Rows: one for each entry, so that a store only needs the new ones ────────────────────────────────────────────

    def unsaved_entries(self) -> dict[Position, JournalEntry]:
        """Return the entries that are not in a row yet."""
        return {position: self.entries[position] for position in self._unsaved_positions}

    def encode_row(self, position: Position, note: JournalEntry) -> bytes:
        """Return an entry as a row of the store."""
        edition = self._foreign_versions.get(position, SENT_EDITION)
        values = [STATE_VERSION, edition, *position, _moment_values(note.moment), *note.stored_values]
        return json.dumps(values, separators=(",", ":")).encode()

    def mark_saved(self, notes: Mapping[Position, JournalEntry]) -> None:
        """Mark entries as saved. Entries that changed meanwhile stay unsaved."""
        for position, note in notes.items():
            if self.entries.get(position) is note:
                self._unsaved_positions.pop(position, None)

    def mark_all_unsaved(self) -> None:
        """Mark all entries as unsaved, because the store lost its rows."""
        self._unsaved_positions = dict.fromkeys(list(self.entries)[-MAX_ENTRIES:])

    def add_rows(self, rows: Iterable[bytes]) -> dict[Position, bytes]:
        """Add the entries of rows, in their order. Return the last row of each request.

        Each writer has read all earlier rows, so a row replaces earlier rows of its request. Rows of an unknown version
        are skipped.
        """
        rows_by_position: dict[Position, bytes] = {}
        for row in rows:
            try:
                version, position, note = _parse_row(row)
            except (ValueError, TypeError) as error:
                log.warning("a stored entry of a conversation was skipped: %s", one_line(str(error)))
                continue
            rows_by_position[position] = row
            if position in self._unsaved_positions:
                self._merge_entry(position, note, version)
                continue
            if position not in self.entries and version != SENT_EDITION:
                self._foreign_versions[position] = version
            self._set_entry(position, note)
        return rows_by_position

    def _merge_entry(self, position: Position, note: JournalEntry, version: int) -> None:
        known_entry = self.entries.get(position)
        if known_entry is None and version != SENT_EDITION:
            self._foreign_versions[position] = version
        merged_entry = note if known_entry is None else known_entry.merge_with(note)
        if merged_entry != known_entry:
            self._set_entry(position, merged_entry)
            self._unsaved_positions[position] = None


def _parse_row(row: bytes) -> tuple[int, Position, JournalEntry]:
    """Return the rewrite version, position and entry of a row. Raises ValueError or TypeError if it is not valid."""
    version, edition, length, digest, moment, *rest = json.loads(row)
    if version not in READABLE_VERSIONS:
        raise ValueError(f"version {version!r} instead of {STATE_VERSION}")
    return int(edition), (int(length), str(digest)), _make_entry(RequestContext(*moment), *rest)
