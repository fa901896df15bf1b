"""A/B experiment of `--trial`: assign conversations to two variants (rewrite, or only measure), and observe the agents.

A conversation is assigned by a keyed hash of the client's session name, so that subagents are in the variant of their
agent. Without a session name, its first messages are hashed. The key is random and stored, so assignments cannot be
predicted, and all processes on the same store agree, also after a restart. A conversation stays in its variant whatever
happens to its requests; otherwise the variants could not be compared.

Agent behavior is counted in the history as the client has it, so it means the same in both variants. Only new messages
are read. No text is stored, only which lines of a file were shown.

- A *turn* is a new request of the user, or of an agent to its subagent. Texts in tags are added by the client.
- A file is *read again* if all lines that a call requests were shown before, and no call wrote to the file since.
- An edit *failed* if its result is marked as an error. In wire formats without such a field, failures are not counted.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from collections import OrderedDict
from typing import Literal, NamedTuple

import msgspec

from .. import formats
from ..engine.journal import previous_request_length
from ..live.types import LiveRequest
from ..model import Message, Text, ToolCall, ToolResult
from ..store.store import Store
from ..tool_arguments import file_argument
from ..tool_arguments.file_access import FileAccess, file_accesses
from ..wire import ScannedRequest
from .accounting.exchange_rows import TrialData

VariantName = Literal["rewrite", "measure"]

KEY_NAME = "ibidem-trial-coin"
"""Name of the key in the store. It is one journal entry that only the first process can add."""
KEY_BYTES = 32

_SESSION = re.compile(r'session_(?:id"\s*:\s*")?([0-9A-Za-z-]{8,64})(?:"|$)')
"""Session id in the user id that Claude Code sends: at its end, or as a field of JSON in that text."""


class _RequestMetadata(msgspec.Struct):
    user_id: str = ""


class _RequestHead(msgspec.Struct):
    """Fields of a request that contain the session. The decoder skips the others."""

    metadata: _RequestMetadata | None = None


_head = msgspec.json.Decoder(_RequestHead)


class VariantAssignment(NamedTuple):
    """Variant of a client session, or of a conversation without a session name."""

    arm: VariantName
    unit: str
    """Keyed hash of the session name or the first messages. It reveals neither."""


class RandomAssigner:
    """Assigns names to variants by a keyed hash. If the share grows, rewritten conversations stay rewritten."""

    def __init__(self, key: bytes, share: float) -> None:
        self._key, self.share = key, share

    def assign_name(self, name: str) -> VariantAssignment:
        """Return the variant of a session or conversation."""
        digest = hashlib.blake2b(name.encode("utf-8", "surrogatepass"), key=self._key, digest_size=16).digest()
        is_rewritten = int.from_bytes(digest[:8]) < self.share * 2**64
        return VariantAssignment("rewrite" if is_rewritten else "measure", digest[8:].hex())

    def assign_variant(self, format: str, name: str) -> TrialAssignment:
        """Return the variant of a conversation, in the form that `live` uses."""
        return TrialAssignment(self.assign_name(name), format)

    def save_key(self, store: Store) -> None:
        """Save the key in the store, or extend its retention. Raises StoreError, or an error of the store."""
        load_shared_key(store, self._key)


def load_shared_key(store: Store, own_key: bytes | None = None) -> bytes:
    """Return the key that all processes on this store share. The first one adds `own_key`, or a new random key."""
    stored = store.notes(KEY_NAME)
    if not stored.rows:
        new_key = own_key or secrets.token_bytes(KEY_BYTES)
        stored = store.note(KEY_NAME, [new_key], stored.place)
        if stored.added:
            return new_key
    return stored.rows[0]


def session_in_body(body: bytes) -> str:
    """Return the client's session name from a request body; empty if the body contains none."""
    try:
        metadata = _head.decode(body).metadata
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return ""  # a compressed body, or another format
    match = _SESSION.search(metadata.user_id) if metadata is not None else None
    return match[1] if match else ""


MAX_FILES, MAX_VIEWS, MAX_OPEN_CALLS = 1000, 50, 1000
"""Limits per conversation: files, views of one file, and calls without a result."""


class AgentBehavior(NamedTuple):
    """Agent behavior between two requests."""

    turns: int = 0
    rereads: int = 0
    edits: int = 0
    failed_edits: int = 0

    def add_counts(self, other: AgentBehavior) -> AgentBehavior:
        """Return the sum of both counts."""
        return AgentBehavior(*(mine + theirs for mine, theirs in zip(self, other, strict=True)))


class _OpenCall(NamedTuple):
    touched: tuple[FileAccess, ...]
    edits: bool


