"""What is known of a conversation that grows, so that each request costs the work for what is new in it.

A fingerprint of every message, the state of the fold, and the edits it made. What counts as the same message is what
the fold can see of it: a cache mark that moved does not matter.
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
    """How the messages of a request were sent, so that another one can begin in the same way.

    A value of its own: what is known of the conversation may change meanwhile, in another thread.
    """

    dialect: Format
    known: Known | None
    plan: Plan
    _fingerprints: tuple[int | None, ...]
    """Of each message as it came, if it came as text."""
    _essences: tuple[int | None, ...]
    """Of what the fold can see of it, if that was looked at."""
    _changes: Mapping[int, list[Change]]
    _written: Written

    @classmethod
    def unwritten(cls, dialect: Format, scanned: Scanned) -> SentPrefix:
        """Of a request that nothing was made of yet: it goes on in one that begins with the same bytes."""
        fingerprints = tuple([scanned.fingerprint(index) for index in range(len(scanned))])
        return cls(dialect, scanned.known, Plan(), fingerprints, _essences(dialect, scanned, fingerprints, 0), {}, {})

    @property
    def messages(self) -> int:
        return len(self._fingerprints)

    def rescan(self, request: bytes, last: LastRequest | None = None) -> Scanned | None:
        """A request that begins with the same bytes, which are those of `last` where that is at hand; None for any
        other."""
        return rescan(request, self.known, last) if self.known is not None else None

    def shared(self, scanned: Scanned) -> int:
        """With how many of the messages that were sent a request begins."""
        first = scanned.unchanged if self._came_from(scanned) else 0
        for index in range(first, self.messages):
            if index >= len(scanned) or not self._same(index, scanned):
                return index
        return self.messages

    def continues(self, other: SentPrefix) -> bool:
        """Whether it is of a later request, which began with all messages of the other."""
        length = other.messages
        if self.messages <= length:
            return False
        if None not in other._essences and self._essences[:length] == other._essences:
            return True
        return all(self._same_as(other, index) for index in range(length))

    def is_same_request(self, other: SentPrefix) -> bool:
        """Return True if both are of the same messages, and sent them in the same way."""
        alike = self.messages == other.messages and self._changes == other._changes
        return alike and all(self._same_as(other, index) for index in range(self.messages))

    def _same_as(self, other: SentPrefix, index: int) -> bool:
        fingerprint, essence = self._fingerprints[index], self._essences[index]
        same = fingerprint is not None and fingerprint == other._fingerprints[index]
        return same or (essence is not None and essence == other._essences[index])

    def wrote_alike(self, other: SentPrefix, length: int) -> bool:
        """Return True if both sent the first messages, this many, in the same way."""
        ours = {index: some for index, some in self._changes.items() if index < length}
        return ours == {index: some for index, some in other._changes.items() if index < length}

    def cut(self, scanned: Scanned, shared: int) -> SentPrefix:
        """A request whose first messages, `shared` of them, are sent as here, and all others unchanged."""
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
        """A request with so many messages sent as they were then, and all others as they come."""
        changes = {index: some for index, some in self._changes.items() if index < shared}
        return scanned.write(changes, dict(self._written) if self._came_from(scanned) else {})

    def _came_from(self, scanned: Scanned) -> bool:
        return scanned.origin is not None and scanned.origin is self.known


def _essences(
    dialect: Format, scanned: Scanned, fingerprints: Sequence[int | None], start: int
) -> tuple[int | None, ...]:
    """Of the messages from `start` on that have no other fingerprint: the rest is not read for it."""
    return tuple(
        [
            essence(dialect.read(index, scanned.value(index))) if fingerprint is None else None
            for index, fingerprint in enumerate(fingerprints[start:], start)
        ]
    )


@dataclass(frozen=True, slots=True)
class SentMessages:
    """The messages of a request as they are written, looked at one by one."""

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
"""Bytes in memory of the edits of a message beside their texts, in all places that have them."""


class WholeMessages(Exception):
    """A message comes or goes: what is sent is no longer message for message what was said, and is made at once."""


def _setting(strategy: Strategy, start: Start) -> tuple[Any, ...]:
    """What a strategy begins with. One that revises names the tool that gives a text back, minds thinking, and decides
    by what the model costs; for how long that remembers may stand in a message, and is left out."""
    if not strategy.revises:
        return start.conv.dialect.name, start.refers
    economy = replace(start.economy, write=0.0, lifetime=0.0)
    return start.conv.dialect.name, start.refers, start.recall_tool, start.clears_thinking, economy


class Growing:
    """The messages seen so far, and what is sent for them."""

    def __init__(self, strategy: Strategy, dialect: Format, start: Start) -> None:
        self.dialect = dialect
        self.known: Known | None = None
        self._strategy = strategy
        self._setting = _setting(strategy, start)
        self._progress = Progress(strategy.begin(start))
        self._fingerprints: list[int | None] = []
        self._essences: list[int] = []
        """As in `SentPrefix`."""
        self._edits: dict[int, tuple[Edit, ...]] = {}
        self._points: tuple[Point, ...] = ()
        self._changes: dict[int, list[Change]] = {}
        self._written: Written = {}
        self._marks: dict[int, list[CacheMark]] = {}
        """Of the client, in messages that have any, as they came."""
        self._removed = 0.0
        self._texts = 0
        """Bytes in memory of the texts that came."""
        self._plan: Plan | None = None
        """Of all edits, as long as none is added."""

    def __len__(self) -> int:
        """Messages seen."""
        return len(self._essences)

    def goes_on(self, other: Start) -> bool:
        """Whether the strategy would have begun in the same way."""
        return self._setting == _setting(self._strategy, other)

    @property
    def refused(self) -> bool:
        """At the last request, what was to change could not be kept."""
        return self._progress.refused

    @property
    def spent(self) -> float:
        """What changing what had been sent has cost so far, in prices of fresh tokens."""
        return self._progress.fold.spent

    @property
    def removed(self) -> float:
        """Our count of what edits take out of all of it, about."""
        return self._removed

    @property
    def weight(self) -> int:
        """Bytes that texts and what is known of them take in memory, about."""
        written = sum([len(new) for _, new in self._written.values()])
        copies: int = getattr(self._progress.fold, "weight", 0)  # a strategy of the user may not have it
        return self._texts + copies + written + EDIT_BYTES * len(self._edits)

    def shared(self, scanned: Scanned) -> int:
        """With how many of the messages seen so far the request begins."""
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
        """For its marks: clients move them along."""
        found = self.dialect.marks.in_message(message.index, message.wire)
        if found:
            self._marks[message.index] = found
        else:
            self._marks.pop(message.index, None)

    def marks(self, head: Mapping[str, Any], new: Conversation) -> list[CacheMark]:
        """Of the client, in all messages so far and some that are new, as they came."""
        marks = self.dialect.marks
        unseen = [mark for each in new.messages for mark in marks.in_message(each.index, each.wire)]
        seen = [mark for index in sorted(self._marks) for mark in self._marks[index]]
        return [*marks.in_head(head), *seen, *unseen, *marks.at_end(head, len(self) + len(new.messages))]

    def sent_marks(self, scanned: Scanned) -> list[CacheMark]:
        """Of the client, as they stand in what is written: edits may have moved them."""
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
        """Work on what is new, of which `substances` tell it from other messages. Moments are by length of the history;
        messages `as_is` were sent as they came; the provider cleared results at the lengths `cleared_at`."""
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
        """What was sent before changes: now the request is checked as a whole."""
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
        """These messages are sent otherwise. Nothing else is looked at but what stands beside one that loses a part."""
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
        """What is written for each message."""
        return SentMessages(scanned, self._changes, self._written)

    def write(self, scanned: Scanned, late: Sequence[Change] = ()) -> Any:
        """With changes that are made after all edits, anywhere in the request."""
        return scanned.write(self._changes, self._written, late)

    @property
    def sent_prefix(self) -> SentPrefix:
        """How all of it is sent."""
        fingerprints, essences = tuple(self._fingerprints), tuple(self._essences)
        changes, written = dict(self._changes), dict(self._written)
        return SentPrefix(self.dialect, self.known, self.plan, fingerprints, essences, changes, written)

    @property
    def plan(self) -> Plan:
        if self._plan is None:
            edits = tuple(edit for index in sorted(self._edits) for edit in self._edits[index])
            self._plan = Plan(edits, self._points)
        return self._plan

    def _set(self, message: int, edits: Iterable[Edit]) -> None:
        """These are the edits of a message."""
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
    """Raises RuntimeError if edits inside of some messages break a rule. The conversation is a part of one, these
    messages and those beside them: what it lacks of the rest is held against it before and after."""
    known = set(rules.violations(conv))
    refused = [each for each in rules.violations(apply(conv, plan)) if each not in known]
    if refused:
        raise RuntimeError(f"the plan would break a rule: {refused[0]}")


def _tokens(edit: Edit) -> float:
    """That it takes out, about: by its bytes, which cost nothing to count."""
    return edit.bytes_saved / BYTES_PER_TOKEN


def _by_message(edits: Iterable[Edit]) -> dict[int, list[Edit]]:
    found: dict[int, list[Edit]] = {}
    for edit in edits:
        found.setdefault(edit.message, []).append(edit)
    return found


Substance = tuple[Any, ...]

THINKING_KEYS = ("type", "thinking", "signature")


def substance(message: Message) -> Substance:
    """What a strategy can see of a message, and where it stands in it.

    What a user says is never edited, so its place does not matter: a client that puts a mark on it has to write it
    differently. Likewise for a system message of one text: Claude Code sends one in mid-conversation as a block, and
    as a string from the next request on. The string counts, so that digests of older journals stay valid.
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
            seen.append((part.path, to_json(_ordered(thinking[part.path]))))  # the signature counts too
        else:
            seen.append((type(part).__name__, part.path))
    return tuple(seen)


def _ordered(block: Any) -> Any:
    """A block of thinking with its keys in the provider's order: SDK objects have them in another one."""
    return {**{key: block[key] for key in THINKING_KEYS if key in block}, **block} if isinstance(block, dict) else block


def _memory_of(said: Substance) -> int:
    """Bytes that its strings take in memory: a text with an arrow or an emoji takes two or four times its length."""
    found = 0
    for part in said:
        for each in part if type(part) is tuple else (part,):
            if type(each) is str:
                found += getsizeof(each)
    return found


def essence(message: Message) -> int:
    """A fingerprint of it, for this process."""
    return hash(substance(message))


def digest_of(said: Substance) -> bytes:
    """One for every process."""
    return hashlib.sha256(repr(said).encode("utf-8", "surrogatepass")).digest()
