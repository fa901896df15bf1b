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
from ..billing.revision_budget import PricedRevision, RequestContext
from ..formats import Format
from ..formats.cache_control import CacheBreakpoint
from ..markers.thinking_records import blocks_of
from ..model import Conversation, Message, Text, Thinking, ToolCall, ToolResult, to_json
from ..plan import Edit, Plan, apply_plan
from ..strategies.strategy import ConversationStart, Strategy, StrategyRun
from ..tokens import BYTES_PER_TOKEN
from ..wire import JsonChange, ScannedRequest, open_document
from ..wire.request_scan import LastRequest, ScanState, WrittenMessages, scan_continuation
from . import pipeline


@dataclass(frozen=True, slots=True)
class SentPrefix:
    """How the messages of a request were sent, so that another request can start with the same bytes.

    An immutable copy, because another thread may change the conversation's state meanwhile.
    """

    dialect: Format
    scan_state: ScanState | None
    plan: Plan
    _fingerprints: tuple[int | None, ...]
    """Fingerprint of each message's JSON text, if the client sent text."""
    _content_hashes: tuple[int | None, ...]
    """Hash of each message's content, if it was parsed."""
    _changes: Mapping[int, list[JsonChange]]
    _written: WrittenMessages

    @classmethod
    def from_unchanged(cls, dialect: Format, scanned: ScannedRequest) -> SentPrefix:
        """Return the prefix of a request that is sent unchanged. A later request may start with the same bytes."""
        fingerprints = tuple([scanned.fingerprint(index) for index in range(len(scanned))])
        return cls(
            dialect, scanned.scan_state, Plan(), fingerprints, _hash_contents(dialect, scanned, fingerprints, 0), {}, {}
        )

    @property
    def message_count(self) -> int:
        """Number of messages of the request."""
        return len(self._fingerprints)

    def rescan(self, request: bytes, last: LastRequest | None = None) -> ScannedRequest | None:
        """Scan a request that starts with the same bytes; None for any other. `last` has these bytes, if available."""
        return scan_continuation(request, self.scan_state, last) if self.scan_state is not None else None

    def shared_length(self, scanned: ScannedRequest) -> int:
        """Return the number of messages at the start of the request that are equal to the sent ones."""
        first = scanned.unchanged_count if self._is_scanned_from(scanned) else 0
        for index in range(first, self.message_count):
            if index >= len(scanned) or not self._matches_message(index, scanned):
                return index
        return self.message_count

    def is_continuation_of(self, other: SentPrefix) -> bool:
        """Return True if this is a later request that starts with all messages of the other."""
        length = other.message_count
        if self.message_count <= length:
            return False
        if None not in other._content_hashes and self._content_hashes[:length] == other._content_hashes:
            return True
        return all(self._has_same_message(other, index) for index in range(length))

    def is_same_request(self, other: SentPrefix) -> bool:
        """Return True if both have the same messages, sent in the same way."""
        alike = self.message_count == other.message_count and self._changes == other._changes
        return alike and all(self._has_same_message(other, index) for index in range(self.message_count))

    def _has_same_message(self, other: SentPrefix, index: int) -> bool:
        fingerprint, essence = self._fingerprints[index], self._content_hashes[index]
        same = fingerprint is not None and fingerprint == other._fingerprints[index]
        return same or (essence is not None and essence == other._content_hashes[index])

    def has_same_changes(self, other: SentPrefix, length: int) -> bool:
        """Return True if both sent the first `length` messages in the same way."""
        ours = {index: some for index, some in self._changes.items() if index < length}
        return ours == {index: some for index, some in other._changes.items() if index < length}

    def truncate_to(self, scanned: ScannedRequest, shared_length: int) -> SentPrefix:
        """Return the prefix of a request whose first `shared_length` messages are sent as here, and all others
        unchanged."""
        fingerprints = tuple([scanned.fingerprint(index) for index in range(len(scanned))])
        essences = self._content_hashes[:shared_length] + _hash_contents(
            self.dialect, scanned, fingerprints, shared_length
        )
        plan = Plan(tuple(edit for edit in self.plan.edits if edit.message < shared_length), self.plan.points)
        changes = {index: some for index, some in self._changes.items() if index < shared_length}
        return SentPrefix(self.dialect, scanned.scan_state, plan, fingerprints, essences, changes, {})

    def _matches_message(self, index: int, scanned: ScannedRequest) -> bool:
        fingerprint, content = scanned.fingerprint(index), self._content_hashes[index]
        if fingerprint is not None and fingerprint == self._fingerprints[index]:
            return True
        return (
            content is not None and content_hash(self.dialect.read_message(index, scanned.message_at(index))) == content
        )

    def apply_to(self, scanned: ScannedRequest, shared_length: int) -> Any:
        """Return the request with its first `shared_length` messages sent as before, and all others unchanged."""
        changes = {index: some for index, some in self._changes.items() if index < shared_length}
        return scanned.write(changes, dict(self._written) if self._is_scanned_from(scanned) else {})

    def _is_scanned_from(self, scanned: ScannedRequest) -> bool:
        return scanned.matched_state is not None and scanned.matched_state is self.scan_state


