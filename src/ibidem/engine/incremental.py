"""State of a growing conversation, so that each request costs only the work for its new messages.

It has a fingerprint of every message, the strategy state, and its edits. Two messages are equal if the strategy sees
the same content, so a moved cache breakpoint does not matter.
"""

from __future__ import annotations

import hashlib
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from sys import getsizeof
from typing import Any

from .. import formats, rules
from ..billing.budget import Moment, Point
from ..formats import Format
from ..formats.marks import CacheMark
from ..markers.thinking import blocks_of
from ..model import Conversation, Message, Text, Thinking, ToolCall, ToolResult, to_json
from ..plan import Edit, Plan, apply
from ..strategies.strategy import Progress, Start, Strategy
from ..tokens import BYTES_PER_TOKEN
from ..wire import Change, Scanned, open_document
from ..wire.scan import Known, LastRequest, Written, rescan
from . import pipeline


@dataclass(frozen=True, slots=True)
class SentPrefix:
    """How the messages of a request were sent, so that another request can start with the same bytes.

    An immutable copy, because another thread may change the conversation's state meanwhile.
    """

    dialect: Format
    known: Known | None
    plan: Plan
    _fingerprints: tuple[int | None, ...]
    """Fingerprint of each message's JSON text, if the client sent text."""
    _essences: tuple[int | None, ...]
    """Hash of each message's content, if it was parsed."""
    _changes: Mapping[int, list[Change]]
    _written: Written

    @classmethod
    def unwritten(cls, dialect: Format, scanned: Scanned) -> SentPrefix:
        """Return the prefix of a request that is sent unchanged. A later request may start with the same bytes."""
        fingerprints = tuple([scanned.fingerprint(index) for index in range(len(scanned))])
        return cls(dialect, scanned.known, Plan(), fingerprints, _essences(dialect, scanned, fingerprints, 0), {}, {})

    @property
    def messages(self) -> int:
        """Number of messages of the request."""
        return len(self._fingerprints)

    def rescan(self, request: bytes, last: LastRequest | None = None) -> Scanned | None:
        """Scan a request that starts with the same bytes; None for any other. `last` has these bytes, if available."""
        return rescan(request, self.known, last) if self.known is not None else None

    def shared(self, scanned: Scanned) -> int:
        """Return the number of messages at the start of the request that are equal to the sent ones."""
        first = scanned.unchanged if self._came_from(scanned) else 0
        for index in range(first, self.messages):
            if index >= len(scanned) or not self._same(index, scanned):
                return index
        return self.messages

    def continues(self, other: SentPrefix) -> bool:
        """Return True if this is a later request that starts with all messages of the other."""
        length = other.messages
        if self.messages <= length:
            return False
        if None not in other._essences and self._essences[:length] == other._essences:
            return True
        return all(self._same_as(other, index) for index in range(length))

    def is_same_request(self, other: SentPrefix) -> bool:
        """Return True if both have the same messages, sent in the same way."""
        alike = self.messages == other.messages and self._changes == other._changes
        return alike and all(self._same_as(other, index) for index in range(self.messages))

    def _same_as(self, other: SentPrefix, index: int) -> bool:
        fingerprint, essence = self._fingerprints[index], self._essences[index]
        same = fingerprint is not None and fingerprint == other._fingerprints[index]
        return same or (essence is not None and essence == other._essences[index])

    def wrote_alike(self, other: SentPrefix, length: int) -> bool:
        """Return True if both sent the first `length` messages in the same way."""
        ours = {index: some for index, some in self._changes.items() if index < length}
        return ours == {index: some for index, some in other._changes.items() if index < length}

    def cut(self, scanned: Scanned, shared: int) -> SentPrefix:
        """Return the prefix of a request whose first `shared_length` messages are sent as here, and all others
        unchanged."""
        fingerprints = tuple([scanned.fingerprint(index) for index in range(len(scanned))])
        essences = self._essences[:shared] + _essences(self.dialect, scanned, fingerprints, shared)
        plan = Plan(tuple(edit for edit in self.plan.edits if edit.message < shared), self.plan.points)
        changes = {index: some for index, some in self._changes.items() if index < shared}
        return SentPrefix(self.dialect, scanned.known, plan, fingerprints, essences, changes, {})

    def _same(self, index: int, scanned: Scanned) -> bool:
        fingerprint, known = scanned.fingerprint(index), self._essences[index]
        if fingerprint is not None and fingerprint == self._fingerprints[index]:
            return True
        return known is not None and essence(self.dialect.read(index, scanned.value(index))) == known

    def over(self, scanned: Scanned, shared: int) -> Any:
        """Return the request with its first `shared_length` messages sent as before, and all others unchanged."""
        changes = {index: some for index, some in self._changes.items() if index < shared}
        return scanned.write(changes, dict(self._written) if self._came_from(scanned) else {})

    def _came_from(self, scanned: Scanned) -> bool:
        return scanned.origin is not None and scanned.origin is self.known


