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
from ..calls import file_of
from ..calls.file_access import Touch, touches
from ..engine.journal import previous_length
from ..live.types import LiveRequest
from ..model import Message, Text, ToolCall, ToolResult
from ..store.store import Store
from ..wire import Scanned
from .books.rows import TrialNote

Arm = Literal["rewrite", "measure"]

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


class Toss(NamedTuple):
    """Variant of a client session, or of a conversation without a session name."""

    arm: Arm
    unit: str
    """Keyed hash of the session name or the first messages. It reveals neither."""


class Coin:
    """Assigns names to variants by a keyed hash. If the share grows, rewritten conversations stay rewritten."""

    def __init__(self, key: bytes, share: float) -> None:
        self._key, self.share = key, share

    def toss(self, name: str) -> Toss:
        """Return the variant of a session or conversation."""
        digest = hashlib.blake2b(name.encode("utf-8", "surrogatepass"), key=self._key, digest_size=16).digest()
        heads = int.from_bytes(digest[:8]) < self.share * 2**64
        return Toss("rewrite" if heads else "measure", digest[8:].hex())

    def assign(self, format: str, name: str) -> TrialAssignment:
        """Return the variant of a conversation, in the form that `live` uses."""
        return TrialAssignment(self.toss(name), format)

    def keep(self, store: Store) -> None:
        """Save the key in the store, or extend its retention. Raises StoreError, or an error of the store."""
        shared_key(store, self._key)


def shared_key(store: Store, mine: bytes | None = None) -> bytes:
    """Return the key that all processes on this store share. The first one adds `mine`, or a new random key."""
    found = store.notes(KEY_NAME)
    if not found.rows:
        drawn = mine or secrets.token_bytes(KEY_BYTES)
        found = store.note(KEY_NAME, [drawn], found.place)
        if found.added:
            return drawn
    return found.rows[0]


def session_in(body: bytes) -> str:
    """Return the client's session name from a request body; empty if the body contains none."""
    try:
        metadata = _head.decode(body).metadata
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return ""  # a compressed body, or another format
    found = _SESSION.search(metadata.user_id) if metadata is not None else None
    return found[1] if found else ""


MAX_FILES, MAX_VIEWS, MAX_OPEN_CALLS = 1000, 50, 1000
"""Limits per conversation: files, views of one file, and calls without a result."""


class Conduct(NamedTuple):
    """Agent behavior between two requests."""

    turns: int = 0
    rereads: int = 0
    edits: int = 0
    failed_edits: int = 0

    def plus(self, other: Conduct) -> Conduct:
        """Return the sum of both counts."""
        return Conduct(*(mine + theirs for mine, theirs in zip(self, other, strict=True)))


class _OpenCall(NamedTuple):
    touched: tuple[Touch, ...]
    edits: bool