def _hash_contents(
    dialect: Format, scanned: ScannedRequest, fingerprints: Sequence[int | None], start: int
) -> tuple[int | None, ...]:
    """Return content hashes of the messages from `start` on. Those with a fingerprint get None and are not parsed."""
    return tuple(
        [
            content_hash(dialect.read_message(index, scanned.message_at(index))) if fingerprint is None else None
            for index, fingerprint in enumerate(fingerprints[start:], start)
        ]
    )


@dataclass(frozen=True, slots=True)
class SentMessages:
    """The messages of a request as they are sent, parsed on access."""

    scanned: ScannedRequest
    changes: Mapping[int, list[JsonChange]]
    written: WrittenMessages

    def __len__(self) -> int:
        return len(self.scanned)

    def __getitem__(self, index: int) -> Any:
        return self.scanned.rewritten_message(index, self.changes, self.written)

    def size(self, index: int) -> int:
        return self.scanned.message_size(index)


EDIT_BYTES = 1200
"""Bytes in memory of a message's edits without their texts, in all tables together."""


class WholeMessageEdit(Exception):
    """An edit adds or removes a whole message, so the request must be processed from its start."""


def _strategy_inputs(strategy: Strategy, start: ConversationStart) -> tuple[Any, ...]:
    """Return the inputs that a strategy state depends on. If they change, the conversation starts again.

    A strategy that revises also uses the recall tool, thinking and prices. Write price and TTL are omitted, because a
    cache directive in a message can change them.
    """
    if not strategy.revises:
        return start.conv.dialect.name, start.refers
    economy = replace(start.economy, write=0.0, lifetime=0.0)
    return start.conv.dialect.name, start.refers, start.recall_tool, start.clears_thinking, economy