def _essences(
    dialect: Format, scanned: Scanned, fingerprints: Sequence[int | None], start: int
) -> tuple[int | None, ...]:
    """Return content hashes of the messages from `start` on. Those with a fingerprint get None and are not parsed."""
    return tuple(
        [
            essence(dialect.read(index, scanned.value(index))) if fingerprint is None else None
            for index, fingerprint in enumerate(fingerprints[start:], start)
        ]
    )


@dataclass(frozen=True, slots=True)
class SentMessages:
    """The messages of a request as they are sent, parsed on access."""

    scanned: Scanned
    changes: Mapping[int, list[Change]]
    written: Written

    def __len__(self) -> int:
        return len(self.scanned)

    def __getitem__(self, index: int) -> Any:
        return self.scanned.written_value(index, self.changes, self.written)

    def size(self, index: int) -> int:
        return self.scanned.size(index)


EDIT_BYTES = 1200
"""Bytes in memory of a message's edits without their texts, in all tables together."""


class WholeMessages(Exception):
    """An edit adds or removes a whole message, so the request must be processed from its start."""


def _setting(strategy: Strategy, start: Start) -> tuple[Any, ...]:
    """Return the inputs that a strategy state depends on. If they change, the conversation starts again.

    A strategy that revises also uses the recall tool, thinking and prices. Write price and TTL are omitted, because a
    cache directive in a message can change them.
    """
    if not strategy.revises:
        return start.conv.dialect.name, start.refers
    economy = replace(start.economy, write=0.0, lifetime=0.0)
    return start.conv.dialect.name, start.refers, start.recall_tool, start.clears_thinking, economy