class ConductReader:
    """Reader of the agent behavior in one conversation."""

    def __init__(self, format: str) -> None:
        self._dialect = formats.named(format)
        self._messages = 0
        self._asked = False
        """True if the user has written since the last message of the model."""
        self._views: OrderedDict[str, list[Touch]] = OrderedDict()
        """Lines shown since the last write, by file."""
        self._open: OrderedDict[str, _OpenCall] = OrderedDict()

    def read(self, scanned: Scanned) -> Conduct:
        """Count what happened since the previous request of this conversation.

        Messages before the model's last response were counted with an earlier request, here or in another process.
        """
        length, read = len(scanned), self._dialect.read
        start = max(self._messages, previous_length(length, lambda index: read(index, scanned.value(index)).role))
        counted = Conduct()
        for index in range(self._messages, length):
            found = self._take(read(index, scanned.value(index)))
            counted = counted.plus(found) if index >= start else counted
        self._messages = length
        return counted if not counted.turns or _has_tools(scanned) else counted._replace(turns=0)

    def _take(self, message: Message) -> Conduct:
        found = Conduct()
        for part in message.parts:
            if isinstance(part, ToolCall):
                found = found.plus(self._call(part))
            elif isinstance(part, ToolResult):
                found = found.plus(self._result(part))
        if message.role == "assistant":
            self._asked = False
        elif not self._asked and _is_asked(message):
            self._asked = True
            found = found._replace(turns=1)
        return found

    def _call(self, call: ToolCall) -> Conduct:
        touched = touches(call)
        writes = any(touch.kind == "write" for touch in touched)
        if not touched:
            return Conduct()
        edits = writes and bool(file_of(call) or "patch" in call.name) and self._dialect.tells_failures
        self._open[call.id] = _OpenCall(touched, edits)
        if len(self._open) > MAX_OPEN_CALLS:
            self._open.popitem(last=False)
        return Conduct(rereads=int(not writes and any(map(self._stands, touched))))

    def _stands(self, touch: Touch) -> bool:
        return any(view.covers(touch) for view in self._views.get(touch.path, ()))

    def _result(self, result: ToolResult) -> Conduct:
        call = self._open.pop(result.call_id, None)
        if call is None:
            return Conduct()
        for touch in () if result.failed else call.touched:
            if touch.kind == "write":
                self._views.pop(touch.path, None)
            elif not self._stands(touch):
                self._show(touch)
        return Conduct(edits=int(call.edits), failed_edits=int(call.edits and result.failed))

    def _show(self, touch: Touch) -> None:
        views = self._views.setdefault(touch.path, [])
        views.append(touch)
        del views[:-MAX_VIEWS]
        self._views.move_to_end(touch.path)
        if len(self._views) > MAX_FILES:
            self._views.popitem(last=False)


def _is_asked(message: Message) -> bool:
    """Return whether a message is a request of the user, and not only results or texts in tags."""
    if message.role != "user" or message.results:
        return False
    return any(isinstance(part, Text) and part.text.lstrip()[:1] not in ("", "<") for part in message.parts)


def _has_tools(scanned: Scanned) -> bool:
    """Return whether a request has tools. Without tools, it is a client's own request for a title or a summary."""
    raw = getattr(scanned.head, "raw", None)
    return bool(scanned.head.get("tools")) if raw is None else raw("tools").strip() not in (b"", b"[]", b"null")


class TrialAssignment:
    """Variant of one conversation, with the behavior of its agent."""

    def __init__(self, toss: Toss, format: str) -> None:
        self.toss = toss
        self.label: str = toss.arm
        self.measured = toss.arm == "measure"
        self._reader: ConductReader | None = ConductReader(format)

    def observe(self, scanned: Scanned) -> Conduct | None:
        """Return the agent behavior since the previous request. After an error, None for all later requests."""
        try:
            return self._reader.read(scanned) if self._reader is not None else None
        except Exception:
            self._reader = None  # a message may be half counted, so later counts would be wrong
            return None


def toss_of(coin: Coin | None, job: LiveRequest) -> Toss | None:
    """Return the variant of a request. None if it is not part of a trial or its conversation is unknown."""
    if coin is None or job.counts or job.profile:
        return None
    if job.conversation is not None:
        assignment = job.conversation.assignment
        return assignment.toss if isinstance(assignment, TrialAssignment) else None
    return coin.toss(job.named) if job.named else None


def is_measured(coin: Coin | None, job: LiveRequest) -> bool:
    """Return whether a request is forwarded unchanged because its variant is `measure`."""
    if job.conversation is not None:
        return job.conversation.measured
    toss = toss_of(coin, job)
    return toss is not None and toss.arm == "measure"


def trial_note(coin: Coin | None, job: LiveRequest, profile: str) -> TrialNote | None:
    """Return the data that a trial stores about a request, or None."""
    toss = toss_of(coin, job)
    if toss is None or coin is None:
        return None
    conduct = job.observed if isinstance(job.observed, Conduct) else Conduct()
    return TrialNote(*toss, coin.share, profile, *conduct)