class GrowingConversation:
    """The messages of a conversation so far, and how they are sent."""

    def __init__(self, strategy: Strategy, dialect: Format, start: ConversationStart) -> None:
        self.dialect = dialect
        self.scan_state: ScanState | None = None
        self._strategy = strategy
        self._inputs = _strategy_inputs(strategy, start)
        self._run = StrategyRun(strategy.begin(start))
        self._fingerprints: list[int | None] = []
        self._content_hashes: list[int] = []
        """Content hashes, as in `SentPrefix`."""
        self._edits: dict[int, tuple[Edit, ...]] = {}
        self._points: tuple[PricedRevision, ...] = ()
        self._changes: dict[int, list[JsonChange]] = {}
        self._written_values: WrittenMessages = {}
        self._breakpoints: dict[int, list[CacheBreakpoint]] = {}
        """The client's cache breakpoints, by message index."""
        self._removed_tokens = 0.0
        self._text_bytes = 0
        """Bytes in memory of the original texts."""
        self._plan: Plan | None = None
        """Cached plan of all edits, until an edit is added."""

    def __len__(self) -> int:
        """Number of messages."""
        return len(self._content_hashes)

    def has_same_inputs(self, other: ConversationStart) -> bool:
        """Return True if the strategy state would have the same inputs with `other`."""
        return self._inputs == _strategy_inputs(self._strategy, other)

    @property
    def has_store_failed(self) -> bool:
        """True if the store could not save the originals at the last request."""
        return self._run.has_store_failed

    @property
    def revision_cost(self) -> float:
        """Cost of all revisions so far, in tokens at the input price."""
        return self._run.fold.spent

    @property
    def removed_tokens(self) -> float:
        """Estimated tokens that edits remove from all messages."""
        return self._removed_tokens

    @property
    def memory_bytes(self) -> int:
        """Approximate memory use in bytes, including the texts."""
        written_bytes = sum([len(new) for _, new in self._written_values.values()])
        state_bytes: int = getattr(self._run.fold, "weight", 0)  # a user's strategy state may not have it
        return self._text_bytes + state_bytes + written_bytes + EDIT_BYTES * len(self._edits)

    def shared_length(self, scanned: ScannedRequest) -> int:
        """Return how many of the messages so far the request starts with."""
        for index in range(scanned.unchanged_count, len(self)):
            if index >= len(scanned):
                return index
            fingerprint = scanned.fingerprint(index)
            if fingerprint is not None and fingerprint == self._fingerprints[index]:
                continue
            message = self.dialect.read_message(index, scanned.message_at(index))
            if content_hash(message) != self._content_hashes[index]:
                return index
            self._fingerprints[index] = fingerprint
            self._record_breakpoints(message)
        return len(self)

    def _record_breakpoints(self, message: Message) -> None:
        """Record the cache breakpoints of a message. Clients move them between requests."""
        breakpoints = self.dialect.cache_control.breakpoints_in_message(message.index, message.wire)
        if breakpoints:
            self._breakpoints[message.index] = breakpoints
        else:
            self._breakpoints.pop(message.index, None)

    def client_breakpoints(self, head: Mapping[str, Any], new: Conversation) -> list[CacheBreakpoint]:
        """Return the client's cache breakpoints in the messages so far and in the new ones, as sent by the client."""
        cache_control = self.dialect.cache_control
        new_breakpoints = [
            mark for each in new.messages for mark in cache_control.breakpoints_in_message(each.index, each.wire)
        ]
        known_breakpoints = [mark for index in sorted(self._breakpoints) for mark in self._breakpoints[index]]
        return [
            *cache_control.breakpoints_in_head(head),
            *known_breakpoints,
            *new_breakpoints,
            *cache_control.breakpoints_at_end(head, len(self) + len(new.messages)),
        ]

    def sent_breakpoints(self, scanned: ScannedRequest) -> list[CacheBreakpoint]:
        """Return the client's cache breakpoints in the rewritten request. Edits may have moved them."""
        cache_control, messages = self.dialect.cache_control, self.sent_messages(scanned)
        breakpoints: list[CacheBreakpoint] = []
        for index in sorted(self._breakpoints):
            is_edited = index in self._changes
            breakpoints += (
                cache_control.breakpoints_in_message(index, messages[index]) if is_edited else self._breakpoints[index]
            )
        return [
            *cache_control.breakpoints_in_head(scanned.params),
            *breakpoints,
            *cache_control.breakpoints_at_end(scanned.params, len(scanned)),
        ]

    def add_messages(
        self,
        new: Conversation,
        scanned: ScannedRequest,
        model: str | None,
        contents: Iterable[ComparableContent],
        moments: Mapping[int, RequestContext],
        as_is: Container[int],
        cleared_at: Sequence[int],
    ) -> None:
        """Process new messages, whose comparable contents are `contents`.

        `moments` has the context of each request, by length of the history. Messages in `as_is` were sent unchanged.
        The provider cleared results at the lengths `cleared_at`.
        """
        edits = self._run.add_messages(new.messages, moments, as_is, cleared_at)
        if not all(edit.path for edit in edits):
            raise WholeMessageEdit
        changes = self._run.changes
        if changes is None or (edits and Plan(tuple(edits)).structural):
            self._revise_all(scanned, model)
        elif edits or changes:
            edits = [edit for edit in edits if edit.message not in changes]
            allowed_edits = pipeline.admissible_edits(new, self._strategy, edits, model, length=len(scanned))
            for index, some in _group_by_message(allowed_edits).items():
                self._set_edits(index, some)
            if changes:
                self._revise_some(new, scanned, changes, model)
        for message, content in zip(new.messages, contents, strict=True):
            self._fingerprints.append(scanned.fingerprint(message.index))
            self._content_hashes.append(hash(content))
            self._text_bytes += _string_bytes(content)
            self._record_breakpoints(message)
        self.scan_state = scanned.scan_state
        if self._plan is not None and self._plan.full_texts != self._run.full_texts:
            self._plan = None

    def _revise_all(self, scanned: ScannedRequest, model: str | None) -> None:
        """Apply a revision that may change any message, and check the whole request."""
        conv = formats.parse_request(open_document(scanned.original).value, self.dialect)
        plan = pipeline.plan_request(conv, self._strategy, self._run.plan, model)
        if not all(edit.path for edit in plan):
            raise WholeMessageEdit
        by_message = _group_by_message(plan)
        for index in self._edits.keys() | by_message.keys():
            self._set_edits(index, by_message.get(index, ()))
        self._points = plan.points

    def _revise_some(
        self, new: Conversation, scanned: ScannedRequest, changes: Mapping[int, tuple[Edit, ...]], model: str | None
    ) -> None:
        """Apply a revision of the messages in `changes`. Only these are checked, and the neighbors of a message that
        loses a part."""
        known_messages = {message.index: message for message in new.messages}

        def select_messages(indices: Iterable[int]) -> Conversation:
            some = (
                known_messages.get(index) or self.dialect.read_message(index, scanned.message_at(index))
                for index in indices
            )
            return Conversation(tuple(some), self.dialect, scanned.params, whole=False)

        conv = select_messages(sorted(changes))
        known_messages.update((message.index, message) for message in conv.messages)
        proposed_edits = [edit for message in conv.messages for edit in changes[message.index]]
        allowed_edits = _group_by_message(
            pipeline.admissible_edits(conv, self._strategy, proposed_edits, model, length=len(scanned))
        )
        structural_edits = {index: some for index, some in allowed_edits.items() if Plan(tuple(some)).structural}
        if structural_edits:
            near = {index + step for index in structural_edits for step in (-1, 0, 1)}
            near_indexes = sorted(index for index in near if 0 <= index < len(scanned))
            _check_partial(
                select_messages(near_indexes), Plan(tuple(edit for some in structural_edits.values() for edit in some))
            )
        for index in changes:
            self._set_edits(index, allowed_edits.get(index, ()))
        self._points = self._run.points

    def sent_messages(self, scanned: ScannedRequest) -> SentMessages:
        """Return the messages as they are sent."""
        return SentMessages(scanned, self._changes, self._written_values)

    def write(self, scanned: ScannedRequest, late: Sequence[JsonChange] = ()) -> Any:
        """Return the rewritten request. `late` changes are applied after all edits, anywhere in the request."""
        return scanned.write(self._changes, self._written_values, late)

    @property
    def sent_prefix(self) -> SentPrefix:
        """A copy of how the request is sent."""
        fingerprints, essences = tuple(self._fingerprints), tuple(self._content_hashes)
        changes, written_values = dict(self._changes), dict(self._written_values)
        return SentPrefix(self.dialect, self.scan_state, self.plan, fingerprints, essences, changes, written_values)

    @property
    def plan(self) -> Plan:
        """All edits of the conversation, with its revisions."""
        if self._plan is None:
            edits = tuple(edit for index in sorted(self._edits) for edit in self._edits[index])
            self._plan = Plan(edits, self._points, self._run.full_texts)
        return self._plan

    def _set_edits(self, message: int, edits: Iterable[Edit]) -> None:
        """Replace the edits of a message."""
        new_edits = tuple(edits)
        self._plan = None
        old_edits = self._edits.pop(message, ())
        self._removed_tokens += sum(map(_removed_tokens, new_edits)) - sum(map(_removed_tokens, old_edits))
        if new_edits != old_edits:
            self._changes.pop(message, None)
            self._written_values.pop(message, None)
        if new_edits:
            self._edits[message] = new_edits
            self._changes[message] = [JsonChange(edit.path, edit.op, edit.written) for edit in new_edits]