class Growing:
    """The messages of a conversation so far, and how they are sent."""

    def __init__(self, strategy: Strategy, dialect: Format, start: Start) -> None:
        self.dialect = dialect
        self.known: Known | None = None
        self._strategy = strategy
        self._setting = _setting(strategy, start)
        self._progress = Progress(strategy.begin(start))
        self._fingerprints: list[int | None] = []
        self._essences: list[int] = []
        """Content hashes, as in `SentPrefix`."""
        self._edits: dict[int, tuple[Edit, ...]] = {}
        self._points: tuple[Point, ...] = ()
        self._changes: dict[int, list[Change]] = {}
        self._written: Written = {}
        self._marks: dict[int, list[CacheMark]] = {}
        """The client's cache breakpoints, by message index."""
        self._removed = 0.0
        self._texts = 0
        """Bytes in memory of the original texts."""
        self._plan: Plan | None = None
        """Cached plan of all edits, until an edit is added."""

    def __len__(self) -> int:
        """Number of messages."""
        return len(self._essences)

    def goes_on(self, other: Start) -> bool:
        """Return True if the strategy state would have the same inputs with `other`."""
        return self._setting == _setting(self._strategy, other)

    @property
    def refused(self) -> bool:
        """True if the store could not save the originals at the last request."""
        return self._progress.refused

    @property
    def spent(self) -> float:
        """Cost of all revisions so far, in tokens at the input price."""
        return self._progress.fold.spent

    @property
    def removed(self) -> float:
        """Estimated tokens that edits remove from all messages."""
        return self._removed

    @property
    def weight(self) -> int:
        """Approximate memory use in bytes, including the texts."""
        written = sum([len(new) for _, new in self._written.values()])
        copies: int = getattr(self._progress.fold, "weight", 0)  # a user's strategy state may not have it
        return self._texts + copies + written + EDIT_BYTES * len(self._edits)

    def shared(self, scanned: Scanned) -> int:
        """Return how many of the messages so far the request starts with."""
        for index in range(scanned.unchanged, len(self)):
            if index >= len(scanned):
                return index
            fingerprint = scanned.fingerprint(index)
            if fingerprint is not None and fingerprint == self._fingerprints[index]:
                continue
            message = self.dialect.read(index, scanned.value(index))
            if essence(message) != self._essences[index]:
                return index
            self._fingerprints[index] = fingerprint
            self._look(message)
        return len(self)

    def _look(self, message: Message) -> None:
        """Record the cache breakpoints of a message. Clients move them between requests."""
        found = self.dialect.marks.in_message(message.index, message.wire)
        if found:
            self._marks[message.index] = found
        else:
            self._marks.pop(message.index, None)

    def marks(self, head: Mapping[str, Any], new: Conversation) -> list[CacheMark]:
        """Return the client's cache breakpoints in the messages so far and in the new ones, as sent by the client."""
        marks = self.dialect.marks
        unseen = [mark for each in new.messages for mark in marks.in_message(each.index, each.wire)]
        seen = [mark for index in sorted(self._marks) for mark in self._marks[index]]
        return [*marks.in_head(head), *seen, *unseen, *marks.at_end(head, len(self) + len(new.messages))]

    def sent_marks(self, scanned: Scanned) -> list[CacheMark]:
        """Return the client's cache breakpoints in the rewritten request. Edits may have moved them."""
        marks, sent = self.dialect.marks, self.sent(scanned)
        inside: list[CacheMark] = []
        for index in sorted(self._marks):
            moved = index in self._changes
            inside += marks.in_message(index, sent[index]) if moved else self._marks[index]
        return [*marks.in_head(scanned.head), *inside, *marks.at_end(scanned.head, len(scanned))]

    def take(
        self,
        new: Conversation,
        scanned: Scanned,
        model: str | None,
        substances: Iterable[Substance],
        moments: Mapping[int, Moment],
        as_is: Container[int],
        cleared_at: Sequence[int],
    ) -> None:
        """Process new messages, whose comparable contents are `contents`.

        `moments` has the context of each request, by length of the history. Messages in `as_is` were sent unchanged.
        The provider cleared results at the lengths `cleared_at`.
        """
        edits = self._progress.take(new.messages, moments, as_is, cleared_at)
        if not all(edit.path for edit in edits):
            raise WholeMessages
        changes = self._progress.changes
        if changes is None or (edits and Plan(tuple(edits)).structural):
            self._revise(scanned, model)
        elif edits or changes:
            edits = [edit for edit in edits if edit.message not in changes]
            admitted = pipeline.admitted(new, self._strategy, edits, model, length=len(scanned))
            for index, some in _by_message(admitted).items():
                self._set(index, some)
            if changes:
                self._revise_some(new, scanned, changes, model)
        for message, said in zip(new.messages, substances, strict=True):
            self._fingerprints.append(scanned.fingerprint(message.index))
            self._essences.append(hash(said))
            self._texts += _memory_of(said)
            self._look(message)
        self.known = scanned.known

    def _revise(self, scanned: Scanned, model: str | None) -> None:
        """Apply a revision that may change any message, and check the whole request."""
        conv = formats.parse(open_document(scanned.given).value, self.dialect)
        plan = pipeline.planned_for(conv, self._strategy, self._progress.plan, model)
        if not all(edit.path for edit in plan):
            raise WholeMessages
        by_message = _by_message(plan)
        for index in self._edits.keys() | by_message.keys():
            self._set(index, by_message.get(index, ()))
        self._points = plan.points

    def _revise_some(
        self, new: Conversation, scanned: Scanned, changes: Mapping[int, tuple[Edit, ...]], model: str | None
    ) -> None:
        """Apply a revision of the messages in `changes`. Only these are checked, and the neighbors of a message that
        loses a part."""
        known = {message.index: message for message in new.messages}

        def part(indices: Iterable[int]) -> Conversation:
            some = (known.get(index) or self.dialect.read(index, scanned.value(index)) for index in indices)
            return Conversation(tuple(some), self.dialect, scanned.head, whole=False)

        conv = part(sorted(changes))
        known.update((message.index, message) for message in conv.messages)
        proposed = [edit for message in conv.messages for edit in changes[message.index]]
        admitted = _by_message(pipeline.admitted(conv, self._strategy, proposed, model, length=len(scanned)))
        parted = {index: some for index, some in admitted.items() if Plan(tuple(some)).structural}
        if parted:
            near = {index + step for index in parted for step in (-1, 0, 1)}
            beside = sorted(index for index in near if 0 <= index < len(scanned))
            _check_part(part(beside), Plan(tuple(edit for some in parted.values() for edit in some)))
        for index in changes:
            self._set(index, admitted.get(index, ()))
        self._points = self._progress.points

    def sent(self, scanned: Scanned) -> SentMessages:
        """Return the messages as they are sent."""
        return SentMessages(scanned, self._changes, self._written)

    def write(self, scanned: Scanned, late: Sequence[Change] = ()) -> Any:
        """Return the rewritten request. `late` changes are applied after all edits, anywhere in the request."""
        return scanned.write(self._changes, self._written, late)

    @property
    def sent_prefix(self) -> SentPrefix:
        """A copy of how the request is sent."""
        fingerprints, essences = tuple(self._fingerprints), tuple(self._essences)
        changes, written = dict(self._changes), dict(self._written)
        return SentPrefix(self.dialect, self.known, self.plan, fingerprints, essences, changes, written)

    @property
    def plan(self) -> Plan:
        """All edits of the conversation, with its revisions."""
        if self._plan is None:
            edits = tuple(edit for index in sorted(self._edits) for edit in self._edits[index])
            self._plan = Plan(edits, self._points)
        return self._plan

    def _set(self, message: int, edits: Iterable[Edit]) -> None:
        """Replace the edits of a message."""
        found = tuple(edits)
        self._plan = None
        before = self._edits.pop(message, ())
        self._removed += sum(map(_tokens, found)) - sum(map(_tokens, before))
        if found != before:
            self._changes.pop(message, None)
            self._written.pop(message, None)
        if found:
            self._edits[message] = found
            self._changes[message] = [Change(edit.path, edit.op, edit.written) for edit in found]


