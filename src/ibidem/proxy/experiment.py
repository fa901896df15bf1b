"""The A/B experiment of `--trial`: which conversations are rewritten, which only measured, and what their agents do.

A conversation is assigned by a keyed hash of the client's name for its session, so that sub-agents are in the variant
of their agent, or else of its first messages. The key is drawn at random once and stored: nobody can predict an
assignment, and every process on the same store assigns alike, also after a restart. A conversation stays in its variant
whatever becomes of its requests, or the variants could not be compared.

What an agent does is counted from the history as the client has it, so it means the same in both variants. Only new
messages are read, and no text is held: of a file, which lines were shown.

- A *turn* is a new request of the user, or of an agent to its sub-agent. Texts in tags are the client's own.
- A file is *read again* if all lines that a call requests were shown before, and no call wrote to the file since.
- An edit *failed* if the client says so of its result. In wire formats without such a field, none is counted.
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
"""Under which the store has the key: it is one note, which only the first who comes can add."""
KEY_BYTES = 32

_SESSION = re.compile(r'session_(?:id"\s*:\s*")?([0-9A-Za-z-]{8,64})(?:"|$)')
"""A session in what Claude Code sends as the user's id: at its end, or as a field of JSON in that text."""


class _RequestMetadata(msgspec.Struct):
    user_id: str = ""


class _RequestHead(msgspec.Struct):
    """Of a request; all else in it is passed over."""

    metadata: _RequestMetadata | None = None


_head = msgspec.json.Decoder(_RequestHead)


class Toss(NamedTuple):
    """How the coin fell for one client's session, or for one conversation where none is named."""

    arm: Arm
    unit: str
    """What was tossed for, as a keyed hash: it names no session and tells no text."""


class Coin:
    """Of one proxy. A larger share leaves those that were rewritten on their side."""

    def __init__(self, key: bytes, share: float) -> None:
        self._key, self.share = key, share

    def toss(self, name: str) -> Toss:
        digest = hashlib.blake2b(name.encode("utf-8", "surrogatepass"), key=self._key, digest_size=16).digest()
        heads = int.from_bytes(digest[:8]) < self.share * 2**64
        return Toss("rewrite" if heads else "measure", digest[8:].hex())

    def assign(self, format: str, name: str) -> TrialAssignment:
        """The variant of a conversation, as `live` asks for it."""
        return TrialAssignment(self.toss(name), format)

    def keep(self, store: Store) -> None:
        """The store has the key and remembers it for longer. Raises StoreError, and what a store raises."""
        shared_key(store, self._key)


def shared_key(store: Store, mine: bytes | None = None) -> bytes:
    """The key of all who share the store. The first one brings it: `mine`, or one that is drawn now."""
    found = store.notes(KEY_NAME)
    if not found.rows:
        drawn = mine or secrets.token_bytes(KEY_BYTES)
        found = store.note(KEY_NAME, [drawn], found.place)
        if found.added:
            return drawn
    return found.rows[0]


def session_in(body: bytes) -> str:
    """The client's session, where it is told in the request and not in a header; empty if it is not."""
    try:
        metadata = _head.decode(body).metadata
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return ""  # it is packed, or none that we know
    found = _SESSION.search(metadata.user_id) if metadata is not None else None
    return found[1] if found else ""


MAX_FILES, MAX_VIEWS, MAX_OPEN_CALLS = 1000, 50, 1000
"""Most that are held of a conversation: files, views of one of them, and calls that were not answered yet."""


class Conduct(NamedTuple):
    """Of one request: what happened since the one before it."""

    turns: int = 0
    rereads: int = 0
    edits: int = 0
    failed_edits: int = 0

    def plus(self, other: Conduct) -> Conduct:
        return Conduct(*(mine + theirs for mine, theirs in zip(self, other, strict=True)))


class _OpenCall(NamedTuple):
    touched: tuple[Touch, ...]
    edits: bool


class ConductReader:
    """Follows one conversation."""

    def __init__(self, format: str) -> None:
        self._dialect = formats.named(format)
        self._messages = 0
        self._asked = False
        """The user spoke since the model was last heard."""
        self._views: OrderedDict[str, list[Touch]] = OrderedDict()
        """By file: what was shown of it since it was last written to."""
        self._open: OrderedDict[str, _OpenCall] = OrderedDict()

    def read(self, scanned: Scanned) -> Conduct:
        """Of a request that goes on this conversation.

        What the model said before its last answer was counted with an earlier request, here or in another process.
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
    """Whether somebody says something of their own in it, beside results and what a client adds in tags."""
    if message.role != "user" or message.results:
        return False
    return any(isinstance(part, Text) and part.text.lstrip()[:1] not in ("", "<") for part in message.parts)


def _has_tools(scanned: Scanned) -> bool:
    """Without any, a client asks for a title or a summary on its own account."""
    raw = getattr(scanned.head, "raw", None)
    return bool(scanned.head.get("tools")) if raw is None else raw("tools").strip() not in (b"", b"[]", b"null")


class TrialAssignment:
    """The variant of one conversation, and what its agent does in it."""

    def __init__(self, toss: Toss, format: str) -> None:
        self.toss = toss
        self.label: str = toss.arm
        self.measured = toss.arm == "measure"
        self._reader: ConductReader | None = ConductReader(format)

    def observe(self, scanned: Scanned) -> Conduct | None:
        """What the agent did since the request before; None after an error, for all later requests."""
        try:
            return self._reader.read(scanned) if self._reader is not None else None
        except Exception:
            self._reader = None  # half of a message may be counted
            return None


def toss_of(coin: Coin | None, job: LiveRequest) -> Toss | None:
    """The side that it is on, as far as it is known whose it is; None for what takes part in no trial."""
    if coin is None or job.counts or job.profile:
        return None
    if job.conversation is not None:
        assignment = job.conversation.assignment
        return assignment.toss if isinstance(assignment, TrialAssignment) else None
    return coin.toss(job.named) if job.named else None


def is_measured(coin: Coin | None, job: LiveRequest) -> bool:
    """Whether it goes as it came because of the side that it is on. Who asks for a size has a side too."""
    if job.conversation is not None:
        return job.conversation.measured
    toss = toss_of(coin, job)
    return toss is not None and toss.arm == "measure"


def trial_note(coin: Coin | None, job: LiveRequest, profile: str) -> TrialNote | None:
    toss = toss_of(coin, job)
    if toss is None or coin is None:
        return None
    conduct = job.observed if isinstance(job.observed, Conduct) else Conduct()
    return TrialNote(*toss, coin.share, profile, *conduct)