def _check_partial(conv: Conversation, plan: Plan) -> None:
    """Raises RuntimeError if edits inside some messages break a rule.

    `conv` has only these messages and their neighbors. Violations that exist before the edits are ignored, because the
    missing messages cause some.
    """
    known_violations = set(rules.violations(conv))
    new_violations = [each for each in rules.violations(apply_plan(conv, plan)) if each not in known_violations]
    if new_violations:
        raise RuntimeError(f"the plan would break a rule: {new_violations[0]}")


def _removed_tokens(edit: Edit) -> float:
    """Estimated tokens that an edit removes, from its bytes, which are cheap to count."""
    return edit.bytes_saved / BYTES_PER_TOKEN


def _group_by_message(edits: Iterable[Edit]) -> dict[int, list[Edit]]:
    groups: dict[int, list[Edit]] = {}
    for edit in edits:
        groups.setdefault(edit.message, []).append(edit)
    return groups


ComparableContent = tuple[Any, ...]

THINKING_KEYS = ("type", "thinking", "signature")


def comparable_content(message: Message) -> ComparableContent:
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
    content: list[Any] = [message.role]
    thinking = blocks_of(message)
    for part in message.parts:
        if isinstance(part, ToolCall):
            content.append((part.id, part.name, part.arguments, part.path))
        elif isinstance(part, ToolResult):
            content.append((part.call_id, part.failed, part.path))
            content.extend((seg.path, seg.text if isinstance(seg, Text) else seg.kind) for seg in part.segments)
        elif isinstance(part, Text):
            content.append((part.path, part.text, part.bound))
        elif isinstance(part, Thinking) and part.removable:
            content.append((part.path, to_json(_order_keys(thinking[part.path]))))  # includes the signature
        else:
            content.append((type(part).__name__, part.path))
    return tuple(content)


def _order_keys(block: Any) -> Any:
    """Return a thinking block with its keys in the provider's order. SDK objects have another order."""
    return {**{key: block[key] for key in THINKING_KEYS if key in block}, **block} if isinstance(block, dict) else block


def _string_bytes(content: ComparableContent) -> int:
    """Return the memory of the strings in bytes. Python stores a text with an arrow or emoji in 2 or 4 bytes per
    character."""
    total = 0
    for part in content:
        for each in part if type(part) is tuple else (part,):
            if type(each) is str:
                total += getsizeof(each)
    return total


def content_hash(message: Message) -> int:
    """Return a hash of the content, valid only in this process."""
    return hash(comparable_content(message))


def content_digest(content: ComparableContent) -> bytes:
    """Return a digest of the content that is equal in every process."""
    return hashlib.sha256(repr(content).encode("utf-8", "surrogatepass")).digest()