class BehaviorReader:
    """Reader of the agent behavior in one conversation."""

    def __init__(self, format: str) -> None:
        self._dialect = formats.format_named(format)
        self._messages = 0
        self._has_user_turn = False
        """True if the user has written since the last message of the model."""
        self._views: OrderedDict[str, list[FileAccess]] = OrderedDict()
        """Lines shown since the last write, by file."""
        self._open: OrderedDict[str, _OpenCall] = OrderedDict()

    def read_request(self, scanned: ScannedRequest) -> AgentBehavior:
        """Count what happened since the previous request of this conversation.

        Messages before the model's last response were counted with an earlier request, here or in another process.
        """
        length, read = len(scanned), self._dialect.read_message
        start = max(
            self._messages, previous_request_length(length, lambda index: read(index, scanned.message_at(index)).role)
        )
        behavior = AgentBehavior()
        for index in range(self._messages, length):
            message_behavior = self._count_message(read(index, scanned.message_at(index)))
            behavior = behavior.add_counts(message_behavior) if index >= start else behavior
        self._messages = length
        return behavior if not behavior.turns or _has_tools(scanned) else behavior._replace(turns=0)

    def _count_message(self, message: Message) -> AgentBehavior:
        behavior = AgentBehavior()
        for part in message.parts:
            if isinstance(part, ToolCall):
                behavior = behavior.add_counts(self._count_call(part))
            elif isinstance(part, ToolResult):
                behavior = behavior.add_counts(self._count_result(part))
        if message.role == "assistant":
            self._has_user_turn = False
        elif not self._has_user_turn and _is_user_request(message):
            self._has_user_turn = True
            behavior = behavior._replace(turns=1)
        return behavior

    def _count_call(self, call: ToolCall) -> AgentBehavior:
        accesses = file_accesses(call)
        writes = any(touch.kind == "write" for touch in accesses)
        if not accesses:
            return AgentBehavior()
        edits = writes and bool(file_argument(call) or "patch" in call.name) and self._dialect.tells_failures
        self._open[call.id] = _OpenCall(accesses, edits)
        if len(self._open) > MAX_OPEN_CALLS:
            self._open.popitem(last=False)
        return AgentBehavior(rereads=int(not writes and any(map(self._is_in_context, accesses))))

    def _is_in_context(self, touch: FileAccess) -> bool:
        return any(view.covers(touch) for view in self._views.get(touch.path, ()))

    def _count_result(self, result: ToolResult) -> AgentBehavior:
        call = self._open.pop(result.call_id, None)
        if call is None:
            return AgentBehavior()
        for touch in () if result.failed else call.touched:
            if touch.kind == "write":
                self._views.pop(touch.path, None)
            elif not self._is_in_context(touch):
                self._add_view(touch)
        return AgentBehavior(edits=int(call.edits), failed_edits=int(call.edits and result.failed))

    def _add_view(self, touch: FileAccess) -> None:
        views = self._views.setdefault(touch.path, [])
        views.append(touch)
        del views[:-MAX_VIEWS]
        self._views.move_to_end(touch.path)
        if len(self._views) > MAX_FILES:
            self._views.popitem(last=False)


def _is_user_request(message: Message) -> bool:
    """Return whether a message is a request of the user, and not only results or texts in tags."""
    if message.role != "user" or message.results:
        return False
    return any(isinstance(part, Text) and part.text.lstrip()[:1] not in ("", "<") for part in message.parts)


def _has_tools(scanned: ScannedRequest) -> bool:
    """Return whether a request has tools. Without tools, it is a client's own request for a title or a summary."""
    raw = getattr(scanned.params, "raw", None)
    return bool(scanned.params.get("tools")) if raw is None else raw("tools").strip() not in (b"", b"[]", b"null")


class TrialAssignment:
    """Variant of one conversation, with the behavior of its agent."""

    def __init__(self, toss: VariantAssignment, format: str) -> None:
        self.toss = toss
        self.label: str = toss.arm
        self.is_observed = toss.arm == "measure"
        self._reader: BehaviorReader | None = BehaviorReader(format)

    def observe_agent(self, scanned: ScannedRequest) -> AgentBehavior | None:
        """Return the agent behavior since the previous request. After an error, None for all later requests."""
        try:
            return self._reader.read_request(scanned) if self._reader is not None else None
        except Exception:
            self._reader = None  # a message may be half counted, so later counts would be wrong
            return None


def assignment_of(assigner: RandomAssigner | None, job: LiveRequest) -> VariantAssignment | None:
    """Return the variant of a request. None if it is not part of a trial or its conversation is unknown."""
    if assigner is None or job.is_count_only or job.profile:
        return None
    if job.conversation is not None:
        assignment = job.conversation.assignment
        return assignment.toss if isinstance(assignment, TrialAssignment) else None
    return assigner.assign_name(job.client_name) if job.client_name else None


def is_only_measured(assigner: RandomAssigner | None, job: LiveRequest) -> bool:
    """Return whether a request is forwarded unchanged because its variant is `measure`."""
    if job.conversation is not None:
        return job.conversation.is_observed
    assignment = assignment_of(assigner, job)
    return assignment is not None and assignment.arm == "measure"


def trial_row(assigner: RandomAssigner | None, job: LiveRequest, profile: str) -> TrialData | None:
    """Return the data that a trial stores about a request, or None."""
    assignment = assignment_of(assigner, job)
    if assignment is None or assigner is None:
        return None
    behavior = job.observation if isinstance(job.observation, AgentBehavior) else AgentBehavior()
    return TrialData(*assignment, assigner.share, profile, *behavior)
