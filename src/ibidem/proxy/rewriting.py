"""One request body on its way out: what is sent instead, or why it goes as it came (law 12).

`Rewriter.rewrite` runs in a thread of its own and may be given up on; whoever waits for it then sends the original, and
the conversation is told that it went out that way.
"""

from __future__ import annotations

import gzip
import logging
import threading
import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from ..model import IbidemError, one_line
from ..plan import Edit
from .conversations import Conversation, Conversations, Found, Unreadable
from .usage import decoder

log = logging.getLogger("ibidem")

PIECE = 2**14
"""Bytes that are unpacked at once: what is made to be huge is found out early."""

TRIES = 3
"""How often a conversation is looked up that others work on at the same time."""

REASON = 200
"""Characters of a reason that are told."""

Result = Literal["rewritten", "unchanged", "observed", "failed open"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of a request."""

    result: Result
    body: bytes | None = None
    """What is sent; None for the request as it came."""
    reason: str = ""
    """Why it failed open."""
    theirs: bool = False
    """That was the client's doing: nothing is wrong here."""
    conversation: Conversation | None = None
    messages: int = 0
    first_new: int = 0
    """Of these, those that were sent before."""
    edits: tuple[Edit, ...] = ()
    revision: str = ""
    """Why something that was sent before was changed in this request."""
    took: float = 0.0
    """Seconds."""
    model: str = ""


@dataclass(eq=False)
class Job:
    """A request that is being worked on. Either it is done in time or it is given up, never both."""

    format: str
    named: str
    """What the client calls the conversation."""
    encoding: str
    body: bytes
    at: float
    """Seconds since 1970."""
    counts: bool = False
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _ended: bool = False

    @property
    def ended(self) -> bool:
        return self._ended

    def end(self) -> bool:
        """True for the first who ends it."""
        with self._lock:
            first, self._ended = not self._ended, True
            return first


class Rewriter:
    def __init__(self, conversations: Conversations, observe: bool, max_body: int) -> None:
        self.conversations = conversations
        self._observe = observe
        self._max_body = max_body

    def rewrite(self, job: Job) -> Outcome:
        """Never raises."""
        start = time.perf_counter()
        try:
            return self._rewrite(job, start)
        except Unreadable as error:
            told, theirs = str(error), True
        except IbidemError as error:
            told, theirs = str(error), False
        except Exception as error:
            log.warning("request left as it came", exc_info=True)
            told, theirs = f"{type(error).__name__}: {error}", False
        reason = one_line(told)[:REASON]
        return Outcome(result="failed open", reason=reason, theirs=theirs, took=time.perf_counter() - start)

    def _rewrite(self, job: Job, start: float) -> Outcome:
        body = _decoded(job.body, job.encoding, self._max_body)
        find, begin = self.conversations.find, self.conversations.begin
        if job.counts:
            return self._counted(job, body, start)
        for _ in range(TRIES):
            found = find(job.format, job.named, body) or begin(job.format, job.named, body)
            with found.conversation.lock:
                if job.ended:
                    break
                if found.conversation.turns == found.turn:
                    return self._work(job, body, found, start)
        raise IbidemError("busy: other requests of the same conversation were faster")

    def _work(self, job: Job, body: bytes, found: Found, start: float) -> Outcome:
        """Under the conversation's lock."""
        conversation = found.conversation
        compacted = self.conversations.rewrite(found, job.at)
        changed = compacted.request is not body
        try:
            if compacted.reason:
                raise IbidemError(compacted.reason)
            new = _encoded(compacted.request, job.encoding) if changed and not self._observe else None
            self._save(conversation)
        except Exception:
            job.end()
            self._as_is(conversation, changed)
            raise
        if not job.end():  # the original is on its way already
            self._as_is(conversation, changed)
            self._save(conversation)
        points = len(compacted.plan.points)
        revision = compacted.plan.points[-1].reason if points > conversation.points else ""
        conversation.points = points
        return Outcome(
            result="observed" if self._observe else "rewritten" if changed else "unchanged",
            body=new,
            conversation=conversation,
            messages=conversation.messages,
            first_new=conversation.first_new,
            edits=compacted.plan.edits,
            revision=revision,
            took=time.perf_counter() - start,
            model=conversation.model,
        )

    def _save(self, conversation: Conversation) -> None:
        if self.conversations.looks_back:
            self.conversations.save(conversation)

    def _as_is(self, conversation: Conversation, changed: bool) -> None:
        if changed and not self._observe:
            conversation.session.sent_as_is()

    def _counted(self, job: Job, body: bytes, start: float) -> Outcome:
        """The size is asked of what would be sent, and nothing is: so nothing is remembered of it."""
        found = self.conversations.find(job.format, job.named, body)
        compacted = self.conversations.preview(job.format, found, body, job.at)
        if compacted.reason:
            raise IbidemError(compacted.reason)
        new = None if self._observe or not compacted.plan else _encoded(compacted.request, job.encoding)
        job.end()
        return Outcome(result="unchanged" if new is None else "rewritten", body=new, took=time.perf_counter() - start)


def _decoded(body: bytes, encoding: str, most: int) -> bytes:
    """A request that came compressed, as it was before."""
    if not encoding or encoding == "identity":
        return body
    found = decoder(encoding)
    if found is None:
        raise Unreadable(f"its encoding {encoding!r} is not known here")
    whole = bytearray()
    for start in range(0, len(body), PIECE):
        try:
            whole += found.decompress(body[start : start + PIECE])
        except Exception as error:  # each package has its own
            raise Unreadable(f"it is not in the encoding {encoding!r} that it says") from error
        if len(whole) > most:
            raise Unreadable(f"it is larger than {most:,} bytes when it is unpacked")
    return bytes(whole)


def _zstd(data: bytes) -> bytes:
    import zstandard

    return zstandard.ZstdCompressor().compress(data)


def _brotli(data: bytes) -> bytes:
    import brotli  # type: ignore[import-not-found,import-untyped,unused-ignore]  # it was read with it

    packed: bytes = brotli.compress(data, quality=4)
    return packed


ENCODERS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": lambda data: gzip.compress(data, 6, mtime=0),
    "x-gzip": lambda data: gzip.compress(data, 6, mtime=0),
    "deflate": zlib.compress,
    "zstd": _zstd,
    "br": _brotli,
}


def _encoded(body: bytes, encoding: str) -> bytes:
    return ENCODERS[encoding](body) if encoding in ENCODERS else body