def _check_part(conv: Conversation, plan: Plan) -> None:
    """Raises RuntimeError if edits inside some messages break a rule.

    `conv` has only these messages and their neighbors. Violations that exist before the edits are ignored, because the
    missing messages cause some.
    """
    known = set(rules.violations(conv))
    refused = [each for each in rules.violations(apply(conv, plan)) if each not in known]
    if refused:
        raise RuntimeError(f"the plan would break a rule: {refused[0]}")


def _tokens(edit: Edit) -> float:
    """Estimated tokens that an edit removes, from its bytes, which are cheap to count."""
    return edit.bytes_saved / BYTES_PER_TOKEN


def _by_message(edits: Iterable[Edit]) -> dict[int, list[Edit]]:
    found: dict[int, list[Edit]] = {}
    for edit in edits:
        found.setdefault(edit.message, []).append(edit)
    return found


Substance = tuple[Any, ...]

THINKING_KEYS = ("type", "thinking", "signature")


def substance(message: Message) -> Substance:
    """Return the content of a message that a strategy can see, with the path of each part.

    User text has no path: it is never edited, and a client that adds a cache breakpoint turns a string into a block. A
    system message with one text always counts as a string: Claude Code sends it as a block first and as a string in the
    next request. Digests in older journals depend on that.
    """
    if message.role == "user" and all(isinstance(part, Text) for part in message.parts):
        return (message.role, *message.texts())
    if message.role in ("system", "developer") and len(message.parts) == 1 and isinstance(message.parts[0], Text):
        text = message.parts[0]
        return message.role, (("content",), text.text, text.bound)
    seen: list[Any] = [message.role]
    thinking = blocks_of(message)
    for part in message.parts:
        if isinstance(part, ToolCall):
            seen.append((part.id, part.name, part.arguments, part.path))
        elif isinstance(part, ToolResult):
            seen.append((part.call_id, part.failed, part.path))
            seen.extend((seg.path, seg.text if isinstance(seg, Text) else seg.kind) for seg in part.segments)
        elif isinstance(part, Text):
            seen.append((part.path, part.text, part.bound))
        elif isinstance(part, Thinking) and part.removable:
            seen.append((part.path, to_json(_ordered(thinking[part.path]))))  # includes the signature
        else:
            seen.append((type(part).__name__, part.path))
    return tuple(seen)


def _ordered(block: Any) -> Any:
    """Return a thinking block with its keys in the provider's order. SDK objects have another order."""
    return {**{key: block[key] for key in THINKING_KEYS if key in block}, **block} if isinstance(block, dict) else block


def _memory_of(said: Substance) -> int:
    """Return the memory of the strings in bytes. Python stores a text with an arrow or emoji in 2 or 4 bytes per
    character."""
    found = 0
    for part in said:
        for each in part if type(part) is tuple else (part,):
            if type(each) is str:
                found += getsizeof(each)
    return found


def essence(message: Message) -> int:
    """Return a hash of the content, valid only in this process."""
    return hash(substance(message))


def digest_of(said: Substance) -> bytes:
    """Return a digest of the content that is equal in every process."""
    return hashlib.sha256(repr(said).encode("utf-8", "surrogatepass")).digest()
